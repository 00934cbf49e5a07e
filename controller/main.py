"""The controller's process: configuration in, exit code out."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bus.errors import Exit, ModelForgeError
from bus.settings import ClientSettings, load
from controller import logs
from controller.app import serve
from controller.settings import ControllerSettings

_log: Final = logging.getLogger("controller.main")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a controller until SIGTERM or SIGINT. Returns the exit code (see `bus.errors.Exit`)."""
    parser = argparse.ArgumentParser(prog="python -P -m controller", description="ModelForge's controller")
    parser.add_argument("--config", type=Path, required=True, help="configuration file (TOML)")
    file = parser.parse_args(arguments).config
    logs.begin()
    try:
        settings = load(ControllerSettings, "controller", file=file).value.check()
        client = load(ClientSettings, "client", file=file).value
        asyncio.run(_run(settings, client))
    except ModelForgeError as error:
        _log.error("%s -- %s", error, error.hint)
        return int(error.info.exit)
    except Exception:  # noqa: BLE001 -- the process's edge: a traceback in the log, an exit code outside
        _log.exception("the controller ended by a defect")
        return int(Exit.FAILED)
    return int(Exit.OK)


async def _run(settings: ControllerSettings, client: ClientSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = asyncio.create_task(serve(settings, client, stop), name="controller")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    try:
        # A signal may come before there is anything to stop in order: what is being opened is then cancelled.
        async with asyncio.timeout(settings.stop_grace_s * 2 if stop.is_set() else None):
            await serving
    except TimeoutError:
        _log.error("the controller did not end in time and was cancelled")
    finally:
        stopping.cancel()
