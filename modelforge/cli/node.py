"""`modelforge node`: the machines that said hello, and whether they may be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from bus import verbs
from bus.ids import now
from bus.messages.api import ById, NodeFlagsRequest, Page
from modelforge import format as text
from modelforge.cli.command import App, Command
from modelforge.cli.names import adapter_label
from modelforge.cli.output import columns
from modelforge.cli.session import with_operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from bus.messages.inventory import HardwareFacts, NodeView
    from bus.messages.profiles import AdapterFacts


_COLUMNS: Final = 80


@click.group()
def node() -> None:
    """List and show nodes; say which may be used."""


@node.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=200, show_default=True, help="At most so many.")
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the known nodes."""
    reply = with_operator(app, lambda operator: operator.call(verbs.NODES_LIST, Page(limit=limit)))
    nodes = reply.nodes

    def rows() -> str:
        moment = now()
        return text.table(
            ("NODE", "STATE", "LAST SEEN", "LAB", "ENVIRONMENT", "GPU"),
            [
                (
                    one.name,
                    one.liveness,
                    text.age(one.last_seen_at, moment),
                    "yes" if one.lab_eligible else "no",
                    text.short(one.environment_id),
                    _gpus(one.inventory.hardware if one.inventory else None),
                )
                for one in nodes
            ],
        )

    app.out.result("nodes", nodes, rows)
    app.out.truncated(reply, len(nodes), limit)
    if not nodes:
        app.next("modelforge up")


def _execution(one: AdapterFacts) -> str:
    if one.executable:
        return ""
    return " (can be inspected only)" if one.inspect_only else f" (not executable: {one.reason})"


def _gpus(hardware: HardwareFacts | None) -> str:
    if hardware is None:
        return text.NOTHING
    if hardware.gpus:
        return ", ".join(f"{gpu.name} ({text.size(gpu.memory_total_bytes)})" for gpu in hardware.gpus)
    return f"none ({hardware.gpu_reason or 'no reason given'})"


@node.command(cls=Command)
@click.argument("name")
@click.pass_obj
def show(app: App, name: str) -> None:
    """Show one node with its inventory."""
    found = with_operator(app, lambda operator: operator.call(verbs.NODES_SHOW, ById(id=name)))
    app.out.result("node", found, lambda: _card(found))


def _flag_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What `enable` and `disable` take."""
    options = (
        click.argument("name"),
        click.option("--lab/--no-lab", "lab", default=None, help="May it also run probes?  [as it was]"),
        click.option("--reason", required=True, help="Why; it is kept and audited."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@node.command(cls=Command)
@_flag_options
@click.pass_obj
def enable(app: App, name: str, lab: bool | None, reason: str) -> None:
    """Let the node NAME be used; --lab and --no-lab say whether probes may run on it."""
    _set_flags(app, NodeFlagsRequest(name=name, enabled=True, lab_eligible=lab, reason=reason))


@node.command(cls=Command)
@_flag_options
@click.pass_obj
def disable(app: App, name: str, lab: bool | None, reason: str) -> None:
    """Keep new probes away from the node NAME; what runs there goes on, and can be cancelled."""
    _set_flags(app, NodeFlagsRequest(name=name, enabled=False, lab_eligible=lab, reason=reason))


def _set_flags(app: App, request: NodeFlagsRequest) -> None:
    found = with_operator(app, lambda operator: operator.call(verbs.NODES_SET, request))
    app.out.result("node", found, lambda: flags_card(found, request.reason))
    app.out.note("assessments and candidates of this node rest on this; each says whether it is stale now", "quiet")


def flags_card(found: NodeView, reason: str) -> str:
    """What is so now and why; the whole inventory is for `node show`."""
    if not found.enabled:
        now_so = "DISABLED for work"
    elif found.lab_eligible:
        now_so = "enabled for work and probes"
    else:
        now_so = "enabled for work, NOT for probes"
    first = text.wrap(f"{found.name} is {now_so}: {reason}", _COLUMNS, rest="  ")
    return "\n".join([*first, text.card(_flag_pairs(found), indent=0)])


def _flag_pairs(found: NodeView) -> list[tuple[str, object]]:
    return [
        ("node", found.name),
        ("state", found.liveness),
        ("last seen", text.moment(found.last_seen_at)),
        ("enabled", "yes" if found.enabled else "no"),
        ("lab eligible", "yes" if found.lab_eligible else "no"),
    ]


def _card(found: NodeView) -> str:
    pairs: list[tuple[str, object]] = [
        *_flag_pairs(found),
        ("boot", found.boot_id or text.NOTHING),
        ("environment", found.environment_id or text.NOTHING),
    ]
    if found.inventory is not None:
        inventory, hardware = found.inventory, found.inventory.hardware
        pairs += [
            ("agent", f"{inventory.agent_version}, since {text.moment(inventory.started_at)}"),
            ("capabilities", ", ".join(inventory.capabilities) or text.NOTHING),
            ("slots", f"{len(inventory.active)} of {inventory.slots} in use"),
            ("processor", f"{hardware.cpu_model}, {text.count(hardware.cpu_count, 'core')}"),
            (
                "memory",
                f"{text.size(hardware.memory_available_bytes)} of {text.size(hardware.memory_total_bytes)} free",
            ),
            ("gpu", _gpus(hardware)),
            ("python", f"{inventory.environment.python} on {inventory.environment.platform}"),
            ("packages", "\n".join(f"{name} {version}" for name, version in inventory.environment.packages.items())),
            (
                "adapters",
                "\n".join(
                    adapter_label(one.name, one.version) + _execution(one) for one in inventory.environment.adapters
                ),
            ),
        ]
    return text.card(pairs, indent=0, columns=columns())
