"""Builds tiny, structurally real sentence-transformers folders on disk, and breaks them in known ways.

Written with numpy, safetensors and tokenizers alone: importing torch in the test process would cost more than all
the tests that use these folders. About 60 kB each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

HIDDEN: Final = 32
LAYERS: Final = 2
POSITIONS: Final = 128
WEIGHTS: Final = "model.safetensors"
_SPECIALS: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_CORPUS: Final = (
    "the quick brown fox jumps over the lazy dog",
    "query passage relevant answer model forge runtime probe compatibility",
    "0123456789 abcdefghijklmnopqrstuvwxyz .,!?-'",
)

Arrays = dict[str, Any]


def embedder(folder: Path, *, seed: int = 7) -> Path:
    """A BertModel of 2 layers and 32 dimensions with mean pooling and normalisation; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _tokenizer(folder)
    _json(
        folder / "config.json",
        {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "vocab_size": vocabulary,
            "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": POSITIONS,
            "hidden_act": "gelu",
            "type_vocab_size": 2,
            "pad_token_id": 0,
        },
    )
    save_file(_bert(vocabulary, seed), str(folder / WEIGHTS), metadata={"format": "pt"})
    modules = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    _json(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (path, kind) in enumerate(modules)
        ],
    )
    _json(folder / "sentence_bert_config.json", {"max_seq_length": POSITIONS, "do_lower_case": False})
    (folder / "1_Pooling").mkdir(exist_ok=True)
    _json(
        folder / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": HIDDEN,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    return folder


def change_weights(folder: Path, change: Callable[[Arrays], Arrays]) -> Path:
    """Rewrite the weights of a folder; returns it."""
    arrays = change(load_file(str(folder / WEIGHTS)))
    save_file(arrays, str(folder / WEIGHTS), metadata={"format": "pt"})
    return folder


def foreign_prefix(arrays: Arrays) -> Arrays:
    """Every tensor under a name that no library knows: the model loads, with random weights."""
    return {f"backbone.{name}": array for name, array in arrays.items()}


def known_prefix(arrays: Arrays) -> Arrays:
    """Every tensor under the prefix that the library strips: nothing is wrong."""
    return {f"bert.{name}": array for name, array in arrays.items()}


def without_last_layer(arrays: Arrays) -> Arrays:
    """Half of the encoder is missing."""
    return {name: array for name, array in arrays.items() if f"layer.{LAYERS - 1}." not in name}


def with_further_layer(arrays: Arrays) -> Arrays:
    """One layer more than config.json counts: the library leaves it out."""
    last = f"layer.{LAYERS - 1}."
    further = {name.replace(last, f"layer.{LAYERS}."): array for name, array in arrays.items() if last in name}
    return {**arrays, **further}


def with_head_of_a_task(arrays: Arrays) -> Arrays:
    """A language model's head and the trunk under its prefix, as most published encoders have them."""
    head: Arrays = {
        "cls.predictions.bias": np.zeros(7, np.float32),
        "cls.predictions.transform.dense.weight": np.zeros((HIDDEN, HIDDEN), np.float32),
        "cls.predictions.decoder.weight": np.zeros((7, HIDDEN), np.float32),
        "cls.seq_relationship.weight": np.zeros((2, HIDDEN), np.float32),
    }
    return {**known_prefix(arrays), **head}


def with_computed_table(arrays: Arrays) -> Arrays:
    """The table of positions that older versions of the library saved."""
    return {**arrays, "embeddings.position_ids": np.arange(POSITIONS, dtype=np.int64)[None]}


def with_stranger(arrays: Arrays) -> Arrays:
    """A tensor of which nobody knows what it does."""
    return {**arrays, "embeddings.gate.weight": np.ones((HIDDEN, HIDDEN), np.float32)}


def old_names(arrays: Arrays) -> Arrays:
    """The names of normalisations that the library translates."""
    renamed = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return {
        next((name.replace(new, old) for new, old in renamed.items() if name.endswith(new)), name): array
        for name, array in arrays.items()
    }


def old_names_and_a_head(arrays: Arrays) -> Arrays:
    """Both: what the library reports holds the head too."""
    return with_head_of_a_task(old_names(arrays))


def without_pooler(arrays: Arrays) -> Arrays:
    """No pooler head, as in many published encoders; an embedding does not use it."""
    return {name: array for name, array in arrays.items() if not name.startswith("pooler.")}


def all_nan(arrays: Arrays) -> Arrays:
    """Weights that are not numbers."""
    return {name: np.full_like(array, np.nan) for name, array in arrays.items()}


def all_zero(arrays: Arrays) -> Arrays:
    """Weights that are zero."""
    return {name: np.zeros_like(array) for name, array in arrays.items()}


def _json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")


def _tokenizer(folder: Path) -> int:
    """Train and save a WordPiece tokenizer; returns the size of its vocabulary."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # No progress bar: it would be written past pytest's capture.
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=list(_SPECIALS), show_progress=False)
    tokenizer.train_from_iterator(_CORPUS * 4, trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    _json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": POSITIONS,
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        },
    )
    return int(tokenizer.get_vocab_size())


def _bert(vocabulary: int, seed: int) -> Arrays:
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.2).astype(np.float32)

    arrays: Arrays = {
        "embeddings.word_embeddings.weight": matrix(vocabulary, HIDDEN),
        "embeddings.position_embeddings.weight": matrix(POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": matrix(2, HIDDEN),
        "pooler.dense.weight": matrix(HIDDEN, HIDDEN),
        "pooler.dense.bias": matrix(HIDDEN),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        base = f"encoder.layer.{layer}"
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            arrays |= {f"{base}.{name}.weight": matrix(HIDDEN, HIDDEN), f"{base}.{name}.bias": matrix(HIDDEN)}
        arrays |= {
            f"{base}.intermediate.dense.weight": matrix(64, HIDDEN),
            f"{base}.intermediate.dense.bias": matrix(64),
            f"{base}.output.dense.weight": matrix(HIDDEN, 64),
            f"{base}.output.dense.bias": matrix(HIDDEN),
        }
        norms += [f"{base}.attention.output.LayerNorm", f"{base}.output.LayerNorm"]
    for name in norms:
        arrays |= {f"{name}.weight": np.ones(HIDDEN, np.float32), f"{name}.bias": np.zeros(HIDDEN, np.float32)}
    return arrays
