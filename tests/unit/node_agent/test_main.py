"""The edge of the agent's process: one typed line and an exit code, whatever ended it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.errors import ErrorCode, Exit, ModelForgeError
from node_agent import main as edge
from node_agent.settings import AgentSettings


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (LookupError("/secret/place"), Exit.FAILED, "INTERNAL: the agent ended with LookupError"),
        (ModelForgeError(ErrorCode.BOOT_CONFLICT, "another agent"), Exit.REFUSED, "BOOT_CONFLICT: another agent"),
    ],
)
def test_every_end_is_a_typed_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: Exit,
    line: str,
) -> None:
    async def fail(_: AgentSettings) -> None:
        raise error

    config = tmp_path / "agent.toml"
    config.write_text(f'[node]\nname = "local"\nartifact_root = "{tmp_path}"\n[client]\nurl = "nats://127.0.0.1:1"\n')
    monkeypatch.setattr(edge, "run", fail)
    assert edge.main(["--config", str(config)]) == code
    (last,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert last.getMessage().startswith(line)
    assert last.exc_info is None
    assert "/secret/place" not in last.getMessage()
    logged = [record for record in caplog.records if record.exc_info is not None]
    assert bool(logged) == isinstance(error, LookupError)
