"""One node: processes and measurements, never a truth."""
