"""`python -P -m node_agent --config FILE`."""

from __future__ import annotations

import sys

from node_agent.main import main

if __name__ == "__main__":
    sys.exit(main())
