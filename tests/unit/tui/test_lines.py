"""Spans are clean and cells are exact, whatever comes in."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.lines import Tone, cell, fit, joined, line, paragraph, plain, span, width_of, wrap

CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
ANY = st.text(st.characters(codec=None), max_size=200)


@given(ANY, st.integers(0, 40), st.booleans())
def test_a_cell_has_exactly_its_cells_and_no_control(text: str, width: int, right: bool) -> None:
    made = fit(text, width, right=right)
    assert cell_len(made) == width
    assert CONTROL.search(made) is None


@given(ANY)
def test_a_span_has_no_control(text: str) -> None:
    assert CONTROL.search(span(text).text) is None


@given(st.text("ab 漢\u0301🙂", max_size=200), st.integers(2, 40))
def test_wrapping_loses_nothing_but_blanks(text: str, width: int) -> None:
    pieces = list(wrap(text, width))
    assert all(cell_len(piece) <= width for piece in pieces)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


def test_a_cut_says_so() -> None:
    assert fit("GPU_MEMORY_NOT_RECLAIMED", 10) == "GPU_MEMOR…"
    assert fit("ab", 4, right=True) == "  ab"
    assert fit("漢字漢字", 5) == "漢字…"


@pytest.mark.parametrize("combining", ["a" + "\u0301" * 100_000, "\u0301" * 5_000])
def test_marks_without_a_cell_cannot_make_a_line_endless(combining: str) -> None:
    assert len(fit(combining, 10)) < 100


def test_a_paragraph_stands_under_its_label() -> None:
    lines = [plain(content) for content in paragraph("why", "one two three four", 20)]
    assert lines == ["why       one two", "          three four"]


def test_joining_and_width() -> None:
    content = joined([line("a"), line(span("漢", Tone.BAD))])
    assert plain(content) == "a · 漢"
    assert width_of(content) == 6
    assert cell("x", 3, Tone.GOOD) == ("x  ", Tone.GOOD)
