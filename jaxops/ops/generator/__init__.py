"""Operators of the standard's family `generator`."""

from jaxops.ops.generator import constants, random_numbers, ranges
from jaxops.ops.generator.constants import *
from jaxops.ops.generator.random_numbers import *
from jaxops.ops.generator.ranges import *

__all__: list[str] = []
__all__ += constants.__all__
__all__ += random_numbers.__all__
__all__ += ranges.__all__
