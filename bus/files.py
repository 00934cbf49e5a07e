"""Small files that a person names: regular ones only, and never more of them than makes sense."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """The contents of a regular file of at most `limit_bytes`.

    A device would be read until memory ends and a pipe would be waited for without end, so neither is read. The file
    is opened without blocking and looked at afterwards: between a look and an open it could be another one.

    Raises:
        OSError: as `open` does; EINVAL for what is no regular file, EFBIG for a larger one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(_regular(descriptor, path), "rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"larger than {limit_bytes} bytes", str(path))
    return content


def _regular(descriptor: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))
