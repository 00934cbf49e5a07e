from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.text import clean_line
from modelforge import format as text

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (90_870_000, "86.7 MiB"), (2**50, "1024.0 TiB")],
)
def test_sizes_are_in_binary_units(value: int | None, words: str) -> None:
    assert text.size(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(None, "-"), (4.25, "4.2 ms"), (1_734.0, "1.73 s"), (125_000.0, "2 min 05 s")]
)
def test_durations_choose_their_unit(value: float | None, words: str) -> None:
    assert text.duration_ms(value) == words


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (timedelta(seconds=3), "3 s"),
        (timedelta(minutes=12), "12 min"),
        (timedelta(hours=5), "5 h"),
        (timedelta(days=9), "9 d"),
        (timedelta(seconds=-4), "0 s"),
    ],
)
def test_ages_are_coarse_and_never_negative(ago: timedelta, words: str) -> None:
    assert text.age(NOW - ago, NOW) == words


def test_moments_are_rfc_3339() -> None:
    assert text.moment(NOW) == "2026-01-02T03:04:05Z"
    assert text.moment(None) == "-"


def test_a_table_aligns_wide_characters() -> None:
    lines = text.table(("NAME", "N"), [("模型", 1), ("ab", 22)]).splitlines()
    assert lines == ["NAME  N", "模型  1", "ab    22"]


def test_a_cell_that_was_cut_says_so() -> None:
    limit = text.MAX_CELL_CHARS
    assert text.table(("N",), [("a" * limit,)]).splitlines()[1] == "a" * limit
    assert text.table(("N",), [("a" * (limit + 1),)]).splitlines()[1] == "a" * (limit - 1) + "…"


def test_a_card_keeps_lines_in_their_column() -> None:
    assert text.card([("a", "1\n2"), ("bcd", 3)]) == "  a    1\n       2\n  bcd  3"
    assert text.card([]) == ""


@given(st.text(), st.text())
def test_nothing_shown_can_drive_the_terminal(name: str, value: str) -> None:
    shown = text.table((name[:0] or "H",), [(f"\x1b]52;c;AAAA\x07{value}",)]) + text.card([("k", value)])
    assert "\x1b" not in shown
    assert "\x9b" not in shown


def test_counts_have_a_plural() -> None:
    assert text.count(1, "file") == "1 file"
    assert text.count(0, "file") == "0 files"


def test_a_short_digest_is_for_the_screen() -> None:
    assert text.short("sha256:" + "ab" * 32) == "ab" * 6
    assert text.short(None) == "-"


@given(st.text(), st.integers(6, 80), st.sampled_from(["", "  ", "    "]))
def test_wrapped_lines_fit_and_lose_no_word(value: str, columns: int, indent: str) -> None:
    lines = text.wrap(value, columns, first=indent, rest=indent)
    assert all(text.width(line) <= columns for line in lines)
    assert "".join("".join(lines).split()) == "".join(clean_line(value).split())
    assert all(line.startswith(indent) or not line for line in lines)


def test_words_stay_whole_where_they_fit() -> None:
    assert text.wrap("alpha beta gamma", 11, first="> ", rest=". ") == ["> alpha", ". beta", ". gamma"]
    assert text.wrap("alpha beta gamma", 12, rest="  ") == ["alpha beta", "  gamma"]
    assert text.wrap("", 12) == [""]


@given(st.text(), st.integers(4, 40), st.integers(1, 4))
def test_a_cut_text_says_so_and_fits(value: str, columns: int, lines_max: int) -> None:
    whole = text.wrap(value, columns)
    cut = text.wrap(value, columns, lines_max=lines_max)
    assert len(cut) <= lines_max
    assert all(text.width(line) <= columns for line in cut)
    assert cut == whole if len(whole) <= lines_max else cut[-1].endswith("…")
    assert text.width(text.fit(value, columns)) <= columns


def test_what_fits_is_not_cut() -> None:
    assert text.fit("abcd", 4) == "abcd"
    assert text.fit("abcde", 4) == "abc…"
    assert text.fit("模型模型", 4) == "模…"


def test_a_cut_text_ends_with_a_whole_word() -> None:
    lines = text.wrap("one two three four five seventeen", 10, rest="  ", lines_max=2)
    assert lines == ["one two", "  three …"]
    assert text.wrap("x" * 40, 10, lines_max=1) == ["x" * 8 + " …"]  # a part of a word where that is all there is


def test_a_card_of_a_given_width_wraps_words_and_keeps_a_long_one_whole() -> None:
    shown = text.card([("name", "a b c d e f g h i j"), ("digest", "z" * 20)], indent=0, columns=22).splitlines()
    assert shown == ["name    a b c d e f g", "        h i j", "digest", "  " + "z" * 20]
    assert text.card([("name", "a b c d")], columns=10).splitlines() == [
        "  name  a",
        "        b",
        "        c",
        "        d",
    ]
