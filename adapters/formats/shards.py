"""Shard indexes: which file holds which tensor, and whether the files agree.

The names of all tensors can be had while a folder is read, and only then: they are too many to be sent. So the
comparison happens here, and its outcome travels with the index.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from adapters.formats.documents import MAX_KEPT_CHARS
from bus.text import clean_line

MAX_SHARDS: Final = 10_000
# In all indexes and in all shards of a set; a model of a trillion parameters has 100,000.
MAX_NAMES: Final = 500_000
_MAX_NAME_CHARS: Final = 100
_INDEX: Final = re.compile(r"\.index(?:\.[\w-]+)?\.json\Z")


def is_index(path: str) -> bool:
    """Whether a member is a shard index by its name; Diffusers puts a variant before the suffix."""
    return _INDEX.search(path) is not None


def weight_map(document: Any) -> dict[str, str] | None:
    """The map of tensors to files of an index; `None` when it has none, or a wrong one."""
    mapped = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(mapped, dict) or not all(isinstance(shard, str) for shard in mapped.values()):
        return None
    return mapped


def reduced_index(document: Any) -> dict[str, Any]:
    """A shard index without its tensors: `files` (each shard once, sorted) and `tensors` (how many it maps)."""
    mapped = weight_map(document)
    if mapped is None:
        return {"files": [], "tensors": 0, "problem": "it maps no tensors to files"}
    shards = sorted(set(mapped.values()))
    if len(shards) > MAX_SHARDS:
        return {"files": [], "tensors": len(mapped), "problem": f"it names more than {MAX_SHARDS} files"}
    files = [clean_line(shard, MAX_KEPT_CHARS) for shard in shards]
    if files != shards:
        # A file whose name only looks like the one that is asked for would be taken for it.
        return {"files": files, "tensors": len(mapped), "problem": "it names a file with unclean characters"}
    return {"files": files, "tensors": len(mapped)}


class ShardBook:
    """Remembers, bounded, what indexes say and what shards hold, and compares the two at the end."""

    def __init__(self) -> None:
        self._indexes: dict[str, dict[str, list[str]]] = {}
        self._shards: dict[str, array[int]] = {}
        self._kept = 0

    def add_index(self, path: str, mapped: Mapping[str, str]) -> bool:
        """Remember an index; false when there is no room for it."""
        if not self._has_room(len(mapped)):
            return False
        folder = PurePosixPath(path).parent
        by_shard: dict[str, list[str]] = {}
        for name, shard in mapped.items():
            by_shard.setdefault(str(folder / shard), []).append(name)
        self._indexes[path] = by_shard
        return True

    def add_shard(self, path: str, names: Iterable[str]) -> bool:
        """Remember which tensors a file holds, as numbers of eight bytes; false when there is no room for them."""
        hashes = array("q", map(hash, names))
        if not self._has_room(len(hashes)):
            return False
        self._shards[path] = hashes
        return True

    def mismatches(self) -> dict[str, str]:
        """For each index that a shard contradicts: the first contradiction, in words."""
        found = ((path, self._mismatch(by_shard)) for path, by_shard in self._indexes.items())
        return {path: text for path, text in found if text is not None}

    def _mismatch(self, by_shard: Mapping[str, list[str]]) -> str | None:
        for shard, names in sorted(by_shard.items()):
            held = self._shards.get(shard)
            if held is None:
                # It is absent, corrupt or no Safetensors: other findings say so.
                continue
            rest = set(held)
            lacking = [name for name in names if hash(name) not in rest]
            if lacking:
                return f"{_shown(shard)} lacks {_counted(lacking)} that the index places there"
            rest.difference_update(map(hash, names))
            if rest:
                many = "a tensor" if len(rest) == 1 else f"{len(rest)} tensors"
                return f"{_shown(shard)} holds {many} that the index does not place there"
        return None

    def _has_room(self, count: int) -> bool:
        self._kept += count
        return self._kept <= MAX_NAMES


def _counted(names: list[str]) -> str:
    first = f"the tensor {_shown(names[0])}"
    return first if len(names) == 1 else f"{len(names)} tensors, such as {_shown(names[0])},"


def _shown(name: str) -> str:
    return clean_line(name, _MAX_NAME_CHARS)
