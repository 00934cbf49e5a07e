"""The agent's configuration: what is wrong with it is said by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from node_agent.settings import load_settings

CLIENT = '[client]\nurl = "nats://127.0.0.1:9"\n'
NODE = '[node]\nname = "local"\nartifact_root = "ROOT"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "agent.toml"
    path.write_text(text.replace("ROOT", str(folder)))
    return path


def test_defaults_and_folders_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    settings = load_settings(write(tmp_path, NODE.replace("ROOT", "ROOT/link") + CLIENT))
    assert settings.artifact_root == tmp_path.resolve()
    assert settings.scratch.is_dir()
    assert (settings.node.slots, settings.node.test_double) == (2, False)
    assert (settings.cache, settings.environment) == (None, None)


def test_a_cache_need_not_exist_and_an_environment_file_is_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "environment.toml").write_text('image = "worker"\n')
    more = 'cache = "ROOT/new/cache"\nenvironment = "ROOT/environment.toml"\n'
    settings = load_settings(write(tmp_path, NODE + more + CLIENT))
    assert settings.cache == tmp_path / "new" / "cache"
    assert not settings.cache.exists()
    assert settings.environment is not None
    assert settings.environment.image == "worker"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NODE + "slot = 2\n" + CLIENT, "unknown key 'slot'"),
        (NODE.replace("local", "Local!") + CLIENT, "name"),
        (NODE.replace("ROOT", "ROOT/nowhere") + CLIENT, "is not a folder"),
        (NODE + 'scratch = "ROOT/nowhere"\n' + CLIENT, "is not a folder"),
        (NODE, "an agent needs `url`"),
        (NODE + "slots = 0\n" + CLIENT, "slots"),
        (NODE + "scan_memory_limit_mib = 255\n" + CLIENT, "scan_memory_limit_mib"),
        (NODE + "slots = true\n" + CLIENT, "slots"),
        (CLIENT, "name"),
        ("[nodes]\n" + CLIENT, "unknown section"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ModelForgeError) as caught:
        load_settings(write(tmp_path, text))
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert words in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelForgeError) as caught:
        load_settings(tmp_path / "missing.toml")
    assert caught.value.code is ErrorCode.CONFIG_UNREADABLE
