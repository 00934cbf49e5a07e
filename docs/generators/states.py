"""docs/reference/states.md: every transition table, as a diagram and in words."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, cast

from bus import states
from docs.generators import markdown as md


def render() -> str:
    """The page."""
    intro = (
        "One table per state machine, in `bus/states.py`. An event that has no edge changes nothing: it is refused with "
        "`ILLEGAL_TRANSITION`, unless it is listed as ignored. Each edge names who may cause it: the *node* whose attempt "
        "holds the lease, an *operator*, or the *controller* itself (deadlines, attempt limits, reconciliation)."
    )
    blocks = [intro]
    for table in states.TABLES:
        blocks.extend(_machine(table))
    return md.page("States", *blocks)


def _machine(table: states.Table[Any, Any]) -> list[str]:
    rows = [
        (md.code(state), md.code(event), md.code(edge.to), ", ".join(sorted(edge.by)))
        for (state, event), edge in table.edges.items()
    ]
    blocks = [
        f"## {table.name}",
        md.mermaid(_diagram(table)),
        md.table(("state", "event", "next state", "caused by"), rows),
        "Terminal: " + ", ".join(md.code(state) for state in _in_order(table) if state in table.terminal) + ".",
    ]
    if table.ignored:
        pairs = sorted((str(state), str(event)) for state, event in table.ignored)
        blocks.append(
            "Ignored: " + ", ".join(f"{md.code(event)} when {md.code(state)}" for state, event in pairs) + "."
        )
    return blocks


def _in_order(table: states.Table[Any, Any]) -> list[StrEnum]:
    return list(cast("type[StrEnum]", type(table.initial)))


def _diagram(table: states.Table[Any, Any]) -> list[str]:
    """Edges between the same two states share one arrow, or the picture of a probe is a tangle."""
    labels: dict[tuple[str, str], list[str]] = {}
    for (state, event), edge in table.edges.items():
        labels.setdefault((str(state), str(edge.to)), []).append(str(event))
    lines = ["stateDiagram-v2", f"    [*] --> {table.initial}"]
    lines.extend(f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in labels.items())
    lines.extend(f"    {state} --> [*]" for state in _in_order(table) if state in table.terminal)
    return lines
