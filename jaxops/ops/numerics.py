"""What XLA:CPU does to floats when it fuses, and how the operators keep their values right all the same."""

from typing import Any

import numpy as np


def least(dtype: Any) -> Any:
    """The smallest normal number of a type of at least 32 bits."""
    return np.finfo(dtype).tiny


def rounded(x: Any) -> Any:
    """x, so written that what is subtracted from it is subtracted from the rounded value.

    XLA:CPU computes a product x again in each loop that reads it, and LLVM makes one FMA of the product and a
    subtraction. So `x - max(x)` is the unrounded product minus the rounded maximum: not 0 at the maximum but half
    an ulp, 256 for an x of 7e9, and its exponential is 0 or infinite. `lax.optimization_barrier` is dropped before
    that, and so are `lax.reduce_precision`, bitcasts and `x + 0`. A number too small to change a sum remains: the
    product is contracted with it, in every loop alike.

    x: float32 or float64. Adds 1e-38 where |x| is below 1e-30, and nothing elsewhere. Derivative 1.
    """
    return x + least(x.dtype)
