"""`python -P -m controller --config FILE`."""

from __future__ import annotations

import sys

from controller.main import main

if __name__ == "__main__":
    sys.exit(main())
