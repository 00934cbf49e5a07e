"""Subjects for inspectors: small folders of every layout, through the scan's real parsers, on nodes that declare all."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import msgspec

from adapters.inspect.codes import FindingCode
from adapters.inspect.subject import Inspection, NodeFacts, Subject
from bus.messages.artifacts import SetEvidence
from bus.messages.gates import Finding, Purpose
from bus.messages.profiles import AdapterFacts, RuntimeEnvironment, RuntimeProfile
from tests.support.ledger import NODE, TOKENIZER, changed, hardware, safetensors_bytes, scanned
from tests.support.model_files import safetensors

TASKS = (
    "embedding", "reranking", "text_generation", "image_to_text", "image_text_similarity", "speech_recognition",
)  # fmt: skip
TYPES = ("bert", "roberta", "llama", "t5", "whisper", "vision-encoder-decoder", "vit", "trocr", "siglip", "siglip2")
PACKAGES = {
    "torch": "2.13.0",
    "transformers": "5.24.0",
    "sentence-transformers": "6.2.0",
    "vllm": "0.20.0",
    "llama-cpp-python": "0.4.0",
    "diffusers": "0.40.0",
    "accelerate": "2.0.0",
    "gptqmodel": "6.0.0",
    "optimum": "3.0.0",
}
# As many parameters as the largest of these configurations promises.
WHOLE = 1_400
# Names and shapes of the encoder and of the writer below, as far as anybody looks at them.
SKELETON: dict[str, tuple[int, ...]] = {
    "embeddings.word_embeddings.weight": (2, 8),
    "classifier.weight": (1, 8),
    **{f"encoder.layer.{number}.output.{tensor}": (1,) for number in range(2) for tensor in range(16)},
}
_WRITER: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (2, 8),
    **{f"model.layers.{number}.mlp.{tensor}": (1,) for number in range(3) for tensor in range(9)},
}
# By type; of any other, one tensor must do.
SKELETONS = {"bert": SKELETON, "roberta": SKELETON, "llama": _WRITER}
ENCODER = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "num_attention_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 16, "max_position_embeddings": 512, "vocab_size": 2,
}  # fmt: skip
RERANKER = {**ENCODER, "architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
WRITER = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 3, "intermediate_size": 16, "max_position_embeddings": 512,
    "vocab_size": 2,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "is_encoder_decoder": True,
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_source_positions": 1500,
    "max_target_positions": 448, "num_mel_bins": 80, "vocab_size": 2,
}  # fmt: skip
TROCR = {
    "model_type": "vision-encoder-decoder", "architectures": ["VisionEncoderDecoderModel"], "is_encoder_decoder": True,
    "encoder": {
        "model_type": "vit", "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "image_size": 64,
        "patch_size": 16,
    },
    "decoder": {
        "model_type": "trocr", "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 2,
        "max_position_embeddings": 512, "vocab_size": 2,
    },
}  # fmt: skip
SIGLIP = {
    "model_type": "siglip", "architectures": ["SiglipModel"],
    "text_config": {"hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 64, "vocab_size": 2},
    "vision_config": {"hidden_size": 16, "num_attention_heads": 2, "image_size": 64, "patch_size": 16},
}  # fmt: skip
EXTRACTOR = {"feature_extractor": {"sampling_rate": 16_000, "chunk_length": 30, "feature_size": 80}}
IMAGES = {"do_resize": True, "size": {"height": 64, "width": 64}}
PIPELINE = {
    "_class_name": "StableDiffusionPipeline",
    "unet": ["diffusers", "UNet2DConditionModel"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "scheduler": ["diffusers", "PNDMScheduler"],
    "safety_checker": [None, None],
    "requires_safety_checker": False,
}


def doc(value: object) -> bytes:
    """A JSON document."""
    return json.dumps(value).encode()


def weights_bytes(elements: int = WHOLE, kind: str = "bert") -> bytes:
    """A file of the tensors of a type's skeleton and one more, `w`; `elements` in all."""
    skeleton = SKELETONS.get(kind, {})
    rest = elements - sum(prod(shape) for shape in skeleton.values())
    return safetensors({tensor: ("F32", shape) for tensor, shape in {**skeleton, "w": (rest,)}.items()})


def transformers_files(config: Mapping[str, Any] = ENCODER, /, **changes: bytes | None) -> dict[str, bytes]:
    """A complete folder as Transformers saves a text model; a change of `None` takes a file away."""
    files = {
        "config.json": doc(config),
        "generation_config.json": doc({"eos_token_id": 0}),
        "model.safetensors": weights_bytes(kind=str(config.get("model_type"))),
        "tokenizer.json": TOKENIZER,
        "tokenizer_config.json": doc({"tokenizer_class": "BertTokenizer"}),
    }
    return changed(files, changes)


