"""Make what compose.yaml mounts: folders, one key for each process, the server's accounts, and `.env`.

    python -P compose/prepare.py --artifacts FOLDER [--state FOLDER]

Running it again keeps every key. It ends without having started anything.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bus.accounts import render_accounts
from bus.errors import ModelForgeError
from modelforge.keys import prepare_identities

HERE: Final = Path(__file__).resolve().parent
NODE: Final = "node-1"
OPERATOR: Final = "operator"
FALLBACK_ID: Final = 10_001


def prepare(state: Path, artifacts: Path) -> dict[str, str]:
    """Make everything below `state`; the variables for `.env`.

    The containers run as the user who calls this, so that they can read their keys and write their stores without a
    folder that everybody may write. Root becomes an ordinary id instead: no container runs as root.

    Raises:
        ModelForgeError: AUTH_FAILED for a damaged key file.
        OSError: when a folder or file cannot be written.
    """
    folders = [state / name for name in ("accounts", "controller", "keys", "nats")]
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    identities = prepare_identities(state / "keys", user=OPERATOR, node_names=(NODE,))
    accounts = state / "accounts" / "accounts.conf"
    accounts.write_text(render_accounts(identities.users, identities.nodes), encoding="utf-8")
    accounts.chmod(0o600)
    user, group = os.getuid() or FALLBACK_ID, os.getgid() or FALLBACK_ID
    if os.getuid() == 0:
        for path in (*folders, *(state / "keys").iterdir(), accounts):
            os.chown(path, user, group)
    return {
        "MODELFORGE_UID": str(user),
        "MODELFORGE_GID": str(group),
        "MODELFORGE_COMPOSE_STATE": str(state),
        "MODELFORGE_ARTIFACTS": str(artifacts),
    }


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, or that of the error's code."""
    parser = argparse.ArgumentParser(description="Make keys, accounts and folders for compose.yaml.")
    parser.add_argument("--artifacts", type=Path, required=True, help="folder with the models; mounted read-only")
    parser.add_argument("--state", type=Path, default=HERE / "state", help="folder for keys and stores")
    options = parser.parse_args(arguments)
    if not options.artifacts.is_dir():
        parser.error(f"--artifacts: {options.artifacts} is not a folder")
    try:
        variables = prepare(options.state.resolve(), options.artifacts.resolve())
    except ModelForgeError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return int(error.info.exit)
    text = "".join(f"{name}={value}\n" for name, value in variables.items())
    (HERE / ".env").write_text(text, encoding="utf-8")
    print(f"prepared {variables['MODELFORGE_COMPOSE_STATE']}; next: docker compose up --build, here in {HERE.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
