"""Bytes of the file formats, written from their specifications and by none of our own code.

A parser that is tested with files of its own writer agrees with itself; these writers know nothing of it.
"""

from __future__ import annotations

import io
import json
import math
import struct
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

WIDTHS: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I8": 1, "U8": 1, "F8_E4M3": 1}
Shape = tuple[int, ...]

HTML: Final = b"<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>\n"
ELF: Final = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 2, 62, 1) + bytes(40)
# What a clone without Git LFS leaves behind.
LFS_POINTER: Final = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 90868376\n"
)
DEEP_JSON: Final = b"[" * 100_000 + b"]" * 100_000


def dumps(value: object) -> bytes:
    """A JSON document."""
    return json.dumps(value).encode()


def safetensors(
    tensors: Mapping[str, Shape], dtype: str = "F32", *, metadata: Mapping[str, str] | None = None, fill: int = 0
) -> bytes:
    """A Safetensors file with these tensors one after the other, all of one type, all bytes `fill`."""
    header: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "pt"})}
    offset = 0
    for name, shape in tensors.items():
        end = offset + math.prod(shape) * WIDTHS[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    return with_header(header, bytes([fill]) * offset)


def with_header(header: object, data: bytes) -> bytes:
    """A Safetensors file of this header, right or wrong, padded to eight bytes as the library does."""
    text = dumps(header)
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def index(places: Mapping[str, str], size_bytes: int = 1) -> bytes:
    """A shard index: which tensor lies in which file."""
    return dumps({"metadata": {"total_size": size_bytes}, "weight_map": dict(places)})


def packed_zip(files: Mapping[str, bytes]) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def packed_tar(files: Mapping[str, bytes]) -> bytes:
    """A gzipped tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def tensor_pickle(name: str = "w", elements: int = 4, *, more: bytes = b"") -> bytes:
    """The pickle that `torch.save` writes for one float tensor: a rebuild call over a persistent storage id.

    `more` ends that id; the old form has one more field in it.
    """
    size = struct.pack("<I", elements)
    storage = (
        b"(" + _text("storage") + _global("torch", "FloatStorage") + _text("0") + _text("cpu") + b"J" + size + more
    )
    rebuild = (
        b"(" + storage + b"tQK\x00J" + size + b"\x85K\x01\x85\x89" + _global("collections", "OrderedDict") + b")Rt"
    )
    return b"\x80\x02}" + _text(name) + _global("torch._utils", "_rebuild_tensor_v2") + rebuild + b"Rs."


def torch_zip(pickled: bytes | None = None, elements: int = 4) -> bytes:
    """What `torch.save` writes today: a zip with the pickle and the storages beside it."""
    return packed_zip(
        {
            "archive/data.pkl": tensor_pickle(elements=elements) if pickled is None else pickled,
            "archive/byteorder": b"little",
            "archive/data/0": bytes(elements * 4),
            "archive/version": b"3\n",
        }
    )


def legacy_torch() -> bytes:
    """What `torch.save` wrote before: four pickles in a row, then the storage's raw bytes."""
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    protocol = b"\x80\x02M\xe9\x03."
    system = b"\x80\x02}" + _text("little_endian") + b"\x88s."
    keys = b"\x80\x02](" + _text("0") + b"e."
    return magic + protocol + system + tensor_pickle(more=b"N") + keys + struct.pack("<q", 4) + bytes(16)


def evil_pickle(protocol: int = 2) -> bytes:
    """A pickle that runs a command when it is loaded, as each protocol writes it. Nothing here ever loads it."""
    command = "echo owned"
    match protocol:
        case 0:
            return b"cposix\nsystem\n(S'" + command.encode() + b"'\ntR."
        case 2:
            return b"\x80\x02" + _global("posix", "system") + _text(command) + b"\x85R."
        case _:
            names = b"\x8c\x05posix\x94\x8c\x06system\x94\x93"
            body = names + b"\x94\x8c" + bytes([len(command)]) + command.encode() + b"\x94\x85\x94R\x94."
            return b"\x80" + bytes([protocol]) + b"\x95" + struct.pack("<Q", len(body)) + body


def memoized_evil_pickle() -> bytes:
    """The same, with the name put together from the memo, so that no two words of it stand together."""
    words = b"\x8c\x06system\x94\x8c\x08builtins\x940\x8c\x04eval\x94" + b"h\x01h\x02\x93"
    return b"\x80\x04" + words + b"\x8c\x051 + 1\x85R."


def joblib_pickle() -> bytes:
    """The head of what joblib writes for a fitted estimator."""
    return b"\x80\x03" + _global("lightgbm.sklearn", "LGBMRanker") + b")\x81}" + _text("n") + b"K\x01sb."


class Gguf:
    """A GGUF file, value by value."""

    _CODES: Final = {
        "u8": (0, "<B"),
        "u16": (2, "<H"),
        "i32": (5, "<i"),
        "u32": (4, "<I"),
        "u64": (10, "<Q"),
        "f32": (6, "<f"),
    }
    # Quantization type: its number, elements of a block, bytes of a block.
    TYPES: Final = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144)}

    def __init__(self, *, version: int = 3, alignment: int = 32) -> None:
        self._version = version
        self._alignment = alignment
        self._facts: list[bytes] = []
        self._tensors: list[tuple[str, Shape, str, int | None, int | None]] = []

    def fact(self, key: str, kind: str, value: float) -> Gguf:
        """One number."""
        code, form = self._CODES[kind]
        self._facts.append(gguf_text(key) + struct.pack("<I", code) + struct.pack(form, value))
        return self

    def word(self, key: str, value: str) -> Gguf:
        """One string."""
        self._facts.append(gguf_text(key) + struct.pack("<I", 8) + gguf_text(value))
        return self

    def words(self, key: str, values: Sequence[str]) -> Gguf:
        """An array of strings."""
        head = struct.pack("<IIQ", 9, 8, len(values))
        self._facts.append(gguf_text(key) + head + b"".join(gguf_text(value) for value in values))
        return self

    def as_it_is(self, data: bytes) -> Gguf:
        """One fact as it is, key and all."""
        self._facts.append(data)
        return self

    def tensor(
        self, name: str, shape: Shape, kind: str = "F32", *, at: int | None = None, number: int | None = None
    ) -> Gguf:
        """One tensor, all zeros; said to lie elsewhere than it does, or to be of another type than it is."""
        self._tensors.append((name, shape, kind, at, number))
        return self

    def done(self) -> bytes:
        """The file."""
        infos, data = b"", b""
        for name, shape, kind, at, said in self._tensors:
            number, elements, size = self.TYPES[kind]
            dimensions = struct.pack(f"<{len(shape)}Q", *shape)
            infos += gguf_text(name) + struct.pack("<I", len(shape)) + dimensions
            infos += struct.pack("<IQ", number if said is None else said, len(data) if at is None else at)
            data += bytes(math.prod(shape) // elements * size)
            data += bytes(-len(data) % self._alignment)
        head = b"GGUF" + struct.pack("<IQQ", self._version, len(self._tensors), len(self._facts))
        head += b"".join(self._facts) + infos
        return head + bytes(-len(head) % self._alignment) + data


def gguf_text(value: str) -> bytes:
    """A string as GGUF writes it."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


# An array of 2**40 numbers in 49 bytes: the reader on the package index never ends on it.
ENDLESS_GGUF: Final = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 4, 2**40)
