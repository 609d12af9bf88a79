"""Operators of the standard's family `generator`."""
