"""Staleness at the ledger: whatever changes is named from what to what, alone, wherever an assessment is read (A18)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages import api
from bus.messages.artifacts import SetEvidence
from bus.messages.gates import Assessment
from bus.messages.inventory import NodeInventory
from bus.messages.profiles import AdapterFacts
from controller import api_assessment
from controller.api_base import MAX_LIST_BYTES
from controller.gates import probes as probe_gate
from controller.store import assessments, sets
from controller.store.tx import Tx
from tests.support.gates import refused
from tests.support.ledger import (
    NODE,
    PATH,
    WHOLE_RUN,
    Lab,
    card,
    environment,
    hardware,
    inventory,
    model_files,
    open_lab,
    scanned,
    with_adapter,
)

Step = Callable[[Lab, str], Awaitable[Any]]
MEMBER = "model.safetensors"


def says(**changes: Any) -> Step:
    """The node's next word."""
    return lambda lab, _digest: lab.hello(inventory(sequence=2, **changes))


def declares(**changes: Any) -> Step:
    return lambda lab, _digest: lab.hello(with_adapter(inventory(sequence=2), **changes))


def flags(**changes: bool) -> Step:
    return lambda lab, _digest: lab.call("nodes.set", api.NodeFlagsRequest(name=NODE, reason="a test", **changes))


def corrupted(file: str | None) -> Step:
    async def step(lab: Lab, _digest: str) -> None:
        problem, found_by = "other bytes than its digest", "prb-0000000000"
        await lab.store.write(lambda tx: sets.corrupt(tx, NODE, PATH, file=file, problem=problem, found_by=found_by))

    return step


async def quarantined(lab: Lab, digest: str) -> None:
    await lab.call("artifacts.quarantine", api.QuarantineRequest(set_digest=digest, path=MEMBER, reason="bad"))


async def released(lab: Lab, digest: str) -> None:
    await quarantined(lab, digest)
    await lab.approve(digest, "quarantine_release")


async def pickle_approved(lab: Lab, digest: str) -> None:
    await lab.approve(digest, "pickle")


async def read_again(lab: Lab, digest: str) -> None:
    """The same bytes, read by other rules that say more of them."""
    manifest, evidence = scanned(model_files())
    richer = msgspec.structs.replace(evidence, notes=(*evidence.notes, "a new note"), scanner="scan.99")
    await lab.store.write(lambda tx: sets.put(tx, digest, manifest, richer))


async def replaced(lab: Lab, _digest: str) -> None:
    await lab.scan(model_files(**{"README.md": b"another set at the same place"}))


NEW_ADAPTER = AdapterFacts(name="vllm", version="0.9", executable=False, reason="inspects only")
WITH_VLLM = environment(adapters=(*environment().adapters, NEW_ADAPTER))
CHANGES: dict[str, tuple[Step, str]] = {
    "driver": (says(hardware=hardware(driver_version="575.51")), "driver changed from 570.86 to 575.51"),
    "cuda": (says(hardware=hardware(driver_version="570.86", cuda_version="13")), "cuda changed from none to 13"),
    "card": (
        says(hardware=hardware(driver_version="570.86", gpus=(card(),))),
        "gpu GPU-1 changed from absent to Test card 17179869184 B cc 9.0",
    ),
    "memory": (
        says(hardware=hardware(driver_version="570.86", memory_total_bytes=16 * 1024**3)),
        "host memory changed from 8 GiB to 16 GiB",
    ),
    "capability": (says(capabilities=()), "node probes changed from yes to no"),
    "python": (says(environment=environment(python="3.12.0")), "python changed from 3.11.7 to 3.12.0"),
    "image": (says(environment=environment(image="lab:2")), "image changed from none to lab:2"),
    "package": (
        says(environment=environment(packages={**environment().packages, "torch": "2.14.0"})),
        "package torch changed from 2.13.0 to 2.14.0",
    ),
    "package gone": (
        says(environment=environment(packages={"torch": "2.13.0", "transformers": "5.24.0"})),
        "package sentence-transformers changed from 6.2.0 to absent",
    ),
    "adapter version": (declares(version="7.0.0"), "adapter version changed from 6.2.0 to 7.0.0"),
    "adapter types": (declares(model_types=("bert", "gpt2")), "adapter model types changed from bert to bert, gpt2"),
    "other adapter": (says(environment=WITH_VLLM), "environment changed from * to *: adapter vllm came"),
    "disabled": (flags(enabled=False), "node enabled changed from yes to no"),
    "ineligible": (flags(lab_eligible=False), "node lab-eligible changed from yes to no"),
    "corrupt": (
        corrupted(MEMBER),
        f"set integrity changed from verified to corrupt: {MEMBER}: other bytes than its digest",
    ),
    "corrupt somewhere": (
        corrupted(None),
        "set integrity changed from verified to corrupt: other bytes than its digest",
    ),
    "quarantine": (quarantined, f"quarantine changed from none to {MEMBER}"),
    "released": (released, f"quarantine changed from none to {MEMBER} released"),
    "pickle": (pickle_approved, "pickle approval changed from none to approved"),
    "replaced": (replaced, f"set location changed from {PATH} to none"),
}
HARDWARE_STAYS = hardware(driver_version="570.86")


