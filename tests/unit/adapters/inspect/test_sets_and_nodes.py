"""What every inspector asks first: the set, its members, the node, its card and its driver."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.registry import inspect
from bus import ids
from bus.digest import sha256_hex
from bus.messages.artifacts import Quarantine
from bus.messages.inventory import HardwareFacts
from tests.support.ledger import MIB, card, hardware
from tests.support.subjects import (
    PACKAGES,
    adapter,
    blockers,
    codes,
    doc,
    environment,
    gguf_bytes,
    node,
    only,
    pipeline_files,
    subject,
    transformers_files,
    without_formats,
)

EVERY = [
    ("sentence_transformers", transformers_files(), "embedding"),
    ("transformers", transformers_files(), "embedding"),
    ("vllm", transformers_files(), "embedding"),
    ("llama_cpp", {"m.gguf": gguf_bytes()}, "embedding"),
    ("diffusers", pipeline_files(), "image_generation"),
    ("custom", transformers_files(), "embedding"),
    ("nobody", transformers_files(), "embedding"),
]


def quarantine(path: str = "model.safetensors", **changes: Any) -> Quarantine:
    values: dict[str, Any] = {
        "id": "q1",
        "sha256": sha256_hex(transformers_files()[path]),
        "set_digest": "sha256:" + "0" * 64,
        "path": path,
        "reason": "imports os.system",
        "quarantined_by": "controller",
        "quarantined_at": ids.now(),
    }
    return Quarantine(**{**values, **changes})


@pytest.mark.req("A3", "A4", "A5", "A6", "A7")
@pytest.mark.parametrize(("name", "files", "task"), EVERY, ids=[row[0] for row in EVERY])
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"corrupt": "model.safetensors: other bytes"}, Code.SET_CORRUPT),
        ({"location": None}, Code.SET_NOT_ON_NODE),
        ({"node": node(liveness="offline")}, Code.NODE_OFFLINE),
        ({"node": node(enabled=False)}, Code.NODE_DISABLED),
        ({"node": node(lab_eligible=False)}, Code.NODE_NOT_LAB_ELIGIBLE),
        ({"node": node(capabilities=())}, Code.NODE_CANNOT_PROBE),
        ({"quarantined": (quarantine(),)}, Code.MEMBER_QUARANTINED),
        ({"profile": {"device": "cuda"}}, Code.NO_GPU),
    ],
)
def test_no_inspector_forgets_what_is_common(
    name: str, files: dict[str, bytes], task: str, changes: dict[str, Any], code: Code
) -> None:
    rest = {key: value for key, value in changes.items() if key != "profile"}
    profile = {"adapter": name, "task": task}
    control = inspect(subject(files, profile))
    assert code not in codes(control)
    inspection = inspect(subject(files, {**profile, **changes.get("profile", {})}, **rest))
    assert only(inspection, code).severity == "blocker"
    assert inspection.verdict == "blocked"


@pytest.mark.req("A3")
def test_a_corrupt_place_names_the_file_that_changed() -> None:
    found = only(inspect(subject(transformers_files(), corrupt="config.json: other bytes")), Code.SET_CORRUPT)
    assert "config.json: other bytes" in found.message


@pytest.mark.req("A3", "A4")
def test_evidence_of_an_older_scan_blocks_until_the_set_is_scanned_again() -> None:
    control = subject(transformers_files())
    inspection = inspect(subject(transformers_files(), evidence=without_formats(control.evidence)))
    assert blockers(inspection) == ["EVIDENCE_OUTDATED"]
    assert "artifact scan" in only(inspection, Code.EVIDENCE_OUTDATED).remedy


@pytest.mark.req("A4", "G4")
def test_a_quarantined_member_blocks_until_it_is_released_for_this_set() -> None:
    found = only(inspect(subject(transformers_files(), quarantined=(quarantine(),))), Code.MEMBER_QUARANTINED)
    assert "model.safetensors: imports os.system" in found.message
    # The same bytes found first in another set under another name: the member's own path is said.
    other = quarantine(path="model.safetensors")
    elsewhere = msgspec.structs.replace(other, path="elsewhere/x.bin")
    assert (
        "model.safetensors"
        in only(inspect(subject(transformers_files(), quarantined=(elsewhere,))), Code.MEMBER_QUARANTINED).message
    )
    released = inspect(subject(transformers_files(), quarantined=(quarantine(released_by="apv_1"),)))
    assert released.verdict == "compatible"
    note = only(released, Code.QUARANTINE_RELEASED)
    assert (note.severity, note.source) == ("warning", "approval apv_1")


@pytest.mark.req("A8")
@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, []),
        ({"tasks": ()}, ["TASK_NOT_DECLARED"]),
        ({"modalities": ("image",)}, ["MODALITY_NOT_DECLARED"]),
        ({"model_types": ("t5",)}, ["MODEL_TYPE_NOT_DECLARED"]),
        ({"formats": ("gguf",)}, ["FORMAT_NOT_DECLARED"]),
        ({"executable": False, "inspect_only": False, "reason": "no torch"}, ["ADAPTER_NOT_EXECUTABLE"]),
    ],
)
def test_the_environment_must_declare_what_is_needed(facts: dict[str, Any], expected: list[str]) -> None:
    runtime = environment(adapter("transformers", **facts))
    assert blockers(inspect(subject(transformers_files(), environment=runtime))) == expected


@pytest.mark.req("A8")
def test_what_is_missing_is_named_with_the_installed_version() -> None:
    old = environment(adapter("transformers", model_types=("t5",)))
    found = only(inspect(subject(transformers_files(), environment=old)), Code.MODEL_TYPE_NOT_DECLARED)
    assert "bert" in found.message
    assert "transformers 5.24.0" in found.message
    bare = environment(packages={"transformers": "5.24.0"})
    assert "torch" in only(inspect(subject(transformers_files(), environment=bare)), Code.PACKAGE_MISSING).message
    # An environment that lists few packages still knows the version of each adapter's own; one that has none does not.
    unlisted = environment(packages={})
    files = {"m.gguf": gguf_bytes()}
    assert blockers(inspect(subject(files, {"adapter": "llama_cpp"}, environment=unlisted))) == []
    absent = environment(adapter("llama_cpp", version="not installed"), packages={})
    assert blockers(inspect(subject(files, {"adapter": "llama_cpp"}, environment=absent))) == ["PACKAGE_MISSING"]


@pytest.mark.req("A8")
def test_a_task_of_two_modalities_needs_both() -> None:
    runtime = environment(adapter("transformers", modalities=("image",)))
    profile = {"task": "image_text_similarity"}
    found = only(inspect(subject(transformers_files(), profile, environment=runtime)), Code.MODALITY_NOT_DECLARED)
    assert found.message.endswith("text")


@pytest.mark.req("P14")
def test_an_adapter_that_is_only_inspected_says_so_and_is_not_blocked_for_it() -> None:
    inspection = inspect(subject(transformers_files()))
    assert only(inspection, Code.PROBE_NOT_AVAILABLE).severity == "warning"
    assert inspection.verdict == "compatible"
    run = inspect(
        subject(
            transformers_files(), environment=environment(adapter("transformers", inspect_only=False, executable=True))
        )
    )
    assert "PROBE_NOT_AVAILABLE" not in codes(run)


@pytest.mark.req("A2")
def test_what_is_declared_is_told_apart_from_what_is_proven() -> None:
    declared = inspect(subject(transformers_files())).declared
    assert declared is not None
    assert (declared.adapter, declared.model_type, declared.model_type_declared) == ("transformers", "bert", True)
    assert declared.inspect_only
    unknown = environment(adapter("transformers", model_types=("t5",)))
    declared = inspect(subject(transformers_files(), environment=unknown)).declared
    assert declared is not None
    assert declared.model_type_declared is False
    no_list = environment(adapter("transformers", model_types=()))
    declared = inspect(subject(transformers_files(), environment=no_list)).declared
    assert declared is not None
    assert declared.model_type_declared is None
    assert inspect(subject(transformers_files(), environment=environment(adapter("vllm")))).declared is None


def gpu(**changes: Any) -> HardwareFacts:
    return hardware(**{"gpus": (card(),), "driver_version": "580.65.06", "cuda_version": "13.0", **changes})


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    ("torch", "machine", "dtype", "expected"),
    [
        ("2.13.0+cu130", gpu(), "float32", []),
        ("2.13.0+cu130", gpu(driver_version="575.57"), "float32", ["CUDA_DRIVER_TOO_OLD"]),
        ("2.13.0+cu130", gpu(cuda_version="12.9"), "float32", ["CUDA_DRIVER_TOO_OLD"]),
        ("2.8.0+cu126", gpu(driver_version="525.60", cuda_version="12.0"), "float32", []),
        ("2.8.0+cu126", gpu(driver_version="470.1", cuda_version="11.4"), "float32", ["CUDA_DRIVER_TOO_OLD"]),
        ("2.13.0+cu130", gpu(gpus=(card(compute_capability="7.0"),)), "float32", ["GPU_CAPABILITY_TOO_LOW"]),
        ("2.8.0+cu128", gpu(gpus=(card(compute_capability="7.0"),)), "float32", []),
        ("2.8.0+cu128", gpu(gpus=(card(compute_capability="6.1"),)), "float32", ["GPU_CAPABILITY_TOO_LOW"]),
        ("2.8.0+cu126", gpu(gpus=(card(compute_capability="6.1"),)), "float32", []),
        ("2.8.0+cu126", gpu(gpus=(card(compute_capability="5.2"),)), "float16", ["GPU_DTYPE_UNSUPPORTED"]),
        ("2.8.0+cu126", gpu(gpus=(card(compute_capability="7.5"),)), "bfloat16", ["GPU_DTYPE_UNSUPPORTED"]),
        ("2.8.0+cu126", gpu(gpus=(card(compute_capability="7.5"),)), "float16", []),
        ("2.13.0+cpu", gpu(), "float32", ["RUNTIME_WITHOUT_CUDA"]),
        ("2.13.0", gpu(driver_version=None), "float32", ["GPU_DRIVER_UNKNOWN"]),
        ("2.13.0", gpu(driver_version="470.1", cuda_version="11.4"), "float32", []),
        ("2.13.0+cu130", gpu(gpus=(card(memory_total_bytes=700 * MIB),)), "float32", ["MEMORY_EXCEEDS_DEVICE"]),
    ],
)  # fmt: skip
def test_card_driver_and_build_must_fit(torch: str, machine: HardwareFacts, dtype: str, expected: list[str]) -> None:
    runtime = environment(packages={**PACKAGES, "torch": torch})
    profile = {"device": "cuda", "dtype": dtype}
    assert blockers(inspect(subject(transformers_files(), profile, environment=runtime, hardware=machine))) == expected


@pytest.mark.req("A7")
def test_a_build_that_names_no_cuda_is_known_by_the_runtime_beside_it() -> None:
    runtime = environment(packages={**PACKAGES, "nvidia_cuda_runtime": "13.0.96"})
    old = gpu(driver_version="570.1")
    found = inspect(subject(transformers_files(), {"device": "cuda"}, environment=runtime, hardware=old))
    assert "nvidia-cuda-runtime" in only(found, Code.CUDA_DRIVER_TOO_OLD).source


@pytest.mark.req("A7")
def test_an_unknown_compute_capability_is_a_doubt_and_no_blocker() -> None:
    machine = gpu(gpus=(card(compute_capability=None),))
    inspection = inspect(subject(transformers_files(), {"device": "cuda", "dtype": "bfloat16"}, hardware=machine))
    assert only(inspection, Code.GPU_DTYPE_UNSUPPORTED).severity == "warning"
    assert blockers(inspection) == []


@pytest.mark.req("A7")
@pytest.mark.parametrize(("margin", "expected"), [(0, []), (600, ["MEMORY_EXCEEDS_DEVICE"])])
def test_the_margin_of_the_profile_must_stay_free(margin: int, expected: list[str]) -> None:
    machine = gpu(gpus=(card(memory_total_bytes=1_000 * MIB),))
    profile = {"device": "cuda", "memory_margin_mib": margin}
    assert blockers(inspect(subject(transformers_files(), profile, hardware=machine))) == expected


def test_what_the_scan_could_not_keep_is_said() -> None:
    inspection = inspect(subject(transformers_files(), evidence={"notes": ("big.json: not read, it is larger",)}))
    assert only(inspection, Code.EVIDENCE_INCOMPLETE).severity == "warning"
    assert "EVIDENCE_INCOMPLETE" not in codes(inspect(subject(transformers_files(**{"note.json": doc({})}))))


@pytest.mark.req("A8")
@pytest.mark.parametrize(
    ("torch", "vision", "expected"),
    [
        ("2.13.0", "0.28.0", []),
        ("2.13.0+cpu", "0.28.0+cpu", []),
        ("2.13.0", "0.27.0", ["PACKAGE_MISMATCH"]),
        ("2.13.0+cpu", "0.28.0", ["PACKAGE_MISMATCH"]),
        ("2.13.0", "odd", ["PACKAGE_MISMATCH"]),
        ("2.13.0", None, []),
    ],
)
def test_a_torchvision_of_another_torch_breaks_every_import(
    torch: str, vision: str | None, expected: list[str]
) -> None:
    packages = {**PACKAGES, "torch": torch, **({} if vision is None else {"torchvision": vision})}
    assert blockers(inspect(subject(transformers_files(), environment=environment(packages=packages)))) == expected
    # llama.cpp imports neither.
    files = {"m.gguf": gguf_bytes()}
    assert blockers(inspect(subject(files, {"adapter": "llama_cpp"}, environment=environment(packages=packages)))) == []


@pytest.mark.req("A7")
def test_the_cuda_of_pytorch_is_asked_where_pytorch_computes() -> None:
    runtime = environment(packages={**PACKAGES, "torch": "2.13.0+cpu"})
    files = {**transformers_files(), "m.gguf": gguf_bytes()}
    cuda = {"device": "cuda"}
    assert (
        blockers(inspect(subject(files, {**cuda, "adapter": "llama_cpp"}, environment=runtime, hardware=gpu()))) == []
    )
    found = blockers(inspect(subject(files, {**cuda, "adapter": "vllm"}, environment=runtime, hardware=gpu())))
    assert found == ["RUNTIME_WITHOUT_CUDA"]


@pytest.mark.req("A7", "A14")
@pytest.mark.parametrize(("name", "expected"), [("vllm", ["GPU_CAPABILITY_TOO_LOW"]), ("transformers", [])])
def test_vllm_needs_a_newer_card_than_pytorch(name: str, expected: list[str]) -> None:
    runtime = environment(packages={**PACKAGES, "torch": "2.8.0+cu126"})
    machine = gpu(gpus=(card(compute_capability="6.1"),))
    profile = {"adapter": name, "device": "cuda"}
    assert blockers(inspect(subject(transformers_files(), profile, environment=runtime, hardware=machine))) == expected


def test_a_node_that_is_late_is_a_doubt() -> None:
    inspection = inspect(subject(transformers_files(), node=node(liveness="doubtful")))
    assert only(inspection, Code.NODE_DOUBTFUL).severity == "warning"
    assert inspection.verdict == "compatible"


@pytest.mark.req("A8")
def test_the_format_that_is_loaded_must_be_declared_whatever_lies_beside_it() -> None:
    stray = {**transformers_files(), "x.gguf": gguf_bytes()}
    declared = environment(adapter("transformers", formats=("gguf",)))
    found = inspect(subject(stray, {"adapter": "transformers"}, environment=declared))

    assert Code.FORMAT_NOT_DECLARED in blockers(found)
