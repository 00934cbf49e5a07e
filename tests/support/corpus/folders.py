"""The controls: small folders that are complete, each in the layout that a library really writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.support.corpus.raw import Gguf, dumps, index, safetensors

Files = Mapping[str, bytes]
Tensors = dict[str, tuple[int, ...]]
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
SHARDS: Final = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
HIDDEN: Final = 8
VOCABULARY: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "model", "forge")
TOKENS: Final = len(VOCABULARY)

TRUNK: Final[Tensors] = {
    "embeddings.word_embeddings.weight": (TOKENS, HIDDEN),
    "embeddings.position_embeddings.weight": (512, HIDDEN),
    "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    "encoder.layer.0.attention.self.query.weight": (HIDDEN, HIDDEN),
    "encoder.layer.0.attention.self.query.bias": (HIDDEN,),
    "encoder.layer.0.attention.self.key.weight": (HIDDEN, HIDDEN),
    "encoder.layer.0.attention.self.key.bias": (HIDDEN,),
    "encoder.layer.0.attention.self.value.weight": (HIDDEN, HIDDEN),
    "encoder.layer.0.attention.self.value.bias": (HIDDEN,),
    "encoder.layer.0.attention.output.dense.weight": (HIDDEN, HIDDEN),
    "encoder.layer.0.attention.output.dense.bias": (HIDDEN,),
    "encoder.layer.0.attention.output.LayerNorm.weight": (HIDDEN,),
    "encoder.layer.0.attention.output.LayerNorm.bias": (HIDDEN,),
    "encoder.layer.0.intermediate.dense.weight": (16, HIDDEN),
    "encoder.layer.0.intermediate.dense.bias": (16,),
    "encoder.layer.0.output.dense.weight": (HIDDEN, 16),
    "encoder.layer.0.output.dense.bias": (HIDDEN,),
    "encoder.layer.0.output.LayerNorm.weight": (HIDDEN,),
    "encoder.layer.0.output.LayerNorm.bias": (HIDDEN,),
}
BERT: Final[dict[str, Any]] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": TOKENS,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "dtype": "float32",
}
LLAMA: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": TOKENS,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
_WORDS: Final = {word: number for number, word in enumerate(VOCABULARY)}
TOKENIZER: Final[dict[str, Any]] = {
    "version": "1.0",
    "added_tokens": [{"id": 1, "content": "[UNK]", "special": True}],
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": _WORDS},
}
TOKENIZER_FILES: Final[Files] = {
    "tokenizer.json": dumps(TOKENIZER),
    "tokenizer_config.json": dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 512, "unk_token": "[UNK]"}),
}
_POOLING: Final = {
    "word_embedding_dimension": HIDDEN,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
}
_OLD: Final = "sentence_transformers.models"


def modules(*kinds: tuple[str, str]) -> bytes:
    """A modules.json of folder and type, in order."""
    return dumps(
        [{"idx": place, "name": str(place), "path": path, "type": kind} for place, (path, kind) in enumerate(kinds)]
    )


def old_modules(*more: tuple[str, str]) -> bytes:
    """Transformer, Pooling, `more`, Normalize, as written before version 6."""
    own = (("", "Transformer"), ("1_Pooling", "Pooling"), *more, (f"{2 + len(more)}_Normalize", "Normalize"))
    return modules(*((path, f"{_OLD}.{kind}") for path, kind in own))


def embedder() -> Files:
    """Sentence Transformers before version 6; its Normalize has no folder, as in the packaged MiniLM."""
    return {
        **TOKENIZER_FILES,
        "README.md": b"---\nlibrary_name: sentence-transformers\nbase_model: someorg/base\n---\nA model.\n",
        "config.json": dumps(BERT),
        "config_sentence_transformers.json": dumps({"__version__": {"sentence_transformers": "2.0.0"}}),
        "modules.json": old_modules(),
        "sentence_bert_config.json": dumps({"max_seq_length": 512, "do_lower_case": False}),
        "1_Pooling/config.json": dumps(_POOLING),
        WEIGHTS: safetensors(TRUNK),
    }


def new_embedder() -> Files:
    """Sentence Transformers 6: new module paths, new keys of the pooling, a folder for Normalize."""
    kinds = (
        ("", "sentence_transformers.base.modules.transformer.Transformer"),
        ("1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling"),
        ("2_Normalize", "sentence_transformers.base.modules.normalize.Normalize"),
    )
    return {
        **embedder(),
        "modules.json": modules(*kinds),
        "1_Pooling/config.json": dumps({"embedding_dimension": HIDDEN, "pooling_mode": "mean"}),
        "2_Normalize/config.json": dumps({}),
    }


def encoder() -> Files:
    """A plain Transformers encoder."""
    return {**TOKENIZER_FILES, "config.json": dumps(BERT), WEIGHTS: safetensors(TRUNK)}


def reranker() -> Files:
    """A cross-encoder: one label over a pair of texts."""
    config = {**BERT, "architectures": ["BertForSequenceClassification"], "num_labels": 1, "id2label": {"0": "LABEL_0"}}
    tensors = {f"bert.{name}": shape for name, shape in TRUNK.items()}
    head = {"classifier.weight": (1, HIDDEN), "classifier.bias": (1,)}
    return {**TOKENIZER_FILES, "config.json": dumps(config), WEIGHTS: safetensors(tensors | head)}


def _decoder() -> Tensors:
    """One layer of a llama, and what is around it but the head."""
    own = dict.fromkeys(
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"), (HIDDEN, HIDDEN)
    )
    own |= {"mlp.gate_proj": (16, HIDDEN), "mlp.up_proj": (16, HIDDEN), "mlp.down_proj": (HIDDEN, 16)}
    layer: Tensors = {f"model.layers.0.{name}.weight": shape for name, shape in own.items()}
    norms = ("model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm")
    return {"model.embed_tokens.weight": (TOKENS, HIDDEN), **layer, **{f"{name}.weight": (HIDDEN,) for name in norms}}


def generator(**config: Any) -> Files:
    """A causal language model in bfloat16; one whose head is tied has it in no file."""
    whole = {**LLAMA, **config}
    head: Tensors = {} if whole["tie_word_embeddings"] else {"lm_head.weight": (TOKENS, HIDDEN)}
    return {
        **TOKENIZER_FILES,
        "config.json": dumps(whole),
        "generation_config.json": dumps({"bos_token_id": 1, "eos_token_id": 2}),
        WEIGHTS: safetensors({**_decoder(), **head}, "BF16"),
    }


def sharded(files: Files | None = None) -> Files:
    """`embedder`, its weights in two shards with an index."""
    names = list(TRUNK)
    places = {name: SHARDS[0 if place < len(names) // 2 else 1] for place, name in enumerate(names)}
    shards = {
        shard: safetensors({name: TRUNK[name] for name in names if places[name] == shard}) for shard in SHARDS
    }  # fmt: skip
    rest = {path: data for path, data in (files or embedder()).items() if path != WEIGHTS}
    return {**rest, **shards, INDEX: index(places)}


_AUDIO: Final = {"feature_size": 80, "sampling_rate": 16_000, "chunk_length": 30, "n_fft": 400, "hop_length": 160}
_IMAGE: Final = {
    "do_resize": True,
    "size": {"height": 64, "width": 64},
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


def _processor(new: bool, part: str, kind: str, values: Mapping[str, Any], whole: str) -> Files:
    """The processor's file as Transformers 5 writes it, or as Transformers 4 did."""
    if new:
        return {"processor_config.json": dumps({part: {f"{part}_type": kind, **values}, "processor_class": whole})}
    return {"preprocessor_config.json": dumps({f"{part}_type": kind, "processor_class": whole, **values})}


