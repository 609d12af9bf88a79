"""The operators of the domain ai.onnx.ml."""

from jaxops.ops import ml as _ml
from jaxops.ops.ml import *

__all__ = [*_ml.__all__]
