"""Widgets that draw prepared lines; none of them decides anything."""
