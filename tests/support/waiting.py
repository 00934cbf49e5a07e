"""Waiting for a condition with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any


async def until(condition: Callable[[], Any | Awaitable[Any]], what: str, limit_s: float = 10.0) -> Any:
    """The first true value of `condition` (plain or async); fails naming `what` when the time is over."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while True:
        value = condition()
        if isawaitable(value):
            value = await value
        if value:
            return value
        assert asyncio.get_running_loop().time() < deadline, f"not within {limit_s:g} s: {what}"
        await asyncio.sleep(0.01)
