"""Write docs/reference/ from the code, or check that it is what the code says.

python -P docs/generate.py            write the pages
python -P docs/generate.py --check    change nothing; exit 1 when a page differs
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from docs.generators import cli, configuration, errors, findings, messages, metrics, states, streams

REFERENCE: Final = Path(__file__).resolve().parent / "reference"
MAX_DIFF_LINES: Final = 40
PAGES: Final[dict[str, Callable[[], str]]] = {
    "states.md": states.render,
    "messages.md": messages.render,
    "errors.md": errors.render,
    "findings.md": findings.render,
    "streams.md": streams.render,
    "metrics.md": metrics.render,
    "configuration.md": configuration.render,
    "cli.md": cli.render,
}


def differences() -> dict[str, str]:
    """Page name -> unified diff, for every page that is not what the code says; also pages that no code writes."""
    found: dict[str, str] = {}
    for name, render in PAGES.items():
        path = REFERENCE / name
        written = path.read_text(encoding="utf-8") if path.exists() else ""
        wanted = render()
        if written != wanted:
            lines = difflib.unified_diff(
                written.splitlines(), wanted.splitlines(), "on disk", "from the code", lineterm=""
            )
            found[name] = "\n".join(list(lines)[:MAX_DIFF_LINES])
    strangers = {path.name for path in REFERENCE.glob("*.md")} - set(PAGES)
    found.update(dict.fromkeys(strangers, "no generator writes this page"))
    return found


def write() -> list[str]:
    """Write every page; the names of those that changed."""
    REFERENCE.mkdir(exist_ok=True)
    changed = sorted(set(differences()) & set(PAGES))
    for name in changed:
        (REFERENCE / name).write_text(PAGES[name](), encoding="utf-8")
    return changed


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 when all is as the code says."""
    parser = argparse.ArgumentParser(description="Write docs/reference/ from the code.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page differs")
    if not parser.parse_args(arguments).check:
        changed = write()
        print(f"docs: wrote {', '.join(changed)}" if changed else "docs: nothing to change")
        return 0
    found = differences()
    for name, diff in found.items():
        print(f"docs/reference/{name} is not what the code says:\n{diff}\n", file=sys.stderr)
    print(
        f"docs: {len(found)} of {len(PAGES)} pages differ; `make docs` writes them"
        if found
        else "docs: as the code says"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
