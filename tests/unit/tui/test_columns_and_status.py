"""The table's columns and the lines around it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.pictures import NOW, nodes, picture, probes
from tui.columns import heading_line, layout, needed, row_line
from tui.lines import plain, width_of
from tui.model import Board, Link, received
from tui.rows import row_of
from tui.status import attention_line, keys_line, status_line, title_line

BOARD = Board(link=Link(since=NOW))


@pytest.mark.parametrize("width", [60, 79, 80, 119, 120, 159, 160, 250])
def test_every_row_has_the_width_of_its_columns(width: int) -> None:
    columns = layout(width)
    assert needed(columns) <= max(width, 79)
    for view in probes().values():
        row = row_line(row_of(view, nodes(), NOW), columns, chosen=True)
        assert width_of(row) == needed(columns) == width_of(heading_line(columns))


def test_more_room_shows_more() -> None:
    assert [len(layout(width)) for width in (79, 119, 160)] == [6, 8, 11]


def test_the_cursor_is_a_mark_and_not_only_a_colour() -> None:
    row = row_of(probes()["prb-7k3m9q2xta"], nodes(), NOW)
    assert plain(row_line(row, layout(80), chosen=True)).startswith("▌")
    assert plain(row_line(row, layout(80), chosen=False)).startswith(" ")


@pytest.mark.parametrize("width", [80, 120, 160])
def test_what_is_wrong_fits_or_is_counted(width: int) -> None:
    board = received(BOARD, picture(), NOW)
    shown = attention_line(board, NOW, width)
    assert width_of(shown) <= width
    assert plain(shown).startswith(" ✗ 4: node gpu-2 is offline · prb-2v8c5n1wze over budget 1m14s")
    assert ("more" in plain(shown)) == (width < 160)


def test_calm_is_said() -> None:
    board = received(BOARD, picture(probes={}, nodes={}), NOW)
    assert plain(attention_line(board, NOW, 80)) == " ✓ nothing asks for you"
    assert "waiting for the first picture" in plain(attention_line(BOARD, NOW, 80))
    assert plain(title_line(BOARD, 0)) == " modelforge probes"


def test_wishes_are_in_the_title() -> None:
    board = replace(received(BOARD, picture(), NOW), filter_text="gpu", faults_only=True)
    assert plain(title_line(board, 3)).startswith(" modelforge /gpu faults only  3 of 9  ")


def test_the_status_line_tells_connected_reconnecting_and_ended() -> None:
    board = received(BOARD, picture(), NOW)
    assert plain(status_line(board, NOW, context="ada @ nats")) == " ● connected · 0s ago · ada @ nats · event 1842"
    down = received(board, picture(connected=False, last_error="gone"), NOW + timedelta(seconds=2))
    shown = plain(status_line(down, NOW + timedelta(seconds=62), context="ada @ nats"))
    assert shown.startswith(" ◌ reconnecting 1m00s · as of 12:00:00 UTC (1m02s ago) · gone")
    assert "read-only" in plain(status_line(replace(board, refusal="no"), NOW, context="ada"))


def test_keys_fit_eighty_cells() -> None:
    keys = (("enter", "read", True), ("x", "cancel", False))
    assert plain(keys_line(keys)) == " enter read  x cancel"
