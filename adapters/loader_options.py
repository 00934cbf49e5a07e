"""What a model's folder may tell the library about how it is loaded; everything else is refused (spec A10, P5).

The library passes the keys of `sentence_*_config.json` on as arguments of its loaders. Some of them name other
folders, so that a set that was hashed and approved would be run with a tokenizer or weights from elsewhere.
"""

from __future__ import annotations

from typing import Any, Final

# In the order in which the library looks for them; it takes the first that is there.
TRANSFORMER_CONFIGS: Final = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
ALLOWED_OPTIONS: Final = frozenset(
    {
        "do_lower_case",
        "document_length",
        "max_seq_length",
        "modality_config",
        "module_output_name",
        "processing_kwargs",
        "query_expansion",
        "query_length",
        "transformer_task",
        "unpad_inputs",
    }
)
# With any other value another head would be loaded, or another output pooled.
_ONLY_VALUES: Final = {"module_output_name": "token_embeddings", "transformer_task": "feature-extraction"}


def refused_options(config: Any) -> list[str]:
    """The keys of such a document, parsed from JSON, that no loader may see; sorted. All of it, when it is no object."""
    if not isinstance(config, dict):
        return ["(not a JSON object)"]
    return sorted(str(key) for key in config if key not in ALLOWED_OPTIONS)


def refused_values(config: dict[str, Any]) -> list[str]:
    """The allowed keys of such a document whose values make of the model something that is no embedder; sorted."""
    return sorted(key for key, only in _ONLY_VALUES.items() if key in config and config[key] != only)