def _tokens(new: bool) -> Files:
    if new:
        config = {"tokenizer_class": "TokenizersBackend", "model_max_length": 448}
        return {"tokenizer.json": dumps(TOKENIZER), "tokenizer_config.json": dumps(config)}
    return {
        "vocab.json": dumps(_WORDS),
        "merges.txt": b"#version: 0.2\nm o\n",
        "special_tokens_map.json": dumps({"unk_token": "[UNK]"}),
        "tokenizer_config.json": dumps({"tokenizer_class": "WhisperTokenizer", "model_max_length": 448}),
    }


def whisper(*, new: bool = True) -> Files:
    """Whisper as Transformers saves it."""
    config = {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "d_model": HIDDEN,
        "num_mel_bins": 80,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "vocab_size": TOKENS,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    }
    generation = {"decoder_start_token_id": 1, "no_timestamps_token_id": 2, "is_multilingual": True, "max_length": 448}
    tensors: Tensors = {
        "model.encoder.conv1.weight": (HIDDEN, 80, 3),
        "model.decoder.embed_tokens.weight": (TOKENS, HIDDEN),
        "proj_out.weight": (TOKENS, HIDDEN),
    }
    return {
        **_tokens(new),
        **_processor(new, "feature_extractor", "WhisperFeatureExtractor", _AUDIO, "WhisperProcessor"),
        "config.json": dumps(config),
        "generation_config.json": dumps(generation),
        WEIGHTS: safetensors(tensors),
    }


def trocr(*, new: bool = True) -> Files:
    """TrOCR: a ViT encoder and a text decoder."""
    vision = {"model_type": "vit", "hidden_size": HIDDEN, "image_size": 64, "patch_size": 16, "num_hidden_layers": 1}
    text = {
        "model_type": "trocr",
        "d_model": HIDDEN,
        "vocab_size": TOKENS,
        "decoder_layers": 1,
        "max_position_embeddings": 64,
    }
    config = {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
        "encoder": vision,
        "decoder": text,
        "decoder_start_token_id": 2,
    }
    tensors: Tensors = {
        "encoder.embeddings.cls_token": (1, 1, HIDDEN),
        "decoder.model.decoder.embed_tokens.weight": (TOKENS, HIDDEN),
        "decoder.output_projection.weight": (TOKENS, HIDDEN),
    }
    return {
        **_tokens(new),
        **_processor(new, "image_processor", "ViTImageProcessor", _IMAGE, "TrOCRProcessor"),
        "config.json": dumps(config),
        "generation_config.json": dumps({"decoder_start_token_id": 2, "eos_token_id": 3}),
        WEIGHTS: safetensors(tensors),
    }


