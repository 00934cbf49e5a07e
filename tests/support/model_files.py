"""Builds tiny real files of every format that a scan tells apart, byte by byte and without a model library.

Each function gives the whole file as bytes, so that a test can write it, cut it or change it. The GGUF writer was held
against the format's own reference reader; the Safetensors writer is held against the reference reader by a test.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, Final

# Bits of one element.
_BITS: Final = {"BOOL": 8, "I8": 8, "U8": 8, "F8_E4M3": 8, "F16": 16, "BF16": 16, "F32": 32, "I32": 32, "I64": 64}
_GGUF_TYPES: Final = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q8_0": (8, 32, 34),
    "Q4_K": (12, 256, 144),
}
EVIL_PICKLE: Final = b"\x80\x02cposix\nsystem\nq\x00X\x04\x00\x00\x00trueq\x01\x85q\x02Rq\x03."
EVIL_PICKLE_0: Final = b"cposix\nsystem\np0\n(S'true'\np1\ntp2\nRp3\n."
PLAIN_PICKLE: Final = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01K\x01s."
HTML_PAGE: Final = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>403</body></html>\n"
ELF: Final = b"\x7fELF\x02\x01\x01" + bytes(57)
PNG: Final = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 1, 1, 8, 0, 0, 0, 0)


def safetensors(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, metadata: Mapping[str, str] | None = None, fill: int = 0
) -> bytes:
    """A correct file with these tensors, `name: (dtype, shape)`, in this order; every byte of them is `fill`."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + prod(shape) * _BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    return framed(header, bytes([fill]) * position)


def framed(header: object, data: bytes = b"") -> bytes:
    """A Safetensors file of any `header`, right or wrong (bytes are taken as they are), and `data` behind it."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def bert_tensors(*, layers: int = 2, hidden: int = 32, vocabulary: int = 64) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Names, dtypes and shapes of a small BertModel, for `safetensors`."""
    matrix, vector = ("F32", (hidden, hidden)), ("F32", (hidden,))
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "embeddings.word_embeddings.weight": ("F32", (vocabulary, hidden)),
        "embeddings.LayerNorm.weight": vector,
    }
    for layer in range(layers):
        for part in ("query", "key", "value"):
            tensors[f"encoder.layer.{layer}.attention.self.{part}.weight"] = matrix
        tensors[f"encoder.layer.{layer}.output.LayerNorm.weight"] = vector
    return tensors


def gguf(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
    *,
    version: int = 3,
    big_endian: bool = False,
) -> bytes:
    """A correct GGUF file: `tensors` are `name: (type, dims)`, the first dim is the one that lies together.

    Values of `metadata`: bool, int (unsigned 32 bits, or 64 when it needs them), float (32 bits), str, lists of one of
    these. `general.alignment` is obeyed.
    """
    order = ">" if big_endian else "<"
    alignment = int(metadata.get("general.alignment", 32))
    infos, position = b"", 0
    for name, (kind, dims) in (tensors or {}).items():
        number, block, size = _GGUF_TYPES[kind]
        infos += _gguf_text(name, order) + struct.pack(f"{order}I{len(dims)}Q", len(dims), *dims)
        infos += struct.pack(f"{order}IQ", number, position)
        position += prod(dims) // block * size
        position += -position % alignment
    head = struct.pack(f"{order}4sIQQ", b"GGUF", version, len(tensors or {}), len(metadata))
    for key, value in metadata.items():
        kind_number, packed = gguf_value(value, order)
        head += _gguf_text(key, order) + struct.pack(f"{order}I", kind_number) + packed
    head += infos
    return head + bytes(-len(head) % alignment if tensors else 0) + bytes(position)


