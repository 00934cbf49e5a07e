from __future__ import annotations

import os
import subprocess
import sys

import pytest

from node_agent.measure.host import read_host_memory


@pytest.mark.req("P7")
def test_reads_resident_proportional_and_peak_memory() -> None:
    memory = read_host_memory(os.getpid())
    assert memory.reason is None
    assert memory.rss_bytes is not None
    assert memory.pss_bytes is not None
    assert memory.peak_rss_bytes is not None
    assert 1_000_000 < memory.pss_bytes <= memory.rss_bytes <= memory.peak_rss_bytes


def test_a_dead_process_is_a_reason_and_no_zero() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        memory = read_host_memory(process.pid)
    assert memory.rss_bytes is None
    assert memory.reason == "the process has ended and was not reaped yet"
    assert read_host_memory(process.pid).reason == "the process is gone"
