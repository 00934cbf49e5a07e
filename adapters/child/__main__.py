"""Entry of a child or a template: `python -P -m adapters.child (--channel|--control) DESCRIPTOR OPTIONS`.

Started by the agent only; the options are JSON. No library is imported here, and `os._exit` ends the process: a
native library's own clean-up at exit can hang or crash after all the work is done.
"""

from __future__ import annotations

import os
import sys

from adapters.child import serve, template
from adapters.child.channel import Channel
from adapters.child.template_protocol import ChildOptions, TemplateOptions
from bus.codec import decode


def main(arguments: list[str]) -> int:
    """Run what the arguments ask for; returns the exit code."""
    kind, descriptor, options = arguments
    if kind == "--control":
        return template.serve_forks(int(descriptor), decode(options.encode(), TemplateOptions))
    return serve.serve(Channel(int(descriptor)), decode(options.encode(), ChildOptions))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
