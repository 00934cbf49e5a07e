"""What a file is by its own bytes. Its name is not asked: a pickle called `model.safetensors` is a pickle."""

from __future__ import annotations

import re
import struct
from typing import BinaryIO, Final

from adapters.formats import pickle_head, zips
from adapters.formats.documents import DocumentProblem
from adapters.formats.text_kinds import text_kind
from bus.messages.artifacts import FileFormat

HEAD_BYTES: Final = 4_096
_TORCH_ENTRY: Final = "data.pkl"
_MAGICS: Final = (
    (b"\x89HDF\r\n\x1a\n", FileFormat.HDF5),
    (b"\x93NUMPY", FileFormat.NUMPY),
    (b"\xfd7zXZ\x00", FileFormat.XZ),
    (b"\x28\xb5\x2f\xfd", FileFormat.ZSTD),
    (b"7z\xbc\xaf\x27\x1c", FileFormat.SEVEN_ZIP),
    (b"Rar!\x1a\x07", FileFormat.RAR),
    (b"\x7fELF", FileFormat.ELF),
    (b"\x00asm", FileFormat.WASM),
    (b"\xfe\xed\xfa\xce", FileFormat.MACH_O),
    (b"\xfe\xed\xfa\xcf", FileFormat.MACH_O),
    (b"\xce\xfa\xed\xfe", FileFormat.MACH_O),
    (b"\xcf\xfa\xed\xfe", FileFormat.MACH_O),
    (b"%PDF-", FileFormat.PDF),
    (b"\x89PNG\r\n\x1a\n", FileFormat.IMAGE),
    (b"GIF87a", FileFormat.IMAGE),
    (b"GIF89a", FileFormat.IMAGE),
    (b"II*\x00", FileFormat.IMAGE),
    (b"MM\x00*", FileFormat.IMAGE),
    (b"fLaC", FileFormat.AUDIO),
    (b"OggS", FileFormat.AUDIO),
    (b"ID3\x02", FileFormat.AUDIO),
    (b"ID3\x03", FileFormat.AUDIO),
    (b"ID3\x04", FileFormat.AUDIO),
)
_MAGIC_STARTS: Final = frozenset(magic[0] for magic, _ in _MAGICS)
# A Safetensors file may begin with these by chance, because its first bytes are a length.
_SHORT_MAGICS: Final = (
    (b"\x1f\x8b", FileFormat.GZIP),
    (b"\xff\xd8\xff", FileFormat.IMAGE),
    (b"\xff\xfb", FileFormat.AUDIO),
)
_BZIP2: Final = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", re.DOTALL)
_TAR_CHECKSUM: Final = re.compile(rb" *[0-7]{1,7}[ \x00]*\Z")
_CTRANSLATE2: Final = re.compile(rb"[A-Z][A-Za-z0-9]{2,60}Spec\x00")
_LENGTH: Final = struct.Struct("<Q")
# A number of eight bytes of text is larger.
_MAX_SAFETENSORS_CLAIM: Final = 2**48
_MAX_CTRANSLATE2_VERSION: Final = 64
_MAX_FAT_BINARIES: Final = 32
# Behind the old program that a Windows program begins with.
_MAX_DOS_BYTES: Final = 2**20
_GGUF_HEAD_BYTES: Final = 8
_TAR_BLOCK_BYTES: Final = 512
_MORE: Final = 0x80
# Field numbers of an ONNX model by their protobuf tags: varints, and parts with a length.
_ONNX_VARINTS: Final = frozenset({0x08, 0x28})
_ONNX_PARTS: Final = frozenset({0x12, 0x1A, 0x22, 0x32, 0x3A, 0x42, 0x72})
_ONNX_FIRST: Final = 0x08
_ONNX_GRAPH: Final = 0x3A


def sniff_file(file: BinaryIO, size_bytes: int) -> tuple[FileFormat, bytes]:
    """The format of an open file, and the head that was read; `file` is left at its beginning.

    Raises:
        OSError: when the file cannot be read.
    """
    head = file.read(HEAD_BYTES)
    found = sniff(head, size_bytes)
    if found is FileFormat.ZIP and _is_torch_zip(file, size_bytes):
        found = FileFormat.TORCH_ZIP
    file.seek(0)
    return found, head


