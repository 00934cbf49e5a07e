"""The controller's own process: how it begins, how it ends, and with which exit code."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from bus.errors import Exit, ModelForgeError
from modelforge.keys import ensure_key
from tests.support.nats import NatsStack, nats_stack
from tests.support.waiting import until


def write_config(
    folder: Path, url: str, controller: dict[str, object] | None = None, *, stack: NatsStack | None = None
) -> Path:
    ours = folder / "own.nk"
    if stack is None:
        ensure_key(ours)
    keys = (stack.credentials("controller"), stack.credentials("responder")) if stack else (ours, ours)
    values = {
        "state": str(folder / "state"), "credentials": str(keys[0]), "responder_credentials": str(keys[1]),
        "connect_wait_s": 0.1, **(controller or {}),
    }  # fmt: skip
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    file = folder / "controller.toml"
    file.write_text("\n".join([f'[client]\nurl = "{url}"\n[controller]', *lines]))
    return file


async def start(config: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "controller", "--config", str(config), stderr=asyncio.subprocess.PIPE
    )


async def test_it_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    async with nats_stack(tmp_path / "nats") as stack:
        operator = await stack.connect("operator")
        process = await start(write_config(tmp_path, stack.url, stack=stack))

        async def answers() -> bool:
            try:
                return b"api.ok.v1" in await operator.request("mf.api.user.alice.status", b"{}", timeout_s=1)
            except ModelForgeError:
                return False

        try:
            await until(answers, "the controller answers", limit_s=20)
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = await process.communicate()
        assert process.returncode == Exit.OK, log.decode()
        assert b"Traceback" not in log
        assert log.splitlines()[-1].endswith(b"controller ended")
        assert (tmp_path / "state" / "ledger.db").stat().st_mode & 0o077 == 0, "the ledger is its owner's alone"


@pytest.mark.parametrize(
    ("change", "exit_code", "word"),
    [
        ({}, Exit.UNREACHABLE, "NOT_CONNECTED"),
        ({"lease_ttl": 3}, Exit.USAGE, "unknown key 'lease_ttl'"),
        ({"offline_after_s": 1.0}, Exit.USAGE, "doubtful_after_s must not be greater"),
        ({"lease_ttl_s": 0}, Exit.USAGE, "lease_ttl_s"),
    ],
    ids=["no-server", "unknown-key", "contradiction", "zero"],
)
async def test_it_ends_typed_when_it_cannot_begin(
    tmp_path: Path, change: dict[str, object], exit_code: Exit, word: str
) -> None:
    process = await start(write_config(tmp_path, "nats://127.0.0.1:1", change))
    _, log = await process.communicate()
    assert process.returncode == exit_code
    assert word in log.decode()
    assert "Traceback" not in log.decode()
