"""Operators of the standard's family `sequence`."""
