"""An assessment of a set of many files by the controller's own gate, over a real ledger file on this disk.

The figure is that of an operator's request without the network: the ledger is read, everything is inspected, the
fingerprint is made, and the assessment with its audit line is committed and synced. The baseline is what any program
must do that looks at the set at all: Python's own JSON reader over the set's manifest, once. The parts are timed inside
the very requests that the row is made of.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from adapters.inspect import registry
from benchmarks.measure import BASELINE, Contender, Row, bounded_row, in_turns, shown_row
from bus.digest import canonical_json
from bus.errors import ErrorCode, ModelForgeError
from controller.gates import assessments as gate
from controller.store import assessments as ledger
from tests.support.ledger import model_files, open_lab, scanned

FILES: Final = 10_000
SHARDS: Final = 500
WORDS: Final = "embeddings.word_embeddings.weight"
DOCUMENTS: Final = 1_000
# One round is the mean of so many.
REPEATS: Final = 10
BOUND_S: Final = 0.050


def large_set() -> dict[str, bytes]:
    """An embedder in shards with documents and other files around it; small files, for only their number counts."""
    files = model_files(**{"model.safetensors": None})
    places: dict[str, str] = {}
    for number in range(1, SHARDS + 1):
        shard, tensor = f"model-{number:05}-of-{SHARDS:05}.safetensors", f"encoder.layer.0.{number}.weight"
        places[tensor] = shard
        files[shard] = one_tensor(tensor)
    # The table of words, as the model's configuration has it.
    files[shard], places[WORDS] = one_tensor(WORDS, 2, 4), places.pop(tensor)
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": places}).encode()
    for number in range(DOCUMENTS):
        files[f"documents/{number:05}.json"] = json.dumps({"number": number, "words": ["a", "b"]}).encode()
    for number in range(FILES - len(files)):
        files[f"notes/{number // 100:03}/{number:05}.txt"] = b"A note.\n"
    return files


def one_tensor(name: str, *shape: int) -> bytes:
    """A Safetensors file of one tensor of floats."""
    size = 4 * math.prod(shape)
    header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


class Clock:
    """Seconds spent in a few functions, by name, since the last look."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, on this clock."""

        def run(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self._spent[name] = self._spent.get(name, 0.0) + time.perf_counter() - began

        return run

    def take(self) -> dict[str, float]:
        """What was spent, and begin anew."""
        spent, self._spent = self._spent, {}
        return spent

    @contextmanager
    def on_the_gate(self) -> Iterator[None]:
        """The gate as a whole, its reading of the set, and the inspection are on this clock meanwhile."""
        with (
            mock.patch.object(gate, "create", self.timed("gate", gate.create)),
            mock.patch.object(gate, "inspect", self.timed("inspect", registry.inspect)),
            mock.patch.object(ledger, "material", self.timed("read", ledger.material)),
        ):
            yield


def parts_of(whole_s: float, spent: dict[str, float]) -> dict[str, float]:
    """Seconds of each part of a request; together they are the whole.

    Raises:
        KeyError: when the gate no longer goes through one of the functions on the clock.
    """
    return {
        "reading the set from the ledger": spent["read"],
        "inspecting it": spent["inspect"],
        "the gate's other work": spent["gate"] - spent["read"] - spent["inspect"],
        "commit, sync, turns between threads": whole_s - spent["gate"],
    }


async def rows(rounds: int, scratch: Path) -> list[Row]:
    """The row, measured in turns, and its parts.

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

        clock, parts = Clock(), list[dict[str, float]]()

        async def assess() -> float:
            began = time.perf_counter()
            for _ in range(REPEATS):
                await lab.assess(digest)
            whole = (time.perf_counter() - began) / REPEATS
            parts.append(parts_of(whole, {name: spent / REPEATS for name, spent in clock.take().items()}))
            return whole

        async def read() -> float:
            began = time.perf_counter()
            for _ in range(REPEATS):
                json.loads(text)
            return (time.perf_counter() - began) / REPEATS

        runs: dict[str, Contender] = {BASELINE: read, "assess": assess}
        with clock.on_the_gate():
            seconds = await in_turns(runs, rounds, lambda line: print(f"assess: {line}", file=sys.stderr, flush=True))
    counted = parts[-rounds:]
    return [
        bounded_row(f"assess, {len(files):,} files", seconds["assess"], seconds[BASELINE], BOUND_S),
        *(shown_row(f"  of it: {name}", [part[name] for part in counted]) for name in counted[0]),
        shown_row("  beside it: json.loads of the manifest", seconds[BASELINE]),
    ]
