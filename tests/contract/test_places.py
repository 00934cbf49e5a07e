"""A set that lies at several places of a node: an assessment is about exactly one of them, and so is its probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.codec import decode
from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.gates import Assessment
from bus.messages.jobs import ProbeJob
from bus.messages.profiles import RuntimeProfile
from controller.store import sets
from tests.support.gates import counts, refused
from tests.support.ledger import NODE, Lab, model_files, open_lab

FIRST, SECOND = "a/first", "b/second"


async def corrupt(lab: Lab, path: str) -> None:
    await lab.store.write(
        lambda tx: sets.corrupt(tx, NODE, path, file="model.safetensors", problem="other bytes", found_by="prb-one")
    )


async def assess_at(lab: Lab, digest: str, location: str | None) -> Assessment:
    request = api.AssessRequest(set_digest=digest, profile="cpu", node=NODE, location=location)
    made: Assessment = await lab.call("assessments.create", request)
    return made


async def stale(lab: Lab, assessment: Assessment) -> tuple[str, ...]:
    found: Assessment = await lab.call("assessments.show", api.ById(id=assessment.id))
    assert (found.location, found.profile_version) == (assessment.location, assessment.profile_version)
    return found.stale_because


async def two_places(lab: Lab) -> str:
    await lab.hello()
    digest = await lab.scan(path=SECOND)
    assert await lab.scan(path=FIRST) == digest
    await lab.profile()
    await lab.approve(digest)
    return digest


async def probed_at(lab: Lab, assessment: Assessment) -> str:
    """Where a probe of the assessment is sent to."""
    probe = await lab.queue(assessment.id)
    [row] = await lab.rows(f"SELECT payload FROM jobs WHERE id = '{probe.id}'")  # noqa: S608 -- an id of ours
    sent = decode(row["payload"], ProbeJob)
    assert sent.location == probe.location
    return sent.location


@pytest.mark.req("A5", "A18", "P5")
async def test_one_of_two_places_goes_bad_and_the_other_stays_good(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        digest = await two_places(lab)
        first, second = await assess_at(lab, digest, None), await assess_at(lab, digest, SECOND)
        assert (first.location, second.location) == (FIRST, SECOND)
        assert first.fingerprint != second.fingerprint, "what is proven of one place is not proven of the other"
        await corrupt(lab, FIRST)
        [sentence] = await stale(lab, first)
        assert sentence.startswith("set integrity changed from verified to corrupt")
        assert await stale(lab, second) == ()
        await refused(lab.queue(first.id), ErrorCode.ASSESSMENT_STALE)
        assert await probed_at(lab, second) == SECOND
        named = await assess_at(lab, digest, FIRST)
        assert (named.verdict, named.location) == ("blocked", FIRST), "what was asked for is what is assessed"
        assert (await assess_at(lab, digest, None)).location == SECOND, "one that is not corrupt comes first"
        await lab.scan(path=FIRST)
        assert await stale(lab, first) == (), "the very bytes are there again"
        assert await probed_at(lab, first) == FIRST
        [sentence] = await stale(lab, named)
        assert sentence.startswith("set integrity changed from corrupt")


@pytest.mark.req("A5")
async def test_of_corrupt_places_only_the_first_is_assessed(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        digest = await two_places(lab)
        await corrupt(lab, FIRST)
        await corrupt(lab, SECOND)
        made = await assess_at(lab, digest, None)
        assert (made.verdict, made.location) == ("blocked", FIRST)


@pytest.mark.req("P5")
async def test_a_place_that_does_not_hold_the_set_is_refused_with_those_that_do(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        digest = await two_places(lab)
        await lab.scan(model_files(**{"README.md": b"another set"}), path="c/other")
        for number in range(6):
            await lab.scan(path=f"more/{number}")
        before = await counts(lab)
        for wrong in ("c/other", "nowhere"):
            error = await refused(assess_at(lab, digest, wrong), ErrorCode.PATH_NOT_FOUND)
            assert f"does not lie at {wrong} on {NODE}" in error.message
            assert f"{FIRST}, {SECOND}, more/0, more/1, more/2 and 3 more" in error.message
            assert "c/other, " not in error.message
        await refused(assess_at(lab, digest, "../a/first"), ErrorCode.PATH_OUTSIDE_ROOT)
        await refused(assess_at(lab, digest, ""), ErrorCode.INVALID_ARGUMENT)
        assert await counts(lab) == before
        assert (await assess_at(lab, digest, f"./{FIRST}/")).location == FIRST, "another spelling of the same place"


async def test_a_set_that_lies_nowhere_has_no_place_to_name(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        digest = await two_places(lab)
        for path in (FIRST, SECOND):
            await lab.scan(model_files(**{"README.md": b"another set"}), path=path)
        assert (await assess_at(lab, digest, None)).location is None
        error = await refused(assess_at(lab, digest, FIRST), ErrorCode.PATH_NOT_FOUND)
        assert "nowhere there" in error.message


async def test_an_assessment_names_the_version_of_its_profile(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        digest = await two_places(lab)
        first = await assess_at(lab, digest, None)
        request = api.ProfileRequest(profile=RuntimeProfile(name="cpu", batch_size=2), new_version=True)
        await lab.call("profiles.create", request)
        second = await assess_at(lab, digest, None)
        assert (first.profile_version, second.profile_version) == (1, 2)
        assert await stale(lab, first) == await stale(lab, second) == ()
        found = await lab.call("assessments.list", api.AssessmentsRequest())
        assert [(one.profile_version, one.location) for one in found.assessments] == [(2, FIRST), (1, FIRST)]
