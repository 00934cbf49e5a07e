"""The packaged MiniLM in real children: the right vector, under every layer, by both ways of starting, as nobody too."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapters.child.protocol import Isolated, Loaded, Probed
from adapters.payloads import EMBEDDING_INPUT, EMBEDDING_INPUT_SHA256, cosine
from node_agent.worker import ChildFactory, WorkerSettings
from tests.support.children import Story, minilm, play, profile

pytestmark = pytest.mark.asyncio(loop_scope="module")
STEPS = ["Isolated", "Prepared", "Loaded", "Probed", "Checked", "Unloaded"]

# Plain sentence-transformers, as anybody would write it; then our adapter in the same process for the whole vector.
REFERENCE = """
import json, sys
from pathlib import Path
from sentence_transformers import SentenceTransformer
plain = SentenceTransformer(sys.argv[1], device="cpu", local_files_only=True).encode([sys.argv[2]])[0]
from adapters.base import ModelRequest
from adapters.embedding import EmbeddingAdapter
from bus.messages.profiles import RuntimeProfile
adapter = EmbeddingAdapter()
adapter.prepare(ModelRequest(
    model_path=Path(sys.argv[1]), scratch_path=Path("."), profile=RuntimeProfile(name="reference")))
adapter.start()
output = adapter.probe().output
print(json.dumps({"plain": plain.tolist(), "ours": adapter._vector, "sha256": output.vector_sha256}))
"""

AS_NOBODY = """
import asyncio, json, sys, tempfile
from pathlib import Path
from tests.support.unprivileged import become_nobody
import adapters.child.template_protocol, node_agent.worker, tests.support.children, encodings.idna
try:
    become_nobody([Path.cwd(), Path(sys.argv[1])])
except OSError as error:
    sys.exit(f"refused: {error}")
import os
from adapters.child.protocol import Isolated, Probed
from node_agent.worker import ChildFactory, WorkerSettings
from tests.support.children import play, profile
async def main():
    factory = ChildFactory(WorkerSettings())
    with tempfile.TemporaryDirectory() as scratch:  # pytest's own folders are root's
        story = await play(factory, Path(sys.argv[1]), Path(scratch), run=profile(), start_method="template")
    await factory.close()
    if story.kinds[-1] != "Unloaded":
        sys.exit(f"{story.frames} {story.status} {story.child.log.text()}")
    isolated = story.one(Isolated)
    print(json.dumps({
        "uid": os.getuid(), "kinds": story.kinds, "sha256": story.one(Probed).output.vector_sha256,
        "egress": isolated.egress_barrier, "containment": isolated.containment,
        "layers": {layer.name: [layer.active, layer.detail] for layer in isolated.layers}}))
asyncio.run(main())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def factory() -> AsyncIterator[ChildFactory]:
    made = ChildFactory(WorkerSettings())
    yield made
    await made.close()


async def script(code: str, *arguments: object) -> Process:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", code, *map(str, arguments), stdout=PIPE, stderr=PIPE, env=environment
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reference() -> AsyncIterator[asyncio.Task[tuple[bytes, bytes]]]:
    """Runs beside the first tests, which mostly wait."""
    process = await script(REFERENCE, minilm(), EMBEDDING_INPUT)
    yield asyncio.create_task(process.communicate())
    if process.returncode is None:
        process.kill()
        await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def forked(factory: ChildFactory, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """One probe from a template; the first test that asks pays for the imports."""
    return await play(factory, minilm(), tmp_path_factory.mktemp("forked"), run=profile(), start_method="template")


def check(story: Story) -> None:
    assert story.kinds == STEPS, story.frames[-1]
    assert story.violations == []
    assert story.status is not None
    assert story.status.text == "exit 0"
    assert story.child.gone
    output = story.one(Probed).output
    assert (output.vector_length, output.finite, output.repeat_identical) == (384, True, True)
    assert output.norm == pytest.approx(1.0, abs=1e-5)
    assert output.input_sha256 == EMBEDDING_INPUT_SHA256
    assert story.one(Loaded).facts["tensor_check"].endswith("all named in the file headers")
    assert EMBEDDING_INPUT not in repr(story.frames)


@pytest.mark.req("P11")
@pytest.mark.req("P6")
async def test_it_runs_with_every_layer_up(forked: Story, reference: object) -> None:
    isolated = forked.one(Isolated)
    inactive = {layer.name: layer.detail for layer in isolated.layers if not layer.active}
    assert inactive.keys() <= {"network_namespace"}, inactive
    assert isolated.containment == "seccomp_processes"


@pytest.mark.req("P14")
@pytest.mark.req("P6")
async def test_the_vector_is_that_of_plain_sentence_transformers(
    forked: Story, reference: asyncio.Task[tuple[bytes, bytes]]
) -> None:
    check(forked)
    out, err = await reference
    assert out, err.decode()
    found: dict[str, Any] = json.loads(out)
    assert cosine(found["plain"], found["ours"]) >= 0.9999
    output = forked.one(Probed).output
    assert output.vector_sha256 == found["sha256"]
    assert output.first_values == pytest.approx(found["plain"][:8], abs=1e-5)


@pytest.mark.req("P11")
async def test_a_fresh_interpreter_imports_behind_the_barrier_and_gives_the_same_vector(
    factory: ChildFactory, forked: Story, tmp_path: Path
) -> None:
    story = await play(factory, minilm(), tmp_path, run=profile(), start_method="fresh")
    check(story)
    assert story.child.start_method == "fresh"
    own, theirs = ({layer.name: layer for layer in one.one(Isolated).layers} for one in (story, forked))
    assert own.pop("import_barrier").active
    assert theirs.pop("import_barrier").active
    assert own == theirs
    assert story.one(Probed).output == forked.one(Probed).output


async def test_a_warm_template_saves_most_of_the_time(factory: ChildFactory, forked: Story, tmp_path: Path) -> None:
    """A loose bound on a shared machine; the benchmark has the strict one."""
    import_ms = await factory.warm("sentence_transformers")
    begin = time.perf_counter()
    story = await play(factory, minilm(), tmp_path, run=profile(), start_method="template")
    check(story)
    assert story.one(Probed).output == forked.one(Probed).output
    assert (time.perf_counter() - begin) * 1_000 < import_ms


@pytest.mark.req("P11")
async def test_it_runs_as_nobody_with_every_layer_up(forked: Story) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be another user; the other tests ran as this one")
    process = await script(AS_NOBODY, minilm())
    out, err = await process.communicate()
    if err.decode().startswith("refused:"):
        pytest.skip(f"no mount namespace here: {err.decode()}")
    assert process.returncode == 0, err.decode()
    found = json.loads(out)
    assert (found["uid"], found["kinds"]) == (65534, STEPS)
    assert found["sha256"] == forked.one(Probed).output.vector_sha256
    assert found["containment"] == "seccomp_processes"
    inactive = {name: detail for name, (active, detail) in found["layers"].items() if not active}
    assert inactive.keys() <= {"network_namespace"}, inactive
    if not inactive:
        assert found["layers"]["network_namespace"][1] == "unshare in a user namespace"
