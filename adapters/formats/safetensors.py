"""The header of a Safetensors file: names, shapes and dtypes of its tensors, without reading a single weight.

Layout: 8 bytes little-endian header length, that many bytes of JSON, then the tensors' bytes. Every rule that the
reference reader enforces is enforced here, because a header that lies is how a wrong file looks right.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO, Final

from adapters.formats.documents import DocumentProblem, parse_json
from bus.messages.artifacts import WeightFacts

# The reference reader accepts 100 MB; a shard of a very large model needs less than 1 MiB.
MAX_HEADER_BYTES: Final = 16 * 1024 * 1024
MAX_TENSORS: Final = 200_000
MAX_DIMENSIONS: Final = 16
LENGTH: Final = struct.Struct("<Q")
# Bits of one element; the sub-byte types are packed.
_BITS: Final = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
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


def read_tensors(file: BinaryIO, size_bytes: int) -> tuple[Tensor, ...]:
    """The tensors of an open file of `size_bytes`, in the order of their bytes.

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


def parse_header(data: bytes, data_bytes: int) -> tuple[Tensor, ...]:
    """The tensors of a header whose file holds `data_bytes` after it; they must fill these exactly."""
    header = parse_json(data, max_bytes=MAX_HEADER_BYTES)
    if not isinstance(header, dict):
        raise DocumentProblem("the header is not a JSON object")
    if len(header) > MAX_TENSORS:
        raise DocumentProblem(f"the header names more than {MAX_TENSORS} tensors")
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
    return tuple(tensors)


def _tensor(name: str, entry: Any) -> Tensor:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise DocumentProblem("a tensor has no dtype, shape and offsets")
    if dtype not in _BITS:
        raise DocumentProblem(f"a tensor has the unknown dtype {dtype[:16]!r}")
    if len(shape) > MAX_DIMENSIONS or any(type(size) is not int or size < 0 for size in shape):
        raise DocumentProblem("a tensor has an impossible shape")
    if begin < 0 or (prod(shape) * _BITS[dtype] + 7) // 8 != end - begin:
        raise DocumentProblem("a tensor's offsets do not match its dtype and shape")
    return Tensor(name, dtype, tuple(shape), begin, end)


def weight_facts(path: str, file: BinaryIO, size_bytes: int) -> WeightFacts:
    """What the header says, or what is wrong with it; `path` is the member's name in the set."""
    try:
        tensors = read_tensors(file, size_bytes)
    except DocumentProblem as problem:
        return WeightFacts(path=path, format="safetensors", problem=str(problem))
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.end - tensor.begin
    return WeightFacts(
        path=path,
        format="safetensors",
        tensors=len(tensors),
        parameters=sum(tensor.elements for tensor in tensors),
        bytes_by_dtype=dict(sorted(sizes.items())),
    )
