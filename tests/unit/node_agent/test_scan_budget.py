"""The processor time of a scan, as the kernel is told: each in a process of its own, because a limit only ever falls."""

from __future__ import annotations

import subprocess
import sys

from node_agent.scan_child.budget import HASHING_S, HEADERS_S, LISTING_S, hashing_s, headers_s

_PROGRAM = """
import resource, time
from node_agent.scan_child.budget import CpuBudget
def say():
    print(*resource.getrlimit(resource.RLIMIT_CPU))
{before}
budget = CpuBudget(1_000, 7)
say()
budget.listed({files}, {size})
say()
budget.file()
say()
budget.hashing()
say()
"""
_USED_S = 3  # what a fresh interpreter has used by then, rounded up, with room


def limits(files: int, size: int, before: str = "") -> list[tuple[int, int]]:
    """Soft and hard limit after each step; the hard one is -1 as long as there is none."""
    program = _PROGRAM.format(files=files, size=size, before=before)
    done = subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True, timeout=50)
    return [(int(line.split()[0]), int(line.split()[1])) for line in done.stdout.splitlines()]


def test_each_step_has_its_own_limit_and_the_last_one_stands_from_the_listing_on() -> None:
    files, size = 100, 2**40
    listing, headers, file, hashing = limits(files, size)
    whole_s = headers_s(files) + hashing_s(files, size)
    assert LISTING_S <= listing[0] <= LISTING_S + 20 + _USED_S
    assert listing[1] == -1
    assert whole_s <= headers[1] <= whole_s + _USED_S
    assert HEADERS_S <= headers[0] <= headers_s(files) + _USED_S
    assert (7 <= file[0] <= 8 + _USED_S, file[1]) == (True, headers[1])
    assert hashing == (headers[1], headers[1])


def test_a_small_set_gets_little() -> None:
    assert limits(3, 1_000)[-1][0] <= HEADERS_S + HASHING_S + 2 + _USED_S


def test_a_limit_that_the_agent_has_itself_is_kept() -> None:
    own = "resource.setrlimit(resource.RLIMIT_CPU, (50, 50))"
    found = limits(100, 2**40, own)
    assert {hard for _, hard in found} == {50}
    assert all(soft <= 50 for soft, _ in found)
