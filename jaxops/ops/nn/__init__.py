"""Operators of the standard's family `nn`."""

from jaxops.ops.nn import (
    convolution,
    flattening,
    normalization,
    pooling,
    quantized_convolution,
    regularization,
    shrinkage,
    unpooling,
)
from jaxops.ops.nn.convolution import *
from jaxops.ops.nn.flattening import *
from jaxops.ops.nn.normalization import *
from jaxops.ops.nn.pooling import *
from jaxops.ops.nn.quantized_convolution import *
from jaxops.ops.nn.regularization import *
from jaxops.ops.nn.shrinkage import *
from jaxops.ops.nn.unpooling import *

__all__: list[str] = []
__all__ += convolution.__all__
__all__ += flattening.__all__
__all__ += normalization.__all__
__all__ += pooling.__all__
__all__ += quantized_convolution.__all__
__all__ += regularization.__all__
__all__ += shrinkage.__all__
__all__ += unpooling.__all__
