"""A model signature is checked by its key, with the library that made it, and gives the list that was signed."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from model_signing import hashing, signing, verifying

from bus.errors import ErrorCode, ModelForgeError
from modelforge.signature import read_signature

FILES = {"config.json": b"{}", "sub/with blank.bin": b"weights", "back\\slash": b"odd"}


@dataclass(frozen=True, slots=True)
class Signer:
    """A key pair in files."""

    private: Path
    public: Path


def key_pair(folder: Path, name: str, curve: ec.EllipticCurve | None = None) -> Signer:
    key = ec.generate_private_key(curve or ec.SECP256R1())
    pair = Signer(folder / f"{name}.key", folder / f"{name}.pub")
    pair.private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    pair.public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return pair


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return key_pair(tmp_path, "signer")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def signed(model: Path, signer: Signer, config: Any = None) -> Path:
    path = model.parent / "model.sig"
    signing_config = signing.Config().use_elliptic_key_signer(private_key=signer.private)
    if config is not None:
        signing_config.set_hashing_config(config)
    signing_config.sign(model, path)
    return path


def resigned(path: Path, signer: Signer, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the statement and sign it again with the same key, as a signer who means harm could."""
    bundle = json.loads(path.read_text())
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    change(statement)
    digests = b"".join(bytes.fromhex(row["digest"]) for row in statement["predicate"]["resources"])
    statement["subject"][0]["digest"]["sha256"] = sha256(digests).hexdigest()
    payload, kind = json.dumps(statement).encode(), bundle["dsseEnvelope"]["payloadType"]
    message = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    key: Any = serialization.load_pem_private_key(signer.private.read_bytes(), None)
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    raw = key.sign(message, ec.ECDSA(hashes.SHA256()))
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(raw).decode()
    path.write_text(json.dumps(bundle))


def refusal(path: Path, public_key: Path) -> ModelForgeError:
    with pytest.raises(ModelForgeError) as caught:
        read_signature(path, public_key)
    return caught.value


@pytest.mark.req("A3")
@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_a_signature_gives_the_list_that_was_signed(tmp_path: Path, model: Path, curve: ec.EllipticCurve) -> None:
    signer = key_pair(tmp_path, "own", curve)
    path = signed(model, signer)

    expected = read_signature(path, signer.public)

    assert expected.entries == {name: sha256(content).hexdigest() for name, content in sorted(FILES.items())}
    assert expected.kind == "openssf_signature"
    assert expected.source_sha256 == sha256(path.read_bytes()).hexdigest()
    assert expected.blob.count(b"\n") == len(FILES)


def test_the_key_is_named_by_itself_and_not_by_its_file(model: Path, signer: Signer) -> None:
    path = signed(model, signer)
    plain = serialization.load_pem_public_key(signer.public.read_bytes()).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    named = f"sha256:{sha256(plain).hexdigest()}"

    assert read_signature(path, signer.public).key == named
    signer.public.write_bytes(signer.public.read_bytes().replace(b"\n", b"\r\n"))
    assert read_signature(path, signer.public).key == named


def test_nothing_of_the_model_is_read(model: Path, signer: Signer) -> None:
    """The model lies on another machine; what the library would have hashed is not there."""
    path = signed(model, signer)
    for name in FILES:
        (model / name).unlink()

    assert set(read_signature(path, signer.public).entries) == set(FILES)


def test_what_the_signer_left_out_is_reported(model: Path, signer: Signer) -> None:
    (model / "notes.txt").write_text("not signed")
    config = hashing.Config().set_ignored_paths(paths=[model / "notes.txt"])

    expected = read_signature(signed(model, signer, config), signer.public)

    assert set(expected.entries) == set(FILES)
    assert "notes.txt" in expected.ignored


def test_another_key_is_refused(tmp_path: Path, model: Path, signer: Signer) -> None:
    path, stranger = signed(model, signer), key_pair(tmp_path, "stranger")

    error = refusal(path, stranger.public)

    assert error.code is ErrorCode.SIGNATURE_INVALID
    assert "not a signature by this key" in error.message
    assert error.context == {"file": str(path)}


def test_a_key_of_which_only_the_hint_is_right_is_refused(tmp_path: Path, model: Path, signer: Signer) -> None:
    """The hint is not signed; the signature decides."""
    path, stranger = signed(model, signer), key_pair(tmp_path, "stranger")
    own = json.loads(signed(model, stranger).read_text())["verificationMaterial"]
    bundle = json.loads(signed(model, signer).read_text())
    path.write_text(json.dumps({**bundle, "verificationMaterial": own}))

    assert refusal(path, stranger.public).message.endswith("(InvalidSignature)")


