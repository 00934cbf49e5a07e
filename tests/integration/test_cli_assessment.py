"""The assessment plane by command, against a real stack: what is scanned, held, approved, stale, and said of it."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import COMMAND, Result, UpProcess, clean_environment, modelforge, modelforge_here
from tests.support.stack import minilm_root

pytestmark = pytest.mark.timeout(110)
FILES_MANY = 4_500


@dataclass
class Live:
    """A running `up` and what the tests need of it."""

    state: Path
    models: Path
    up: UpProcess

    def run(self, *arguments: str) -> Result:
        return modelforge_here(self.state, *arguments)

    def data(self, *arguments: str) -> Any:
        result = self.run(*arguments, "--json")
        assert result.code == 0, result.err
        return result.data

    def scan(self, path: str) -> str:
        return str(self.data("artifact", "scan", path)["set_digest"])

    def copy(self, name: str) -> Path:
        """The packaged model under another name, one file different: a set of its own."""
        folder = self.models / name
        shutil.copytree(self.models / "minilm", folder)
        (folder / "NOTES.md").write_text(f"{name}\n")
        return folder

    def assess(self, digest: str) -> Result:
        return self.run("assess", digest, "--profile", "cpu-small", "--node", "local", "--json")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("cli")
    models = folder / "models"
    shutil.copytree(minilm_root() / "model", models / "minilm")
    up = UpProcess(folder / "state", "--port", "0", "--artifact-root", str(models))
    try:
        live = Live(folder / "state", models, up)
        live.data("profile", "create", "cpu-small")
        yield live
    finally:
        code = up.end()
        shutil.rmtree(models)
    assert code == 0, up.err


def failed(result: Result, code: str, exit_: int) -> dict[str, Any]:
    assert result.code == exit_, (result.out, result.err)
    data = json.loads(result.out)["data"]
    assert (data["code"], data["exit"]) == (code, exit_)
    assert data["hint"]
    return dict(data)


def test_the_verdict_is_the_first_thing_said(live: Live) -> None:
    digest = live.scan("minilm")
    said = live.run("assess", digest, "--profile", "cpu-small", "--node", "local")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0] == "COMPATIBLE as far as files and facts say; not proven"
    assert len(lines) <= 22
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in said.out
    shown = live.run("assess", "show", live.assess(digest).data["id"], "--facts")
    for words in (
        "declared by the runtime (a claim)",
        "proven here (measured)",
        "how far it is off is unknown",
        "facts\n",
    ):
        assert words in shown.out


def sums(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_scan_is_held_against_a_list_from_outside(live: Live, tmp_path: Path) -> None:
    folder = live.copy("listed")
    right = tmp_path / "SHA256SUMS"
    right.write_text("".join(f"{digest}  ./{name}\n" for name, digest in sums(folder).items()))
    made = live.data("artifact", "scan", "listed", "--expect", str(right))
    assert (made["state"], made["file_count"]) == ("succeeded", len(sums(folder)))
    (expected,) = live.data("artifact", "show", made["set_digest"])["expectations"]
    assert expected["sha256"] == hashlib.sha256(right.read_bytes()).hexdigest()
    assert "every file is equal" in live.run("artifact", "show", made["set_digest"]).out
    wrong = tmp_path / "WRONG"
    wrong.write_text(right.read_text().replace(sums(folder)["NOTES.md"], "0" * 64))
    error = failed(
        live.run("artifact", "scan", "listed", "--expect", str(wrong), "--json"), "EXPECTED_MANIFEST_MISMATCH", 4
    )
    assert "NOTES.md" in error["message"] + json.dumps(error["context"])


def test_a_scan_is_held_against_a_signature(live: Live, tmp_path: Path) -> None:
    """With the real library, a key of our own and the folder as the signer had it."""
    signing = pytest.importorskip("model_signing.signing")
    folder = live.copy("signed")
    private, public = keys(tmp_path)
    signature = tmp_path / "model.sig"
    signing.Config().use_elliptic_key_signer(private_key=private).sign(folder, signature)
    options = ("--expect-signature", str(signature), "--public-key", str(public))
    # The signer's library leaves git's own files out: nobody vouches for them.
    error = failed(live.run("artifact", "scan", "signed", *options, "--json"), "EXPECTED_MANIFEST_MISMATCH", 4)
    assert ".gitattributes" in error["message"]
    assert "must not be there" in error["hint"]
    (folder / ".gitattributes").unlink()
    made = live.data("artifact", "scan", "signed", *options)
    (expected,) = live.data("artifact", "show", made["set_digest"])["expectations"]
    assert expected["kind"] == "openssf_signature"
    assert expected["key"]
    (folder / "NOTES.md").write_text("another\n")
    failed(live.run("artifact", "scan", "signed", *options, "--json"), "EXPECTED_MANIFEST_MISMATCH", 4)
    _, stranger = keys(tmp_path)
    options = ("--expect-signature", str(signature), "--public-key", str(stranger))
    failed(live.run("artifact", "scan", "signed", *options, "--json"), "SIGNATURE_INVALID", 4)


def keys(folder: Path) -> tuple[Path, Path]:
    """A fresh key pair as files."""
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    key = ec.generate_private_key(ec.SECP256R1())
    encoding = serialization.Encoding.PEM
    private, public = folder / f"{id(key)}.key", folder / f"{id(key)}.pub"
    secret = serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(encoding, secret, serialization.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.mark.req("A4")
def test_a_quarantined_file_blocks_until_its_set_is_approved_for_it(live: Live) -> None:
    live.copy("held")
    digest = live.scan("held")
    before = live.assess(digest)
    assert before.code == 0
    held = live.run("artifact", "quarantine", digest, "--file", "NOTES.md", "--reason", "who wrote this?")
    assert held.code == 0, held.err
    assert "--purpose quarantine_release" in held.err
    assert "who wrote this?" in live.run("artifact", "show", digest).out
    stale = live.run("assess", "list", "--stale")
    assert before.data["id"] in stale.out
    assert "quarantine" in stale.out
    assert f"modelforge assess {digest[7:19]} --profile cpu-small@1 --node local" in stale.err
    blocked = live.assess(digest)
    assert blocked.code == 4
    assert "MEMBER_QUARANTINED" in {one["code"] for one in blocked.data["findings"]}
    release = ("approve", "add", digest, "--purpose", "quarantine_release", "--reason", "we did")
    approval = live.data(*release)
    assert live.assess(digest).code == 0
    revoked = live.run("approve", "revoke", approval["id"], "--reason", "we did not")
    assert revoked.code == 0, revoked.err
    assert "block every assessment" in revoked.err
    assert live.assess(digest).code == 4
    listed = live.run("approve", "list", "--set", digest[7:19])
    user = live.up.ready["user"]
    assert f"by {user}: we did" in listed.out
    assert f"by {user}: we did not" in listed.out
    failed(live.run("artifact", "quarantine", digest, "--file", "nothing", "--reason", "r", "--json"), "UNKNOWN_ID", 5)


def test_a_large_set_is_shown_page_by_page(live: Live) -> None:
    folder = live.models / "many"
    folder.mkdir()
    for number in range(FILES_MANY):
        (folder / f"file-{number:06d}-{'x' * 60}.txt").write_text(str(number))
    digest = live.scan("many")
    files = live.data("artifact", "show", digest)["manifest"]["files"]
    assert len(files) == FILES_MANY
    shown = live.run("artifact", "show", digest)
    assert f"and {FILES_MANY - 40} more files" in shown.out
    assert len(shown.out.splitlines()) < 120
    assert live.run("artifact", "show", digest, "--files").out.count("file-") >= FILES_MANY


def test_a_profile_goes_out_and_in_again_and_has_versions(live: Live, tmp_path: Path) -> None:
    first = live.data("profile", "create", "turned", "--memory-margin-mib", "100")
    assert first["version"] == 1
    error = failed(
        live.run("profile", "create", "turned", "--memory-margin-mib", "99", "--json"), "PROFILE_CONFLICT", 4
    )
    assert "--new-version" in error["hint"]
    second = live.data("profile", "create", "turned", "--memory-margin-mib", "99", "--new-version")
    assert second["version"] == 2
    assert live.data("profile", "show", "turned@1")["id"] == first["id"]
    assert live.data("profile", "show", "turned")["id"] == second["id"]
    assert "turned@2" in live.run("profile", "list").out
    written = live.run("profile", "show", "turned@1", "--toml").out
    file = tmp_path / "p.toml"
    file.write_text(written)
    assert live.run("profile", "validate", str(file)).code == 0
    assert live.data("profile", "create", "--file", str(file))["id"] == first["id"]


def test_the_environment_is_shown_and_its_file_is_accepted(live: Live, tmp_path: Path) -> None:
    (one,) = live.data("environment", "list")
    assert one["nodes"] == ["local"]
    assert live.data("environment", "show", "local")["id"] == one["id"]
    assert live.data("environment", "show", one["id"][7:19])["id"] == one["id"]
    card = live.run("environment", "show", "local").out
    assert "sentence_transformers" in card
    assert "(declared, not proven)" in card
    file = tmp_path / "environment.toml"
    file.write_text(live.run("environment", "show", "local", "--toml").out)
    assert "sentence_transformers" in tomllib.loads(file.read_text())["adapters"]
    assert live.run("environment", "validate", str(file)).code == 0
    failed(live.run("environment", "show", "nowhere", "--json"), "UNKNOWN_ID", 5)


def test_hostile_names_reach_no_screen_as_they_are(live: Live) -> None:
    folder = live.copy("hostile")
    name = "evil\x1b[2J\x1b]0;owned\x07\u202etxt.py"
    (folder / name).write_text("print(1)\n")
    (folder / "innocent.safetensors").write_bytes(b"\x80\x04cos\nsystem\nX\x02\x00\x00\x00id\x85R.")
    result = live.run("artifact", "scan", "hostile")
    outputs = [result]
    if result.code == 0:
        digest = live.scan("hostile")
        outputs += [
            live.run("artifact", "show", digest),
            live.run("artifact", "list"),
            live.run("artifact", "show", digest, "--files"),
        ]
        assessed = live.run("assess", digest, "--profile", "cpu-small", "--node", "local")
        assert assessed.code == 4, assessed.out
        outputs.append(assessed)
    for one in outputs:
        assert not set("\x1b\x07\u202e") & set(one.out + one.err)


def test_a_terminal_gets_colour_and_who_declines_it_does_not(live: Live) -> None:
    digest = live.scan("minilm")

    def on_terminal(**variables: str) -> str:
        leader, follower = pty.openpty()
        environment = {**clean_environment(live.state), "TERM": "xterm", **variables}
        process = subprocess.Popen(
            [*COMMAND, "assess", digest, "--profile", "cpu-small", "--node", "local"],
            stdin=follower, stdout=follower, stderr=follower, env=environment,
        )  # fmt: skip
        os.close(follower)
        output = b""
        while True:
            try:
                piece = os.read(leader, 65_536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            output += piece
        os.close(leader)
        assert process.wait(30) == 0
        return output.decode()

    coloured = on_terminal()
    assert "\x1b[" in coloured.splitlines()[0]
    assert "COMPATIBLE" in coloured.splitlines()[0]
    assert "\x1b" not in on_terminal(NO_COLOR="1")


def test_checking_a_file_needs_no_stack(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('name = "p"\nthreads = 0\n')
    result = modelforge(tmp_path / "state", "profile", "validate", str(file))
    assert result.code == 2
    assert "threads: 0 is not a whole number from 1" in result.out
    assert not (tmp_path / "state").exists()


def test_a_place_is_chosen_and_what_cannot_be_probed_is_refused(live: Live) -> None:
    shutil.copytree(live.models / "minilm", live.models / "twin")
    digest = live.scan("minilm")
    assert live.scan("twin") == digest
    chosen = live.run("assess", digest, "--profile", "cpu-small", "--node", "local", "--path", "twin")
    assert f"set         {digest[7:19]} at local:twin, profile cpu-small@1" in chosen.out.splitlines()
    wrong = live.run("assess", digest, "--profile", "cpu-small", "--node", "local", "--path", "nowhere")
    assert (wrong.code, wrong.out) == (5, "")
    live.data("profile", "create", "runner", "--from", "cpu-small", "--adapter", "custom")
    made = live.run("assess", digest, "--profile", "runner", "--node", "local")
    assert made.out.splitlines()[0] == "REQUIRES PROBE: only a probe can tell, and this version cannot run one"
    assert "next:" not in made.err
    newest = live.data("assess", "list", "--limit", "1")[0]["id"]
    refused = live.run("probe", "queue", newest)
    assert (refused.code, "RUNTIME_INCOMPATIBLE" in refused.err) == (4, True)
    assert live.run("profile", "create", "x", "--adapter", "nonsense").code == 2
