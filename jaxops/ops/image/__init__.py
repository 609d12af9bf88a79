"""Operators of the standard's family `image`."""
