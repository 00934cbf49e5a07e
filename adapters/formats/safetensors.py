"""The header of a Safetensors file: names, shapes and dtypes of its tensors, without reading a single weight.

Layout: 8 bytes little-endian header length, that many bytes of JSON, then the tensors' bytes. Every rule that the
reference reader enforces is enforced here, because a header that lies is how a wrong file looks right.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO, Final

from adapters.formats import stacks
from adapters.formats.documents import DocumentProblem, parse_json
from bus.messages.artifacts import WeightFacts
from bus.text import clean_line

# The reference reader accepts 100 MB; a shard of a very large model needs less than 1 MiB.
MAX_HEADER_BYTES: Final = 16 * 1024 * 1024
# A model of a trillion parameters has 140,000, in hundreds of files.
MAX_TENSORS: Final = 100_000
MAX_DIMENSIONS: Final = 16
MAX_METADATA_CHARS: Final = 128
_MAX_COUNT: Final = 2**63 - 1
LENGTH: Final = struct.Struct("<Q")
# Bits of one element; the sub-byte types are packed.
_BITS: Final = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "C64": 64,
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the header; `begin` and `end` are bytes after the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """All of a header: the tensors in the order of their bytes, and the free words beside them."""

    tensors: tuple[Tensor, ...]
    metadata: dict[str, str]


def read_header(file: BinaryIO, size_bytes: int) -> Header:
    """The header of an open file of `size_bytes`; nothing behind it is read.

    Raises:
        DocumentProblem: when the header is not exactly what the format allows, or too large.
        OSError: when the file cannot be read.
    """
    head = file.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise DocumentProblem("the file is shorter than a Safetensors header")
    (length,) = LENGTH.unpack(head)
    if length > MAX_HEADER_BYTES:
        raise DocumentProblem(f"the header claims {length} bytes, more than {MAX_HEADER_BYTES}")
    if LENGTH.size + length > size_bytes:
        raise DocumentProblem("the file ends inside its header")
    data = file.read(length)
    if len(data) < length or not data.startswith(b"{"):
        raise DocumentProblem("the header is not a JSON object")
    return parse_header(data, size_bytes - LENGTH.size - length)


def parse_header(data: bytes, data_bytes: int) -> Header:
    """The header of a file that holds `data_bytes` after it; the tensors must fill these exactly."""
    # Counted in the bytes first: parsing is what takes the time and the memory.
    many = data.count(b'"dtype"') > MAX_TENSORS
    header = {} if many else parse_json(data, max_bytes=MAX_HEADER_BYTES)
    if not isinstance(header, dict):
        raise DocumentProblem("the header is not a JSON object")
    if many or len(header) > MAX_TENSORS:
        raise DocumentProblem(f"the header names more than {MAX_TENSORS} tensors")
    metadata = _metadata(header.get("__metadata__"))
    tensors = sorted(
        (_tensor(name, entry) for name, entry in header.items() if name != "__metadata__"),
        key=lambda tensor: (tensor.begin, tensor.end),
    )
    position = 0
    for tensor in tensors:
        if tensor.begin != position:
            raise DocumentProblem("the tensors do not follow each other without gap or overlap")
        position = tensor.end
    if position != data_bytes:
        raise DocumentProblem(f"the header describes {position} bytes of tensors, the file holds {data_bytes}")
    return Header(tuple(tensors), metadata)


def _metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise DocumentProblem("the header's metadata are not texts")
    return value


def _tensor(name: str, entry: Any) -> Tensor:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]}:
            pass
        case _:
            raise DocumentProblem("a tensor has no dtype, shape and offsets")
    if dtype not in _BITS:
        raise DocumentProblem(f"a tensor has the unknown dtype {dtype[:16]!r}")
    if len(shape) > MAX_DIMENSIONS or not all(map(_is_count, shape)):
        raise DocumentProblem("a tensor has an impossible shape")
    elements = prod(shape)
    if elements > _MAX_COUNT:
        raise DocumentProblem("a tensor has an impossible shape")
    # Compared in bits: a packed type whose elements end inside a byte is none to the reference reader either.
    if not (_is_count(begin) and _is_count(end)) or elements * _BITS[dtype] != (end - begin) * 8:
        raise DocumentProblem("a tensor's offsets do not match its dtype and shape")
    return Tensor(name, dtype, tuple(shape), begin, end)


def _is_count(value: Any) -> bool:
    """A number that the format can hold. `True` is one to Python, and none to the format."""
    return type(value) is int and 0 <= value <= _MAX_COUNT


def names_digest(names: Iterable[str]) -> str:
    """SHA-256 of the sorted tensor names, one a line: equal for two files of the same model."""
    text = "".join(f"{name}\n" for name in sorted(names))
    # A JSON text may hold half of a surrogate pair, which UTF-8 has no bytes for.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def weight_facts(path: str, header: Header) -> WeightFacts:
    """What a header says of its weights; `path` is the member's name in the set."""
    sizes: dict[str, int] = {}
    for tensor in header.tensors:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.end - tensor.begin
    metadata = stacks.metadata((tensor.name, tensor.shape) for tensor in header.tensors)
    written_by = header.metadata.get("format")
    if written_by is not None:
        metadata["format"] = clean_line(written_by, MAX_METADATA_CHARS)
    return WeightFacts(
        path=path,
        format="safetensors",
        tensors=len(header.tensors),
        parameters=sum(tensor.elements for tensor in header.tensors),
        bytes_by_dtype=dict(sorted(sizes.items())),
        names_sha256=names_digest(tensor.name for tensor in header.tensors),
        metadata=metadata,
    )
