"""Measurements on the node, taken by the agent's own process."""
