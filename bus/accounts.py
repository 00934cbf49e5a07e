"""Who may do what on the server: the one template from which every account and permission is rendered.

Every node is an account of its own, which imports exactly what it needs; whatever else exists in the central
account does not exist for it (spec B2). A permission list in a shared account would not do: the reply subject of a
request is not checked against it, so that a node could make a privileged responder publish on its behalf
(docs/adr/0003).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from bus import subjects
from bus.errors import ErrorCode, ModelForgeError
from bus.ids import check_name
from bus.verbs import USER_VERBS

Role = Literal["controller", "responder", "operator", "viewer"]

CENTRAL_ACCOUNT: Final = "MF"
SYSTEM_ACCOUNT: Final = "SYS"
_PUBLIC_KEY: Final = re.compile(r"^U[A-Z2-7]{55}$")
# Two, so that a restarted agent is not locked out by its own half-dead connection.
MAX_NODE_CONNECTIONS: Final = 2
MAX_NODE_SUBSCRIPTIONS: Final = 50
MAX_PAYLOAD_BYTES: Final = 1_048_576

# What the `nats` command line needs to look at everything and change nothing (spec D4).
INSPECTION: Final = (
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.MSG.GET.*",
    "$JS.API.DIRECT.GET.>",
    "$JS.API.CONSUMER.NAMES.*",
    "$JS.API.CONSUMER.LIST.*",
    "$JS.API.CONSUMER.INFO.*.*",
    "$SRV.PING",
    "$SRV.PING.>",
    "$SRV.INFO",
    "$SRV.INFO.>",
    "$SRV.STATS",
    "$SRV.STATS.>",
)
_WATCHING: Final = ("_INBOX.>", subjects.EVENTS_ALL, "$JS.EVENT.ADVISORY.>")


@dataclass(frozen=True, slots=True)
class UserKey:
    """A user of the central account: a part of the controller, or a person."""

    name: str
    role: Role
    public_key: str


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A node: the one user of the account of its own."""

    name: str
    public_key: str


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a user of the central account may publish and subscribe; nothing else is allowed."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def permissions(user: UserKey) -> Permissions | None:
    """The permissions of a user of the central account; `None` means: everything in that account.

    The responder answers requests whose reply subject the caller chose. So it may publish to inboxes only: `_INBOX`
    of the central account and `_R_`, which the server makes for requests from node accounts.
    """
    match user.role:
        case "controller":
            return None
        case "responder":
            return Permissions(("_INBOX.>", "_R_.>"), ("mf.api.>", "$SRV.>"))
        case "operator":
            return Permissions((f"mf.api.user.{user.name}.>", *INSPECTION), _WATCHING)
        case "viewer":
            queries = tuple(subjects.user_api(user.name, verb.name) for verb in USER_VERBS if verb.effect == "query")
            return Permissions((*queries, *INSPECTION), _WATCHING)


def node_services(node: str) -> tuple[str, ...]:
    """The subjects on which a node may send requests into the central account: its own, and no other's."""
    consumers = tuple(subjects.lane_consumer(node, lane) for lane in subjects.Lane)
    return (
        *(subjects.next_message(subjects.JOBS_STREAM, consumer) for consumer in consumers),
        *(f"{subjects.ACK_PREFIX}.{subjects.JOBS_STREAM}.{consumer}.>" for consumer in consumers),
        subjects.evidence(node),
        subjects.inventory(node),
        subjects.node_api(node, ">"),
    )


def account_name(node: str) -> str:
    """The account of a node."""
    return f"NODE_{check_name(node, 'node')}"


def render_accounts(users: Iterable[UserKey], nodes: Iterable[NodeKey]) -> str:
    """The accounts as text for nats-server's configuration file.

    Raises:
        ModelForgeError: INVALID_ARGUMENT for a bad name or key, or one that is used twice.
    """
    users, nodes = tuple(users), tuple(nodes)
    _check_unique(users, nodes)
    accounts = [f"  {SYSTEM_ACCOUNT} {{ users: [] }}", _central(users), *(_node(node) for node in nodes)]
    return "\n".join(["accounts {", *accounts, "}", f"system_account: {SYSTEM_ACCOUNT}", ""])


def _check_unique(users: tuple[UserKey, ...], nodes: tuple[NodeKey, ...]) -> None:
    for what, names in (("user", [user.name for user in users]), ("node", [node.name for node in nodes])):
        for name in names:
            if names.count(check_name(name, what)) > 1:
                raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"two {what}s are named {name!r}")
    keys = [user.public_key for user in users] + [node.public_key for node in nodes]
    for key in keys:
        # The text goes into a configuration file: nothing but the alphabet of a key may stand there.
        if _PUBLIC_KEY.match(key) is None:
            raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"{key!r} is not the public key of a user")
        if keys.count(key) > 1:
            raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"two identities share the key {key}")


def _list(names: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _central(users: tuple[UserKey, ...]) -> str:
    return "\n".join(
        [
            f"  {CENTRAL_ACCOUNT} {{",
            "    jetstream: enabled",
            "    users: [",
            *(f"      {_user(user)}" for user in users),
            "    ]",
            "    exports: [",
            f'      {{ service: "{subjects.next_message(subjects.JOBS_STREAM, "*")}", response_type: stream }}',
            f'      {{ service: "{subjects.ACK_PREFIX}.{subjects.JOBS_STREAM}.>" }}',
            f'      {{ service: "{subjects.EVIDENCE_ALL}" }}',
            f'      {{ service: "{subjects.INVENTORY_ALL}" }}',
            f'      {{ service: "{subjects.NODE_API_ALL}" }}',
            f'      {{ stream: "{subjects.COMMANDS_ALL}" }}',
            "    ]",
            "  }",
        ]
    )


def _user(user: UserKey) -> str:
    allowed = permissions(user)
    if allowed is None:
        return f"{{ nkey: {user.public_key} }}"
    return (
        f"{{ nkey: {user.public_key}, permissions: {{"
        f" publish: {{ allow: {_list(allowed.publish)} }},"
        f" subscribe: {{ allow: {_list(allowed.subscribe)} }} }} }}"
    )


def _node(node: NodeKey) -> str:
    limits = (
        f"max_connections: {MAX_NODE_CONNECTIONS}, max_subscriptions: {MAX_NODE_SUBSCRIPTIONS},"
        f" max_payload: {MAX_PAYLOAD_BYTES}"
    )
    central = f"account: {CENTRAL_ACCOUNT}, subject:"
    return "\n".join(
        [
            f"  {account_name(node.name)} {{",
            f"    limits {{ {limits} }}",
            f"    users: [ {{ nkey: {node.public_key} }} ]",
            "    imports: [",
            *(f'      {{ service: {{ {central} "{subject}" }} }}' for subject in node_services(node.name)),
            f'      {{ stream: {{ {central} "{subjects.command(node.name)}" }} }}',
            "    ]",
            "  }",
        ]
    )
