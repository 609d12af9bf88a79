"""Operators of the domain `ai.onnx.ml`."""

from jaxops.ops.ml import encoding
from jaxops.ops.ml.encoding import *

__all__: list[str] = []
__all__ += encoding.__all__
