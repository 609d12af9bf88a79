"""Matrix products, convolutions, pooling and attention."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from jaxops import ops
from jaxops.errors import ShapeError, amount
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import AutoPad, of_axes, scalar_like, vector, window, with_axes
from jaxops.shapes.arithmetic import ceiled, greater_or_equal
from jaxops.signature import ElementType, SecondOutput, Static, Weight, operator
from jaxops.static import Array, Dim, array, is_static


@version("MatMul", 1, of=ops.matmul)
def matmul(a: Weight[Array], b: Weight[Array], *, transpose_a: bool, transpose_b: bool) -> Array:
    """The flags have no effect on operands with one axis."""
    return ops.matmul(_transposed(a, transpose_a), _transposed(b, transpose_b))


def _transposed(x: Any, flag: bool) -> Any:
    rank = array(x).ndim
    return ops.transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2]) if flag and rank > 1 else x


version("Einsum", 7)(ops.einsum)


@version("ScaledDotProductAttention", 13, of=ops.attention)
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attention_mask: Array | None = None,
    scale: Array | None = None,
    *,
    causal: bool,
) -> Array:
    """Batch axes broadcast. With `causal`, row i sees keys 0 to i, whatever the mask. A scalar mask is ignored."""
    q, k, v = (array(x) for x in (query, key, value))
    mask = None if attention_mask is None or causal or array(attention_mask).ndim == 0 else array(attention_mask)
    factor: float | None = None
    if scale is not None:
        if is_static(scale):
            factor = float(np.asarray(scale).reshape(-1)[0])
        else:
            q, factor = array(ops.mul(q, ops.reshape(scale, ()))), 1.0
    batches = [x.shape[:-2] for x in (q, k, v)]
    batch = _common(batches)
    q, k, v = (x if x.shape[:-2] == batch else array(ops.expand(x, (*batch, *x.shape[-2:]))) for x in (q, k, v))
    if len(batch) == 2:
        return ops.attention(q, k, v, mask, is_causal=int(causal), scale=factor)
    flat_q, flat_k, flat_v = (_four_axes(x, batch) for x in (q, k, v))
    if mask is not None and mask.ndim > 2:
        mask = _four_axes(array(ops.expand(mask, (*batch, *mask.shape[-2:]))), batch)
    y = ops.attention(flat_q, flat_k, flat_v, mask, is_causal=int(causal), scale=factor)
    return ops.reshape(y, (*batch, q.shape[-2], v.shape[-1]), allowzero=1)


def _four_axes(x: Any, batch: Sequence[Dim]) -> Any:
    """Returns an operand with two batch axes; the first one joins all but the last."""
    heads = batch[-1] if len(batch) > 1 else 1
    return ops.reshape(
        x, (math.prod(batch[:-1]) if len(batch) > 1 else math.prod(batch), heads, *x.shape[-2:]), allowzero=1
    )


def _common(shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    if all(shape == shapes[0] for shape in shapes):
        return tuple(shapes[0])
    return np.broadcast_shapes(*shapes)


@version("Convolution", 1, of=ops.conv)
def convolution(
    data: Array,
    filters: Weight[Array],
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    dilations: Sequence[int],
    auto_pad: AutoPad,
) -> Array:
    padding = window(auto_pad, pads_begin, pads_end, len(strides))
    return ops.conv(data, filters, strides=strides, dilations=dilations, **padding)


@version("GroupConvolution", 1, of=ops.conv)
def group_convolution(
    data: Array,
    filters: Weight[Array],
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    dilations: Sequence[int],
    auto_pad: AutoPad,
) -> Array:
    """Filters are (G, O / G, I / G, …)."""
    w = with_axes("GroupConvolution", "filters", filters, 2)
    groups, per_group, *rest = w.shape
    padding = window(auto_pad, pads_begin, pads_end, len(strides))
    w = ops.reshape(w, (groups * per_group, *rest), allowzero=1)
    return ops.conv(data, w, group=groups, strides=strides, dilations=dilations, **padding)


@version("ConvolutionBackpropData", 1)
@operator(kind="convolution")
def convolution_backprop_data(
    data: Array,
    filters: Weight[Array],
    output_shape: Static = None,
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int] | None = None,
    pads_end: Sequence[int] | None = None,
    dilations: Sequence[int],
    auto_pad: AutoPad,
    output_padding: Sequence[int] | None = None,
) -> Array:
    asked = None if output_shape is None else vector("ConvolutionBackpropData", "output_shape", output_shape)
    return _transposed_convolution(
        data, filters, 1, asked, strides, dilations, (auto_pad, pads_begin, pads_end, output_padding)
    )


@version("GroupConvolutionBackpropData", 1)
@operator(kind="convolution")
def group_convolution_backprop_data(
    data: Array,
    filters: Weight[Array],
    output_shape: Static = None,
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int] | None = None,
    pads_end: Sequence[int] | None = None,
    dilations: Sequence[int],
    auto_pad: AutoPad,
    output_padding: Sequence[int] | None = None,
) -> Array:
    """Filters are (G, I / G, O / G, …)."""
    asked = None if output_shape is None else vector("GroupConvolutionBackpropData", "output_shape", output_shape)
    w = with_axes("GroupConvolutionBackpropData", "filters", filters, 2)
    groups, per_group, *rest = w.shape
    w = ops.reshape(w, (groups * per_group, *rest), allowzero=1)
    return _transposed_convolution(
        data, w, groups, asked, strides, dilations, (auto_pad, pads_begin, pads_end, output_padding)
    )


def _transposed_convolution(
    data: Any, w: Any, groups: int, asked: Any, strides: Any, dilations: Any, padding: tuple[AutoPad, Any, Any, Any]
) -> Array:
    """Returns the transposed convolution without padding, cropped or extended with zeros to the padded size.

    With an output shape, the total padding is the size without padding minus that shape; a negative one appends zeros.
    The padding begins with `pads_begin` for "explicit", and with 0 for "valid". The text splits it in halves in these
    cases, too, but OpenVINO runs every file by this rule.
    """
    auto_pad, pads_begin, pads_end, output_padding = padding
    rank = len(strides)
    begins, ends, extra = (tuple(p or ()) or (0,) * rank for p in (pads_begin, pads_end, output_padding))
    kernel, sizes = array(w).shape[2:], array(data).shape[2:]
    lists = {"strides": strides, "dilations": dilations, "pads_begin": begins, "pads_end": ends}
    of_axes("ConvolutionBackpropData", len(sizes), filters=kernel, output_padding=extra, **lists)
    full = [s * (x - 1) + (k - 1) * d + 1 for x, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)]
    if asked is None:
        if auto_pad != "explicit":
            begins = ends = (0,) * rank
    else:
        if asked.size != rank:
            has = amount(asked.size, "number")
            raise ShapeError(f"`output_shape` has {has}; it must have {rank}, one per spatial axis")
        totals = [f - o + e for f, o, e in zip(full, asked.tolist(), extra, strict=True)]
        begins = tuple(_first_pad(auto_pad, total, begin) for total, begin in zip(totals, begins, strict=True))
        ends = tuple(total - begin for total, begin in zip(totals, begins, strict=True))
    ends = tuple(end - more for end, more in zip(ends, extra, strict=True))
    direct = all(isinstance(p, int) and p >= 0 for p in (*begins, *ends))
    pads = (*begins, *ends) if direct else (0,) * (2 * rank)
    y = ops.conv_transpose(data, w, group=groups, strides=strides, dilations=dilations, pads=pads)
    if direct:
        return y
    return ops.pad(y, [*(-p for p in begins), *(-p for p in ends)], axes=range(2, 2 + rank))


def _first_pad(auto_pad: AutoPad, total: Any, begin: int) -> Any:
    if isinstance(total, int) and total < 0:
        return 0
    halves = {"same_upper": (total + 1) // 2, "same_lower": total // 2, "explicit": begin, "valid": 0}
    return halves[auto_pad]


def _pool_sizes(
    sizes: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> list[Dim]:
    """Returns how far the last window of each axis reaches beyond the padding, with sizes rounded up."""
    rank = len(kernel)
    beyond = []
    for size, k, s, d, begin, end in zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True):
        room = size + begin + end - (k - 1) * d - 1  # after the first window
        beyond.append(ceiled(room, s) * s - room if greater_or_equal(room, 0) else -room)
    return beyond


def _pooling(
    kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], rounding: str, padding: dict[str, Any]
) -> dict[str, Any]:
    options = {"kernel_shape": kernel, "strides": strides, **padding}
    if rounding == "ceil_torch":
        options["ceil_mode"] = 1
    return {**options, "dilations": dilations} if any(d != 1 for d in dilations) else options


def _pool(
    fn: Any, data: Any, kernel: Any, strides: Any, dilations: Any, rounding: str, padding: dict[str, Any], **more: Any
) -> Any:
    """With 'ceil' the last window may start in the padding, which is extended to the end of that window."""
    if rounding == "ceil" and "pads" in padding:
        sizes, spaces = array(data).shape[2:], dilations or (1,) * len(kernel)
        of_axes("pooling", len(sizes), kernel=kernel, strides=strides, dilations=spaces, pads=padding["pads"][::2])
        beyond = _pool_sizes(sizes, kernel, strides, spaces, padding["pads"])
        if beyond != [0] * len(beyond):
            rank = len(kernel)
            ends = [end + extra for end, extra in zip(padding["pads"][rank:], beyond, strict=True)]
            padding = {"pads": (*padding["pads"][:rank], *ends)}
    return fn(data, **_pooling(kernel, strides, dilations, rounding, padding), **more)


@version("MaxPool", 1, of=ops.max_pool)
def max_pool_1(
    data: Array,
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    kernel: Sequence[int],
    rounding_type: Literal["floor", "ceil"],
    auto_pad: AutoPad,
) -> Array:
    padding = window(auto_pad, pads_begin, pads_end, len(kernel))
    return _pool(ops.max_pool, data, kernel, strides, (), rounding_type, padding)


@version("MaxPool", 8, of=ops.max_pool)
def max_pool_8(
    data: Array,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    kernel: Sequence[int],
    rounding_type: Literal["floor", "ceil", "ceil_torch"],
    auto_pad: AutoPad,
    index_element_type: ElementType,
    axis: int,
    return_indices: SecondOutput = False,
) -> Any:
    """The second result holds the index of each element in the unpadded data, flattened from `axis` on."""
    padding = window(auto_pad, pads_begin, pads_end, len(kernel))
    pooled = _pool(
        ops.max_pool, data, kernel, strides, dilations, rounding_type, padding, return_indices=return_indices
    )
    if not return_indices:
        return pooled
    values, places = pooled
    x = array(data)
    first = axis + x.ndim if axis < 0 else axis
    if first:
        places = ops.mod(places, scalar_like(places, math.prod(x.shape[first:])))
    return values, ops.cast(places, to=index_element_type)


@version("AvgPool", 1, of=ops.average_pool)
def avg_pool_1(
    data: Array,
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    kernel: Sequence[int],
    exclude_pad: bool,
    rounding_type: Literal["floor", "ceil", "ceil_torch"],
    auto_pad: AutoPad,
) -> Array:
    """With 'ceil' and 'ceil_torch', a window does not count elements beyond the padding, as in torch and ONNX.

    The text leaves that open.
    """
    return avg_pool_16(
        data,
        strides=strides,
        dilations=(),
        pads_begin=pads_begin,
        pads_end=pads_end,
        kernel=kernel,
        exclude_pad=exclude_pad,
        rounding_type=rounding_type,
        auto_pad=auto_pad,
    )


@version("AvgPool", 16, of=ops.average_pool)
def avg_pool_16(
    data: Array,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    kernel: Sequence[int],
    exclude_pad: bool,
    rounding_type: Literal["floor", "ceil", "ceil_torch"],
    auto_pad: AutoPad,
) -> Array:
    padding = window(auto_pad, pads_begin, pads_end, len(kernel))
    include = int(not exclude_pad)
    if rounding_type != "ceil" or "pads" not in padding or exclude_pad:
        return _pool(
            ops.average_pool, data, kernel, strides, dilations, rounding_type, padding, count_include_pad=include
        )
    # Padding counts, but not elements beyond it, so the padding becomes a part of the data.
    rank, pads = len(kernel), padding["pads"]
    padded = ops.pad(data, pads, axes=range(2, 2 + rank))
    inside = {"pads": (0,) * (2 * rank)}
    return _pool(ops.average_pool, padded, kernel, strides, dilations, rounding_type, inside, count_include_pad=0)
