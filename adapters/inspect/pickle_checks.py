"""Findings about pickle: it is loaded by an adapter that declares it, when it was approved, and never otherwise (A4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import Severity, finding, several
from adapters.inspect.content_checks import TRANSFORMERS_FILES
from adapters.inspect.subject import Subject, shown
from adapters.inspect.weights import Choice, choose
from bus.messages.artifacts import PickleFacts
from bus.messages.gates import Finding

PICKLE: Final = "pickle"
_ENDINGS: Final = (".bin", ".pt", ".pth", ".ckpt")


def loads_pickle(subject: Subject) -> bool:
    """Does the environment declare that the profile's adapter loads pickle?"""
    return subject.adapter is not None and PICKLE in subject.adapter.formats


def loaded_endings(subject: Subject) -> tuple[str, ...]:
    """Endings of the names that a runtime of the Transformers kind opens; those of pickle where it loads pickle."""
    return (*TRANSFORMERS_FILES, *_ENDINGS) if loads_pickle(subject) else TRANSFORMERS_FILES


def folder_findings(subject: Subject, choice: Choice, *, good: bool) -> Iterator[Finding]:
    """The pickled weights of one folder; `good`: it has Safetensors that are loaded in their place."""
    pickles = choice.pickles
    if not pickles:
        return
    if good:
        message = f"{choice.by} is loaded; not loaded: {shown(pickles)}"
        yield finding(Code.PICKLE_BESIDE_WEIGHTS, "warning", message, "manifest")
    elif not loads_pickle(subject):
        # Before the question of an approval: no approval makes this adapter load them, so the probe could only fail.
        message = f"{subject.profile.adapter} does not load pickle, approved or not: {shown(pickles)}"
        yield finding(Code.PICKLE_NOT_LOADED, "blocker", message, "manifest")
    elif PICKLE in subject.approved:
        message = f"approved for this exact set: {shown(pickles)}"
        yield finding(Code.PICKLE_APPROVED, "warning", message, "approval for the purpose pickle")
    else:
        message = f"the weights are pickle, which runs code when it is loaded: {shown(pickles)}"
        yield finding(Code.PICKLE_NOT_APPROVED, "blocker", message, "manifest")


def unknown_runner_findings(subject: Subject) -> Iterator[Finding]:
    """For a runner of which nobody knows what it loads: pickle that lies where no Safetensors are may be it."""
    loaded: list[str] = []
    for folder in sorted(subject.weights):
        choice = choose(subject, folder, any_name=True)
        if not choice.loaded:
            loaded += choice.pickles
    if loaded and PICKLE in subject.approved:
        message = f"approved for this exact set: {shown(loaded)}"
        yield finding(Code.PICKLE_APPROVED, "warning", message, "approval for the purpose pickle")
    elif loaded:
        message = f"the runner may load pickle, which runs code when it is loaded: {shown(loaded)}"
        yield finding(Code.PICKLE_NOT_APPROVED, "blocker", message, "manifest")
    yield from verdict_findings(subject, frozenset(loaded))


def verdict_findings(subject: Subject, loaded: frozenset[str]) -> Iterator[Finding]:
    """What the opcodes of each pickle say, in any member; `loaded` are the members that the adapter would unpickle."""
    said: dict[tuple[Code, Severity], list[tuple[str, str]]] = {}
    # Code is the quarantine's matter (A4); a pickle that ends early is a corrupt member, loaded or not.
    for path, streams in sorted(subject.pickles.items()):
        severity: Severity = "blocker" if path in loaded else "warning"
        worst, broken = _first(streams, "code"), _first(streams, "unreadable")
        if worst is not None:
            message = f"{_where(worst)} can run code: {worst.reason}"
            said.setdefault((Code.PICKLE_CODE, severity), []).append((message, f"opcodes of {path}"))
        if broken is not None:
            message = f"{_where(broken)} cannot be read to its end: {broken.reason}"
            said.setdefault((Code.PICKLE_UNREADABLE, "blocker"), []).append((message, f"opcodes of {path}"))
    for (code, severity), found in said.items():
        yield from several(code, severity, found)


def _first(streams: tuple[PickleFacts, ...], verdict: str) -> PickleFacts | None:
    return next((facts for facts in streams if facts.verdict == verdict), None)


def _where(facts: PickleFacts) -> str:
    return f"{facts.path}, entry {facts.member}," if facts.member else facts.path
