"""Pickles made by hand: ordinary ones, and hostile ones that really make a folder named `marker` when they are loaded.

Each hostile pickle is one way past a scanner that was published for picklescan, fickling or modelscan, or a way that
only a reader of this kind has to fear.
"""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARKER: Final = "marker"
PROVE_S: Final = 50
# os.mkdir("marker"), as text: no other reader can take it for something else.
EVIL: Final = b"cos\nmkdir\n(S'marker'\ntR."
EVIL_BODY: Final = EVIL[:-1]
PROTO2: Final = b"\x80\x02"
PROTO4: Final = b"\x80\x04"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A hostile file, and who loads it: `pickle`, `stream` (until the end), `torch`, `joblib`, `numpy`, `entry`."""

    name: str
    data: bytes
    loader: str = "pickle"
    entry: str = ""


def text(value: str) -> bytes:
    """SHORT_BINUNICODE."""
    data = value.encode()
    return b"\x8c" + bytes([len(data)]) + data


def named(module: str, name: str) -> bytes:
    """STACK_GLOBAL."""
    return text(module) + text(name) + b"\x93"


def zipped(entries: dict[str, bytes], *, method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip container with these entries, as Python writes it."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return target.getvalue()


def torch_zip(pickle: bytes, storages: dict[str, bytes] | None = None, *, root: str = "archive") -> bytes:
    """What `torch.save` writes, around another pickle."""
    entries = {f"{root}/data.pkl": pickle, f"{root}/version": b"3\n", f"{root}/byteorder": b"little"}
    entries.update({f"{root}/data/{key}": content for key, content in (storages or {}).items()})
    return zipped(entries)


def legacy_torch(pickle: bytes) -> bytes:
    """Torch's format before its zip container, around another pickle."""
    magic = PROTO2 + b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
    protocol = PROTO2 + b"M\xe9\x03."
    system = PROTO2 + b"}(X\x10\x00\x00\x00protocol_versionM\xe9\x03X\x0d\x00\x00\x00little_endian\x88u."
    return magic + protocol + system + pickle + PROTO2 + b"]."


