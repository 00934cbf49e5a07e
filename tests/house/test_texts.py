"""What no file may hold: paths of one machine, hosts of registries, secrets, notes to self."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import pytest

from tests.support import repo

# Written so that this file does not hold what it looks for.
MACHINE_PATHS: Final = re.compile(r"/(?:wor[k]|roo[t]|hom[e]/\w+|opt/(?:whe[e]ls|py[p]i))/|/roo[t]\b")
REGISTRIES: Final = re.compile(
    r"pypi\.(?:or[g]|py[t])|python[h]osted\.org|registry\.npm[j]s|deb\.debia[n]\.org|download\.pytor[c]h\.org|files\.pyth[o]n",
    re.IGNORECASE,
)
SECRETS: Final[dict[str, re.Pattern[str]]] = {
    "an NKey seed": re.compile(r"\bS[UAONCX][A-Z2-7]{56}\b"),
    "a private key": re.compile(r"BEGIN (?:[A-Z]+ )?PRIVATE KE[Y]"),
    "a cloud key": re.compile(r"\bAKI[A][0-9A-Z]{16}\b"),
    "a forge token": re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36}\b"),
    "a hub token": re.compile(r"\bhf_[A-Za-z]{34}\b"),
}
# Tests of the redaction of logs must hold something to black out; the strings are made up.
MADE_UP_SECRETS: Final = ("tests/unit/",)
NOTES: Final = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b")
TEMPORARY: Final = re.compile(r"""["'](?:/var)?/tm[p](?:/|["'])""")
# On the package index the name is another project's: whoever follows such a hint runs a stranger's code.
STRANGER: Final = re.compile(r"pip install (?:-\S+ )*'?modelforg[e]\b|`modelforg[e]\[")
MAX_FILE_BYTES: Final = 200_000


def offenders(pattern: re.Pattern[str], paths: Iterable[str]) -> dict[str, list[str]]:
    """Path -> what the pattern finds there."""
    found = {path: [match[0] for match in pattern.finditer(repo.text(path))] for path in paths}
    return {path: matches for path, matches in found.items() if matches}


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRIES, NOTES], ids=["machine paths", "registries", "notes"])
def test_no_file_names_a_machine_a_registry_or_a_note_to_self(pattern: re.Pattern[str]) -> None:
    assert offenders(pattern, repo.files()) == {}


def test_nobody_is_told_to_install_another_project_of_our_name() -> None:
    assert offenders(STRANGER, repo.files()) == {}


@pytest.mark.parametrize("what", SECRETS)
def test_no_file_holds_a_secret(what: str) -> None:
    paths = [path for path in repo.files() if not path.startswith(MADE_UP_SECRETS)]

    assert offenders(SECRETS[what], paths) == {}


def test_the_product_asks_the_platform_for_temporary_places() -> None:
    assert offenders(TEMPORARY, repo.python_files(*repo.ROOMS, "benchmarks")) == {}


def test_no_file_is_large_and_none_is_a_leftover() -> None:
    large = [path for path in repo.files() if (repo.ROOT / path).stat().st_size > MAX_FILE_BYTES]
    leftovers = [path for path in repo.files() if re.search(r"\.(pyc|orig|rej|swp|log|db|nk)$|~$", path)]

    assert large == []
    assert leftovers == []