def first_word() -> NodeInventory:
    return inventory(hardware=HARDWARE_STAYS)


async def assessed(lab: Lab) -> Assessment:
    await lab.hello(first_word())
    digest = await lab.scan()
    await lab.profile()
    assessment = await lab.assess(digest)
    await lab.approve(digest)
    return assessment


async def shown(lab: Lab, assessment_id: str) -> Assessment:
    found: Assessment = await lab.call("assessments.show", api.ById(id=assessment_id))
    return found


async def listed(lab: Lab, limit: int = 200, *, stale_only: bool = False) -> api.Assessments:
    request = api.AssessmentsRequest(limit=limit, stale_only=stale_only)
    found: api.Assessments = await lab.call("assessments.list", request)
    return found


def matches(sentence: str, wanted: str) -> bool:
    start, _, rest = wanted.partition("*")
    return sentence.startswith(start) and sentence.endswith(rest.rpartition("*")[2] if rest else wanted)


def keeps_hardware(step: Step) -> Step:
    """The node's other facts stay as they were: only what the change is about moves."""

    async def wrapped(lab: Lab, digest: str) -> None:
        await step(lab, digest)
        row = (await lab.rows("SELECT inventory FROM nodes"))[0]
        said = msgspec.json.decode(row["inventory"], type=NodeInventory)
        if said.hardware == hardware():
            await lab.hello(msgspec.structs.replace(said, hardware=HARDWARE_STAYS))

    return wrapped


@pytest.mark.req("A18", "A19")
@pytest.mark.parametrize("change", sorted(CHANGES))
async def test_a_changed_fact_is_named_alone_wherever_the_assessment_is_read(tmp_path: Path, change: str) -> None:
    step, wanted = CHANGES[change]
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        assert assessment.stale_because == ()
        await keeps_hardware(step)(lab, assessment.set_digest)
        [sentence] = (await shown(lab, assessment.id)).stale_because
        assert matches(sentence, wanted), sentence
        [stale] = (await listed(lab, stale_only=True)).assessments
        assert (stale.id, stale.stale_because) == (assessment.id, (sentence,))
        error = await refused(lab.queue(assessment.id), ErrorCode.ASSESSMENT_STALE)
        assert sentence in error.message
        again = await lab.assess(assessment.set_digest)
        assert again.stale_because == (), "what is assessed now rests on what holds now"


