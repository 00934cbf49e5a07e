"""Findings about the chain of modules: each is there once, in an order that runs, and takes the width before it (A12).

The library looks at none of this when it loads; a wrong width ends the first request, a wrong order gives other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.plausibility import size_of
from adapters.inspect.subject import Subject, member
from adapters.loader_options import TRANSFORMER_CONFIGS, refused_values
from bus.messages.gates import Finding

# Flags of the old layout, and the modes of the new one that they stand for.
_FLAGS: Final = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_MODE: Final = "pooling_mode"
# Those that need no argument and keep the width.
_ACTIVATIONS: Final = (
    "CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "Mish",
    "PReLU", "ReLU", "ReLU6", "SELU", "Sigmoid", "SiLU", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
)  # fmt: skip
ACTIVATIONS: Final = frozenset(
    {
        "torch.nn.Identity",
        "torch.nn.modules.linear.Identity",
        *(f"torch.nn.{name}" for name in _ACTIVATIONS),
        *(f"torch.nn.modules.activation.{name}" for name in _ACTIVATIONS),
    }
)


def order_findings(entries: Any, kinds: Sequence[str], folders: Sequence[str], source: str) -> Iterator[Finding]:
    """Names are there and differ, no two modules share a folder, and the Pooling follows the Transformer.

    Args:
        entries: modules.json, a list of objects.
        kinds: the kind of each module.
        folders: the folder of each module.
        source: where modules.json lies.
    """
    names = [entry.get("name") for entry in entries]
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        message = "a module has no name, or two have the same: the library loses one of them"
        yield finding(Code.MODULES_UNREADABLE, "blocker", message, source)
    own = [folder for kind, folder in zip(kinds, folders, strict=True) if kind != "Normalize"]
    if len(set(own)) != len(own) or kinds.count("Transformer") != 1:
        message = "two modules share a folder, or there is more than one Transformer"
        yield finding(Code.MODULES_UNREADABLE, "blocker", message, source)
    if kinds.count("Pooling") > 1:
        yield finding(Code.POOLING_MISMATCH, "blocker", "modules.json names more than one Pooling", source)
    elif "Pooling" in kinds[2:]:
        message = f"{kinds[1]} stands before the Pooling, which must follow the Transformer"
        yield finding(Code.POOLING_MISMATCH, "blocker", message, source)


def mode_findings(config: dict[str, Any], source: str) -> Iterator[Finding]:
    """The pooling names modes that the library has; an unknown one ends the load, or is passed over."""
    strange = sorted(
        key
        for key, value in config.items()
        if key.startswith(_MODE) and key != _MODE and (key not in _FLAGS or not isinstance(value, bool))
    )
    if strange or (_MODE in config and not pooling_modes(config)):
        message = f"{strange[0] if strange else _MODE} is no pooling mode that the library has"
        yield finding(Code.POOLING_MISMATCH, "blocker", message, source)


def pooling_modes(config: dict[str, Any]) -> list[str]:
    """The chosen modes; empty where one of them is unknown."""
    if _MODE not in config:
        return [mode for key, mode in _FLAGS.items() if config.get(key)]
    named = config[_MODE]
    modes = [named] if isinstance(named, str) else named
    known = isinstance(modes, list) and all(mode in _FLAGS.values() for mode in modes if isinstance(mode, str))
    return list(modes) if known and all(isinstance(mode, str) for mode in modes) else []


def dense_findings(config: dict[str, Any], width: int, source: str) -> Iterator[Finding]:
    """A Dense takes the width of what stands before it (0: unknown), and its activation is one of torch's own."""
    takes, gives = size_of(config, "in_features"), size_of(config, "out_features")
    if not takes or not gives or (width and takes != width):
        message = (
            f"the Dense takes {takes or 'no'} and gives {gives or 'no'} dimensions, before it are {width or 'some'}"
        )
        yield finding(Code.POOLING_MISMATCH, "blocker", message, f"{source}: in_features")
    key = "activation_function"
    if key in config and not (isinstance(config[key], str) and config[key] in ACTIVATIONS):
        message = f"{str(config[key])[:60]} is no activation that this version loads"
        yield finding(Code.LOADER_OPTION_REFUSED, "blocker", message, f"{source}: {key}")


def value_findings(subject: Subject, folder: str) -> Iterator[Finding]:
    """No `sentence_*_config.json` asks for another head, another output, or a length that is none."""
    for path in (member(folder, name) for name in TRANSFORMER_CONFIGS):
        config = subject.document(path) or {}
        for key in refused_values(config):
            message = f"{path} gives {key} a value that this version does not serve"
            yield finding(Code.LOADER_OPTION_REFUSED, "blocker", message, f"{path}: {key}")
        key = "max_seq_length"
        if config.get(key) is not None and not size_of(config, key):
            yield finding(Code.CONFIG_IMPLAUSIBLE, "blocker", f"{key} is no positive whole number", f"{path}: {key}")
