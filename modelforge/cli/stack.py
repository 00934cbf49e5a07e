"""`modelforge up` and `modelforge demo`: commands that run the stack themselves."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rich_click as click

from bus.errors import ErrorCode, Exit, ModelForgeError
from modelforge.cli.command import App, LocalCommand

if TYPE_CHECKING:
    from modelforge.demo import DemoReport
    from modelforge.plan import Plan
    from modelforge.supervisor import Supervisor
    from modelforge.up import Stack

_DEMO_FOLDER: Final = "demo"


@click.command(cls=LocalCommand)
@click.option("--port", type=click.IntRange(0, 65_535), help="Port on loopback; 0 lets the system choose.  [4222]")
@click.option(
    "--artifact-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder below which the local node finds models.  [artifacts in the state folder]",
)
@click.option("--node", metavar="NAME", help="Name of the local node.  [local]")
@click.pass_obj
def up(app: App, port: int | None, artifact_root: Path | None, node: str | None) -> int:
    """Run NATS server, controller and a local agent in this terminal, until Ctrl-C.

    A part that ends is started again a few times; if that does not help, everything stops and the command says why.
    Logs are in the state folder. Stopped by Ctrl-C or SIGTERM the command ends with 0.
    """
    from modelforge.plan import make_plan  # noqa: PLC0415 -- `up --help` needs none of this
    from modelforge.up import run_until_signal  # noqa: PLC0415 -- lazy: `--help` stays quick

    plan = make_plan(app.state, app.config, port=port, artifact_root=artifact_root, node=node)
    was_ready = asyncio.Event()
    try:
        run_until_signal(_run_up(app, plan, was_ready))
    except ModelForgeError as error:
        if error.code is not ErrorCode.INTERRUPTED or not was_ready.is_set():
            raise
        app.out.note("stopped", "ok")
    return Exit.OK


async def _run_up(app: App, plan: Plan, was_ready: asyncio.Event) -> None:
    from modelforge.stream_watch import StreamWatch  # noqa: PLC0415 -- lazy: `--help` stays quick
    from modelforge.up import alongside, running  # noqa: PLC0415 -- lazy: `--help` stays quick

    async with running(plan, app.out.note) as (stack, supervisor):
        was_ready.set()
        _tell_ready(app, stack)
        watch = StreamWatch(stack.stream_states, stack.end_server, app.out.note)
        await alongside(supervisor, watch.run())


def _tell_ready(app: App, stack: Stack) -> None:
    facts = {
        "url": stack.client.url,
        "user": stack.client.user,
        "credentials": stack.client.credentials,
        "state": str(stack.plan.state.root),
        "node": stack.plan.node_name,
        "artifact_root": str(stack.plan.artifact_root),
        "pids": {part.name: part.pid for part in stack.parts},
        "logs": {part.name: str(part.log_path) for part in stack.parts},
    }
    app.out.line(
        "up",
        facts,
        lambda: (
            f"ready at {stack.client.url} as {stack.client.user}, node {stack.plan.node_name}, "
            f"artifacts below {stack.plan.artifact_root}"
        ),
    )
    app.next("modelforge artifact scan PATH", "modelforge tui", "modelforge doctor")


@click.command(cls=LocalCommand)
@click.option("--keep", is_flag=True, help="Let the stack run on afterwards, until Ctrl-C.")
@click.pass_obj
def demo(app: App, keep: bool) -> int:
    """Take a real packaged embedding model through every gate, and print the evidence.

    Runs a stack of its own on a free port, in the folder `demo` of the state folder; the configuration file plays no
    part. Ends with 0 only when the candidate exists.
    """
    from modelforge.demo import packaged_model  # noqa: PLC0415 -- `demo --help` needs none of this
    from modelforge.plan import make_plan  # noqa: PLC0415 -- lazy: `--help` stays quick
    from modelforge.up import run_until_signal  # noqa: PLC0415 -- lazy: `--help` stays quick

    plan = make_plan(app.state / _DEMO_FOLDER, None, port=0, artifact_root=packaged_model())
    was_ready = asyncio.Event()
    try:
        run_until_signal(_run_demo(app, plan, was_ready if keep else None))
    except ModelForgeError as error:
        if error.code is not ErrorCode.INTERRUPTED or not was_ready.is_set():
            raise
        app.out.note("stopped", "ok")
    return Exit.OK


async def _run_demo(app: App, plan: Plan, keep: asyncio.Event | None) -> None:
    """The walk; `keep` is set when the stack stays on after it. Returns only when the candidate exists."""
    from modelforge.demo import Demo, report_card  # noqa: PLC0415 -- lazy: `--help` stays quick
    from modelforge.up import alongside, running  # noqa: PLC0415 -- lazy: `--help` stays quick

    app.out.note(f"starting a stack in {plan.state.root}", "heading")
    async with running(plan, app.out.note) as (stack, supervisor):
        if stack.operator is None:
            raise ModelForgeError(ErrorCode.INTERNAL, "the stack is ready without a connection")
        report: DemoReport = await alongside(supervisor, Demo(stack.operator, plan.node_name, app.out).run())
        app.out.note("")
        app.out.result("demo", report, lambda: report_card(report))
        app.out.note(f"\nall gates passed in {report.seconds:.1f} s", "ok")
        if keep is not None:
            keep.set()
            await _keep(app, stack, supervisor)
    # The stack is gone, its record is not: only with it can the log and the evidence be looked at again.
    state, root = shlex.quote(str(plan.state.root)), shlex.quote(str(plan.artifact_root))
    app.out.next(
        f"modelforge up --state {state} --artifact-root {root} --port 0",
        f"modelforge probe log {report.probe.id} --state {state}",
    )


async def _keep(app: App, stack: Stack, supervisor: Supervisor) -> None:
    app.out.note(f"the stack runs on at {stack.client.url} until Ctrl-C", "heading")
    state = shlex.quote(str(stack.plan.state.root))
    app.out.next(f"modelforge tui --state {state}", f"modelforge probe list --state {state}")
    await supervisor.run()
