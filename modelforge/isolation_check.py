"""Try the child's kernel barrier in this process and print each layer as JSON; started by `modelforge doctor`.

It is the very code that a probe's child runs, so the answer is what a probe would get. It needs a process of its own:
neither a namespace nor a seccomp filter can be left again.
"""

from __future__ import annotations

import sys

import msgspec

from adapters.child.barrier import enter_network_namespace, install_filter


def main() -> int:
    """Print a JSON array of layers."""
    layers = (enter_network_namespace(), *install_filter(processes=True))
    sys.stdout.buffer.write(msgspec.json.encode(layers))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
