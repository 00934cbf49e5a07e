"""Findings about code: Python in the folder, files that ask for code, adapters of other models (spec A4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import Severity, finding
from adapters.inspect.subject import Subject, member, shown
from adapters.loader_options import TRANSFORMER_CONFIGS, refused_options
from bus.messages.artifacts import FileFormat
from bus.messages.gates import Finding

# Documents in which `auto_map` may name a class by `module.Class`, or in another repository by `owner/name--module.Class`.
_MAY_ASK: Final = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
)
# Keys that make a runtime fetch or run code; a native class of the same model type is taken without asking.
_KEYS: Final = ("auto_map", "custom_pipelines", "custom_generate", "trust_remote_code")
_MAX_REFERENCES: Final = 32


def code_findings(subject: Subject) -> Iterator[Finding]:
    """Code and adapter weights anywhere in the set: the first is never run, the second misleads every loader."""
    named = subject.ending_with(".py", ".pyc", ".ipynb")
    scripts = sorted({*named, *subject.of_format(FileFormat.PYTHON)})
    if scripts:
        yield finding(Code.CODE_IN_SET, "warning", f"never run: {shown(scripts)}", "manifest")
    # In any folder: each module of the set is loaded from its own.
    adapters = [path for path in subject.ending_with(".json") if path.rpartition("/")[2] == "adapter_config.json"]
    if adapters:
        message = f"it makes the runtime look for a base model elsewhere: {shown(adapters)}"
        yield finding(Code.ADAPTER_WEIGHTS, "blocker", message, "manifest")


def remote_code_findings(subject: Subject, folder: str, *, native: bool) -> Iterator[Finding]:
    """What asks for code in the documents of `folder`.

    Args:
        subject: the set.
        folder: where the runtime loads from.
        native: the runtime knows the model type itself. Then its own class is used and nothing is asked for; the
            numbers may differ from those that the folder's author saw.
    """
    severity: Severity = "warning" if native else "blocker"
    for name in _MAY_ASK:
        path = member(folder, name)
        document = subject.document(path)
        asked = [] if document is None else [key for key in _KEYS if document.get(key)]
        for key in asked:
            value = (document or {})[key]
            if native:
                message = f"{path} asks for code {_where(value)}; it is ignored, the runtime's own class is used"
            else:
                message = f"{path} needs code {_where(value)}"
            yield finding(Code.REMOTE_CODE_REQUIRED, severity, message, f"{path}: {key}")


def _where(value: Any) -> str:
    """Where such code would come from: another repository, or the folder itself."""
    references = _references(value)
    foreign = sorted({text.partition("--")[0] for text in references if "--" in text})
    if foreign:
        return f"of another repository, {shown([name[:80] for name in foreign], 2)}"
    local = sorted({text[:80] for text in references})
    return f"of the folder ({shown(local, 2)})" if local else "from outside the runtime"


def _references(value: Any) -> list[str]:
    found: list[str] = []
    waiting = [value]
    while waiting and len(found) < _MAX_REFERENCES:
        item = waiting.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            waiting.extend(list(item.values())[:_MAX_REFERENCES])
        elif isinstance(item, list):
            waiting.extend(item[:_MAX_REFERENCES])
    return found


def option_findings(subject: Subject, folder: str) -> Iterator[Finding]:
    """No `sentence_*_config.json` hands the library arguments that could name files outside the set."""
    for path in (member(folder, name) for name in TRANSFORMER_CONFIGS):
        if path not in subject.paths:
            continue
        refused = refused_options(subject.evidence.documents.get(path))
        if refused:
            message = f"{path} sets what this version passes on to no loader: {shown([key[:40] for key in refused])}"
            yield finding(Code.LOADER_OPTION_REFUSED, "blocker", message, path)
