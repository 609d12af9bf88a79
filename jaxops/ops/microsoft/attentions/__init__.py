"""Attention, in the many forms that language models and encoders call it, with caches and without."""

from jaxops.ops.microsoft.attentions import (
    block_sparse,
    group_query,
    multi_head,
    packing,
    position_biases,
    projected_attention,
    quantized_attention,
    rotary,
)
from jaxops.ops.microsoft.attentions.block_sparse import *
from jaxops.ops.microsoft.attentions.group_query import *
from jaxops.ops.microsoft.attentions.multi_head import *
from jaxops.ops.microsoft.attentions.packing import *
from jaxops.ops.microsoft.attentions.position_biases import *
from jaxops.ops.microsoft.attentions.projected_attention import *
from jaxops.ops.microsoft.attentions.quantized_attention import *
from jaxops.ops.microsoft.attentions.rotary import *

__all__: list[str] = []
__all__ += block_sparse.__all__
__all__ += group_query.__all__
__all__ += multi_head.__all__
__all__ += packing.__all__
__all__ += position_biases.__all__
__all__ += projected_attention.__all__
__all__ += quantized_attention.__all__
__all__ += rotary.__all__
