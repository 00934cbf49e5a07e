"""What a scan keeps of a model folder besides the digests: small documents and weight headers.

One function per member, so that the scanner decides how files are opened; `EvidenceCollector` bounds the sum, because
it travels in one message.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final

from msgspec.structs import replace

from adapters.formats import safetensors
from adapters.formats.documents import MAX_DOCUMENT_BYTES, MAX_KEPT_ITEMS, DocumentProblem, parse_json, pruned
from adapters.loader_options import TRANSFORMER_CONFIGS
from bus.codec import encode
from bus.messages.artifacts import SetEvidence, WeightFacts

MAX_INDEX_BYTES: Final = 32 * 1024 * 1024
MAX_EVIDENCE_BYTES: Final = 384 * 1024
MAX_WEIGHTS: Final = 1_000
MAX_NOTES: Final = 100
MAX_SHARDS: Final = 10_000
MAX_DTYPES: Final = 32
INDEX_SUFFIX: Final = ".index.json"
# Documents that inspectors read. A tokenizer's vocabulary is not one of them: its presence is what counts.
DOCUMENTS: Final = frozenset(
    {
        "adapter_config.json",
        "config.json",
        "config_sentence_transformers.json",
        "generation_config.json",
        "model_index.json",
        "modules.json",
        "preprocessor_config.json",
        "processor_config.json",
        "quantize_config.json",
        *TRANSFORMER_CONFIGS,
        "special_tokens_map.json",
        "tokenizer_config.json",
    }
)
_PICKLE_SUFFIXES: Final = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill"})
_PICKLE_PROTOCOLS: Final = tuple(bytes([0x80, version]) for version in range(2, 6))
_ZIP: Final = b"PK\x03\x04"
_GGUF: Final = struct.Struct("<4sIQQ")
_GGUF_MAGIC: Final = b"GGUF"


class EvidenceCollector:
    """Fed with every member of a set in the manifest's order; gives the set's evidence."""

    def __init__(self) -> None:
        self._documents: dict[str, Any] = {}
        self._weights: list[WeightFacts] = []
        self._notes: list[str] = []
        self._kept_bytes = 0

    def add(self, path: str, file: BinaryIO, size_bytes: int) -> None:
        """Look at one member: `path` relative to the set, `file` at its beginning. Weights are never read.

        Raises:
            OSError: when the file cannot be read.
        """
        name = PurePosixPath(path).name
        if name.endswith(INDEX_SUFFIX):
            self._add_document(path, file, size_bytes, MAX_INDEX_BYTES)
        elif name in DOCUMENTS:
            self._add_document(path, file, size_bytes, MAX_DOCUMENT_BYTES)
        else:
            facts = weight_facts(path, file, size_bytes)
            if facts is not None and self._fits(facts) and len(self._weights) < MAX_WEIGHTS:
                self._weights.append(facts)
            elif facts is not None:
                self._note(f"{path}: left out, the evidence is full")

    def result(self) -> SetEvidence:
        """The evidence of all members so far."""
        return SetEvidence(
            documents=dict(sorted(self._documents.items())),
            weights=tuple(sorted(self._weights, key=lambda facts: facts.path)),
            notes=tuple(self._notes),
        )

    def _add_document(self, path: str, file: BinaryIO, size_bytes: int, max_bytes: int) -> None:
        if size_bytes > max_bytes:
            self._note(f"{path}: not read, it is larger than {max_bytes} bytes")
            return
        try:
            document = parse_json(file.read(max_bytes + 1), max_bytes=max_bytes)
        except DocumentProblem as problem:
            self._note(f"{path}: not read, {problem}")
            return
        kept = reduced_index(document) if path.endswith(INDEX_SUFFIX) else pruned(document)
        if self._fits(kept):
            self._documents[path] = kept
        else:
            self._note(f"{path}: left out, the evidence is full")

    def _fits(self, value: object) -> bool:
        size = len(encode(value))
        if self._kept_bytes + size > MAX_EVIDENCE_BYTES:
            return False
        self._kept_bytes += size
        return True

    def _note(self, text: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes.append(str(pruned(text)))


def reduced_index(document: Any) -> dict[str, Any]:
    """A shard index without its tensors: `files` (each shard once, sorted) and `tensors` (how many it maps)."""
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        return {"files": [], "tensors": 0, "problem": "it maps no tensors to files"}
    shards = sorted(set(weight_map.values()))
    if len(shards) > MAX_SHARDS:
        return {"files": [], "tensors": len(weight_map), "problem": f"it names more than {MAX_SHARDS} files"}
    return {"files": [pruned(shard) for shard in shards], "tensors": len(weight_map)}


def received(evidence: SetEvidence, members: Collection[str]) -> SetEvidence:
    """Evidence as another machine sent it, made what the collector makes: about members only, cleaned and bounded.

    Raises:
        DocumentProblem: when it is larger than any collector lets it become.
    """
    if len(encode(evidence)) > 2 * MAX_EVIDENCE_BYTES:
        raise DocumentProblem(f"it is larger than {2 * MAX_EVIDENCE_BYTES} bytes")
    documents = {
        path: pruned(document, MAX_SHARDS if path.endswith(INDEX_SUFFIX) else MAX_KEPT_ITEMS)
        for path, document in sorted(evidence.documents.items())
        if path in members
    }
    weights = [
        replace(
            facts,
            problem=None if facts.problem is None else pruned(facts.problem),
            bytes_by_dtype=dict(list(facts.bytes_by_dtype.items())[:MAX_DTYPES]),
        )
        for facts in evidence.weights[:MAX_WEIGHTS]
        if facts.path in members
    ]
    notes = tuple(str(pruned(note)) for note in evidence.notes[:MAX_NOTES])
    return SetEvidence(documents=documents, weights=tuple(weights), notes=notes)


def weight_facts(path: str, file: BinaryIO, size_bytes: int) -> WeightFacts | None:
    """What a weight file's first bytes say; `None` for a file that holds no weights."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix == ".safetensors":
        return safetensors.weight_facts(path, file, size_bytes)
    head = file.read(_GGUF.size)
    if suffix == ".gguf" or head.startswith(_GGUF_MAGIC):
        return _gguf(path, head)
    if head.startswith(_PICKLE_PROTOCOLS) or (suffix in _PICKLE_SUFFIXES and head.startswith(_ZIP)):
        return WeightFacts(path=path, format="pickle")
    if suffix in _PICKLE_SUFFIXES:
        return WeightFacts(path=path, format="unknown", problem="neither a pickle nor another known weight format")
    return None


def _gguf(path: str, head: bytes) -> WeightFacts:
    if len(head) < _GGUF.size or not head.startswith(_GGUF_MAGIC):
        return WeightFacts(path=path, format="gguf", problem="the file does not begin with a GGUF header")
    _magic, _version, tensors, _pairs = _GGUF.unpack(head)
    if tensors > safetensors.MAX_TENSORS:
        return WeightFacts(path=path, format="gguf", problem="the header names an impossible number of tensors")
    return WeightFacts(path=path, format="gguf", tensors=tensors)
