"""Rows of Sentence Transformers folders: layout, modules, documents, tokenizer (spec A9, A12)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.support.corpus import folders, raw
from tests.support.corpus.folders import BERT, HIDDEN, WEIGHTS
from tests.support.corpus.raw import dumps
from tests.support.corpus.row import Row, changed

_DENSE: Final = {
    "2_Dense/config.json": dumps(
        {
            "in_features": HIDDEN,
            "out_features": 4,
            "bias": True,
            "activation_function": "torch.nn.modules.activation.Tanh",
        }
    ),
    "2_Dense/model.safetensors": raw.safetensors({"linear.weight": (4, HIDDEN), "linear.bias": (4,)}),
}
_WITH_DENSE: Final = {"modules.json": folders.old_modules(("2_Dense", "Dense")), **_DENSE}
_POOLING: Final = {
    "word_embedding_dimension": HIDDEN,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_cls_token": False,
}
_NO_MODE: Final = {
    "word_embedding_dimension": HIDDEN,
    "pooling_mode_mean_tokens": False,
    "pooling_mode_cls_token": False,
}
_REMOTE: Final = {"AutoModel": "someorg/custom--modeling.CustomModel", "AutoConfig": "someorg/custom--config.Config"}
_LOCAL: Final = {"AutoModel": "modeling.CustomModel"}


_MODES: Final[Mapping[str, dict[str, Any]]] = {
    "an unknown mode": {"pooling_mode": "nope"},
    "an unknown flag": {"pooling_mode_nope": True},
    "a flag that is a text": {"pooling_mode_mean_tokens": "false"},
    "a number": {"pooling_mode": 1},
    "a known and an unknown mode": {"pooling_mode": ["mean", "nope"]},
    "an unknown flag beside": {"pooling_mode_mean_tokens": True, "pooling_mode_nope": False},
}


def _dense(**changes: Any) -> dict[str, bytes]:
    """The control's Dense with another configuration."""
    return {"2_Dense/config.json": dumps({**json.loads(_DENSE["2_Dense/config.json"]), **changes})}


def _modules(places: tuple[int, ...], **changes: Any) -> bytes:
    """The control's modules in another order, named by their places; a change of `None` takes a key away."""
    own = json.loads(folders.old_modules())
    entries = [{**own[place], "idx": idx, "name": str(idx), **changes} for idx, place in enumerate(places)]
    return dumps([{key: value for key, value in entry.items() if value is not None} for entry in entries])


_WORDS: Final = "embeddings.word_embeddings.weight"


def _weights(name: str, shape: tuple[int, ...]) -> bytes:
    """The control's weights with one tensor of another shape, or one more."""
    return raw.safetensors({**folders.TRUNK, name: shape})


def _without(part: str) -> bytes:
    """The control's weights without the tensors whose names hold `part`, and as many numbers elsewhere."""
    kept = {name: shape for name, shape in folders.TRUNK.items() if part not in name}
    return raw.safetensors({**kept, "more": (1_000,)})


def _config(**changes: Any) -> bytes:
    return dumps({key: value for key, value in {**BERT, **changes}.items() if value is not None})


def _config_behind(keys: int, **deciding: Any) -> bytes:
    """The control's configuration, what decides last of all, behind so many keys that mean nothing."""
    return _config(**{f"a{number}": number for number in range(keys)}, **deciding)


def _old(name: str, changes: Mapping[str, bytes | None], *blockers: str, **more: Any) -> Row:
    """The old control with a change; blocked when it names a blocker."""
    verdict = "blocked" if blockers or more.get("one_of") else "compatible"
    return Row(
        name=f"st {name}", files=changed(folders.embedder(), changes), blockers=blockers,
        **{"verdict": verdict, **more},
    )  # fmt: skip


