"""What a service may say in compose.yaml, as a list of what is allowed (spec B3).

A list of what is forbidden would have to know every key that an engine ever learns: `volumes_from`,
`use_api_socket`, `group_add`, `extra_hosts` and `env_file` each open a door of their own.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
import yaml

from tests.support import repo

COMPOSE: Final[dict[str, Any]] = yaml.safe_load(repo.text("compose/compose.yaml"))
GPU: Final[dict[str, Any]] = yaml.safe_load(repo.text("compose/compose.gpu.yaml"))
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
VARIABLE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")
SOURCES: Final = re.compile(
    r"\$\{MODELFORGE_(COMPOSE_STATE:-\./state\}/(nats|accounts|controller)|ARTIFACTS:-\./artifacts\})"
)
TMP: Final = "/tmp"  # noqa: S108 -- the name that the specification gives to the one writable place
MAX_PIDS: Final = 512
LOGGING: Final = {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}

Rule = Callable[[Any], bool]


def same(*allowed: object) -> Rule:
    """One of these values and no other; `True` is not 1."""
    return lambda value: any(type(value) is type(one) and value == one for one in allowed)


def text(pattern: str) -> Rule:
    """A text that, with no variable set, has this form."""
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, VARIABLE.sub(r"\2", value)) is not None


def each(rule: Rule) -> Rule:
    return lambda value: isinstance(value, list) and all(map(rule, value))


def record(**rules: Rule) -> Rule:
    """A mapping of some of these keys, each with its rule."""
    return lambda value: isinstance(value, dict) and all(key in rules and rules[key](value[key]) for key in value)


# What every service must say.
HARDENED: Final[dict[str, Rule]] = {
    "user": text(r"[1-9]\d*:[1-9]\d*"),
    "init": same(True),
    "read_only": same(True),
    "cap_drop": same(["ALL"]),
    "security_opt": same(["no-new-privileges:true"]),
    "networks": same(["bus"]),
    "restart": same("unless-stopped", "no"),
    "ulimits": same({"core": 0}),
    "logging": same(LOGGING),
    "image": text(r"modelforge-[a-z]+"),
    "mem_limit": text(r"\d+[mg]"),
    "pids_limit": lambda value: type(value) is int and 0 < value <= MAX_PIDS,
}
_BUILD: Final = record(context=same(".."), dockerfile=text(r"compose/[a-z]+/Dockerfile"))
_AFTER_NATS: Final = same({"nats": {"condition": "service_healthy"}})
_TMPFS: Final = each(text(rf"{TMP}:rw,nosuid,nodev,noexec,size=\d+[mg]"))
_VOLUMES: Final = each(
    record(
        type=same("bind"),
        source=lambda value: isinstance(value, str) and SOURCES.fullmatch(value) is not None,
        target=text(r"/(artifacts|var/lib/(nats|modelforge)|etc/nats/accounts)"),
        read_only=same(True),
    )
)
_CONFIGS: Final = each(record(source=same(*COMPOSE["configs"]), target=text(r"/etc/modelforge/[a-z]+\.toml")))
_GRACE: Final = text(r"\d+s")
# What one service may say besides.
OWN: Final[dict[str, dict[str, Rule]]] = {
    "nats": {
        "build": _BUILD,
        "volumes": _VOLUMES,
        "healthcheck": record(
            test=same(["CMD", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8222/healthz"]),
            interval=_GRACE,
            timeout=_GRACE,
            retries=lambda value: type(value) is int,
        ),
    },
    "controller": {
        "build": _BUILD,
        "depends_on": _AFTER_NATS,
        "tmpfs": _TMPFS,
        "volumes": _VOLUMES,
        "configs": _CONFIGS,
        "secrets": same(["controller", "responder"]),
        "stop_grace_period": _GRACE,
    },
    "worker": {
        "build": _BUILD,
        "depends_on": _AFTER_NATS,
        "tmpfs": _TMPFS,
        "volumes": _VOLUMES,
        "configs": _CONFIGS,
        "secrets": same(["node"]),
        "stop_grace_period": _GRACE,
    },
    "operator": {
        "profiles": same(["operator"]),
        "tmpfs": _TMPFS,
        "entrypoint": same(["/opt/modelforge/bin/modelforge"]),
        "command": same(["doctor"]),
        "environment": record(
            MODELFORGE_CONFIG=text(r"/etc/modelforge/operator\.toml"), MODELFORGE_STATE=text(rf"{TMP}/state")
        ),
        "configs": _CONFIGS,
        "secrets": same(["operator"]),
    },
}


def offences(name: str, service: dict[str, Any]) -> set[str]:
    """Keys that are not allowed, that have a value that is not, or that are missing."""
    rules = {**HARDENED, **OWN[name]}
    wrong = {key for key, value in service.items() if key not in rules or not rules[key](value)}
    return wrong | (set(HARDENED) - set(service))


@pytest.mark.req("B3")
@pytest.mark.parametrize("name", SERVICES)
def test_a_service_says_what_is_allowed_and_nothing_else(name: str) -> None:
    assert offences(name, SERVICES[name]) == set()


@pytest.mark.req("B3")
def test_the_file_has_these_parts_and_services_and_no_other() -> None:
    assert set(COMPOSE) == {"name", "x-hardened", "services", "networks", "configs", "secrets"}
    assert set(SERVICES) == set(OWN)
    assert COMPOSE["networks"] == {"bus": {"internal": True}}


@pytest.mark.req("B3")
def test_the_file_of_the_card_adds_a_card_and_nothing_else() -> None:
    """A file of its own, because an engine refuses to start a container whose device is missing."""
    assert GPU == {
        "services": {"worker": {"devices": ["nvidia.com/gpu=all"], "environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}}
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("volumes_from", ["controller"]),
        ("use_api_socket", True),
        ("group_add", ["0"]),
        ("extra_hosts", ["outside:host-gateway"]),
        ("env_file", [".env"]),
        ("environment", {"HF_HUB_OFFLINE": "0"}),
        ("entrypoint", ["/bin/sh"]),
        ("command", ["--config", "elsewhere.toml"]),
        ("ports", ["8080:8080"]),
        ("expose", ["8080"]),
        ("network_mode", "host"),
        ("networks", ["bus", "outside"]),
        ("pid", "host"),
        ("ipc", "host"),
        ("userns_mode", "host"),
        ("privileged", True),
        ("cap_add", ["SYS_ADMIN"]),
        ("security_opt", ["no-new-privileges:true", "seccomp:unconfined"]),
        ("devices", ["/dev/kmsg"]),
        ("user", "0:0"),
        ("user", "${MODELFORGE_UID:-0}:${MODELFORGE_GID:-10001}"),
        ("read_only", 1),
        ("ulimits", {"core": -1}),
        ("pids_limit", -1),
        ("tmpfs", [f"{TMP}:rw,nosuid,nodev,noexec,size=1g", "/var:rw"]),
        ("tmpfs", [f"{TMP}:rw,nosuid,nodev,exec,size=1g"]),
        ("volumes", ["/var/run/docker.sock:/var/run/docker.sock"]),
        ("volumes", [{"type": "bind", "source": "/", "target": "/artifacts", "read_only": True}]),
        ("volumes", [{"type": "bind", "source": "${HOME}/.ssh", "target": "/artifacts", "read_only": True}]),
        ("volumes", [{"type": "bind", "source": "${MODELFORGE_COMPOSE_STATE:-./state}/keys", "target": "/artifacts"}]),
        ("secrets", ["node", "controller"]),
        ("build", {"context": "..", "dockerfile": "compose/worker/Dockerfile", "privileged": True}),
    ],
)
def test_another_key_or_value_of_the_worker_would_be_seen(key: str, value: object) -> None:
    assert offences("worker", {**copy.deepcopy(SERVICES["worker"]), key: value}) == {key}


@pytest.mark.parametrize("key", HARDENED)
def test_a_hardening_line_that_is_taken_out_would_be_seen(key: str) -> None:
    rest = {name: value for name, value in SERVICES["worker"].items() if name != key}

    assert offences("worker", rest) == {key}
