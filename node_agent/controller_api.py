"""The node's calls to the controller: hello, claim, renew, refuse, blobs, progress. The node only dials out (spec B2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from bus import subjects
from bus.client import BusClient
from bus.codec import decode, encode
from bus.errors import ModelForgeError
from bus.messages.api import AnyReply, Failed
from bus.verbs import Verb

Req = TypeVar("Req")
Rep = TypeVar("Rep")


@dataclass(frozen=True, slots=True)
class Boot:
    """Who speaks: a node, and this one life of its agent."""

    node: str
    id: str


class ControllerApi:
    """Calls under this node's name; the server's permissions refuse every other."""

    def __init__(self, client: BusClient, boot: Boot) -> None:
        self.boot = boot
        self._client = client

    async def call(self, verb: Verb[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        """One request and its reply.

        Raises:
            ModelForgeError: the failure that the controller answered with; NO_CONTROLLER, REQUEST_TIMEOUT or
                NOT_CONNECTED when there was no answer; MALFORMED_MESSAGE for an answer that cannot be read.
        """
        subject = subjects.node_api(self.boot.node, verb.name)
        data = await self._client.request(subject, encode(request), timeout_s=timeout_s)
        reply: AnyReply = decode(data, AnyReply)
        if isinstance(reply, Failed):
            raise ModelForgeError.from_failure(reply.failure)
        result: Rep = decode(bytes(reply.data), verb.reply)
        return result
