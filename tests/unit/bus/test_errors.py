"""The error table is whole, and an error survives the wire."""

from __future__ import annotations

import pytest

from bus.codec import decode, encode
from bus.errors import CODES, ErrorCode, Failure, ModelForgeError


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_says_what_it_means_and_what_to_do(code: ErrorCode) -> None:
    info = CODES[code]
    assert info.meaning.endswith(".")
    assert info.remedy.endswith(".") or info.remedy.endswith("`.")
    assert info.exit != 0


def test_the_specified_failures_exist() -> None:
    for name in (
        "MODEL_LOAD_FAILED", "GPU_OOM", "RUNTIME_CRASH", "TIMEOUT", "INVALID_OUTPUT", "HEALTHCHECK_FAILED",
        "OFFLINE_LOAD_VIOLATION", "GPU_MEMORY_NOT_RECLAIMED", "RUNTIME_INCOMPATIBLE",
    ):  # fmt: skip
        assert ErrorCode(name) in CODES


def test_a_failure_comes_back_as_the_same_error() -> None:
    error = ModelForgeError(ErrorCode.UNKNOWN_ID, "no probe is named \x1b[2Jprb", noun="probe")
    back = ModelForgeError.from_failure(decode(encode(error.to_failure()), Failure))
    assert (back.code, back.message, back.context) == (error.code, "no probe is named prb", {"noun": "probe"})


def test_the_code_of_a_newer_version_is_kept() -> None:
    back = ModelForgeError.from_failure(Failure(code="FROM_THE_FUTURE", message="m"))
    assert back.code is ErrorCode.INTERNAL
    assert back.context["unknown_code"] == "FROM_THE_FUTURE"
