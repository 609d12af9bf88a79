"""Operators of the standard's family `quantization`."""

from jaxops.ops.quantization import linear_quantization
from jaxops.ops.quantization.linear_quantization import *

__all__: list[str] = []
__all__ += linear_quantization.__all__
