"""Operators of the domain `com.microsoft`, which onnxruntime defines."""

import typing as _typing

from jaxops.ops.microsoft.attentions.block_sparse import *
from jaxops.ops.microsoft.attentions.group_query import *
from jaxops.ops.microsoft.attentions.multi_head import *
from jaxops.ops.microsoft.attentions.packing import *
from jaxops.ops.microsoft.attentions.position_biases import *
from jaxops.ops.microsoft.attentions.projected_attention import *
from jaxops.ops.microsoft.attentions.quantized_attention import *
from jaxops.ops.microsoft.attentions.rotary import *
from jaxops.ops.microsoft.attentive_recurrence import *
from jaxops.ops.microsoft.biases import *
from jaxops.ops.microsoft.embeddings import *
from jaxops.ops.microsoft.engram import *
from jaxops.ops.microsoft.experts import *
from jaxops.ops.microsoft.fused_convolution import *
from jaxops.ops.microsoft.gelu_variants import *
from jaxops.ops.microsoft.hyper_connections import *
from jaxops.ops.microsoft.images import *
from jaxops.ops.microsoft.matrix_products import *
from jaxops.ops.microsoft.movement import *
from jaxops.ops.microsoft.normalization import *
from jaxops.ops.microsoft.packed_states import *
from jaxops.ops.microsoft.quantized.block_quantization import *
from jaxops.ops.microsoft.quantized.convolution import *
from jaxops.ops.microsoft.quantized.linear_quantization import *
from jaxops.ops.microsoft.quantized.lstm_and_embeddings import *
from jaxops.ops.microsoft.quantized.packed_weights import *
from jaxops.ops.microsoft.quantized.pooling import *
from jaxops.ops.microsoft.quantized.products import *
from jaxops.ops.microsoft.quantized.rescaled_elementwise import *
from jaxops.ops.microsoft.routing import *
from jaxops.ops.microsoft.scaling_and_cropping import *
from jaxops.ops.microsoft.search.aggressive_decoding import *
from jaxops.ops.microsoft.search.beams import *
from jaxops.ops.microsoft.search.greedy import *
from jaxops.ops.microsoft.search.sampled_tokens import *
from jaxops.ops.microsoft.search.transcription import *
from jaxops.ops.microsoft.spectra import *
from jaxops.ops.microsoft.states import *
from jaxops.ops.microsoft.tokens import *
from jaxops.signature_errors import explain as _explain

if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = _explain(globals())
