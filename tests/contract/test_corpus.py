"""What an assessment says of small folders that are right, and of the same folders with one thing wrong (spec A3-A17).

The rows were written from the specification and from bug reports; each goes through the real scan and the real
parsers before it is inspected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from adapters.inspect.codes import FindingCode
from bus.text import clean_line
from tests.support.corpus import embedders, nodes, row, runtimes, weights
from tests.support.corpus.row import Row

CODES: Final = frozenset(code.value for code in FindingCode)
ROWS: Final = {
    "embedders": embedders.LAYOUT + embedders.DOCUMENTS,
    "weights": weights.SAFETENSORS + weights.PICKLES + weights.SHARDED,
    "states": nodes.STATE,
    "devices": nodes.DEVICES,
    "quantized": nodes.QUANTIZED,
    "transformers": runtimes.TRANSFORMERS,
    "vllm": runtimes.VLLM,
    "llama.cpp": runtimes.LLAMA_CPP,
    "diffusers": runtimes.DIFFUSERS,
    "custom": runtimes.CUSTOM,
}


def table(*names: str) -> pytest.MarkDecorator:
    """The rows of these tables, one test each."""
    rows = [row for name in names for row in ROWS[name]]
    return pytest.mark.parametrize("given", rows, ids=[row.name for row in rows])


def holds(given: Row, tmp_path: Path) -> None:
    """The row's demands, and what every finding owes its reader."""
    found = row.run(given, tmp_path)

    said = [f"{finding.severity} {finding.code}: {finding.message}" for finding in found.findings]
    assert row.complaints(given, found) == [], said
    for finding in found.findings:
        assert finding.code in CODES
        assert finding.source
        assert finding.remedy
        assert clean_line(finding.message, len(finding.message) + 1) == finding.message


@pytest.mark.req("A9", "A12")
@table("embedders")
def test_sentence_transformers_folders(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


@pytest.mark.req("A3", "A4", "A9")
@table("weights")
def test_weight_files(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


@pytest.mark.req("A3", "A4", "A5", "A6", "A8")
@table("states")
def test_nodes_and_what_they_declare(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


@pytest.mark.req("A7")
@table("devices")
def test_devices(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


@pytest.mark.req("A10")
@table("quantized")
def test_quantized_weights(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


@pytest.mark.req("A9", "A13")
@table("transformers")
def test_transformers_folders(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


@pytest.mark.req("A14")
@table("vllm")
def test_vllm_makes_no_claim_until_a_probe_proved_it(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


@pytest.mark.req("A15")
@table("llama.cpp")
def test_llama_cpp_wants_a_whole_gguf(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


@pytest.mark.req("A16")
@table("diffusers")
def test_diffusers_wants_a_whole_pipeline(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


@pytest.mark.req("A17")
@table("custom")
def test_a_custom_runner_is_never_called_compatible(given: Row, tmp_path: Path) -> None:
    holds(given, tmp_path)


def test_the_rows_are_many_and_their_names_are_their_own() -> None:
    names = [row.name for rows in ROWS.values() for row in rows]

    assert len(names) == len(set(names))
    assert len(names) >= 70


def test_a_row_demands_only_codes_of_the_closed_list() -> None:
    named = {
        code for rows in ROWS.values() for row in rows for code in row.blockers + row.one_of + row.codes + row.absent
    }

    assert named - CODES == set()


def test_every_code_of_the_closed_list_has_a_row_that_needs_it() -> None:
    needed = {code for rows in ROWS.values() for row in rows for code in row.blockers + row.one_of + row.codes}

    assert CODES - needed == set()
