"""Colours, and how often the screen may be painted: both follow the terminal that the operator sits at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from textual.theme import Theme

PAINTS_PER_S: Final = 4
PAINTS_PER_S_OVER_SSH: Final = 2
PLAIN_THEME: Final = "ansi-dark"

THEME: Final = Theme(
    name="modelforge",
    primary="#7cc5ff",
    secondary="#9aa7b8",
    accent="#c8a6ff",
    success="#7fd88f",
    warning="#f0c36a",
    error="#ff7b7b",
    foreground="#d5dbe3",
    background="#0f1319",
    surface="#151b23",
    panel="#1c242f",
    boost="#26313f",
    dark=True,
    variables={"block-cursor-background": "#26313f", "footer-key-foreground": "#7cc5ff"},
)


def wants_no_colour(environment: Mapping[str, str]) -> bool:
    """Has the operator set `NO_COLOR` to anything (no-color.org)?"""
    return bool(environment.get("NO_COLOR"))


def paints_per_s(environment: Mapping[str, str]) -> int:
    """How often the screen is painted at most: half as often over SSH, where every paint travels."""
    return PAINTS_PER_S_OVER_SSH if environment.get("SSH_CONNECTION") else PAINTS_PER_S
