"""The operator's client: typed calls to the controller's service, for the command line, the screens and scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec

from bus import subjects
from bus.client import BusClient, Connection
from bus.codec import decode, encode
from bus.errors import ErrorCode, ModelForgeError
from bus.files import read_bounded
from bus.ids import check_name
from bus.messages.api import AnyReply, Failed
from bus.settings import ClientSettings
from bus.verbs import Verb

Req = TypeVar("Req")
Rep = TypeVar("Rep")

ENDPOINT_FILE: Final = Path("run") / "endpoint.json"
_MAX_ENDPOINT_BYTES: Final = 65_536
_MAX_KEY_BYTES: Final = 65_536


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a running `modelforge up` says about itself in its state folder."""

    url: str
    user: str
    credentials: str


class Operator:
    """A connection of one person to the controller; an async context manager.

    Attributes:
        user: the name in the subjects of every call; the key's permissions name the same.
        client: the connection below.
    """

    def __init__(self, client: BusClient, user: str, timeout_s: float) -> None:
        self.client = client
        self.user = user
        self._timeout_s = timeout_s

    @classmethod
    async def connect(cls, settings: ClientSettings) -> Operator:
        """Connect as `settings.user`.

        Raises:
            ModelForgeError: NOT_CONNECTED, INVALID_ARGUMENT for a bad user name, AUTH_FAILED when the server refuses
                the key or its file is no small regular file.
        """
        user = check_name(settings.user, "user")
        _look_at_key(Path(settings.credentials))
        connection = Connection(
            url=settings.url,
            credentials=settings.credentials,
            name=f"{subjects.SERVICE} {user}",
            js_prefix=settings.js_prefix,
        )
        return cls(await BusClient.connect(connection), user, settings.timeout_s)

    async def call(self, verb: Verb[Req, Rep], request: Req, *, timeout_s: float | None = None) -> Rep:
        """Call one verb and return its typed reply.

        Raises:
            ModelForgeError: what the controller answered with; NO_CONTROLLER, NOT_CONNECTED, PERMISSION_DENIED
                (nothing was done), REQUEST_TIMEOUT (whether it acted is unknown); MALFORMED_MESSAGE or UNKNOWN_KIND
                for an answer of another version.
        """
        subject = subjects.user_api(self.user, verb.name)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        data = await self.client.request(subject, encode(request), timeout_s=limit_s)
        envelope: AnyReply = decode(data, AnyReply)
        if isinstance(envelope, Failed):
            raise ModelForgeError.from_failure(envelope.failure)
        reply: Rep = decode(bytes(envelope.data), verb.reply)
        return reply

    async def close(self) -> None:
        """End the connection. Harmless when it is closed."""
        await self.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def _look_at_key(path: Path) -> None:
    """The client library reads the file whole, in the event loop: a device or a pipe would never end there."""
    try:
        read_bounded(path, _MAX_KEY_BYTES)
    except OSError as error:
        message = f"the key file {path} cannot be used: {error.strerror or error}"
        hint = "Name the file of an NKey seed with `--credentials`, or in `client.credentials`."
        raise ModelForgeError(ErrorCode.AUTH_FAILED, message, hint=hint) from error


def resolve_client(settings: ClientSettings, state: Path) -> ClientSettings:
    """Fill in what the settings leave open (url, user, credentials) from the stack that runs in `state`.

    Raises:
        ModelForgeError: NOT_CONNECTED when something is open and no stack runs there; CONFIG_UNREADABLE for a damaged
            endpoint file.
    """
    if settings.url and settings.user and settings.credentials:
        return settings
    try:
        endpoint = read_endpoint(state)
    except ModelForgeError as error:
        if error.code is not ErrorCode.NOT_CONNECTED or not settings.url:
            raise
        missing = " and ".join(f"`client.{key}`" for key in ("user", "credentials") if not getattr(settings, key))
        message = f"there is a server, {settings.url}, but nobody to be there"
        raise ModelForgeError(ErrorCode.NOT_CONNECTED, message, hint=f"Set {missing}.") from error
    return msgspec.structs.replace(
        settings,
        url=settings.url or endpoint.url,
        user=settings.user or endpoint.user,
        credentials=settings.credentials or endpoint.credentials,
    )


def read_endpoint(state: Path) -> Endpoint:
    """What `modelforge up` wrote into the state folder.

    Raises:
        ModelForgeError: NOT_CONNECTED when there is nothing, CONFIG_UNREADABLE for a damaged file.
    """
    path = state / ENDPOINT_FILE
    try:
        return decode(read_bounded(path, _MAX_ENDPOINT_BYTES), Endpoint)
    except FileNotFoundError as error:
        raise ModelForgeError(
            ErrorCode.NOT_CONNECTED,
            f"no server is configured, and none of ours runs in the state folder {state}",
            hint="Start one with `modelforge up`, or set `client.url`.",
        ) from error
    except OSError as error:
        raise ModelForgeError(ErrorCode.CONFIG_UNREADABLE, f"{path}: {error.strerror or error}") from error
    except ModelForgeError as error:
        raise ModelForgeError(ErrorCode.CONFIG_UNREADABLE, f"{path}: {error.message}") from error
