"""The `modelforge` command: the table of its commands, imported one by one when they are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import rich_click as click

from modelforge.cli.boundary import run
from modelforge.cli.lazy import Entry, LazyGroup

_CLI: Final = "modelforge.cli"
COMMANDS: Final[dict[str, Entry]] = {
    "demo": Entry(f"{_CLI}.stack:demo", "Take a real packaged model through every gate."),
    "up": Entry(f"{_CLI}.stack:up", "Run NATS server, controller and a local agent here."),
    "doctor": Entry(f"{_CLI}.doctor:doctor", "Check this machine and the running stack."),
    "tui": Entry(f"{_CLI}.tui:tui", "Open the operator's screen."),
    "artifact": Entry(
        f"{_CLI}.artifact:artifact", "Scan model folders; list and show artifact sets; quarantine files."
    ),
    "profile": Entry(f"{_CLI}.profile:profile", "Create, validate, list and show runtime profiles."),
    "environment": Entry(f"{_CLI}.environment:environment", "List, show and validate runtime environments."),
    "assess": Entry(f"{_CLI}.assess:assess", "Assess a set for a node; list and show assessments."),
    "approve": Entry(f"{_CLI}.approve:approve", "Add, list and revoke approvals of exact sets."),
    "probe": Entry(f"{_CLI}.probe:probe", "Queue, watch, show and cancel probes."),
    "candidate": Entry(f"{_CLI}.candidate:candidate", "List and show deployment candidates."),
    "node": Entry(f"{_CLI}.node:node", "List and show nodes; say which may be used."),
    "audit": Entry(f"{_CLI}.audit:audit", "Read the audit trail."),
    "config": Entry(f"{_CLI}.config:config", "Show every setting and where it comes from."),
    "version": Entry(f"{_CLI}.version:version", "Show the version."),
}


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 not reachable, 4 refused or blocked, "
    "5 not found, 124 wait is over, 130 interrupted.",
)
@click.version_option(package_name="modelforge", message="%(prog)s %(version)s")
def root() -> None:
    """ModelForge: proof that a model loads, answers and gives its memory back, before it may serve.

    Start with `modelforge demo`, or with `modelforge up` and, in a second terminal, `modelforge tui`.
    """


def call(arguments: Sequence[str]) -> object:
    """Run one command line; the return value of the command, errors as exceptions."""
    return root.main(args=list(arguments), prog_name="modelforge", standalone_mode=False)


def main() -> None:
    """Entry point of the `modelforge` script."""
    arguments = sys.argv[1:]
    if "--no-color" in arguments:
        # Help is drawn before any option is read, and Textual looks at the variable when it is imported.
        os.environ["NO_COLOR"] = "1"
    sys.exit(run(call, arguments))
