"""docs/reference/metrics.md."""

from __future__ import annotations

from docs.generators import markdown as md


def render() -> str:
    """The page."""
    return md.page("metrics")
