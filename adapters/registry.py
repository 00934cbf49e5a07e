"""Adapters by name: what a node declares about each, and where the executable one lies.

A name is the only thing that travels. It is looked up in this table and nowhere else, so that nothing sent to a
node can name a module (spec B4). The dotted path is resolved in the child; facts come from package metadata, without
importing a library.
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Final

import msgspec

from adapters import declared, names
from adapters.base import RuntimeAdapter
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.profiles import AdapterFacts, RuntimeEnvironment

TEST_DOUBLE: Final = names.TEST_DOUBLE
_NO_EXECUTABLE_PART: Final = "static inspection only: this version has no executable adapter"
# The packages whose versions are a part of an environment's identity, as far as they are installed.
_PACKAGES: Final = (
    "modelforge",
    "accelerate",
    "amd-quark",
    "aqlm",
    "auto-gptq",
    "auto-round",
    "autoawq",
    "bitsandbytes",
    "compressed-tensors",
    "diffusers",
    "fast-hadamard-transform",
    "fbgemm-gpu",
    "flute-kernel",
    "fp-quant",
    "gguf",
    "gptqmodel",
    "hqq",
    "huggingface-hub",
    "kernels",
    "librosa",
    "llama-cpp-python",
    "mistral-common",
    "numpy",
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu11",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cuda-runtime-cu13",
    "onnxruntime",
    "optimum",
    "optimum-quanto",
    "peft",
    "pillow",
    "protobuf",
    "safetensors",
    "scipy",
    "sentence-transformers",
    "sentencepiece",
    "sinq",
    "soundfile",
    "spqr-quant",
    "tiktoken",
    "timm",
    "tokenizers",
    "torch",
    "torchao",
    "torchaudio",
    "torchvision",
    "transformers",
    "vllm",
    "vptq",
)
# Encoders whose last hidden states a pooling module may be put on; whether this node's transformers knows one is asked.
_TEXT_ENCODERS: Final = (
    "albert",
    "bert",
    "camembert",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "ernie",
    "mobilebert",
    "modernbert",
    "mpnet",
    "nomic_bert",
    "roberta",
    "xlm-roberta",
)
# The types of llama.cpp's own table of files, as a GGUF header names them.
_GGUF_QUANTIZATIONS: Final = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M"),
    *("IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0"),
)
_VLLM_QUANTIZATIONS: Final = ("awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "modelopt", "torchao")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEntry:
    """One row.

    Attributes:
        name: as profiles name it.
        target: `module:class` of the executable adapter; `None` when there is none.
        distribution: the package whose version is the adapter's.
        requires: packages without which it cannot run.
        preload: modules that a template process imports before it forks.
        model_types, quantizations: asked of the installed libraries where they keep a list.
    """

    name: str
    target: str | None = None
    distribution: str
    requires: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    modalities: tuple[str, ...] = ()
    model_types: Callable[[], tuple[str, ...]] = tuple
    formats: tuple[str, ...] = ()
    quantizations: Callable[[], tuple[str, ...]] = tuple


def _transformers_types() -> tuple[str, ...]:
    return declared.transformers_model_types().names


def _encoder_types() -> tuple[str, ...]:
    known = frozenset(_transformers_types())
    return tuple(name for name in _TEXT_ENCODERS if name in known)


def _transformers_quantizations() -> tuple[str, ...]:
    """Its loaders' names; a configuration says `bitsandbytes` where two loaders divide the work by the width."""
    found = declared.transformers_quantizations().names
    whole = {"bitsandbytes"} if any(name.startswith("bitsandbytes_") for name in found) else set()
    return tuple(sorted({*found, *whole}))


def _vllm_types() -> tuple[str, ...]:
    """VLLM reads configurations through transformers; of the types that it can be given, nobody proved one here."""
    return _transformers_types() if installed_version("vllm") is not None else ()


_ENTRIES: Final = (
    AdapterEntry(
        name="sentence_transformers",
        target="adapters.embedding:EmbeddingAdapter",
        distribution="sentence-transformers",
        requires=("sentence-transformers", "transformers", "torch"),
        preload=("torch", "transformers", "sentence_transformers", "adapters.embedding"),
        tasks=("embedding",),
        modalities=("text",),
        model_types=_encoder_types,
        formats=("safetensors",),
    ),
    AdapterEntry(
        name="transformers",
        distribution="transformers",
        tasks=(
            "embedding",
            "reranking",
            "text_generation",
            "image_to_text",
            "image_text_similarity",
            "speech_recognition",
        ),
        modalities=("text", "image", "audio"),
        model_types=_transformers_types,
        formats=("safetensors",),
        quantizations=_transformers_quantizations,
    ),
    AdapterEntry(
        name="vllm",
        distribution="vllm",
        tasks=("embedding", "reranking", "text_generation", "image_to_text"),
        modalities=("text", "image"),
        model_types=_vllm_types,
        formats=("safetensors",),
        quantizations=lambda: _VLLM_QUANTIZATIONS,
    ),
    AdapterEntry(
        name="llama_cpp",
        distribution="llama-cpp-python",
        tasks=("embedding", "reranking", "text_generation"),
        modalities=("text",),
        formats=("gguf",),
        quantizations=lambda: _GGUF_QUANTIZATIONS,
    ),
    AdapterEntry(
        name="diffusers",
        distribution="diffusers",
        tasks=("image_generation",),
        modalities=("text", "image"),
        formats=("safetensors",),
    ),
    AdapterEntry(name="custom", distribution="modelforge"),
)
_DOUBLE: Final = AdapterEntry(
    name=TEST_DOUBLE,
    target="adapters.faulty:FaultyAdapter",
    distribution="modelforge",
    preload=("adapters.faulty",),
    tasks=("embedding",),
    modalities=("text",),
    model_types=lambda: ("bert",),
    formats=("safetensors",),
)


