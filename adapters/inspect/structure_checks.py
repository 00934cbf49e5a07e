"""Findings about names and shapes in the weight headers: are the weights those of the configuration (spec A3, A9)?

A runtime that finds other layers than it looks for leaves them out, or fills what it misses with random numbers; the
answers still look like answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from adapters.formats.stacks import Ranges, Structure, structure
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.config_checks import model_type
from adapters.inspect.plausibility import size_of
from bus.messages.artifacts import WeightFacts
from bus.messages.gates import Finding

_Keys = tuple[str, ...]
_SOURCE: Final = "weight headers; config.json"
_HIDDEN: Final[_Keys] = ("hidden_size",)
_VOCABULARY: Final[_Keys] = ("vocab_size",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Types of models whose names and shapes are known.

    Attributes:
        prefix: what a library strips before a name, or adds.
        stack: the only stack of layers.
        layers: what its length is called.
        tensors: how many tensors a layer has at the least.
        words: the table of words; `others` stand in for it where tensors are tied.
        shapes: for landmarks, what their rows and columns are called.
    """

    prefix: str
    stack: str
    layers: _Keys
    tensors: int
    words: str
    shapes: Mapping[str, tuple[_Keys, _Keys]]
    others: tuple[str, ...] = field(default=())


def _bert(prefix: str, words: _Keys = _HIDDEN) -> Family:
    return Family(
        prefix=f"{prefix}.",
        stack="encoder.layer",
        layers=("num_hidden_layers",),
        tensors=16,
        words="embeddings.word_embeddings.weight",
        shapes={
            "embeddings.word_embeddings.weight": (_VOCABULARY, words),
            "embeddings.position_embeddings.weight": (("max_position_embeddings",), words),
            "embeddings.token_type_embeddings.weight": (("type_vocab_size",), words),
            "encoder.layer.0.intermediate.dense.weight": (("intermediate_size",), _HIDDEN),
        },
    )


