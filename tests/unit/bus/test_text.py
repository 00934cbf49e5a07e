"""Foreign text cannot command the terminal, and credentials do not reach a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.text import clean_line, clean_text, redact


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[2Jgone", "gone"),
        ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
        ("a\x1b]0;title\x1b\\b", "ab"),
        ("\x9b31mred", "red"),
        ("open\x1b]52;c;never closed", "open"),
        ("safe\u202etxt.exe", "safe\ufffdtxt.exe"),
        ("bell\x07", "bell\ufffd"),
        *((f"mod{mark}el", "mod\ufffdel") for mark in "\u200b\u200c\u200d\u2060\u2064\u00ad\u180e\U000e0000\U000e0041"),
        ("over\rwrite", "over\ufffdwrite"),
        ("two\nlines", "two\nlines"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
    ],
)
def test_control_is_removed(hostile: str, harmless: str) -> None:
    assert clean_text(hostile) == harmless


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    cleaned = clean_line(text)
    assert not [mark for mark in cleaned if ord(mark) < 0x20 or 0x7F <= ord(mark) < 0xA0]
    assert clean_line(cleaned) == cleaned
    cleaned.encode()


@pytest.mark.parametrize(
    "secret",
    [
        "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY",
        "hf_abcdefghijklmnopqrstuv",
        "api_key=abc123",
        "Authorization: Bearer abc.def",
        "password: hunter2",
    ],
)
def test_what_looks_like_a_credential_is_redacted(secret: str) -> None:
    shown = redact(f"before {secret} after")
    assert "[redacted]" in shown
    assert shown.startswith("before ")
    assert secret.rsplit(" ", maxsplit=1)[-1].rsplit("=", maxsplit=1)[-1] not in shown


def test_the_password_of_an_address_is_redacted() -> None:
    assert redact("nats://ada:geheim@host:4222") == "nats://ada:[redacted]@host:4222"
