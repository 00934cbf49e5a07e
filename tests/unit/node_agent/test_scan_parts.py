"""What of a scan's report goes ahead as a blob, and what processor time a scan gets."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from bus.codec import encode
from bus.messages.blobs import MAX_INLINE_BYTES
from bus.messages.evidence import ScanFinished
from node_agent.reporter import MAX_EVIDENCE_BYTES
from node_agent.scan_child.budget import SLOWEST_BYTES_PER_S, hashing_s, headers_s
from node_agent.scan_run import too_large_to_inline


def text(size_bytes: int, what: str = "a") -> bytes:
    return (what * size_bytes)[:size_bytes].encode()


@pytest.mark.parametrize(
    ("manifest", "evidence", "ahead"),
    [
        (text(100), text(100), []),
        (text(MAX_INLINE_BYTES + 1), text(100), ["manifest"]),
        (text(100), text(MAX_INLINE_BYTES + 1), ["evidence"]),
        (text(MAX_INLINE_BYTES + 1), text(MAX_INLINE_BYTES + 1), ["manifest", "evidence"]),
        # Each is small enough for itself; together they are not, and the larger one goes.
        (text(MAX_INLINE_BYTES - 3_000), text(MAX_INLINE_BYTES - 2), ["evidence"]),
        # Every quote is two bytes of the message.
        (text(MAX_INLINE_BYTES // 2, '"'), text(100), ["manifest"]),
    ],
)
def test_what_does_not_fit_a_message_goes_ahead(manifest: bytes, evidence: bytes, ahead: list[str]) -> None:
    assert too_large_to_inline({"manifest": manifest, "evidence": evidence}) == ahead


def test_what_stays_always_fits_the_message() -> None:
    choose = random.Random(7)  # noqa: S311 -- a fixed choice of sizes, no secret
    for _ in range(50):
        parts = {
            name: text(choose.randrange(MAX_INLINE_BYTES + 10), choose.choice(['"', "a", '{"a":1}', "\u00e9"]))
            for name in ("manifest", "evidence")
        }
        parts = {name: data.decode(errors="ignore").encode() for name, data in parts.items()}
        ahead = too_large_to_inline(parts)
        message = ScanFinished(
            node="n" * 128,
            boot_id="b" * 128,
            job_id="j" * 128,
            lease_id="l" * 128,
            attempt=1,
            sequence=1,
            at=datetime.now(UTC),
            outcome="succeeded",
            **{f"{name}_json": data.decode() for name, data in parts.items() if name not in ahead},  # type: ignore[arg-type]  # texts, by name
        )
        assert len(encode(message)) <= MAX_EVIDENCE_BYTES


def test_the_time_to_hash_grows_with_the_bytes_and_the_time_to_read_headers_does_not() -> None:
    terabyte = 2**40
    assert hashing_s(1, terabyte) >= terabyte / SLOWEST_BYTES_PER_S
    assert hashing_s(1, 0) < 60
    assert headers_s(1) <= 121
    assert headers_s(10_000) < 600
