"""Earlier versions of operators of neural networks, and operators whose outputs depend on how many the node has."""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxops import ops
from jaxops.dtypes import as_traced
from jaxops.errors import SignatureError
from jaxops.onnx.registry import version
from jaxops.onnx.schemas import element_type
from jaxops.onnx.versions.tensor import nonnegative
from jaxops.shapes.nn import normalization as sizes_of
from jaxops.shapes.nn.windows import AutoPad
from jaxops.signature import RunningMean, RunningVar, SizesKept, Static, like
from jaxops.signature_errors import errors_of
from jaxops.static import Array, Ints, array


@version("Flatten", 1)
def flatten_1(input: Array, *, axis: int) -> Array:
    nonnegative("flatten", "axis", axis)
    return ops.flatten(input, axis=axis)


version("Flatten", 11)(ops.flatten)


@version("BatchNormalization", 1)
@like(ops.batch_normalization, without=["training_mode"])
def batch_normalization_1(
    x: Array,
    scale: Array,
    b: Array,
    mean: RunningMean,
    var: RunningVar,
    *,
    is_test: int,
    spatial: int,
    n_outputs: int,
    **attributes: float,
) -> Any:
    """Before opset 14: five outputs when training, the last two the statistics of this batch.

    Without `spatial` each element of a sample is normalized by itself, as the text of version 9 suggests.
    """
    if n_outputs > 1 and is_test:
        raise SignatureError(
            f"BatchNormalization: {n_outputs} outputs were asked for, but with `is_test` there is only Y"
        )
    shape, parameters = array(x).shape, (scale, b, mean, var)
    if not spatial:
        x = ops.reshape(x, (shape[0], -1))
        parameters = tuple(ops.reshape(p, (-1,)) for p in parameters)
    if is_test:
        return ops.reshape(ops.batch_normalization(x, *parameters, **attributes), shape, allowzero=1)
    y, *running = ops.batch_normalization(x, *parameters, training_mode=1, **attributes)
    # With a momentum of 0 the running statistics are those of the batch.
    _, *saved = ops.batch_normalization(x, *parameters, training_mode=1, **{**attributes, "momentum": 0.0})
    kept = mean.shape if spatial else shape[1:]
    statistics = (ops.reshape(v, kept, allowzero=1) for v in (*running, *saved))
    return (ops.reshape(y, shape, allowzero=1), *statistics)[:n_outputs]


@version("BatchNormalization", 7)
@like(batch_normalization_1, without=["is_test"])
def batch_normalization_7(*inputs: Any, spatial: int = 1, n_outputs: int, **attributes: Any) -> Any:
    # The number of outputs distinguishes training from inference.
    return batch_normalization_1(*inputs, is_test=n_outputs == 1, spatial=spatial, n_outputs=n_outputs, **attributes)


@version("BatchNormalization", 14)
@like(ops.batch_normalization)
def batch_normalization_14(*inputs: Any, training_mode: int, n_outputs: int, **attributes: float) -> Any:
    if n_outputs > 1 and not training_mode:
        raise SignatureError(
            f"BatchNormalization: {n_outputs} outputs were asked for, but without `training_mode` there is only Y"
        )
    return ops.batch_normalization(*inputs, training_mode=training_mode, **attributes)


@version("Dropout", 1)
def dropout_1(data: SizesKept[Array], *, is_test: int = 1, ratio: float, n_outputs: int, rng: Any = None) -> Any:
    """In version 7 nothing distinguishes training from inference; it is inference here, as in onnxruntime."""
    found = ops.dropout(data, ratio, not is_test, rng=rng, return_mask=n_outputs > 1)
    return (found[0], found[1].astype(found[0].dtype)) if n_outputs > 1 else found  # a mask of T


@version("Dropout", 10)
@like(ops.dropout)
def dropout_10(data: SizesKept[Array], ratio: Any = None, training_mode: Static = None, **attributes: Any) -> Any:
    return ops.dropout(data, ratio, training_mode, **attributes)


@version("GroupNormalization", 18)
def group_normalization_18(x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float) -> Array:
    with errors_of("group_normalization"):
        sizes = sizes_of.groups(array(x).shape, num_groups)
        channels = [_per_channel(name, v, sizes) for name, v in (("scale", scale), ("bias", bias))]
    # The type of x for all; 16-bit types are computed in float32 nevertheless.
    work = np.float64 if array(x).dtype == np.float64 else np.float32
    return ops.group_normalization(x, *channels, num_groups=num_groups, epsilon=epsilon, stash_type=work)


version("GroupNormalization", 21)(ops.group_normalization)


def _per_channel(name: str, value: Array, sizes: tuple[Any, ...]) -> Any:
    """Returns numbers per group as numbers per channel."""
    value = as_traced(value)
    sizes_of.per_channel((sizes[0], sizes[1]), **{name: value.shape})
    return jnp.broadcast_to(value[:, None], sizes[1:3]).reshape(-1)


@version("ConvTranspose", 1)
@like(ops.conv_transpose)
def conv_transpose_1(
    *inputs: Any, auto_pad: AutoPad, output_shape: Ints | None = None, pads: Ints | None = None, **attributes: Any
) -> Array:
    if output_shape is not None:
        # An odd element is cropped on the opposite side from version 11. (onnxruntime 1.23 cuts as version 11
        # does, in models of every version.)
        auto_pad, pads = "SAME_LOWER" if auto_pad == "SAME_UPPER" else "SAME_UPPER", None
    return ops.conv_transpose(*inputs, auto_pad=auto_pad, output_shape=output_shape, pads=pads, **attributes)


version("ConvTranspose", 11)(ops.conv_transpose)


@version("Attention", 23)
@like(ops.attention)
def attention_23(
    *inputs: Any,
    softmax_precision: Literal[1, 10, 11, 16] | None = None,  # FLOAT, FLOAT16, DOUBLE and BFLOAT16
    **attributes: Any,
) -> Any:
    precision = None if softmax_precision is None else element_type(softmax_precision)
    return ops.attention(*inputs, softmax_precision=precision, **attributes)
