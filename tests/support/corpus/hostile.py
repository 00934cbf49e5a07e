"""Folders made to hurt whoever reads them: each builder fills an empty folder."""

from __future__ import annotations

import io
import os
import socket
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.corpus import folders, raw
from tests.support.corpus.row import write

MIB: Final = 1024**2
GIB: Final = 1024 * MIB
WEIGHTS: Final = folders.WEIGHTS
Builder = Callable[[Path], None]


def _model(folder: Path, **changes: bytes) -> None:
    """A complete embedder with other contents of some files; a dot of the name is written `_`."""
    write(folders.embedder(), folder)
    for name, data in changes.items():
        (folder / name.replace("_", ".")).write_bytes(data)


def _sparse(path: Path, head: bytes, size_bytes: int) -> None:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size_bytes)


def deep_documents(folder: Path) -> None:
    _model(folder, config_json=raw.DEEP_JSON, modules_json=b'{"a":' * 50_000 + b"1" + b"}" * 50_000)


def endless_number(folder: Path) -> None:
    """Python takes seconds for the digits of an integer of this length."""
    _model(folder, config_json=b'{"model_type": "bert", "hidden_size": ' + b"9" * 900_000 + b"}")


def wide_document(folder: Path) -> None:
    _model(folder, config_json=b'{"model_type": "bert", "x": [' + b"1," * 5_000_000 + b"1]}")


