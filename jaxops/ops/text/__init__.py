"""Operators of the standard's family `text`."""
