"""Operators of the domain `com.microsoft`, which onnxruntime defines."""

from jaxops.ops.microsoft import linear_algebra
from jaxops.ops.microsoft.linear_algebra import *

__all__: list[str] = []
__all__ += linear_algebra.__all__
