"""Operators of the standard's family `nn`."""

from jaxops.ops.nn import (
    convolution,
    deformable_convolution,
    dot_product_attention,
    flattening,
    ngrams,
    normalization,
    pooling,
    quantized_convolution,
    region_pooling,
    regularization,
    rotary,
    sequence_states,
    shrinkage,
    unpooling,
)
from jaxops.ops.nn.convolution import *
from jaxops.ops.nn.deformable_convolution import *
from jaxops.ops.nn.dot_product_attention import *
from jaxops.ops.nn.flattening import *
from jaxops.ops.nn.ngrams import *
from jaxops.ops.nn.normalization import *
from jaxops.ops.nn.pooling import *
from jaxops.ops.nn.quantized_convolution import *
from jaxops.ops.nn.region_pooling import *
from jaxops.ops.nn.regularization import *
from jaxops.ops.nn.rotary import *
from jaxops.ops.nn.sequence_states import *
from jaxops.ops.nn.shrinkage import *
from jaxops.ops.nn.unpooling import *

__all__: list[str] = []
__all__ += convolution.__all__
__all__ += deformable_convolution.__all__
__all__ += dot_product_attention.__all__
__all__ += flattening.__all__
__all__ += ngrams.__all__
__all__ += normalization.__all__
__all__ += pooling.__all__
__all__ += quantized_convolution.__all__
__all__ += region_pooling.__all__
__all__ += regularization.__all__
__all__ += rotary.__all__
__all__ += sequence_states.__all__
__all__ += shrinkage.__all__
__all__ += unpooling.__all__
