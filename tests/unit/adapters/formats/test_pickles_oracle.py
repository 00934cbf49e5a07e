"""Nothing that Python's own unpicklers would import passes, whatever the file is called."""

from __future__ import annotations

import io
import re
from typing import Final

import pytest

from adapters.formats.evidence import EvidenceCollector
from tests.support.pickle_oracle import Reached, Streams, reached

CASES: Final = 400
SEEDS: Final = range(6)
STRICT: Final = ("weights.bin", "model.pt", "data.pkl")
OTHER: Final = ("notes.txt", "tokenizer.model", "vocab.json", "model.safetensors")
TEXTS: Final = frozenset({"text", "json", "python", "script", "html"})
# A longer name than this is none that anybody has.
IMPORTABLE: Final = re.compile(r"[\w.-]{1,1000}")


def judged(data: bytes, name: str) -> tuple[frozenset[str], str]:
    """The verdicts about a file of this name, and its format."""
    collector = EvidenceCollector()
    collector.add(name, io.BytesIO(data), len(data))
    evidence = collector.result()
    return frozenset(facts.verdict for facts in evidence.pickles), evidence.formats[name]


def passes(data: bytes, real: Reached) -> list[str]:
    """Names under which a file passes although an unpickler would import something from it."""
    used = _possible(real.used)
    wrong = []
    for name in (*STRICT, *OTHER):
        verdicts, found = judged(data, name)
        counts = used or (_possible(real.names) and (name in STRICT or found not in TEXTS))
        if counts and not verdicts & {"code", "unreadable"}:
            wrong.append(name)
        if used and "code" not in verdicts and verdicts != {"unreadable"}:
            wrong.append(name)
    return wrong


def _possible(names: tuple[tuple[str, str], ...]) -> bool:
    return any(IMPORTABLE.fullmatch(module) and IMPORTABLE.fullmatch(name) for module, name in names)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_an_unpickler_would_import_passes_under_no_name(seed: int) -> None:
    streams = Streams(seed)
    cases = [streams.one() for _ in range(CASES)]
    answers = reached(cases)
    wrong = [(case, names) for case, real in zip(cases, answers, strict=True) if (names := passes(case, real))]

    assert sum(bool(real.names) for real in answers) > CASES / 4
    assert not wrong, wrong[0]
