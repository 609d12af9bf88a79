"""Rules for windows that slide along a symbolic axis.

A window of a true result reads beyond the true elements only if the program pads them. So surplus elements get the
value of the padding: zero for a sum, the lowest number for a maximum. The padding at the end of the axis is chosen so
that there are as many windows as the padded result has elements.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from jaxops.compiler.padded.values import Capacity, Padded, bind
from jaxops.compiler.primitives import sizes_of, symbolic_axes
from jaxops.errors import UnsupportedError
from jaxops.kernels.named_call import named_call
from jaxops.static import Sizes, is_symbolic


def windowed_call(eqn: Any, inputs: Sequence[Padded], capacity: Capacity) -> list[Padded] | None:
    """Computes a named call that has an `outside` rule: the value that its windows read outside of the data.

    Returns None for any other call, if the channels or another operand have a symbolic size, and if the padding is
    symbolic.
    """
    named = named_call(eqn)
    if named is None or named.outside is None or (call := eqn.params["call"]).transforms:
        return None
    static, (sizes, *others) = dict(call.static), (sizes_of(v) for v in eqn.invars)
    windows = static["windows"]
    if is_symbolic(sizes[1]) or any(map(symbolic_axes, others)) or any(map(symbolic_axes, windows.pads)):
        return None
    axes, pads = symbolic_axes(sizes) - {0}, list(windows.pads)
    fill = named.outside(*(x.array for x in inputs), **static)
    is_zero = not isinstance(fill, jax.Array) and fill == 0
    x = Padded(inputs[0].array, inputs[0].zeroed and is_zero).masked(sizes, axes, fill, capacity)
    counts = tuple(map(capacity.of, windows.sizes))
    for axis in axes:
        k = axis - 2
        behind = _behind(x.shape[axis], counts[k], windows.kernel[k], windows.strides[k], windows.dilations[k], pads[k])
        x, pads[k] = _cropped(x, axis, pads[k][0], behind)
    static["windows"] = dataclasses.replace(windows, pads=tuple(pads), sizes=counts)
    call = call._replace(static=tuple(sorted(static.items())))
    results = eqn.primitive.bind(x, *(y.array for y in inputs[1:]), call=call)
    return [Padded(y, not symbolic_axes(sizes)) for y in results]


def convolution(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    """Computes a convolution with zeros in place of surplus elements."""
    params, (data, filters, result) = eqn.params, eqn.params["dimension_numbers"]
    groups = params["feature_group_count"], params["batch_group_count"]
    over_data, over_filters = symbolic_axes(sizes[0]), symbolic_axes(sizes[1])
    if over_filters & set(filters[2:]):
        raise UnsupportedError("a convolution with filters whose size differs from call to call")
    if groups != (1, 1) and (over_filters or over_data & {data[1]} or (groups[1] != 1 and data[0] in over_data)):
        raise UnsupportedError("a convolution in groups of channels whose number differs from call to call")
    x = inputs[0].masked(sizes[0], over_data - {data[0]}, 0, capacity)
    w = inputs[1].masked(sizes[1], over_filters - {filters[0]}, 0, capacity)
    pads = list(params["padding"])
    for k, axis in enumerate(data[2:]):
        if axis in over_data:
            count = capacity.of(eqn.outvars[0].aval.shape[result[2 + k]])
            room = (x.shape[axis] - 1) * params["lhs_dilation"][k] + 1
            kernel, dilation = w.shape[filters[2 + k]], params["rhs_dilation"][k]
            behind = _behind(room, count, kernel, params["window_strides"][k], dilation, pads[k])
            pads[k] = pads[k][0], behind
    return Padded(eqn.primitive.bind(x, w, **{**params, "padding": tuple(pads)}))


def reduction(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity, fill: Any) -> Padded:
    """Computes the sum, maximum or minimum of each window. fill: the neutral element, for surplus elements."""
    params, after = eqn.params, eqn.outvars[0].aval.shape
    axes, pads = symbolic_axes(sizes[0]), list(params["padding"])
    x = inputs[0].masked(sizes[0], axes, fill, capacity)
    for axis in axes:
        if params["base_dilation"][axis] != 1:
            raise UnsupportedError("windows over dilated data whose size differs from call to call")
        kernel, stride = params["window_dimensions"][axis], params["window_strides"][axis]
        dilation = params["window_dilation"][axis]
        behind = _behind(x.shape[axis], capacity.of(after[axis]), kernel, stride, dilation, pads[axis])
        x, pads[axis] = _cropped(x, axis, pads[axis][0], behind)
    return bind(eqn, [x], capacity, padding=tuple(pads))[0]


def _behind(room: int, count: int, kernel: int, stride: int, dilation: int, pads: tuple[Any, Any]) -> int:
    """Returns the padding after the data that gives `count` windows; a negative number crops the data."""
    before = pads[0]
    if not isinstance(before, int) or not isinstance(kernel, int):
        raise UnsupportedError("windows whose size or padding differs from call to call")
    return (count - 1) * stride + (kernel - 1) * dilation + 1 - before - room


def _cropped(x: Any, axis: int, before: int, behind: int) -> tuple[Any, tuple[int, int]]:
    """Returns the data, cropped if `behind` is negative, and its padding."""
    if behind >= 0:
        return x, (before, behind)
    return lax.slice_in_dim(x, 0, max(0, x.shape[axis] + behind), axis=axis), (before, 0)
