"""Operators of the standard's family `image`."""

from jaxops.ops.image import decoding
from jaxops.ops.image.decoding import *

__all__: list[str] = []
__all__ += decoding.__all__
