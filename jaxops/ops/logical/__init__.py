"""Operators of the standard's family `logical`."""

from jaxops.ops.logical import bitwise, boolean, comparison
from jaxops.ops.logical.bitwise import *
from jaxops.ops.logical.boolean import *
from jaxops.ops.logical.comparison import *

__all__: list[str] = []
__all__ += bitwise.__all__
__all__ += boolean.__all__
__all__ += comparison.__all__
