"""Operators of the domain `com.microsoft`, which onnxruntime defines."""

from jaxops.contract import explain as _explain
from jaxops.ops.microsoft import (
    activations,
    aggressive_decoding,
    attentive_recurrence,
    beams,
    biases,
    block_sparse,
    convolution,
    embeddings,
    engram,
    experts,
    fused_products,
    greedy,
    group_query,
    hyper_connections,
    images,
    linear_algebra,
    linear_quantization,
    movement,
    multi_head,
    normalization,
    packed_states,
    packed_weights,
    packing,
    position_biases,
    projected_attention,
    quantized_attention,
    quantized_blocks,
    quantized_convolution,
    quantized_elementwise,
    quantized_layers,
    quantized_pooling,
    quantized_products,
    rotary,
    routing,
    sampled_tokens,
    scaling_and_cropping,
    spectra,
    states,
    tokens,
    transcription,
)
from jaxops.ops.microsoft.activations import *
from jaxops.ops.microsoft.aggressive_decoding import *
from jaxops.ops.microsoft.attentive_recurrence import *
from jaxops.ops.microsoft.beams import *
from jaxops.ops.microsoft.biases import *
from jaxops.ops.microsoft.block_sparse import *
from jaxops.ops.microsoft.convolution import *
from jaxops.ops.microsoft.embeddings import *
from jaxops.ops.microsoft.engram import *
from jaxops.ops.microsoft.experts import *
from jaxops.ops.microsoft.fused_products import *
from jaxops.ops.microsoft.greedy import *
from jaxops.ops.microsoft.group_query import *
from jaxops.ops.microsoft.hyper_connections import *
from jaxops.ops.microsoft.images import *
from jaxops.ops.microsoft.linear_algebra import *
from jaxops.ops.microsoft.linear_quantization import *
from jaxops.ops.microsoft.movement import *
from jaxops.ops.microsoft.multi_head import *
from jaxops.ops.microsoft.normalization import *
from jaxops.ops.microsoft.packed_states import *
from jaxops.ops.microsoft.packed_weights import *
from jaxops.ops.microsoft.packing import *
from jaxops.ops.microsoft.position_biases import *
from jaxops.ops.microsoft.projected_attention import *
from jaxops.ops.microsoft.quantized_attention import *
from jaxops.ops.microsoft.quantized_blocks import *
from jaxops.ops.microsoft.quantized_convolution import *
from jaxops.ops.microsoft.quantized_elementwise import *
from jaxops.ops.microsoft.quantized_layers import *
from jaxops.ops.microsoft.quantized_pooling import *
from jaxops.ops.microsoft.quantized_products import *
from jaxops.ops.microsoft.rotary import *
from jaxops.ops.microsoft.routing import *
from jaxops.ops.microsoft.sampled_tokens import *
from jaxops.ops.microsoft.scaling_and_cropping import *
from jaxops.ops.microsoft.spectra import *
from jaxops.ops.microsoft.states import *
from jaxops.ops.microsoft.tokens import *
from jaxops.ops.microsoft.transcription import *

__all__: list[str] = []
__all__ += activations.__all__
__all__ += aggressive_decoding.__all__
__all__ += attentive_recurrence.__all__
__all__ += beams.__all__
__all__ += biases.__all__
__all__ += block_sparse.__all__
__all__ += convolution.__all__
__all__ += embeddings.__all__
__all__ += engram.__all__
__all__ += experts.__all__
__all__ += fused_products.__all__
__all__ += greedy.__all__
__all__ += group_query.__all__
__all__ += hyper_connections.__all__
__all__ += images.__all__
__all__ += linear_algebra.__all__
__all__ += linear_quantization.__all__
__all__ += movement.__all__
__all__ += multi_head.__all__
__all__ += normalization.__all__
__all__ += packed_states.__all__
__all__ += packed_weights.__all__
__all__ += packing.__all__
__all__ += position_biases.__all__
__all__ += projected_attention.__all__
__all__ += quantized_attention.__all__
__all__ += quantized_blocks.__all__
__all__ += quantized_convolution.__all__
__all__ += quantized_elementwise.__all__
__all__ += quantized_layers.__all__
__all__ += quantized_pooling.__all__
__all__ += quantized_products.__all__
__all__ += rotary.__all__
__all__ += routing.__all__
__all__ += sampled_tokens.__all__
__all__ += scaling_and_cropping.__all__
__all__ += spectra.__all__
__all__ += states.__all__
__all__ += tokens.__all__
__all__ += transcription.__all__
_explain(globals(), __all__)
