"""The cache of digests: what it gives back is what was put in, or nothing."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from node_agent import hash_cache
from node_agent.artifact_root import Stamp
from node_agent.hash_cache import FILE_NAME, HashCache, is_settled, read

SECOND_NS = 1_000_000_000


def stamp(number: int, **fields: int) -> Stamp:
    return Stamp(**{"device": 1, "inode": number, "size_bytes": 5, "mtime_ns": -7, "ctime_ns": 9, **fields})


def digest(number: int) -> str:
    return f"{number:064x}"


def test_what_was_remembered_is_read_again(tmp_path: Path) -> None:
    cache = HashCache(tmp_path / "new" / "cache")
    assert read(cache.folder) == {}
    largest = Stamp(2**64 - 1, 2**64 - 1, 2**63, 2**63 - 1, -(2**63))
    cache.remember({stamp(1): digest(1), largest: "f" * 64})
    cache.remember({stamp(2): digest(2)})
    assert read(cache.folder) == {stamp(1): digest(1), largest: "f" * 64, stamp(2): digest(2)}
    assert [path.name for path in cache.folder.iterdir()] == [FILE_NAME]
    assert cache.folder.stat().st_mode & 0o077 == 0
    assert (cache.folder / FILE_NAME).stat().st_mode & 0o077 == 0


def test_an_older_stamp_of_the_same_place_is_forgotten(tmp_path: Path) -> None:
    cache = HashCache(tmp_path)
    cache.remember({stamp(1, ctime_ns=1): digest(1), stamp(2): digest(2)})
    cache.remember({stamp(1, ctime_ns=2): digest(3)})
    assert read(tmp_path) == {stamp(2): digest(2), stamp(1, ctime_ns=2): digest(3)}


def test_it_never_holds_more_than_its_bound_and_forgets_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_cache, "MAX_ENTRIES", 3)
    cache = HashCache(tmp_path)
    cache.remember({stamp(number): digest(number) for number in range(2)})
    cache.remember({stamp(number): digest(number) for number in range(2, 4)})
    assert list(read(tmp_path)) == [stamp(1), stamp(2), stamp(3)]
    cache.remember({stamp(number): digest(number) for number in range(10, 20)})
    assert list(read(tmp_path)) == [stamp(17), stamp(18), stamp(19)]


def test_a_damaged_cache_is_no_cache_and_is_written_anew(tmp_path: Path) -> None:
    cache = HashCache(tmp_path)
    cache.remember({stamp(number): digest(number) for number in range(10)})
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 7)]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 11)]
    damaged += [b"", whole + b"x", whole + bytes(72), b"\0" * len(whole)]
    for data in damaged:
        path.write_bytes(data)
        assert read(tmp_path) == {}
    cache.remember({stamp(1): digest(1)})
    assert read(tmp_path) == {stamp(1): digest(1)}


def test_what_is_no_file_is_no_cache_and_costs_nobody_anything(tmp_path: Path) -> None:
    (tmp_path / "folder" / FILE_NAME / "full").mkdir(parents=True)
    (tmp_path / "fifo").mkdir()
    os.mkfifo(tmp_path / "fifo" / FILE_NAME)
    (tmp_path / "file").write_text("x")
    (tmp_path / "huge").mkdir()
    with (tmp_path / "huge" / FILE_NAME).open("wb") as file:
        file.truncate(2**40)
    for name in ("folder", "fifo", "file", "huge", "nowhere"):
        assert read(tmp_path / name) == {}
    for name in ("folder", "file"):
        HashCache(tmp_path / name).remember({stamp(1): digest(1)})
        assert read(tmp_path / name) == {}
    assert [path.name for path in (tmp_path / "folder").iterdir()] == [FILE_NAME]


def test_two_scans_that_end_together_are_both_remembered(tmp_path: Path) -> None:
    cache = HashCache(tmp_path)
    threads = [threading.Thread(target=cache.remember, args=({stamp(number): digest(number)},)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(tmp_path) == {stamp(number): digest(number) for number in range(16)}


@pytest.mark.parametrize(
    ("age_ns", "settled"),
    [(2 * SECOND_NS, True), (60 * SECOND_NS, True), (2 * SECOND_NS - 1, False), (0, False), (-SECOND_NS, False)],
)
def test_a_file_that_changed_just_before_is_not_settled(age_ns: int, *, settled: bool) -> None:
    read_at_ns = 1_800_000_000 * SECOND_NS
    assert is_settled(stamp(1, ctime_ns=read_at_ns - age_ns), read_at_ns) is settled
    assert is_settled(stamp(1, ctime_ns=read_at_ns - age_ns, mtime_ns=0), read_at_ns) is settled
