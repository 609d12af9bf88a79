"""Weights that are codes of numbers in a table."""

__all__ = ["look_up"]

import jax
import numpy as np

from jaxops.attributes import element_type
from jaxops.dtypes import require_integers
from jaxops.ops.tensor.casting import cast
from jaxops.ops.tensor.gathering import gather
from jaxops.shapes.arithmetic import must_fit
from jaxops.signature import ElementType, operator
from jaxops.static import ArrayLike, array


@operator(kind="form")
def look_up(codes: ArrayLike, table: ArrayLike, *, to: ElementType) -> jax.Array:
    """Returns the numbers of a table at these codes, the weights of a compressed layer.

    codes: any shape, integers in [0, T). table: (T,), numbers. to: element type of the result. In a loaded model it
    runs at each call, since codes take less memory than numbers.
    Returns the shape of codes. Raises ShapeError, DTypeError, BoundsError for a static code beyond the table.
    Source: OpenVINO Gather-8 of a codebook, which NNCF writes with codes of 4 or 8 bits.

    >>> look_up(np.uint8([[2, 0]]), np.float32([-1, 0, 1]), to=np.float32).tolist()
    [[1.0, -1.0]]
    """
    indices, numbers = array(codes), array(table)
    require_integers("codes", indices)
    must_fit("table", numbers.shape, ("T",))
    return cast(gather(numbers, cast(indices, to=np.int32)), to=element_type("to", to))
