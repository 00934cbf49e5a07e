"""The SentenceTransformers adapter: one embedding model from an exact local folder (spec P11, P14).

A model that loads and answers with a finite unit vector may still be random: missing tensor names, an absent
tokenizer, the wrong head all load silently. So the names in the files are compared with the model's own, the fixed
input's tokens are looked at, and the inference is repeated. What is not proven is not passed.
"""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import Any, Final

from adapters import tensor_check
from adapters.base import LoadReport, ModelRequest, ProbeReport, RuntimeAdapter
from adapters.loader_options import TRANSFORMER_CONFIGS, refused_options
from adapters.payloads import EMBEDDING_INPUT, REPEAT_COSINE, cosine, embedding_output
from adapters.registry import installed_version
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.evidence import Health
from bus.messages.profiles import RuntimeProfile
from bus.text import clean_line

MODULES_FILE: Final = "modules.json"
MAX_UNKNOWN_SHARE: Final = 0.5
MAX_NAME_CHARS: Final = 120
_PACKAGES: Final = ("sentence-transformers", "transformers", "torch", "tokenizers", "safetensors", "numpy")


class EmbeddingAdapter(RuntimeAdapter):
    """Text to one vector, shape (dimensions,)."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._library: Any = None
        self._model: Any = None
        self._request: ModelRequest | None = None
        self._vector: list[float] = []
        self._facts: dict[str, str] = {}

    def inspect_support(self, profile: RuntimeProfile) -> tuple[str, ...]:
        """See `RuntimeAdapter.inspect_support`."""
        if profile.device == "cpu" and profile.gpu_uuid is not None:
            return ("a CPU profile names a GPU",)
        return ()

    def prepare(self, request: ModelRequest) -> None:
        """See `RuntimeAdapter.prepare`."""
        import sentence_transformers  # noqa: PLC0415 -- libraries are imported behind the barrier, never before
        import torch  # noqa: PLC0415 -- only the child that loads imports it

        self._torch, self._library, self._request = torch, sentence_transformers, request
        torch.set_num_threads(request.profile.threads)
        # Children of one template share its random state; a model with made-up weights must not look repeatable.
        torch.seed()
        if request.profile.device == "cuda" and not torch.cuda.is_available():
            message = "the profile wants CUDA, and this process sees no CUDA device"
            raise ModelForgeError(ErrorCode.RUNTIME_INCOMPATIBLE, message)

    def start(self) -> LoadReport:
        """See `RuntimeAdapter.start`."""
        request = self._loaded_request()
        folder, profile = request.model_path, request.profile
        if not folder.is_absolute() or not folder.is_dir():
            raise ModelForgeError(ErrorCode.MODEL_LOAD_FAILED, "the model folder is not there")
        if not (folder / MODULES_FILE).is_file():
            message = f"the folder holds no {MODULES_FILE}; the library would make up a pooling"
            raise ModelForgeError(ErrorCode.MODEL_LOAD_FAILED, message)
        _refuse_options(folder)
        self._model = self._library.SentenceTransformer(
            str(folder),
            device=profile.device,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": getattr(self._torch, profile.dtype), "use_safetensors": True},
        )
        self._model.eval()
        self._bound_length(profile.max_sequence_length)
        device = self._check_device()
        self._check_weights(folder)
        self._check_tokens()
        return LoadReport(
            device=device,
            max_sequence_length=int(self._model.max_seq_length or profile.max_sequence_length),
            allocator_bytes=self._allocated(),
        )

    def probe(self) -> ProbeReport:
        """See `RuntimeAdapter.probe`."""
        first, dtype, first_ms = self._encode()
        second, _, second_ms = self._encode()
        self._vector = first
        peak = int(self._torch.cuda.max_memory_allocated()) if self._on_cuda() else None
        return ProbeReport(
            output=embedding_output(first, second, dtype),
            repeatable=cosine(first, second) >= REPEAT_COSINE,
            inference_ms=first_ms,
            repeat_inference_ms=second_ms,
            allocator_peak_bytes=peak,
        )

    def health(self) -> Health:
        """See `RuntimeAdapter.health`: the model is run once more and must answer as it did."""
        vector, _, _ = self._encode()
        same = cosine(vector, self._vector) >= REPEAT_COSINE
        return Health(runtime="healthy", model="healthy" if same else "unhealthy")

    def stop(self) -> None:
        """See `RuntimeAdapter.stop`; nothing runs between two calls."""

    def unload(self) -> None:
        """See `RuntimeAdapter.unload`."""
        on_cuda = self._on_cuda()
        self._model = None
        self._vector = []
        gc.collect()
        if on_cuda:
            self._torch.cuda.empty_cache()

    def collect_runtime_facts(self) -> dict[str, str]:
        """See `RuntimeAdapter.collect_runtime_facts`."""
        versions = {package: installed_version(package) or "unknown" for package in _PACKAGES}
        threads = {"threads": str(self._torch.get_num_threads())} if self._torch is not None else {}
        return {**versions, **threads, **self._facts}

    def _loaded_request(self) -> ModelRequest:
        if self._request is None:
            message = "prepare was not called"
            raise ModelForgeError(ErrorCode.INTERNAL, message)
        return self._request

    def _encode(self) -> tuple[list[float], str, float]:
        """The fixed input as one batch of the profile's size: vector of shape (dimensions,), dtype, milliseconds."""
        profile = self._loaded_request().profile
        begin = time.perf_counter()
        rows = self._model.encode(
            [EMBEDDING_INPUT] * profile.batch_size,
            prompt="",  # a folder may name a default prompt; the fixed input is the sole one
            batch_size=profile.batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=profile.normalize,
        )
        elapsed_ms = (time.perf_counter() - begin) * 1_000
        vector = rows[0]
        return [float(value) for value in vector.reshape(-1)], str(vector.dtype), elapsed_ms

    def _bound_length(self, wanted: int) -> None:
        own = self._model.max_seq_length
        self._model.max_seq_length = min(wanted, int(own)) if own else wanted

    def _check_device(self) -> str:
        """The device on which every parameter lies; a silent fall-back to the CPU is refused."""
        wanted = self._loaded_request().profile.device
        places = {str(parameter.device) for parameter in self._model.parameters()}
        if any(self._torch.device(place).type != wanted for place in places):
            message = f"the profile wants {wanted}, but parameters lie on {', '.join(sorted(places))}"
            raise ModelForgeError(ErrorCode.RUNTIME_INCOMPATIBLE, message)
        return ", ".join(sorted(places)) or wanted

    def _check_weights(self, folder: Path) -> None:
        report = tensor_check.check(self._model[0].auto_model, _transformer_folder(folder))
        self._facts |= {
            "model_class": type(self._model[0].auto_model).__name__,
            "modules": ", ".join(type(module).__name__ for module in self._model),
            "parameters": str(sum(parameter.numel() for parameter in self._model.parameters())),
            "tensor_check": report.summary,
        }
        if report.missing:
            first = clean_line(report.missing[0], MAX_NAME_CHARS)
            message = f"{len(report.missing)} tensors of the model are not in its files, the first is {first}"
            raise ModelForgeError(ErrorCode.INVALID_OUTPUT, message)
        if report.unused:
            first = clean_line(report.unused[0], MAX_NAME_CHARS)
            message = f"{len(report.unused)} tensors of the files are not used by the model, the first is {first}"
            raise ModelForgeError(ErrorCode.INVALID_OUTPUT, message)

    def _check_tokens(self) -> None:
        """A missing tokenizer file gives a tokenizer that knows no word, and vectors that mean nothing."""
        tokenizer = self._model[0].tokenizer
        tokens = list(tokenizer(EMBEDDING_INPUT, add_special_tokens=False)["input_ids"])
        unknown = tokens.count(tokenizer.unk_token_id) if tokenizer.unk_token_id is not None else 0
        self._facts |= {
            "tokenizer_class": type(tokenizer).__name__,
            "input_tokens": str(len(tokens)),
            "input_unknown_tokens": str(unknown),
        }
        if not tokens or unknown / len(tokens) >= MAX_UNKNOWN_SHARE:
            message = f"the tokenizer knows {len(tokens) - unknown} of {len(tokens)} tokens of the fixed input"
            raise ModelForgeError(ErrorCode.INVALID_OUTPUT, message)

    def _on_cuda(self) -> bool:
        return self._request is not None and self._request.profile.device == "cuda"

    def _allocated(self) -> int | None:
        return int(self._torch.cuda.memory_allocated()) if self._on_cuda() else None


def _transformer_folder(folder: Path) -> Path:
    """The folder of the first module, which the inspection wants to be the Transformer."""
    modules = json.loads((folder / MODULES_FILE).read_text(encoding="utf-8"))
    return folder / str(modules[0].get("path", ""))


def _refuse_options(folder: Path) -> None:
    """Native code of a library opens files past every guard: what could name them is not passed on to it."""
    place = _transformer_folder(folder)
    for name in TRANSFORMER_CONFIGS:
        file = place / name
        if file.is_file() and (refused := refused_options(json.loads(file.read_text(encoding="utf-8")))):
            message = f"{name} asks for {len(refused)} options that are not passed on to the library"
            raise ModelForgeError(ErrorCode.MODEL_LOAD_FAILED, message)
