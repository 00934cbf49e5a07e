"""How the adapter calls its library; what the library does with it is in tests/contract/adapters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.base import ModelRequest
from adapters.embedding import EmbeddingAdapter
from bus.messages.profiles import RuntimeProfile


class Loading(Exception):  # noqa: N818 -- the point up to which the test goes
    """The library was called."""


@pytest.mark.req("P11")
def test_the_library_is_told_to_stay_local_and_to_run_no_code_of_the_model(tmp_path: Path) -> None:
    """The offline variables and the barrier would hide a wrong argument: only a look at the call shows it."""
    (tmp_path / "modules.json").write_text('[{"path": ""}]')
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def load(*args: Any, **options: Any) -> None:
        calls.append((args, options))
        raise Loading

    adapter = EmbeddingAdapter()
    adapter._library, adapter._torch = SimpleNamespace(SentenceTransformer=load), SimpleNamespace(float32="float32")
    profile = RuntimeProfile(name="test")
    adapter._request = ModelRequest(model_path=tmp_path, scratch_path=tmp_path, profile=profile)
    with pytest.raises(Loading):
        adapter.start()
    ((args, options),) = calls
    assert args == (str(tmp_path),)
    assert options["local_files_only"] is True
    assert options["trust_remote_code"] is False
    assert options["model_kwargs"] == {"dtype": "float32", "use_safetensors": True}
    assert not options.keys() - {"device", "local_files_only", "trust_remote_code", "model_kwargs"}
