"""Whatever is done to a container: what Python's reader or torch's own gets out of it was looked at."""

from __future__ import annotations

import contextlib
import io
import pickle  # noqa: TID251 -- the real unpickler says which names a file makes it import
import random
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any, Final

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.formats.pickle_names import ALLOWED
from adapters.formats.pickles import pickle_facts
from tests.support.pickles import EVIL, PROTO2, torch_zip, zipped

HARMLESS: Final = PROTO2 + b"}."


def _seeds() -> list[bytes]:
    saved = io.BytesIO()
    torch.save({"a": torch.ones(2)}, saved)
    twice = zipped({"a/data.pkl": HARMLESS, "b/data.pkl": PROTO2 + EVIL, "a/version": b"3"})
    return [
        saved.getvalue(),
        torch_zip(PROTO2 + EVIL),
        torch_zip(HARMLESS, {"0": PROTO2 + EVIL}),
        twice,
        twice.replace(b"b/data.pkl", b"a/data.pkl", 1),
        twice.replace(b"b/data.pkl", b"a/data.pkl"),
        zipped({"a/data.pkl": PROTO2 + EVIL, "a/version": b"3"}, method=zipfile.ZIP_DEFLATED),
        torch_zip(HARMLESS) + torch_zip(PROTO2 + EVIL),
        torch_zip(PROTO2 + EVIL) + torch_zip(HARMLESS),
    ]


SEEDS: Final = _seeds()


def mutated(seed: int) -> bytes:
    """A container with a few bytes, records or lengths changed; most changes are in headers, where readers differ."""
    choose = random.Random(seed)  # noqa: S311 -- reproducible test data
    data = bytearray(choose.choice(SEEDS))
    marks = [at for at in range(len(data) - 4) if data[at : at + 2] == b"PK"]
    for _ in range(choose.randint(1, 4)):
        at = min(len(data) - 1, choose.choice(marks) + choose.randint(0, 60))
        match choose.randint(0, 3):
            case 0:
                data[at] = choose.choice((0, 1, 8, 0xFF, choose.randint(0, 255)))
            case 1:
                data[at] ^= 1 << choose.randint(0, 7)
            case 2:
                begin = choose.choice(marks)
                data[at:at] = data[begin : begin + choose.randint(1, 120)]
            case _:
                del data[at : at + choose.randint(1, 60)]
    return bytes(data)


def as_python_reads(data: bytes) -> Iterator[bytes]:
    with contextlib.suppress(Exception), zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            with contextlib.suppress(Exception), archive.open(entry) as file:
                file._expected_crc = None  # type: ignore[attr-defined]  # -- loaders leave the check out
                yield file.read()


def as_torch_reads(data: bytes) -> Iterator[bytes]:
    with contextlib.suppress(Exception):
        reader: Any = torch._C.PyTorchFileReader(io.BytesIO(data))
        yield reader.get_record("data.pkl")


class Watching(pickle.Unpickler):
    """The real unpickler; it stops at the first name and says which it was."""

    asked: tuple[str, str] | None = None

    def find_class(self, module: str, name: str) -> Any:
        self.asked = self.asked or ((module, name) if (module, name) not in ALLOWED else None)
        return dict

    def persistent_load(self, identity: Any) -> object:
        return object()


def first_foreign_name(content: bytes) -> tuple[str, str] | None:
    """Of bytes without the mark of a protocol only what is loaded to the end counts: any text may begin with an import."""
    watching = Watching(io.BytesIO(content))
    try:
        watching.load()
    except Exception:  # noqa: BLE001 -- whatever a broken pickle makes the unpickler raise
        return watching.asked if content.startswith(b"\x80") else None
    return watching.asked


def passes(data: bytes) -> bool:
    found = pickle_facts("weights.bin", io.BytesIO(data), len(data))
    return {one.verdict for one in found} <= {"tensors", "plain"}


@settings(max_examples=1_500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**64 - 1))
def test_no_reader_finds_code_in_a_container_that_passes(seed: int) -> None:
    data = mutated(seed)
    if not data.startswith(b"PK\x03\x04") or not passes(data):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two entries with one name
        contents = [*as_python_reads(data), *as_torch_reads(data)]

    assert [name for name in map(first_foreign_name, contents) if name is not None] == []


def test_the_readers_of_this_test_find_code_where_it_is() -> None:
    hostile = torch_zip(PROTO2 + EVIL)

    assert [first_foreign_name(content) for content in as_torch_reads(hostile)] == [("os", "mkdir")]
    assert ("os", "mkdir") in map(first_foreign_name, as_python_reads(hostile))
    assert passes(torch_zip(HARMLESS))
    assert not any(map(passes, SEEDS[1:3]))
