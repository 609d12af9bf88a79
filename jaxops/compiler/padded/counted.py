"""Results whose size depends on data, as primitives of a traced program that `run_padded` runs.

An operator with a bound computes a padded result and the true size. `counted` gives the result a symbolic size, so
that what follows is traced for the true elements alone. `padded` is the way back, for values that leave a branch or
the body of a loop. Neither is ever lowered: the interpreter replaces them.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import canonical
from jaxops.jax_internals import Primitive, ShapedArray
from jaxops.static import Dim, Sizes

_COUNTED, _PADDED = Primitive("counted"), Primitive("padded")


@_COUNTED.def_abstract_eval
def _(x: Any, *size: Any, symbol: str, sizes: Sizes) -> ShapedArray:
    return ShapedArray(sizes, x.dtype)


@_PADDED.def_abstract_eval
def _(x: Any, *, room: Sizes) -> ShapedArray:
    return ShapedArray(room, x.dtype)


def counted(x: Any, size: Any, symbol: str, sizes: Sizes) -> Any:
    """Returns a padded array as one of symbolic sizes.

    size: the true number that `symbol` stands for, an integer; None if it is not known, so that no operation may leave
    out the padding.
    """
    return _COUNTED.bind(*([x] if size is None else [x, size]), symbol=symbol, sizes=sizes)


def padded(x: Any, room: Sizes) -> Any:
    """Returns an array of symbolic sizes with its surplus elements, as an array of these sizes."""
    return _PADDED.bind(x, room=room)


def at_most(size: Any, most: Dim) -> Any:
    """Returns a true size, as `counted` takes it, of a result that is cut off at `most` elements."""
    kind = canonical(np.int64)
    return jnp.minimum(size.astype(kind), jnp.asarray(most, kind))


def limited(x: Any, most: int) -> Any:
    """Returns an integer as a number of elements, from 0 to `most`."""
    return jnp.clip(x, 0, most)


def broadcast_size(a: Any, b: Any) -> Any:
    """Returns the size that two sizes broadcast to, if they do: the second one if the first one is 1."""
    return jnp.where(a == 1, b, a)


def as_long_as(x: Any, axis: int, size: Dim, other: Dim, broadcasts: bool = False) -> Any:
    """Returns an array with another size along an axis, which must be equal to its own size.

    If it is not after all, ONNX has no result: every index is out of range then. broadcasts: if its own size is 1,
    the only element is repeated.
    """
    own = jnp.asarray(size, np.int32)
    indices = jnp.arange(other, dtype=np.int32)
    outside = np.int32(np.iinfo(np.int32).max)
    differs = jnp.where(own == 1, np.int32(0), outside) if broadcasts else outside
    return jnp.take(x, jnp.where(own != jnp.asarray(other, np.int32), differs, indices), axis=axis, mode="fill")
