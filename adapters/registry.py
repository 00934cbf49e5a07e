"""Adapters by name: what a node declares about each, and where the executable one lies.

A name is the only thing that travels. It is looked up in this table and nowhere else, so that nothing sent to a
node can name a module (spec B4). The dotted path is resolved in the child; facts come from package metadata, without
importing a library.
"""

from __future__ import annotations

import importlib
import platform
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from adapters import names
from adapters.base import RuntimeAdapter
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.profiles import AdapterFacts, RuntimeEnvironment

TEST_DOUBLE: Final = names.TEST_DOUBLE
_NO_EXECUTABLE_PART: Final = "static inspection only: this version has no executable adapter"
# The packages whose versions are a part of an environment's identity.
_PACKAGES: Final = (
    "modelforge",
    "huggingface-hub",
    "numpy",
    "safetensors",
    "sentence-transformers",
    "tokenizers",
    "torch",
    "transformers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEntry:
    """One row.

    Attributes:
        name: as profiles name it.
        target: `module:class` of the executable adapter; `None` when there is none.
        distribution: the package whose version is the adapter's.
        requires: packages without which it cannot run.
        preload: modules that a template process imports before it forks.
    """

    name: str
    target: str | None = None
    distribution: str
    requires: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    modalities: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


_ENTRIES: Final = (
    AdapterEntry(
        name="sentence_transformers",
        target="adapters.embedding:EmbeddingAdapter",
        distribution="sentence-transformers",
        requires=("sentence-transformers", "transformers", "torch"),
        preload=("torch", "transformers", "sentence_transformers", "adapters.embedding"),
        tasks=("embedding",),
        modalities=("text",),
        model_types=("albert", "bert", "distilbert", "electra", "modernbert", "mpnet", "roberta", "xlm-roberta"),
        formats=("safetensors",),
    ),
    AdapterEntry(
        name="transformers",
        distribution="transformers",
        tasks=("embedding",),
        modalities=("text",),
        formats=("safetensors",),
    ),
    AdapterEntry(
        name="vllm", distribution="vllm", tasks=("embedding",), modalities=("text",), formats=("safetensors",)
    ),
    AdapterEntry(
        name="llama_cpp", distribution="llama-cpp-python", tasks=("embedding",), modalities=("text",), formats=("gguf",)
    ),
    AdapterEntry(name="diffusers", distribution="diffusers", modalities=("image",), formats=("safetensors",)),
    AdapterEntry(name="custom", distribution="modelforge"),
)
_DOUBLE: Final = AdapterEntry(
    name=TEST_DOUBLE,
    target="adapters.faulty:FaultyAdapter",
    distribution="modelforge",
    preload=("adapters.faulty",),
    tasks=("embedding",),
    modalities=("text",),
    model_types=("bert",),
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


def adapter_facts(*, test_double: bool = False) -> tuple[AdapterFacts, ...]:
    """What this node declares about each adapter (spec A2: declared is not proven)."""
    return tuple(_facts(entry) for entry in entries(test_double=test_double))


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
        model_types=entry.model_types,
        formats=entry.formats,
    )


def installed_version(distribution: str) -> str | None:
    """The version of an installed package, from its metadata; `None` when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def runtime_environment(*, test_double: bool = False) -> RuntimeEnvironment:
    """The interpreter and packages in which this node's children run; its digest is its identity."""
    found = {package: installed_version(package) for package in _PACKAGES}
    return RuntimeEnvironment(
        python=platform.python_version(),
        platform=f"{platform.system().lower()}-{platform.machine()}",
        packages={package: version for package, version in found.items() if version is not None},
        adapters=adapter_facts(test_double=test_double),
    )