@pytest.mark.req("A18")
async def test_every_part_of_a_new_reading_is_named(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        await read_again(lab, assessment.set_digest)
        found = (await shown(lab, assessment.id)).stale_because
        assert [sentence.split(" changed from ")[0] for sentence in found] == ["scan rules", "set notes"]
        assert found[0].endswith(" to scan.99")


@pytest.mark.req("A18")
async def test_what_is_put_back_is_current_again(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        await corrupted(MEMBER)(lab, assessment.set_digest)
        assert (await shown(lab, assessment.id)).stale_because != ()
        await lab.scan()
        assert (await shown(lab, assessment.id)).stale_because == (), "a scan found the very bytes there"
        await lab.hello(inventory(sequence=3))
        assert (await shown(lab, assessment.id)).stale_because == ("driver changed from 570.86 to none",)
        await lab.hello(msgspec.structs.replace(first_word(), sequence=4))
        assert (await shown(lab, assessment.id)).stale_because == ()


@pytest.mark.req("A18", "A4")
async def test_a_release_that_is_taken_back_is_a_change_of_its_own(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        await quarantined(lab, assessment.set_digest)
        release = await lab.approve(assessment.set_digest, "quarantine_release")
        again = await lab.assess(assessment.set_digest)
        assert again.facts["quarantine"] == f"{MEMBER} released"
        await lab.call("approvals.revoke", api.RevokeRequest(id=release.id, reason="a mistake"))
        assert (await shown(lab, again.id)).stale_because == (f"quarantine changed from {MEMBER} released to {MEMBER}",)


@pytest.mark.req("A18", "P5")
async def test_a_corrupt_place_is_stale_though_a_good_copy_lies_elsewhere(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        await lab.scan(path="a/copy")
        assert (await shown(lab, assessment.id)).stale_because == ()
        await corrupted(MEMBER)(lab, assessment.set_digest)
        [sentence] = (await shown(lab, assessment.id)).stale_because
        assert sentence.startswith("set integrity changed from verified to corrupt")
        again = await lab.assess(assessment.set_digest)
        assert (again.facts["set location"], again.facts["set integrity"]) == ("a/copy", "verified")


@pytest.mark.req("A18")
async def test_hundreds_of_model_types_stay_one_short_fact_whose_change_is_said_exactly(tmp_path: Path) -> None:
    types = tuple(f"model-type-{number:03}" for number in range(450))
    async with open_lab(tmp_path) as lab:
        await lab.hello(with_adapter(first_word(), model_types=("bert", *types)))
        digest = await lab.scan()
        await lab.profile()
        assessment = await lab.assess(digest)
        assert len(assessment.facts["adapter model types"]) < 100
        after = ("bert", "gemma4", *types[:-1])
        await lab.hello(with_adapter(msgspec.structs.replace(first_word(), sequence=2), model_types=after))
        [sentence] = (await shown(lab, assessment.id)).stale_because
        assert sentence.startswith("adapter model types changed from 451 (sha256:")
        assert sentence.endswith("): gemma4 came; model-type-449 went")


@pytest.mark.req("A18")
async def test_an_assessment_of_the_first_rules_is_stale_with_one_sentence(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        old = msgspec.structs.replace(
            assessment,
            id="asm-0000000001",
            facts={"set": assessment.set_digest, "gpus": "none"},
            fingerprint="sha256:" + "0" * 64,
        )
        await lab.store.write(lambda tx: assessments.insert(tx, old))
        assert (await shown(lab, old.id)).stale_because == ("fingerprint rules changed from 1 to 2",)


@pytest.mark.req("A18")
async def test_facts_that_do_not_give_their_fingerprint_are_no_evidence(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        forged = msgspec.structs.replace(assessment, id="asm-0000000001", fingerprint="sha256:" + "0" * 64)
        await lab.store.write(lambda tx: assessments.insert(tx, forged))
        [sentence] = (await shown(lab, forged.id)).stale_because
        assert "do not give the fingerprint" in sentence


@pytest.mark.req("A19", "A4", "A5")
@pytest.mark.parametrize("change", ["corrupt", "quarantine", "driver", "replaced"])
async def test_what_went_stale_stops_a_waiting_probe_at_its_claim(tmp_path: Path, change: str) -> None:
    step, wanted = CHANGES[change]
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        probe = await lab.queue(assessment.id)
        assert await lab.store.write(lambda tx: probe_gate.still_allowed(tx, probe.id)) is None
        await step(lab, assessment.set_digest)
        failure = await lab.store.write(lambda tx: probe_gate.still_allowed(tx, probe.id))
        assert failure is not None
        assert failure.code == ErrorCode.ASSESSMENT_STALE
        assert wanted in failure.message


@pytest.mark.req("A18")
async def test_the_stale_ones_are_looked_for_behind_the_current_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assessments, "PAGE", 3)
    async with open_lab(tmp_path) as lab:
        first = await assessed(lab)
        second = await lab.assess(first.set_digest)
        await lab.hello(inventory(sequence=2))
        current = [await lab.assess(first.set_digest) for _ in range(8)]
        found = await listed(lab, 10, stale_only=True)
        assert [one.id for one in found.assessments] == [second.id, first.id]
        assert not found.truncated
        page = await listed(lab, 1, stale_only=True)
        assert ([one.id for one in page.assessments], page.truncated) == ([second.id], True)
        everything = await listed(lab, 10)
        assert [one.id for one in everything.assessments[:8]] == [one.id for one in reversed(current)]
        monkeypatch.setattr(api_assessment, "MAX_SEARCHED", 9)
        short = await listed(lab, 10, stale_only=True)
        assert ([one.id for one in short.assessments], short.truncated) == ([second.id], True), "it is said"


async def test_a_list_of_200_fits_one_message_and_reads_the_node_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    plain = Tx._execute

    def counted(self: Tx, query: str, parameters: Any) -> Any:
        asked.append(query)
        return plain(self, query, parameters)

    packages = {f"package-{number}": "1.2.3" for number in range(80)}
    word = with_adapter(first_word(), model_types=("bert", *(f"type-{number}" for number in range(450))))
    word = msgspec.structs.replace(word, environment=msgspec.structs.replace(word.environment, packages=packages))
    async with open_lab(tmp_path) as lab:
        await lab.hello(word)
        digest = await lab.scan()
        await lab.profile()
        one = await lab.assess(digest)

        def many(tx: Tx) -> None:
            for number in range(199):
                assessments.insert(tx, msgspec.structs.replace(one, id=f"asm-{number:010}"))

        await lab.store.write(many)
        monkeypatch.setattr(Tx, "_execute", counted)
        found = await listed(lab)
        monkeypatch.undo()
        assert (len(found.assessments), found.truncated) == (200, False)
        assert len(encode(found)) < MAX_LIST_BYTES
        assert all(not assessment.facts and assessment.hardware is None for assessment in found.assessments)
        assert asked.count("nodes.get") == asked.count("sets.evidence") == asked.count("probes.proofs") == 1
        assert len(asked) < 20, asked
        whole = await shown(lab, one.id)
        assert whole.facts == one.facts
        assert whole.hardware == word.hardware


@pytest.mark.req("A1", "A18")
async def test_a_candidate_says_the_same_as_its_assessment(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        probe = await lab.queue(assessment.id)
        await lab.run(probe.id, *WHOLE_RUN)
        await lab.hello(inventory(sequence=2, hardware=hardware(driver_version="575.51")))
        [candidate] = (await lab.call("candidates.list", api.Page())).candidates
        assert candidate.stale_because == ("driver changed from 570.86 to 575.51",)


async def test_evidence_that_cannot_be_read_is_typed(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        assessment = await assessed(lab)
        broken = encode(SetEvidence()).decode().replace('"notes":[]', '"notes":5')
        digest = assessment.set_digest
        await lab.store.write(lambda tx: tx.run("sets.update_evidence", digest=digest, evidence=broken))
        with pytest.raises(ModelForgeError) as caught:
            await shown(lab, assessment.id)
        assert caught.value.code is ErrorCode.STORE_SCHEMA_MISMATCH
