"""Numbers in few cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.format import digest, duration, milliseconds, na, running, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3.0, "0ms"), (0.0331, "33ms"), (0.1, "0.1s"), (9.94, "9.9s"), (9.96, "9s"), (42.9, "42s"), (59.99, "59s"), (252, "4m12s"),
        (3_599.9, "59m59s"), (3_600, "1h00m"), (86_399, "23h59m"), (187_200, "2d04h"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats(-1e6, 8_553_600, allow_nan=False))
def test_a_duration_fits_its_column(seconds: float) -> None:
    assert len(duration(seconds)) <= 6
    assert len(running(seconds)) <= 6


def test_an_open_duration_changes_once_a_second() -> None:
    assert running(4.2) == running(4.9) == "4s"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None), (0, "0 B"), (1_023, "1023 B"), (1_024, "1.00 KiB"), (95_630_131, "91.2 MiB"),
        (437 * 1_024**2, "437 MiB"), (9_238_528_000, "8.60 GiB"), (5 * 1_024**5, "5120 TiB"), (-2_048, "-2.00 KiB"),
    ],
)  # fmt: skip
def test_sizes(value: int | None, text: str | None) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, None), (0.84, "0.8 ms"), (183.2, "183 ms"), (999.6, "1000 ms"), (4_210, "4.21 s")]
)
def test_measured_durations(value: float | None, text: str | None) -> None:
    assert milliseconds(value) == text


def test_what_is_missing_says_why() -> None:
    assert na("no NVIDIA driver") == "n/a (no NVIDIA driver)"
    assert na(None) == "n/a"
    assert digest("sha256:" + "ab" * 32) == "abababababab"