def gguf_value(value: Any, order: str = "<") -> tuple[int, bytes]:
    """The type number and the bytes of one metadata value."""
    match value:
        case bool():
            return 7, struct.pack("?", value)
        case int() if 0 <= value < 2**32:
            return 4, struct.pack(f"{order}I", value)
        case int():
            return 10, struct.pack(f"{order}Q", value)
        case float():
            return 6, struct.pack(f"{order}f", value)
        case str():
            return 8, _gguf_text(value, order)
        case list():
            items = [gguf_value(item, order) for item in value]
            kind = items[0][0] if items else 4
            return 9, struct.pack(f"{order}IQ", kind, len(items)) + b"".join(packed for _, packed in items)
        case _:
            raise TypeError(f"GGUF has no {type(value).__name__}")


def _gguf_text(text: str, order: str) -> bytes:
    data = text.encode()
    return struct.pack(f"{order}Q", len(data)) + data


def llama_gguf(*, file_type: int = 15, kind: str = "Q4_K", layers: int = 1, **more: Any) -> bytes:
    """A small llama in GGUF, quantized as `file_type` (15 is Q4_K_M) says; `more` are further metadata keys.

    A double underscore in a key of `more` stands for a dot: `split__count=2`.
    """
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "general.file_type": file_type,
        "llama.context_length": 2048,
        "llama.block_count": layers,
        "llama.embedding_length": 256,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["<s>", "</s>", "a"],
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {"token_embd.weight": (kind, (256, 3))}
    tensors |= {f"blk.{layer}.attn_q.weight": (kind, (256, 2)) for layer in range(layers)}
    return gguf(metadata, {**tensors, "output_norm.weight": ("F32", (256,))})


def lfs_pointer(content: bytes = b"weights") -> bytes:
    """The text that stands for a file whose content was never fetched."""
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n".encode()


def torch_pickle(names: Iterable[str] = ("weight",)) -> bytes:
    """The pickle of a state dict, as `torch.save` writes it: one float32 tensor of two elements per name."""
    data = b"\x80\x02ccollections\nOrderedDict\nq\x00)R("
    for key, name in enumerate(names):
        storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text(str(key)) + _text("cpu") + b"K\x02tQ"
        hooks = b"ccollections\nOrderedDict\n)R"
        data += (
            _text(name)
            + b"ctorch._utils\n_rebuild_tensor_v2\n("
            + storage
            + b"K\x00K\x02\x85K\x01\x85\x89"
            + hooks
            + b"tR"
        )
    return data + b"u."


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def torch_zip(pickled: bytes | None = None, *, folder: str = "archive", tensors: int = 1) -> bytes:
    """A zip as `torch.save` writes it, around `pickled` (a state dict of `tensors` tensors without one)."""
    names = [f"layer{number}.weight" for number in range(tensors)]
    entries = {f"{folder}/data.pkl": torch_pickle(names) if pickled is None else pickled}
    entries |= {f"{folder}/data/{number}": bytes(8) for number in range(tensors)}
    return zip_file({**entries, f"{folder}/version": b"3\n"})


def zip_file(entries: Mapping[str, bytes], *, compressed: bool = False) -> bytes:
    """A zip of these entries."""
    out = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def tar_file(entries: Mapping[str, bytes]) -> bytes:
    """A POSIX tar of these entries."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def gzip_file(data: bytes = b"hello") -> bytes:
    """`data` in gzip."""
    return gzip.compress(data, mtime=0)


def xz_file(data: bytes = b"hello") -> bytes:
    """`data` in xz."""
    return lzma.compress(data)


def numpy_file() -> bytes:
    """An array of no element, as numpy saves it."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def onnx_file() -> bytes:
    """An ONNX model of an empty graph: IR version, producer, graph, operator set."""
    graph = b"\x12\x01g"
    return b"\x08\x08\x12\x07pytorch" + b"\x3a" + bytes([len(graph)]) + graph + b"\x42\x02\x10\x11"


def ctranslate2_file(spec: str = "WhisperSpec") -> bytes:
    """The head of a CTranslate2 model: binary version, name of its specification, revision, no variables."""
    name = spec.encode() + b"\x00"
    return struct.pack("<IH", 6, len(name)) + name + struct.pack("<II", 3, 0)


def pe_file() -> bytes:
    """The head of a Windows program."""
    return b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\x00\x00" + bytes(20)
