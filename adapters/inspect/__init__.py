"""Static inspection: pure functions of what is known about a set, a profile and a node. Nothing is ever loaded."""
