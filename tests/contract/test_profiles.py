"""Profiles: immutable, versioned under their name, and a conflict says what differs and what to do (spec G1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus.codec import decode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages import api
from bus.messages.profiles import AudioSemantics, Budgets, ProfileView, RuntimeProfile
from tests.support.gates import counts, refused
from tests.support.ledger import Lab, open_lab


async def version(lab: Lab, **changes: Any) -> ProfileView:
    """A profile stored as the next version of its name."""
    profile = RuntimeProfile(**{"name": "cpu", **changes})
    view: ProfileView = await lab.call("profiles.create", api.ProfileRequest(profile=profile, new_version=True))
    return view


async def shown(lab: Lab, typed: str) -> ProfileView:
    view: ProfileView = await lab.call("profiles.show", api.ById(id=typed))
    return view


@pytest.mark.req("G1")
async def test_other_contents_are_refused_with_what_differs_and_the_way_out(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        first = await lab.profile()
        before = await counts(lab)
        error = await refused(
            lab.profile(batch_size=8, normalize=False, budgets=Budgets(loading_s=10)), ErrorCode.PROFILE_CONFLICT
        )
        assert "version 1" in error.message
        assert "batch_size from 1 to 8; normalize from yes to no; budgets.loading_s from 300 to 10" in error.message
        assert "--new-version" in error.message
        assert error.context["id"] == first.id
        assert await counts(lab) == before
        assert await shown(lab, "cpu") == first


@pytest.mark.req("G1")
async def test_a_new_version_leaves_the_older_ones_as_they_are(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        one = await lab.profile()
        two = await version(lab, batch_size=2)
        three = await version(lab, batch_size=3)
        assert [view.version for view in (one, two, three)] == [1, 2, 3]
        assert await shown(lab, "cpu") == three
        assert [await shown(lab, f"cpu@{number}") for number in (1, 2, 3)] == [one, two, three]
        assert await shown(lab, two.id) == two
        listed = (await lab.call("profiles.list", api.Page())).profiles
        assert listed == (three, two, one)
        trail = (await lab.call("audit.list", api.AuditRequest(id=three.id))).entries
        assert [(entry.what, entry.detail["version"]) for entry in trail] == [("created", "3")]


@pytest.mark.req("G1")
async def test_the_same_contents_are_the_same_profile_whichever_version_they_are(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        one, two = await lab.profile(), await version(lab, batch_size=2)
        before = await counts(lab)
        assert await lab.profile() == one
        assert await version(lab) == one
        assert await version(lab, batch_size=2) == two
        assert await counts(lab) == before
        error = await refused(lab.profile(batch_size=3), ErrorCode.PROFILE_CONFLICT)
        assert "version 2" in error.message
        assert "batch_size from 2 to 3" in error.message, "the newest version is what others would expect"


async def test_a_first_profile_may_be_asked_for_as_a_new_version(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assert (await version(lab)).version == 1


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("cpu@2", "the profile cpu has no version 2; its newest is 1"),
        ("gpu@1", "there is no profile 'gpu'"),
        ("cpu@0", "there is no profile 'cpu@0'"),
        ("cpu@x", "there is no profile 'cpu@x'"),
        ("cpu@1000000000000", "there is no profile"),
        ("@1", "there is no profile '@1'"),
    ],
)
async def test_a_version_that_is_not_there_is_told_in_words(tmp_path: Path, typed: str, words: str) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.profile()
        error = await refused(shown(lab, typed), ErrorCode.UNKNOWN_ID)
        assert words in error.message


@pytest.mark.req("G1", "A1")
async def test_an_assessment_names_the_version_that_it_was_made_for(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        one, two = await lab.profile(), await version(lab, batch_size=2)
        old, new = await lab.assess(digest, "cpu@1"), await lab.assess(digest)
        assert (old.profile_id, new.profile_id) == (one.id, two.id)
        assert old.stale_because == (), "a newer version takes nothing from what was assessed with the older"
        assert old.fingerprint != new.fingerprint


@pytest.mark.parametrize(
    "fields",
    [
        {"audio": AudioSemantics()},
        {"device": "cpu", "gpu_uuid": "GPU-1"},
        {"memory_margin_mib": 2**31},
    ],
)
async def test_a_profile_that_breaks_a_rule_is_not_stored(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with open_lab(tmp_path) as lab:
        await refused(lab.profile(**fields), ErrorCode.INVALID_ARGUMENT)
        await refused(version(lab, **fields), ErrorCode.INVALID_ARGUMENT)
        assert (await lab.rows("SELECT count(*) AS n FROM profiles"))[0]["n"] == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("device", '"cuda-preferred"'), ("dtype", '"int3"'), ("threads", "-1"), ("threads", "9" * 5_000), ("task", "{}")],
)
def test_a_value_that_no_profile_has_is_refused_with_its_place_in_the_request(field: str, value: str) -> None:
    with pytest.raises(ModelForgeError) as caught:
        decode(f'{{"profile": {{"name": "cpu", "{field}": {value}}}}}'.encode(), api.ProfileRequest)
    assert caught.value.code is ErrorCode.MALFORMED_MESSAGE
    assert caught.value.message.endswith(f"- at `$.profile.{field}`")


async def test_a_conflict_of_very_many_fields_stays_readable(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.profile()
        with pytest.raises(ModelForgeError) as caught:
            await lab.profile(
                batch_size=2, max_sequence_length=2, normalize=False, threads=2, memory_limit_mib=2, dtype="float16",
                reclaim_tolerance_mib=2, memory_margin_mib=2, quantization="gptq", task="reranking",
            )  # fmt: skip
        assert "; and 2 more" in caught.value.message
