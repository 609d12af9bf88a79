"""Operators of the standard's family `text`."""

from jaxops.ops.text import strings
from jaxops.ops.text.strings import *

__all__: list[str] = []
__all__ += strings.__all__
