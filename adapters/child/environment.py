"""The environment of a child process: an allow-list, and the variables that keep the libraries offline (spec P11).

The libraries read these variables when they are imported, so the parent sets them for the whole process; setting
them later does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OFFLINE: Final[dict[str, str]] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}
# A library that makes threads while it is imported cannot be forked from; the adapter raises the number later.
ONE_THREAD: Final[dict[str, str]] = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
# What may pass from the agent: how text and time look, and where the driver's libraries lie. Never a credential,
# a proxy, a Python path or a preload.
PASSED_ON: Final = (
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
)
_INTERPRETER: Final[dict[str, str]] = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUTF8": "1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
_FOLDERS: Final = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "MPLCONFIGDIR")


def folders(scratch_path: str) -> dict[str, str]:
    """Every place where a library may want to write, all of them in the probe's own scratch folder."""
    return dict.fromkeys(_FOLDERS, scratch_path)


def child_environment(own: Mapping[str, str], scratch_path: str) -> dict[str, str]:
    """The whole environment of a child or a template; `own` is the agent's."""
    passed = {name: own[name] for name in PASSED_ON if name in own}
    return {**passed, **_INTERPRETER, **OFFLINE, **ONE_THREAD, **folders(scratch_path), "CUDA_VISIBLE_DEVICES": ""}


def offline_faults(environment: Mapping[str, str]) -> list[str]:
    """Which offline variables do not stand in `environment`; a library may have changed one."""
    return [f"{name} is not {value}" for name, value in OFFLINE.items() if environment.get(name) != value]


def foreign_names(environment: Mapping[str, str]) -> list[str]:
    """What stands in `environment` although `child_environment` never puts it there; asked before any import."""
    allowed = {*PASSED_ON, *_INTERPRETER, *OFFLINE, *ONE_THREAD, *_FOLDERS, "CUDA_VISIBLE_DEVICES"}
    return [f"{name} was not expected" for name in environment if name not in allowed]