def npy(pickle: bytes) -> bytes:
    """A NumPy file of objects, around another pickle."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header = header.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + pickle


def joblib_wrapper(*, size: int, alignment: bool) -> bytes:
    """The instructions with which joblib announces an array of `size` bytes; they end where the array begins."""
    dtype = (
        named("numpy", "dtype")
        + text("i1")
        + b"\x89\x88\x87R"
        + b"(K\x03"
        + text("|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    state = text("subclass") + named("numpy", "ndarray") + text("shape") + b"M" + struct.pack("<H", size) + b"\x85"
    state += text("order") + text("C") + text("dtype") + dtype + text("allow_mmap") + b"\x89"
    if alignment:
        state += text("numpy_array_alignment_bytes") + b"K\x10"
    return PROTO4 + named("joblib.numpy_pickle", "NumpyArrayWrapper") + b")\x81}(" + state + b"ub"


def wrong_checksum(data: bytes, content: bytes) -> bytes:
    """The checksum of one entry replaced wherever it stands: Python's reader refuses the entry, torch's does not."""
    crc = struct.pack("<I", zlib.crc32(content))
    return data.replace(crc, bytes(byte ^ 0xFF for byte in crc))


def _slot_state() -> bytes:
    """Attributes put on a listed class by BUILD, and read back as the two words of an import."""
    wrapper = named("joblib.numpy_pickle", "NumpyArrayWrapper")
    state = b"N}(" + text("a") + text("os") + text("b") + text("mkdir") + b"u\x86b0"
    read_back = named("joblib.numpy_pickle", "NumpyArrayWrapper.a") + named(
        "joblib.numpy_pickle", "NumpyArrayWrapper.b"
    )
    return PROTO4 + wrapper + state + read_back + b"\x93" + text(MARKER) + b"\x85R."


def hostile() -> tuple[Hostile, ...]:
    """All of them; each really makes its marker."""
    stack_global = PROTO4 + named("os", "mkdir") + text(MARKER) + b"\x85R."
    getattr_chain = (
        PROTO4 + named("builtins", "getattr") + named("builtins", "__import__") + text("os") + b"\x85R" + text("mkdir")
        + b"\x86R" + text(MARKER) + b"\x85R."
    )  # fmt: skip
    lazily = b"cbuiltins\nlist\ncbuiltins\nmap\ncos\nmkdir\n(S'marker'\nl\x86\x81\x85R."
    confused = (
        PROTO4 + text("os") + b"q\x00" + text("mkdir") + b"q\x01" + text("collections") + b"\x94" + text("OrderedDict")
        + b"\x940000" + b"h\x00h\x01\x93" + text(MARKER) + b"\x85R."
    )  # fmt: skip
    registry = PROTO2 + b"ccopyreg\nadd_extension\n(S'os'\nS'mkdir'\nK\xf0tR0\x82\xf0S'marker'\n\x85R."
    hidden = joblib_wrapper(size=len(EVIL), alignment=False) + EVIL
    wrong = torch_zip(PROTO2 + EVIL)
    inner = legacy_torch(EVIL)
    in_bytes = PROTO4 + named("torch.storage", "_load_from_bytes") + b"C" + bytes([len(inner)]) + inner + b"\x85R."
    dotted = PROTO4 + named("joblib.numpy_pickle", "os.mkdir") + text(MARKER) + b"\x85R."
    magic_from_call = EVIL_BODY + b"0" + legacy_torch(PROTO2 + b"N.")[2:]
    packed = zipped({"a/data.pkl": EVIL}, method=zipfile.ZIP_DEFLATED)
    in_storage = torch_zip(PROTO2 + b"N.", {"0": EVIL})
    return (
        Hostile(name="text protocol", data=EVIL),
        Hostile(name="stack global", data=stack_global),
        Hostile(name="INST", data=b"(S'marker'\nios\nmkdir\n."),
        Hostile(name="OBJ", data=b"(cos\nmkdir\nS'marker'\no."),
        Hostile(name="NEWOBJ of something lazy", data=PROTO2 + lazily),
        Hostile(name="nested getattr", data=getattr_chain),
        Hostile(name="dotted name below a listed module", data=dotted),
        Hostile(name="attributes by BUILD", data=_slot_state()),
        Hostile(name="two ways to fill the memo", data=confused),
        Hostile(name="extension registry", data=registry),
        Hostile(name="cut off after the call", data=EVIL_BODY),
        Hostile(name="unknown instruction after the call", data=EVIL_BODY + b"\xff\xff"),
        Hostile(name="impossible protocol after the call", data=EVIL_BODY + b"\x80\x63."),
        Hostile(name="impossible length after the call", data=EVIL_BODY + b"\x8e" + b"\xff" * 8),
        Hostile(name="empty stack after the call", data=EVIL_BODY + b"000."),
        Hostile(name="bad text after the call", data=EVIL_BODY + b"Ix\n."),
        Hostile(name="second pickle", data=b"N." + EVIL, loader="stream"),
        Hostile(name="call before a harmless value", data=EVIL_BODY + b"0N."),
        Hostile(name="text that is not ASCII before the call", data=b"V\xc3\xa4\n0" + EVIL),
        Hostile(name="joblib array that is instructions", data=hidden),
        Hostile(name="NumPy objects", data=npy(EVIL), loader="numpy"),
        Hostile(name="NumPy objects in a container", data=zipped({"a.npy": npy(EVIL)}), loader="numpy"),
        Hostile(name="torch", data=wrong, loader="torch"),
        Hostile(name="torch with a wrong checksum", data=wrong_checksum(wrong, PROTO2 + EVIL), loader="torch"),
        Hostile(name="torch with the entry in capitals", data=wrong.replace(b"data.pkl", b"DATA.PKL"), loader="torch"),
        Hostile(name="torch, old format", data=legacy_torch(PROTO2 + EVIL), loader="torch"),
        Hostile(name="torch, old format, magic number from a call", data=magic_from_call, loader="torch"),
        Hostile(name="pickle in bytes for torch", data=in_bytes),
        Hostile(name="entry of another name", data=zipped({"notes.txt": EVIL}), loader="entry", entry="notes.txt"),
        Hostile(name="storage that is a pickle", data=in_storage, loader="entry", entry="archive/data/0"),
        Hostile(name="packed entry", data=packed, loader="entry", entry="a/data.pkl"),
    )


_PROVER: Final = """
import io, json, os, pickle, sys, zipfile
import joblib, numpy, torch

def stream(path):
    with open(path, "rb") as file:
        while file.peek(1):
            pickle.load(file)

def load(loader, path, entry):
    if loader == "pickle":
        with open(path, "rb") as file:
            pickle.load(file)
    elif loader == "stream":
        stream(path)
    elif loader == "torch":
        torch.load(path, weights_only=False)
    elif loader == "joblib":
        joblib.load(path)
    elif loader == "numpy":
        loaded = numpy.load(path, allow_pickle=True)
        if hasattr(loaded, "files"):
            [loaded[name] for name in loaded.files]
    elif loader == "entry":
        pickle.loads(zipfile.ZipFile(path).read(entry))

for case in json.load(sys.stdin):
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(case["folder"])
            load(case["loader"], case["path"], case["entry"])
        except BaseException as error:
            print(case["path"], type(error).__name__, error)
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(pid, 0)
"""


def really_loaded(cases: tuple[Hostile, ...], folder: Path) -> set[str]:
    """Load each file in a process of its own, as its victim would; gives the names of those that made their marker."""
    orders = []
    for number, case in enumerate(cases):
        home = folder / str(number)
        home.mkdir()
        (home / "file").write_bytes(case.data)
        orders.append({"folder": str(home), "path": str(home / "file"), "loader": case.loader, "entry": case.entry})
    command = [sys.executable, "-P", "-W", "ignore", "-c", _PROVER]
    subprocess.run(command, input=json.dumps(orders).encode(), check=True, capture_output=True, timeout=PROVE_S)
    return {case.name for number, case in enumerate(cases) if (folder / str(number) / MARKER).is_dir()}
