"""Operators of the standard's family `reduction`."""

from jaxops.ops.reduction import arg_extrema, reductions
from jaxops.ops.reduction.arg_extrema import *
from jaxops.ops.reduction.reductions import *

__all__: list[str] = []
__all__ += arg_extrema.__all__
__all__ += reductions.__all__
