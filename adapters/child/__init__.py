"""The child process that owns a model library: protocol, guard, template, and the loop that serves a probe."""
