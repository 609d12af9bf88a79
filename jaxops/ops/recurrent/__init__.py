"""Operators of the standard's family `rnn`; a package of that name would hide the operator RNN."""

from jaxops.ops.recurrent import layers
from jaxops.ops.recurrent.layers import *

__all__: list[str] = []
__all__ += layers.__all__
