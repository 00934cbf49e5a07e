"""An OpenSSF model signature, checked at the operator's side and reduced to the list of files that was signed (spec G4).

The library's own check hashes the model, which lies on another machine. Here it checks the signature alone: where it
compares the signed manifest with the one it would have hashed, it meets an object that takes the signed one down. The
scan on the node hashes, and the controller compares.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from adapters.formats.documents import DocumentProblem, parse_json
from adapters.formats.sha256sums import MAX_LINES, SumsProblem, normal_path
from bus.errors import ErrorCode, ModelForgeError
from modelforge.expectation import Expected, read_source
from modelforge.extras import install_hint

MAX_SIGNATURE_BYTES: Final = 32 * 1024 * 1024
MAX_KEY_BYTES: Final = 64 * 1024
_SHA256: Final = "sha256"
_SERIALIZATION: Final = "cryptography.hazmat.primitives.serialization"
_KEYED: Final = "publicKey"
_OTHERS: Final = ("certificate", "x509CertificateChain")


def read_signature(path: Path, public_key: Path) -> Expected:
    """The files that the signature in `path` names, when it was made with the private half of `public_key`.

    Only signatures by key are checked. One by certificate or by a sigstore identity is refused: checking it asks who
    may vouch for the certificate, and for an identity a server on the internet.

    Raises:
        ModelForgeError: DEPENDENCY_MISSING; INVALID_ARGUMENT when a file cannot be read; SIGNATURE_INVALID when it is
            not this key's, is of another kind, or signs other digests than the SHA-256 of whole files.
    """
    verifying, serialization = _library("model_signing.verifying"), _library(_SERIALIZATION)
    signature, key = read_source(path, MAX_SIGNATURE_BYTES), read_source(public_key, MAX_KEY_BYTES)
    _require_key_material(path, signature)
    fingerprint = _fingerprint(serialization, public_key, key)
    taken = _verified(verifying, path, signature, key)
    return Expected(
        kind="openssf_signature",
        entries=_entries(path, taken.manifest),
        source_sha256=sha256(signature).hexdigest(),
        key=fingerprint,
        ignored=tuple(sorted(taken.ignored)),
    )


class _Taken:
    """Stands where the library would hash the model, and where it would compare: it takes down what was signed."""

    def __init__(self) -> None:
        self.manifest: Any = None
        self.ignored: set[str] = set()

    def add_ignored_paths(self, *, paths: Any, **_where: object) -> None:
        """What the signer left out."""
        self.ignored.update(str(path) for path in paths)

    def hash(self, *_model: object, **_how: object) -> _Taken:
        """The manifest of the model at the operator's side: there is none, so this object stands for it."""
        return self

    def __ne__(self, other: object) -> bool:
        """Where the two manifests are compared: this one is the signed one."""
        self.manifest = other
        return False

    def __eq__(self, other: object) -> bool:
        """The same comparison, asked the other way round."""
        return not self != other

    def __hash__(self) -> int:
        """By identity; it is only ever compared."""
        return id(self)


def _require_key_material(path: Path, signature: bytes) -> None:
    try:
        bundle = parse_json(signature, max_bytes=MAX_SIGNATURE_BYTES)
    except DocumentProblem as problem:
        raise _invalid(path, f"it is no signature bundle: {problem}") from problem
    material = bundle.get("verificationMaterial") if isinstance(bundle, dict) else None
    if not isinstance(material, dict):
        raise _invalid(path, "it is no signature bundle: it does not say what it is checked with")
    for other in _OTHERS:
        if other in material:
            raise _invalid(
                path, "it was made with a certificate or a sigstore identity; only signatures by key are checked"
            )
    if _KEYED not in material:
        raise _invalid(path, "it does not say that it was made with a key")


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"checking a model signature needs the extra `signing`: {error.name or name} is missing"
        raise ModelForgeError(ErrorCode.DEPENDENCY_MISSING, message, hint=install_hint("signing")) from error


def _verified(verifying: Any, path: Path, signature: bytes, key: bytes) -> _Taken:
    """Check the very bytes that were read, whatever happens to the named files meanwhile."""
    taken = _Taken()
    with tempfile.TemporaryDirectory(prefix="modelforge-signature-") as folder:
        signature_copy, key_copy = Path(folder, "signature"), Path(folder, "key")
        signature_copy.write_bytes(signature)
        key_copy.write_bytes(key)
        try:
            # It prints a warning about old bundles, which would break into the output of a command.
            with contextlib.redirect_stdout(io.StringIO()):
                config = verifying.Config().use_elliptic_key_verifier(public_key=key_copy)
                config.set_hashing_config(taken).verify(Path(folder), signature_copy)
        except Exception as error:
            # cryptography, pydantic and the library itself each raise their own kinds for a file that is not right.
            raise _invalid(path, f"it is not a signature by this key ({type(error).__name__})") from error
    if taken.manifest is None:
        raise _invalid(path, "the library did not say what was signed")
    return taken


def _entries(path: Path, manifest: Any) -> dict[str, str]:
    method = manifest.serialization_type.get("method")
    if method != "files":
        raise _invalid(path, f"it signs {method or 'something'} instead of whole files")
    entries: dict[str, str] = {}
    for resource in manifest.resource_descriptors():
        algorithm = resource.digest.algorithm
        if algorithm != _SHA256:
            raise _invalid(path, f"it signs digests of the kind {algorithm}; a set has SHA-256")
        if len(resource.digest.digest_value) != sha256().digest_size:
            raise _invalid(path, "it signs a digest that is no SHA-256")
        try:
            entries[normal_path(str(resource.identifier))] = resource.digest.digest_hex
        except SumsProblem as problem:
            raise _invalid(path, f"it signs a file that no set can have: {problem}") from problem
    if not 0 < len(entries) <= MAX_LINES:
        raise _invalid(path, f"it signs {len(entries)} files; 1 to {MAX_LINES} can be compared")
    return dict(sorted(entries.items()))


def _fingerprint(serialization: Any, path: Path, key: bytes) -> str:
    """`sha256:` and the digest of the key itself, however the file writes it down."""
    try:
        loaded = serialization.load_pem_public_key(key)
        plain: bytes = loaded.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    except Exception as error:
        # cryptography raises ValueError, TypeError or a kind of its own, depending on what the file is instead.
        message = f"{path} does not hold a public key in PEM form"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, file=str(path)) from error
    return f"{_SHA256}:{sha256(plain).hexdigest()}"


def _invalid(path: Path, reason: str) -> ModelForgeError:
    return ModelForgeError(ErrorCode.SIGNATURE_INVALID, f"{path}: {reason}", file=str(path))
