"""Which files a child may open while it has a model: the set, its scratch folder, and what the machine itself gives.

A document of a model's folder may name files elsewhere, and a library follows it without a word; then bytes that
nobody hashed or approved become a part of the model. The rules are for what Python code opens, like the guard.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MACHINE: Final = (
    "/proc",
    "/sys",
    "/dev/null",
    "/dev/random",
    "/dev/shm",  # noqa: S108 -- a name that is compared, nothing is made there
    "/dev/urandom",
    "/dev/zero",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/pki",
    "/etc/ssl",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/cuda",
    "/usr/local/lib",
    "/usr/share/ca-certificates",
    "/usr/share/fonts",
    "/usr/share/i18n",
    "/usr/share/locale",
    "/usr/share/mime",
    "/usr/share/zoneinfo",
)
_WRITABLE: Final = ("/dev/null", "/dev/shm")  # noqa: S108 -- as above
_PACKAGE_FOLDERS: Final = ("site-packages", "dist-packages")
# A folder on the import path that is not a package folder, such as a clone, may hold models too: only code of it.
_CODE: Final = (".py", ".pyc", ".so")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRules:
    """The folders and files of one child.

    Attributes:
        model: the set's folder, as the libraries are told it.
        readable: real paths of files, and of folders with all that they hold.
        code: real paths of folders of which only code is read.
        writable: real paths, as `readable`.
    """

    model: str
    readable: tuple[str, ...]
    code: tuple[str, ...]
    writable: tuple[str, ...]

    @classmethod
    def of(cls, model: Path, scratch: Path) -> FileRules:
        """The rules of this process for a set in the folder `model`; both paths are absolute."""
        paths = sysconfig.get_paths()
        libraries = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        libraries.append(str(Path(os.__file__).parent))
        imports = [entry for entry in sys.path if entry]
        libraries += [entry for entry in imports if entry.endswith(_PACKAGE_FOLDERS)]
        drivers = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        own = [str(model), str(scratch)]
        return cls(
            model=str(model),
            readable=_real([*own, *_MACHINE, *libraries, *drivers, *(os.environ.get("CUDA_HOME", ""),)]),
            code=_real(imports),
            writable=_real([str(scratch), *_WRITABLE]),
        )

    def refuses(self, path: object, flags: int) -> bool:
        """Is this call of `open` to be refused? A descriptor is not: it was opened before."""
        if not isinstance(path, str | bytes):
            return False
        name = os.fsdecode(path)
        if "\0" in name:
            return False  # the call itself will say that there is no such name
        real = os.path.realpath(name)
        if flags & _WRITES:
            return not _inside(real, self.writable)
        if _inside(real, self.readable) or (real.endswith(_CODE) and _inside(real, self.code)):
            return False
        # A link of the set leads to a member that was hashed through it. With `..` the name alone says nothing.
        if ".." not in name.split("/") and _inside(os.path.abspath(name), (self.model,)):  # noqa: PTH100 -- not resolved
            return False
        return os.path.lexists(real)  # what is not there cannot be read, and libraries ask for many such files


def _real(names: list[str]) -> tuple[str, ...]:
    """Real paths without doubles; the root folder is none, or everything would be allowed."""
    found = {os.path.realpath(name) for name in names if name}
    return tuple(sorted(found - {"/"}))


def _inside(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)
