"""The operators of the domain ai.onnx.preview."""

from jaxops.ops import preview as _preview
from jaxops.ops.preview import *

__all__ = [*_preview.__all__]
