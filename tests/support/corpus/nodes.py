"""Rows of nodes, devices, environments and what is on record about the set (spec A3-A8)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from bus.digest import digest_of, sha256_hex
from bus.messages.artifacts import FileEntry, Manifest, Quarantine
from bus.messages.profiles import Budgets
from tests.support.corpus import folders, machines
from tests.support.corpus.folders import LLAMA, WEIGHTS
from tests.support.corpus.machines import MIB, card, cuda_environment, cuda_machine
from tests.support.corpus.raw import dumps
from tests.support.corpus.row import Row, changed

_CUDA: Final = {"device": "cuda"}
_ADAPTER: Final = "sentence_transformers"


def _node(name: str, subject: dict[str, Any], *blockers: str, **more: Any) -> Row:
    verdict = "blocked" if blockers or more.get("one_of") else "compatible"
    return Row(name=f"node {name}", files=folders.embedder(), subject=subject, blockers=blockers,
               **{"verdict": verdict, **more})  # fmt: skip


def _gpu(name: str, *blockers: str, profile: dict[str, Any] | None = None, subject: dict[str, Any], **more: Any) -> Row:
    whole = {"hardware": cuda_machine(), "environment": cuda_environment(), **subject}
    return _node(name, whole, *blockers, profile={**_CUDA, **(profile or {})}, **more)


def _declares(name: str, *blockers: str, **changes: Any) -> Row:
    return _node(name, {"environment": machines.declaring(_ADAPTER, **changes)}, *blockers)


def _quarantine(released_by: str | None = None) -> Quarantine:
    sha256 = sha256_hex(folders.embedder()[WEIGHTS])
    return Quarantine(
        id="quarantine-1", sha256=sha256, set_digest=digest_of("set"), path=WEIGHTS, reason="a report names it",
        quarantined_by="alice", quarantined_at=datetime(2026, 1, 1, tzinfo=UTC), released_by=released_by,
    )  # fmt: skip


def _huge() -> Manifest:
    """The control's files, the first of them 300 GB long."""
    sizes = {path: len(data) for path, data in folders.embedder().items()}
    first = min(sizes)
    return Manifest(
        files=tuple(
            FileEntry(path=path, size_bytes=300 * 10**9 if path == first else size, sha256="0" * 64)
            for path, size in sorted(sizes.items())
        )
    )


