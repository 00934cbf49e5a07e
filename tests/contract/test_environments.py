"""Runtime environments: immutable, numbered as they were first seen, found by id, by its beginning or by node (A8)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bus.errors import ErrorCode
from bus.messages import api
from bus.messages.inventory import NodeInventory
from bus.messages.profiles import EnvironmentView
from tests.support.gates import refused
from tests.support.ledger import Lab, environment, inventory, open_lab


def node_with(python: str, node: str = "local") -> NodeInventory:
    return inventory(node=node, boot_id=f"boot-{node}", environment=environment(python=python))


async def shown(lab: Lab, typed: str) -> EnvironmentView:
    view: EnvironmentView = await lab.call("environments.show", api.ById(id=typed))
    return view


async def test_environments_are_numbered_as_they_were_first_seen(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello(node_with("3.11.1"))
        await lab.hello(node_with("3.11.2", "other"))
        await lab.hello(node_with("3.11.1", "third"))
        await lab.hello(node_with("3.11.3", "other"))
        listed = (await lab.call("environments.list", api.Page())).environments
        assert [(one.version, one.environment.python, one.nodes) for one in listed] == [
            (3, "3.11.3", ("other",)),
            (2, "3.11.2", ()),
            (1, "3.11.1", ("local", "third")),
        ]
        assert all(one.id == one.environment.digest() for one in listed)
        assert listed[2].first_seen_at < listed[1].first_seen_at < listed[0].first_seen_at
        page = await lab.call("environments.list", api.Page(limit=2))
        assert (page.environments, page.truncated) == (listed[:2], True)


async def test_one_is_found_by_its_id_by_a_beginning_and_by_a_node(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        said = node_with("3.11.1")
        await lab.hello(said)
        wanted = said.environment.digest()
        for typed in (wanted, wanted.removeprefix("sha256:")[:8], wanted[:20], "local"):
            assert (await shown(lab, typed)).id == wanted
        assert (await shown(lab, "local")).environment == said.environment
        await lab.hello(msgspec.structs.replace(node_with("3.12.0"), sequence=2))
        assert (await shown(lab, "local")).version == 2, "the one that the node has now"
        assert (await shown(lab, wanted)).nodes == ()


@pytest.mark.parametrize("typed", ["nobody", "sha256:000000", "", "../x"])
async def test_an_unknown_one_is_typed(tmp_path: Path, typed: str) -> None:
    async with open_lab(tmp_path) as lab:
        await lab.hello()
        await refused(shown(lab, typed), ErrorCode.UNKNOWN_ID)


async def test_a_node_whose_name_is_hexadecimal_is_still_found_by_its_name(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        said = node_with("3.11.1", "abcdef")
        await lab.hello(said)
        assert (await shown(lab, "abcdef")).nodes == ("abcdef",)
