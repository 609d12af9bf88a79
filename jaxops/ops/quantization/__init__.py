"""Operators of the standard's family `quantization`."""
