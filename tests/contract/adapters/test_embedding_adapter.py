"""What the embedding adapter must do, with real libraries in real children on small real models."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapters.child.protocol import Checked, Loaded, Probed
from adapters.payloads import EMBEDDING_INPUT_SHA256
from bus.messages.evidence import Output
from node_agent.worker import ChildFactory, WorkerSettings
from tests.support import tiny_models
from tests.support.children import Story, play, profile

# One template with the libraries for all tests of this file: importing them takes longer than everything else here.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def factory() -> AsyncIterator[ChildFactory]:
    made = ChildFactory(WorkerSettings())
    yield made
    await made.close()


@pytest.fixture(scope="module")
def whole_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.embedder(tmp_path_factory.mktemp("models") / "embedder")


@pytest.fixture
def model(whole_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole_model, tmp_path / "model"))


async def run(factory: ChildFactory, model: Path, tmp_path: Path, **changes: Any) -> Story:
    return await play(factory, model, tmp_path / "scratch", run=profile(**changes), start_method="template")


async def output(factory: ChildFactory, model: Path, tmp_path: Path, **changes: Any) -> Output:
    story = await run(factory, model, tmp_path, **changes)
    assert story.kinds == ["Isolated", "Prepared", "Loaded", "Probed", "Checked", "Unloaded"], story.frames[-1]
    return story.one(Probed).output


@pytest.mark.req("P14")
@pytest.mark.req("P2")
async def test_a_whole_model_goes_through_every_step(factory: ChildFactory, model: Path, tmp_path: Path) -> None:
    story = await run(factory, model, tmp_path)
    assert story.kinds == ["Isolated", "Prepared", "Loaded", "Probed", "Checked", "Unloaded"], story.frames[-1]
    assert story.status is not None
    assert story.status.text == "exit 0"
    loaded, probed = story.one(Loaded), story.one(Probed)
    assert (loaded.device, loaded.max_sequence_length, loaded.allocator_bytes) == ("cpu", tiny_models.POSITIONS, None)
    assert loaded.facts["model_class"] == "BertModel"
    assert loaded.facts["modules"] == "Transformer, Pooling, Normalize"
    assert loaded.facts["input_unknown_tokens"] == "0"
    assert probed.output.input_sha256 == EMBEDDING_INPUT_SHA256
    assert probed.output.vector_length == tiny_models.HIDDEN
    assert probed.output.norm == pytest.approx(1.0, abs=1e-5)
    assert probed.output.finite
    assert probed.output.repeat_identical
    assert probed.output.dtype == "float32"
    assert (story.one(Checked).health.runtime, story.one(Checked).health.model) == ("healthy", "healthy")


@pytest.mark.req("P5")
async def test_the_profile_bounds_length_and_batch(factory: ChildFactory, model: Path, tmp_path: Path) -> None:
    story = await run(factory, model, tmp_path, max_sequence_length=64, batch_size=3, threads=2)
    assert story.one(Loaded).max_sequence_length == 64
    assert story.one(Loaded).facts["threads"] == "2"
    assert story.one(Probed).output.vector_length == tiny_models.HIDDEN


async def test_half_precision_is_what_the_profile_says(factory: ChildFactory, model: Path, tmp_path: Path) -> None:
    assert (await output(factory, model, tmp_path, dtype="float16")).dtype == "float16"


async def test_normalisation_is_what_the_profile_says(factory: ChildFactory, model: Path, tmp_path: Path) -> None:
    modules = model / "modules.json"
    modules.write_text(
        modules.read_text()
        .replace("models.Normalize", "models.Normalize")
        .replace(
            ', {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}', ""
        )
    )
    raw = await output(factory, model, tmp_path, normalize=False)
    assert abs(raw.norm - 1.0) > 0.01
    assert (await output(factory, model, tmp_path, normalize=True)).norm == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        tiny_models.known_prefix,
        tiny_models.without_pooler,
        tiny_models.with_head_of_a_task,
        tiny_models.with_computed_table,
        tiny_models.old_names,
        tiny_models.old_names_and_a_head,
    ],
)
async def test_harmless_differences_of_names_pass(
    factory: ChildFactory, model: Path, tmp_path: Path, change: Callable[[tiny_models.Arrays], tiny_models.Arrays]
) -> None:
    same = await output(factory, model, tmp_path)
    assert await output(factory, tiny_models.change_weights(model, change), tmp_path) == same


@pytest.mark.req("P9")
@pytest.mark.parametrize("change", [tiny_models.foreign_prefix, tiny_models.without_last_layer])
async def test_made_up_tensors_are_found_before_anything_is_run(
    factory: ChildFactory, model: Path, tmp_path: Path, change: Callable[[tiny_models.Arrays], tiny_models.Arrays]
) -> None:
    """The library only warns and gives a finite unit vector from random weights."""
    story = await run(factory, tiny_models.change_weights(model, change), tmp_path)
    assert (story.failure.code, story.failure.stage) == ("INVALID_OUTPUT", "load")
    assert "are not in its files" in story.failure.message


@pytest.mark.req("P9")
@pytest.mark.parametrize(
    ("change", "first"),
    [
        (tiny_models.with_further_layer, f"encoder.layer.{tiny_models.LAYERS}.attention.output.LayerNorm.bias"),
        (tiny_models.with_stranger, "embeddings.gate.weight"),
    ],
)
async def test_tensors_that_the_model_leaves_out_are_found_before_anything_is_run(
    factory: ChildFactory,
    model: Path,
    tmp_path: Path,
    change: Callable[[tiny_models.Arrays], tiny_models.Arrays],
    first: str,
) -> None:
    """The library gives a finite unit vector without them."""
    story = await run(factory, tiny_models.change_weights(model, change), tmp_path)
    assert (story.failure.code, story.failure.stage) == ("INVALID_OUTPUT", "load")
    assert f"are not used by the model, the first is {first}" in story.failure.message


@pytest.mark.req("P9")
@pytest.mark.parametrize("layers", [tiny_models.LAYERS - 1, -6, 0])
async def test_a_config_of_fewer_layers_is_refused(
    factory: ChildFactory, model: Path, tmp_path: Path, layers: int
) -> None:
    set_config(model, num_hidden_layers=layers)
    story = await run(factory, model, tmp_path)
    assert (story.failure.code, story.failure.stage) == ("INVALID_OUTPUT", "load")
    assert "are not used by the model" in story.failure.message


@pytest.mark.req("P13")
@pytest.mark.parametrize("change", [tiny_models.all_nan, tiny_models.all_zero])
async def test_a_vector_that_means_nothing_is_refused(
    factory: ChildFactory, model: Path, tmp_path: Path, change: Callable[[tiny_models.Arrays], tiny_models.Arrays]
) -> None:
    story = await run(factory, tiny_models.change_weights(model, change), tmp_path)
    assert (story.failure.code, story.failure.stage) == ("INVALID_OUTPUT", "health")
    assert story.kinds[:4] == ["Isolated", "Prepared", "Loaded", "Probed"]


@pytest.mark.req("P9")
async def test_a_folder_without_tokenizer_is_refused(factory: ChildFactory, model: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    story = await run(factory, model, tmp_path)
    assert story.failure.code in {"INVALID_OUTPUT", "MODEL_LOAD_FAILED"}
    assert story.failure.stage == "load"


def no_modules(model: Path) -> None:
    (model / "modules.json").unlink()


def lfs_pointer(model: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 90868376\n"
    (model / tiny_models.WEIGHTS).write_text(text)


def truncated(model: Path) -> None:
    weights = model / tiny_models.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1000])


def no_weights(model: Path) -> None:
    (model / tiny_models.WEIGHTS).unlink()


def pickle_weights(model: Path) -> None:
    (model / tiny_models.WEIGHTS).rename(model / "pytorch_model.bin")


def broken_config(model: Path) -> None:
    (model / "config.json").write_text("{")


def no_pooling(model: Path) -> None:
    shutil.rmtree(model / "1_Pooling")


def remote_code(model: Path) -> None:
    config = (model / "config.json").read_text()
    (model / "config.json").write_text(
        config.replace(
            '"model_type": "bert"', '"model_type": "strange", "auto_map": {"AutoModel": "someorg/code--m.M"}'
        )
    )


@pytest.mark.req("P9")
@pytest.mark.req("P11")
@pytest.mark.parametrize(
    "damage",
    [no_modules, lfs_pointer, truncated, no_weights, pickle_weights, broken_config, no_pooling, remote_code],
)
async def test_a_damaged_folder_is_a_typed_failure_without_foreign_text(
    factory: ChildFactory, model: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(model)
    story = await run(factory, model, tmp_path)
    assert (story.failure.code, story.failure.stage) == ("MODEL_LOAD_FAILED", "load")
    assert str(tmp_path) not in story.failure.message
    assert story.violations == []
    assert story.status is not None
    assert story.status.text == "exit 1"


def config_class(model: Path) -> None:
    set_config(model, auto_map={"AutoConfig": "own.OwnConfig"})


def model_class(model: Path) -> None:
    set_config(model, auto_map={"AutoModel": "own.OwnModel"})


def unknown_type(model: Path) -> None:
    set_config(model, model_type="strange", auto_map={"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"})


def own_module(model: Path) -> None:
    modules = json.loads((model / "modules.json").read_text())
    modules[1]["type"] = "own.OwnPooling"
    (model / "modules.json").write_text(json.dumps(modules))


def set_config(model: Path, **fields: object) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, **fields}))


@pytest.mark.req("P11")
@pytest.mark.parametrize("names", [config_class, model_class, unknown_type, own_module])
async def test_code_that_lies_in_the_models_folder_is_never_run(
    factory: ChildFactory, model: Path, tmp_path: Path, names: Callable[[Path], None]
) -> None:
    """No download is needed for it: the guard, the barrier and the offline variables see nothing of it."""
    marker = tmp_path / "it-ran"
    (model / "own.py").write_text(
        f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n"
        "import torch\n"
        "from transformers import BertConfig as OwnConfig, BertModel as OwnModel\n"
        "class OwnPooling(torch.nn.Module): pass\n"
    )
    names(model)
    story = await run(factory, model, tmp_path)
    assert not marker.exists()
    assert story.violations == []
    # A class that the library knows itself is taken instead; what it does not know is refused.
    known = names in {config_class, model_class}
    assert story.kinds[-1] == ("Unloaded" if known else "ChildFailed")
    if not known:
        assert (story.failure.code, story.failure.stage) == ("MODEL_LOAD_FAILED", "load")


@pytest.mark.req("P14")
async def test_a_cuda_profile_never_runs_on_the_cpu(factory: ChildFactory, model: Path, tmp_path: Path) -> None:
    story = await run(factory, model, tmp_path, device="cuda", gpu_uuid="GPU-00000000-0000-0000-0000-000000000000")
    assert (story.failure.code, story.failure.stage) == ("RUNTIME_INCOMPATIBLE", "import")


@pytest.mark.req("P11")
async def test_a_readme_that_names_a_base_model_calls_nobody(
    factory: ChildFactory, model: Path, tmp_path: Path
) -> None:
    (model / "README.md").write_text("---\nbase_model: someorg/base\nlibrary_name: sentence-transformers\n---\n# x\n")
    story = await run(factory, model, tmp_path)
    assert story.kinds[-1] == "Unloaded"
    assert story.violations == []


@pytest.mark.req("P5")
@pytest.mark.parametrize("key", ["tokenizer_name_or_path", "tokenizer_args", "model_kwargs", "backend", "cache_dir"])
async def test_options_that_could_name_other_folders_are_passed_on_to_no_loader(
    factory: ChildFactory, model: Path, tmp_path: Path, key: str
) -> None:
    (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, key: str(tmp_path)}))
    story = await run(factory, model, tmp_path)
    assert (story.failure.code, story.failure.stage) == ("MODEL_LOAD_FAILED", "load")
    assert "not passed on" in story.failure.message
    assert str(tmp_path) not in story.failure.message


@pytest.mark.req("P2", "P13")
async def test_the_fixed_input_is_all_that_is_embedded(factory: ChildFactory, model: Path, tmp_path: Path) -> None:
    """The output's evidence names the digest of the input; a prompt of the folder would make it untrue."""
    alone = await output(factory, model, tmp_path)
    (model / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "quick brown fox "}, "default_prompt_name": "query"})
    )
    assert await output(factory, model, tmp_path) == alone
