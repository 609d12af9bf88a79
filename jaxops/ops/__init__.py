"""The operators, in the families of the standard: pure functions on arrays with the newest and most general meaning."""

import typing as _typing

from jaxops.ops.controlflow.branching import *
from jaxops.ops.controlflow.looping import *
from jaxops.ops.controlflow.scanning import *
from jaxops.ops.generator.constants import *
from jaxops.ops.generator.random_numbers import *
from jaxops.ops.generator.ranges import *
from jaxops.ops.image.decoding import *
from jaxops.ops.logical.bitwise import *
from jaxops.ops.logical.boolean import *
from jaxops.ops.logical.comparison import *
from jaxops.ops.math.activations import *
from jaxops.ops.math.arithmetic import *
from jaxops.ops.math.broadcasting import *
from jaxops.ops.math.cumulative import *
from jaxops.ops.math.exponentials import *
from jaxops.ops.math.extrema import *
from jaxops.ops.math.linear_algebra import *
from jaxops.ops.math.losses import *
from jaxops.ops.math.quantized_products import *
from jaxops.ops.math.ranking import *
from jaxops.ops.math.rounding import *
from jaxops.ops.math.signal_transforms import *
from jaxops.ops.math.softmax_like import *
from jaxops.ops.math.trigonometry import *
from jaxops.ops.math.window_functions import *
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
from jaxops.ops.object_detection.regions import *
from jaxops.ops.object_detection.suppression import *
from jaxops.ops.quantization.linear_quantization import *
from jaxops.ops.recurrent.layers import *
from jaxops.ops.reduction.arg_extrema import *
from jaxops.ops.reduction.reductions import *
from jaxops.ops.sequence.optionals import *
from jaxops.ops.sequence.sequences import *
from jaxops.ops.tensor.casting import *
from jaxops.ops.tensor.gathering import *
from jaxops.ops.tensor.grids import *
from jaxops.ops.tensor.inspection import *
from jaxops.ops.tensor.joining import *
from jaxops.ops.tensor.nonfinite import *
from jaxops.ops.tensor.one_hot_encoding import *
from jaxops.ops.tensor.padding import *
from jaxops.ops.tensor.reordering import *
from jaxops.ops.tensor.reshaping import *
from jaxops.ops.tensor.resizing import *
from jaxops.ops.tensor.scattering import *
from jaxops.ops.tensor.selection import *
from jaxops.ops.tensor.slicing import *
from jaxops.ops.tensor.splitting import *
from jaxops.ops.tensor.tiling import *
from jaxops.ops.tensor.triangles import *
from jaxops.ops.text.strings import *
from jaxops.signature_errors import explain as _explain

if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = _explain(globals())
