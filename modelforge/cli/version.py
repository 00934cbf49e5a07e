"""`modelforge version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed

import rich_click as click

from modelforge.cli.command import App, LocalCommand


@click.command(cls=LocalCommand)
@click.pass_obj
def version(app: App) -> None:
    """Show the version of ModelForge and of Python."""
    facts = {"modelforge": installed("modelforge"), "python": platform.python_version()}
    app.out.result("version", facts, lambda: f"modelforge {facts['modelforge']} (Python {facts['python']})")
