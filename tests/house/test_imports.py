"""What a fresh interpreter really holds after importing a room (the static contracts are in pyproject.toml)."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.support import repo

IMPORT_S: Final = 50
MODEL_LIBRARIES: Final = frozenset(
    {
        "huggingface_hub",
        "numpy",
        "safetensors",
        "scipy",
        "sentence_transformers",
        "sklearn",
        "tokenizers",
        "torch",
        "transformers",
    }
)
DRIVERS: Final = frozenset({"aiosqlite", "nats", "nkeys", "prometheus_client", "pynvml", "sqlite3", "textual"})
# A module that a child imports after its barrier stands; it may hold the libraries, and nobody else imports it.
EXECUTABLE_ADAPTERS: Final = frozenset({"adapters.embedding"})
# The half of bus/ that speaks to the server. Everything else there is pure; a new module is pure unless it is named here.
WITH_NATS: Final = frozenset({"client", "feed", "lease_puller", "operator", "safe_client", "streams"})
PURE_BUS: Final = tuple(name for name in repo.modules("bus") if name.removeprefix("bus.") not in WITH_NATS)


def loaded_after(modules: Sequence[str]) -> frozenset[str]:
    """Top-level names in `sys.modules` of a fresh interpreter that imported `modules` and nothing else."""
    program = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]): importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    command = [sys.executable, "-P", "-W", "error", "-c", program, json.dumps(list(modules))]
    done = subprocess.run(command, cwd="/", check=False, capture_output=True, text=True, timeout=IMPORT_S)
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout.splitlines()[-1]))


def rooms_but(*own: str) -> frozenset[str]:
    return frozenset(repo.ROOMS) - frozenset(own)


def modules_of(room: str) -> list[str]:
    return [name for name in repo.modules(room) if name not in EXECUTABLE_ADAPTERS]


def test_the_look_into_a_fresh_interpreter_sees_what_is_there() -> None:
    assert loaded_after(["nats.errors"]) >= {"nats", "asyncio"}


def test_pure_bus_holds_neither_nats_nor_an_event_loop() -> None:
    held = loaded_after(PURE_BUS)

    assert held & (DRIVERS | MODEL_LIBRARIES | rooms_but("bus") | {"asyncio"}) == frozenset()


FORBIDDEN: Final[dict[str, frozenset[str]]] = {
    "bus": MODEL_LIBRARIES | rooms_but("bus") | (DRIVERS - {"nats", "nkeys"}),
    "adapters": MODEL_LIBRARIES | rooms_but("adapters", "bus") | DRIVERS,
    "observability": MODEL_LIBRARIES | rooms_but("observability", "bus") | {"pynvml", "textual"},
    "controller": MODEL_LIBRARIES | rooms_but("controller", "adapters", "observability", "bus") | {"pynvml", "textual"},
    "node_agent": MODEL_LIBRARIES
    | rooms_but("node_agent", "adapters", "observability", "bus")
    | {"aiosqlite", "sqlite3", "textual"},
    "tui": MODEL_LIBRARIES | rooms_but("tui", "bus") | {"aiosqlite", "prometheus_client", "pynvml", "sqlite3"},
    "modelforge": MODEL_LIBRARIES,
}


@pytest.mark.parametrize("room", repo.ROOMS)
def test_a_room_holds_nothing_that_it_may_not(room: str) -> None:
    held = loaded_after(modules_of(room))

    assert held & FORBIDDEN[room] == frozenset()


@pytest.mark.req("P6")
def test_the_agents_parent_process_holds_no_model_library() -> None:
    """The child owns the ML runtime; a parent that held it would keep its memory and its threads."""
    held = loaded_after(["node_agent.main", "node_agent.worker", "node_agent.probe_run"])

    assert held & MODEL_LIBRARIES == frozenset()


def test_the_childs_entry_is_light_until_its_barrier_stands() -> None:
    names = [name for name in repo.modules("adapters") if name.startswith("adapters.child.")]

    assert loaded_after(names) & (DRIVERS | MODEL_LIBRARIES | {"rich", "click"}) == frozenset()


def test_the_command_line_starts_without_the_rooms_that_a_command_may_not_need() -> None:
    held = loaded_after(["modelforge.cli.main"])

    assert held & (DRIVERS | MODEL_LIBRARIES | rooms_but("modelforge", "bus")) == frozenset()


def contract(identity: str) -> dict[str, Any]:
    contracts = tomllib.loads(repo.text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (found,) = (entry for entry in contracts if entry["id"] == identity)
    return dict(found)


def test_the_static_contract_knows_every_pure_module_of_the_bus() -> None:
    named = set(contract("pure-bus")["source_modules"])

    assert {name for name in PURE_BUS if name != "bus" and not name.startswith("bus.messages")} == named - {
        "bus.messages"
    }


def test_the_static_contracts_know_every_part_of_the_adapters() -> None:
    """A new adapter module is either light or executable, and the controller may use it only when somebody says so."""
    parts = {".".join(name.split(".")[:2]) for name in repo.modules("adapters")} - {"adapters"}
    light = contract("light-adapters")
    executable = {name for name in light["forbidden_modules"] if name.startswith("adapters.")}

    assert set(light["source_modules"]) | executable == parts
    assert set(contract("controller-inspects-only")["forbidden_modules"]) == parts - {
        "adapters.formats",
        "adapters.inspect",
        "adapters.loader_options",
        "adapters.names",
    }
