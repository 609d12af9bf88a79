"""Sizes of the operators of the family `object_detection`."""
