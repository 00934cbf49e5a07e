"""Entry of a scan: `python -P -m node_agent.scan_child DESCRIPTOR OPTIONS`; started by the agent only."""

from __future__ import annotations

import os
import sys

from adapters.child.channel import Channel
from bus.codec import decode
from node_agent.scan_child.protocol import ScanOptions
from node_agent.scan_child.serve import serve


def main(arguments: list[str]) -> int:
    """Run the scan that the arguments name; returns the exit code."""
    descriptor, options = arguments
    return serve(Channel(int(descriptor)), decode(options.encode(), ScanOptions))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that still read a dead file system are waited for by nobody
