"""Rows of weight files: Safetensors, shards, pickles, and what only bears their names (spec A3, A4, A9)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from tests.support.corpus import folders, raw
from tests.support.corpus.folders import INDEX, SHARDS, TRUNK, WEIGHTS
from tests.support.corpus.row import Row, changed, without

_GOOD: Final = raw.safetensors(TRUNK)
_BIN: Final = "pytorch_model.bin"
_NONE: Final = {WEIGHTS: None}
_FLOATS: Final = {"dtype": "F32", "shape": [4]}


def _one(name: str, changes: Mapping[str, bytes | None], *blockers: str, **more: Any) -> Row:
    verdict = "blocked" if blockers or more.get("one_of") else "compatible"
    files = changed(folders.embedder(), changes)
    return Row(name=f"weights {name}", files=files, blockers=blockers, **{"verdict": verdict, **more})


def _shards(name: str, changes: Mapping[str, bytes | None], *blockers: str, **more: Any) -> Row:
    verdict = "blocked" if blockers or more.get("one_of") else "compatible"
    files = changed(folders.sharded(), changes)
    return Row(name=f"shards {name}", files=files, blockers=blockers, **{"verdict": verdict, **more})


def _header(*ranges: tuple[int, int], data_bytes: int) -> bytes:
    tensors = {f"t{number}": {**_FLOATS, "data_offsets": list(span)} for number, span in enumerate(ranges)}
    return raw.with_header(tensors, bytes(data_bytes))


SAFETENSORS: Final = (
    _one("absent", _NONE, "NO_WEIGHTS", codes=("MEMORY_UNKNOWN",)),
    _one("of zero bytes", {WEIGHTS: b""}, "EMPTY_FILE"),
    _one("an LFS pointer", {WEIGHTS: raw.LFS_POINTER}, "LFS_POINTER", absent=("PICKLE_CODE",)),
    _one("cut at the end", {WEIGHTS: _GOOD[:-1_000]}, "WEIGHTS_CORRUPT"),
    _one("cut inside the header", {WEIGHTS: _GOOD[:40]}, "WEIGHTS_CORRUPT"),
    _one("cut inside the length", {WEIGHTS: _GOOD[:5]}, one_of=("WEIGHTS_CORRUPT", "FORMAT_MISMATCH")),
    _one("with bytes too many", {WEIGHTS: _GOOD + b"\0\0"}, "WEIGHTS_CORRUPT"),
    _one("a web page", {WEIGHTS: raw.HTML}, "FORMAT_MISMATCH"),
    _one("a pickle under a safe name", {WEIGHTS: raw.tensor_pickle()}, "FORMAT_MISMATCH"),
    _one("a torch file under a safe name", {WEIGHTS: raw.torch_zip()}, "FORMAT_MISMATCH"),
    _one("code under a safe name", {WEIGHTS: raw.evil_pickle()}, "FORMAT_MISMATCH", "MEMBER_QUARANTINED", codes=("PICKLE_CODE",)),
    _one("a GGUF under a safe name", {WEIGHTS: folders.whole_gguf()}, "FORMAT_MISMATCH"),
    _one("of overlapping tensors", {WEIGHTS: _header((0, 16), (8, 24), data_bytes=24)}, "WEIGHTS_CORRUPT"),
    _one("with a hole", {WEIGHTS: _header((0, 16), (32, 48), data_bytes=48)}, "WEIGHTS_CORRUPT"),
    _one("of another size than their shape", {WEIGHTS: _header((0, 12), data_bytes=12)}, "WEIGHTS_CORRUPT"),
    _one("of an unknown type",
         {WEIGHTS: raw.with_header({"t": {"dtype": "Q7", "shape": [4], "data_offsets": [0, 16]}}, bytes(16))},
         "WEIGHTS_CORRUPT"),
    _one("whose header claims ten gigabytes", {WEIGHTS: struct.pack("<Q", 10 * 1024**3) + _GOOD[8:]},
         one_of=("WEIGHTS_CORRUPT", "FORMAT_MISMATCH")),
    _one("whose header is nested deep",
         {WEIGHTS: struct.pack("<Q", len(raw.DEEP_JSON)) + raw.DEEP_JSON}, one_of=("WEIGHTS_CORRUPT", "FORMAT_MISMATCH")),
    _one("whose shape overflows",
         {WEIGHTS: raw.with_header({"t": {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 16]}}, bytes(16))},
         "WEIGHTS_CORRUPT"),
    _one("without a tensor", {WEIGHTS: raw.with_header({}, b"")}, one_of=("WEIGHTS_CORRUPT", "NO_WEIGHTS")),
    _one("twice", {"model-copy.safetensors": _GOOD}, codes=("DUPLICATE_WEIGHTS",)),
    _one("whole and in shards", {**folders.sharded(), WEIGHTS: _GOOD}, codes=("DUPLICATE_WEIGHTS",)),
    _one("beside those of another format", {"model.gguf": folders.whole_gguf()}),
    _one("of half precision", {WEIGHTS: raw.safetensors(TRUNK, "F16")}, codes=("DTYPE_MISMATCH",)),
)  # fmt: skip

PICKLES: Final = (
    _one("beside a pickle", {_BIN: raw.torch_zip()}, codes=("PICKLE_BESIDE_WEIGHTS",)),
    _one("as a pickle alone", {**_NONE, _BIN: raw.torch_zip()}, one_of=("PICKLE_NOT_APPROVED", "PICKLE_NOT_LOADED")),
    _one("as a pickle of the old form", {**_NONE, _BIN: raw.legacy_torch()}, one_of=("PICKLE_NOT_APPROVED", "PICKLE_NOT_LOADED"), absent=("PICKLE_CODE",)),
    # Approved or not: this adapter loads Safetensors only (spec A12).
    _one("as an approved pickle", {**_NONE, _BIN: raw.torch_zip()}, "PICKLE_NOT_LOADED",
         subject={"approved": frozenset({"pickle"})}, absent=("PICKLE_NOT_APPROVED",)),
    *(
        _one(f"as code in pickle protocol {number}", {**_NONE, _BIN: raw.evil_pickle(number)}, "MEMBER_QUARANTINED", codes=("PICKLE_CODE",))
        for number in (0, 2, 4, 5)
    ),
    _one("as code from the memo", {**_NONE, _BIN: raw.memoized_evil_pickle()}, "MEMBER_QUARANTINED", codes=("PICKLE_CODE",)),
    _one("as code in a torch file", {**_NONE, _BIN: raw.torch_zip(raw.evil_pickle())}, "MEMBER_QUARANTINED", codes=("PICKLE_CODE",)),
    _one("as code, approved", {**_NONE, _BIN: raw.evil_pickle()}, "MEMBER_QUARANTINED", codes=("PICKLE_CODE",), subject={"approved": frozenset({"pickle"})}),
    _one("beside code", {_BIN: raw.evil_pickle()}, "MEMBER_QUARANTINED", codes=("PICKLE_CODE",)),
    _one("beside code in a file that no loader names", {"notes.dat": raw.evil_pickle(4)}, "MEMBER_QUARANTINED", codes=("PICKLE_CODE",)),
    # The gate's own release counts, and the reader is still told.
    _one("beside released code", {"notes.dat": raw.evil_pickle(4)}, codes=("PICKLE_CODE", "QUARANTINE_RELEASED"),
         released_by="approval-1", absent=("MEMBER_QUARANTINED",)),
    _one("beside joblib", {"classifier.joblib": raw.joblib_pickle()}, "MEMBER_QUARANTINED", codes=("PICKLE_CODE",)),
    _one("as a pickle that ends early", {**_NONE, _BIN: raw.tensor_pickle()[:-6]}, one_of=("PICKLE_UNREADABLE", "PICKLE_NOT_LOADED"), codes=("PICKLE_UNREADABLE",)),
    # It is not loaded, but neither is a truncated Safetensors file beside the weights: no member may be corrupt.
    _one("beside a pickle that ends early", {_BIN: raw.tensor_pickle()[:-6]}, "PICKLE_UNREADABLE"),
    _one("beside Safetensors that end early", {"other.safetensors": _GOOD[:-9]}, "WEIGHTS_CORRUPT"),
    _one("beside a download that is not finished", {"model.safetensors.incomplete": _GOOD[:99]}, "WEIGHTS_CORRUPT", codes=("PARTIAL_DOWNLOAD",)),
    _one("as a torch file that ends early", {**_NONE, _BIN: raw.torch_zip()[:-30]},
         one_of=("PICKLE_UNREADABLE", "PICKLE_NOT_LOADED", "WEIGHTS_CORRUPT"), codes=("PICKLE_UNREADABLE",)),
    _one("as a pickle that is a pointer", {**_NONE, _BIN: raw.LFS_POINTER}, "NO_WEIGHTS", codes=("LFS_POINTER",)),
)  # fmt: skip


def _places(rename: dict[str, str]) -> bytes:
    """The index with shards under other names."""
    places: dict[str, str] = json.loads(folders.sharded()[INDEX])["weight_map"]
    return raw.index({tensor: rename.get(shard, shard) for tensor, shard in places.items()})


def _moved() -> bytes:
    """An index that looks for every tensor in the first shard."""
    return _places({SHARDS[1]: SHARDS[0]})


def _foreign() -> dict[str, bytes | None]:
    """Complete shards under new names, and the index of the old ones."""
    whole = folders.sharded()
    renamed = {f"model-0000{number}-of-00003.safetensors": whole[shard] for number, shard in enumerate(SHARDS, 1)}
    return {**dict.fromkeys(SHARDS), **renamed}


_ONE_MORE: Final = {"encoder.layer.9.weight": (4,)}

SHARDED: Final = (
    _shards("complete", {}, absent=("SHARD_MISMATCH", "SHARD_UNINDEXED", "DUPLICATE_WEIGHTS", "NO_WEIGHTS")),
    _shards("one absent", {SHARDS[1]: None}, "SHARD_MISSING"),
    _shards("one empty", {SHARDS[1]: b""}, "EMPTY_FILE"),
    _shards("one truncated", {SHARDS[1]: folders.sharded()[SHARDS[1]][:-8]}, "WEIGHTS_CORRUPT"),
    _shards("one a pointer", {SHARDS[1]: raw.LFS_POINTER}, "LFS_POINTER"),
    _shards("with another padding of their numbers",
            {SHARDS[1]: None, "model-00002-of-000002.safetensors": folders.sharded()[SHARDS[1]]}, "SHARD_MISSING"),
    _shards("with the index of other files", _foreign(), "SHARD_MISSING"),
    _shards("with tensors where the index has them not", {INDEX: _moved()}, "SHARD_MISMATCH"),
    _shards("with a tensor that no index names", {SHARDS[1]: raw.safetensors({**TRUNK, **_ONE_MORE})}, "SHARD_MISMATCH"),
    _shards("with a tensor fewer than the index", {SHARDS[1]: raw.safetensors(_ONE_MORE)}, "SHARD_MISMATCH"),
    _shards("with a shard that no index names", {"model-00003-of-00003.safetensors": raw.safetensors(_ONE_MORE)},
            codes=("SHARD_UNINDEXED",)),
    _shards("without an index", {INDEX: None}, one_of=("SHARD_UNINDEXED", "NO_WEIGHTS")),
    _shards("with an index that is garbage", {INDEX: b"{"}, "SHARD_INDEX_UNREADABLE"),
    _shards("with an index without a map", {INDEX: b"{}"}, "SHARD_INDEX_UNREADABLE"),
    _shards("with an index nested deep", {INDEX: raw.DEEP_JSON}, "SHARD_INDEX_UNREADABLE"),
    _shards("with an index that leaves the folder", {INDEX: _places({SHARDS[1]: "../other.safetensors"})},
            one_of=("SHARD_MISSING", "SHARD_INDEX_UNREADABLE")),
    _shards("whose index is a pointer", {INDEX: raw.LFS_POINTER}, one_of=("LFS_POINTER", "SHARD_INDEX_UNREADABLE")),
    # The loader prefers the index, although the pickle beside it is complete.
    Row(name="shards of a leftover index beside a pickle", verdict="blocked", blockers=("SHARD_MISSING",),
        files=changed(without(folders.sharded(), "model-"), {_BIN: raw.torch_zip()})),
    _one("with a leftover index", {INDEX: folders.sharded()[INDEX]}, "SHARD_MISSING"),
)  # fmt: skip