def sniff(head: bytes, size_bytes: int) -> FileFormat:
    """The format of a file of `size_bytes` that begins with `head`, `HEAD_BYTES` of it or all.

    A torch zip is told here only when its pickle stands first, as torch writes it; `sniff_file` reads the directory.
    """
    if not head:
        return FileFormat.EMPTY
    found = _by_magic(head)
    if found is not None:
        return found
    if _looks_like_safetensors(head):
        # The two can share their first bytes; what an unpickler would follow counts as a pickle.
        is_pickle = head[0] == pickle_head.PROTO and pickle_head.runs(head, size_bytes)
        return FileFormat.PICKLE if is_pickle else FileFormat.SAFETENSORS
    if pickle_head.is_pickle(head, size_bytes):
        return FileFormat.PICKLE
    found = _of(_SHORT_MAGICS, head) or _by_structure(head, size_bytes)
    return found or text_kind(head, size_bytes) or FileFormat.BINARY


def _by_magic(head: bytes) -> FileFormat | None:
    if head.startswith(zips.MAGICS):
        return FileFormat.TORCH_ZIP if _is_torch_entry(zips.first_name(head)) else FileFormat.ZIP
    if head.startswith(b"GGUF"):
        # Behind it stands a version; a text about the format has letters there.
        return FileFormat.GGUF if b"\x00" in head[4:8] or len(head) < _GGUF_HEAD_BYTES else None
    return _of(_MAGICS, head) if head[0] in _MAGIC_STARTS else None


def _of(magics: tuple[tuple[bytes, FileFormat], ...], head: bytes) -> FileFormat | None:
    return next((found for magic, found in magics if head.startswith(magic)), None)


def _is_torch_entry(name: str) -> bool:
    return name == _TORCH_ENTRY or name.endswith(f"/{_TORCH_ENTRY}")


def _looks_like_safetensors(head: bytes) -> bool:
    """A length and the bracket of its JSON: also with a length that the file does not have, or nobody would read."""
    if len(head) <= _LENGTH.size or head[_LENGTH.size : _LENGTH.size + 1] != b"{":
        return False
    (length,) = _LENGTH.unpack_from(head)
    return int(length) < _MAX_SAFETENSORS_CLAIM


def _by_structure(head: bytes, size_bytes: int) -> FileFormat | None:
    """Formats without a magic at their first byte, or with one that also begins other things."""
    if head[4:8] == b"TFL3":
        return FileFormat.TFLITE
    if _is_tar(head):
        return FileFormat.TAR
    if head.startswith(b"MZ") and _is_pe(head, size_bytes):
        return FileFormat.PE
    if head.startswith(b"\xca\xfe\xba\xbe") and 0 < int.from_bytes(head[4:8], "big") <= _MAX_FAT_BINARIES:
        return FileFormat.MACH_O
    if head.startswith(b"RIFF") and head[8:12] in (b"WAVE", b"WEBP"):
        return FileFormat.AUDIO if head[8:12] == b"WAVE" else FileFormat.IMAGE
    if head.startswith(b"BZh") and _BZIP2.match(head):
        return FileFormat.BZIP2
    if head[1:4] == b"\x00\x00\x00" and head[0] <= _MAX_CTRANSLATE2_VERSION and _CTRANSLATE2.match(head, 6):
        return FileFormat.CTRANSLATE2
    return FileFormat.ONNX if head[0] == _ONNX_FIRST and _is_onnx(head, size_bytes) else None


def _is_tar(head: bytes) -> bool:
    """The mark of POSIX and GNU, or the right checksum of a header of the oldest kind."""
    if head[257:262] == b"ustar":
        return True
    if len(head) < _TAR_BLOCK_BYTES or not head[0] or not _TAR_CHECKSUM.match(head[148:156]):
        return False
    claimed = int(head[148:156].strip(b" \x00"), 8)
    return claimed == sum(head[:148]) + sum(head[156:512]) + 8 * ord(" ")


def _is_pe(head: bytes, size_bytes: int) -> bool:
    at = int.from_bytes(head[60:64], "little")
    return head[at : at + 4] == b"PE\x00\x00" or len(head) <= at < min(size_bytes, _MAX_DOS_BYTES)


def _is_onnx(head: bytes, size_bytes: int) -> bool:
    """A protobuf of the fields that a model has, up to its graph."""
    at = 0
    while at < len(head):
        tag = head[at]
        number, at = _varint(head, at + 1)
        if number is None or tag not in _ONNX_VARINTS | _ONNX_PARTS:
            return False
        if tag in _ONNX_PARTS:
            at += number
            if at > size_bytes:
                return False
        if tag == _ONNX_GRAPH:
            return True
    return False


def _varint(data: bytes, at: int) -> tuple[int | None, int]:
    value = 0
    for count, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * count
        if byte < _MORE:
            return value, at + count + 1
    return None, at


def _is_torch_zip(file: BinaryIO, size_bytes: int) -> bool:
    try:
        names = zips.entry_names(file, size_bytes)
    except DocumentProblem:
        return False
    return any(_is_torch_entry(name) for name in names)
