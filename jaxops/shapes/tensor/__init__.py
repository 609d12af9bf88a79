"""Sizes of the operators of family `tensor`."""
