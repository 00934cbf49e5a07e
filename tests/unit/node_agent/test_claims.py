"""The clock of a lease, with a controller that is slow, silent or broken on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ClaimGranted, Renewed, RenewRequest
from node_agent.claims import Claims, Lease
from node_agent.controller_api import Boot
from node_agent.lane import MAX_UNREAD, WorkLane

pytestmark = pytest.mark.req("P4")
TTL_S = 0.6
BOOT = Boot("local", "boot-1")


class Api:
    """Answers renewals as told; the delivery is always kept alive."""

    def __init__(self, answer: Callable[[RenewRequest], Awaitable[Any]]) -> None:
        self.boot = BOOT
        self.asked: list[RenewRequest] = []
        self._answer = answer

    async def call(self, verb: Any, request: RenewRequest, *, timeout_s: float) -> Any:
        self.asked.append(request)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer(request)
        except TimeoutError as error:
            raise ModelForgeError(ErrorCode.REQUEST_TIMEOUT, "no answer") from error

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        assert data == b"+WPI"
        return b""


def lease() -> Lease:
    granted = ClaimGranted(lease_id="lse-1", attempt=1, token="secret", ttl_s=TTL_S)
    return Lease(granted, "prb-1", "$JS.ACK.x", asyncio.get_running_loop().time())


async def kept(answer: Callable[[RenewRequest], Awaitable[Any]], for_s: float) -> tuple[Lease, Api, float]:
    """A lease that was kept for at most `for_s`; how long it really lived."""
    api = Api(answer)
    claims = Claims(api, api)  # type: ignore[arg-type]  # one double plays both
    held = lease()
    began = asyncio.get_running_loop().time()
    keeper = asyncio.create_task(claims.keep(held))
    await asyncio.wait((keeper,), timeout=for_s)
    keeper.cancel()
    await asyncio.wait((keeper,))
    return held, api, asyncio.get_running_loop().time() - began


async def renewed(_: RenewRequest) -> Renewed:
    return Renewed(ttl_s=TTL_S, cancel_requested=False)


async def test_a_renewed_lease_outlives_its_first_ttl() -> None:
    held, api, _ = await kept(renewed, 3 * TTL_S)
    assert not held.ended.is_set()
    assert len(api.asked) >= 5
    assert {(request.boot_id, request.lease_id, request.token) for request in api.asked} == {
        ("boot-1", "lse-1", "secret")
    }


async def test_silence_ends_it_after_exactly_one_ttl() -> None:
    async def silence(_: RenewRequest) -> None:
        await asyncio.Event().wait()

    held, _, lived_s = await kept(silence, 10 * TTL_S)
    assert held.end is not None
    assert held.end.code is ErrorCode.LEASE_FENCED
    assert TTL_S <= lived_s <= 2 * TTL_S


async def test_an_answer_counts_from_the_question() -> None:
    """The controller's clock began when it was asked: an answer that was long on its way gives no more time."""
    slow_s = 0.15

    async def slowly(_: RenewRequest) -> Renewed:
        await asyncio.sleep(slow_s)
        return Renewed(ttl_s=TTL_S, cancel_requested=False)

    held = lease()
    api = Api(slowly)
    claims = Claims(api, api)  # type: ignore[arg-type]  # one double plays both
    assert await claims._renew(held)
    assert held.remaining_s <= TTL_S - slow_s + 0.005


@pytest.mark.parametrize(
    "code", [ErrorCode.LEASE_FENCED, ErrorCode.PERMISSION_DENIED, ErrorCode.BOOT_SUPERSEDED, ErrorCode.UNKNOWN_ID]
)
async def test_a_refusal_ends_it_at_once(code: ErrorCode) -> None:
    async def refuse(_: RenewRequest) -> None:
        raise ModelForgeError(code, "no")

    held, api, _ = await kept(refuse, 10 * TTL_S)
    assert held.end is not None
    assert held.end.code is code
    assert len(api.asked) == 1


async def test_trouble_that_passes_is_tried_again_within_the_ttl() -> None:
    tries = 0

    async def flaky(request: RenewRequest) -> Renewed:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise ModelForgeError(ErrorCode.NO_CONTROLLER, "restarting")
        return await renewed(request)

    held, _, _ = await kept(flaky, 2 * TTL_S)
    assert not held.ended.is_set()


async def test_a_defect_of_the_keeper_ends_the_lease_instead_of_leaving_it_unfenced() -> None:
    async def broken(_: RenewRequest) -> None:
        raise LookupError("a defect")

    held, _, _ = await kept(broken, 10 * TTL_S)
    assert held.end is not None
    assert held.end.code is ErrorCode.NODE_FAULT


async def test_the_first_reason_for_an_end_stands() -> None:
    held = lease()
    held.finish(ModelForgeError(ErrorCode.LEASE_FENCED, "first"))
    held.finish(ModelForgeError(ErrorCode.INTERRUPTED, "second"))
    assert held.end is not None
    assert held.end.message == "first"


def lane(api: Api) -> WorkLane:
    return WorkLane(api, api, Claims(api, api), None, None)  # type: ignore[arg-type]  # nothing is pulled or run


async def test_a_lease_that_nobody_reads_of_is_not_kept_for_ever() -> None:
    api = Api(renewed)
    keeper = asyncio.create_task(Claims(api, api).keep(held := lease()))  # type: ignore[arg-type]  # as above
    lane(api)._keep_until_read(keeper, held, asyncio.get_running_loop().time() + 0.05)
    async with asyncio.timeout(TTL_S):
        await asyncio.wait((keeper,))
    assert keeper.cancelled()


async def test_at_most_so_many_leases_are_kept_for_a_controller_that_is_behind() -> None:
    work = lane(Api(renewed))
    never = asyncio.Event()
    keepers = [asyncio.create_task(wait_for(never)) for _ in range(MAX_UNREAD + 2)]
    for keeper in keepers:
        work._keep_until_read(keeper, lease(), asyncio.get_running_loop().time() + 60)
    await asyncio.wait(keepers[:2], timeout=5)
    assert [keeper.cancelled() for keeper in keepers[:3]] == [True, True, False]
    await work.end(0.0)
    assert all(keeper.done() for keeper in keepers)


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()
