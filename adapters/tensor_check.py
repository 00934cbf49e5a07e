"""Are all tensors of a loaded model in its files? A tensor that is not was made up at random by the library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Left out of many good files, and no part of an embedding: the pooler head, and tables that are computed.
_HARMLESS: Final = re.compile(r"(^|\.)pooler\.|(^|\.)position_ids$|(^|\.)token_type_ids$|(^|\.)inv_freq$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReport:
    """Names of the model's tensors that no file holds, sorted, and one sentence about the comparison."""

    missing: tuple[str, ...]
    summary: str


def check(model: Any, folder: Path) -> TensorReport:
    """Compare the names in the Safetensors headers of `folder` with those of `model`, a transformers model.

    Names alone are strict: the library also knows renamed tensors. So a difference is confirmed by the library's own
    loading report, which costs a second load and is made in that case only.
    """
    wanted = {name for name in model.state_dict() if _HARMLESS.search(name) is None}
    wanted -= set(getattr(model, "all_tied_weights_keys", None) or ())
    present = header_names(folder)
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    absent = {name for name in wanted if name not in present and prefix + name not in present}
    if not absent:
        return TensorReport(missing=(), summary=f"{len(wanted)} tensors, all named in the file headers")
    missing = sorted(name for name in loading_report(model, folder) if _HARMLESS.search(name) is None)
    words = f"{len(wanted)} tensors, {len(absent)} under other names, {len(missing)} missing by the loading report"
    return TensorReport(missing=tuple(missing), summary=words)


def header_names(folder: Path) -> set[str]:
    """Every tensor name in the Safetensors files that lie directly in `folder`."""
    from safetensors import safe_open  # noqa: PLC0415 -- a library of the child

    names: set[str] = set()
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(str(file), framework="pt") as tensors:
            names.update(tensors.keys())
    return names


def loading_report(model: Any, folder: Path) -> set[str]:
    """The names that the library itself reports as missing when it loads `folder` as the class of `model`."""
    _, report = type(model).from_pretrained(
        str(folder),
        config=model.config,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    return {str(name) for name in report["missing_keys"]}
