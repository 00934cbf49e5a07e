"""Findings about quantization and number types: what is asked for, what the files show, what it needs (spec A10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import Severity, finding
from adapters.inspect.device_checks import Version, capability_findings
from adapters.inspect.subject import Subject, member, normal
from bus.messages.artifacts import WeightFacts
from bus.messages.gates import Finding

CONFIG: Final = "config.json"
GPTQ_CONFIG: Final = "quantize_config.json"
UNKNOWN: Final = "unknown"
# What the loader of each method refuses to start without (`validate_environment` of the quantizers of transformers 5).
PACKAGES: Final[dict[str, tuple[str, ...]]] = {
    "aqlm": ("accelerate", "aqlm"),
    "auto-round": ("auto-round",),
    "awq": ("gptqmodel", "accelerate"),
    "bitnet": ("accelerate",),
    "bitsandbytes": ("accelerate", "bitsandbytes"),
    "compressed-tensors": ("compressed-tensors",),
    "eetq": ("kernels", "accelerate"),
    "fbgemm_fp8": ("fbgemm-gpu", "accelerate"),
    "fp8": ("accelerate",),
    "fp_quant": ("fp-quant",),
    "gptq": ("optimum", "gptqmodel"),
    "higgs": ("accelerate", "flute-kernel", "fast-hadamard-transform"),
    "hqq": ("hqq",),
    "mxfp4": ("accelerate",),
    "nvfp4": ("kernels",),
    "quanto": ("optimum-quanto", "accelerate"),
    "quark": ("amd-quark",),
    "sinq": ("sinq",),
    "spqr": ("accelerate", "spqr-quant"),
    "torchao": ("torchao",),
    "vptq": ("accelerate", "vptq"),
}
# vLLM brings kernels of its own for nearly all.
VLLM_PACKAGES: Final[dict[str, tuple[str, ...]]] = {"bitsandbytes": ("bitsandbytes",), "torchao": ("torchao",)}
# The oldest card that each method computes on (the same quantizers' checks of the device).
CAPABILITY: Final[dict[str, Version]] = {
    "fbgemm_fp8": (9, 0),
    "fp8": (8, 9),
    "fp_quant": (9, 0),
    "mxfp4": (7, 5),
    "nvfp4": (10, 0),
}
# Types of a header by the profile's name for them.
STORED: Final[dict[str, str]] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# Types that no profile has: the runtime converts them, or needs a quantization that says how.
_ODD: Final = frozenset({"F64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4"})


@dataclass(frozen=True, slots=True)
class Evidenced:
    """A quantization that a file of the set shows; `method` is `unknown` when the file does not name it."""

    method: str
    source: str


def evidenced(subject: Subject, folder: str) -> Evidenced | None:
    """The quantization that the documents of `folder` show; `None` when they show none."""
    path = member(folder, CONFIG)
    config = subject.document(path) or {}
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, dict) else {}):
        for key in ("quantization_config", "compression_config"):
            value = part.get(key)
            if value:
                return Evidenced(_method(value), f"{path}: {key}")
    older = member(folder, GPTQ_CONFIG)
    if older in subject.paths:
        value = subject.document(older) or {}
        return Evidenced(str(value.get("quant_method") or "gptq")[:40].lower(), older)
    return None


def _method(value: Any) -> str:
    if not isinstance(value, dict):
        return UNKNOWN
    named = value.get("quant_method")
    if isinstance(named, str) and named:
        return named[:40].lower()
    return "bitsandbytes" if value.get("load_in_4bit") or value.get("load_in_8bit") else UNKNOWN


def quantization_findings(
    subject: Subject, found: Evidenced | None, packages: Mapping[str, tuple[str, ...]]
) -> Iterator[Finding]:
    """Is the quantization that the profile asks for the one that the files show, declared, and provided for?

    Args:
        subject: profile and environment.
        found: what the files show.
        packages: what each method needs in this adapter.
    """
    asked = subject.profile.quantization
    if found is None:
        if asked is not None:
            message = f"the profile asks for {asked}, no file of the set shows a quantization"
            yield finding(Code.QUANTIZATION_NOT_EVIDENCED, "blocker", message, "config.json: quantization_config")
        return
    if asked is None:
        named = "" if found.method == UNKNOWN else f" with {found.method}"
        message = f"the weights are quantized{named}, the profile asks for none"
        yield finding(Code.QUANTIZED_WEIGHTS, "blocker", message, found.source)
    elif not same_method(asked, found.method):
        message = f"the profile asks for {asked}, the files show {found.method}"
        yield finding(Code.QUANTIZATION_NOT_EVIDENCED, "blocker", message, found.source)
    else:
        yield from declared_findings(subject, found)
    yield from _need_findings(subject, found, packages)


def declared_findings(subject: Subject, found: Evidenced) -> Iterator[Finding]:
    """Does the adapter declare the quantization? An empty list declares none."""
    declared = subject.adapter.quantizations if subject.adapter is not None else ()
    if not any(same_method(name, found.method) for name in declared):
        message = f"{subject.profile.adapter} does not declare the quantization {found.method}"
        source = f"node environment: adapter {subject.profile.adapter}; {found.source}"
        yield finding(Code.QUANTIZATION_NOT_DECLARED, "blocker", message, source)


def _need_findings(subject: Subject, found: Evidenced, packages: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    missing = [name for name in packages.get(found.method, ()) if normal(name) not in subject.packages]
    if missing:
        message = f"{found.method} needs {' and '.join(missing)}, not installed on {subject.node.name}"
        yield finding(
            Code.QUANTIZATION_PACKAGE_MISSING, "blocker", message, f"{found.source}; node environment: packages"
        )
    needed = CAPABILITY.get(found.method)
    if needed is not None:
        yield from capability_findings(subject, needed, found.method)


def same_method(left: str, right: str) -> bool:
    """Is it the same method? One configuration names `bitsandbytes` for both widths that its loaders are named by."""
    return _plain(left) == _plain(right)


def _plain(method: str) -> str:
    plain = method.lower().replace("-", "_")
    return "bitsandbytes" if plain.startswith("bitsandbytes") else plain


def dtype_findings(subject: Subject, weights: Sequence[WeightFacts], found: Evidenced | None) -> Iterator[Finding]:
    """Are the weights stored in the profile's type? Converting is what runtimes do; it costs memory or exactness."""
    if found is not None:
        return
    sizes: dict[str, int] = {}
    for facts in weights:
        for dtype, size in facts.bytes_by_dtype.items():
            sizes[dtype] = sizes.get(dtype, 0) + size
    floats = {dtype: size for dtype, size in sizes.items() if dtype in STORED or dtype in _ODD}
    if not floats:
        return
    main = max(sorted(floats), key=lambda dtype: floats[dtype])
    wanted = subject.profile.dtype
    if STORED.get(main) == wanted:
        return
    severity, effect = _effect(main, wanted)
    message = f"most weights are stored as {STORED.get(main, main)}, the profile runs {wanted}: {effect}"
    yield finding(Code.DTYPE_MISMATCH, severity, message, "weight headers")


def _effect(stored: str, wanted: str) -> tuple[Severity, str]:
    if stored in _ODD:
        return "warning", "no file says how they are to be converted"
    if stored == "BF16" and wanted == "float16":
        return "warning", "values beyond the range of float16 become infinite"
    if wanted == "float32":
        return "note", "they are held at twice their size, and become no more exact"
    return "note", "they are rounded when they are loaded"
