"""The header of a GGUF file: what the model is, its tensors and where they lie, without reading a single weight.

Layout: magic, version, number of tensors, number of key-value pairs, the pairs, the tensors' infos, padding to
`general.alignment`, the tensors' bytes. Every number is checked against the size of the file before anything is done
with it, because a header of 49 bytes can claim 2^63 pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import BinaryIO, Final

from adapters.formats.documents import DocumentProblem
from adapters.formats.ggml_types import FILE_TYPES, GUESSED, TENSOR_TYPES
from adapters.formats.gguf_reader import Reader, Value
from adapters.formats.safetensors import MAX_METADATA_CHARS, names_digest
from bus.messages.artifacts import WeightFacts
from bus.text import clean_line

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_PAIRS: Final = 16_384
MAX_TENSORS: Final = 100_000
MAX_DIMENSIONS: Final = 4
MAX_KEY_BYTES: Final = 1_024
# The runtime itself cuts names at 64.
MAX_NAME_BYTES: Final = 256
MAX_ALIGNMENT: Final = 1024 * 1024
_DEFAULT_ALIGNMENT: Final = 32
_HEAD_BYTES: Final = 24
# The shortest pair and the shortest tensor info: what a claimed number of them needs at the very least.
_MIN_PAIR_BYTES: Final = 8 + 4 + 1
_MIN_TENSOR_BYTES: Final = 8 + 4 + 4 + 8
_MAX_COUNT: Final = 2**63 - 1
_ALIGNMENT: Final = "general.alignment"
_ARCHITECTURE: Final = "general.architecture"
_FILE_TYPE: Final = "general.file_type"
# Facts under a fixed key, and facts under the architecture's own name.
_GENERAL: Final = {
    _ARCHITECTURE: "architecture",
    "general.type": "type",
    "tokenizer.ggml.model": "tokenizer",
    "split.no": "split_no",
    "split.count": "split_count",
    "split.tensors.count": "split_tensors",
}
_OF_ARCHITECTURE: Final = (
    "context_length",
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "pooling_type",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
)
_CHAT_TEMPLATE: Final = "tokenizer.chat_template"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor; `offset` is in bytes after the aligned end of the header."""

    name: str
    kind: str
    dims: tuple[int, ...]
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """All of a header that is kept: values by key (arrays are `None`), tensors, and where their bytes begin."""

    version: int
    values: dict[str, Value] = field(default_factory=dict)
    tensors: tuple[Tensor, ...] = ()
    data_begin: int = 0


def read_header(file: BinaryIO, size_bytes: int) -> Header:
    """The header of an open file of `size_bytes`, checked: all its tensors lie in the file and none overlaps another.

    Raises:
        DocumentProblem: naming the first rule that is broken, or the bound that is passed.
        OSError: when the file cannot be read.
    """
    reader = Reader(file, size_bytes)
    version, tensor_count, pair_count = _head(reader)
    values = _pairs(reader, pair_count)
    tensors = _tensors(reader, tensor_count)
    alignment = _alignment(values.get(_ALIGNMENT, _DEFAULT_ALIGNMENT))
    begin = reader.position + -reader.position % alignment
    _check_places(tensors, alignment, size_bytes - begin)
    return Header(version, values, tensors, begin)


def _head(reader: Reader) -> tuple[int, int, int]:
    if reader.remaining < _HEAD_BYTES:
        raise DocumentProblem("the file is shorter than a GGUF header")
    if reader.take(len(MAGIC)) != MAGIC:
        raise DocumentProblem("the file does not begin with a GGUF header")
    version = reader.u32()
    if version and not version & 0xFFFF:
        raise DocumentProblem("the file is big-endian GGUF, for another kind of machine")
    if version not in VERSIONS:
        raise DocumentProblem(f"the file is GGUF version {version}, not one of {VERSIONS}")
    tensor_count, pair_count = reader.u64(), reader.u64()
    if pair_count > MAX_PAIRS:
        raise DocumentProblem("the header names an impossible number of pairs")
    if tensor_count > MAX_TENSORS:
        raise DocumentProblem("the header names an impossible number of tensors")
    if pair_count * _MIN_PAIR_BYTES + tensor_count * _MIN_TENSOR_BYTES > reader.remaining:
        raise DocumentProblem("the file ends inside its header")
    return version, tensor_count, pair_count


