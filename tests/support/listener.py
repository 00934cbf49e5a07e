"""A listener on the loopback that counts who came: the witness that nothing left a child."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Listener:
    """Listens on `port`; connections are accepted when they are counted."""

    _socket: socket.socket = field(repr=False)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def visitors(self) -> int:
        """How many connections came since the last call."""
        count = 0
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return count
            connection.close()
            count += 1

    def visit(self) -> None:
        """Come oneself: proves that the listener would have seen a visitor."""
        socket.create_connection(("127.0.0.1", self.port), timeout=5).close()


@contextlib.contextmanager
def listening() -> Iterator[Listener]:
    """A listener for the length of the block, proved to work."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        server.setblocking(False)
        listener = Listener(server)
        listener.visit()
        assert listener.visitors() == 1
        yield listener
