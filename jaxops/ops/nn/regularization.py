"""Dropout: the identity, except in training."""

__all__ = ["dropout"]

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import accumulation_type, as_traced, floating
from jaxops.errors import ArgumentError, ShapeError, describe, message
from jaxops.ops.common.randomness import not_below
from jaxops.signature import SecondOutput, SizesKept, Static
from jaxops.static import ArrayLike, Sizes, Tracer, array, is_symbolic, jit_if_concrete, known


def dropout(
    data: SizesKept[ArrayLike],
    ratio: Any = 0.5,
    training_mode: Static = False,
    *,
    seed: int | None = None,
    rng: Any = None,
    return_mask: SecondOutput = False,
) -> Any:
    """The identity; with `training_mode`, sets random elements to zero and scales up the rest.

    data: floats when training. ratio: one number in [0, 1), the fraction of elements to drop; it may be traced.
    training_mode: static, one boolean. Training draws from `rng`, a random key. Without `rng` it takes the numbers of
    NumPy's `RandomState(seed)`, as the standard's test suite does. These are the same at each call, and for each member
    under `vmap`.
    Returns data · mask / (1 - ratio); with `return_mask` (output, mask), where the mask is True for kept elements.
    Raises ArgumentError for a ratio outside [0, 1) and for training without rng and seed, StaticError.
    Source: ONNX Dropout, opsets 12–22.

    >>> dropout(jnp.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """
    values = array(data)
    mode = known("training_mode", False if training_mode is None else training_mode)
    if mode.size != 1:
        raise ShapeError(message("`training_mode` must be one boolean", training_mode=mode))
    if not mode.reshape(()):
        if not return_mask:
            return values
        ones = (
            jnp.ones if is_symbolic(np.array(values.shape, object)) or not isinstance(values, np.ndarray) else np.ones
        )
        return values, ones(values.shape, bool)
    (values,) = floating(data=values)
    share = _share(ratio)
    if rng is not None:
        mask = jax.random.bernoulli(rng, 1 - share, values.shape)
    elif seed is not None:
        mask = _of_seed(share, integer("seed", seed), values.shape)
    else:
        raise ArgumentError("training needs a random key; pass `rng`, such as jax.random.key(0), or an integer `seed`")
    wide = lax.convert_element_type(values, accumulation_type(values.dtype))
    scaled = lax.convert_element_type(wide * lax.convert_element_type(1 / (1 - share), wide.dtype), values.dtype)
    output = lax.select(mask, scaled, lax.full_like(scaled, 0))
    return (output, mask) if return_mask else output


@jit_if_concrete
def _of_seed(share: Any, seed: int, sizes: Sizes) -> jax.Array:
    return not_below(seed, share, math.prod(sizes)).reshape(sizes)


def _share(ratio: Any) -> Any:
    """The ratio as a float32 scalar, checked if it is known."""
    value = array(0.5 if ratio is None else ratio)
    if value.size != 1:
        raise ShapeError(f"`ratio` must be one number, got {describe(value)}")
    if not isinstance(value, Tracer) and not 0 <= value.reshape(()).item() < 1:
        raise ArgumentError(f"`ratio` is {value.reshape(()).item():g}; it must be in [0, 1)")
    return as_traced(value, np.float32).reshape(())
