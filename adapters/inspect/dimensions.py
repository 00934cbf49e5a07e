"""The sizes of a model as its configuration names them; every family of models has names of its own (spec A11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Part = Literal["whole", "encoder", "decoder"]
_MAX: Final = 10_000_000
_HIDDEN: Final = ("hidden_size", "d_model", "dim", "n_embd")
_LAYERS: Final = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_HEADS: Final = ("num_attention_heads", "num_heads", "n_head", "n_heads")
_INTERMEDIATE: Final = ("intermediate_size", "d_ff", "ffn_dim", "hidden_dim", "n_inner")
# Sounds and images: how many vectors a runtime makes of one.
_CLASS_TOKEN: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """One stack of layers; 0 where the configuration does not say."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int

    @property
    def known(self) -> bool:
        """Is there enough to reckon activations with?"""
        return self.hidden > 0


def text_part(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a configuration that speaks of the text, or of the decoder; the whole when it is not divided."""
    return _nested(config, "decoder", "text_config") or config


def sense_part(config: dict[str, Any]) -> dict[str, Any] | None:
    """The part of a configuration that speaks of the image or sound; `None` when there is none."""
    return _nested(config, "encoder", "vision_config", "audio_config")


def is_divided(config: dict[str, Any]) -> bool:
    """Has the model an encoder and a decoder?"""
    return config.get("is_encoder_decoder") is True or _number(config, ("encoder_layers",)) > 0


def dimensions(config: dict[str, Any], part: Part = "whole") -> Dimensions:
    """The sizes of one stack.

    Args:
        config: a configuration, or one nested in it.
        part: `encoder` and `decoder` ask for the names of models that put both into one object (BART, Whisper).
    """
    prefix = () if part == "whole" else (part,)
    hidden = _number(config, _HIDDEN)
    heads = _number(config, (*(f"{name}_attention_heads" for name in prefix), *_HEADS))
    key_heads = _number(config, ("num_key_value_heads",)) or heads
    return Dimensions(
        hidden=hidden,
        layers=_number(config, (*(f"{name}_layers" for name in prefix), *_LAYERS)),
        heads=heads,
        kv_heads=key_heads,
        head_size=_number(config, ("head_dim", "d_kv")) or (hidden // heads if heads else 0),
        intermediate=_number(config, (*(f"{name}_ffn_dim" for name in prefix), *_INTERMEDIATE)) or 4 * hidden,
        vocabulary=_number(config, ("vocab_size",)),
    )


def sense_tokens(config: dict[str, Any]) -> int:
    """How many vectors one image or one window of sound becomes; 0 when the configuration does not say."""
    positions = _number(config, ("max_source_positions",))
    if positions:
        return positions
    patches = _number(config, ("num_patches",))
    if patches:
        return patches
    size, patch = _number(config, ("image_size",)), _number(config, ("patch_size",))
    return (size // patch) ** 2 + _CLASS_TOKEN if size and patch else 0


def _nested(config: dict[str, Any], *keys: str) -> dict[str, Any] | None:
    return next((config[key] for key in keys if isinstance(config.get(key), dict) and config[key]), None)


def _number(config: dict[str, Any], keys: tuple[str, ...]) -> int:
    for key in keys:
        value = config.get(key)
        if type(value) is int and 0 < value < _MAX:
            return value
    return 0
