"""The bare room names are ours alone, the lock holds no stranger, and every process of ours is started behind `-P`."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from adapters import registry
from tests.support import repo

BUILD_S: Final = 50
# Distributions of others that bring a top-level package of one of our names, or of a driver that we take from elsewhere.
# `adapters` is an add-on to transformers; `pynvml` is deprecated, its module comes from nvidia-ml-py.
NEVER: Final = frozenset(
    {"adapters", "bus", "controller", "node-agent", "observability", "pynvml", "tui", "nats", "nats-python"}
)
CARD: Final[dict[str, str]] = {
    "nats": "nats-py",
    "msgspec": "msgspec",
    "aiosqlite": "aiosqlite",
    "textual": "textual",
    "torch": "torch",
    "transformers": "transformers",
    "sentence_transformers": "sentence-transformers",
    "pynvml": "nvidia-ml-py",
    "prometheus_client": "prometheus-client",
    "pytest_asyncio": "pytest-asyncio",
}
INTERPRETERS: Final = frozenset({"python", "self.python", "self._python", "sys.executable"})
PROJECT: Final[dict[str, Any]] = tomllib.loads(repo.text("pyproject.toml"))
PINS: Final[dict[str, str]] = {
    canonicalize_name(name): version
    for name, _, version in (
        line.partition("==") for line in repo.text("constraints.txt").splitlines() if not line.startswith("#")
    )
}


@cache
def providers() -> dict[str, list[str]]:
    """Top-level module -> canonical names of the distributions that bring it."""
    found = importlib.metadata.packages_distributions()
    return {module: sorted({canonicalize_name(name) for name in names}) for module, names in found.items()}


def required() -> list[Requirement]:
    """Everything that pyproject.toml asks for, in the base, in the extras, for development and for building."""
    asked = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["build-system"]["requires"],
        *PROJECT["dependency-groups"]["dev"],
    ]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        asked.extend(extra)
    return [requirement for requirement in map(Requirement, asked) if requirement.name != repo.DISTRIBUTION]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names inside the wheel that users get."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-P", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=repo.ROOT, check=True, capture_output=True, timeout=BUILD_S)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return archive.namelist()


def test_the_wheel_holds_the_rooms_and_nothing_else(wheel: list[str]) -> None:
    tops = {PurePosixPath(name).parts[0] for name in wheel}

    assert tops - set(repo.ROOMS) == {f"{repo.DISTRIBUTION}-{PROJECT['project']['version']}.dist-info"}
    assert set(repo.ROOMS) <= tops


def test_the_wheel_holds_every_file_of_the_rooms(wheel: list[str]) -> None:
    """SQL, style sheets and type markers are as much the product as the modules are."""
    assert [path for path in repo.files() if path.split("/")[0] in repo.ROOMS and path not in wheel] == []


@pytest.mark.parametrize("room", repo.ROOMS)
def test_a_room_belongs_to_our_distribution_alone(room: str) -> None:
    """No installed distribution brings this name, and the one that is imported lies in our tree."""
    spec = importlib.util.find_spec(room)

    assert set(providers().get(room, [])) <= {repo.DISTRIBUTION}
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).is_relative_to(repo.ROOT)


def test_no_forbidden_distribution_is_installed_or_pinned() -> None:
    installed = {canonicalize_name(found.name) for found in importlib.metadata.distributions()}

    assert installed & NEVER == set()
    assert set(PINS) & NEVER == set()


def test_the_pins_hold_no_cuda_build() -> None:
    """A range, or a local part, would fetch gigabytes for a card that may not be there."""
    assert PINS["torch"] == "2.13.0"
    assert [name for name in PINS if name.startswith("nvidia-") and name != "nvidia-ml-py"] == []
    assert [name for name in PINS if "cuda" in name or name == "triton"] == []


@pytest.mark.parametrize("requirement", required(), ids=str)
def test_what_is_asked_for_is_pinned_within_its_range(requirement: Requirement) -> None:
    pin = PINS.get(canonicalize_name(requirement.name))

    assert pin is not None
    assert requirement.specifier.contains(Version(pin))


def drifted(installed: dict[str, str]) -> dict[str, str]:
    """What is installed otherwise than pinned; what torch's CUDA build brings along is torch's own affair."""
    exempt = {repo.DISTRIBUTION, "setuptools"}
    return {
        name: version
        for name, version in installed.items()
        if name not in exempt and PINS.get(name) != Version(version).public and not brought_by_cuda(name)
    }


def brought_by_cuda(name: str) -> bool:
    """Is this a part of CUDA, as torch's CUDA build requires it? The ordinary index serves that build on x86-64."""
    return name not in PINS and (name == "triton" or name.startswith(("nvidia-", "cuda-")))


