"""Exceptions become codes here, at the edge of the child (spec P9).

What crosses is a code, a stage and a class name. The text of a foreign exception does not: it may hold a path, a
secret or an input. Classes are matched by name, because this module imports no model library.
"""

from __future__ import annotations

import re
from typing import Final

from adapters.child.guard import GuardRefusal
from adapters.child.protocol import ChildFailed, Stage
from bus.errors import ErrorCode, ModelForgeError

_CLASS_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}\Z")
# The library's own words, looked at and never repeated: these come as a plain RuntimeError.
_GPU_MEMORY: Final = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    r"|cudaErrorMemoryAllocation"
)
_HOST_MEMORY: Final = re.compile(r"DefaultCPUAllocator")
_BY_STAGE: Final[dict[Stage, ErrorCode]] = {
    "isolate": ErrorCode.NODE_FAULT,
    "import": ErrorCode.NODE_FAULT,  # before the model's folder was touched: not the model's fault
    "prepare": ErrorCode.RUNTIME_INCOMPATIBLE,
    "load": ErrorCode.MODEL_LOAD_FAILED,
    "probe": ErrorCode.HEALTHCHECK_FAILED,
    "health": ErrorCode.HEALTHCHECK_FAILED,
    "unload": ErrorCode.RUNTIME_CRASH,
}
_WORDS: Final[dict[Stage, str]] = {
    "isolate": "while the child was isolated",
    "import": "while the libraries were imported",
    "prepare": "while the adapter was made",
    "load": "while the model was loaded",
    "probe": "while the fixed input was run",
    "health": "while the health was checked",
    "unload": "while the model was unloaded",
}


def normalise(error: BaseException, stage: Stage) -> ChildFailed:
    """The frame for `error`. Only our own errors keep their message; they are written without foreign text."""
    name = class_name(error)
    if isinstance(error, ModelForgeError):
        return ChildFailed(code=error.code.value, stage=stage, exception=name, message=error.message)
    code, reason = _classify(error, stage)
    message = f"{name} {_WORDS[stage]}{f' ({reason})' if reason else ''}"
    return ChildFailed(code=code.value, stage=stage, exception=name, message=message)


def _classify(error: BaseException, stage: Stage) -> tuple[ErrorCode, str]:
    """The code, and a reason from a closed list. `torch.OutOfMemoryError` is itself a RuntimeError."""
    if isinstance(error, GuardRefusal):
        return ErrorCode.OFFLINE_LOAD_VIOLATION, "the network was refused"
    names = {cls.__name__ for cls in type(error).__mro__}
    text = str(error) if isinstance(error, RuntimeError) else ""
    if "OutOfMemoryError" in names or _GPU_MEMORY.search(text):
        return ErrorCode.GPU_OOM, "the GPU has no memory left"
    if isinstance(error, MemoryError) or _HOST_MEMORY.search(text):
        return ErrorCode.RUNTIME_CRASH, "host_memory"
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return ErrorCode.RUNTIME_CRASH, "the library ended the process"
    return _BY_STAGE[stage], ""


def class_name(error: BaseException) -> str:
    """The class of `error` with its module; `exception` when it is not an ordinary name."""
    cls = type(error)
    full = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    return full if _CLASS_NAME.match(full) else "exception"
