"""The controller as a NATS micro service: one endpoint for each row of `bus.verbs.VERBS` (spec D4).

nats-py serves an endpoint's requests one after the other, so each request becomes a task of its own, bounded for
each endpoint. Its connection may publish to inboxes only: the reply subject is the caller's choice, and a
privileged responder would carry out whatever stands there. No exception text leaves the process.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, EndpointStats, Service, ServiceConfig

from bus import subjects
from bus.client import BusClient
from bus.codec import decode, encode
from bus.errors import ErrorCode, ModelForgeError, Retry
from bus.messages.api import Failed, Ok
from bus.subjects import Caller
from bus.verbs import VERBS, Verb
from controller.node_api import Handler
from controller.settings import ControllerSettings
from observability.counters import Counters, Operation, Outcome

T = TypeVar("T")
DESCRIPTION: Final = "ModelForge's controller: gates, leases, evidence"
INBOXES: Final = ("_INBOX.", "_R_.")
_log: Final = logging.getLogger("controller.service")


class ControllerService:
    """Answers every verb; made by the constructor, begun by `start`, ended by `stop`."""

    def __init__(
        self,
        responder: BusClient,
        handlers: Mapping[str, Handler],
        settings: ControllerSettings,
        counters: Counters,
        *,
        version: str,
        boot_id: str,
    ) -> None:
        self._responder = responder
        self._handlers = handlers
        self._settings = settings
        self._counters = counters
        self._config = ServiceConfig(
            name=subjects.SERVICE,
            version=version,
            description=DESCRIPTION,
            metadata={"boot_id": boot_id},
            stats_handler=self._stats,
        )
        self._service: Service | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._failed: dict[str, int] = {}

    async def start(self) -> None:
        """Announce the service and subscribe every endpoint.

        Raises:
            ModelForgeError: INTERNAL when a verb of the table has no handler.
        """
        missing = [verb.name for verb in VERBS if verb.name not in self._handlers]
        if missing:
            raise ModelForgeError(ErrorCode.INTERNAL, f"verbs without a handler: {', '.join(missing)}")
        self._service = Service(self._responder.raw, self._config)
        await self._service.start()
        for verb in VERBS:
            await self._service.add_endpoint(self._endpoint(verb))

    async def stop(self) -> None:
        """Take no more requests and finish those that run, within the grace; what is left then is cancelled."""
        if self._service is not None:
            await self._service.stop()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=self._settings.stop_grace_s)
            for task in late:
                _log.warning("the request %s was cancelled at the end", task.get_name())
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _endpoint(self, verb: Verb[Any, Any]) -> EndpointConfig:
        slots = asyncio.Semaphore(self._settings.requests_per_endpoint)

        async def spawn(request: Request) -> None:
            # A full endpoint waits here, and only this endpoint: the next request stays in its own queue.
            await slots.acquire()
            name = f"{verb.name} {request.subject}"
            task = asyncio.create_task(self._serve(verb, request), name=name)
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            task.add_done_callback(lambda _: slots.release())

        return EndpointConfig(
            name=verb.name.replace(".", "-"),
            subject=subjects.endpoint(verb.role, verb.name),
            handler=spawn,
            metadata={"role": verb.role, "effect": verb.effect, "description": verb.description},
        )

    async def _serve(self, verb: Verb[Any, Any], request: Request) -> None:
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                data = encode(Ok(data=msgspec.Raw(encode(await self._handle(verb, request)))))
            outcome = Outcome.SUCCEEDED
        except ModelForgeError as error:
            refused = error.info.retry is not Retry.LATER
            outcome = Outcome.REFUSED if refused else Outcome.RETRIED
            data = encode(Failed(failure=error.to_failure()))
        except TimeoutError:
            outcome = Outcome.FAILED
            message = f"{verb.name} took longer than {self._settings.request_timeout_s:g} s"
            data = encode(Failed(failure=ModelForgeError(ErrorCode.REQUEST_TIMEOUT, message).to_failure()))
        except Exception:  # noqa: BLE001 -- the process's edge: told in the log, never to the caller
            outcome = Outcome.FAILED
            reference = secrets.token_hex(4)
            _log.exception("%s failed, reference %s", verb.name, reference)
            defect = ModelForgeError(ErrorCode.INTERNAL, f"{verb.name} failed; the controller's log has {reference}")
            data = encode(Failed(failure=defect.to_failure()))
        if outcome is not Outcome.SUCCEEDED:
            self._failed[verb.name] = self._failed.get(verb.name, 0) + 1
        self._counters.count(Operation.API, outcome)
        await self._respond(verb, request, data)

    async def _handle(self, verb: Verb[Any, Any], request: Request) -> object:
        caller = subjects.parse_caller(request.subject)
        if caller != Caller(verb.role, caller.name, verb.name):
            raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, "the subject is not this endpoint's")
        message = decode(request.data, verb.request)
        return await self._handlers[verb.name](caller, message)

    async def _respond(self, verb: Verb[Any, Any], request: Request, data: bytes) -> None:
        reply = request._msg.reply  # noqa: SLF001 -- nats-py has no public name for it
        if not reply.startswith(INBOXES):
            _log.warning("%s was called without an inbox for its reply", verb.name)
            return
        try:
            await self._responder.publish(reply, data)
        except ModelForgeError as error:
            _log.warning("the reply to %s was not sent: %s", verb.name, error)
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                await self._responder.publish(reply, encode(Failed(failure=error.to_failure())))

    def _stats(self, stats: EndpointStats) -> dict[str, int]:
        """Shown by `nats service stats`: handlers run outside of nats-py's own measurement."""
        verb = stats.name.replace("-", ".")
        return {"failed": self._failed.get(verb, 0), "in_flight": len(self._running)}
