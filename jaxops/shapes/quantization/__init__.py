"""Sizes of the operators of family `quantization`."""
