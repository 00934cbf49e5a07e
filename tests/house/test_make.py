"""A newcomer types `make demo` or `make test` and nothing before it."""

from __future__ import annotations

import re
import subprocess
from typing import Final

import pytest

from tests.support import repo

MAKE_S: Final = 20
TARGETS: Final = ("bench", "check", "demo", "docs", "ledger", "test")
MAKEFILE: Final = repo.text("Makefile")


def dry_run(target: str) -> str:
    """What make would do, without doing it."""
    command = ["make", "--dry-run", "--always-make", target]
    return subprocess.run(command, cwd=repo.ROOT, check=True, capture_output=True, text=True, timeout=MAKE_S).stdout


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_sets_up_by_itself(target: str) -> None:
    assert "--constraint constraints.txt" in dry_run(target)
    assert re.search(rf"^{target}: \$\(STAMP\)", MAKEFILE, re.MULTILINE)


def test_setup_installs_the_tested_versions_with_the_demo() -> None:
    steps = dry_run("setup")

    assert "--group dev" in steps
    assert "'.[demo]'" in steps
    assert "--build-constraint constraints.txt" in steps


def test_setup_is_done_again_when_what_it_rests_on_changes() -> None:
    assert re.search(r"^\$\(STAMP\): pyproject\.toml constraints\.txt$", MAKEFILE, re.MULTILINE)


def test_check_runs_every_checker() -> None:
    steps = dry_run("check")

    for checker in ("ruff check", "ruff format --check", "mypy", "lint-imports", "docs/generate.py --check", "pytest"):
        assert checker in steps


def test_every_target_is_explained() -> None:
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))

    assert set(re.findall(r"^([a-z]+):.*## .+\.$", MAKEFILE, re.MULTILINE)) == targets


def test_continuous_integration_types_what_a_developer_types() -> None:
    script = repo.text(".ci/run")

    assert script.splitlines()[-1] == "exec make check test"
    assert (repo.ROOT / ".ci/run").stat().st_mode & 0o111
