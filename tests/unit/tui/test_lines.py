"""Spans are clean and cells are exact, whatever comes in."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.lines import Tone, cell, cut_line, fit, joined, line, paragraph, plain, span, width_of, wrap

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


@pytest.mark.parametrize(
    "text", ["\u0301" * 100, "a" + "\u0301" * 100, "abcdefgh" + "\u0301" * 100, "\x1b[31m" * 30 + "ab"]
)
def test_a_cut_of_what_takes_no_cells_says_so_too(text: str) -> None:
    assert fit(text, 8).rstrip().endswith("…")
    assert cell_len(fit(text, 8)) == 8


def test_a_line_that_nobody_can_scroll_is_cut_with_a_mark() -> None:
    content = line("one ", span("two", Tone.BAD), span(" three", Tone.DIM))
    assert plain(cut_line(content, 6)) == "one t…"
    assert cut_line(content, 6)[-1].tone is Tone.BAD
    assert plain(cut_line(content, 7)) == "one tw…"
    assert cut_line(content, 13) is content
    padded = line("one", "      ")
    assert cut_line(padded, 4) is padded  # blanks are no loss
    assert plain(cut_line(line("漢字漢字"), 4)) == "漢 …"


@given(st.lists(ANY, max_size=5), st.integers(1, 40))
def test_a_cut_line_never_has_more_cells_than_asked_for(texts: list[str], width: int) -> None:
    made = plain(cut_line(line(*texts), width))
    assert cell_len(made.rstrip()) <= width


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