def entries(*, test_double: bool = False) -> tuple[AdapterEntry, ...]:
    """All rows; the test double only where it was asked for."""
    return (*_ENTRIES, _DOUBLE) if test_double else _ENTRIES


def find(name: str, *, test_double: bool = False) -> AdapterEntry:
    """The row of an executable adapter.

    Raises:
        ModelForgeError: RUNTIME_INCOMPATIBLE when there is no such adapter, or when it has no executable part.
    """
    for entry in entries(test_double=test_double):
        if entry.name == name:
            if entry.target is None:
                raise ModelForgeError(
                    ErrorCode.RUNTIME_INCOMPATIBLE, f"the adapter {name} has no executable part", adapter=name
                )
            return entry
    raise ModelForgeError(ErrorCode.RUNTIME_INCOMPATIBLE, "this version knows no adapter of that name", adapter=name)


def make(name: str, *, test_double: bool = False) -> RuntimeAdapter:
    """A new adapter object; called in a child only, because it imports the adapter's module.

    Raises:
        ModelForgeError: RUNTIME_INCOMPATIBLE, as `find`.
    """
    target = find(name, test_double=test_double).target or ""
    module, _, attribute = target.partition(":")
    made: RuntimeAdapter = getattr(importlib.import_module(module), attribute)()
    return made


def worth_warming(*, test_double: bool = False) -> tuple[str, ...]:
    """The adapters whose libraries may be imported ahead of a probe: executable here, with something to import.

    A node that offers the test double is a test's: it warms the double alone.
    """
    wanted = {TEST_DOUBLE} if test_double else {entry.name for entry in _ENTRIES if entry.preload}
    return tuple(
        facts.name for facts in adapter_facts(test_double=test_double) if facts.executable and facts.name in wanted
    )


def adapter_facts(
    *, test_double: bool = False, given: declared.EnvironmentDeclaration | None = None
) -> tuple[AdapterFacts, ...]:
    """What this node declares about each adapter (spec A2: declared is not proven); `given` overrides by its owner."""
    own = given.adapters if given is not None else {}
    return tuple(_declared(_facts(entry), own.get(entry.name)) for entry in entries(test_double=test_double))


def _declared(facts: AdapterFacts, own: declared.AdapterDeclaration | None) -> AdapterFacts:
    if own is None:
        return facts
    return msgspec.structs.replace(
        facts, **{name: value for name, value in msgspec.structs.asdict(own).items() if value is not None}
    )


def _facts(entry: AdapterEntry) -> AdapterFacts:
    missing = [package for package in entry.requires if installed_version(package) is None]
    reason = None
    if entry.target is None:
        reason = _NO_EXECUTABLE_PART
    elif missing:
        reason = f"not installed: {', '.join(missing)} (the `runtime` extra)"
    return AdapterFacts(
        name=entry.name,
        version=installed_version(entry.distribution) or "not installed",
        executable=reason is None,
        reason=reason,
        tasks=entry.tasks,
        modalities=entry.modalities,
        model_types=entry.model_types(),
        formats=entry.formats,
        quantizations=entry.quantizations(),
        inspect_only=entry.target is None,
    )


def installed_version(distribution: str) -> str | None:
    """The version of an installed package, from its metadata; `None` when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def runtime_environment(
    *, test_double: bool = False, given: declared.EnvironmentDeclaration | None = None
) -> RuntimeEnvironment:
    """The interpreter and packages in which this node's children run; its digest is its identity.

    `given` is what the node's owner declares beside what is read: the image, and declarations of adapters.
    """
    found = {package: installed_version(package) for package in _PACKAGES}
    return RuntimeEnvironment(
        python=platform.python_version(),
        platform=f"{platform.system().lower()}-{platform.machine()}",
        packages={package: version for package, version in found.items() if version is not None},
        adapters=adapter_facts(test_double=test_double, given=given),
        image=given.image if given is not None else None,
    )
