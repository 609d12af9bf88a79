"""Sizes of the operators of family `ml`."""
