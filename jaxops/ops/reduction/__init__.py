"""Operators of the standard's family `reduction`."""
