"""An assessment of a set of many files by the controller's own gate, over a real ledger file on this disk.

The figure is that of an operator's request without the network: the ledger is read, everything is inspected, the
fingerprint is made, and the assessment with its audit line is committed and synced. The baseline is what any program
must do that looks at the set at all: Python's own JSON reader over the set's manifest, once.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.measure import BASELINE, Contender, Row, bounded_row, in_turns
from bus.digest import canonical_json
from bus.errors import ErrorCode, ModelForgeError
from tests.support.ledger import model_files, open_lab, scanned

FILES: Final = 10_000
SHARDS: Final = 500
DOCUMENTS: Final = 1_000
# One round is the mean of so many.
REPEATS: Final = 10
BOUND_S: Final = 0.050


def large_set() -> dict[str, bytes]:
    """An embedder in shards with documents and other files around it; small files, for only their number counts."""
    files = model_files(**{"model.safetensors": None})
    places: dict[str, str] = {}
    for number in range(1, SHARDS + 1):
        shard, tensor = f"model-{number:05}-of-{SHARDS:05}.safetensors", f"layer.{number}.weight"
        places[tensor] = shard
        files[shard] = one_tensor(tensor)
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": places}).encode()
    for number in range(DOCUMENTS):
        files[f"documents/{number:05}.json"] = json.dumps({"number": number, "words": ["a", "b"]}).encode()
    for number in range(FILES - len(files)):
        files[f"notes/{number // 100:03}/{number:05}.txt"] = b"A note.\n"
    return files


def one_tensor(name: str) -> bytes:
    """A Safetensors file of one float."""
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


async def rows(rounds: int, scratch: Path) -> list[Row]:
    """The row, measured in turns.

    Raises:
        ModelForgeError: INTERNAL when the set is not assessed as it must be.
    """
    files = large_set()
    text = canonical_json(scanned(files)[0])
    folder = scratch / "assess"
    folder.mkdir()
    async with open_lab(folder) as lab:
        await lab.hello()
        digest = await lab.scan(files)
        await lab.profile()
        found = await lab.assess(digest)
        if found.verdict != "compatible":
            codes = ", ".join(finding.code for finding in found.findings)
            raise ModelForgeError(ErrorCode.INTERNAL, f"the set was to be compatible and is {found.verdict}: {codes}")

        async def assess() -> float:
            began = time.perf_counter()
            for _ in range(REPEATS):
                await lab.assess(digest)
            return (time.perf_counter() - began) / REPEATS

        async def read() -> float:
            began = time.perf_counter()
            for _ in range(REPEATS):
                json.loads(text)
            return (time.perf_counter() - began) / REPEATS

        runs: dict[str, Contender] = {BASELINE: read, "assess": assess}
        seconds = await in_turns(runs, rounds, lambda line: print(f"assess: {line}", file=sys.stderr, flush=True))
    name = f"assess, {len(files):,} files, against json"
    return [bounded_row(name, seconds["assess"], seconds[BASELINE], BOUND_S)]
