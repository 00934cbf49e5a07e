"""What the installed libraries declare is read as text: nothing of them is imported, and nothing of them can hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from adapters import declared, registry
from adapters.declared import MAX_NAMES, AdapterDeclaration, EnvironmentDeclaration, read_table

OLDER = 'CONFIG_MAPPING_NAMES = OrderedDict[str, str](\n    [\n        ("bert", "BertConfig"),\n        ("gpt-sw3", "G"),\n    ]\n)\n'
NEWER = (
    'raise SystemExit("this file was executed")\n'
    'CONFIG_MAPPING_NAMES: dict[str, str] = {"mpnet": "MPNetConfig"}\n'
    'CONFIG_MAPPING_NAMES.update({"late": "LateConfig"})\n'
    'CONFIG_MAPPING_NAMES = OrderedDict(**{"star": "StarConfig"}, **CONFIG_MAPPING_NAMES)\n'
    'OTHER = {"other": "O"}\n'
)


def written(folder: Path, **files: str) -> tuple[Path, tuple[str, ...]]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder, tuple(f"{name}.py" for name in files)


def test_every_form_of_the_table_is_read_and_no_file_is_executed(tmp_path: Path) -> None:
    folder, files = written(tmp_path, older=OLDER, newer=NEWER)
    found = read_table(folder, (*files, "missing.py"), "CONFIG_MAPPING_NAMES")
    assert found.names == ("bert", "gpt-sw3", "late", "mpnet", "star")
    assert found.reason is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (", "SyntaxError"),
        ("\0", "not read as Python source"),
        ("x = " + "(" * 5_000 + ")" * 5_000, "not read as Python source"),
        ("y = 1\n", "stands in none of its files"),
        (f"T = {dict.fromkeys(f'm{number}' for number in range(MAX_NAMES + 1))!r}\n", f"more than {MAX_NAMES}"),
    ],
)
def test_a_table_that_cannot_be_read_is_empty_with_a_reason(tmp_path: Path, text: str, words: str) -> None:
    folder, files = written(tmp_path, one=text)
    found = read_table(folder, files, "T")
    assert found.names == ()
    assert found.reason is not None
    assert words in found.reason


def test_a_name_that_is_none_is_left_out(tmp_path: Path) -> None:
    folder, files = written(tmp_path, one="T = {'good': 1, '\\x1b[2J': 2, 'a b': 3, 4: 5}\n")
    assert read_table(folder, files, "T").names == ("good",)


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    folder, files = written(tmp_path, one="T = {'a': 1}\n")
    assert read_table(folder, files, "T").names == ("a",)
    written(tmp_path, one="T = {'a': 1, 'b': 2}\n")
    assert read_table(folder, files, "T").names == ("a", "b")


def test_a_package_that_is_not_there_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert declared.transformers_model_types() == declared.Names(reason="transformers is not installed")


@pytest.mark.req("A2")
def test_the_adapters_declare_what_the_installed_transformers_knows_without_importing_it() -> None:
    program = (
        "import sys\n"
        "from adapters.registry import adapter_facts\n"
        "facts = {one.name: one for one in adapter_facts()}\n"
        "assert 'bert' in facts['sentence_transformers'].model_types\n"
        "assert {'bert', 'llama', 'whisper', 'gpt-sw3'} <= set(facts['transformers'].model_types)\n"
        "assert {'gptq', 'awq', 'bitsandbytes'} <= set(facts['transformers'].quantizations)\n"
        "assert 'transformers' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True, timeout=50)


@pytest.mark.req("A2")
def test_an_encoder_that_the_installed_transformers_does_not_know_is_not_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(declared, "transformers_model_types", lambda: declared.Names(names=("bert", "llama")))
    facts = {one.name: one for one in registry.adapter_facts()}
    assert facts["sentence_transformers"].model_types == ("bert",)
    assert facts["transformers"].model_types == ("bert", "llama")
    assert facts["vllm"].model_types == ()


@pytest.mark.req("A2")
def test_what_has_no_executable_part_is_inspected_only() -> None:
    facts = {one.name: one for one in registry.adapter_facts(test_double=True)}
    assert {name for name, one in facts.items() if not one.inspect_only} == {
        "sentence_transformers",
        registry.TEST_DOUBLE,
    }
    assert all(not one.executable and one.reason for one in facts.values() if one.inspect_only)
    assert facts["custom"].tasks == ()
    assert facts["llama_cpp"].formats == ("gguf",)
    assert "Q4_K_M" in facts["llama_cpp"].quantizations


@pytest.mark.req("A18")
def test_what_the_owner_declares_is_a_part_of_the_environment() -> None:
    given = EnvironmentDeclaration(
        image="worker@sha256:abc", adapters={"vllm": AdapterDeclaration(model_types=("llama",), quantizations=())}
    )
    plain, own = registry.runtime_environment(), registry.runtime_environment(given=given)
    facts = {one.name: one for one in own.adapters}
    assert (plain.image, own.image) == (None, "worker@sha256:abc")
    assert (facts["vllm"].model_types, facts["vllm"].quantizations) == (("llama",), ())
    assert facts["vllm"].tasks == ("embedding", "reranking", "text_generation", "image_to_text")
    assert own.packages == plain.packages
    assert own.digest() != plain.digest()
