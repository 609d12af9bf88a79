"""Dropout: the identity, except in training."""

__all__ = ["dropout"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, floating
from jaxops.errors import ArgumentError, ShapeError, describe, message
from jaxops.static import Array, Static, Tracer, array, is_symbolic, known


def dropout(
    data: Array,
    ratio: Any = 0.5,
    training_mode: Static = False,
    *,
    seed: int | None = None,
    rng: Any = None,
    return_mask: bool = False,
) -> Any:
    """The identity; with `training_mode`, sets random elements to zero and scales up the rest.

    data: floats when training. ratio: one number in [0, 1), the fraction of elements to drop; it may be traced.
    training_mode: static, one boolean. Training needs a random key: `rng`, or one made from `seed`.
    Returns data · mask / (1 - ratio); with `return_mask` (output, mask), where the mask is True for kept elements.
    Raises ArgumentError for a ratio outside [0, 1) and for training without a key, StaticError.
    Source: ONNX Dropout, opsets 12–22.

    >>> dropout(jnp.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """
    data = array(data)
    mode = known("dropout", "training_mode", False if training_mode is None else training_mode)
    if mode.size != 1:
        raise ShapeError(message("dropout", "`training_mode` must be one boolean", training_mode=mode))
    if not mode.reshape(()):
        if not return_mask:
            return data
        ones = jnp.ones if is_symbolic(np.array(data.shape, object)) or not isinstance(data, np.ndarray) else np.ones
        return data, ones(data.shape, bool)
    (data,) = floating("dropout", data=data)
    share = _share(ratio)
    if rng is None:
        if seed is None:
            raise ArgumentError("dropout: training needs a key; pass `rng`, as jax.random.key(0), or an integer `seed`")
        rng = jax.random.key(seed)
    mask = jax.random.bernoulli(rng, 1 - share, data.shape)
    scaled = data * lax.convert_element_type(1 / (1 - share), data.dtype)
    output = lax.select(mask, scaled, lax.full_like(scaled, 0))
    return (output, mask) if return_mask else output


def _share(ratio: Any) -> Any:
    """The ratio as a float32 scalar, checked if it is known."""
    value = array(0.5 if ratio is None else ratio)
    if value.size != 1:
        raise ShapeError(f"dropout: `ratio` must be one number, got {describe(value)}")
    if not isinstance(value, Tracer) and not 0 <= value.reshape(()).item() < 1:
        raise ArgumentError(f"dropout: `ratio` is {value.reshape(()).item():g}; it must be in [0, 1)")
    return as_traced(value, np.float32).reshape(())
