"""The operators of the domain ai.onnx.preview.training."""

from jaxops.ops import training as _training
from jaxops.ops.training import *

__all__ = [*_training.__all__]