_LLAMA: Final = Family(
    prefix="model.",
    stack="layers",
    layers=("num_hidden_layers",),
    tensors=9,
    words="embed_tokens.weight",
    shapes={
        "embed_tokens.weight": (_VOCABULARY, _HIDDEN),
        "lm_head.weight": (_VOCABULARY, _HIDDEN),
        "layers.0.mlp.gate_proj.weight": (("intermediate_size",), _HIDDEN),
    },
    others=("lm_head.weight",),
)
_WIDTH: Final = ("dim", "hidden_size")
FAMILIES: Final[dict[str, Family]] = {
    "bert": _bert("bert"),
    "camembert": _bert("roberta"),
    "electra": _bert("electra", ("embedding_size",)),
    "mpnet": _bert("mpnet"),
    "roberta": _bert("roberta"),
    "xlm-roberta": _bert("roberta"),
    **dict.fromkeys(("gemma", "llama", "mistral"), _LLAMA),
    **dict.fromkeys(("gemma2", "qwen3"), replace(_LLAMA, tensors=11)),
    "phi3": replace(_LLAMA, tensors=6),
    "qwen2": replace(_LLAMA, tensors=12),
    "distilbert": Family(
        prefix="distilbert.",
        stack="transformer.layer",
        layers=("n_layers", "num_hidden_layers"),
        tensors=16,
        words="embeddings.word_embeddings.weight",
        shapes={
            "embeddings.word_embeddings.weight": (_VOCABULARY, _WIDTH),
            "embeddings.position_embeddings.weight": (("max_position_embeddings",), _WIDTH),
            "transformer.layer.0.ffn.lin1.weight": (("hidden_dim",), _WIDTH),
        },
    ),
    "gpt2": Family(
        prefix="transformer.",
        stack="h",
        layers=("n_layer", "num_hidden_layers"),
        tensors=12,
        words="wte.weight",
        shapes={
            "wte.weight": (_VOCABULARY, ("n_embd", "hidden_size")),
            "wpe.weight": (("n_positions", "max_position_embeddings"), ("n_embd", "hidden_size")),
        },
        others=("lm_head.weight",),
    ),
}
# Types that call their layers, or what is in them, otherwise: none of a BERT's tensors would be found.
_NOT_LIKE_BERT: Final = frozenset(
    {
        "albert", "convbert", "eurobert", "funnel", "gpt_neox", "mobilebert", "modernbert", "nomic_bert", "t5",
        "xlm-roberta-xl", "xlnet",
    }
)  # fmt: skip
# The last step of a head that gives scores.
_SCORES: Final = frozenset({"classifier.out_proj.weight", "classifier.weight", "score.weight"})
# Types whose layers share their weights, so that the files hold fewer.
_SHARED: Final = frozenset({"albert"})
# Which part of a configuration a stack belongs to, by a word of its name; the first that is there counts.
_PARTS: Final = (
    ("vision", ("vision_config",)),
    ("visual", ("vision_config",)),
    ("audio", ("audio_config",)),
    ("text", ("text_config",)),
    ("language", ("text_config",)),
    ("encoder", ("encoder",)),
    ("decoder", ("decoder",)),
)
_COUNTS: Final = {
    "encoder": ("encoder_layers", "num_encoder_layers", "num_hidden_layers", "num_layers", "n_layer", "n_layers"),
    "decoder": ("decoder_layers", "num_decoder_layers", "num_hidden_layers", "num_layers", "n_layer", "n_layers"),
    "": ("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
}


def structure_findings(
    weights: Sequence[WeightFacts], config: dict[str, Any], *, quantized: bool = False, own_names: bool = False
) -> Iterator[Finding]:
    """Stacks, names and shapes of the weights against the configuration.

    Args:
        weights: headers of the files that would be loaded as one model.
        config: the model's config.json, or an empty object.
        quantized: shapes may be packed, so that only names are compared.
        own_names: the runtime translates names of other libraries, so that only the numbers of layers are compared.
    """
    if not weights:
        return
    found = structure([facts.metadata for facts in weights])
    if found is None:
        message = "the scan that made the evidence kept neither layers nor shapes of the weights"
        yield finding(Code.EVIDENCE_OUTDATED, "blocker", message, "weight headers")
        return
    family = None if own_names else FAMILIES.get(model_type(config) or "")
    if family is None:
        yield from _foreign_findings(found, config) if not own_names else ()
        yield from _part_findings(found, config)
        return
    yield from _silence_findings(family, config)
    yield from _name_findings(found, family, config)
    yield from _head_findings(found, config)
    layers = list(_layer_findings(found, family, config))
    yield from layers
    if not quantized:
        yield from _tensor_findings(found, family) if not layers else ()
        yield from _shape_findings(found, family, config)


def _foreign_findings(found: Structure, config: dict[str, Any]) -> Iterator[Finding]:
    """The layers and words of a BERT, at the top of the names, under a type that is none."""
    kind = model_type(config)
    words = found.landmarks.get("embeddings.word_embeddings.weight", ("", ()))[0]
    if "encoder.layer" in found.stacks and words == "embeddings.word_embeddings.weight" and kind in _NOT_LIKE_BERT:
        message = f"the weights are laid out as a BERT's, which a {kind} is not"
        yield finding(Code.WEIGHTS_FOREIGN, "blocker", message, _SOURCE)


def _silence_findings(family: Family, config: dict[str, Any]) -> Iterator[Finding]:
    """The configuration names the sizes that make the model; every library that writes one does."""
    for keys in (family.layers, *family.shapes[family.words]):
        if not any(key in config for key in keys):
            message = f"the configuration does not say {keys[0]}; the runtime would take a number of its own"
            yield finding(Code.CONFIG_IMPLAUSIBLE, "blocker", message, f"config.json: {keys[0]}")


def _name_findings(found: Structure, family: Family, config: dict[str, Any]) -> Iterator[Finding]:
    """The landmarks bear the names that the library looks for."""
    strange = sorted(
        name
        for end, (name, _) in found.landmarks.items()
        if end in family.shapes and name.removeprefix(family.prefix) != end
    )
    if strange:
        message = f"the weights call a tensor {strange[0]}, where a {model_type(config)} has no such name"
        yield finding(Code.WEIGHTS_FOREIGN, "blocker", message, _SOURCE)
    elif not found.landmarks.keys() & {family.words, *family.others}:
        message = f"no file holds {family.words}, without which a {model_type(config)} knows no word"
        yield finding(Code.WEIGHTS_FOREIGN, "blocker", message, _SOURCE)


def _head_findings(found: Structure, config: dict[str, Any]) -> Iterator[Finding]:
    """A class that scores has the head that scores, by one of the names that it bears in the known types."""
    names = config.get("architectures")
    scores = isinstance(names, list) and any(str(name).endswith("ForSequenceClassification") for name in names)
    if scores and not found.landmarks.keys() & _SCORES:
        message = f"no file holds {' or '.join(sorted(_SCORES))}; a runtime would make the head of random numbers"
        yield finding(Code.HEAD_MISSING, "blocker", message, "weight headers; config.json: architectures")


def _layer_findings(found: Structure, family: Family, config: dict[str, Any]) -> Iterator[Finding]:
    """The layers in the files are exactly those that the configuration counts."""
    names = (family.stack, family.prefix + family.stack)
    held = [found.stacks[name] for name in names if name in found.stacks] or [()]
    for key in family.layers:
        count = size_of(config, key)
        wrong = [ranges for ranges in held if count and not _is_whole(ranges, count)]
        if wrong:
            yield _layer_finding(family.stack, wrong[0], count, key)


def _tensor_findings(found: Structure, family: Family) -> Iterator[Finding]:
    """Each layer has as many tensors as the others, and as the type needs: the rest would be random numbers."""
    for name in (family.stack, family.prefix + family.stack):
        if name not in found.stacks:
            continue
        held = found.tensors[name]
        if held is None:
            message = "the scan that made the evidence did not count the tensors of a layer"
            yield finding(Code.EVIDENCE_OUTDATED, "blocker", message, "weight headers")
        elif held[0] != held[1] or held[0] < family.tensors:
            between = f"between {held[0]} and {held[1]}" if held[1] else "very different numbers of"
            message = f"a layer of {name} has {between} tensors; each has as many as the others, and {family.tensors} at least"
            yield finding(Code.WEIGHTS_INCOMPLETE, "blocker", message, "weight headers")


def _shape_findings(found: Structure, family: Family, config: dict[str, Any]) -> Iterator[Finding]:
    """The landmarks have the shapes that the configuration gives them."""
    for end, names in family.shapes.items():
        if end not in found.landmarks:
            continue
        name, shape = found.landmarks[end]
        for place, keys in enumerate(names):
            has = shape[place] if len(shape) == len(names) else 0
            wrong = [key for key in keys if key in config and (size_of(config, key) or None) != has]
            if wrong:
                sizes = "x".join(map(str, shape))
                message = f"{name} has the shape {sizes}, which does not fit {wrong[0]}"
                yield finding(Code.WEIGHTS_FOREIGN, "blocker", message, f"{_SOURCE}: {wrong[0]}")


def _part_findings(found: Structure, config: dict[str, Any]) -> Iterator[Finding]:
    """For other types: of each part that has stacks and a number of layers, one stack has that many.

    Beside the main stack may stand others, of resamplers and the like, and their numbers have names of their own.
    """
    if model_type(config) in _SHARED:
        return
    stacks: dict[tuple[str, str, int], list[tuple[str, Ranges]]] = {}
    for name, held in found.stacks.items():
        expected = _expected(name, config)
        if expected is not None:
            stacks.setdefault(expected, []).append((name, held))
    # Layers that predict further tokens stand behind the last, and are counted elsewhere.
    more = size_of(config, "num_nextn_predict_layers")
    fit = {
        (side, key)
        for (side, key, count), those in stacks.items()
        if any(_is_whole(held, one) for _, held in those for one in {count, count + more})
    }
    for (side, key, count), those in sorted(stacks.items()):
        beside = not side and any(fitting == key for _, fitting in fit)
        if (side, key) not in fit and not beside:
            largest = max(those, key=lambda item: (sum(end - begin + 1 for begin, end in item[1]), item[0]))
            yield _layer_finding(*largest, count, key)


def _expected(stack: str, config: dict[str, Any]) -> tuple[str, str, int] | None:
    """Side, key and number of layers that the configuration gives a stack; `None` where it says nothing of it."""
    part, within, side = config, "", ""
    for word in stack.split("."):
        for begin, keys in _PARTS:
            if not word.startswith(begin):
                continue
            side = begin if begin in _COUNTS else side
            nested = next((key for key in keys if isinstance(part.get(key), dict)), None)
            if nested is not None:
                part, within, side = part[nested], f"{within}{nested}.", ""
    if not within and any(isinstance(config.get(key), dict) for _, keys in _PARTS for key in keys):
        # A configuration of parts, and a stack of none of them.
        return None
    key = next((key for key in _COUNTS[side] if size_of(part, key)), None)
    return None if key is None else (side, within + key, part[key])


def _is_whole(held: Ranges, count: int) -> bool:
    return held == ((0, count - 1),)


def _layer_finding(stack: str, held: Ranges, count: int, key: str) -> Finding:
    numbers = ", ".join(f"{begin} to {end}" for begin, end in held[:3]) or "none"
    message = f"the configuration counts {count} layers of {stack}, the weights hold {numbers}"
    return finding(Code.LAYER_COUNT_MISMATCH, "blocker", message, f"{_SOURCE}: {key}")
