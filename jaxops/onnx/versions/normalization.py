"""Normalizations, Softmax and Dropout: versions that differ from the functions in `jaxops.ops`."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxops.attributes import axis as resolve_axis
from jaxops.dtypes import as_traced
from jaxops.errors import SignatureError
from jaxops.onnx.registry import version
from jaxops.ops import (
    batch_normalization,
    dropout,
    group_normalization,
    hardmax,
    layer_normalization,
    log_softmax,
    reshape,
    softmax,
)
from jaxops.shapes.nn import normalization
from jaxops.static import Array, ElementType, Static, array


def _batch_normalization(
    x: Array, parameters: tuple[Array, ...], training: bool, spatial: int, n_outputs: int, **attributes: float
) -> Any:
    """Before opset 14: five outputs when training, the last two the statistics of this batch.

    Without `spatial` each feature is normalized by itself: a channel each, as the text of version 9 suggests.
    """
    if n_outputs > 1 and not training:
        raise SignatureError(f"BatchNormalization: {n_outputs} outputs were asked for; testing gives only Y")
    shape = array(x).shape
    if not spatial:
        x = reshape(x, (shape[0], -1))
        parameters = tuple(reshape(p, (-1,)) for p in parameters)
    if not training:
        return reshape(batch_normalization(x, *parameters, **attributes), shape, allowzero=1)
    y, *running = batch_normalization(x, *parameters, training_mode=1, **attributes)
    # With a momentum of 0 the running statistics are those of the batch.
    _, *saved = batch_normalization(x, *parameters, training_mode=1, **{**attributes, "momentum": 0.0})
    kept = parameters[2].shape if spatial else shape[1:]
    statistics = (reshape(v, kept, allowzero=1) for v in (*running, *saved))
    return (reshape(y, shape, allowzero=1), *statistics)[:n_outputs]


def _batch_normalization_1(
    x: Array,
    scale: Array,
    b: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float,
    momentum: float,
    is_test: int,
    spatial: int,
    n_outputs: int,
) -> Any:
    given = (scale, b, mean, var)
    return _batch_normalization(x, given, not is_test, spatial, n_outputs, epsilon=epsilon, momentum=momentum)


version("BatchNormalization", 1)(_batch_normalization_1)
version("BatchNormalization", 6)(_batch_normalization_1)


@version("BatchNormalization", 7)
def _(
    x: Array,
    scale: Array,
    b: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float,
    momentum: float,
    spatial: int,
    n_outputs: int,
) -> Any:
    given = (scale, b, mean, var)  # the number of outputs says whether this is training
    return _batch_normalization(x, given, n_outputs > 1, spatial, n_outputs, epsilon=epsilon, momentum=momentum)


@version("BatchNormalization", 9)
def _(
    x: Array,
    scale: Array,
    b: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float,
    momentum: float,
    n_outputs: int,
) -> Any:
    given = (scale, b, mean, var)
    return _batch_normalization(x, given, n_outputs > 1, 1, n_outputs, epsilon=epsilon, momentum=momentum)


@version("BatchNormalization", 14)
def _(
    x: Array,
    scale: Array,
    b: Array,
    input_mean: Array,
    input_var: Array,
    *,
    epsilon: float,
    momentum: float,
    training_mode: int,
    n_outputs: int,
) -> Any:
    if n_outputs > 1 and not training_mode:
        raise SignatureError(
            f"BatchNormalization: {n_outputs} outputs were asked for; without `training_mode` it gives only Y"
        )
    found = batch_normalization(
        x, scale, b, input_mean, input_var, epsilon=epsilon, momentum=momentum, training_mode=training_mode
    )
    return found[:n_outputs] if training_mode else found


def _over_the_rest(fn: Callable[..., Array]) -> Callable[..., Array]:
    """Before opset 13 an operand counts as a matrix: all axes from `axis` on are one."""

    def run(input: Array, *, axis: int) -> Array:
        rank = array(input).ndim
        return fn(input, axes=tuple(range(resolve_axis(fn.__name__, axis, rank), rank)))

    return run


for name, fn in (("Softmax", softmax), ("LogSoftmax", log_softmax), ("Hardmax", hardmax)):
    version(name, 1)(_over_the_rest(fn))
    version(name, 13)(fn)


def _dropout_1(data: Array, *, is_test: int, ratio: float, n_outputs: int, rng: Any = None) -> Any:
    found = dropout(data, ratio, not is_test, rng=rng, return_mask=n_outputs > 1)
    return (found[0], found[1].astype(found[0].dtype)) if n_outputs > 1 else found  # a mask of T


version("Dropout", 1)(_dropout_1)
version("Dropout", 6)(_dropout_1)


# From 7 to 10 nothing tells training from testing; as in onnxruntime, it is testing.
@version("Dropout", 7)
def _(data: Array, *, ratio: float, n_outputs: int) -> Any:
    return _dropout_1(data, is_test=1, ratio=ratio, n_outputs=n_outputs)


@version("Dropout", 10)
def _(data: Array, *, ratio: float, n_outputs: int) -> Any:
    return dropout(data, ratio, return_mask=n_outputs > 1)


@version("Dropout", 12)
def _(
    data: Array,
    ratio: Any = None,
    training_mode: Static = None,
    *,
    seed: int | None = None,
    n_outputs: int,
    rng: Any = None,
) -> Any:
    return dropout(data, ratio, training_mode, seed=seed, rng=rng, return_mask=n_outputs > 1)


@version("GroupNormalization", 18)
def _(x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float) -> Array:
    sizes = normalization.groups("group_normalization", array(x).shape, num_groups)
    channels = [_per_channel(name, v, sizes) for name, v in (("scale", scale), ("bias", bias))]
    # All in the type of x here; 16-bit types are computed in float32 all the same.
    work = np.float64 if array(x).dtype == np.float64 else np.float32
    return group_normalization(x, *channels, num_groups=num_groups, epsilon=epsilon, stash_type=work)


version("GroupNormalization", 21)(group_normalization)


def _per_channel(name: str, value: Array, sizes: tuple[Any, ...]) -> Any:
    """One number a group, as one number a channel."""
    value = as_traced(value)
    normalization.per_channel("group_normalization", (sizes[0], sizes[1]), **{name: value.shape})
    return jnp.broadcast_to(value[:, None], sizes[1:3]).reshape(-1)


@version("LayerNormalization", 17)
def _(
    x: Array,
    scale: Array,
    b: Array | None = None,
    *,
    axis: int,
    epsilon: float,
    stash_type: ElementType,
    n_outputs: int,
) -> Any:
    found = layer_normalization(x, scale, b, axis=axis, epsilon=epsilon, stash_type=stash_type, return_statistics=True)
    return found[:n_outputs]
