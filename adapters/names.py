"""Names of adapters that more than one table needs; on its own, because the controller may not know the registry."""

from __future__ import annotations

from typing import Final

# A node declares it only when its tests ask for it.
TEST_DOUBLE: Final = "faulty"
