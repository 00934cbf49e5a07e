from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nkeys
import pytest

from bus.errors import ErrorCode, ModelForgeError
from modelforge.keys import ensure_key, prepare_identities, public_key


def test_a_key_is_made_once_and_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "node-local.nk"
    made = ensure_key(path)
    assert made.startswith("U")
    assert len(made) == 56
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert ensure_key(path) == made == public_key(path)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_two_starts_at_once_end_with_one_key(tmp_path: Path) -> None:
    path = tmp_path / "a.nk"
    with ThreadPoolExecutor(8) as pool:
        assert len({future.result() for future in [pool.submit(ensure_key, path) for _ in range(8)]}) == 1


@pytest.mark.parametrize(
    "content", [b"", b"not a seed", b"\xff\xfe", nkeys.encode_seed(b"1" * 32, nkeys.PREFIX_BYTE_ACCOUNT)]
)
def test_a_damaged_key_is_named_and_never_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.nk"
    path.write_bytes(content)
    with pytest.raises(ModelForgeError, match=r"a\.nk") as raised:
        ensure_key(path)
    assert raised.value.code is ErrorCode.AUTH_FAILED
    assert path.read_bytes() == content


def test_everybody_of_a_stack_gets_a_key_of_his_own(tmp_path: Path) -> None:
    identities = prepare_identities(tmp_path, user="alice", node_names=("a", "b"), viewers=("victor",))
    keys = [user.public_key for user in identities.users] + [node.public_key for node in identities.nodes]
    assert len(set(keys)) == 6
    assert {user.name: user.role for user in identities.users} == {
        "controller": "controller",
        "responder": "responder",
        "alice": "operator",
        "victor": "viewer",
    }
    again = prepare_identities(tmp_path, user="alice", node_names=("a", "b"), viewers=("victor",))
    assert again == identities


def test_a_name_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelForgeError) as raised:
        prepare_identities(tmp_path, user="../alice", node_names=())
    assert raised.value.code is ErrorCode.INVALID_ARGUMENT
