"""Operators on integers that stand for floats, and on packed weights."""

from jaxops.ops.microsoft.quantized import (
    blocks,
    convolution,
    elementwise,
    layers,
    linear_quantization,
    packed_weights,
    pooling,
    products,
)
from jaxops.ops.microsoft.quantized.blocks import *
from jaxops.ops.microsoft.quantized.convolution import *
from jaxops.ops.microsoft.quantized.elementwise import *
from jaxops.ops.microsoft.quantized.layers import *
from jaxops.ops.microsoft.quantized.linear_quantization import *
from jaxops.ops.microsoft.quantized.packed_weights import *
from jaxops.ops.microsoft.quantized.pooling import *
from jaxops.ops.microsoft.quantized.products import *

__all__: list[str] = []
__all__ += blocks.__all__
__all__ += convolution.__all__
__all__ += elementwise.__all__
__all__ += layers.__all__
__all__ += linear_quantization.__all__
__all__ += packed_weights.__all__
__all__ += pooling.__all__
__all__ += products.__all__