def test_a_changed_statement_is_refused(model: Path, signer: Signer) -> None:
    path = signed(model, signer)
    bundle = json.loads(path.read_text())
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"]).replace(b"config.json", b"konfig.json")
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    path.write_text(json.dumps(bundle))

    assert refusal(path, signer.public).code is ErrorCode.SIGNATURE_INVALID


@pytest.mark.parametrize("algorithm", ["blake2", "blake3"])
def test_other_digests_than_sha256_are_refused(model: Path, signer: Signer, algorithm: Any) -> None:
    path = signed(model, signer, hashing.Config().use_file_serialization(hashing_algorithm=algorithm))

    error = refusal(path, signer.public)

    assert error.code is ErrorCode.SIGNATURE_INVALID
    assert "a set has SHA-256" in error.message


def test_digests_of_parts_of_files_are_refused(model: Path, signer: Signer) -> None:
    path = signed(model, signer, hashing.Config().use_shard_serialization(shard_size=2))

    error = refusal(path, signer.public)

    assert error.code is ErrorCode.SIGNATURE_INVALID
    assert "it signs shards instead of whole files" in error.message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda statement: statement["predicate"]["resources"][0].update(name="../outside"), "no set can have"),
        (lambda statement: statement["predicate"]["resources"][0].update(name="/etc/passwd"), "no set can have"),
        (lambda statement: statement["predicate"]["resources"][0].update(digest="abcd"), "no SHA-256"),
        (lambda statement: statement["predicate"].update(resources=[]), "it signs 0 files"),
        (lambda statement: statement.update(predicateType="something else"), "not a signature by this key"),
        (lambda statement: statement["predicate"].pop("serialization"), "not a signature by this key"),
    ],
)
def test_a_statement_that_is_signed_and_makes_no_sense_is_refused(
    model: Path, signer: Signer, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    path = signed(model, signer)
    resigned(path, signer, change)

    error = refusal(path, signer.public)

    assert error.code is ErrorCode.SIGNATURE_INVALID
    assert reason in error.message


def test_a_statement_that_is_signed_again_unchanged_is_accepted(model: Path, signer: Signer) -> None:
    """So the refusals above come from what was changed."""
    path = signed(model, signer)
    resigned(path, signer, lambda _statement: None)

    assert set(read_signature(path, signer.public).entries) == set(FILES)


@pytest.mark.parametrize("material", ["certificate", "x509CertificateChain"])
def test_certificates_and_identities_are_refused_with_the_reason(model: Path, signer: Signer, material: str) -> None:
    path = signed(model, signer)
    bundle = json.loads(path.read_text())
    bundle["verificationMaterial"] = {material: {}}
    path.write_text(json.dumps(bundle))

    error = refusal(path, signer.public)

    assert error.code is ErrorCode.SIGNATURE_INVALID
    assert "only signatures by key are checked" in error.message


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"verificationMaterial": {}}', b"[" * 10_000])
def test_what_is_no_signature_is_refused(tmp_path: Path, signer: Signer, content: bytes) -> None:
    path = tmp_path / "model.sig"
    path.write_bytes(content)

    assert refusal(path, signer.public).code is ErrorCode.SIGNATURE_INVALID


def test_what_is_no_key_is_refused(model: Path, signer: Signer) -> None:
    error = refusal(signed(model, signer), signer.private)

    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert error.message == f"{signer.private} does not hold a public key in PEM form"


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, model: Path, signer: Signer) -> None:
    path, fifo = signed(model, signer), tmp_path / "fifo"
    os.mkfifo(fifo)

    assert refusal(fifo, signer.public).code is ErrorCode.INVALID_ARGUMENT
    assert refusal(path, tmp_path / "absent").code is ErrorCode.INVALID_ARGUMENT


def test_nothing_is_printed(model: Path, signer: Signer, capsys: pytest.CaptureFixture[str]) -> None:
    """The library warns of old bundles on standard output, which belongs to the command that asked."""
    path = signed(model, signer)
    bundle = json.loads(path.read_text())
    del bundle["verificationMaterial"]["publicKey"]["hint"]
    path.write_text(json.dumps(bundle))

    assert set(read_signature(path, signer.public).entries) == set(FILES)
    assert capsys.readouterr().out == ""


def test_a_library_that_compares_nothing_gives_no_list(
    model: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is taken where the library compares; another version might do it elsewhere."""
    path = signed(model, signer)
    monkeypatch.setattr(verifying.Config, "verify", lambda *_arguments: None)

    assert "did not say what was signed" in refusal(path, signer.public).message


@pytest.mark.parametrize("missing", ["model_signing", "OpenSSL"])
def test_an_absent_library_is_named_with_what_to_type(
    model: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    path = signed(model, signer)
    for name in list(sys.modules):
        if name.split(".", maxsplit=1)[0] in {"model_signing", missing}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)

    error = refusal(path, signer.public)

    assert error.code is ErrorCode.DEPENDENCY_MISSING
    assert ".[signing]" in error.hint
