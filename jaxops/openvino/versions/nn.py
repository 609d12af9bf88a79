"""Matrix products, convolutions, pooling and attention."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.errors import ShapeError, amount
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import Word, of_axes, padding, scalar_like, vector, with_axes
from jaxops.shapes.arithmetic import ceiled, greater_or_equal
from jaxops.signature import ElementType, SecondOutput, Static, Weight, like, operator
from jaxops.static import Array, Dim, array, is_static


@version("MatMul", 1, of=ops.matmul)
def matmul(a: Weight[Array], b: Weight[Array], *, transpose_a: bool, transpose_b: bool) -> Array:
    """The flags have no effect on operands with one axis."""
    return ops.matmul(_transposed(a, transpose_a), _transposed(b, transpose_b))


def _transposed(x: Any, flag: bool) -> Any:
    rank = array(x).ndim
    return ops.transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2]) if flag and rank > 1 else x


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


def _windows(
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    dilations: Sequence[int],
    auto_pad: Word,
) -> dict[str, Any]:
    """Returns the attributes of a convolution as those of ONNX."""
    return {"strides": strides, "dilations": dilations, **padding(auto_pad, pads_begin, pads_end, len(strides))}


@version("Convolution", 1, of=ops.conv)
@like(_windows)
def convolution(data: Array, filters: Weight[Array], **attributes: Any) -> Array:
    return ops.conv(data, filters, **_windows(**attributes))


@version("GroupConvolution", 1, of=ops.conv)
@like(_windows)
def group_convolution(data: Array, filters: Weight[Array], **attributes: Any) -> Array:
    """Filters are (G, O / G, I / G, …)."""
    groups, w = _in_one_axis("GroupConvolution", filters)
    return ops.conv(data, w, group=groups, **_windows(**attributes))


def _in_one_axis(op: str, filters: Any) -> tuple[Dim, Any]:
    """Returns the number of groups, and the filters of all groups along the first axis."""
    w = with_axes(op, "filters", filters, 2)
    groups, per_group, *rest = w.shape
    return groups, ops.reshape(w, (groups * per_group, *rest), allowzero=1)


def _transposed_convolution(
    op: str,
    data: Any,
    w: Any,
    groups: Any,
    output_shape: Any,
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int] | None = None,
    pads_end: Sequence[int] | None = None,
    dilations: Sequence[int],
    auto_pad: Word,
    output_padding: Sequence[int] | None = None,
) -> Array:
    """Returns the transposed convolution without padding, cropped or extended with zeros to the padded size.

    With an output shape, the total padding is the size without padding minus that shape; a negative one appends zeros.
    The padding begins with `pads_begin` for "explicit", and with 0 for "valid". The text splits it in halves in these
    cases, too, but OpenVINO runs every file by this rule.
    """
    rank = len(strides)
    begins, ends, extra = (tuple(p or ()) or (0,) * rank for p in (pads_begin, pads_end, output_padding))
    kernel, sizes = array(w).shape[2:], array(data).shape[2:]
    lists = {"strides": strides, "dilations": dilations, "pads_begin": begins, "pads_end": ends}
    of_axes(op, len(sizes), filters=kernel, output_padding=extra, **lists)
    full = [s * (x - 1) + (k - 1) * d + 1 for x, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)]
    if output_shape is None:
        if auto_pad != "explicit":
            begins = ends = (0,) * rank
    else:
        asked = vector(op, "output_shape", output_shape)
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
    return ops.pad(y, [*(-p for p in begins), *(-p for p in ends)], axes=[*range(2, 2 + rank)])


def _first_pad(auto_pad: Word, total: Any, begin: int) -> Any:
    if isinstance(total, int) and total < 0:
        return 0
    halves = {"same_upper": (total + 1) // 2, "same_lower": total // 2, "explicit": begin, "valid": 0}
    return halves[auto_pad]


@version("ConvolutionBackpropData", 1)
@operator(kind="convolution")
@like(_transposed_convolution)
def convolution_backprop_data(
    data: Array, filters: Weight[Array], output_shape: Static = None, **attributes: Any
) -> Array:
    return _transposed_convolution("ConvolutionBackpropData", data, filters, 1, output_shape, **attributes)


@version("GroupConvolutionBackpropData", 1)
@operator(kind="convolution")
@like(_transposed_convolution)
def group_convolution_backprop_data(
    data: Array, filters: Weight[Array], output_shape: Static = None, **attributes: Any
) -> Array:
    """Filters are (G, I / G, O / G, …)."""
    groups, w = _in_one_axis("GroupConvolutionBackpropData", filters)
    return _transposed_convolution("GroupConvolutionBackpropData", data, w, groups, output_shape, **attributes)


def _pool(
    fn: Callable[..., Any],
    data: Any,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    rounding_type: Word,
    auto_pad: Word,
    **more: Any,
) -> Any:
    """With 'ceil' the last window may start in the padding, which is extended to the end of that window."""
    rank, windows = len(kernel), padding(auto_pad, pads_begin, pads_end, len(kernel))
    if rounding_type == "ceil" and auto_pad == "explicit":
        sizes, spaces, pads = array(data).shape[2:], dilations or (1,) * rank, windows["pads"]
        of_axes("pooling", len(sizes), kernel=kernel, strides=strides, dilations=spaces, pads=pads[::2])
        beyond = _beyond_padding(sizes, kernel, strides, spaces, pads)
        windows["pads"] = (*pads[:rank], *(end + extra for end, extra in zip(pads[rank:], beyond, strict=True)))
    if rounding_type == "ceil_torch":
        windows["ceil_mode"] = 1
    if any(d != 1 for d in dilations):
        windows["dilations"] = dilations
    return fn(data, kernel_shape=kernel, strides=strides, **windows, **more)


def _beyond_padding(
    sizes: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> list[Dim]:
    """Returns how far the last window of each axis reaches beyond the padding, with sizes rounded up."""
    rank = len(kernel)
    beyond = []
    for size, k, s, d, begin, end in zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True):
        room = size + begin + end - (k - 1) * d - 1  # after the first window
        beyond.append(ceiled(room, s) * s - room if greater_or_equal(room, 0) else -room)
    return beyond


@version("MaxPool", 1, of=ops.max_pool)
@like(_pool, without=["dilations"])
def max_pool_1(data: Array, **attributes: Any) -> Array:
    return _pool(ops.max_pool, data, dilations=(), **attributes)


@version("MaxPool", 8, of=ops.max_pool)
@like(_pool)
def max_pool_8(
    data: Array, *, index_element_type: ElementType, axis: int, return_indices: SecondOutput = False, **attributes: Any
) -> Any:
    """The second result holds the index of each element in the unpadded data, flattened from `axis` on."""
    pooled = _pool(ops.max_pool, data, return_indices=return_indices, **attributes)
    if not return_indices:
        return pooled
    values, places = pooled
    x = array(data)
    first = axis + x.ndim if axis < 0 else axis
    if first:
        places = ops.mod(places, scalar_like(places, math.prod(x.shape[first:])))
    return values, ops.cast(places, to=index_element_type)


@version("AvgPool", 16, of=ops.average_pool)
@like(_pool)
def avg_pool_16(
    data: Array, *, exclude_pad: bool, pads_begin: Sequence[int], pads_end: Sequence[int], **attributes: Any
) -> Array:
    counts_padding = not exclude_pad
    if counts_padding and attributes["rounding_type"] == "ceil" and attributes["auto_pad"] == "explicit":
        # Padding counts, but not elements beyond it, so the padding becomes a part of the data.
        rank = len(attributes["kernel"])
        pads = padding("explicit", pads_begin, pads_end, rank)["pads"]
        data, counts_padding = ops.pad(data, pads, axes=[*range(2, 2 + rank)]), False
        pads_begin = pads_end = ()
    windows = {"pads_begin": pads_begin, "pads_end": pads_end, **attributes}
    return _pool(ops.average_pool, data, count_include_pad=int(counts_padding), **windows)


@version("AvgPool", 1, of=ops.average_pool)
@like(avg_pool_16, without=["dilations"])
def avg_pool_1(data: Array, **attributes: Any) -> Array:
    """With 'ceil' and 'ceil_torch', a window does not count elements beyond the padding, as in torch and ONNX.

    The text leaves that open.
    """
    return avg_pool_16(data, dilations=(), **attributes)
