"""Rows of the other runtimes: Transformers, vLLM, llama.cpp, Diffusers, custom (spec A13-A17)."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from bus.messages.profiles import AudioSemantics, Preprocessing
from tests.support.corpus import folders, machines, raw
from tests.support.corpus.folders import GGUF_NAME, WEIGHTS, Files
from tests.support.corpus.raw import dumps, gguf_text
from tests.support.corpus.row import Row, changed, without

_GENERATION: Final = {"task": "text_generation", "dtype": "bfloat16"}
_SPEECH: Final = {"task": "speech_recognition", "max_sequence_length": 128, "audio": AudioSemantics()}
_READING: Final = {"task": "image_to_text", "max_sequence_length": 64, "preprocessing": Preprocessing()}
_MATCHING: Final = {"task": "image_text_similarity", "max_sequence_length": 64, "preprocessing": Preprocessing()}


def _verdict(free: str, blockers: tuple[str, ...], more: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": "blocked" if blockers or more.get("one_of") else free, "blockers": blockers, **more}


def _tf(name: str, files: Files, task: dict[str, Any], *blockers: str, **more: Any) -> Row:
    """Transformers; a CPU node."""
    row = _verdict("compatible", blockers, more)
    return Row(name=f"transformers {name}", files=files, profile={"adapter": "transformers", **task}, **row)


_EMBED: Final[dict[str, Any]] = {"task": "embedding"}
_RERANK: Final[dict[str, Any]] = {"task": "reranking"}
_PROCESSORS: Final = ("processor_config.json", "preprocessor_config.json")
_TOKENS: Final = ("tokenizer", "vocab", "merges", "special_tokens")

TRANSFORMERS: Final = (
    _tf("encoder", folders.encoder(), _EMBED, codes=("PROBE_NOT_AVAILABLE",), absent=("MODULES_MISSING", "POOLING_MISSING")),
    _tf("reranker", folders.reranker(), _RERANK, absent=("HEAD_MISSING", "TASK_MISMATCH")),
    # The library gives it a random head, and scores near one half.
    _tf("encoder asked to rerank", folders.encoder(), _RERANK, one_of=("HEAD_MISSING", "TASK_MISMATCH")),
    _tf("encoder asked to write", folders.encoder(), _GENERATION, one_of=("HEAD_MISSING", "TASK_MISMATCH")),
    _tf("generator", folders.generator(), _GENERATION,
        absent=("GENERATION_CONFIG_MISSING", "DTYPE_MISMATCH", "WEIGHTS_INCOMPLETE")),
    _tf("generator without generation config", without(folders.generator(), "generation_config"), _GENERATION,
        codes=("GENERATION_CONFIG_MISSING",)),
    # The head is the embedding's own matrix, so that no file has it.
    _tf("generator with a tied head", folders.generator(tie_word_embeddings=True), _GENERATION,
        absent=("HEAD_MISSING", "WEIGHTS_INCOMPLETE")),
    _tf("generator of more layers than its config", folders.generator(num_hidden_layers=2), _GENERATION, "LAYER_COUNT_MISMATCH"),
    _tf("generator of keys that do not divide", folders.generator(num_attention_heads=4, num_key_value_heads=3), _GENERATION,
        "CONFIG_IMPLAUSIBLE"),
    _tf("generator of another vocabulary", folders.generator(vocab_size=7), _GENERATION, "WEIGHTS_FOREIGN"),
    _tf("without config", without(folders.encoder(), "config.json"), _EMBED, "CONFIG_MISSING"),
    _tf("without tokenizer", without(folders.encoder(), *_TOKENS), _EMBED, "TOKENIZER_MISSING"),
    _tf("with a tokenizer's config alone", without(folders.encoder(), "tokenizer.json"), _EMBED,
        one_of=("TOKENIZER_INCOMPLETE", "TOKENIZER_MISSING")),
    _tf("without weights", without(folders.encoder(), "model"), _EMBED, "NO_WEIGHTS"),
    _tf("with a pickle alone", changed(folders.encoder(), {WEIGHTS: None, "pytorch_model.bin": raw.torch_zip()}), _EMBED,
        one_of=("PICKLE_NOT_APPROVED", "PICKLE_NOT_LOADED")),
    _tf("not installed", folders.encoder(), _EMBED, "PACKAGE_MISSING",
        subject={"environment": machines.environment(transformers=None)}),
    _tf("of an unknown type", folders.generator(model_type="frobnicator"), _GENERATION, "MODEL_TYPE_NOT_DECLARED"),
    _tf("that brings code", folders.generator(model_type="frobnicator", auto_map={"AutoModelForCausalLM": "modeling.Model"}),
        _GENERATION, "REMOTE_CODE_REQUIRED"),
    _tf("of shards", folders.sharded(folders.encoder()), _EMBED),
    _tf("of shards, one absent", without(folders.sharded(folders.encoder()), folders.SHARDS[0]), _EMBED, "SHARD_MISSING"),
    *(
        row
        for new, generation in ((False, "4"), (True, "5"))
        for row in (
            _tf(f"{generation} whisper", folders.whisper(new=new), _SPEECH, absent=("PROCESSOR_MISSING", "TOKENIZER_MISSING")),
            _tf(f"{generation} trocr", folders.trocr(new=new), _READING, absent=("PROCESSOR_MISSING", "TOKENIZER_MISSING")),
            _tf(f"{generation} siglip", folders.siglip(new=new), _MATCHING, absent=("PROCESSOR_MISSING", "TOKENIZER_MISSING")),
            _tf(f"{generation} whisper without processor", without(folders.whisper(new=new), *_PROCESSORS), _SPEECH,
                "PROCESSOR_MISSING"),
            _tf(f"{generation} trocr without processor", without(folders.trocr(new=new), *_PROCESSORS), _READING,
                "PROCESSOR_MISSING"),
            _tf(f"{generation} siglip without processor", without(folders.siglip(new=new), *_PROCESSORS), _MATCHING,
                "PROCESSOR_MISSING"),
        )
    ),
    _tf("whisper without generation config", without(folders.whisper(), "generation_config"), _SPEECH,
        "GENERATION_CONFIG_MISSING"),
    _tf("whisper without tokenizer", without(folders.whisper(), *_TOKENS), _SPEECH, "TOKENIZER_MISSING"),
    _tf("whisper for another sampling rate", folders.whisper(), {**_SPEECH, "audio": AudioSemantics(sampling_rate_hz=44_100)},
        "AUDIO_MISMATCH"),
    _tf("siglip for another image size", folders.siglip(), {**_MATCHING, "preprocessing": Preprocessing(image_size_px=128)},
        "IMAGE_SIZE_MISMATCH"),
    _tf("trocr whose processor has another size",
        changed(folders.trocr(new=False), {"preprocessor_config.json": dumps(
            {"image_processor_type": "ViTImageProcessor", "size": {"height": 384, "width": 384}})}),
        _READING, "IMAGE_SIZE_MISMATCH"),
    _tf("whisper asked to write", folders.whisper(), _GENERATION, one_of=("TASK_MISMATCH",)),
    _tf("generator asked to hear", folders.generator(), {**_SPEECH, "dtype": "bfloat16"}, one_of=("TASK_MISMATCH",)),
    # It looks like a folder of the library, and is one of another runtime.
    _tf("whisper of CTranslate2", folders.ctranslate2_whisper(), _SPEECH, "NO_WEIGHTS"),
)  # fmt: skip


def _vllm(name: str, files: Files, *blockers: str, **more: Any) -> Row:
    subject = {
        "hardware": machines.cuda_machine(),
        "environment": machines.cuda_environment(),
        **more.pop("subject", {}),
    }
    row = _verdict("requires_probe", blockers, more)
    profile = {"adapter": "vllm", "device": "cuda", **_GENERATION}
    return Row(name=f"vllm {name}", files=files, profile=profile, subject=subject, **row)


VLLM: Final = (
    _vllm("complete", folders.generator(), codes=("REQUIRES_PROBE", "PROBE_NOT_AVAILABLE")),
    _vllm("of fewer layers than its config", folders.generator(num_hidden_layers=2), "LAYER_COUNT_MISMATCH"),
    _vllm("without tokenizer", without(folders.generator(), *_TOKENS), "TOKENIZER_MISSING"),
    _vllm("without config", without(folders.generator(), "config.json"), "CONFIG_MISSING"),
    _vllm("without weights", without(folders.generator(), "model"), "NO_WEIGHTS"),
    _vllm("of an unknown type", folders.generator(model_type="frobnicator"), "MODEL_TYPE_NOT_DECLARED"),
    _vllm("not installed", folders.generator(), "PACKAGE_MISSING", subject={"environment": machines.cuda_environment(vllm=None)}),
)  # fmt: skip


def _llama(name: str, files: Files, *blockers: str, **more: Any) -> Row:
    profile = {"adapter": "llama_cpp", "task": "text_generation", **more.pop("profile", {})}
    return Row(name=f"llama.cpp {name}", files=files, profile=profile, **_verdict("requires_probe", blockers, more))


def _gguf(data: bytes) -> Files:
    return {GGUF_NAME: data}


_PARTS: Final = {f"tiny-0000{number}-of-00002.gguf": folders.split_gguf(number - 1) for number in (1, 2)}
_EXPERTS: Final = folders.gguf().tensor("blk.0.ffn_gate_exps.weight", (256, 256, 2), "Q4_K").done()

_NESTED: Final = gguf_text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 40 + struct.pack("<IQB", 0, 1, 0)
# Each a complete file but for what its name says.
_WRONG: Final = {
    "one key twice": folders.gguf().fact("general.file_type", "u32", 15).tensor("a", (8,)).done(),
    "one tensor twice": folders.gguf().tensor("a", (8,)).tensor("a", (8,)).done(),
    "overlapping tensors": folders.gguf().tensor("a", (64,)).tensor("b", (64,), at=32).done(),
    "a tensor off its alignment": folders.gguf().tensor("a", (4,)).tensor("b", (4,), at=20).done(),
    "a tensor of no type": folders.gguf().tensor("a", (8,), number=99).done(),
    "a tensor of nine dimensions": folders.gguf().tensor("a", (1,) * 9).done(),
    "a tensor of no block": folders.gguf().tensor("a", (100,), "Q4_K").done(),
    "a fact of no type": folders.gguf().as_it_is(gguf_text("a") + struct.pack("<II", 77, 0)).tensor("a", (8,)).done(),
    "an array of no type": folders.gguf().as_it_is(gguf_text("a") + struct.pack("<IIQI", 9, 77, 1, 0)).done(),
    "arrays in arrays": folders.gguf().as_it_is(_NESTED).tensor("a", (8,)).done(),
    "more tensors than bytes": b"GGUF" + struct.pack("<IQQ", 3, 2**62, 0) + bytes(64),
    "more facts than bytes": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**62) + bytes(64),
    "big-endian numbers": b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64),
    "an alignment of three": folders.gguf(alignment=96).fact("general.alignment", "u32", 3).tensor("a", (24,)).done(),
}

LLAMA_CPP: Final = (
    _llama("complete", folders.gguf_folder(), codes=("REQUIRES_PROBE",), absent=("NO_GGUF_ARTIFACT_VARIANT", "CONFIG_MISSING")),
    _llama("of Safetensors alone", folders.generator(), "NO_GGUF_ARTIFACT_VARIANT"),
    _llama("with a variant beside Safetensors", {**folders.generator(), **folders.gguf_folder()},
           absent=("NO_GGUF_ARTIFACT_VARIANT",)),
    _llama("truncated", _gguf(folders.whole_gguf()[:-64]), "WEIGHTS_CORRUPT"),
    _llama("truncated in its facts", _gguf(folders.whole_gguf()[:120]), "WEIGHTS_CORRUPT"),
    _llama("with experts, complete", _gguf(_EXPERTS), absent=("WEIGHTS_CORRUPT",)),
    _llama("endless in 49 bytes", _gguf(raw.ENDLESS_GGUF), "WEIGHTS_CORRUPT"),
    _llama("of a version that is none", _gguf(folders.gguf(version=99).tensor("w", (4,)).done()), "WEIGHTS_CORRUPT"),
    _llama("of an odd alignment",
           _gguf(folders.gguf().fact("general.alignment", "u32", 33).tensor("a", (4,)).tensor("b", (4,)).done()), "WEIGHTS_CORRUPT"),
    *(_llama(f"with {name}", _gguf(data), "WEIGHTS_CORRUPT") for name, data in _WRONG.items()),
    _llama("a web page", _gguf(raw.HTML), one_of=("FORMAT_MISMATCH", "NO_GGUF_ARTIFACT_VARIANT")),
    _llama("a pointer", _gguf(raw.LFS_POINTER), "LFS_POINTER"),
    _llama("empty", _gguf(b""), "EMPTY_FILE"),
    _llama("code under its name", _gguf(raw.evil_pickle()), "FORMAT_MISMATCH", "MEMBER_QUARANTINED", codes=("PICKLE_CODE",)),
    _llama("in two parts", _PARTS, absent=("GGUF_SPLIT_INCOMPLETE", "WEIGHTS_CORRUPT")),
    _llama("in two parts, one absent", without(_PARTS, "tiny-00002"), "GGUF_SPLIT_INCOMPLETE"),
    _llama("in two parts, the first absent", without(_PARTS, "tiny-00001"), "GGUF_SPLIT_INCOMPLETE"),
    _llama("not installed", folders.gguf_folder(), "PACKAGE_MISSING",
           subject={"environment": machines.environment(llama_cpp_python=None)}),
    _llama("of the quantization asked for", folders.gguf_folder(), profile={"quantization": "Q4_K_M"},
           absent=("QUANTIZATION_NOT_EVIDENCED",)),
    _llama("of another quantization", folders.gguf_folder(), "QUANTIZATION_NOT_EVIDENCED", profile={"quantization": "Q8_0"}),
)  # fmt: skip


def _image(name: str, files: Files, *blockers: str, **more: Any) -> Row:
    profile = {"adapter": "diffusers", "task": "image_generation"}
    return Row(name=f"diffusers {name}", files=files, profile=profile, **_verdict("requires_probe", blockers, more))


def _parts(**changes: Any) -> bytes:
    return dumps({**json.loads(folders.pipeline()["model_index.json"]), **changes})


_NET: Final = "vae/diffusion_pytorch_model.safetensors"

DIFFUSERS: Final = (
    _image("complete, one part optional", folders.pipeline(), codes=("REQUIRES_PROBE",), absent=("PIPELINE_COMPONENT_MISSING",)),
    _image("without a part's folder", without(folders.pipeline(), "vae/"), "PIPELINE_COMPONENT_MISSING"),
    _image("without the scheduler", without(folders.pipeline(), "scheduler/"), "PIPELINE_COMPONENT_MISSING"),
    _image("without a part's config", without(folders.pipeline(), "vae/config.json"),
           one_of=("PIPELINE_COMPONENT_MISSING", "CONFIG_MISSING")),
    _image("without a part's weights", without(folders.pipeline(), _NET), one_of=("PIPELINE_COMPONENT_MISSING", "NO_WEIGHTS")),
    _image("with a variant's weights alone",
           changed(folders.pipeline(), {_NET: None, "vae/diffusion_pytorch_model.fp16.safetensors": folders.pipeline()[_NET]}),
           one_of=("PIPELINE_COMPONENT_MISSING", "NO_WEIGHTS")),
    _image("with a truncated part", changed(folders.pipeline(), {_NET: folders.pipeline()[_NET][:-4]}), "WEIGHTS_CORRUPT"),
    _image("with a pointer for a part", changed(folders.pipeline(), {_NET: raw.LFS_POINTER}), "LFS_POINTER"),
    _image("without an index", without(folders.pipeline(), "model_index.json"), "NO_PIPELINE"),
    _image("with an index that is garbage", changed(folders.pipeline(), {"model_index.json": b"{"}),
           one_of=("NO_PIPELINE", "CONFIG_UNREADABLE")),
    _image("with a part of its own code",
           {**folders.pipeline(), "model_index.json": _parts(unet=["my_unet", "MyUNet"]), "unet/my_unet.py": b"import torch\n"},
           "REMOTE_CODE_REQUIRED", codes=("CODE_IN_SET",)),
    _image("whose class is its own", {**folders.pipeline(), "model_index.json": _parts(_class_name=["pipeline", "Mine"]),
           "pipeline.py": b"import torch\n"}, "REMOTE_CODE_REQUIRED"),
    _image("not installed", folders.pipeline(), "PACKAGE_MISSING",
           subject={"environment": machines.environment(diffusers=None)}),
    _image("of an embedding repository", folders.embedder(), "EMBEDDING_REPOSITORY"),
    _image("of a language model", folders.generator(), "NO_PIPELINE", absent=("EMBEDDING_REPOSITORY",)),
)  # fmt: skip

_PICKLED: Final = {**without(folders.embedder(), "model."), "pytorch_model.bin": raw.torch_zip()}

CUSTOM: Final = (
    Row(name="custom complete", files=folders.embedder(), verdict="requires_probe", codes=("NO_IMPLICIT_CLAIM",),
        profile={"adapter": "custom"}),
    Row(name="custom of a runtime's own weights", files=folders.ctranslate2_whisper(), verdict="requires_probe",
        codes=("NO_IMPLICIT_CLAIM",), profile={"adapter": "custom"}),
    Row(name="custom of a pickle", files=_PICKLED, verdict="blocked", blockers=("PICKLE_NOT_APPROVED",),
        profile={"adapter": "custom"}),
    Row(name="custom of an approved pickle", files=_PICKLED, verdict="requires_probe",
        codes=("PICKLE_APPROVED", "NO_IMPLICIT_CLAIM"), absent=("PICKLE_NOT_APPROVED",), profile={"adapter": "custom"},
        subject={"approved": frozenset({"pickle"})}),
    Row(name="custom with code in a pickle", files={**folders.embedder(), "head.pkl": raw.evil_pickle()}, verdict="blocked",
        blockers=("MEMBER_QUARANTINED",), codes=("PICKLE_CODE",), profile={"adapter": "custom"}),
    Row(name="custom that asks for code", profile={"adapter": "custom"}, verdict="blocked", blockers=("REMOTE_CODE_REQUIRED",),
        files={**folders.embedder(), "tokenizer_config.json": dumps({"auto_map": {"AutoTokenizer": ["org/repo--t.T", None]}})}),
    Row(name="custom truncated", files=changed(folders.embedder(), {WEIGHTS: folders.embedder()[WEIGHTS][:-8]}),
        verdict="blocked", blockers=("WEIGHTS_CORRUPT",), profile={"adapter": "custom"}),
)  # fmt: skip
