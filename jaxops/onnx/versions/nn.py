"""Earlier versions of operators of neural networks, and those whose outputs depend on what a node asks for."""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxops import ops
from jaxops.dtypes import as_traced
from jaxops.errors import SignatureError
from jaxops.onnx.registry import version
from jaxops.onnx.schemas import element_type
from jaxops.onnx.versions.tensor import nonnegative
from jaxops.ops.nn.dot_product_attention import OutputMode
from jaxops.shapes.nn import normalization as sizes_of
from jaxops.shapes.nn.windows import AutoPad
from jaxops.signature import ElementType, RunningMean, RunningVar, SizesKept, Static
from jaxops.static import Array, Ints, array


@version("Flatten", 1)
def flatten_1(input: Array, *, axis: int) -> Array:
    nonnegative("flatten", "axis", axis)
    return ops.flatten(input, axis=axis)


version("Flatten", 11)(ops.flatten)


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
        x = ops.reshape(x, (shape[0], -1))
        parameters = tuple(ops.reshape(p, (-1,)) for p in parameters)
    if not training:
        return ops.reshape(ops.batch_normalization(x, *parameters, **attributes), shape, allowzero=1)
    y, *running = ops.batch_normalization(x, *parameters, training_mode=1, **attributes)
    # With a momentum of 0 the running statistics are those of the batch.
    _, *saved = ops.batch_normalization(x, *parameters, training_mode=1, **{**attributes, "momentum": 0.0})
    kept = parameters[2].shape if spatial else shape[1:]
    statistics = (ops.reshape(v, kept, allowzero=1) for v in (*running, *saved))
    return (ops.reshape(y, shape, allowzero=1), *statistics)[:n_outputs]


@version("BatchNormalization", 1)
def batch_normalization_1(
    x: Array,
    scale: Array,
    b: Array,
    mean: RunningMean,
    var: RunningVar,
    *,
    epsilon: float,
    momentum: float,
    is_test: int,
    spatial: int,
    n_outputs: int,
) -> Any:
    given = (scale, b, mean, var)
    return _batch_normalization(x, given, not is_test, spatial, n_outputs, epsilon=epsilon, momentum=momentum)


@version("BatchNormalization", 7)
def batch_normalization_7(
    x: Array,
    scale: Array,
    b: Array,
    mean: RunningMean,
    var: RunningVar,
    *,
    epsilon: float,
    momentum: float,
    spatial: int = 1,
    n_outputs: int,
) -> Any:
    given = (scale, b, mean, var)  # the number of outputs says whether this is training
    return _batch_normalization(x, given, n_outputs > 1, spatial, n_outputs, epsilon=epsilon, momentum=momentum)


@version("BatchNormalization", 14)
def batch_normalization_14(
    x: Array,
    scale: Array,
    b: Array,
    input_mean: RunningMean,
    input_var: RunningVar,
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
    found = ops.batch_normalization(
        x, scale, b, input_mean, input_var, epsilon=epsilon, momentum=momentum, training_mode=training_mode
    )
    return found[:n_outputs] if training_mode else found


@version("Dropout", 1)
def dropout_1(data: SizesKept[Array], *, is_test: int = 1, ratio: float, n_outputs: int, rng: Any = None) -> Any:
    """In version 7 nothing tells training from testing; as in onnxruntime, it is testing."""
    found = ops.dropout(data, ratio, not is_test, rng=rng, return_mask=n_outputs > 1)
    return (found[0], found[1].astype(found[0].dtype)) if n_outputs > 1 else found  # a mask of T


@version("Dropout", 10)
def dropout_10(
    data: SizesKept[Array],
    ratio: Any = None,
    training_mode: Static = None,
    *,
    seed: int | None = None,
    n_outputs: int,
    rng: Any = None,
) -> Any:
    return ops.dropout(data, ratio, training_mode, seed=seed, rng=rng, return_mask=n_outputs > 1)


@version("GroupNormalization", 18)
def group_normalization_18(x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float) -> Array:
    sizes = sizes_of.groups("group_normalization", array(x).shape, num_groups)
    channels = [_per_channel(name, v, sizes) for name, v in (("scale", scale), ("bias", bias))]
    # All in the type of x here; 16-bit types are computed in float32 all the same.
    work = np.float64 if array(x).dtype == np.float64 else np.float32
    return ops.group_normalization(x, *channels, num_groups=num_groups, epsilon=epsilon, stash_type=work)


version("GroupNormalization", 21)(ops.group_normalization)


def _per_channel(name: str, value: Array, sizes: tuple[Any, ...]) -> Any:
    """One number a group, as one number a channel."""
    value = as_traced(value)
    sizes_of.per_channel("group_normalization", (sizes[0], sizes[1]), **{name: value.shape})
    return jnp.broadcast_to(value[:, None], sizes[1:3]).reshape(-1)


@version("LayerNormalization", 17)
def layer_normalization_17(
    x: Array,
    scale: Array,
    b: Array | None = None,
    *,
    axis: int,
    epsilon: float,
    stash_type: ElementType,
    n_outputs: int,
) -> Any:
    found = ops.layer_normalization(
        x, scale, b, axis=axis, epsilon=epsilon, stash_type=stash_type, return_statistics=True
    )
    return found[:n_outputs]


@version("MaxPool", 1)
def max_pool_1(
    x: Array,
    *,
    auto_pad: AutoPad,
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
    n_outputs: int,
) -> Any:
    return ops.max_pool(
        x,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        pads=pads,
        storage_order=storage_order,
        strides=strides,
        return_indices=n_outputs == 2,
    )


@version("ConvTranspose", 1)
def conv_transpose_1(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: AutoPad,
    dilations: Ints | None = None,
    group: int,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    # Beside `output_shape` the odd element is cut off at the side opposite to that of version 11. (onnxruntime 1.23
    # cuts as version 11 does, in models of every version.)
    if output_shape is not None:
        auto_pad = "SAME_LOWER" if auto_pad == "SAME_UPPER" else "SAME_UPPER"
    return ops.conv_transpose(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        output_shape=output_shape,
        pads=None if output_shape is not None else pads,
        strides=strides,
    )


version("ConvTranspose", 11)(ops.conv_transpose)


@version("Attention", 23)
def attention_23(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    is_causal: int,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: OutputMode,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float,
    softmax_precision: Literal[1, 10, 11, 16] | None = None,  # FLOAT, FLOAT16, DOUBLE and BFLOAT16
    n_outputs: int,
) -> Any:
    found = ops.attention(
        q,
        k,
        v,
        attn_mask,
        past_key,
        past_value,
        nonpad_kv_seqlen,
        is_causal=is_causal,
        kv_num_heads=kv_num_heads,
        left_window_size=left_window_size,
        q_num_heads=q_num_heads,
        qk_matmul_output_mode=qk_matmul_output_mode,
        right_window_size=right_window_size,
        scale=scale,
        softcap=softcap,
        softmax_precision=None if softmax_precision is None else element_type(softmax_precision),
        return_present=True,
        return_scores=n_outputs > 3,
    )
    return found[:n_outputs]
