"""Findings about a configuration's numbers: each size is a whole number that a model can have, and they fit (spec A9).

A runtime takes a wrong number without a word, and builds another model than the weights are of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding, several
from adapters.inspect.config_checks import model_type
from bus.messages.gates import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of a model.

    Attributes:
        keys: what the families of models call it.
        most: the largest that is believed; the largest known model has a hundredth.
        optional: null says that the runtime works it out.
        listed: families exist that have one for each layer or stage.
    """

    keys: tuple[str, ...]
    most: int
    optional: bool = False
    listed: bool = False


SIZES: Final = (
    Size(keys=("hidden_size", "d_model", "dim", "n_embd", "embedding_size"), most=1_000_000),
    Size(
        keys=(
            "num_hidden_layers",
            "num_layers",
            "n_layer",
            "n_layers",
            "encoder_layers",
            "decoder_layers",
            "num_encoder_layers",
            "num_decoder_layers",
        ),
        most=10_000,
    ),
    Size(
        keys=(
            "num_attention_heads",
            "num_heads",
            "n_head",
            "n_heads",
            "encoder_attention_heads",
            "decoder_attention_heads",
        ),
        most=10_000,
        listed=True,
    ),
    Size(keys=("num_key_value_heads", "head_dim", "d_kv"), most=100_000, optional=True, listed=True),
    Size(
        keys=("intermediate_size", "d_ff", "ffn_dim", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"),
        most=10_000_000,
        listed=True,
    ),
    Size(keys=("n_inner",), most=10_000_000, optional=True),
    Size(keys=("vocab_size",), most=100_000_000),
    Size(
        keys=("max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions"),
        most=1_000_000_000,
        optional=True,
    ),
)
# Parts of a configuration that are configurations themselves.
PARTS: Final = ("text_config", "vision_config", "audio_config", "encoder", "decoder")
# Types that cut the hidden size into as many pieces as they have heads, and know no other size of a head.
_CUT: Final = frozenset(
    {
        "bart", "bert", "camembert", "clip", "clip_text_model", "clip_vision_model", "distilbert", "electra", "gpt2",
        "mbart", "mpnet", "roberta", "siglip", "siglip2", "siglip_text_model", "siglip_vision_model", "trocr", "vit",
        "whisper", "xlm-roberta",
    }
)  # fmt: skip
# Types that cut it so unless `head_dim` says otherwise, and whose heads share keys and values in equal groups.
_GROUPED: Final = frozenset({"llama", "mistral", "qwen2"})
# Types whose sizes are single numbers.
_PLAIN: Final = _CUT | _GROUPED | {"gemma", "gemma2", "phi3", "qwen3"}
_HIDDEN: Final = ("hidden_size", "d_model", "dim", "n_embd")
_HEADS: Final = SIZES[2].keys
_MAX_SHOWN_CHARS: Final = 24
_MAX_SHOWN_BITS: Final = 64


def plausibility_findings(config: dict[str, Any], path: str) -> Iterator[Finding]:
    """The sizes that a configuration and its parts name, each by itself and together.

    Args:
        config: the model's config.json, or an empty object.
        path: where it lies in the set.
    """
    for within, part in parts(config):
        wrong = list(_wrong_sizes(part))
        said = [
            (f"{within}{key} is {_shown(part[key])}, and must be {wanted}", f"{path}: {key}") for key, wanted in wrong
        ]
        yield from several(Code.CONFIG_IMPLAUSIBLE, "blocker", said)
        if not wrong:
            yield from _head_findings(part, model_type(part) or model_type(config), f"{path}: {within}")


def parts(config: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The configuration and the configurations in it, each with what stands before its keys."""
    nested = [(f"{key}.", config[key]) for key in PARTS if isinstance(config.get(key), dict)]
    return [("", config), *nested]


def size_of(config: dict[str, Any], key: str) -> int:
    """A positive whole number of a configuration, else 0. `True` is a number to Python, and none to a model."""
    value = config.get(key)
    return value if type(value) is int and value > 0 else 0


def _wrong_sizes(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys whose values are no sizes, and what they must be."""
    for size in SIZES:
        for key in size.keys:
            value = config.get(key)
            if key not in config or (size.optional and value is None):
                continue
            values = value if size.listed and isinstance(value, list) and _may_list(config) and value else [value]
            if not all(type(one) is int and 0 < one <= size.most for one in values):
                yield key, f"a whole number from 1 to {size.most}"


def _may_list(config: dict[str, Any]) -> bool:
    return model_type(config) not in _PLAIN


def _head_findings(config: dict[str, Any], kind: str | None, source: str) -> Iterator[Finding]:
    """Heads are equal pieces of the hidden size, where the type wants them to be."""
    heads = {key: size_of(config, key) for key in _HEADS if size_of(config, key)}
    if kind in _CUT or (kind in _GROUPED and config.get("head_dim") is None):
        hidden = {key: size_of(config, key) for key in _HIDDEN if size_of(config, key)}
        for name, width in hidden.items():
            for key, count in heads.items():
                if width % count:
                    message = f"{key} is {count}, which does not divide {name}, {width}"
                    yield finding(Code.CONFIG_IMPLAUSIBLE, "blocker", message, source + key)
    shared = size_of(config, "num_key_value_heads")
    if kind in _GROUPED and shared:
        for key, count in heads.items():
            if count % shared:
                message = f"num_key_value_heads is {shared}, which does not divide {key}, {count}"
                yield finding(Code.CONFIG_IMPLAUSIBLE, "blocker", message, f"{source}num_key_value_heads")


def _shown(value: Any) -> str:
    if type(value) is int and value.bit_length() > _MAX_SHOWN_BITS:
        # A number of very many digits is no text that anybody reads, and slow to make.
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str):
        return repr(value[:_MAX_SHOWN_CHARS])
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return "null" if value is None else str(value)
