"""The Transformers inspector: configuration, tokenizer, processor and Safetensors of the set's own folder (spec A13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from adapters.inspect import (
    code_checks,
    config_checks,
    memory,
    parameter_checks,
    plausibility,
    processor_checks,
    quantization_checks,
    structure_checks,
    task_checks,
    tokenizer_checks,
    weight_checks,
)
from adapters.inspect.conclusion import common_findings, conclude
from adapters.inspect.content_checks import Loads, content_findings
from adapters.inspect.memory_checks import memory_findings
from adapters.inspect.pickle_checks import loaded_endings
from adapters.inspect.subject import ROOT, Inspection, Subject, member
from bus.messages.gates import Finding

NAME: Final = "transformers"
PACKAGES: Final = ("transformers", "torch")


def inspect(subject: Subject) -> Inspection:
    """All that static analysis can say about running the set with Transformers' own classes."""
    return inspect_layout(subject, PACKAGES, quantization_checks.PACKAGES)


def inspect_layout(
    subject: Subject,
    packages: tuple[str, ...],
    method_packages: Mapping[str, tuple[str, ...]],
    more: Iterable[Finding] = (),
    *,
    any_name: bool = False,
    claims: bool = True,
) -> Inspection:
    """The checks of a folder in the layout that Transformers writes, for each runtime that reads it.

    Args:
        subject: set, profile and node.
        packages: what the runtime needs installed, its own first.
        method_packages: what it needs for each quantization.
        more: findings of the runtime's own.
        any_name: it takes all Safetensors of the folder, whatever their names.
        claims: as `Inspection` has it.
    """
    config = subject.document(member(ROOT, config_checks.CONFIG)) or {}
    weights = weight_checks.loaded_weights(subject, (ROOT,), any_name=any_name)
    quantized = quantization_checks.evidenced(subject, ROOT)
    expected = memory.estimate(subject, weights, config, quantized=quantized is not None)
    loads = Loads(frozenset({ROOT}), loaded_endings(subject))
    found: list[Finding] = [
        *common_findings(subject, packages),
        *more,
        *config_checks.config_findings(subject, ROOT),
        *plausibility.plausibility_findings(config, config_checks.CONFIG),
        *quantization_checks.quantization_findings(subject, quantized, method_packages),
        *tokenizer_checks.tokenizer_findings(subject, ROOT, config),
        *processor_checks.processor_findings(subject, ROOT, config),
        *content_findings(subject, loads),
        *weight_checks.weight_findings(subject, (ROOT,), any_name=any_name),
        *quantization_checks.dtype_findings(subject, weights, quantized),
        *(parameter_checks.parameter_findings(weights, config) if quantized is None else ()),
        *structure_checks.structure_findings(weights, config, quantized=quantized is not None, own_names=any_name),
        *code_checks.code_findings(subject),
        *task_checks.task_findings(subject, config),
        *config_checks.sequence_findings(subject, config),
        *memory_findings(subject, expected),
    ]
    return conclude(subject, found, expected, model_type=config_checks.model_type(config), claims=claims)
