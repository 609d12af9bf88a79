"""Operators of the domain `ai.onnx.ml`."""

from jaxops.ops.ml import encoding, features, linear, maps, scaling, support_vectors, trees
from jaxops.ops.ml.encoding import *
from jaxops.ops.ml.features import *
from jaxops.ops.ml.linear import *
from jaxops.ops.ml.maps import *
from jaxops.ops.ml.scaling import *
from jaxops.ops.ml.support_vectors import *
from jaxops.ops.ml.trees import *
from jaxops.signature_errors import explain as _explain

__all__: list[str] = []
__all__ += encoding.__all__
__all__ += features.__all__
__all__ += linear.__all__
__all__ += maps.__all__
__all__ += scaling.__all__
__all__ += support_vectors.__all__
__all__ += trees.__all__
_explain(globals(), __all__)
