"""What an agent asks the controller: hello, claim, renew, refuse (spec P4, B2, B4).

The caller's name comes from the subject, which the server's permissions vouch for; a body that names another node is
refused.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from bus import verbs
from bus.client import BusClient, JsError
from bus.errors import ErrorCode, ModelForgeError
from bus.messages import api
from bus.streams import ensure_node_consumers
from bus.subjects import Caller
from controller import jobs, leases
from controller.admission import Admission
from controller.cleaning import cleaned
from controller.evidence_rules import clean_failure
from controller.inventory import usable_slots
from controller.reconcile import Reconciler
from controller.settings import ControllerSettings
from controller.settle import Settler
from controller.store.connection import Store
from observability.counters import Counters, Operation, Outcome

Handler = Callable[[Caller, Any], Awaitable[object]]
_log: Final = logging.getLogger("controller.node_api")


class NodeApi:
    """The node verbs. Every method raises ModelForgeError for what the agent is to be told as a failure."""

    def __init__(
        self,
        store: Store,
        client: BusClient,
        settings: ControllerSettings,
        admission: Admission,
        settler: Settler,
        reconciler: Reconciler,
        counters: Counters,
    ) -> None:
        self._store = store
        self._client = client
        self._settings = settings
        self._admission = admission
        self._settler = settler
        self._reconciler = reconciler
        self._counters = counters

    def handlers(self) -> Mapping[str, Handler]:
        """By verb."""
        return {
            verbs.HELLO.name: self.hello,
            verbs.CLAIM.name: self.claim,
            verbs.RENEW.name: self.renew,
            verbs.REFUSE.name: self.refuse,
        }

    async def hello(self, caller: Caller, request: api.HelloRequest) -> api.HelloReply:
        """Admit this life of the agent; its lane consumers exist before the reply is sent.

        Raises:
            ModelForgeError: PERMISSION_DENIED for another node's inventory, BOOT_CONFLICT, BOOT_SUPERSEDED.
        """
        inventory = cleaned(request.inventory)
        if inventory.node != caller.name:
            message = f"the node {caller.name} cannot speak for {inventory.node}"
            raise ModelForgeError(ErrorCode.PERMISSION_DENIED, message)
        await self._admission.hello(inventory)
        await self._ensure_consumers(caller.name, usable_slots(inventory.slots))
        return api.HelloReply(
            lease_ttl_s=self._settings.lease_ttl_s, inventory_interval_s=self._settings.inventory_interval_s
        )

    async def _ensure_consumers(self, node: str, slots: int) -> None:
        try:
            await ensure_node_consumers(self._client, node, ack_wait_s=self._settings.lease_ttl_s, slots=slots)
        except JsError as error:
            # Most likely the stream is missing: the agent says hello again, and by then it is there.
            self._reconciler.request()
            raise ModelForgeError(ErrorCode.NOT_CONNECTED, f"the queues are not ready: {error.description}") from error

    async def claim(self, caller: Caller, request: api.ClaimRequest) -> api.AnyClaim:
        """May I work on this delivery? The message of an ended job is taken away by the controller."""
        ttl_s = self._settings.lease_ttl_s
        reply = await self._store.write(lambda tx: leases.claim(tx, caller.name, request, ttl_s))
        self._counters.count(Operation.CLAIM, _claim_outcome(reply))
        if isinstance(reply, api.ClaimTerminal):
            await self._settle(caller.name, request)
        elif isinstance(reply, api.ClaimRefused) and reply.failure.code == ErrorCode.UNKNOWN_ID:
            # The message belongs to no job of the ledger: the reconciler audits and deletes it.
            self._reconciler.request()
        return reply

    async def renew(self, caller: Caller, request: api.RenewRequest) -> api.AnyRenewal:
        """I still work on it."""
        ttl_s = self._settings.lease_ttl_s
        reply = await self._store.write(lambda tx: leases.renew(tx, caller.name, request, ttl_s))
        outcome = Outcome.SUCCEEDED if isinstance(reply, api.Renewed) else Outcome.REFUSED
        self._counters.count(Operation.RENEW, outcome)
        return reply

    async def refuse(self, caller: Caller, request: api.RefuseRequest) -> api.Refused:
        """This job cannot be done here, whatever its message says: it is failed typed, counted, never lost."""
        failure = clean_failure(request.failure)
        reply = await self._store.write(lambda tx: leases.refuse(tx, caller.name, request, failure))
        self._counters.count(Operation.CLAIM, Outcome.FAILED)
        if reply.state == "unknown":
            self._reconciler.request()
        else:
            await self._settle(caller.name, request)
        return reply

    async def _settle(self, node: str, request: api.ClaimRequest | api.RefuseRequest) -> None:
        """Take the delivery that the agent holds out of the stream. If that fails, the list in the ledger knows."""
        job = await self._store.read(lambda tx: jobs.find(tx, request.job_id))
        if job is None or job.node != node or not job.terminal:
            return
        try:
            await self._settler.settle(job, request.delivery)
        except ModelForgeError as error:
            _log.warning("the message of %s is taken away later: %s", job.id, error)
            self._settler.wake()


def _claim_outcome(reply: api.AnyClaim) -> Outcome:
    match reply:
        case api.ClaimGranted():
            return Outcome.SUCCEEDED
        case api.ClaimAlreadyYours() | api.ClaimTerminal():
            return Outcome.DUPLICATE
        case api.ClaimRetryAfter():
            return Outcome.RETRIED
        case api.ClaimRefused():
            return Outcome.REFUSED
