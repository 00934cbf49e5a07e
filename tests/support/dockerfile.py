"""A small reader of Dockerfiles: enough to hold what an image promises, no builder."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field


@dataclass
class Stage:
    """One `FROM` and what follows it."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        """The arguments of every instruction of this name."""
        return [argument for instruction, argument in self.instructions if instruction == name]

    def last(self, name: str) -> str:
        """The arguments of the last instruction of this name: the one that counts."""
        return self.all(name)[-1]

    def environment(self) -> dict[str, str]:
        """All `ENV NAME=value` pairs."""
        pairs = [pair for argument in self.all("ENV") for pair in shlex.split(argument)]
        return dict(pair.split("=", maxsplit=1) for pair in pairs)


def read(text: str) -> list[Stage]:
    """The stages of a Dockerfile, in order; the last one is the image."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    stages: list[Stage] = []
    for line in joined.splitlines():
        instruction, _, argument = line.strip().partition(" ")
        if instruction.upper() == "FROM":
            stages.append(Stage(base=argument.split()[0]))
        elif stages:
            stages[-1].instructions.append((instruction.upper(), " ".join(argument.split())))
    return stages
