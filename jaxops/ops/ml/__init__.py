"""Operators of the domain `ai.onnx.ml`."""

from jaxops.ops.ml import encoding, features, linear, scaling
from jaxops.ops.ml.encoding import *
from jaxops.ops.ml.features import *
from jaxops.ops.ml.linear import *
from jaxops.ops.ml.scaling import *

__all__: list[str] = []
__all__ += encoding.__all__
__all__ += features.__all__
__all__ += linear.__all__
__all__ += scaling.__all__
