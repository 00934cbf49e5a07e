"""Are the tensors of a loaded model and those in its files the same?

A tensor that no file holds was made up at random by the library; a layer in the files that the model does not use is
left out of every answer. The library says neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Left out of many good files, and no part of an embedding: the pooler head, and tables that are computed.
_TABLES: Final = re.compile(
    r"(^|\.)(position_ids|token_type_ids|inv_freq|rotary_emb\.\w+|attn\.(bias|masked_bias)|masked_bias)$"
)
_POOLER: Final = re.compile(r"(^|\.)pooler\.")
# Heads of tasks, for which a trunk was trained or is used elsewhere: a model without a head has no place for them.
_HEADS: Final = re.compile(
    r"(^|\.)(cls|classifier|pre_classifier|score|qa_outputs|lm_head|mlm_head|nsp|predictions|seq_relationship|"
    r"discriminator_predictions|generator_predictions|generator_lm_head|"
    r"vocab_transform|vocab_layer_norm|vocab_projector)\.|^linear\.|(^|\.)final_logits_bias$"
)
_NUMBERED: Final = re.compile(r"\.[0-9]+\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReport:
    """The comparison of a model with its files.

    Attributes:
        missing: names of the model's tensors that no file holds, sorted.
        unused: names of tensors in the files that the model has no use for and should have, sorted.
        summary: one sentence about the comparison.
    """

    missing: tuple[str, ...]
    unused: tuple[str, ...]
    summary: str


def check(model: Any, folder: Path) -> TensorReport:
    """Compare the names in the Safetensors headers of `folder` with those of `model`, a transformers model.

    Names alone are strict: the library also knows renamed tensors. So a difference is confirmed by the library's own
    loading report, which costs a second load and is made in that case only.
    """
    own = set(model.state_dict())
    wanted = {name for name in own if not _may_be_missing(name)}
    wanted -= set(getattr(model, "all_tied_weights_keys", None) or ())
    present = header_names(folder)
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    absent = {name for name in wanted if name not in present and prefix + name not in present}
    used = own | {prefix + name for name in own}
    surplus = {name for name in present - used if not may_be_unused(name)}
    if not absent and not surplus:
        return TensorReport(missing=(), unused=(), summary=f"{len(wanted)} tensors, all named in the file headers")
    reported = loading_report(model, folder)
    missing = sorted(name for name in reported.missing if not _may_be_missing(name))
    unused = sorted(name for name in reported.unused if not may_be_unused(name))
    words = (
        f"{len(wanted)} tensors, {len(absent)} under other names, {len(missing)} missing and {len(unused)} unused "
        "by the loading report"
    )
    return TensorReport(missing=tuple(missing), unused=tuple(unused), summary=words)


def may_be_unused(name: str) -> bool:
    """May a trunk leave this tensor of its files out? Nothing of a numbered layer, but for tables that are computed."""
    if _TABLES.search(name) is not None:
        return True
    begin = _NUMBERED.search(name)
    # `cls.predictions.…` may have layers of its own; a layer of the trunk may have a part called `score`.
    head = name if begin is None else name[: begin.start() + 1]
    return any(words.search(head) is not None for words in (_POOLER, _HEADS))


def _may_be_missing(name: str) -> bool:
    return _TABLES.search(name) is not None or _POOLER.search(name) is not None


def header_names(folder: Path) -> set[str]:
    """Every tensor name in the Safetensors files that lie directly in `folder`."""
    from safetensors import safe_open  # noqa: PLC0415 -- a library of the child

    names: set[str] = set()
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(str(file), framework="pt") as tensors:
            names.update(tensors.keys())
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What the library itself says of a load: its tensors that no file holds, and the files' that it did not use."""

    missing: frozenset[str]
    unused: frozenset[str]


def loading_report(model: Any, folder: Path) -> Reported:
    """The names that the library itself reports when it loads `folder` as the class of `model`."""
    _, report = type(model).from_pretrained(
        str(folder),
        config=model.config,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    return Reported(
        missing=frozenset(map(str, report["missing_keys"])), unused=frozenset(map(str, report["unexpected_keys"]))
    )
