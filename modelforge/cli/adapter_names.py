"""The names that a profile's adapter may have: those that this version knows, and those that some node declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import Page
from modelforge.cli.profile_fields import unknown_adapter

if TYPE_CHECKING:
    from bus.operator import Operator


def adapter_names() -> tuple[str, ...]:
    """Every adapter that this version knows, whether it can be run or only inspected for."""
    from adapters.registry import entries  # noqa: PLC0415 -- lazy: most commands name no adapter

    return tuple(entry.name for entry in entries())


async def require_adapter(operator: Operator, named: str) -> None:
    """Pass if anybody knows an adapter of that name: a profile that no node could ever run helps nobody.

    Raises:
        ModelForgeError: INVALID_ARGUMENT naming those that are known.
    """
    known = adapter_names()
    if named in known:
        return
    nodes = (await operator.call(verbs.NODES_LIST, Page())).nodes
    environments = [node.inventory.environment for node in nodes if node.inventory is not None]
    declared = {one.name for environment in environments for one in environment.adapters}
    if named not in declared:
        message = f"adapter: {unknown_adapter(named, [*known, *sorted(declared - set(known))])}"
        raise ModelForgeError(
            ErrorCode.INVALID_ARGUMENT, message, hint="`modelforge environment show NODE` tells more."
        )
