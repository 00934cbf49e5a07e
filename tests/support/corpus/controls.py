"""Controls for mutation: what each needs, and an opinion about damage that owes nothing to our own parsers."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from safetensors import SafetensorError, deserialize

from adapters.formats.evidence import EvidenceCollector
from bus.digest import sha256_hex
from bus.messages.artifacts import FileEntry, Manifest
from node_agent.artifact_scan import Scanned
from tests.support.corpus import folders
from tests.support.corpus.folders import Files


@dataclass(frozen=True, kw_only=True)
class Control:
    """A folder to be damaged.

    Attributes:
        required: the files without which it cannot be loaded.
    """

    files: Files
    required: tuple[str, ...]
    profile: Mapping[str, Any] = field(default_factory=dict)


_ENCODER: Final = ("config.json", "tokenizer.json")
CONTROLS: Final[dict[str, Control]] = {
    "sentence_transformers": Control(
        files=folders.new_embedder(),
        required=(*_ENCODER, folders.WEIGHTS, "modules.json", "1_Pooling/config.json"),
    ),
    "sharded": Control(
        files=folders.sharded(),
        required=(*_ENCODER, folders.INDEX, *folders.SHARDS, "modules.json", "1_Pooling/config.json"),
    ),
    "transformers": Control(
        files=folders.generator(),
        required=(*_ENCODER, folders.WEIGHTS),
        profile={"adapter": "transformers", "task": "text_generation", "dtype": "bfloat16"},
    ),
    "llama_cpp": Control(
        files=folders.gguf_folder(),
        required=(folders.GGUF_NAME,),
        profile={"adapter": "llama_cpp", "task": "text_generation"},
    ),
    "diffusers": Control(
        files=folders.pipeline(),
        # What a tokenizer is made of differs from one to the next; here it is its vocabulary at least.
        required=tuple(sorted(folders.pipeline().keys() - {"tokenizer/merges.txt", "tokenizer/tokenizer_config.json"})),
        profile={"adapter": "diffusers", "task": "image_generation"},
    ),
}


def read(files: Files) -> Scanned:
    """What a scan of these files gives, without a disk."""
    collector = EvidenceCollector()
    entries = []
    for path, data in sorted(files.items()):
        collector.add(path, io.BytesIO(data), len(data))
        entries.append(FileEntry(path=path, size_bytes=len(data), sha256=sha256_hex(data)))
    return Scanned(manifest=Manifest(files=tuple(entries)), evidence=collector.result())


def is_corrupt(control: Control, files: Files) -> bool:
    """Can the set not be loaded, by the word of other readers: the safetensors library and Python's JSON?"""
    present = [path for path in control.required if path in files]
    return (
        len(present) < len(control.required)
        or any(_is_broken(path, files[path], control.files[path]) for path in present)
        or _index_is_wrong(files)
    )


def _is_broken(path: str, data: bytes, original: bytes) -> bool:
    if PurePosixPath(path).name == "vocab.json":
        # A vocabulary may be larger than all that a scan keeps: that it is there must do.
        return not data
    match PurePosixPath(path).suffix:
        case ".safetensors":
            return tensor_names(data) is None
        case ".json":
            return type(parsed(data)) is not type(parsed(original))
        case ".gguf":
            # Its own fields are ours to judge; what is certain is a wrong beginning, and an end that is not there.
            return not data.startswith(b"GGUF") or (len(data) < len(original) and original.startswith(data))
        case _:
            return not data


def tensor_names(data: bytes) -> set[str] | None:
    """The tensors of a Safetensors file, `None` where the library refuses it."""
    try:
        return {name for name, _ in deserialize(data)}  # type: ignore[no-untyped-call]  # its stub has no types
    except SafetensorError:
        return None


def parsed(data: bytes) -> object:
    """The value of a JSON text; `None` where Python refuses it."""
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value


def _index_is_wrong(files: Files) -> bool:
    if folders.INDEX not in files:
        return False
    document = parsed(files[folders.INDEX])
    places = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        return True
    lie = {(name, shard) for shard in folders.SHARDS for name in tensor_names(files.get(shard, b"")) or ()}
    return lie != set(places.items())
