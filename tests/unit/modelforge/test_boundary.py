from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import rich_click as click

from adapters.inspect.codes import CODES as FINDINGS
from bus.errors import CODES, ErrorCode, ModelForgeError
from modelforge.cli import boundary
from modelforge.cli.command import App
from modelforge.cli.main import call


def raising(error: BaseException) -> object:
    def main(_: Sequence[str]) -> object:
        raise error

    return main


def run(error: BaseException, *arguments: str) -> int:
    return boundary.run(raising(error), arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_three_lines_and_its_exit_code(code: ErrorCode, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ModelForgeError(code, "this happened", file="x")) == CODES[code].exit
    out, err = capsys.readouterr()
    assert out == ""
    what, why, then = err.splitlines()
    assert what == f"error: {code}: this happened"
    assert CODES[code].meaning in why
    assert "file=x" in why
    assert then == f"  next: {CODES[code].remedy}"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_an_error_begins_a_line_and_wraps_at_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The line of the scan that was running is ended before the error is told."""
    stream = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    monkeypatch.setattr("sys.stderr", stream)

    def fails(app: App, _: object) -> None:
        app.out.progress.phase("hashing")
        raise ModelForgeError(ErrorCode.ARTIFACT_CHANGED, "a file differs " * 8, file="x")

    monkeypatch.setattr("modelforge.cli.artifact.with_operator", fails)
    assert boundary.run(call, ["artifact", "scan", "m"]) == 1
    before, _, told = stream.getvalue().partition("error: ")
    assert before.endswith(" s\n")
    lines = f"error: {told}".splitlines()
    assert len(lines) > 3
    assert all(len(line) <= 60 for line in lines)
    assert not any(line.endswith(("fil", "diff")) for line in lines)


def test_json_puts_the_failure_on_stdout_too(capsys: pytest.CaptureFixture[str]) -> None:
    error = ModelForgeError(ErrorCode.NOT_APPROVED, "no approval", hint="approve it", set="abc")
    assert run(error, "probe", "queue", "x", "--json") == 4
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["schema"] == "modelforge.error/v1"
    assert document["data"] == {
        "code": "NOT_APPROVED",
        "message": "no approval",
        "context": {"set": "abc"},
        "meaning": CODES[ErrorCode.NOT_APPROVED].meaning,
        "hint": "approve it",
        "retry": "after_fix",
        "exit": 4,
    }
    assert err.startswith("error: NOT_APPROVED")


def test_a_word_after_two_dashes_is_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    run(ModelForgeError(ErrorCode.UNKNOWN_ID, "no"), "artifact", "show", "--", "--json")
    assert capsys.readouterr().out == ""


def test_a_defect_is_internal_and_its_traceback_is_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    assert run(RuntimeError("password=hunter2")) == 1
    err = capsys.readouterr().err
    assert "error: INTERNAL: unexpected RuntimeError" in err
    assert "Traceback" not in err
    assert "hunter2" not in err
    (log,) = (tmp_path / "logs").iterdir()
    assert str(log) in err
    kept = log.read_text()
    assert "Traceback" in kept
    assert "hunter2" not in kept


def test_where_the_state_cannot_be_written_the_log_goes_elsewhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file in the folder's place")
    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "elsewhere"))
    assert run(KeyError("x")) == 1
    (log,) = (tmp_path / "elsewhere").iterdir()
    assert str(log) in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_130(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(error) == 130
    assert capsys.readouterr().err.startswith("error: INTERRUPTED")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["probe", "nonsense"],
        ["version", "--nonsense"],
        ["profile", "show"],
        ["probe", "queue", "x", "--timeout", "soon"],
        ["approve", "add", "ab", "--reason", "r", "--purpose", "fun"],
    ],
)
def test_usage_errors_have_the_same_shape(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run(call, arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: INVALID_ARGUMENT: ")
    assert "--help`." in err.splitlines()[2]


def test_a_runtime_that_cannot_run_it_refuses_whoever_finds_that_out() -> None:
    """The gate before a probe is queued, or the node before anything is loaded: both are a refusal, not a failed model."""
    assert boundary.exit_of("RUNTIME_INCOMPATIBLE") == 4
    assert "environment show NODE" in CODES[ErrorCode.RUNTIME_INCOMPATIBLE].remedy


def test_a_remedy_that_makes_a_profile_keeps_what_it_does_not_name() -> None:
    remedies = [info.remedy for info in CODES.values()] + [info.remedy for info in FINDINGS.values()]
    making = [remedy for remedy in remedies if "profile create" in remedy]
    assert making
    assert all("--from" in remedy for remedy in making)


def test_the_return_value_of_a_command_is_the_exit_code() -> None:
    assert boundary.run(lambda _: None, []) == 0
    assert boundary.run(lambda _: 124, []) == 124
    assert boundary.run(lambda _: True, []) == 0


def test_a_closed_pipe_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(BrokenPipeError()) == 0
    assert capfd.readouterr().err == ""


def test_an_argument_that_is_no_text_is_named_and_leaves_no_traceback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    strange = b"bad-\xff".decode(errors="surrogateescape")

    def sends(arguments: Sequence[str]) -> object:
        return arguments[-1].encode()

    assert boundary.run(sends, ["artifact", "scan", strange]) == 2
    assert r"INVALID_ARGUMENT: the argument 'bad-\udcff' is not UTF-8" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

    def breaks(_: Sequence[str]) -> object:
        raise KeyError(strange)

    assert boundary.run(breaks, ["artifact", "scan", strange]) == 1
    (log,) = (tmp_path / "logs").iterdir()
    assert r"bad-\udcff" in log.read_text()
