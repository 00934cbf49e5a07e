"""Evidence is asked for once for each state of a probe, kept within a bound, and asked anew after an outage."""

from __future__ import annotations

import msgspec

from bus.states import ProbeState
from tests.support.pictures import NOW, cpu_evidence, probe
from tui.evidence_cache import MAX_KEPT, EvidenceCache

DONE = probe("a", ProbeState.COMPLETED, 10, 5)
FULL = msgspec.structs.replace(DONE, evidence=cpu_evidence())


def test_it_asks_once_until_the_probe_changes() -> None:
    cache = EvidenceCache()
    assert [cache.should_ask(DONE), cache.should_ask(DONE)] == [True, False]
    assert cache.why_missing(DONE) == "asking the controller"
    cache.keep(DONE, FULL)
    assert not cache.should_ask(DONE)
    assert cache.why_missing(DONE) is None
    assert cache.with_evidence(DONE) is FULL
    assert cache.should_ask(msgspec.structs.replace(DONE, state_at=NOW))


def test_it_never_asks_for_what_cannot_be_there_or_is_there() -> None:
    cache = EvidenceCache()
    loading = probe("b", ProbeState.LOADING, 10, 5)
    assert not cache.should_ask(loading)
    assert cache.why_missing(loading) is None
    assert not cache.should_ask(FULL)
    assert cache.with_evidence(FULL) is FULL


def test_a_refusal_is_kept_until_the_link_is_back() -> None:
    cache = EvidenceCache()
    assert cache.should_ask(DONE)
    cache.keep(DONE, "NO_CONTROLLER: nobody answers")
    assert not cache.should_ask(DONE)
    assert cache.why_missing(DONE) == "NO_CONTROLLER: nobody answers"
    assert cache.with_evidence(DONE) is DONE
    cache.forget_refusals()
    assert cache.should_ask(DONE)


def test_it_is_bounded() -> None:
    cache = EvidenceCache()
    views = [probe(f"{number}", ProbeState.FAILED, 10, 5) for number in range(MAX_KEPT + 10)]
    for view in views:
        cache.keep(view, msgspec.structs.replace(view, evidence=cpu_evidence()))
    kept = [view for view in views if cache.with_evidence(view) is not view]
    assert kept == views[10:]
