"""The gates: each step from bytes to candidate, persisted separately (spec G1)."""
