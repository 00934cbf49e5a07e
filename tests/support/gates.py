"""What tests of the gates ask again and again."""

from __future__ import annotations

from typing import Any

import pytest

from bus.errors import ErrorCode, ModelForgeError
from tests.support.ledger import Lab


async def refused(awaitable: Any, code: ErrorCode) -> ModelForgeError:
    """The refusal, which has this code."""
    with pytest.raises(ModelForgeError) as caught:
        await awaitable
    assert caught.value.code is code
    return caught.value


async def counts(lab: Lab) -> dict[str, int]:
    """Rows of each table: equal before and after whatever must have written nothing."""
    tables = ("jobs", "probes", "audit", "outbox", "candidates", "approvals", "assessments")
    return {table: (await lab.rows(f"SELECT count(*) AS n FROM {table}"))[0]["n"] for table in tables}  # noqa: S608
