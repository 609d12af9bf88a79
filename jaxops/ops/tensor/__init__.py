"""Operators of the standard's family `tensor`."""
