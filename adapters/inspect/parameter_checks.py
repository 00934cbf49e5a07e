"""Findings about the number of parameters: does the configuration promise layers that the weights lack (spec A3)?

A runtime that misses half of a model's layers fills them with random numbers, and the answers look like answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.config_checks import model_type
from adapters.inspect.dimensions import dimensions
from bus.messages.artifacts import WeightFacts
from bus.messages.gates import Finding

# Families whose layers all have weights of their own, in this shape: query, key, value, output, and two matrices or
# more of the hidden by the intermediate size. Others share layers, or have other shapes.
_FAMILIES: Final = frozenset(
    {
        "bert",
        "camembert",
        "gemma",
        "llama",
        "mistral",
        "mpnet",
        "qwen2",
        "qwen3",
        "roberta",
        "xlm-roberta",
    }
)
# Biases and norms are not counted, so that the promise is already below what a whole model has.
_WHOLE_PERCENT: Final = 98


def parameter_findings(weights: Sequence[WeightFacts], config: dict[str, Any]) -> Iterator[Finding]:
    """Do the loaded weights hold as many parameters as the configuration promises at the least?

    Args:
        weights: headers of the files that would be loaded, unquantized.
        config: the model's config.json, or an empty object.
    """
    promised = promised_parameters(config)
    held = sum(facts.parameters for facts in weights)
    if not weights or held * 100 >= promised * _WHOLE_PERCENT:
        return
    message = f"the weights hold {held} parameters, the configuration promises {promised} at the least"
    yield finding(Code.WEIGHTS_INCOMPLETE, "warning", message, "weight headers; config.json: num_hidden_layers")


def promised_parameters(config: dict[str, Any]) -> int:
    """The matrices of all layers and one table of the vocabulary; 0 where the configuration promises nothing."""
    if model_type(config) not in _FAMILIES or config.get("intermediate_size") is None:
        return 0
    sizes = dimensions(config)
    attention = 2 * sizes.hidden * sizes.head_size * (sizes.heads + sizes.kv_heads)
    return sizes.layers * (attention + 2 * sizes.hidden * sizes.intermediate) + sizes.vocabulary * sizes.hidden
