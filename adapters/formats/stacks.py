"""What the names and shapes of tensors say of a model: its stacks of numbered layers, and a few landmarks.

The names of all tensors are too many to be sent. These few lines of text travel in the metadata of a weight file, and
are put together again for all files of a model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bus.text import clean_line

# Metadata keys: how many stacks were found, each stack, each landmark.
STACKS: Final = "stacks"
_STACK: Final = "stack "
_TENSOR: Final = "tensor "
MAX_STACKS: Final = 12
MAX_PREFIX_CHARS: Final = 100
MAX_RANGES_CHARS: Final = 100
# With their numbers of tensors; metadata are cut to 256 characters, and before them stands a prefix.
MAX_COUNTED_CHARS: Final = 150
# A list of layers, by what the families of models call it.
_LAYER: Final = re.compile(r"((?:(?![0-9]+\.)[^.]+\.)*?(?:layers?|h|blocks?|resblocks))\.([0-9]{1,5})\.")
_RANGE: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})(?:x([0-9]{1,6}))?\Z")
_SHAPE: Final = re.compile(r"(.*) ([0-9]{1,19}(?:x[0-9]{1,19}){0,15})\Z")
# Tensors whose shapes are sizes that a configuration names too; before them stands what a library strips, or not.
LANDMARKS: Final = (
    "classifier.out_proj.weight",
    "classifier.weight",
    "embed_tokens.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "embeddings.word_embeddings.weight",
    "encoder.layer.0.intermediate.dense.weight",
    "layers.0.mlp.gate_proj.weight",
    "lm_head.weight",
    "score.weight",
    "transformer.layer.0.ffn.lin1.weight",
    "wpe.weight",
    "wte.weight",
)
Ranges = tuple[tuple[int, int], ...]
# First layer, last layer, and how many tensors each has in one file; zero: various, `None`: not counted.
_Run = tuple[int, int, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """The structure of all weight files of one model.

    Attributes:
        stacks: for each stack, such as `encoder.layer`, the numbers of its layers as ranges, both ends in them.
        tensors: for each stack, the fewest and the most tensors in one of its layers; zeros where they were too
            many different ones to be kept, `None` where the scan did not count.
        landmarks: for each of `LANDMARKS` that is there, its whole name and its shape.
    """

    stacks: Mapping[str, Ranges]
    tensors: Mapping[str, tuple[int, int] | None]
    landmarks: Mapping[str, tuple[str, tuple[int, ...]]]


def metadata(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, str]:
    """The structure of one file as metadata, bounded; `tensors` are names and shapes."""
    layers: dict[str, Counter[int]] = {}
    landmarks: dict[str, tuple[str, tuple[int, ...]]] = {}
    ends = tuple(LANDMARKS)
    for name, shape in tensors:
        match = _LAYER.match(name)
        if match is not None:
            layers.setdefault(match[1], Counter())[int(match[2])] += 1
        if name.endswith(ends):
            _keep_landmark(landmarks, name, shape)
    kept = {STACKS: str(len(layers))}
    largest = sorted(layers.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_STACKS]
    for number, (prefix, numbers) in enumerate(largest, start=1):
        kept[f"{_STACK}{number}"] = f"{clean_line(prefix, MAX_PREFIX_CHARS)} {_written(numbers)}"
    for end, (name, shape) in sorted(landmarks.items()):
        kept[_TENSOR + end] = f"{clean_line(name, MAX_PREFIX_CHARS)} {'x'.join(map(str, shape))}"
    return kept


def structure(files: Sequence[Mapping[str, str]]) -> Structure | None:
    """The structure of a model from the metadata of its files; `None` when one of them has none.

    What another machine made up is left out.
    """
    if not files or any(STACKS not in kept for kept in files):
        return None
    stacks: dict[str, list[_Run]] = {}
    landmarks: dict[str, tuple[str, tuple[int, ...]]] = {}
    for kept in files:
        for key, text in kept.items():
            if key.startswith(_STACK):
                prefix, _, written = text.rpartition(" ")
                stacks.setdefault(prefix, []).extend(_ranges(written))
            elif key.startswith(_TENSOR) and (match := _SHAPE.match(text)) is not None:
                _keep_landmark(landmarks, match[1], tuple(int(size) for size in match[2].split("x")))
    return Structure(
        stacks={prefix: _merged([run[:2] for run in runs]) for prefix, runs in stacks.items()},
        tensors={prefix: _extremes(runs) for prefix, runs in stacks.items()},
        landmarks=landmarks,
    )


def _keep_landmark(kept: dict[str, tuple[str, tuple[int, ...]]], name: str, shape: tuple[int, ...]) -> None:
    """Of several tensors with one ending, the one with the shortest name is the model's own."""
    if not shape:
        return
    for end in LANDMARKS:
        if name == end or name.endswith(f".{end}"):
            held = kept.get(end)
            if held is None or (len(name), name) < (len(held[0]), held[0]):
                kept[end] = (name, shape)


def _written(numbers: Mapping[int, int]) -> str:
    """The numbers as ranges with their numbers of tensors, `0-5x16,7-7x3`.

    Where there is no room for that, the ranges alone, `0-5x0,7-7x0`, as many of them as there is room for.
    """
    runs: list[list[int]] = []
    for number, count in sorted(numbers.items()):
        if runs and number == runs[-1][1] + 1 and count == runs[-1][2]:
            runs[-1][1] = number
        else:
            runs.append([number, number, count])
    counted = ",".join(f"{begin}-{end}x{count}" for begin, end, count in runs)
    if len(counted) <= MAX_COUNTED_CHARS:
        return counted
    text = ""
    for begin, end in _merged([(number, number) for number in numbers]):
        more = f"{text},{begin}-{end}x0" if text else f"{begin}-{end}x0"
        if len(more) > MAX_RANGES_CHARS:
            break
        text = more
    return text


def _ranges(text: str) -> list[_Run]:
    found = [_RANGE.match(part) for part in text.split(",")]
    return [
        (int(match[1]), int(match[2]), None if match[3] is None else int(match[3]))
        for match in found
        if match is not None and int(match[1]) <= int(match[2])
    ]


def _extremes(runs: list[_Run]) -> tuple[int, int] | None:
    """The fewest and the most tensors in one layer of all files together."""
    steps: Counter[int] = Counter()
    for begin, end, count in runs:
        if count is None:
            return None
        if count == 0:
            return (0, 0)
        steps[begin] += count
        steps[end + 1] -= count
    held, totals = 0, []
    for place in sorted(steps):
        held += steps[place]
        if held:
            totals.append(held)
    return (min(totals), max(totals)) if totals else None


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return tuple(merged)
