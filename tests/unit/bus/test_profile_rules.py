"""The rules of a profile: what goes together, what is too large, and what never falls back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.profiles import AudioSemantics, Budgets, Preprocessing, RuntimeProfile
from bus.profile_rules import LARGEST, NO_FALLBACK, check, differences, problems


def profile(**fields: Any) -> RuntimeProfile:
    return RuntimeProfile(**{"name": "cpu", **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"device": "cuda", "gpu_uuid": "GPU-6b1f2c0e-0000-0000-0000-000000000000"},
        {"task": "speech_recognition", "audio": AudioSemantics(language="pt-BR", timestamps=True)},
        {"task": "image_to_text", "preprocessing": Preprocessing(image_size_px=384)},
        {"preprocessing": Preprocessing(overlong_text="refuse")},
        {"quantization": "Q4_K_M"},
        {"budgets": Budgets(loading_s=86_400, total_s=86_400)},
        dict(LARGEST),
    ],
)
def test_values_that_go_together_pass(fields: dict[str, Any]) -> None:
    assert list(problems(profile(**fields))) == []
    check(profile(**fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpu_uuid": "GPU-1"}, "gpu_uuid belongs to a profile with the device cuda"),
        ({"device": "cuda", "gpu_uuid": "GPU 1\x1b[2J"}, "gpu_uuid is no UUID of a card"),
        ({"device": "cuda", "gpu_uuid": ""}, "gpu_uuid is no UUID of a card"),
        ({"adapter": "os.system"}, "adapter is a name"),
        ({"adapter": "x" * 65}, "adapter is a name"),
        ({"quantization": ""}, "quantization is the name of a method"),
        ({"quantization": "a b"}, "quantization is the name of a method"),
        ({"audio": AudioSemantics()}, "audio belongs to a profile of the task speech_recognition"),
        ({"preprocessing": Preprocessing(image_size_px=384)}, "preprocessing.image_size_px belongs to a profile"),
        ({"task": "speech_recognition", "preprocessing": Preprocessing()}, "preprocessing is of texts and images"),
        (
            {"task": "image_to_text", "preprocessing": Preprocessing(image_size_px=16_385)},
            "preprocessing.image_size_px must be at most 16384",
        ),
        (
            {"task": "speech_recognition", "audio": AudioSemantics(sampling_rate_hz=1_000_000)},
            "audio.sampling_rate_hz must be at most",
        ),
        ({"task": "speech_recognition", "audio": AudioSemantics(window_s=3_601)}, "audio.window_s must be at most"),
        ({"task": "speech_recognition", "audio": AudioSemantics(language="English")}, "audio.language is a code"),
        ({"budgets": Budgets(total_s=86_401)}, "a budget must be at most 86400 s"),
        ({"budgets": Budgets(loading_s=500, total_s=400)}, "no phase's budget may be greater than total_s"),
    ],
)
def test_values_that_do_not_go_together_are_named(fields: dict[str, Any], words: str) -> None:
    found = list(problems(profile(**fields)))
    assert len(found) == 1, found
    assert words in found[0]
    with pytest.raises(ModelForgeError) as caught:
        check(profile(**fields))
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_ARGUMENT, found[0])


@pytest.mark.parametrize("name", sorted(LARGEST))
def test_a_typing_error_is_no_job_of_terabytes(name: str) -> None:
    assert list(problems(profile(**{name: LARGEST[name] + 1}))) == [f"{name} must be at most {LARGEST[name]}"]


@pytest.mark.req("A7")
@pytest.mark.parametrize("device", ["cuda-preferred", "auto", "gpu", "", None])
def test_there_is_no_device_that_may_change(device: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "cpu", "device": device}, RuntimeProfile)
    assert "never runs on a CPU" in NO_FALLBACK


@pytest.mark.req("G1")
def test_every_field_that_differs_is_named_from_what_to_what() -> None:
    assert differences(profile(), profile()) == ()
    assert differences(profile(), profile(batch_size=8, normalize=False, budgets=Budgets(loading_s=10))) == (
        "batch_size from 1 to 8",
        "normalize from yes to no",
        "budgets.loading_s from 300 to 10",
    )
    assert differences(profile(), profile(quantization="gptq", preprocessing=Preprocessing(image_size_px=8))) == (
        "quantization from none to gptq",
        "preprocessing from none to {overlong_text = truncate, image_size_px = 8, image_mode = rgb}",
    )
    for field in RuntimeProfile.__struct_fields__:
        other = {"device": "cuda", "normalize": False, "dtype": "float16", "task": "reranking"}.get(field, 7)
        changed = msgspec.structs.replace(profile(), **{field: other})
        assert [line.split(" from ")[0].split(".")[0] for line in differences(profile(), changed)] == [field]