def siglip(*, new: bool = True) -> Files:
    """SigLIP of a fixed resolution: a vision tower and a text tower."""
    tower = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = {
        "architectures": ["SiglipModel"],
        "model_type": "siglip",
        "text_config": {
            "model_type": "siglip_text_model",
            "vocab_size": TOKENS,
            "max_position_embeddings": 64,
            **tower,
        },
        "vision_config": {"model_type": "siglip_vision_model", "image_size": 64, "patch_size": 16, **tower},
    }
    tensors: Tensors = {
        "vision_model.embeddings.patch_embedding.weight": (HIDDEN, 3, 16, 16),
        "text_model.embeddings.token_embedding.weight": (TOKENS, HIDDEN),
        "logit_scale": (1,),
    }
    return {
        **_tokens(True),
        **_processor(new, "image_processor", "SiglipImageProcessor", _IMAGE, "SiglipProcessor"),
        "config.json": dumps(config),
        WEIGHTS: safetensors(tensors),
    }


def gguf(file_type: int = 15, **changes: int) -> Gguf:
    """The facts of a small llama; tensors are added by the caller. `file_type` 15 is Q4_K_M, 7 is Q8_0."""
    return (
        Gguf(**changes)
        .word("general.architecture", "llama")
        .word("general.name", "tiny")
        .fact("general.file_type", "u32", file_type)
        .fact("general.quantization_version", "u32", 2)
        .fact("llama.context_length", "u32", 512)
        .fact("llama.embedding_length", "u32", 256)
        .fact("llama.feed_forward_length", "u32", 256)
        .fact("llama.block_count", "u32", 1)
        .fact("llama.attention.head_count", "u32", 2)
        .fact("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5)
        .word("tokenizer.ggml.model", "llama")
        .words("tokenizer.ggml.tokens", ["<unk>", "<s>", "</s>", "forge"])
    )


def whole_gguf(kind: str = "Q4_K", file_type: int = 15) -> bytes:
    """A complete one-file model."""
    model = gguf(file_type).tensor("token_embd.weight", (256, 4), kind).tensor("output_norm.weight", (256,))
    return model.tensor("blk.0.attn_q.weight", (256, 256), kind).tensor("output.weight", (256, 4), kind).done()


def split_gguf(part: int, parts: int = 2) -> bytes:
    """One part of a model in several files; the first has the facts."""
    model = gguf() if part == 0 else Gguf()
    model.fact("split.no", "u16", part).fact("split.count", "u16", parts).fact("split.tensors.count", "i32", parts)
    return model.tensor(f"blk.{part}.attn_q.weight", (256, 256), "Q4_K").done()


GGUF_NAME: Final = "tiny-q4_k_m.gguf"


def gguf_folder() -> Files:
    """A folder for llama.cpp."""
    return {"README.md": b"A model.\n", GGUF_NAME: whole_gguf()}


def pipeline() -> Files:
    """A Diffusers pipeline; its safety checker is an optional part that is not there."""
    parts = {
        "_class_name": "StableDiffusionPipeline",
        "_diffusers_version": "0.36.0",
        "scheduler": ["diffusers", "PNDMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "safety_checker": [None, None],
        "requires_safety_checker": False,
    }
    net = safetensors({"conv_in.weight": (4, 4, 3, 3)})
    text = {"architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "hidden_size": HIDDEN}
    return {
        "model_index.json": dumps(parts),
        "scheduler/scheduler_config.json": dumps({"_class_name": "PNDMScheduler", "beta_end": 0.012}),
        "text_encoder/config.json": dumps(text),
        "text_encoder/model.safetensors": safetensors(
            {"text_model.embeddings.token_embedding.weight": (TOKENS, HIDDEN)}
        ),
        "tokenizer/vocab.json": dumps(_WORDS),
        "tokenizer/merges.txt": b"#version: 0.2\nm o\n",
        "tokenizer/tokenizer_config.json": dumps({"tokenizer_class": "CLIPTokenizer", "model_max_length": 77}),
        "unet/config.json": dumps({"_class_name": "UNet2DConditionModel", "in_channels": 4, "sample_size": 8}),
        "unet/diffusion_pytorch_model.safetensors": net,
        "vae/config.json": dumps({"_class_name": "AutoencoderKL", "latent_channels": 4}),
        "vae/diffusion_pytorch_model.safetensors": net,
    }


def ctranslate2_whisper() -> Files:
    """Whisper for another runtime: a config.json without a model type, and weights of a format of their own."""
    return {
        "config.json": dumps({"alignment_heads": [[1, 0]], "lang_ids": [1], "suppress_ids": []}),
        "tokenizer.json": dumps(TOKENIZER),
        "vocabulary.txt": b"a\nb\n",
        "model.bin": b"\x06\x00\x00\x00\x0c\x00WhisperSpec\x00" + bytes(64),
    }
