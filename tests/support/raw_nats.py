"""A stranger who speaks NATS by hand: bytes that no client library would send."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from urllib.parse import urlparse

import nkeys


def pub(subject: bytes, payload: bytes = b"x", reply: bytes = b"") -> bytes:
    """One PUB command."""
    head = b" ".join(filter(None, (b"PUB", subject, reply, str(len(payload)).encode())))
    return head + b"\r\n" + payload + b"\r\n"


def hpub(subject: bytes, headers: bytes, payload: bytes = b"x", reply: bytes = b"") -> bytes:
    """One HPUB command with this very header block."""
    sizes = (str(len(headers)).encode(), str(len(headers) + len(payload)).encode())
    head = b" ".join(filter(None, (b"HPUB", subject, reply, *sizes)))
    return head + b"\r\n" + headers + payload + b"\r\n"


async def send(url: str, credentials: Path, commands: bytes) -> bytes:
    """Connect with this key, send the commands, and return what the server said until it had taken them all."""
    address = urlparse(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        info = json.loads((await reader.readline()).removeprefix(b"INFO "))
        seed = await asyncio.to_thread(credentials.read_bytes)
        pair = nkeys.from_seed(bytearray(seed.strip()))
        options = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "nkey": pair.public_key.decode(),
            "sig": base64.b64encode(pair.sign(info["nonce"].encode())).decode(),
        }
        writer.write(b"CONNECT " + json.dumps(options).encode() + b"\r\n" + commands + b"PING\r\n")
        await writer.drain()
        said = b""
        async with asyncio.timeout(5):
            while b"PONG" not in said and b"-ERR" not in said and (chunk := await reader.read(4096)):
                said += chunk
        return said
    finally:
        writer.close()
        await writer.wait_closed()