def test_what_is_installed_is_what_is_pinned() -> None:
    """An environment that drifted proves nothing about the tested versions; `make setup` puts it right."""
    assert drifted({canonicalize_name(found.name): found.version for found in importlib.metadata.distributions()}) == {}


def test_an_ordinary_machines_cuda_build_is_no_drift_and_anything_else_is() -> None:
    ordinary = {
        **PINS,
        "torch": f"{PINS['torch']}+cu130",
        "triton": "3.7.0",
        "nvidia-cublas": "13.1",
        "cuda-bindings": "13.2",
    }

    assert drifted(ordinary) == {}
    assert drifted({**ordinary, "torch": "2.12.0", "nvidia-ml-py": "1.0", "stranger": "1"}) == {
        "torch": "2.12.0",
        "nvidia-ml-py": "1.0",
        "stranger": "1",
    }


def test_no_adapter_is_named_like_a_library() -> None:
    """`adapters/formats` and `adapters/inspect` are named after formats and inspectors, and run nothing."""
    paths = [PurePosixPath(path) for path in repo.python_files("adapters")]
    stems = {path.stem for path in paths if path.parts[1] not in {"formats", "inspect"}}

    assert stems & {canonicalize_name(name).replace("-", "_") for name in PINS} == set()


def test_every_process_of_ours_starts_behind_dash_p() -> None:
    """Without -P a stray bus.py in the working directory is run in place of ours."""
    loose = [
        f"{path}:{command.lineno}"
        for path in repo.python_files(*repo.ROOMS, "benchmarks")
        if re.search(r"\bpython\b|sys\.executable", repo.text(path))
        for command in ast.walk(repo.tree(path))
        if isinstance(command, ast.List)
        for first, second in zip(command.elts, [*command.elts[1:], None], strict=False)
        if ast.unparse(first) in INTERPRETERS and not (isinstance(second, ast.Constant) and second.value == "-P")
    ]

    assert loose == []


def test_an_interpreter_has_no_other_name() -> None:
    """The test above knows these names: so nobody passes `sys.executable` on under another one."""
    strangers = [
        f"{path}:{number}"
        for path in repo.python_files(*repo.ROOMS, "benchmarks")
        for number, line in enumerate(repo.text(path).splitlines(), start=1)
        if "sys.executable" in line
        and not re.search(r'\bpython(: str)? ?= ?sys\.executable|sys\.executable, "-P"', line)
    ]

    assert strangers == []


def test_make_starts_python_behind_dash_p() -> None:
    lines = [line for line in repo.text("Makefile").splitlines() if re.search(r"\$\(BIN\)/python ", line)]

    assert [line for line in lines if not re.search(r"/python (-P|-m pip|--version|\|\|)", line)] == []


@pytest.mark.req("D5")
def test_the_rooms_of_the_design_card_stand_at_the_top() -> None:
    tops = {path.split("/")[0] for path in repo.files()}

    assert {"adapters", "bus", "compose", "controller", "node_agent", "observability", "tests", "tui"} <= tops
    assert "pyproject.toml" in tops
    assert [room for room in repo.ROOMS if len(repo.modules(room)) < 2] == []


@pytest.mark.req("D6")
@pytest.mark.parametrize("module", sorted(set(CARD) - {"pytest_asyncio"}))
def test_a_package_of_the_design_card_is_used_by_the_product(module: str) -> None:
    users = [path for path in repo.python_files(*repo.ROOMS) if module in repo.imported_roots(path)]
    preloaded = {name for entry in registry._ENTRIES for name in entry.preload}

    assert users != [] or module in preloaded
    assert providers()[module] == [CARD[module]]
    assert CARD[module] in {canonicalize_name(requirement.name) for requirement in required()}


@pytest.mark.req("D6")
async def test_asynchronous_tests_are_run_by_pytest_asyncio(request: pytest.FixtureRequest) -> None:
    assert providers()["pytest_asyncio"] == [CARD["pytest_asyncio"]]
    assert request.config.pluginmanager.hasplugin("asyncio")
    assert request.config.getini("asyncio_mode") == "auto"
