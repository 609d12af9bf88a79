"""Operators on integers that stand for floats, and on packed weights."""

from jaxops.ops.microsoft.quantized import (
    block_quantization,
    convolution,
    linear_quantization,
    lstm_and_embeddings,
    packed_weights,
    pooling,
    products,
    rescaled_elementwise,
)
from jaxops.ops.microsoft.quantized.block_quantization import *
from jaxops.ops.microsoft.quantized.convolution import *
from jaxops.ops.microsoft.quantized.linear_quantization import *
from jaxops.ops.microsoft.quantized.lstm_and_embeddings import *
from jaxops.ops.microsoft.quantized.packed_weights import *
from jaxops.ops.microsoft.quantized.pooling import *
from jaxops.ops.microsoft.quantized.products import *
from jaxops.ops.microsoft.quantized.rescaled_elementwise import *

__all__: list[str] = []
__all__ += block_quantization.__all__
__all__ += convolution.__all__
__all__ += rescaled_elementwise.__all__
__all__ += lstm_and_embeddings.__all__
__all__ += linear_quantization.__all__
__all__ += packed_weights.__all__
__all__ += pooling.__all__
__all__ += products.__all__
