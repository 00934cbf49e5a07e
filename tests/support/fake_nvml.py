"""A fake NVML for tests: builds the library once, and asks it through the product's own code in another process.

Another process, because pynvml keeps the library for the life of a process, and other tests want a machine without.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import msgspec
import pytest

from bus.messages.evidence import GpuSample
from node_agent.measure.nvml import Discovery

SOURCE: Final = Path(__file__).parent / "fakenvml" / "fakenvml.c"
LIBRARY: Final = "libnvidia-ml.so.1"
_ANSWER_LIMIT_S: Final = 20

_AGENT: Final = """
import json, sys
import msgspec
from node_agent.measure import nvml
cards = {}
for line in sys.stdin:
    question = json.loads(line)
    if question["ask"] == "discover":
        answer = nvml.discover(question["timeout_s"])
    else:
        card = cards.setdefault(question["uuid"], nvml.Gpu(question["uuid"], question["timeout_s"]))
        answer = card.sample(question["pids"])
    print(msgspec.json.encode(answer).decode(), flush=True)
"""


@cache
def library_folder() -> Path:
    """The folder that holds the built library; skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake NVML with")
    folder = Path(mkdtemp(prefix="modelforge-fakenvml-"))
    atexit.register(shutil.rmtree, folder)
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-O1",
            "-fvisibility=hidden",
            f"-Wl,-soname,{LIBRARY}",
            "-o",
            str(folder / LIBRARY),
            str(SOURCE),
        ],
        check=True,
        timeout=60,
    )
    return folder


class FakeNvml:
    """A machine with cards: its state, and an agent process that looks at it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "procs").mkdir()
        self._state: dict[str, object] = {}
        self._agent: subprocess.Popen[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to see these cards."""
        return {**os.environ, "LD_LIBRARY_PATH": str(library_folder()), "FAKE_NVML_DIR": str(self.folder)}

    def state(self, **values: object) -> None:
        """Add to the state; `_` before a digit or `dot` in a name: `card0_used=5` is the key `0.used`."""
        self._state |= values
        lines = [f"{_key(name)} {value}" for name, value in self._state.items()]
        (self.folder / "state").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def error(self, function: str, code: int) -> None:
        """Let `function` fail with NVML's `code` from now on; 0 lets it work again."""
        self.state(**{f"error.{function}": code})

    def use(self, pid: int, used_bytes: int, card: int = 0) -> Path:
        """Let process `pid` use memory of a card while it lives."""
        file = self.folder / "procs" / f"{card}_{pid}"
        file.write_text(str(used_bytes), encoding="utf-8")
        return file

    def discover(self, timeout_s: float = 5.0) -> Discovery:
        """`nvml.discover` in the agent process."""
        return msgspec.convert(self._ask({"ask": "discover", "timeout_s": timeout_s}), Discovery)

    def sample(self, uuid: str, *pids: int, timeout_s: float = 5.0) -> GpuSample:
        """`Gpu.sample` in the agent process; one `Gpu` for each UUID, as in a probe."""
        question = {"ask": "sample", "uuid": uuid, "pids": list(pids), "timeout_s": timeout_s}
        return msgspec.convert(self._ask(question), GpuSample)

    def _ask(self, question: dict[str, Any]) -> Any:
        if self._agent is None:
            self._agent = subprocess.Popen(
                [sys.executable, "-P", "-c", _AGENT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=self.environment,
            )
        assert self._agent.stdin is not None
        assert self._agent.stdout is not None
        self._agent.stdin.write(json.dumps(question) + "\n")
        self._agent.stdin.flush()
        return json.loads(self._agent.stdout.readline())

    def close(self) -> None:
        """End the agent process."""
        if self._agent is not None:
            self._agent.communicate(timeout=_ANSWER_LIMIT_S)


def _key(name: str) -> str:
    """`card0_used` is `0.used`; other names are themselves."""
    if name.startswith("card"):
        card, _, rest = name.removeprefix("card").partition("_")
        return f"{card}.{rest}"
    return name
