from __future__ import annotations

import json

import pytest

from adapters.child.failures import normalise
from adapters.child.guard import GuardRefusal
from adapters.child.protocol import Stage
from adapters.payloads import EMBEDDING_INPUT
from bus.errors import ErrorCode, ModelForgeError

SECRET = "hf_" + "s" * 30


class OutOfMemoryError(RuntimeError):
    """As torch's own: a RuntimeError by another name."""


class SafetensorError(Exception):
    pass


@pytest.mark.req("P9")
@pytest.mark.parametrize(
    ("error", "stage", "code"),
    [
        (GuardRefusal("socket.connect"), "load", "OFFLINE_LOAD_VIOLATION"),
        (GuardRefusal("socket.connect"), "import", "OFFLINE_LOAD_VIOLATION"),
        (ImportError("no torch"), "import", "NODE_FAULT"),
        (ImportError("no peft"), "load", "MODEL_LOAD_FAILED"),
        (OSError("x"), "load", "MODEL_LOAD_FAILED"),
        (SafetensorError("header too large"), "load", "MODEL_LOAD_FAILED"),
        (json.JSONDecodeError("x", "{", 1), "load", "MODEL_LOAD_FAILED"),
        (RuntimeError("size mismatch for embeddings"), "load", "MODEL_LOAD_FAILED"),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate"), "load", "GPU_OOM"),
        (OutOfMemoryError("x"), "probe", "GPU_OOM"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "probe", "GPU_OOM"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "load", "RUNTIME_CRASH"),
        (RuntimeError("not enough memory for the word list"), "load", "MODEL_LOAD_FAILED"),
        (MemoryError(), "probe", "RUNTIME_CRASH"),
        (SystemExit(3), "load", "RUNTIME_CRASH"),
        (KeyboardInterrupt(), "load", "RUNTIME_CRASH"),
        (IndexError("x"), "probe", "HEALTHCHECK_FAILED"),
        (ValueError("x"), "health", "HEALTHCHECK_FAILED"),
        (ValueError("x"), "unload", "RUNTIME_CRASH"),
        (OSError("x"), "isolate", "NODE_FAULT"),
        (ModelForgeError(ErrorCode.INVALID_OUTPUT, "the vector is zero"), "health", "INVALID_OUTPUT"),
    ],
)
def test_codes(error: BaseException, stage: Stage, code: str) -> None:
    failed = normalise(error, stage)
    assert (failed.code, failed.stage) == (code, stage)
    assert type(error).__name__ in failed.exception


@pytest.mark.req("P9")
@pytest.mark.req("P2")
def test_foreign_text_does_not_cross() -> None:
    error = OSError(f"cannot open /data/private/model with {SECRET} for {EMBEDDING_INPUT}")
    failed = normalise(error, "load")
    assert failed.message == "OSError while the model was loaded"
    for part in ("private", SECRET, EMBEDDING_INPUT):
        assert part not in repr(failed)


def test_host_memory_is_named_as_the_reason() -> None:
    assert normalise(MemoryError(), "load").message == "MemoryError while the model was loaded (host_memory)"


def test_a_class_with_a_strange_name_is_called_an_exception() -> None:
    strange = type("a b\x1b[31m", (Exception,), {})
    assert normalise(strange(), "load").exception == "exception"
