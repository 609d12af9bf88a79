"""Operators of the standard's family `math`."""