def _pairs(reader: Reader, count: int) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for _ in range(count):
        key = reader.text(MAX_KEY_BYTES)
        if key in values:
            raise DocumentProblem("the header names one key twice")
        values[key] = reader.value(keep=_is_kept(key))
    return values


def _is_kept(key: str) -> bool:
    return key in _GENERAL or key in (_ALIGNMENT, _FILE_TYPE) or key.partition(".")[2] in _OF_ARCHITECTURE


def _tensors(reader: Reader, count: int) -> tuple[Tensor, ...]:
    tensors = [_tensor(reader) for _ in range(count)]
    if len({tensor.name for tensor in tensors}) != count:
        raise DocumentProblem("the header names one tensor twice")
    return tuple(tensors)


def _tensor(reader: Reader) -> Tensor:
    name, dimensions = reader.text(MAX_NAME_BYTES), reader.u32()
    if dimensions > MAX_DIMENSIONS:
        raise DocumentProblem(f"a tensor has more than {MAX_DIMENSIONS} dimensions")
    dims = tuple(reader.u64() for _ in range(dimensions))
    number, offset = reader.u32(), reader.u64()
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        raise DocumentProblem(f"a tensor has the type {number}, which this version does not know")
    elements = prod(dims)
    if max(*dims, elements, offset, 0) > _MAX_COUNT:
        raise DocumentProblem("a tensor has an impossible shape")
    if (dims[0] if dims else 1) % kind.elements:
        raise DocumentProblem(f"a row of a tensor does not fill the blocks of {kind.name}")
    return Tensor(name, kind.name, dims, offset, elements // kind.elements * kind.size_bytes)


def _alignment(value: Value) -> int:
    if type(value) is not int or not 0 < value <= MAX_ALIGNMENT or value & (value - 1):
        raise DocumentProblem(f"{_ALIGNMENT} is not a power of two up to {MAX_ALIGNMENT}")
    return value


def _check_places(tensors: tuple[Tensor, ...], alignment: int, data_bytes: int) -> None:
    """Only the end of the last tensor says whether a file is whole; padding behind it may be there or not."""
    position = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.size_bytes)):
        if tensor.offset % alignment:
            raise DocumentProblem(f"a tensor does not lie on a multiple of {alignment} bytes")
        if tensor.offset < position:
            raise DocumentProblem("two tensors overlap")
        position = tensor.offset + tensor.size_bytes
    if tensors and position > data_bytes:
        raise DocumentProblem(f"the file is cut off: {position - data_bytes} bytes of its tensors are missing")


def weight_facts(path: str, header: Header) -> WeightFacts:
    """What a header says of its weights; `path` is the member's name in the set."""
    sizes: dict[str, int] = {}
    for tensor in header.tensors:
        sizes[tensor.kind] = sizes.get(tensor.kind, 0) + tensor.size_bytes
    return WeightFacts(
        path=path,
        format="gguf",
        tensors=len(header.tensors),
        parameters=sum(prod(tensor.dims) for tensor in header.tensors),
        bytes_by_dtype=dict(sorted(sizes.items())),
        names_sha256=names_digest(tensor.name for tensor in header.tensors),
        metadata=_metadata(header),
    )


def _metadata(header: Header) -> dict[str, str]:
    facts = {"version": str(header.version)}
    for key, name in _GENERAL.items():
        _put(facts, name, header.values.get(key))
    architecture = header.values.get(_ARCHITECTURE)
    if isinstance(architecture, str):
        for name in _OF_ARCHITECTURE:
            _put(facts, name.removeprefix("attention."), header.values.get(f"{architecture}.{name}"))
    file_type = header.values.get(_FILE_TYPE)
    if type(file_type) is int and file_type & ~GUESSED in FILE_TYPES:
        facts["quantization"] = FILE_TYPES[file_type & ~GUESSED]
    if _CHAT_TEMPLATE in header.values:
        facts["chat_template"] = "present"
    return facts


def _put(facts: dict[str, str], name: str, value: Value) -> None:
    if value is not None:
        facts[name] = clean_line(str(value), MAX_METADATA_CHARS)
