"""`python -m modelforge` is the `modelforge` command."""

from __future__ import annotations

from modelforge.entry import main

if __name__ == "__main__":
    main()
