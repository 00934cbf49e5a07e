"""How a missing extra is installed: from the clone. On the package index the name belongs to another project."""

from __future__ import annotations


def install_command(extra: str = "") -> str:
    """What to type in the clone of the repository to install an extra, or the base when none is named."""
    wanted = f"'.[{extra}]'" if extra else "."
    return f".venv/bin/pip install {wanted}"


def install_hint(extra: str) -> str:
    """The hint of an error: the command, and where it is typed."""
    return f"In the clone of the repository: `{install_command(extra)}`."
