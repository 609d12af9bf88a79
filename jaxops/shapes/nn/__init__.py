"""Sizes of the operators of family `nn`."""
