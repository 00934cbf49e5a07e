from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import ErrorCode, ModelForgeError
from bus.ids import NAME
from bus.settings import SECTIONS
from modelforge.settings import DERIVED, all_sections, login_user, render_toml, section, toml_value


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODELFORGE_URL", "MODELFORGE_CREDENTIALS", "MODELFORGE_USER", "MODELFORGE_ARTIFACT_ROOT"):
        monkeypatch.delenv(name, raising=False)


def test_every_section_is_shown_with_an_origin_for_every_value(tmp_path: Path) -> None:
    sections = all_sections(None, tmp_path)
    assert tuple(sections) == SECTIONS
    for loaded in sections.values():
        assert set(loaded.origins) == set(type(loaded.value).__struct_fields__)


def test_origins_say_default_file_variable_or_derived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "modelforge.toml"
    file.write_text('[server]\nport = 5000\n[node]\nname = "n1"\n[controller]\nlease_ttl_s = 9.0\n')
    monkeypatch.setenv("MODELFORGE_ARTIFACT_ROOT", "/models")
    monkeypatch.setenv("MODELFORGE_URL", "nats://h:1")
    sections = all_sections(file, tmp_path)
    assert (sections["server"].value.port, sections["server"].origins["port"]) == (5000, f"file {file}")
    assert (sections["node"].value.name, sections["node"].origins["name"]) == ("n1", f"file {file}")
    assert sections["node"].value.artifact_root == "/models"
    assert sections["node"].origins["artifact_root"] == "variable MODELFORGE_ARTIFACT_ROOT"
    assert sections["client"].origins["url"] == "variable MODELFORGE_URL"
    assert sections["client"].origins["js_prefix"] == "default"
    assert sections["controller"].origins["lease_ttl_s"] == f"file {file}"
    assert sections["controller"].origins["state"] == DERIVED
    assert sections["controller"].value.state == str(tmp_path / "controller")


@pytest.mark.parametrize(
    "content", ["[server]\nprot = 1\n", "[nodes]\nname='a'\n", "[node]\nslots = 'two'\n", "[up]\nready_s = 0\n"]
)
def test_an_unknown_key_or_a_wrong_value_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "modelforge.toml"
    file.write_text(content)
    with pytest.raises(ModelForgeError) as caught:
        all_sections(file, tmp_path)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_a_flag_wins_over_everything(tmp_path: Path) -> None:
    from modelforge.settings import ServerSettings  # noqa: PLC0415 -- beside the one test that needs it

    file = tmp_path / "modelforge.toml"
    file.write_text("[server]\nport = 5000\n")
    loaded = section(ServerSettings, "server", file=file, flags={"port": 6000}, derived={"port": 7000})
    assert (loaded.value.port, loaded.origins["port"]) == (6000, "flag")


def test_the_login_name_becomes_a_name_of_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NAME.fullmatch(login_user())
    monkeypatch.setattr("getpass.getuser", lambda: "Jane.Doe@corp")
    assert login_user() == "jane-doe-corp"
    monkeypatch.setattr("getpass.getuser", lambda: "007")
    assert login_user() == "operator"

    def nobody() -> str:
        raise KeyError(1)

    monkeypatch.setattr("getpass.getuser", nobody)
    assert login_user() == "operator"


@given(
    st.dictionaries(
        st.sampled_from(["a", "b"]),
        st.text()
        | st.integers(-(2**63), 2**63 - 1)
        | st.booleans()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.lists(st.text(), max_size=3),
    )
)
def test_written_configuration_reads_back(values: dict[str, object]) -> None:
    surrogates = [value for value in str(values) if "\ud800" <= value <= "\udfff"]
    if not surrogates:
        assert tomllib.loads(render_toml({"s": values}))["s"] == values


def test_what_is_no_scalar_is_not_written() -> None:
    with pytest.raises(TypeError):
        toml_value({"a": 1})
