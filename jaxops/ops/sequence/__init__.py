"""Operators of the standard's family `sequence`."""

from jaxops.ops.sequence import optionals, sequences
from jaxops.ops.sequence.optionals import *
from jaxops.ops.sequence.sequences import *

__all__: list[str] = []
__all__ += optionals.__all__
__all__ += sequences.__all__
