"""Independent axes: along such an axis, a primitive computes each entry of its results separately.

An entry depends on the entry at the same position of some operands, and on every entry of the remaining operands. So
the entries can be computed in blocks, and surplus entries at the end of the axis do not change the entries before them.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxops.compiler.primitives import ELEMENTWISE, sizes_of, symbolic_axes
from jaxops.static import Sizes

_Params = Mapping[str, Any]
# Parameters that name the axes whose entries are combined, or that the result does not have.
_AXES = ("axes", "axis", "dimension", "dimensions")
# Parameters with an item for each axis, and the item of an axis whose entries are not combined.
PARAMETERS_BY_AXIS = {
    **{"base_dilation": 1, "window_dilation": 1, "window_dimensions": 1, "window_strides": 1, "padding": (0, 0)},
    **{"padding_config": (0, 0, 0), "start_indices": 0, "strides": 1},
}
# Primitives whose parameters do not hold the size of an independent axis.
_WITHOUT_SIZES = ELEMENTWISE | {
    *("argmax", "argmin", "concatenate", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "dot_general"),
    *("optimization_barrier", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum"),
    *("reduce_xor", "sharding_constraint", "sort", "split", "squeeze", "stack", "top_k", "transpose"),
}
# The parameter with the sizes of the result along independent axes.
SIZES = {"broadcast_in_dim": "shape", "reshape": "new_sizes", "slice": "limit_indices"}
# Elementwise operations that no pass moves.
_OF_COMPLEX = ("complex", "conj", "imag", "real")


class Axis(NamedTuple):
    """An independent axis of the results.

    operands: for each operand, the corresponding axis; None if each entry needs the complete operand.
    """

    result: int
    operands: tuple[int | None, ...]


def independent_axes(name: str, params: _Params, operands: Sequence[Sizes], result: Sizes) -> list[Axis]:
    """Returns the independent axes of an operation; none for a primitive without a rule.

    operands, result: sizes, perhaps symbolic. The axes are the same for all results of an operation.
    """
    rule = _RULES.get(name)
    return [] if rule is None else list(rule(params, operands, result))


def keeps_parameters(equation: Any) -> bool:
    """Returns True if a part of an operation along an axis has its parameters, but for the size that `SIZES` names."""
    name = equation.primitive.name
    return name in _WITHOUT_SIZES or (name in SIZES and not any(symbolic_axes(sizes_of(v)) for v in equation.outvars))


def with_size(sizes: Sizes, axis: int, size: int) -> tuple[Any, ...]:
    """Returns sizes with another one for an axis.

    >>> with_size((2, 3, 4), 1, 7)
    (2, 7, 4)
    """
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def dependent_axes(axes: Iterable[Axis], operand: int, sizes: Sizes) -> set[int]:
    """Returns the axes of one operand that correspond to none of the independent axes.

    operand: its position. sizes: those of this operand.
    """
    return set(range(len(sizes))) - {axis.operands[operand] for axis in axes}


def transposed_params(params: _Params, perm: Sequence[int]) -> dict[str, Any]:
    """Returns the parameters that depend on the order of axes, for operands whose axis a was moved to perm[a]."""
    changed: dict[str, Any] = {}
    for key, value in params.items():
        if key in _AXES:
            changed[key] = perm[value] if isinstance(value, int) else tuple(sorted(perm[axis] for axis in value))
        elif key in (*PARAMETERS_BY_AXIS, "limit_indices") and value is not None:
            changed[key] = tuple(value[perm.index(axis)] for axis in range(len(perm)))
    return changed


def _aligned(params: _Params, operands: Sequence[Sizes], result: Sizes, spread: Sequence[int] = ()) -> Iterable[Axis]:
    """Yields independent axes of an operation that keeps the order of axes, but may remove some.

    spread: sizes that are broadcast along an axis.
    """
    rank, named = max(map(len, operands)), next((params[key] for key in _AXES if key in params), ())
    named = {named} if isinstance(named, int) else set(named)
    items = [(params[key], item) for key, item in PARAMETERS_BY_AXIS.items() if params.get(key) is not None]
    remaining = [axis for axis in range(rank) if rank == len(result) or axis not in named]
    for axis, (a, size) in enumerate(zip(remaining, result, strict=False)):  # a bitcast may add or remove an axis
        sizes = {x[a] for x in operands if x}
        if a not in named and sizes <= {size, *spread} and all(values[a] == item for values, item in items):
            yield Axis(axis, tuple(a if x and x[a] == size else None for x in operands))


def _barrier(params: _Params, operands: Sequence[Sizes], result: Sizes) -> Iterable[Axis]:
    return _aligned(params, operands, result) if len(set(operands)) == 1 else ()


def _broadcast(params: _Params, operands: Sequence[Sizes], result: Sizes) -> Iterable[Axis]:
    axes = {axis: a for a, axis in enumerate(params["broadcast_dimensions"]) if operands[0][a] == result[axis]}
    return (Axis(axis, (axes.get(axis),)) for axis in range(len(result)))


def _convolution(params: _Params, operands: Sequence[Sizes], result: Sizes) -> Iterable[Axis]:
    x, filters, y = params["dimension_numbers"]
    if params["batch_group_count"] == 1:
        yield Axis(y[0], (x[0], None))
        if params["feature_group_count"] == 1:
            yield Axis(y[1], (None, filters[0]))


def _dot(params: _Params, operands: Sequence[Sizes], result: Sizes) -> Iterable[Axis]:
    summed, batches = params["dimension_numbers"]
    left, right = ([a for a in range(len(x)) if a not in (*summed[k], *batches[k])] for k, x in enumerate(operands))
    return map(
        Axis, range(len(result)), [*zip(*batches, strict=True), *((a, None) for a in left), *((None, a) for a in right)]
    )


def _fourier(params: _Params, operands: Sequence[Sizes], result: Sizes) -> Iterable[Axis]:
    return (Axis(axis, (axis,)) for axis in range(len(result) - len(params["fft_lengths"])))


def _gather(params: _Params, operands: Sequence[Sizes], result: Sizes) -> Iterable[Axis]:
    numbers, (x, indices) = params["dimension_numbers"], operands
    batches = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    left_out = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    windows, batch_axes = iter([a for a in range(len(x)) if a not in left_out]), iter(range(len(indices)))
    for axis in range(len(result)):
        if axis not in numbers.offset_dims:
            a = next(batch_axes)
            yield Axis(axis, (batches.get(a), a))
        elif (a := next(windows)) not in numbers.start_index_map and result[axis] == x[a]:
            yield Axis(axis, (a, None))


def _reshape(params: _Params, operands: Sequence[Sizes], result: Sizes) -> Iterable[Axis]:
    """Yields the axes that have the same size, and the same number of elements before them, in operand and result."""
    before = {(math.prod(operands[0][:a]), size): a for a, size in enumerate(operands[0])}
    for axis, size in enumerate(result):
        if (a := before.get((math.prod(result[:axis]), size))) is not None:
            yield Axis(axis, (a,))


def _stack(params: _Params, operands: Sequence[Sizes], result: Sizes) -> Iterable[Axis]:
    return (Axis(a + (a >= params["axis"]), (a,) * len(operands)) for a in range(len(operands[0])))


def _transpose(params: _Params, operands: Sequence[Sizes], result: Sizes) -> Iterable[Axis]:
    return (Axis(axis, (a,)) for axis, a in enumerate(params["permutation"]))


_RULES: dict[str, Callable[..., Iterable[Axis]]] = {
    **dict.fromkeys((*ELEMENTWISE, *_OF_COMPLEX, "le_to", "lt_to"), functools.partial(_aligned, spread=(1,))),
    **{f"reduce{kind}": _aligned for kind in ("", "_sum", "_max", "_min", "_prod", "_and", "_or", "_xor")},
    **{f"reduce_window{kind}": _aligned for kind in ("", "_sum", "_max", "_min")},
    **{f"cum{kind}": _aligned for kind in ("sum", "prod", "max", "min", "logsumexp")},
    **dict.fromkeys(("argmax", "argmin", "bitcast_convert_type", "concatenate", "dynamic_slice"), _aligned),
    "sharding_constraint": _aligned,
    **dict.fromkeys(("dynamic_update_slice", "pad", "rev", "slice", "sort", "split", "squeeze", "top_k"), _aligned),
    "broadcast_in_dim": _broadcast,
    "conv_general_dilated": _convolution,
    "dot_general": _dot,
    "fft": _fourier,
    "gather": _gather,
    "iota": lambda params, operands, result: (Axis(axis, ()) for axis in range(len(result))),
    "optimization_barrier": _barrier,
    "reshape": _reshape,
    "stack": _stack,
    "transpose": _transpose,
    "unstack": _aligned,
}
