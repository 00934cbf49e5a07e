"""Every finding that an assessment can hold: a closed list of codes, each with what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

from bus.messages.gates import Finding

Severity = Literal["blocker", "warning", "note"]


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


_C = FindingCode
_RESTORE: Final = "Add the missing file to the folder, then scan and assess the new set."
_AGAIN: Final = "Start the node's agent, then assess again."
_PROFILE: Final = "Use a profile that fits: `modelforge profile create`."
REMEDIES: Final[dict[FindingCode, str]] = {
    _C.SET_NOT_ON_NODE: "Scan the folder on this node: `modelforge artifact scan PATH --node NODE`.",
    _C.NODE_OFFLINE: _AGAIN,
    _C.NODE_DOUBTFUL: "Wait for the node's next word, or look at its agent with `modelforge doctor`.",
    _C.NODE_DISABLED: "Enable it: `modelforge node enable NAME --reason …`, or choose another node.",
    _C.NODE_NOT_LAB_ELIGIBLE: "Allow it: `modelforge node enable NAME --lab --reason …`, or choose another node.",
    _C.NODE_CANNOT_PROBE: "Upgrade the node's agent to a version that runs probes.",
    _C.NO_INSPECTOR: "Use the adapter `sentence_transformers`; it is the one that this version can inspect and run.",
    _C.ADAPTER_NOT_DECLARED: "Upgrade the node's agent, or choose another node.",
    _C.ADAPTER_NOT_EXECUTABLE: "Install the `runtime` extra on the node, or use an adapter that it can execute.",
    _C.PACKAGE_MISSING: "Install the `runtime` extra on the node.",
    _C.TASK_NOT_DECLARED: _PROFILE,
    _C.MODALITY_NOT_DECLARED: _PROFILE,
    _C.MODEL_TYPE_NOT_DECLARED: "Choose an adapter or a node whose environment declares this model type.",
    _C.FORMAT_NOT_DECLARED: "Choose an adapter or a node whose environment declares this weight format.",
    _C.DECLARED_NOT_PROVEN: "Prove it: approve the set and queue a probe.",
    _C.NO_GPU: "Choose a node with a GPU, or a CPU profile. A CUDA profile never runs on a CPU.",
    _C.GPU_NOT_FOUND: "Name a card that the node has: `modelforge node show NODE`.",
    _C.GPU_NOT_CHOSEN: "Name the card in the profile: `--gpu-uuid`.",
    _C.GPU_DRIVER_UNKNOWN: "Install NVIDIA's driver on the node and start its agent again.",
    _C.GPU_DTYPE_UNSUPPORTED: "Use `float16` or `float32` on this card.",
    _C.RUNTIME_WITHOUT_CUDA: "Install PyTorch's CUDA build on the node.",
    _C.HALF_PRECISION_ON_CPU: "Use `float32` on a CPU unless the speed is measured and wanted.",
    _C.MEMORY_EXCEEDS_DEVICE: "Use a smaller dtype, batch or sequence length, or a device with more memory.",
    _C.MEMORY_EXCEEDS_LIMIT: "Give the child more in a new profile: `modelforge profile create NEWNAME --memory-limit-mib N`.",
    _C.MEMORY_TIGHT: "Free memory before the probe; the figure is an estimate, the probe measures.",
    _C.MEMORY_UNKNOWN: "None is needed: the probe measures.",
    _C.CONFIG_MISSING: _RESTORE,
    _C.CONFIG_UNREADABLE: "Replace the file by a valid one, then scan and assess the new set.",
    _C.TOKENIZER_MISSING: _RESTORE,
    _C.MODULES_MISSING: "Use a folder saved by Sentence Transformers; without modules.json the pooling is a guess.",
    _C.MODULES_UNREADABLE: "Replace modules.json by a valid one, then scan and assess the new set.",
    _C.MODULE_UNSUPPORTED: "Use a model of the modules Transformer, Pooling, Dense and Normalize.",
    _C.MODULE_FOLDER_MISSING: _RESTORE,
    _C.POOLING_MISSING: _RESTORE,
    _C.POOLING_MISMATCH: "Take config.json and the pooling's config.json from one and the same model.",
    _C.NO_WEIGHTS: "Add the weights as Safetensors, then scan and assess the new set.",
    _C.WEIGHTS_CORRUPT: "Copy the file again, then scan and assess the new set.",
    _C.PICKLE_NOT_APPROVED: "Convert the weights to Safetensors, or approve the set for the purpose `pickle`.",
    _C.PICKLE_APPROVED: "Convert the weights to Safetensors when you can.",
    _C.PICKLE_BESIDE_WEIGHTS: "Remove the file when nothing needs it; it is not loaded.",
    _C.SHARD_MISSING: "Add the shard that the index names, or remove an index that belongs to other files.",
    _C.SHARD_INDEX_UNREADABLE: "Replace the index by a valid one, then scan and assess the new set.",
    _C.REMOTE_CODE_REQUIRED: "Use a model that the runtime knows itself; code of a model folder is never run.",
    _C.CODE_IN_SET: "Remove the file when nothing needs it; it is never run.",
    _C.ADAPTER_WEIGHTS: "Merge the adapter into the full weights and remove adapter_config.json.",
    _C.QUANTIZED_WEIGHTS: "Use the unquantized model, or an adapter that declares this quantization.",
    _C.SEQUENCE_TOO_LONG: "Use a profile whose sequence length the model supports.",
    _C.PICKLE_NOT_LOADED: "Convert the weights to Safetensors, then scan and assess the new set.",
    _C.LOADER_OPTION_REFUSED: "Remove the key from the file, then scan and assess the new set.",
    _C.DEFAULT_PROMPT: "None is needed for a probe; give the prompt yourself where the model serves.",
    _C.EVIDENCE_INCOMPLETE: "Shrink the document if it matters, then scan again.",
}


def finding(code: FindingCode, severity: Severity, message: str, source: str) -> Finding:
    """One finding; `source` names the fact that it rests on, the remedy comes from the table."""
    return Finding(code=code.value, severity=severity, message=message, source=source, remedy=REMEDIES[code])
