"""Operators of the standard's family `object_detection`."""
