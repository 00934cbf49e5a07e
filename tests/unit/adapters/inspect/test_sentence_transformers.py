"""Static inspection: every missing or wrong fact becomes a closed finding, and nothing is claimed that was not seen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.inspect.codes import CODES, FindingCode
from adapters.inspect.registry import inspect
from adapters.inspect.subject import Inspection, NodeFacts, Subject
from bus.messages.gates import Finding, Purpose
from bus.messages.profiles import RuntimeProfile
from tests.support.ledger import (
    CONFIG,
    MIB,
    NODE,
    OLD_MODULES,
    POOLING,
    card,
    environment,
    hardware,
    inventory,
    model_files,
    safetensors_bytes,
    scanned,
    with_adapter,
)
from tests.support.subjects import gguf_bytes

NEW_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
    {
        "idx": 1,
        "name": "1",
        "path": "1_Pooling",
        "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    },
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
]


def subject(
    files: dict[str, bytes] | None = None, *, approved: frozenset[Purpose] = frozenset(), **changes: Any
) -> Subject:
    manifest, evidence = scanned(model_files() if files is None else files)
    values: dict[str, Any] = {
        "manifest": manifest,
        "evidence": evidence,
        "profile": RuntimeProfile(name="cpu"),
        "environment": environment(),
        "hardware": hardware(),
        "node": node(),
        "location": "models/tiny",
        "approved": approved,
    }
    return Subject(**{**values, **changes})


def node(**changes: Any) -> NodeFacts:
    values: dict[str, Any] = {
        "name": NODE,
        "enabled": True,
        "lab_eligible": True,
        "liveness": "online",
        "capabilities": ("runtime.probe.v1",),
    }
    return NodeFacts(**{**values, **changes})


def blockers(inspection: Inspection) -> list[str]:
    return [found.code for found in inspection.findings if found.severity == "blocker"]


def only(inspection: Inspection, code: FindingCode) -> Finding:
    found = [item for item in inspection.findings if item.code == code]
    assert len(found) == 1, inspection.findings
    return found[0]


def doc(value: object) -> bytes:
    return json.dumps(value).encode()


def pickle_of_numbers() -> bytes:
    """A list of numbers, written by hand: protocol 2, two integers, stop."""
    return b"\x80\x02](K\x01K\x02e."


@pytest.mark.req("A2", "A11", "A12")
def test_a_complete_folder_is_compatible_and_claims_nothing_more() -> None:
    inspection = inspect(subject())
    assert inspection.verdict == "compatible"
    assert [found.code for found in inspection.findings] == ["MODULE_FOLDER_ABSENT", "DECLARED_NOT_PROVEN"]
    note = only(inspection, FindingCode.DECLARED_NOT_PROVEN)
    # Kept for ever, also beside a probe that proved the set: true of the analysis, whatever became of the set.
    assert note.message == "static analysis loads nothing: what the runtime declares is no proof"
    assert note.remedy == "A probe proves it: approve the set and queue one."
    assert inspection.estimate is not None
    assert inspection.estimate.kind == "estimated"
    assert inspection.estimate.size_bytes == sum(part.size_bytes for part in inspection.estimate.parts)


@pytest.mark.req("A12")
def test_a_normalize_module_needs_no_folder_and_both_layouts_are_accepted() -> None:
    assert not any(path.startswith("2_") for path in model_files())
    absent = only(inspect(subject()), FindingCode.MODULE_FOLDER_ABSENT)
    assert (absent.severity, "2_Normalize" in absent.message) == ("note", True)
    files = model_files(
        **{
            "modules.json": doc(NEW_MODULES),
            "1_Pooling/config.json": doc({"embedding_dimension": 4, "pooling_mode": "mean"}),
            "2_Dense/config.json": doc({"in_features": 4, "out_features": 2}),
            "2_Dense/model.safetensors": safetensors_bytes(),
        }
    )
    inspection = inspect(subject(files))
    assert inspection.verdict == "compatible"
    assert [found.code for found in inspection.findings] == ["DECLARED_NOT_PROVEN"]


@pytest.mark.req("A3", "A4", "A9", "A10", "A12")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"config.json": None}, ["CONFIG_MISSING"]),
        ({"config.json": b"{broken"}, ["CONFIG_UNREADABLE"]),
        ({"config.json": doc({**CONFIG, "model_type": "martian"})}, ["MODEL_TYPE_NOT_DECLARED"]),
        (
            {"config.json": doc({**CONFIG, "model_type": "martian", "auto_map": {"AutoModel": "m.M"}})},
            ["MODEL_TYPE_NOT_DECLARED", "REMOTE_CODE_REQUIRED"],
        ),
        ({"config.json": doc({**CONFIG, "quantization_config": {"bits": 4}})}, ["QUANTIZED_WEIGHTS"]),
        ({"config.json": doc({**CONFIG, "max_position_embeddings": 128})}, ["SEQUENCE_TOO_LONG"]),
        ({"1_Pooling/config.json": doc({**POOLING, "word_embedding_dimension": 8})}, ["POOLING_MISMATCH"]),
        ({"tokenizer.json": None}, ["TOKENIZER_MISSING"]),
        ({"modules.json": None}, ["MODULES_MISSING"]),
        ({"modules.json": b"{}"}, ["MODULES_UNREADABLE"]),
        ({"modules.json": doc(OLD_MODULES[1:])}, ["MODULES_UNREADABLE"]),
        ({"modules.json": doc(OLD_MODULES[:1])}, ["POOLING_MISSING"]),
        (
            {"modules.json": doc([*OLD_MODULES, {"name": "3", "path": "3", "type": "evil.Module"}])},
            ["MODULE_UNSUPPORTED"],
        ),
        (
            {
                "modules.json": doc(
                    [*OLD_MODULES, {"name": "3", "path": "../3", "type": "sentence_transformers.models.Dense"}]
                )
            },
            ["MODULE_UNSUPPORTED", "NO_WEIGHTS"],
        ),
        ({"1_Pooling/config.json": None}, ["MODULE_FOLDER_MISSING"]),
        ({"1_Pooling/config.json": None, "1_Pooling/x": b""}, ["POOLING_MISSING"]),
        ({"1_Pooling/config.json": doc({**POOLING, "pooling_mode_mean_tokens": False})}, ["POOLING_MISMATCH"]),
        ({"model.safetensors": None}, ["NO_WEIGHTS"]),
        ({"model.safetensors": safetensors_bytes()[:-1]}, ["WEIGHTS_CORRUPT", "NO_WEIGHTS"]),
        ({"model.safetensors": None, "pytorch_model.bin": b"PK\x03\x04"}, ["PICKLE_NOT_LOADED", "PICKLE_UNREADABLE"]),
        ({"model.safetensors": None, "model.gguf": b"GGUF" + bytes(20)}, ["WEIGHTS_CORRUPT", "NO_WEIGHTS"]),
        ({"model.safetensors": None, "model.gguf": gguf_bytes()}, ["NO_WEIGHTS", "FORMAT_NOT_DECLARED"]),
        ({"model.safetensors.index.json": doc({"weight_map": {"w": "model-2.safetensors"}})}, ["SHARD_MISSING"]),
        ({"model.safetensors.index.json": b"[]"}, ["SHARD_INDEX_UNREADABLE"]),
        ({"adapter_config.json": doc({"peft_type": "LORA"})}, ["ADAPTER_WEIGHTS"]),
        ({"1_Pooling/adapter_config.json": doc({"peft_type": "LORA"})}, ["ADAPTER_WEIGHTS"]),
        (
            {
                "modules.json": doc(
                    [*OLD_MODULES[:1], {"name": "1", "path": "1_Pooling", "type": "sentence_transformers.evil.Pooling"}]
                )
            },
            ["MODULE_UNSUPPORTED"],
        ),
        ({"sentence_bert_config.json": doc({"tokenizer_name_or_path": "/elsewhere"})}, ["LOADER_OPTION_REFUSED"]),
        ({"sentence_xlnet_config.json": doc({"model_args": {"subfolder": "../x"}})}, ["LOADER_OPTION_REFUSED"]),
        ({"sentence_bert_config.json": b"{broken"}, ["LOADER_OPTION_REFUSED"]),
        ({"config.json": doc({**CONFIG, "transformers_weights": "../x/m.safetensors"})}, ["LOADER_OPTION_REFUSED"]),
    ],
)
def test_a_wrong_folder_is_blocked_by_name(changes: dict[str, bytes | None], expected: list[str]) -> None:
    assert blockers(inspect(subject(model_files(**changes)))) == expected


@pytest.mark.req("A4")
def test_pickle_needs_an_approval_of_its_own() -> None:
    broken = model_files(**{"model.safetensors": None, "pytorch_model.bin": b"PK\x03\x04"})
    purposes: tuple[frozenset[Purpose], ...] = (frozenset(), frozenset({"lab_execution"}), frozenset({"pickle"}))
    for approved in purposes:
        found = blockers(inspect(subject(broken, approved=approved)))
        # No approval makes the adapter load it: the probe could only fail.
        assert found == ["PICKLE_NOT_LOADED", "PICKLE_UNREADABLE"]
    loads_it: dict[str, Any] = {"environment": with_adapter(inventory(), formats=("safetensors", "pickle")).environment}
    unapproved = inspect(subject(broken, approved=frozenset({"lab_execution"}), **loads_it))
    assert blockers(unapproved) == ["PICKLE_NOT_APPROVED", "PICKLE_UNREADABLE"]
    files = model_files(**{"model.safetensors": None, "pytorch_model.bin": pickle_of_numbers()})
    assert blockers(inspect(subject(files, **loads_it))) == ["PICKLE_NOT_APPROVED"]
    inspection = inspect(subject(files, approved=frozenset({"pickle"}), **loads_it))
    assert inspection.verdict == "compatible"
    assert only(inspection, FindingCode.PICKLE_APPROVED).severity == "warning"
    beside = inspect(subject(model_files(**{"pytorch_model.bin": pickle_of_numbers()})))
    assert beside.verdict == "compatible"
    assert only(beside, FindingCode.PICKLE_BESIDE_WEIGHTS).severity == "warning"


def test_pickle_in_the_models_folder_is_not_excused_by_weights_elsewhere() -> None:
    changes = {
        "model.safetensors": None,
        "pytorch_model.bin": pickle_of_numbers(),
        "onnx/model.safetensors": safetensors_bytes(),
    }
    assert blockers(inspect(subject(model_files(**changes)))) == ["PICKLE_NOT_LOADED"]


def test_code_in_the_folder_is_a_warning_because_it_is_never_run() -> None:
    inspection = inspect(subject(model_files(**{"modeling_x.py": b"import os"})))
    assert inspection.verdict == "compatible"
    assert only(inspection, FindingCode.CODE_IN_SET).severity == "warning"


def test_a_default_prompt_is_a_warning_because_a_probe_gives_none() -> None:
    prompts = {"prompts": {"query": "query: "}}
    silent = inspect(subject(model_files(**{"config_sentence_transformers.json": doc(prompts)})))
    assert {found.severity for found in silent.findings} == {"note"}
    named = doc({**prompts, "default_prompt_name": "query"})
    inspection = inspect(subject(model_files(**{"config_sentence_transformers.json": named})))
    assert inspection.verdict == "compatible"
    found = only(inspection, FindingCode.DEFAULT_PROMPT)
    assert (found.severity, "query" in found.message) == ("warning", True)


@pytest.mark.req("A5", "A6")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"location": None}, ["SET_NOT_ON_NODE"]),
        ({"node": node(liveness="offline")}, ["NODE_OFFLINE"]),
        ({"node": node(liveness="doubtful")}, []),
        ({"node": node(enabled=False)}, ["NODE_DISABLED"]),
        ({"node": node(lab_eligible=False)}, ["NODE_NOT_LAB_ELIGIBLE"]),
        ({"node": node(capabilities=("artifact.scan.v1",))}, ["NODE_CANNOT_PROBE"]),
    ],
)
def test_the_node_must_have_the_set_and_be_able_and_allowed(changes: dict[str, Any], expected: list[str]) -> None:
    assert blockers(inspect(subject(**changes))) == expected


@pytest.mark.req("A8", "P14")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"executable": False, "reason": "not installed: torch"}, ["ADAPTER_NOT_EXECUTABLE"]),
        ({"tasks": ()}, ["TASK_NOT_DECLARED"]),
        ({"modalities": ("image",)}, ["MODALITY_NOT_DECLARED"]),
        ({"formats": ("gguf",)}, ["FORMAT_NOT_DECLARED"]),
        ({"model_types": ("t5",)}, ["MODEL_TYPE_NOT_DECLARED"]),
        ({"name": "other"}, ["ADAPTER_NOT_DECLARED"]),
    ],
)
def test_the_environment_must_declare_what_the_set_needs(changes: dict[str, Any], expected: list[str]) -> None:
    runtime = with_adapter(inventory(), **changes).environment
    assert blockers(inspect(subject(environment=runtime))) == expected


@pytest.mark.req("A8")
def test_a_missing_package_is_named() -> None:
    inspection = inspect(subject(environment=environment(packages={"torch": "2.13.0"})))
    assert "sentence-transformers, transformers" in only(inspection, FindingCode.PACKAGE_MISSING).message


CUDA = RuntimeProfile(name="gpu", device="cuda")
READY = {"driver_version": "570.1", "cuda_version": "13.0"}
OLD_CARD = card(compute_capability="7.5")


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    ("profile", "machine", "expected"),
    [
        (CUDA, hardware(), ["NO_GPU"]),
        (CUDA, hardware(gpus=(card(),), **READY), []),
        (CUDA, hardware(gpus=(card(),)), ["GPU_DRIVER_UNKNOWN"]),
        (CUDA, hardware(gpus=(card(), card(uuid="GPU-2")), **READY), ["GPU_NOT_CHOSEN"]),
        (RuntimeProfile(name="g", device="cuda", gpu_uuid="GPU-9"), hardware(gpus=(card(),), **READY), ["GPU_NOT_FOUND"]),
        (RuntimeProfile(name="g", device="cuda", gpu_uuid="GPU-1"), hardware(gpus=(card(), card(uuid="GPU-2")), **READY), []),
        (
            RuntimeProfile(name="g", device="cuda", dtype="bfloat16"),
            hardware(gpus=(OLD_CARD,), **READY),
            ["GPU_DTYPE_UNSUPPORTED"],
        ),
        (CUDA, hardware(gpus=(card(memory_total_bytes=64 * MIB),), **READY), ["MEMORY_EXCEEDS_DEVICE"]),
    ],
)  # fmt: skip
def test_a_cuda_profile_is_blocked_without_its_card_and_never_run_on_a_cpu(
    profile: RuntimeProfile, machine: Any, expected: list[str]
) -> None:
    assert blockers(inspect(subject(profile=profile, hardware=machine))) == expected


@pytest.mark.req("A7")
def test_a_cpu_build_of_the_runtime_cannot_serve_a_cuda_profile() -> None:
    packages = {**environment().packages, "torch": "2.13.0+cpu"}
    inspection = inspect(
        subject(profile=CUDA, hardware=hardware(gpus=(card(),), **READY), environment=environment(packages=packages))
    )
    assert blockers(inspection) == ["RUNTIME_WITHOUT_CUDA"]


@pytest.mark.req("A11")
def test_memory_is_estimated_from_headers_in_the_profiles_type() -> None:
    files = model_files(**{"model.safetensors": safetensors_bytes(1_000_000)})
    full = inspect(subject(files)).estimate
    half = inspect(subject(files, profile=RuntimeProfile(name="h", dtype="float16"))).estimate
    assert full is not None
    assert half is not None
    assert (full.parts[0].size_bytes, half.parts[0].size_bytes) == (4_000_000, 2_000_000)
    assert {part.name for part in full.parts} == {"weights", "activations", "runtime"}
    foreign = model_files(**{"openvino/model.safetensors": safetensors_bytes(5_000_000)})
    assert inspect(subject(foreign)).estimate == inspect(subject()).estimate


@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        ({"hardware": hardware(memory_total_bytes=10 * MIB)}, FindingCode.MEMORY_EXCEEDS_DEVICE, "blocker"),
        ({"hardware": hardware(memory_available_bytes=10 * MIB)}, FindingCode.MEMORY_TIGHT, "warning"),
        ({"profile": RuntimeProfile(name="s", memory_limit_mib=64)}, FindingCode.MEMORY_EXCEEDS_LIMIT, "blocker"),
        ({"profile": RuntimeProfile(name="s", dtype="float16")}, FindingCode.HALF_PRECISION_ON_CPU, "warning"),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], code: FindingCode, severity: str) -> None:
    assert only(inspect(subject(**changes)), code).severity == severity


def test_every_code_has_a_remedy_and_every_finding_its_parts() -> None:
    assert set(CODES) == set(FindingCode)
    findings = inspect(subject({"x": b"1"}, location=None, hardware=hardware(memory_total_bytes=1))).findings
    for found in findings:
        assert FindingCode(found.code)
        assert found.message
        assert found.source
        assert found.remedy == CODES[FindingCode(found.code)].remedy


@pytest.mark.parametrize("value", [None, [], {}, "x", 7, [None], [{"type": 1, "path": 2}], [{"type": "x"}]])
def test_no_document_breaks_an_inspector(value: object) -> None:
    for name in ("config.json", "modules.json", "1_Pooling/config.json", "model.safetensors.index.json"):
        inspect(subject(model_files(**{name: doc(value)})))