def header_beyond_the_file(folder: Path) -> None:
    _model(folder)
    _sparse(folder / WEIGHTS, struct.pack("<Q", 10 * GIB) + b"{", GIB // 4)


def header_as_large_as_the_file(folder: Path) -> None:
    """The claim is true, so nothing but a bound of its own keeps a reader from taking it all into memory."""
    _model(folder)
    _sparse(folder / WEIGHTS, struct.pack("<Q", GIB // 2 - 8) + b"{", GIB // 2)


def many_tensors(folder: Path) -> None:
    tensors = {f"t{number}": (1,) for number in range(200_000)}
    _model(folder)
    (folder / WEIGHTS).write_bytes(raw.safetensors(tensors))


def gguf_claims(folder: Path) -> None:
    write({"a.gguf": raw.ENDLESS_GGUF, "b.gguf": b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60)}, folder)
    text = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 10 * GIB) + b"a"
    _sparse(folder / "c.gguf", text, GIB // 4)
    nested = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<I", 9)
    (folder / "d.gguf").write_bytes(nested + struct.pack("<IQ", 9, 1) * 100_000)


def pickle_claims(folder: Path) -> None:
    _model(folder)
    (folder / "a.bin").write_bytes(b"\x80\x04\x8d" + struct.pack("<Q", 10 * GIB) + b"x.")
    (folder / "b.bin").write_bytes(b"\x80\x02" + b"(" * 3_000_000)
    (folder / "c.bin").write_bytes(b"\x80\x02" + b"N0" * 2_000_000 + b"N.")


def zip_bomb(folder: Path) -> None:
    """A torch file of two megabytes whose pickle unpacks to 512: instructions that a reader must follow one by one."""
    _model(folder)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("archive/data.pkl", "w", force_zip64=True) as entry:
            entry.write(b"\x80\x02")
            for _ in range(512):
                entry.write(b"N0" * (MIB // 2))
            entry.write(b".")
        archive.writestr("archive/version", b"3\n")
    (folder / "pytorch_model.bin").write_bytes(buffer.getvalue())


def link_loop(folder: Path) -> None:
    _model(folder)
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")


def folder_in_itself(folder: Path) -> None:
    _model(folder)
    (folder / "again").symlink_to(".")


def link_to_the_machine(folder: Path) -> None:
    _model(folder)
    (folder / "passwd.json").symlink_to("/etc/passwd")


def dangling_link(folder: Path) -> None:
    """A cache's snapshot copied without what its links lead to."""
    _model(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("../../blobs/0123")


def fifo(folder: Path) -> None:
    _model(folder)
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


def device(folder: Path) -> None:
    """The file that never ends."""
    _model(folder)
    os.mknod(folder / "zero.bin", stat.S_IFCHR | 0o600, os.makedev(1, 5))


def unix_socket(folder: Path) -> None:
    _model(folder)
    # A path of a test's folder may be longer than an address may be: it is bound by its name alone.
    place = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{place}/s")
    os.close(place)


def name_with_a_line_break(folder: Path) -> None:
    _model(folder)
    (folder / "safe.txt\nmodel.safetensors approved").write_bytes(b"x")


def name_with_an_escape(folder: Path) -> None:
    _model(folder)
    (folder / "\x1b[2J\x1b[1;32mcompatible\x1b[0m").write_bytes(b"x")


def name_that_turns_around(folder: Path) -> None:
    _model(folder)
    (folder / "model\u202esrotnesetfas.exe").write_bytes(b"x")


def name_that_is_no_text(folder: Path) -> None:
    _model(folder)
    with os.fdopen(os.open(os.fsencode(folder) + b"/\xff\xfe.bin", os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.write(b"x")


def words_that_paint(folder: Path) -> None:
    """Escapes in what a screen would show: a type, a dtype, an import of a pickle."""
    _model(folder, config_json=raw.dumps({"model_type": "\x1b[2Jbert\nverdict: compatible"}))
    (folder / "head.pkl").write_bytes(b"\x80\x02cos\x1b[2J\nsystem\x1b[31m\nX\x01\x00\x00\x00a\x85R.")
    (folder / "t.safetensors").write_bytes(
        raw.with_header({"\x1b[2J": {"dtype": "\x1b[1m", "shape": [1], "data_offsets": [0, 4]}}, bytes(4))
    )


def folders_without_end(folder: Path) -> None:
    _model(folder)
    (folder / "/".join(["d"] * 60)).mkdir(parents=True)


def many_files(folder: Path) -> None:
    """A hundred thousand names; a file system gives one file 65,000 of them at most."""
    _model(folder)
    for half in range(2):
        first = folder / f"{half}-0.txt"
        first.write_bytes(b"%d" % half)
        for number in range(1, 50_000):
            os.link(first, folder / f"{half}-{number}.txt")


# What a scan of each ends with; `None`: it succeeds, and the assessment is blocked.
FOLDERS: Final[dict[str, tuple[Builder, str | None]]] = {
    "dangling": (dangling_link, "ARTIFACT_UNREADABLE"),
    "deep-documents": (deep_documents, None),
    "device": (device, "ARTIFACT_UNSUPPORTED_FILE"),
    "endless-number": (endless_number, None),
    "fifo": (fifo, "ARTIFACT_UNSUPPORTED_FILE"),
    "folder-in-itself": (folder_in_itself, "ARTIFACT_UNSUPPORTED_FILE"),
    "folders-without-end": (folders_without_end, "SCAN_TOO_LARGE"),
    "gguf-claims": (gguf_claims, None),
    "header-beyond": (header_beyond_the_file, None),
    "header-whole": (header_as_large_as_the_file, None),
    "link-loop": (link_loop, "ARTIFACT_UNSUPPORTED_FILE"),
    "link-out": (link_to_the_machine, "PATH_OUTSIDE_ROOT"),
    "many-files": (many_files, "SCAN_TOO_LARGE"),
    "name-escape": (name_with_an_escape, "ARTIFACT_UNSUPPORTED_FILE"),
    "name-line": (name_with_a_line_break, "ARTIFACT_UNSUPPORTED_FILE"),
    "name-no-text": (name_that_is_no_text, "ARTIFACT_UNSUPPORTED_FILE"),
    "name-turned": (name_that_turns_around, "ARTIFACT_UNSUPPORTED_FILE"),
    "pickle-claims": (pickle_claims, None),
    "socket": (unix_socket, "ARTIFACT_UNSUPPORTED_FILE"),
    "wide-document": (wide_document, None),
    "words": (words_that_paint, None),
    "zip-bomb": (zip_bomb, None),
}