LAYOUT: Final = (
    _old("old layout", {}, codes=("DECLARED_NOT_PROVEN",), absent=("POOLING_MISSING", "TOKENIZER_INCOMPLETE", "TOKENIZER_MISMATCH", "DTYPE_MISMATCH", "WEIGHTS_INCOMPLETE", "EVIDENCE_OUTDATED")),
    Row(
        name="st new layout", files=folders.new_embedder(), verdict="compatible",
        absent=("MODULE_FOLDER_ABSENT", "MODULE_UNSUPPORTED", "POOLING_MISMATCH"),
    ),
    # The packaged MiniLM names a Normalize folder that it does not have; every library loads it.
    _old("Normalize without a folder", {}, codes=("MODULE_FOLDER_ABSENT",), absent=("MODULE_FOLDER_MISSING",)),
    _old("Pooling without a folder", {"1_Pooling/config.json": None}, one_of=("MODULE_FOLDER_MISSING", "POOLING_MISSING")),
    _old("Pooling without its config", {"1_Pooling/config.json": None, "1_Pooling/README.md": b"x"}, "POOLING_MISSING"),
    _old("Pooling config garbage", {"1_Pooling/config.json": b"{mean"}, one_of=("CONFIG_UNREADABLE", "POOLING_MISSING")),
    _old("Pooling of another width", {"1_Pooling/config.json": dumps({**_POOLING, "word_embedding_dimension": 384})},
         "POOLING_MISMATCH"),
    _old("Pooling without a mode", {"1_Pooling/config.json": dumps(_NO_MODE)},
         one_of=("POOLING_MISSING", "POOLING_MISMATCH")),
    _old("Dense complete", _WITH_DENSE),
    _old("Dense of another width", {**_WITH_DENSE, **_dense(in_features=2 * HIDDEN)}, "POOLING_MISMATCH"),
    _old("Dense behind two poolings of a half", {**_WITH_DENSE, "1_Pooling/config.json": dumps({**_POOLING, "pooling_mode_cls_token": True})},
         "POOLING_MISMATCH"),
    _old("Dense without a width", {**_WITH_DENSE, **_dense(out_features=None)}, "POOLING_MISMATCH"),
    _old("Dense with an identity", {**_WITH_DENSE, **_dense(activation_function="torch.nn.modules.linear.Identity")}),
    *(
        _old(f"Dense with {kind}", {**_WITH_DENSE, **_dense(activation_function=kind)}, "LOADER_OPTION_REFUSED")
        for kind in ("os.system", "torch.hub.load", "torch.nn.modules.activation.MultiheadAttention", None)
    ),
    *(
        _old(f"Pooling of {name}", {"1_Pooling/config.json": dumps({"word_embedding_dimension": HIDDEN, **modes})}, "POOLING_MISMATCH")
        for name, modes in _MODES.items()
    ),
    _old("Pooling without a width", {"1_Pooling/config.json": dumps({"pooling_mode": "mean"})}, "POOLING_MISMATCH"),
    _old("Normalize before Pooling", {"modules.json": _modules((0, 2, 1))}, "POOLING_MISMATCH"),
    _old("two Poolings", {"modules.json": _modules((0, 1, 1, 2))}, "POOLING_MISMATCH", "MODULES_UNREADABLE"),
    _old("two Transformers", {"modules.json": _modules((0, 0, 1, 2))}, "MODULES_UNREADABLE"),
    _old("modules of one name", {"modules.json": _modules((0, 1, 2), name="0")}, "MODULES_UNREADABLE"),
    _old("modules without a name", {"modules.json": _modules((0, 1, 2), name=None)}, "MODULES_UNREADABLE"),
    *(
        _old(f"options with {options}", {"sentence_bert_config.json": dumps(options)}, code)
        for code, options in (
            ("LOADER_OPTION_REFUSED", {"transformer_task": "sequence-classification"}),
            ("LOADER_OPTION_REFUSED", {"transformer_task": None}),
            ("LOADER_OPTION_REFUSED", {"module_output_name": "scores"}),
            ("CONFIG_IMPLAUSIBLE", {"max_seq_length": 0}),
            ("CONFIG_IMPLAUSIBLE", {"max_seq_length": -1}),
            ("CONFIG_IMPLAUSIBLE", {"max_seq_length": "x"}),
            ("CONFIG_IMPLAUSIBLE", {"max_seq_length": True}),
        )
    ),
    _old("options as version 6 writes them", {"sentence_bert_config.json": dumps(
        {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "max_seq_length": None})}),
    _old("Dense without a folder", {"modules.json": _WITH_DENSE["modules.json"]}, "MODULE_FOLDER_MISSING"),
    _old("Dense without weights", {**_WITH_DENSE, "2_Dense/model.safetensors": None}, one_of=("NO_WEIGHTS",)),
    _old("Dense as a pickle that runs code",
         {**_WITH_DENSE, "2_Dense/model.safetensors": None, "2_Dense/pytorch_model.bin": raw.evil_pickle()}, "MEMBER_QUARANTINED"),
    _old("Dense weights truncated",
         {**_WITH_DENSE, "2_Dense/model.safetensors": _DENSE["2_Dense/model.safetensors"][:-4]}, "WEIGHTS_CORRUPT"),
    _old("no modules.json", {"modules.json": None}, "MODULES_MISSING"),
    _old("modules.json nested deep", {"modules.json": raw.DEEP_JSON}, "MODULES_UNREADABLE"),
    _old("modules.json garbage", {"modules.json": b"\xff\xfenot json"}, "MODULES_UNREADABLE"),
    # Cleaned for screens, both names are those of what is looked for.
    _old("a module's folder with control characters", {"modules.json": folders.modules(
        ("", "sentence_transformers.models.Transformer"), ("1_Pool\x1b[0ming", "sentence_transformers.models.Pooling"))},
        "EVIDENCE_INCOMPLETE"),
    _old("a module's type with control characters", {"modules.json": folders.modules(
        ("", "sentence_transformers.models.Transformer"), ("1_Pooling", "sentence_transformers.models.Pool\x1b[0ming"))},
        "EVIDENCE_INCOMPLETE"),
    _old("modules.json an object", {"modules.json": b"{}"}, "MODULES_UNREADABLE"),
    # A generative reranker: an older library gives it a random head.
    _old("modules of a reranker",
         {"modules.json": folders.modules(
             ("", "sentence_transformers.models.Transformer"),
             ("1_LogitScore", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"))},
         "MODULE_UNSUPPORTED"),
    _old("module from the folder's own code",
         {"modules.json": folders.modules(("", "custom_st.MyTransformer"), ("1_Pooling", "sentence_transformers.models.Pooling"))},
         one_of=("MODULE_UNSUPPORTED", "MODULES_UNREADABLE", "REMOTE_CODE_REQUIRED")),
    _old("module folder outside the set",
         {"modules.json": folders.modules(
             ("", "sentence_transformers.models.Transformer"), ("../other", "sentence_transformers.models.Pooling"))},
         one_of=("MODULE_FOLDER_MISSING", "MODULES_UNREADABLE", "MODULE_UNSUPPORTED", "POOLING_MISSING")),
    Row(name="st given a cross-encoder", files=folders.reranker(), verdict="blocked", blockers=("MODULES_MISSING",)),
    Row(name="st given a GGUF folder", files=folders.gguf_folder(), verdict="blocked", blockers=("CONFIG_MISSING",),
        one_of=("NO_WEIGHTS", "FORMAT_NOT_DECLARED")),
    Row(name="st given a zip of the model", files={"model.zip": raw.packed_zip(folders.embedder())}, verdict="blocked",
        blockers=("NO_WEIGHTS",), codes=("ARCHIVE_IN_SET",)),
    Row(name="st given a tar of the model", files={"model.tar.gz": raw.packed_tar(folders.embedder())}, verdict="blocked",
        blockers=("NO_WEIGHTS",), codes=("ARCHIVE_IN_SET",)),
)  # fmt: skip

DOCUMENTS: Final = (
    _old("no tokenizer", {"tokenizer.json": None, "tokenizer_config.json": None}, "TOKENIZER_MISSING"),
    # The library builds a tokenizer of five tokens from it, and every word becomes the unknown one.
    _old("tokenizer_config.json alone", {"tokenizer.json": None}, one_of=("TOKENIZER_INCOMPLETE", "TOKENIZER_MISSING")),
    _old("vocab.txt in place of tokenizer.json", {"tokenizer.json": None, "vocab.txt": b"[PAD]\n[UNK]\nmodel\n"},
         absent=("TOKENIZER_MISSING",)),
    _old("tokenizer an LFS pointer", {"tokenizer.json": raw.LFS_POINTER}, "LFS_POINTER"),
    _old("tokenizer empty", {"tokenizer.json": b""}, "EMPTY_FILE"),
    # Most words would be the unknown one, and nothing would fail.
    *(
        _old(f"tokenizer of another model, of {count} tokens",
             {"config.json": _config(vocab_size=count), WEIGHTS: _weights(_WORDS, (count, HIDDEN))}, "TOKENIZER_MISMATCH")
        for count in (8, 30_522)
    ),
    _old("tokenizer too large to be read, and no JSON", {"tokenizer.json": b"\x00\xff garbage" * 3_400_000}, "TOKENIZER_INCOMPLETE"),
    _old("prompts garbage", {"config_sentence_transformers.json": b"{garb"}, "CONFIG_UNREADABLE"),
    _old("config an LFS pointer", {"config.json": raw.LFS_POINTER}, "LFS_POINTER"),
    _old("no config", {"config.json": None}, "CONFIG_MISSING"),
    _old("config garbage", {"config.json": b'{"model_type": "bert",'}, "CONFIG_UNREADABLE"),
    _old("config nested deep", {"config.json": b'{"model_type": ' + raw.DEEP_JSON + b"}"}, "CONFIG_UNREADABLE"),
    _old("config a list", {"config.json": b"[]"}, "CONFIG_UNREADABLE"),
    _old("config without a model type", {"config.json": _config(model_type=None)},
         one_of=("CONFIG_UNREADABLE", "MODEL_TYPE_NOT_DECLARED")),
    _old("model type of another kind", {"config.json": _config(model_type=["bert"])},
         one_of=("CONFIG_UNREADABLE", "MODEL_TYPE_NOT_DECLARED")),
    _old("model type unknown", {"config.json": _config(model_type="frobnicator")}, "MODEL_TYPE_NOT_DECLARED"),
    _old("code of another repository", {"config.json": _config(model_type="frobnicator", auto_map=_REMOTE)},
         "REMOTE_CODE_REQUIRED"),
    _old("code of its own",
         {"config.json": _config(model_type="frobnicator", auto_map=_LOCAL), "modeling.py": b"import torch\n"},
         "REMOTE_CODE_REQUIRED", codes=("CODE_IN_SET",)),
    _old("a script that nothing needs", {"train.py": b"import torch\n"}, codes=("CODE_IN_SET",)),
    _old("a program", {"runner": raw.ELF}, codes=("EXECUTABLE_IN_SET",)),
    _old("an archive beside the model", {"old.zip": raw.packed_zip({"a.txt": b"a"})}, codes=("ARCHIVE_IN_SET",)),
    _old("a prompt that is always put before a text",
         {"config_sentence_transformers.json": dumps({"prompts": {"q": "query: "}, "default_prompt_name": "q"})},
         codes=("DEFAULT_PROMPT",)),
    _old("config larger than any evidence", {"config.json": _config(padding="y" * 5_000_000)},
         "EVIDENCE_INCOMPLETE", "CONFIG_UNREADABLE"),
    _old("a quantization behind three hundred other keys",
         {"config.json": _config_behind(300, quantization_config={"quant_method": "gptq", "bits": 4})},
         one_of=("QUANTIZATION_NOT_DECLARED", "QUANTIZED_WEIGHTS")),
    _old("keys beyond any count",
         {"config.json": _config_behind(5_000, quantization_config={"quant_method": "gptq", "bits": 4})},
         one_of=("EVIDENCE_INCOMPLETE", "CONFIG_UNREADABLE")),
    _old("a key that only looks like the one that decides",
         {"config.json": _config(**{"transformers_weights": "other.bin", "transformers_weights\x07": ""})},
         "LOADER_OPTION_REFUSED", codes=("EVIDENCE_INCOMPLETE",)),
    _old("a tokenizer config with code, too large to be read",
         {"tokenizer_config.json": dumps({"padding": "y" * 5_000_000, "auto_map": {"AutoTokenizer": ["org/repo--t.T", None]}})},
         "EVIDENCE_INCOMPLETE"),
    _old("a broken document behind a hundred and twenty others",
         {**{f"copies/{number:03}/config.json": b"{" for number in range(120)}, "tokenizer_config.json": b"[" * 40},
         "CONFIG_UNREADABLE"),
    # The library loads it, and fills eleven of twelve layers at random.
    _old("config of a deeper model", {"config.json": _config(num_hidden_layers=12)}, "LAYER_COUNT_MISMATCH",
         codes=("WEIGHTS_INCOMPLETE",)),
    # The library loads it, and leaves the second layer out of every answer.
    _old("config of a shallower model", {WEIGHTS: _weights("encoder.layer.1.output.dense.weight", (HIDDEN, 16))},
         "LAYER_COUNT_MISMATCH", absent=("WEIGHTS_INCOMPLETE", "WEIGHTS_FOREIGN")),
    _old("config of a model with a gap", {"config.json": _config(num_hidden_layers=2),
         WEIGHTS: _weights("encoder.layer.2.output.dense.weight", (HIDDEN, 16))}, "LAYER_COUNT_MISMATCH"),
    *(
        _old(f"config of {number} layers", {"config.json": dumps({**BERT, "num_hidden_layers": number})}, "CONFIG_IMPLAUSIBLE")
        for number in (-1, 0, 1.0, 6.5, 600_000_000_000, 10**400, "one", True, None, [1], {"": 1})
    ),
    _old("config that does not say how many layers", {"config.json": _config(num_hidden_layers=None)}, "CONFIG_IMPLAUSIBLE"),
    _old("config of heads that do not divide", {"config.json": _config(num_attention_heads=3)}, "CONFIG_IMPLAUSIBLE"),
    _old("config of a wider model", {"config.json": _config(hidden_size=16, num_attention_heads=2)}, "WEIGHTS_FOREIGN"),
    _old("weights whose table of words is turned", {WEIGHTS: _weights(_WORDS, (HIDDEN, folders.TOKENS))}, "WEIGHTS_FOREIGN"),
    _old("weights whose table of words is flat", {WEIGHTS: _weights(_WORDS, (HIDDEN * folders.TOKENS,))}, "WEIGHTS_FOREIGN"),
    # The library loads each, and fills what is missing with random numbers.
    _old("weights without a tensor of a layer", {WEIGHTS: _without("encoder.layer.0.attention.self.query.weight")}, "WEIGHTS_INCOMPLETE"),
    _old("weights without norms", {WEIGHTS: _without("LayerNorm")}, "WEIGHTS_INCOMPLETE"),
    _old("weights under names of another library",
         {WEIGHTS: raw.safetensors({f"m.{name}": shape for name, shape in folders.TRUNK.items()})},
         "WEIGHTS_FOREIGN", "LAYER_COUNT_MISMATCH"),
    _old("weights under no names", {WEIGHTS: raw.safetensors({f"t{place}": shape for place, shape in enumerate(folders.TRUNK.values())})},
         "WEIGHTS_FOREIGN", "LAYER_COUNT_MISMATCH"),
    _old("weights under names that the library strips",
         {WEIGHTS: raw.safetensors({f"bert.{name}": shape for name, shape in folders.TRUNK.items()})}, absent=("WEIGHTS_FOREIGN",)),
    _old("adapter_config.json", {"adapter_config.json": dumps({"peft_type": "LORA", "base_model_name_or_path": "org/base"})},
         "ADAPTER_WEIGHTS"),
    _old("an option that allows remote code",
         {"sentence_bert_config.json": dumps({"max_seq_length": 512, "model_args": {"trust_remote_code": True}})},
         one_of=("LOADER_OPTION_REFUSED", "REMOTE_CODE_REQUIRED")),
    _old("quantized, the adapter declares none", {"config.json": _config(quantization_config={"quant_method": "gptq", "bits": 4})},
         one_of=("QUANTIZATION_NOT_DECLARED", "QUANTIZED_WEIGHTS")),
    _old("asked for a quantization it has not", {}, "QUANTIZATION_NOT_EVIDENCED", profile={"quantization": "gptq"}),
    _old("longer than its positions", {}, "SEQUENCE_TOO_LONG", profile={"max_sequence_length": 4_096}),
)  # fmt: skip
