"""Operators of the domain `com.microsoft`, which onnxruntime defines."""

from jaxops.ops.microsoft import (
    attentions,
    attentive_recurrence,
    biases,
    embeddings,
    engram,
    experts,
    fused_convolution,
    gelu_variants,
    hyper_connections,
    images,
    matrix_products,
    movement,
    normalization,
    packed_states,
    quantized,
    routing,
    scaling_and_cropping,
    search,
    spectra,
    states,
    tokens,
)
from jaxops.ops.microsoft.attentions import *
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
from jaxops.ops.microsoft.quantized import *
from jaxops.ops.microsoft.routing import *
from jaxops.ops.microsoft.scaling_and_cropping import *
from jaxops.ops.microsoft.search import *
from jaxops.ops.microsoft.spectra import *
from jaxops.ops.microsoft.states import *
from jaxops.ops.microsoft.tokens import *
from jaxops.signature_errors import explain as _explain

__all__: list[str] = []
__all__ += attentions.__all__
__all__ += attentive_recurrence.__all__
__all__ += biases.__all__
__all__ += embeddings.__all__
__all__ += engram.__all__
__all__ += experts.__all__
__all__ += fused_convolution.__all__
__all__ += gelu_variants.__all__
__all__ += hyper_connections.__all__
__all__ += images.__all__
__all__ += matrix_products.__all__
__all__ += movement.__all__
__all__ += normalization.__all__
__all__ += packed_states.__all__
__all__ += quantized.__all__
__all__ += routing.__all__
__all__ += scaling_and_cropping.__all__
__all__ += search.__all__
__all__ += spectra.__all__
__all__ += states.__all__
__all__ += tokens.__all__
_explain(globals(), __all__)