STATE: Final = (
    _node("without the set", {"location": None}, "SET_NOT_ON_NODE"),
    _node("with a place that changed", {"corrupt": f"{WEIGHTS}: its bytes changed"}, "SET_CORRUPT"),
    _node("with a quarantined member", {"quarantined": (_quarantine(),)}, "MEMBER_QUARANTINED"),
    _node("with a released member", {"quarantined": (_quarantine("approval-1"),)}, codes=("QUARANTINE_RELEASED",),
          absent=("MEMBER_QUARANTINED",)),
    _node("offline", {"node": machines.node(liveness="offline")}, "NODE_OFFLINE"),
    _node("doubtful", {"node": machines.node(liveness="doubtful")}, codes=("NODE_DOUBTFUL",), absent=("NODE_OFFLINE",)),
    _node("disabled", {"node": machines.node(enabled=False)}, "NODE_DISABLED"),
    _node("not for the lab", {"node": machines.node(lab_eligible=False)}, "NODE_NOT_LAB_ELIGIBLE"),
    _node("that cannot probe", {"node": machines.node(capabilities=())}, "NODE_CANNOT_PROBE"),
    _node("with another probe protocol", {"node": machines.node(capabilities=("runtime.probe.v2",))}, "NODE_CANNOT_PROBE"),
    # Rules that did not look into pickles cannot say that there is no code.
    _node("with evidence of older rules", {}, "EVIDENCE_OUTDATED", evidence={"scanner": ""}),
    _declares("without the adapter", "ADAPTER_NOT_DECLARED"),
    _declares("that cannot execute it", "ADAPTER_NOT_EXECUTABLE", executable=False, reason="not installed: torch"),
    _declares("without the task", "TASK_NOT_DECLARED", tasks=("reranking",)),
    _declares("without the modality", "MODALITY_NOT_DECLARED", modalities=("image",)),
    _declares("without the format", "FORMAT_NOT_DECLARED", formats=("gguf",)),
    _declares("without the model type", "MODEL_TYPE_NOT_DECLARED", model_types=("mpnet",)),
    _node("without the package", {"environment": machines.environment(transformers=None)}, "PACKAGE_MISSING"),
    # With another build of torchvision the libraries cannot even be imported.
    _node("with packages that do not fit", {"environment": machines.environment(torchvision="0.28.0")}, "PACKAGE_MISMATCH"),
    _node("with packages that fit", {"environment": machines.environment(torchvision="0.28.0+cpu")},
          absent=("PACKAGE_MISMATCH",)),
    _node("with an adapter of no name we know", {}, one_of=("NO_INSPECTOR", "ADAPTER_NOT_DECLARED"),
          profile={"adapter": "frobnicator"}),
    _node("whose child may not have so much", {}, "MEMORY_EXCEEDS_LIMIT", profile={"memory_limit_mib": 16}),
    _node("with too little memory", {"hardware": machines.machine(memory_total_bytes=64 * MIB)}, "MEMORY_EXCEEDS_DEVICE"),
    _node("with too little of its memory free", {"hardware": machines.machine(memory_available_bytes=300 * MIB)},
          codes=("MEMORY_TIGHT",)),
    _node("with a set that no probe reads within its budget", {"manifest": _huge()}, codes=("BUDGET_TOO_SHORT",)),
    _node("with a set that a longer budget lets a probe read", {"manifest": _huge()}, absent=("BUDGET_TOO_SHORT",),
          profile={"budgets": Budgets(preparing_s=20_000, total_s=40_000)}),
    _node("computing in half precision", {}, codes=("HALF_PRECISION_ON_CPU",), profile={"dtype": "float16"}),
)  # fmt: skip

DEVICES: Final = (
    _gpu("with a card", subject={}, absent=("NO_GPU", "RUNTIME_WITHOUT_CUDA", "CUDA_DRIVER_TOO_OLD")),
    # A CUDA profile never runs on a CPU.
    _gpu("without a card for a CUDA profile", "NO_GPU", subject={"hardware": machines.machine()}),
    _gpu("with a card and PyTorch for the CPU", "RUNTIME_WITHOUT_CUDA", subject={"environment": machines.environment()}),
    _gpu("without the card that is named", "GPU_NOT_FOUND", subject={}, profile={"gpu_uuid": "GPU-99999999"}),
    _gpu("with two cards and none named", "GPU_NOT_CHOSEN", subject={"hardware": cuda_machine(card(1), card(2))}),
    _gpu("with two cards and one named", subject={"hardware": cuda_machine(card(1), card(2))},
         profile={"gpu_uuid": card(2).uuid}, absent=("GPU_NOT_CHOSEN", "GPU_NOT_FOUND")),
    _gpu("with a card of 7.5 for bfloat16", "GPU_DTYPE_UNSUPPORTED", profile={"dtype": "bfloat16"},
         subject={"hardware": cuda_machine(card(capability="7.5"))}),
    _gpu("with a card of 8.0 for bfloat16", profile={"dtype": "bfloat16"}, absent=("GPU_DTYPE_UNSUPPORTED",),
         subject={"hardware": cuda_machine(card(capability="8.0"))}),
    _gpu("with a card of 7.5 for float16", profile={"dtype": "float16"}, absent=("GPU_DTYPE_UNSUPPORTED",),
         subject={"hardware": cuda_machine(card(capability="7.5"))}),
    _gpu("with a card that is too old", "GPU_CAPABILITY_TOO_LOW", subject={"hardware": cuda_machine(card(capability="3.5"))}),
    _gpu("with a driver that is too old", "CUDA_DRIVER_TOO_OLD",
         subject={"hardware": cuda_machine(driver="470.57.02", cuda="11.4")}),
    _gpu("with a driver one major behind", "CUDA_DRIVER_TOO_OLD",
         subject={"hardware": cuda_machine(driver="550.54.15", cuda="12.4")}),
    _gpu("with a driver of a later minor", subject={"environment": cuda_environment("2.13.0+cu126"),
         "hardware": cuda_machine(driver="570.86.10", cuda="12.8")}, absent=("CUDA_DRIVER_TOO_OLD",)),
    _gpu("with a card and no word of its driver", codes=("GPU_DRIVER_UNKNOWN",), verdict="blocked",
         subject={"hardware": cuda_machine(driver=None, cuda=None)}),
    _gpu("with a card too small", "MEMORY_EXCEEDS_DEVICE",
         subject={"hardware": cuda_machine(card(memory_bytes=64 * MIB))}),
    _gpu("whose margin does not fit", "MEMORY_EXCEEDS_DEVICE", profile={"memory_margin_mib": 200 * 1024}, subject={}),
)  # fmt: skip

