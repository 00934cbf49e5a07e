"""Benchmarks: each row beside its baseline in the same run, as a ratio."""
