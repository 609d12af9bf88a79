"""Operators of the domain `ai.onnx.ml`."""

from jaxops.ops.ml.encoding import *
from jaxops.ops.ml.features import *
from jaxops.ops.ml.linear import *
from jaxops.ops.ml.maps import *
from jaxops.ops.ml.scaling import *
from jaxops.ops.ml.support_vectors import *
from jaxops.ops.ml.trees import *
from jaxops.signature_errors import explain as _explain

__all__ = _explain(globals())
