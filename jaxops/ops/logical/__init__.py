"""Operators of the standard's family `logical`."""
