"""Operators of the standard's family `nn`."""
