"""Sizes of the operators of family `math`."""
