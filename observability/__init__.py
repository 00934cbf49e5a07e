"""Counters, their persistence and the Prometheus endpoint: derived, never a truth."""