_AWQ: Final = {"quant_method": "awq", "bits": 4, "group_size": 128}
_CONFIGS: Final = {
    "awq": _AWQ,
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "compressed-tensors": {"quant_method": "compressed-tensors", "format": "pack-quantized"},
}
_BARE: Final = cuda_environment(accelerate=None)
_FULL: Final = cuda_environment(**{name.replace("-", "_"): version for name, version in machines.QUANTIZERS.items()})

_NO_METHOD: Final = machines.declaring("transformers", _FULL, quantizations=())


def _quantized(name: str, config: object, environment: Any, *blockers: str, **more: Any) -> Row:
    files = changed(folders.generator(), {"config.json": dumps({**LLAMA, "quantization_config": config})})
    verdict = "blocked" if blockers or more.get("one_of") else "compatible"
    profile = {
        "adapter": "transformers",
        "task": "text_generation",
        "dtype": "bfloat16",
        **_CUDA,
        **more.pop("profile", {}),
    }
    subject = {"hardware": cuda_machine(), "environment": environment}
    return Row(name=f"quantized {name}", files=files, profile=profile, subject=subject, blockers=blockers,
               **{"verdict": verdict, **more})  # fmt: skip


QUANTIZED: Final = (
    *(_quantized(f"{method}, all installed", config, _FULL, profile={"quantization": method},
                 absent=("QUANTIZATION_PACKAGE_MISSING", "QUANTIZATION_NOT_EVIDENCED"))
      for method, config in _CONFIGS.items()),
    *(_quantized(f"{method}, nothing installed", config, _BARE, "QUANTIZATION_PACKAGE_MISSING", profile={"quantization": method})
      for method, config in _CONFIGS.items()),
    _quantized("in a way nobody knows", {"quant_method": "frobnicate"}, _FULL,
               one_of=("QUANTIZATION_NOT_DECLARED", "QUANTIZED_WEIGHTS")),
    _quantized("without a method", {"bits": 4}, _FULL, one_of=("QUANTIZATION_NOT_DECLARED", "QUANTIZED_WEIGHTS",
               "QUANTIZATION_NOT_EVIDENCED", "CONFIG_UNREADABLE")),
    _quantized("as asked, but the runtime declares none", _CONFIGS["gptq"], _NO_METHOD, "QUANTIZATION_NOT_DECLARED",
               profile={"quantization": "gptq"}),
    _quantized("in another way than asked", _AWQ, _FULL, "QUANTIZATION_NOT_EVIDENCED", profile={"quantization": "gptq"}),
    Row(name="quantized as asked, but it is not", files=folders.generator(), verdict="blocked",
        blockers=("QUANTIZATION_NOT_EVIDENCED",),
        profile={"adapter": "transformers", "task": "text_generation", "quantization": "awq", "dtype": "bfloat16"}),
)  # fmt: skip