def pipeline_files(index: Mapping[str, Any] = PIPELINE, /, **changes: bytes | None) -> dict[str, bytes]:
    """A complete pipeline of two models, a tokenizer and a scheduler."""
    files = {
        "model_index.json": doc(index),
        "unet/config.json": doc({"_class_name": "UNet2DConditionModel"}),
        "unet/diffusion_pytorch_model.safetensors": safetensors_bytes(),
        "text_encoder/config.json": doc({"model_type": "clip_text_model"}),
        "text_encoder/model.safetensors": safetensors_bytes(),
        "tokenizer/vocab.json": doc({"a": 0}),
        "tokenizer/merges.txt": b"#version: 0.2\n",
        "scheduler/scheduler_config.json": doc({"_class_name": "PNDMScheduler"}),
    }
    return changed(files, changes)


def gguf_bytes(metadata: Mapping[str, str | int] | None = None, file_type: int | None = 0, elements: int = 32) -> bytes:
    """A GGUF of one float tensor; `metadata` replaces the facts of a small `llama`."""
    facts: dict[str, str | int] = {
        "general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "llama.context_length": 512,
        "llama.block_count": 2, "llama.embedding_length": 8, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.pooling_type": 1, **(metadata or {}),
    }  # fmt: skip
    if file_type is not None:
        facts["general.file_type"] = file_type
    pairs = b"".join(_text(key) + _value(value) for key, value in facts.items() if value != "")
    count = sum(value != "" for value in facts.values())
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, count) + pairs
    head += _text("token_embd.weight") + struct.pack("<IQIQ", 1, elements, 0, 0)
    return head + bytes(-len(head) % 32) + bytes(4 * elements)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: str | int) -> bytes:
    return struct.pack("<I", 8) + _text(value) if isinstance(value, str) else struct.pack("<II", 4, value)


def adapter(name: str, **changes: Any) -> AdapterFacts:
    """An adapter that declares everything that these folders need; only one of them can be run."""
    values: dict[str, Any] = {
        "name": name,
        "version": "1.0",
        "executable": name == "sentence_transformers",
        "inspect_only": name != "sentence_transformers",
        "tasks": ("image_generation",) if name == "diffusers" else TASKS,
        "modalities": ("text", "image", "audio"),
        "model_types": () if name in {"llama_cpp", "diffusers", "custom"} else TYPES,
        "formats": ("gguf",) if name == "llama_cpp" else ("safetensors",),
        "quantizations": ("gptq", "bitsandbytes_4bit", "Q4_K_M", "F16"),
    }
    return AdapterFacts(**{**values, **changes})


def environment(*adapters: AdapterFacts, **changes: Any) -> RuntimeEnvironment:
    """An environment with all libraries and the adapters given, else the six of the product."""
    names = ("sentence_transformers", "transformers", "vllm", "llama_cpp", "diffusers", "custom")
    values: dict[str, Any] = {
        "python": "3.11.7",
        "platform": "linux-x86_64",
        "packages": PACKAGES,
        "adapters": adapters or tuple(adapter(name) for name in names),
    }
    return RuntimeEnvironment(**{**values, **changes})


def node(**changes: Any) -> NodeFacts:
    """A node that may and can probe."""
    values: dict[str, Any] = {
        "name": NODE,
        "enabled": True,
        "lab_eligible": True,
        "liveness": "online",
        "capabilities": ("runtime.probe.v1",),
    }
    return NodeFacts(**{**values, **changes})


def subject(
    files: Mapping[str, bytes],
    profile: Mapping[str, Any] | None = None,
    *,
    approved: Iterable[Purpose] = (),
    evidence: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Subject:
    """What a scan of `files` gives, under a profile of `transformers` for embedding, unless they say otherwise."""
    manifest, found = scanned(files)
    found = msgspec.structs.replace(found, **(evidence or {}))
    values: dict[str, Any] = {
        "manifest": manifest,
        "evidence": found,
        "profile": RuntimeProfile(**{"name": "p", "adapter": "transformers", **(profile or {})}),
        "environment": environment(),
        "hardware": hardware(),
        "node": node(),
        "location": "models/tiny",
        "approved": frozenset(approved),
    }
    return Subject(**{**values, **changes})


def codes(inspection: Inspection, *severities: str) -> list[str]:
    """The codes of the findings of these severities, or of all, in their order."""
    return [found.code for found in inspection.findings if not severities or found.severity in severities]


def blockers(inspection: Inspection) -> list[str]:
    """The codes of the blockers, in their order."""
    return codes(inspection, "blocker")


def only(inspection: Inspection, code: FindingCode) -> Finding:
    """The one finding of this code."""
    found = [item for item in inspection.findings if item.code == code]
    assert len(found) == 1, inspection.findings
    return found[0]


def without_formats(evidence: SetEvidence) -> dict[str, Any]:
    """What an older scan left out."""
    assert evidence.scanner, "the control is of today's scan"
    return {"formats": {}, "pickles": (), "scanner": ""}
