"""The operators: pure functions on arrays, one file a family, each with its newest and most general meaning."""

from jaxops.ops.casting import cast
from jaxops.ops.creation import constant_of_shape
from jaxops.ops.indexing import gather
from jaxops.ops.inspection import shape, size
from jaxops.ops.movement import expand, flatten, identity, reshape, squeeze, transpose, unsqueeze
from jaxops.ops.pieces import concat, slice, split, variadic_split

__all__ = [
    "cast",
    "concat",
    "constant_of_shape",
    "expand",
    "flatten",
    "gather",
    "identity",
    "reshape",
    "shape",
    "size",
    "slice",
    "split",
    "squeeze",
    "transpose",
    "unsqueeze",
    "variadic_split",
]
