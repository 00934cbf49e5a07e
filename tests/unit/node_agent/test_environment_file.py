"""The environment file: what is declared flows on, and what is wrong is said by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.declared import AdapterDeclaration
from bus.errors import ErrorCode, ModelForgeError
from node_agent.environment_file import load


def write(folder: Path, text: str) -> Path:
    path = folder / "environment.toml"
    path.write_text(text)
    return path


@pytest.mark.req("A18")
def test_image_and_declarations_are_read(tmp_path: Path) -> None:
    found = load(
        write(
            tmp_path,
            'image = "worker@sha256:0123"\n[adapters.vllm]\ntasks = ["embedding"]\nmodel_types = ["bert", "llama"]\n'
            'modalities = ["text"]\nformats = ["safetensors"]\nquantizations = ["gptq"]\n',
        )
    )
    assert found.image == "worker@sha256:0123"
    assert found.adapters == {
        "vllm": AdapterDeclaration(
            tasks=("embedding",),
            model_types=("bert", "llama"),
            modalities=("text",),
            formats=("safetensors",),
            quantizations=("gptq",),
        )
    }
    assert load(write(tmp_path, "")).adapters == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('imag = "x"\n', "unknown key 'imag'; the keys are image, adapters"),
        ("[packages]\ntorch = '9'\n", "'packages' is read from this machine and cannot be declared"),
        ("python = '3.11'\n", "'python' is read from this machine"),
        ('image = ""\n', "$.image"),
        ('image = "a b"\n', "$.image"),
        ("[adapters.vllm]\ntask = []\n", "[adapters.vllm] unknown key 'task'; the keys are tasks"),
        ('[adapters.vllm]\ntasks = ["poetry"]\n', "$.adapters"),
        ('[adapters.vllm]\nformats = ["exe"]\n', "$.adapters"),
        ('[adapters.vllm]\nmodel_types = ["\\u001b[2J"]\n', "$.adapters"),
        ("adapters = 3\n", "$.adapters"),
        ("[adapters.valium]\n", "there is no adapter 'valium'; the adapters are sentence_transformers"),
        ("[adapters.faulty]\n", "there is no adapter 'faulty'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ModelForgeError) as caught:
        load(write(tmp_path, text))
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert words in caught.value.message
    assert "environment.toml" in caught.value.message
    assert "modelforge environment validate" in caught.value.hint


def test_a_file_that_is_none_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "missing", tmp_path / "folder", tmp_path / "fifo", write(tmp_path, "image = ")):
        with pytest.raises(ModelForgeError) as caught:
            load(path)
        assert caught.value.code is ErrorCode.CONFIG_UNREADABLE
