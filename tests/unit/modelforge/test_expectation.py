"""A list of digests is read to its last line or refused; equal lists are the same bytes."""

from __future__ import annotations

import contextlib
import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.formats import sha256sums
from adapters.formats.sha256sums import SumsProblem, parse, render
from bus.errors import ErrorCode, ModelForgeError
from modelforge import expectation
from modelforge.expectation import Expected, read_sums

A, B = "a" * 64, "b" * 64
AWKWARD = (
    "plain.bin",
    "sub/with blank",
    "back\\slash",
    "new\nline",
    "return\r",
    "-",
    "*star",
    "(x) = y",
    " lead",
    "ä",
    "#no",
)


def line(name: str, digest: str = A) -> bytes:
    return f"{digest}  {name}\n".encode()


@pytest.mark.parametrize("options", [[], ["--binary"], ["--text"], ["--tag"]])
def test_what_sha256sum_writes_is_read(tmp_path: Path, options: list[str]) -> None:
    for name in AWKWARD:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    command = ["sha256sum", *options, "--", *(f"./{name}" if name.startswith("-") else name for name in AWKWARD)]
    written = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=20).stdout

    assert parse(written) == {name: sha256(name.encode()).hexdigest() for name in sorted(AWKWARD)}


def test_sha256sum_reads_what_is_written(tmp_path: Path) -> None:
    for name in AWKWARD:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    listed = render({name: sha256(name.encode()).hexdigest() for name in AWKWARD})

    command = ["sha256sum", "--check", "--strict"]
    subprocess.run(command, cwd=tmp_path, check=True, input=listed, capture_output=True, timeout=20)


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (line("a"), {"a": A}),
        (f"{A} *a\n".encode(), {"a": A}),
        (f"{A.upper()}  a\r\n{B}  b\r\n".encode(), {"a": A, "b": B}),
        (line("a") + b"\n" + line("b", B), {"a": A, "b": B}),
        (f"{A}  a".encode(), {"a": A}),
        (line("./x/./y//z"), {"x/y/z": A}),
        (f"SHA256 (x (1) = 2) = {A}\n".encode(), {"x (1) = 2": A}),
        (f"\\SHA256 (a\\\\b) = {A}\n".encode(), {"a\\b": A}),
        (f"\\{A}  a\\nb\\rc\n".encode(), {"a\nb\rc": A}),
        (line("a\\nb"), {"a\\nb": A}),
        (line("..a/b.."), {"..a/b..": A}),
    ],
)
def test_the_forms_of_a_line(data: bytes, entries: dict[str, str]) -> None:
    assert parse(data) == entries


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"# a comment\n", "comment"),
        (b"nonsense\n", "as `sha256sum` writes them"),
        (f"{A} a\n".encode(), "as `sha256sum` writes them"),
        (f"{A}\n".encode(), "as `sha256sum` writes them"),
        (f"{A[1:]}  a\n".encode(), "63 hex digits"),
        (f"{A}{A}  a\n".encode(), "128 hex digits"),
        (f"SHA512 (a) = {A}\n".encode(), "not a SHA-256"),
        (f"MD5 (a) = {A[:32]}\n".encode(), "not a SHA-256"),
        (line("-"), "pipe"),
        (line("/etc/passwd"), "absolute"),
        (line("a/../../b"), "leaves the set's folder"),
        (line(".."), "leaves the set's folder"),
        (line("folder/"), "folder"),
        (line("."), "empty"),
        (line("a\0b"), "zero byte"),
        (line("x" * 5_000), "longer than 4096"),
        (line("good"), "an earlier line names too"),
        (line("./good"), "an earlier line names too"),
        (f"\\{A}  a\\tb\n".encode(), "escape"),
        (f"\\{A}  a\\\n".encode(), "escape"),
        (f"{A}  ".encode() + b"\xff\n", "UTF-8"),
    ],
)
def test_a_line_that_is_not_understood_is_refused_with_its_number(bad: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SumsProblem, match=reason) as caught:
        parse(line("good", B) + bad)
    assert caught.value.line == 2

    path = tmp_path / "SUMS"
    path.write_bytes(line("good", B) + bad)
    with pytest.raises(ModelForgeError, match="line 2: ") as refused:
        read_sums(path)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert refused.value.context == {"file": str(path), "line": "2"}


def test_a_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sha256sums, "MAX_LINES", 3)
    rows = [line(str(number)) for number in range(5)]

    assert len(parse(b"".join(rows[:3]))) == 3
    for data in (b"".join(rows[:4]), b"".join(rows[:4]).rstrip()):
        with pytest.raises(SumsProblem, match="more than 3 lines"):
            parse(data)
    monkeypatch.setattr(sha256sums, "MAX_LIST_BYTES", 50)
    with pytest.raises(SumsProblem, match="larger than 50 bytes"):
        parse(rows[0])


@pytest.mark.parametrize("data", [b"", b"\n\r\n"])
def test_an_empty_list_is_refused(data: bytes) -> None:
    """A list that names nothing would fit every folder, or none."""
    with pytest.raises(SumsProblem, match="names no file"):
        parse(data)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
            lambda name: not set(name.split("/")) & {"", ".", ".."}
        ),
        st.binary(min_size=32, max_size=32).map(bytes.hex),
        min_size=1,
        max_size=10,
    )
)
def test_a_list_that_was_written_is_read_back_and_written_the_same(entries: dict[str, str]) -> None:
    written = render(entries)

    assert parse(written) == entries
    assert list(parse(written)) == sorted(entries)
    assert render(parse(written)) == written
    assert render(dict(reversed(entries.items()))) == written


@given(st.binary(max_size=300))
def test_whatever_the_bytes_are_the_answer_is_a_list_or_a_reason(data: bytes) -> None:
    with contextlib.suppress(SumsProblem):
        assert parse(data)


@pytest.mark.req("A3")
def test_an_expectation_is_its_canonical_list_and_names_its_source(tmp_path: Path) -> None:
    path = tmp_path / "SHA256SUMS"
    path.write_bytes(f"{B} *./z\r\nSHA256 (a) = {A.upper()}\r\n".encode())

    expected = read_sums(path)

    assert expected == Expected(
        kind="sha256sum", entries={"a": A, "z": B}, source_sha256=sha256(path.read_bytes()).hexdigest()
    )
    assert expected.blob == line("a") + line("z", B)
    assert expected.key is None


def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path / "absent", tmp_path, fifo):
        with pytest.raises(ModelForgeError) as caught:
            read_sums(path)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert caught.value.context == {"file": str(path)}


def test_a_list_that_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectation, "MAX_BLOB_BYTES", 100)

    with pytest.raises(ModelForgeError, match="more than the 100 that can be sent") as caught:
        Expected(kind="sha256sum", entries={"a": A, "b": B}, source_sha256=A)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
