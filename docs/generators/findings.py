"""docs/reference/findings.md: every finding that an assessment can hold, what it means and what to do."""

from __future__ import annotations

from adapters.inspect.codes import CODES
from docs.generators import markdown as md


def render() -> str:
    """The page."""
    intro = (
        "What static analysis can say about a set, a profile and a node, before anything is loaded. The list is closed: a "
        "code is an API, never renamed or used for something else, only added. A finding names the file or fact that it "
        "rests on. A *blocker* keeps the set from being probed; a *warning* and a *note* do not. Nothing here says that a "
        "model was loaded: only a probe does."
    )
    rows = [(md.code(code.value), info.meaning, info.remedy) for code, info in CODES.items()]
    return md.page("Findings of an assessment", intro, md.table(("code", "what it means", "what to do"), rows))
