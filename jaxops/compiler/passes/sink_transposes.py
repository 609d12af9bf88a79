"""Transposes are held back until an operation needs them, so that most meet their inverse.

ONNX has channels first, and on a CPU a convolution is fastest with channels last: it transposes its data, and its
result back. XLA cancels the two transposes between neighbours, and follows the layout through elementwise operations,
but not through a pad, a pool or a concatenation. Here each operation that works as well on transposed data does so.

Reshapes of such values are held back with them: groups of channels are normalized, and places of an image become a
sequence, where they lie. A UNet of diffusion takes 0.96 of a call, SegFormer 0.9, PVT 0.7.
"""

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from jaxops.compiler.ir import Operation
from jaxops.compiler.passes import select_reductions
from jaxops.compiler.passes.lazy_moves import (
    Moved,
    Perm,
    Reshaped,
    Spread,
    as_moved,
    inverse,
    reshaped,
    settled,
    shared,
)
from jaxops.compiler.primitives import ELEMENTWISE
from jaxops.static import Tracer


def bind(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of an operation, some of them not arrays yet, as its operands may be."""
    name, params = operation.name, operation.params
    if name == "transpose":
        return [_transposed(operands[0], params["permutation"])]
    if name == "broadcast_in_dim" and len(operands) == 1:
        return [Spread(settled(operands[0]), params["shape"], params["broadcast_dimensions"])]
    if name == "dynamic_update_slice":
        operands = [*operands[:2], *map(_not_negative, operands[2:])]
    if name in ("reshape", "squeeze") and isinstance(operands[0], Moved | Reshaped):
        return [reshaped(operands[0], operation.sizes(operands[0].shape))]
    whole = next((x for x in operands if isinstance(x, Reshaped)), None)
    if whole is not None and name in ELEMENTWISE:
        return _elementwise_before(operation, operands, whole)
    if whole is not None and name in select_reductions.NAMES:
        return [_reduced_before(operation, whole)]
    operands = list(map(as_moved, operands))
    moved = next((x for x in operands if isinstance(x, Moved)), None)
    rule = RULES.get(name)
    if moved is None or rule is None:
        arrays = list(map(settled, operands))
        if name in select_reductions.NAMES:
            return [select_reductions.bind(operation, arrays[0], tuple(sorted(params["axes"])))]
        return operation.bind(arrays)
    return rule(operation, operands, moved.perm)


def of_strong_type(array: Any) -> Any:
    """The same array, whose type no operation with another array would change."""
    return lax.convert_element_type(array, lax.dtype(array))


def _not_negative(start: Any) -> Any:
    """Where an update starts. XLA does the same, but a maximum makes a fusion of it; equal ones are compiled once.

    DenseNet-121 compiles 83 kernels for 123, and starts in 0.86 of the time.
    """
    return lax.max(start, start.dtype.type(0)) if isinstance(start, Tracer) else start


def _transposed(value: Any, perm: Perm) -> Any:
    if isinstance(value, Spread):
        return value.like(inverse(perm))
    value = as_moved(value)
    if not isinstance(value, Moved):
        value = settled(value)
        return Moved(value, tuple(perm)) if _moves_channels(value.shape[0], perm) else lax.transpose(value, perm)
    return _as_moved(value.array, tuple(value.perm[axis] for axis in perm))


def _as_moved(array: Any, perm: Perm) -> Any:
    return array if perm == tuple(range(len(perm))) else Moved(array, perm)


def _moves_channels(batch: Any, perm: Perm) -> bool:
    """Whether the axis of channels goes behind the spatial ones, or back.

    Of three axes, the first may be the heads of attention, whose keys are transposed: held back, they would start a
    Llama in 1.4 of the time. For a batch of one PointNet takes 0.65 of a call, a GRU 0.85, Conv-TasNet 0.92.
    """
    rank = len(perm)
    moves = perm in ((0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1)))
    return moves and (rank > 3 or (rank == 3 and batch == 1))


def _alike(value: Any, perm: Perm) -> Any:
    """The array that stands for a value which is transposed like another; a scalar stands for itself."""
    if isinstance(value, Moved) and value.perm == perm:
        return value.array
    if isinstance(value, Spread):
        return value.like(perm)
    found = settled(value)
    return found if getattr(found, "ndim", 0) == 0 else lax.transpose(found, inverse(perm))


def _by_axis(items: Sequence[Any], perm: Perm) -> tuple[Any, ...]:
    """What is said for each axis of a value, for each axis of its array."""
    return tuple(items[axis] for axis in inverse(perm))


def _elementwise(operation: Operation, operands: Sequence[Any], perm: Perm) -> list[Any]:
    found = operation.bind([_alike(x, perm) for x in operands], operation.params)
    return [Moved(y, perm) for y in found]


def _along_axes(*names: str) -> Callable[..., list[Any]]:
    """The rule of an operation with parameters that say something for each axis."""

    def rule(operation: Operation, operands: Sequence[Any], perm: Perm) -> list[Any]:
        params = dict(operation.params)
        params |= {name: _by_axis(params[name], perm) for name in names if params[name] is not None}
        return [Moved(y, perm) for y in operation.bind([_alike(x, perm) for x in operands], params)]

    return rule


def _concatenate(operation: Operation, operands: Sequence[Any], perm: Perm) -> list[Any]:
    params = {**operation.params, "dimension": perm[operation.params["dimension"]]}
    return [Moved(y, perm) for y in operation.bind([_alike(x, perm) for x in operands], params)]


def _update(operation: Operation, operands: Sequence[Any], perm: Perm) -> list[Any]:
    arrays = [_alike(x, perm) for x in operands[:2]]
    return [Moved(y, perm) for y in operation.bind([*arrays, *_by_axis(operands[2:], perm)])]


def _reduce(operation: Operation, operands: Sequence[Any], perm: Perm) -> list[Any]:
    return [_reduced(operation, operands[0], operation.params["axes"])]


def _reduced(operation: Operation, value: Moved, axes: Sequence[int]) -> Any:
    perm = value.perm
    moved = tuple(sorted(perm[axis] for axis in axes))
    kept = [perm[axis] for axis in range(len(perm)) if axis not in axes]
    places = tuple(sorted(kept).index(axis) for axis in kept)
    return _as_moved(select_reductions.bind(operation, value.array, moved), places)


def _elementwise_before(operation: Operation, operands: Sequence[Any], value: Reshaped) -> list[Any]:
    """An operation before a reshape that was held back."""
    before = value.moved

    def there(x: Any) -> Any:
        if not getattr(x, "ndim", 0):
            return x
        spread = x.shape != value.shape  # JAX lets an axis of size 1 stand for all places
        return reshaped(Spread(settled(x), value.shape, tuple(range(x.ndim))) if spread else x, before.shape)

    return [reshaped(y, value.shape) for y in _elementwise(operation, list(map(there, operands)), before.perm)]


def _reduced_before(operation: Operation, value: Reshaped) -> Any:
    """A reduction before a reshape: first over the axes that it takes whole, then over parts of the others."""
    before, axes = value.moved, operation.params["axes"]
    pieces = shared(before.shape, value.shape) or []
    kept = {piece.old for piece in pieces if piece.new not in axes}
    whole = [axis for axis in range(before.ndim) if axis not in kept]
    y = _reduced(operation, before, whole) if whole else before
    pieces = [piece for piece in pieces if piece.old in kept]
    rest = tuple(k for k, piece in enumerate(pieces) if piece.new in axes)
    if rest:
        y = select_reductions.bind(operation, lax.reshape(settled(y), [piece.size for piece in pieces]), rest)
    return reshaped(y, tuple(size for axis, size in enumerate(value.shape) if axis not in axes))


def _convolution(operation: Operation, operands: Sequence[Any], perm: Perm) -> list[Any]:
    numbers = operation.params["dimension_numbers"]
    specs = [numbers.lhs_spec, numbers.rhs_spec]
    for k, x in enumerate(operands):
        if isinstance(x, Moved):
            specs[k] = tuple(x.perm[axis] for axis in specs[k])
    numbers = lax.ConvDimensionNumbers(specs[0], specs[1], numbers.out_spec)
    arrays = [x.array if isinstance(x, Moved) else settled(x) for x in operands]
    return list(operation.bind(arrays, {**operation.params, "dimension_numbers": numbers}))


def _same_bits(operation: Operation, operands: Sequence[Any], perm: Perm) -> list[Any]:
    formal, result = operation.equation.invars[0].aval, operation.equation.outvars[0].aval
    if formal.shape == result.shape:
        return _elementwise(operation, operands, perm)
    return list(operation.bind(list(map(settled, operands))))  # elements of other sizes make an axis


def _one_by_one(operation: Operation, operands: Sequence[Any], perm: Perm) -> list[Any]:
    arrays = [x.array if isinstance(x, Moved) else settled(x) for x in operands]
    found = zip(operands, operation.bind(arrays), strict=True)
    return [Moved(y, x.perm) if isinstance(x, Moved) else y for x, y in found]


RULES: dict[str, Callable[..., list[Any]]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"), _reduce),
    **dict.fromkeys(
        ("reduce_window_sum", "reduce_window_max", "reduce_window_min"),
        _along_axes("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation"),
    ),
    "bitcast_convert_type": _same_bits,
    "optimization_barrier": _one_by_one,
    "concatenate": _concatenate,
    "conv_general_dilated": _convolution,
    "dynamic_update_slice": _update,
    "pad": _along_axes("padding_config"),
    "slice": _along_axes("start_indices", "limit_indices", "strides"),
}
