"""The operators of the domain com.microsoft, which onnxruntime defines."""

from jaxops.ops import microsoft as _microsoft
from jaxops.ops.microsoft import *

__all__ = [*_microsoft.__all__]
