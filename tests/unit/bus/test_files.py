"""Files that a person names: a device, a pipe or a heap of bytes in their place ends at once, with a type."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.files import read_bounded
from bus.operator import ENDPOINT_FILE, Operator, read_endpoint
from bus.settings import MAX_FILE_BYTES, ClientSettings, read_file

pytestmark = pytest.mark.timeout(10)
KINDS = ("device", "pipe", "folder", "huge")


def made(path: Path, kind: str) -> Path:
    """Something of that kind at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_small_regular_file_is_read(tmp_path: Path, kind: str) -> None:
    with pytest.raises(OSError, match=r"not a regular file|larger than"):
        read_bounded(made(tmp_path / "x", kind), MAX_FILE_BYTES)


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert read_bounded(path, 3) == b"abc"


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_in_a_wrong_place_is_typed(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ModelForgeError) as caught:
        read_file(made(tmp_path / "modelforge.toml", kind))
    assert caught.value.code is ErrorCode.CONFIG_UNREADABLE


def test_a_configuration_that_is_nested_without_end_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "modelforge.toml"
    path.write_text("x = " + "[" * 100_000)
    with pytest.raises(ModelForgeError) as caught:
        read_file(path)
    assert caught.value.code is ErrorCode.CONFIG_UNREADABLE


@pytest.mark.parametrize("kind", KINDS)
def test_an_address_that_is_no_small_file_is_typed(tmp_path: Path, kind: str) -> None:
    made(tmp_path / ENDPOINT_FILE, kind)
    with pytest.raises(ModelForgeError) as caught:
        read_endpoint(tmp_path)
    assert caught.value.code is ErrorCode.CONFIG_UNREADABLE


@pytest.mark.parametrize("kind", [*KINDS, "missing"])
async def test_a_key_that_is_no_small_file_is_typed_before_anything_is_dialled(tmp_path: Path, kind: str) -> None:
    key = tmp_path / "me.nk" if kind == "missing" else made(tmp_path / "me.nk", kind)
    settings = ClientSettings(url="nats://127.0.0.1:1", user="me", credentials=str(key))
    with pytest.raises(ModelForgeError, match="cannot be used") as caught:
        await Operator.connect(settings)
    assert caught.value.code is ErrorCode.AUTH_FAILED
