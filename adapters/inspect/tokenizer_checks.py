"""Findings about the tokenizer: a runtime that misses a file may invent a tokenizer and answer nonsense (spec A9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.dimensions import text_part
from adapters.inspect.subject import ROOT, Subject, member
from bus.messages.artifacts import FileFormat
from bus.messages.gates import Finding

# Each is a whole tokenizer by itself.
TOKENIZER: Final = "tokenizer.json"
_WHOLE: Final = (TOKENIZER, "tekken.json")
# The vocabulary that a tokenizer without tokenizer.json is built from. Any one of these names is a tokenizer on disk;
# `tokenizer_config.json` alone is none.
_PIECES: Final = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
TOKENIZER_FILES: Final = (*_WHOLE, "vocab.txt", "vocab.json", *_PIECES)
_SETTINGS: Final = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_PAIR: Final = ("vocab.json", "merges.txt")
# Slow classes by the vocabulary that they are built from (the `vocab_files_names` of transformers).
_CLASS_FILES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("AlbertTokenizer", "T5Tokenizer", "XLNetTokenizer", "SiglipTokenizer", "PegasusTokenizer", "BigBirdTokenizer"),
        ("spiece.model",),
    ),
    **dict.fromkeys(
        ("XLMRobertaTokenizer", "CamembertTokenizer", "MBartTokenizer", "NllbTokenizer", "BarthezTokenizer"),
        ("sentencepiece.bpe.model",),
    ),
    **dict.fromkeys(("LlamaTokenizer", "GemmaTokenizer", "CodeLlamaTokenizer"), ("tokenizer.model",)),
    **dict.fromkeys(
        ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "WhisperTokenizer", "CLIPTokenizer", "Qwen2Tokenizer"),
        _PAIR,
    ),
    **dict.fromkeys(
        ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer", "LayoutLMTokenizer"),
        ("vocab.txt",),
    ),
}
# A vocabulary of less than nine tenths of the model's belongs to another model; what is padded is a few hundred.
_LEAST_PERCENT: Final = 90
# A vocabulary without merges is whole where sounds become letters.
_LETTERS: Final = ("CTCTokenizer", "Wav2Vec2PhonemeCTCTokenizer")


def tokenizer_findings(subject: Subject, folder: str, config: dict[str, Any]) -> Iterator[Finding]:
    """Without a tokenizer's files a runtime may invent one and answer nonsense with a straight face."""
    names = subject.in_folder(folder)
    if TOKENIZER in names:
        yield from whole_findings(subject, member(folder, TOKENIZER), config)
    if names.intersection(_WHOLE):
        return
    where = "the model's folder" if folder == ROOT else folder
    if not names.intersection((*TOKENIZER_FILES, "merges.txt")):
        settings = sorted(names.intersection(_SETTINGS))
        if settings:
            message = f"{where} has {', '.join(settings)}, and none of {', '.join(TOKENIZER_FILES)}"
            yield finding(Code.TOKENIZER_INCOMPLETE, "blocker", message, "manifest")
        else:
            message = f"{where} has none of {', '.join(TOKENIZER_FILES)}"
            yield finding(Code.TOKENIZER_MISSING, "blocker", message, "manifest")
        return
    yield from _slow_findings(subject, folder, names)


def whole_findings(subject: Subject, path: str, config: dict[str, Any]) -> Iterator[Finding]:
    """What the scan kept of a tokenizer.json: that it can be read, and how many entries its vocabulary has."""
    kept = subject.document(path) or {}
    problem = kept.get("problem")
    if problem and subject.format_of(path) not in {FileFormat.EMPTY, FileFormat.LFS_POINTER, FileFormat.HTML}:
        yield finding(Code.TOKENIZER_INCOMPLETE, "blocker", f"{path}: {problem}", path)
    elif path not in subject.evidence.documents and subject.format_of(path) in {FileFormat.BINARY, FileFormat.TEXT}:
        # Too large to be read, which is no fault; but it does not even begin as JSON does.
        yield finding(Code.TOKENIZER_INCOMPLETE, "blocker", f"{path} is no JSON", path)
    has, wanted = kept.get("vocab_size"), text_part(config).get("vocab_size")
    if type(has) is not int or type(wanted) is not int or wanted <= 0:
        return
    added = kept.get("added_tokens")
    # An added token may be one of the vocabulary or stand beside it: so many they are at the most.
    most = has + (added if type(added) is int else 0)
    source = f"{path}; config.json: vocab_size"
    if has > wanted:
        message = f"the tokenizer knows {has} tokens, the model {wanted}: some would have no vector"
        yield finding(Code.TOKENIZER_MISMATCH, "warning", message, source)
    elif most * 100 < wanted * _LEAST_PERCENT:
        message = f"the tokenizer knows {most} tokens of the model's {wanted}: it is another model's"
        yield finding(Code.TOKENIZER_MISMATCH, "blocker", message, source)


def _slow_findings(subject: Subject, folder: str, names: frozenset[str]) -> Iterator[Finding]:
    kind = _class_of(subject, folder)
    source = f"manifest; {member(folder, 'tokenizer_config.json')}: tokenizer_class"
    needed = _CLASS_FILES.get(kind)
    if needed is not None:
        absent = [name for name in needed if name not in names]
        if absent:
            message = f"without tokenizer.json, {kind} needs {' and '.join(absent)}"
            yield finding(Code.TOKENIZER_INCOMPLETE, "blocker", message, source)
            return
    elif len(names.intersection(_PAIR)) == 1 and not _other_vocabulary(names) and not kind.endswith(_LETTERS):
        there, absent_name = _PAIR if "vocab.json" in names else _PAIR[::-1]
        message = f"{there} is there, {absent_name} is not, and neither is tokenizer.json"
        yield finding(Code.TOKENIZER_INCOMPLETE, "blocker", message, source)
        return
    pieces = sorted(names.intersection(_PIECES))
    if pieces and "sentencepiece" not in subject.packages:
        message = f"without tokenizer.json, {pieces[0]} is read with sentencepiece, which the node does not list"
        yield finding(Code.PACKAGE_MISSING, "warning", message, "node environment: packages")


def _other_vocabulary(names: frozenset[str]) -> bool:
    return bool(names.intersection(("vocab.txt", *_PIECES)))


def _class_of(subject: Subject, folder: str) -> str:
    """The tokenizer's class without the ending of the fast ones; empty when nothing names it."""
    named = (subject.document(member(folder, "tokenizer_config.json")) or {}).get("tokenizer_class")
    return named.removesuffix("Fast")[:80] if isinstance(named, str) else ""
