"""Every finding that an assessment can hold: a closed list of codes, what each means, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from adapters.inspect.code_texts import TEXTS
from bus.messages.gates import Finding
from bus.text import clean_line

Severity = Literal["blocker", "warning", "note"]
MAX_MESSAGE_CHARS: Final = 600
MAX_SOURCE_CHARS: Final = 300
# Of one code and severity; the last one says how many more there are.
MAX_EQUAL: Final = 8


class FindingCode(StrEnum):
    """Append-only, like the error codes."""

    # The node (spec A5, A6).
    SET_NOT_ON_NODE = "SET_NOT_ON_NODE"
    NODE_OFFLINE = "NODE_OFFLINE"
    NODE_DOUBTFUL = "NODE_DOUBTFUL"
    NODE_DISABLED = "NODE_DISABLED"
    NODE_NOT_LAB_ELIGIBLE = "NODE_NOT_LAB_ELIGIBLE"
    NODE_CANNOT_PROBE = "NODE_CANNOT_PROBE"
    # The environment (spec A8, A17, P14).
    NO_INSPECTOR = "NO_INSPECTOR"
    ADAPTER_NOT_DECLARED = "ADAPTER_NOT_DECLARED"
    ADAPTER_NOT_EXECUTABLE = "ADAPTER_NOT_EXECUTABLE"
    PACKAGE_MISSING = "PACKAGE_MISSING"
    TASK_NOT_DECLARED = "TASK_NOT_DECLARED"
    MODALITY_NOT_DECLARED = "MODALITY_NOT_DECLARED"
    MODEL_TYPE_NOT_DECLARED = "MODEL_TYPE_NOT_DECLARED"
    FORMAT_NOT_DECLARED = "FORMAT_NOT_DECLARED"
    DECLARED_NOT_PROVEN = "DECLARED_NOT_PROVEN"
    # The device (spec A7).
    NO_GPU = "NO_GPU"
    GPU_NOT_FOUND = "GPU_NOT_FOUND"
    GPU_NOT_CHOSEN = "GPU_NOT_CHOSEN"
    GPU_DRIVER_UNKNOWN = "GPU_DRIVER_UNKNOWN"
    GPU_DTYPE_UNSUPPORTED = "GPU_DTYPE_UNSUPPORTED"
    RUNTIME_WITHOUT_CUDA = "RUNTIME_WITHOUT_CUDA"
    HALF_PRECISION_ON_CPU = "HALF_PRECISION_ON_CPU"
    MEMORY_EXCEEDS_DEVICE = "MEMORY_EXCEEDS_DEVICE"
    MEMORY_EXCEEDS_LIMIT = "MEMORY_EXCEEDS_LIMIT"
    MEMORY_TIGHT = "MEMORY_TIGHT"
    MEMORY_UNKNOWN = "MEMORY_UNKNOWN"
    # The files (spec A4, A9, A10, A12).
    CONFIG_MISSING = "CONFIG_MISSING"
    CONFIG_UNREADABLE = "CONFIG_UNREADABLE"
    TOKENIZER_MISSING = "TOKENIZER_MISSING"
    MODULES_MISSING = "MODULES_MISSING"
    MODULES_UNREADABLE = "MODULES_UNREADABLE"
    MODULE_UNSUPPORTED = "MODULE_UNSUPPORTED"
    MODULE_FOLDER_MISSING = "MODULE_FOLDER_MISSING"
    POOLING_MISSING = "POOLING_MISSING"
    POOLING_MISMATCH = "POOLING_MISMATCH"
    NO_WEIGHTS = "NO_WEIGHTS"
    WEIGHTS_CORRUPT = "WEIGHTS_CORRUPT"
    PICKLE_NOT_APPROVED = "PICKLE_NOT_APPROVED"
    PICKLE_APPROVED = "PICKLE_APPROVED"
    PICKLE_BESIDE_WEIGHTS = "PICKLE_BESIDE_WEIGHTS"
    SHARD_MISSING = "SHARD_MISSING"
    SHARD_INDEX_UNREADABLE = "SHARD_INDEX_UNREADABLE"
    REMOTE_CODE_REQUIRED = "REMOTE_CODE_REQUIRED"
    CODE_IN_SET = "CODE_IN_SET"
    ADAPTER_WEIGHTS = "ADAPTER_WEIGHTS"
    QUANTIZED_WEIGHTS = "QUANTIZED_WEIGHTS"
    SEQUENCE_TOO_LONG = "SEQUENCE_TOO_LONG"
    EVIDENCE_INCOMPLETE = "EVIDENCE_INCOMPLETE"
    PICKLE_NOT_LOADED = "PICKLE_NOT_LOADED"
    LOADER_OPTION_REFUSED = "LOADER_OPTION_REFUSED"
    DEFAULT_PROMPT = "DEFAULT_PROMPT"
    # The set (spec A3, A4).
    SET_CORRUPT = "SET_CORRUPT"
    EVIDENCE_OUTDATED = "EVIDENCE_OUTDATED"
    MEMBER_QUARANTINED = "MEMBER_QUARANTINED"
    QUARANTINE_RELEASED = "QUARANTINE_RELEASED"
    # What is claimed (spec A14, A17).
    PROBE_NOT_AVAILABLE = "PROBE_NOT_AVAILABLE"
    NO_IMPLICIT_CLAIM = "NO_IMPLICIT_CLAIM"
    REQUIRES_PROBE = "REQUIRES_PROBE"
    # Files by their content (spec A4, A9).
    FORMAT_MISMATCH = "FORMAT_MISMATCH"
    LFS_POINTER = "LFS_POINTER"
    EMPTY_FILE = "EMPTY_FILE"
    ARCHIVE_IN_SET = "ARCHIVE_IN_SET"
    EXECUTABLE_IN_SET = "EXECUTABLE_IN_SET"
    PICKLE_CODE = "PICKLE_CODE"
    PICKLE_UNREADABLE = "PICKLE_UNREADABLE"
    # Weights (spec A9, A10).
    SHARD_MISMATCH = "SHARD_MISMATCH"
    SHARD_UNINDEXED = "SHARD_UNINDEXED"
    DUPLICATE_WEIGHTS = "DUPLICATE_WEIGHTS"
    NO_GGUF_ARTIFACT_VARIANT = "NO_GGUF_ARTIFACT_VARIANT"
    GGUF_SPLIT_INCOMPLETE = "GGUF_SPLIT_INCOMPLETE"
    # Pipelines (spec A16).
    NO_PIPELINE = "NO_PIPELINE"
    PIPELINE_COMPONENT_MISSING = "PIPELINE_COMPONENT_MISSING"
    EMBEDDING_REPOSITORY = "EMBEDDING_REPOSITORY"
    # What the task needs (spec A9, A13).
    PROCESSOR_MISSING = "PROCESSOR_MISSING"
    GENERATION_CONFIG_MISSING = "GENERATION_CONFIG_MISSING"
    TOKENIZER_INCOMPLETE = "TOKENIZER_INCOMPLETE"
    QUANTIZATION_NOT_EVIDENCED = "QUANTIZATION_NOT_EVIDENCED"
    QUANTIZATION_NOT_DECLARED = "QUANTIZATION_NOT_DECLARED"
    QUANTIZATION_PACKAGE_MISSING = "QUANTIZATION_PACKAGE_MISSING"
    DTYPE_MISMATCH = "DTYPE_MISMATCH"
    GPU_CAPABILITY_TOO_LOW = "GPU_CAPABILITY_TOO_LOW"
    CUDA_DRIVER_TOO_OLD = "CUDA_DRIVER_TOO_OLD"
    AUDIO_MISMATCH = "AUDIO_MISMATCH"
    IMAGE_SIZE_MISMATCH = "IMAGE_SIZE_MISMATCH"
    MODULE_FOLDER_ABSENT = "MODULE_FOLDER_ABSENT"
    TASK_MISMATCH = "TASK_MISMATCH"
    HEAD_MISSING = "HEAD_MISSING"
    TOKENIZER_MISMATCH = "TOKENIZER_MISMATCH"
    PACKAGE_MISMATCH = "PACKAGE_MISMATCH"
    PARTIAL_DOWNLOAD = "PARTIAL_DOWNLOAD"
    WEIGHTS_INCOMPLETE = "WEIGHTS_INCOMPLETE"
    LAYER_COUNT_MISMATCH = "LAYER_COUNT_MISMATCH"
    CONFIG_IMPLAUSIBLE = "CONFIG_IMPLAUSIBLE"
    WEIGHTS_FOREIGN = "WEIGHTS_FOREIGN"
    BUDGET_TOO_SHORT = "BUDGET_TOO_SHORT"


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """What a code says, whatever the case at hand, and what an operator does about it."""

    meaning: str
    remedy: str


CODES: Final[dict[FindingCode, CodeInfo]] = {FindingCode(name): CodeInfo(*texts) for name, texts in TEXTS.items()}


def finding(code: FindingCode, severity: Severity, message: str, source: str) -> Finding:
    """One finding; `source` names the fact that it rests on, the remedy comes from the table.

    Names of foreign files and words of foreign documents are in both texts: they are cleaned and cut here, once for all.
    """
    return Finding(
        code=code.value,
        severity=severity,
        message=clean_line(message, MAX_MESSAGE_CHARS),
        source=clean_line(source, MAX_SOURCE_CHARS),
        remedy=CODES[code].remedy,
    )


def several(code: FindingCode, severity: Severity, said: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """One finding for each message and source, at most `MAX_EQUAL`: a hostile set has as much wrong as it has files."""
    for number, (message, source) in enumerate(said[:MAX_EQUAL], start=1):
        rest = len(said) - MAX_EQUAL if number == MAX_EQUAL else 0
        yield finding(code, severity, with_more(message, rest), source)


def with_more(message: str, rest: int) -> str:
    """The message, and how many like it are not shown."""
    more = f" and {rest} more like it" if rest > 0 else ""
    return message[: MAX_MESSAGE_CHARS - len(more)] + more
