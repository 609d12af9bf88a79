"""Operators of the standard's family `controlflow`."""
