from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.payloads import EMBEDDING_INPUT
from node_agent.child_log import ChildLog

TOKEN = "hf_" + "a" * 30


def log_of(*parts: bytes, head: int = 64, tail: int = 64) -> ChildLog:
    log = ChildLog(head, tail)
    for part in parts:
        log.feed(part)
    return log


def test_a_short_log_is_kept_whole() -> None:
    log = log_of(b"one\ntwo", b"\nthree\n")
    assert (log.text(), log.dropped_bytes) == ("one\ntwo\nthree\n", 0)


def test_what_fits_into_head_and_tail_together_is_kept_whole() -> None:
    text = b"x" * 128
    assert log_of(text).text() == text.decode()
    assert log_of(text).dropped_bytes == 0


@pytest.mark.req("P12")
def test_a_long_log_keeps_whole_lines_of_both_ends_and_counts_the_rest() -> None:
    lines = [f"line {number:04}\n" for number in range(100)]
    log = log_of(*[line.encode() for line in lines])
    kept = log.text().splitlines()
    assert kept[:6] == [line.strip() for line in lines[:6]]
    assert kept[-6:] == [line.strip() for line in lines[-6:]]
    assert kept[6] == f"... {log.dropped_bytes} bytes were dropped ..."
    assert log.dropped_bytes == (100 - len(kept) + 1) * 10


@pytest.mark.req("P12")
def test_credentials_and_the_input_do_not_leave() -> None:
    text = log_of(f"token={TOKEN}\n".encode(), f"bad text: {EMBEDDING_INPUT}\n".encode(), head=200).text()
    assert TOKEN not in text
    assert "ModelForge runtime" not in text
    assert "[probe input]" in text


@pytest.mark.req("P12")
@pytest.mark.parametrize("before", range(40, 70))
def test_a_credential_on_the_edge_of_what_is_kept_is_not_half_shown(before: int) -> None:
    log = log_of(b"x" * before + b"\n", f"see {TOKEN} there\n".encode(), b"y" * 200 + b"\n" + b"end\n")
    assert "aaaa" not in log.text()


def test_terminal_control_is_removed() -> None:
    assert log_of(b"a\x1b[31mb\x1b]0;title\x07c\r\n").text() == "abc\n"


@given(st.lists(st.binary(max_size=50), max_size=40))
def test_it_never_grows_and_always_adds_up(parts: list[bytes]) -> None:
    log = log_of(*parts, head=32, tail=32)
    total = sum(map(len, parts))
    assert 0 <= log.dropped_bytes <= total
    assert log.dropped_bytes == 0 or total > 64
    assert len(log._head) <= 32
    assert log._tail_bytes <= 32 + 50
