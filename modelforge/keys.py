"""NKeys: the files that hold their seeds, and the identities that one stack needs."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import nkeys

from bus.accounts import NodeKey, UserKey
from bus.errors import ErrorCode, ModelForgeError
from bus.files import read_bounded
from bus.ids import check_name

_SEED_BYTES: Final = 32
_MAX_SEED_FILE_BYTES: Final = 1_024
CONTROLLER: Final = "controller"
RESPONDER: Final = "responder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """Everybody who may connect: the public halves for the server, the seed files for the processes.

    Attributes:
        controller, responder: seed files of the controller's two connections.
        people: seed file of each operator and viewer, by name.
        agents: seed file of each node's agent, by the node's name.
        users, nodes: what the server's configuration is rendered from.
    """

    controller: Path
    responder: Path
    people: dict[str, Path]
    agents: dict[str, Path]
    users: tuple[UserKey, ...]
    nodes: tuple[NodeKey, ...]


def public_key(path: Path) -> str:
    """The public key (`U…`, 56 characters) of the seed in `path`.

    Raises:
        ModelForgeError: AUTH_FAILED when the file cannot be read or holds no seed of a user.
    """
    try:
        seed = bytearray(read_bounded(path, _MAX_SEED_FILE_BYTES).strip())
        key: bytes = nkeys.from_seed(seed).public_key
    except OSError as error:
        raise ModelForgeError(ErrorCode.AUTH_FAILED, f"{path}: {error.strerror or error}") from error
    except (nkeys.NkeysError, ValueError) as error:
        raise ModelForgeError(ErrorCode.AUTH_FAILED, f"{path} does not hold an NKey seed") from error
    if not key.startswith(b"U"):
        raise ModelForgeError(ErrorCode.AUTH_FAILED, f"{path} holds the seed of something that is not a user")
    return key.decode()


def ensure_key(path: Path) -> str:
    """The public key of the seed file `path`, which is made (mode 0600, whole or not at all) when it is not there.

    Raises:
        ModelForgeError: AUTH_FAILED when an existing file cannot be read or holds no seed of a user.
        OSError: when a new file cannot be written.
    """
    if not path.exists():
        _write_seed(path, nkeys.encode_seed(os.urandom(_SEED_BYTES), nkeys.PREFIX_BYTE_USER))
    return public_key(path)


def _write_seed(path: Path, seed: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(seed + b"\n")
            file.flush()
            os.fsync(file.fileno())
        _publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _publish(draft: Path, path: Path) -> None:
    # A link, not a rename: two processes that start together must end with one key, the first one's.
    try:
        os.link(draft, path)
    except FileExistsError:
        return


def prepare_identities(
    folder: Path, *, user: str, node_names: tuple[str, ...], viewers: tuple[str, ...] = ()
) -> Identities:
    """Make (or find) the keys of one stack in `folder`: controller, responder, one operator, viewers and nodes.

    Raises:
        ModelForgeError: INVALID_ARGUMENT for a bad name, AUTH_FAILED for a damaged seed file.
        OSError: when a file cannot be written.
    """
    people = {name: folder / f"user-{check_name(name, 'user')}.nk" for name in (user, *viewers)}
    agents = {name: folder / f"node-{check_name(name, 'node')}.nk" for name in node_names}
    controller, responder = folder / "controller.nk", folder / "responder.nk"
    return Identities(
        controller=controller,
        responder=responder,
        people=people,
        agents=agents,
        users=(
            UserKey(CONTROLLER, "controller", ensure_key(controller)),
            UserKey(RESPONDER, "responder", ensure_key(responder)),
            *(
                UserKey(name, "viewer" if name in viewers else "operator", ensure_key(path))
                for name, path in people.items()
            ),
        ),
        nodes=tuple(NodeKey(name, ensure_key(path)) for name, path in agents.items()),
    )
