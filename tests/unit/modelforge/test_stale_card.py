"""What went stale, for whoever has to mend it: causes once, and nothing that was mended already."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bus.messages.gates import Assessment
from modelforge.cli.stale_card import open_ones, stale_text
from tests.support.assessments import AT, assessment

DRIVER = ("driver changed from 1 to 2",)


def made(id_: str, minutes: int, because: tuple[str, ...] = (), **changes: Any) -> Assessment:
    return assessment(id=id_, created_at=AT + timedelta(minutes=minutes), stale_because=because, **changes)


def test_only_a_newer_answer_to_the_same_question_replaces_a_stale_one() -> None:
    old = made("asm-old", 1, DRIVER)
    current = made("asm-new", 2)
    assert open_ones([old], [current, old]) == []
    for other in (
        made("asm-node", 2, node="far"),
        made("asm-profile", 2, profile_id=f"sha256:{'cd' * 32}"),
        made("asm-set", 2, set_digest=f"sha256:{'cd' * 32}"),
        made("asm-stale", 2, DRIVER),
        made("asm-older", 0),
    ):
        assert open_ones([old], [other, old]) == [old]


def test_equal_causes_are_told_once_and_replaced_ones_are_counted() -> None:
    shown = [made("asm-1", 3, DRIVER), made("asm-2", 2, ("python changed from 3 to 4",)), made("asm-3", 1, DRIVER)]
    said = stale_text(shown, replaced=4).split("\n\n")
    assert [line.split()[0] for line in said[0].splitlines()] == ["asm-1", "asm-3", "-"]
    assert said[1].startswith("asm-2 ")
    assert said[2] == "and 4 older ones that newer assessments replaced"


@pytest.mark.parametrize(("replaced", "words"), [(0, "no assessment is stale"), (1, "replaced 1 older one")])
def test_nothing_to_mend_says_why(replaced: int, words: str) -> None:
    assert words in stale_text([], replaced=replaced)
