"""The front door: the `modelforge` command, the embedded server, `up` and `demo`. Wires rooms, decides nothing."""
