"""Quarantine: the bytes count, in every set; only an approval of the exact set made after it lets one through."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.artifacts import ArtifactSet, FileEntry, Manifest, PickleFacts, Quarantine, SetEvidence
from bus.messages.gates import Purpose
from controller.store import quarantines, sets
from tests.support.gates import counts, refused
from tests.support.leased_scans import end, leased
from tests.support.ledger import Lab, model_files, open_lab, scanned

Verdict = Literal["tensors", "plain", "code", "unreadable"]
OTHER = {"README.md": b"another set with the same weights"}


async def quarantine(lab: Lab, digest: str, path: str = "model.safetensors", **fields: Any) -> Quarantine:
    request = api.QuarantineRequest(set_digest=digest, path=path, reason=fields.get("reason", "not from us"))
    made: Quarantine = await lab.call("artifacts.quarantine", request)
    return made


async def shown(lab: Lab, digest: str) -> ArtifactSet:
    found: ArtifactSet = await lab.call("artifacts.show", api.ById(id=digest))
    return found


async def weights_of(lab: Lab, digest: str) -> FileEntry:
    manifest = await lab.store.read(lambda tx: sets.manifest(tx, digest))
    return next(file for file in manifest.files if file.path == "model.safetensors")


async def whats(lab: Lab, entity_id: str) -> list[tuple[str, str]]:
    trail = await lab.call("audit.list", api.AuditRequest(id=entity_id))
    return [(entry.what, entry.actor) for entry in reversed(trail.entries)]


async def scan_with_pickle(lab: Lab, verdict: Verdict, path: str = "a-folder", **facts: Any) -> str:
    """A scan that says of `data.pkl` what a scan of such a file says; the digest of its set."""
    manifest, evidence = scanned(model_files(**{"data.pkl": b"cos\nsystem\n(S'true'\ntR."}))
    pickle = PickleFacts(path="data.pkl", verdict=verdict, **{"reason": "it names os.system", **facts})
    scan = await leased(lab, path)
    view = await end(lab, scan, (manifest, msgspec.structs.replace(evidence, pickles=(pickle,))))
    assert view.set_digest is not None, view.failure
    return view.set_digest


@pytest.mark.req("A5")
async def test_bytes_that_are_quarantined_are_so_in_every_set_that_has_them(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        first = await lab.scan()
        second = await lab.scan(model_files(**OTHER), "second")
        made = await quarantine(lab, first)
        third = await lab.scan(model_files(NOTICE=b"recorded after the quarantine"), "third")
        clean = await lab.scan(model_files(**{"model.safetensors": b"other bytes"}), "clean")
        for digest in (first, second, third):
            assert (await shown(lab, digest)).quarantined == (made,)
        assert (await shown(lab, clean)).quarantined == ()
        listed = (await lab.call("artifacts.list", api.Page())).sets
        assert {one.digest: len(one.quarantined) for one in listed} == {first: 1, second: 1, third: 1, clean: 0}
        assert (made.set_digest, made.path, made.reason, made.quarantined_by) == (
            first, "model.safetensors", "not from us", "user:alice",
        )  # fmt: skip
        assert await whats(lab, made.id) == [("added", "user:alice")]
        assert ("quarantined", "user:alice") in await whats(lab, second)


@pytest.mark.req("A4")
async def test_bytes_that_are_quarantined_already_keep_their_first_reason(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        first = await lab.scan()
        second = await lab.scan(model_files(**OTHER), "second")
        made = await quarantine(lab, first)
        before = await counts(lab)
        assert await quarantine(lab, second, reason="other words") == made
        assert await counts(lab) == before


@pytest.mark.req("A4")
async def test_a_member_that_is_not_there_and_a_missing_reason_are_refused(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        before = await counts(lab)
        await refused(quarantine(lab, digest, "model.safetensors/../config.json"), ErrorCode.UNKNOWN_ID)
        await refused(quarantine(lab, "sha256:ffffff"), ErrorCode.UNKNOWN_ID)
        await refused(quarantine(lab, digest, reason="  "), ErrorCode.INVALID_ARGUMENT)
        assert await counts(lab) == before


@pytest.mark.req("A4", "A5")
async def test_a_pickle_that_would_run_code_is_quarantined_when_it_is_recorded(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        imports = ("os.system", "builtins.eval")
        digest = await scan_with_pickle(lab, "code", imports=imports)
        [made] = (await shown(lab, digest)).quarantined
        assert (made.path, made.quarantined_by, made.released_by) == ("data.pkl", "controller", None)
        assert "os.system" in made.reason
        assert ("quarantined", "controller") in await whats(lab, digest)
        assert await scan_with_pickle(lab, "code", imports=imports) == digest
        assert (await shown(lab, digest)).quarantined == (made,), "another scan changes nothing"


@pytest.mark.req("A4")
@pytest.mark.parametrize("verdict", ["tensors", "plain", "unreadable"])
async def test_another_pickle_is_not_quarantined(tmp_path: Path, verdict: Verdict) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        assert (await shown(lab, await scan_with_pickle(lab, verdict))).quarantined == ()


@pytest.mark.req("A4")
async def test_a_set_that_was_recorded_before_its_pickles_were_read_is_judged_at_the_next_scan(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await scan_with_pickle(lab, "plain")
        assert await scan_with_pickle(lab, "code", imports=("posix.system",), reason="it calls something") == digest
        [made] = (await shown(lab, digest)).quarantined
        assert "posix.system" in made.reason, "the reason names an import where the verdict's words do not"


@pytest.mark.req("A4")
async def test_facts_about_a_member_that_is_none_quarantine_nothing(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        first = await lab.scan()
        manifest, evidence = scanned(model_files(**OTHER))
        lie = PickleFacts(path="../elsewhere.pkl", verdict="code", reason="a lie")
        scan = await leased(lab, "liar")
        view = await end(lab, scan, (manifest, msgspec.structs.replace(evidence, pickles=(lie,))))
        assert view.state == "succeeded"
        assert (await shown(lab, first)).quarantined == ()
        assert (await lab.rows("SELECT count(*) AS n FROM quarantines"))[0]["n"] == 0


@pytest.mark.req("A5", "G4")
async def test_only_a_later_approval_of_the_exact_set_releases_it(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        first = await lab.scan()
        second = await lab.scan(model_files(**OTHER), "second")
        await refused(lab.approve(first, "quarantine_release"), ErrorCode.INVALID_ARGUMENT)
        await quarantine(lab, first)
        purposes: tuple[Purpose, ...] = ("lab_execution", "pickle", "production")
        for purpose in purposes:
            await lab.approve(first, purpose)
        assert [one.released_by for one in (await shown(lab, first)).quarantined] == [None]
        release = await lab.approve(first, "quarantine_release")
        assert [one.released_by for one in (await shown(lab, first)).quarantined] == [release.id]
        assert [one.released_by for one in (await shown(lab, second)).quarantined] == [None], "the exact set alone"
        assert await lab.approve(first, "quarantine_release") == release
        await lab.call("approvals.revoke", api.RevokeRequest(id=release.id, reason="no"))
        assert [one.released_by for one in (await shown(lab, first)).quarantined] == [None]


@pytest.mark.req("A5", "G6")
async def test_a_newer_quarantine_ends_an_older_release_only_when_a_new_one_is_given(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        await quarantine(lab, digest)
        old = await lab.approve(digest, "quarantine_release")
        await quarantine(lab, digest, "config.json")
        released = {one.path: one.released_by for one in (await shown(lab, digest)).quarantined}
        assert released == {"model.safetensors": old.id, "config.json": None}
        new = await lab.approve(digest, "quarantine_release")
        assert new.id != old.id
        released = {one.path: one.released_by for one in (await shown(lab, digest)).quarantined}
        assert released == {"model.safetensors": new.id, "config.json": new.id}
        assert await whats(lab, old.id) == [("added", "user:alice"), ("revoked", "user:alice")]
        assert await whats(lab, new.id) == [("added", "user:alice")]
        listed = (await lab.call("approvals.list", api.Page())).approvals
        [revoked] = [one for one in listed if one.id == old.id]
        assert (revoked.revoked_by, (revoked.revoke_reason or "")[:10]) == ("alice", "superseded")


@pytest.mark.req("A18", "A5")
async def test_a_quarantine_makes_what_rests_on_the_set_stale_at_once(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await lab.ready()
        second = await lab.scan(model_files(**OTHER), "second")
        await quarantine(lab, second)
        stale = (await lab.call("assessments.show", api.ById(id=assessment.id))).stale_because
        assert any("quarantine" in reason for reason in stale), stale
        await refused(lab.queue(assessment.id), ErrorCode.ASSESSMENT_STALE)


@pytest.mark.req("A4")
@pytest.mark.parametrize("sql", ["UPDATE quarantines SET reason = 'better'", "DELETE FROM quarantines"])
async def test_a_quarantine_is_never_rewritten(tmp_path: Path, sql: str) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        await quarantine(lab, await lab.scan())
        with pytest.raises(Exception, match="a quarantine is immutable"):
            await lab.store.write(lambda tx: tx._connection.execute(sql))


@pytest.mark.req("A4")
async def test_a_path_that_looks_like_a_digest_is_not_taken_for_a_member(tmp_path: Path) -> None:
    """The search for sets reads manifests as text: what a path says must not count."""
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        first = await lab.scan()
        weights = await weights_of(lab, first)
        hostile = model_files(
            **{"model.safetensors": b"other", f'"sha256":"{weights.sha256}"': b"x", weights.sha256: b"y"}
        )
        other = await lab.scan(hostile, "other")
        await quarantine(lab, first)
        assert (await shown(lab, other)).quarantined == ()


async def test_every_set_is_marked_and_the_trail_names_the_first(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan()
        weights = await weights_of(lab, digest)

        def fill(tx: Any) -> list[str]:
            made = []
            for number in range(150):
                entry = msgspec.structs.replace(weights, path=f"w-{number}")
                manifest = Manifest(files=(entry,))
                sets.put(tx, manifest.digest(), manifest, SetEvidence())
                made.append(manifest.digest())
            return made

        made = await lab.store.write(fill)
        await quarantine(lab, digest)
        marked = await lab.rows("SELECT set_digest FROM quarantined_members")
        assert {row["set_digest"] for row in marked} == {digest, *made}
        trail = await lab.call("audit.list", api.AuditRequest(limit=1_000))
        assert sum(entry.what == "quarantined" for entry in trail.entries) == 100, "the trail is bounded"


async def test_a_quarantine_reads_no_manifest_and_names_a_bounded_number_of_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantines, "MAX_NAMED_SETS", 3)
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        made = [await lab.scan(model_files(NOTICE=str(number).encode()), f"{number}") for number in range(5)]
        weights = await weights_of(lab, made[4])

        def without_manifests(tx: Any) -> dict[str, list[str]]:
            def allow(_action: int, table: str | None, column: str | None, *_: str | None) -> int:
                return sqlite3.SQLITE_DENY if (table, column) == ("artifact_sets", "manifest") else sqlite3.SQLITE_OK

            tx._connection.set_authorizer(allow)
            try:
                with pytest.raises(sqlite3.DatabaseError, match="manifest"):
                    sets.manifest(tx, made[4])
                reasons = {weights.sha256: "why"}
                _, marked = quarantines.insert(tx, made[4], {weights.sha256: weights.path}, reasons, "user:alice")
                return marked
            finally:
                tx._connection.set_authorizer(None)

        marked = await lab.store.write(without_manifests)
        assert list(marked) == [made[4], made[0], made[1]], "the set in which they were found, and the oldest others"
        rows = await lab.rows("SELECT set_digest FROM quarantined_members")
        assert {row["set_digest"] for row in rows} == set(made), "what is not named is quarantined all the same"


async def test_each_of_the_bytes_of_a_set_stands_in_the_index_once(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        digest = await lab.scan(model_files(**{"again/model.safetensors": b"same", "model.safetensors": b"same"}))
        manifest = await lab.store.read(lambda tx: sets.manifest(tx, digest))
        rows = await lab.rows("SELECT lower(hex(sha256)) AS sha256 FROM set_members")
        assert [row["sha256"] for row in rows] == sorted({file.sha256 for file in manifest.files})
        assert len(rows) == len(manifest.files) - 1
