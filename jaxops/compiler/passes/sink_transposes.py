"""Transposes are delayed until an operation needs the array, so that most of them meet their inverse and cancel.

ONNX has channels first, and on a CPU a convolution is fastest with channels last. So each convolution transposes its
data, and its result back. XLA cancels two transposes between adjacent convolutions, also across elementwise operations,
but not across a pad, a pool or a concatenation. This rule runs each operation on transposed data that can do so.

Reshapes of such values are delayed, too: channels can then be normalized in groups, and the positions of an image can
become a sequence, without a transpose, as in a diffusion UNet, SegFormer and PVT.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jax import lax

from jaxops.compiler.axis_rules import transposed_params
from jaxops.compiler.ir import Emit, Operation
from jaxops.compiler.passes.lazy_moves import (
    LazyBroadcast,
    LazyReshape,
    LazyTranspose,
    Perm,
    as_transpose,
    inverse,
    materialize,
    reshape,
    shared_factors,
)
from jaxops.compiler.primitives import ELEMENTWISE
from jaxops.static import Tracer

# Reductions that may run before a delayed reshape: their results do not depend on the order of elements.
_REDUCTIONS = {"reduce_max", "reduce_min", "reduce_sum"}


def sink_transposes(
    emit: Emit, operation: Operation, operands: Sequence[Any], params: Mapping[str, Any] | None = None, /
) -> Sequence[Any]:
    """Computes the results of an operation. Operands and results may be lazy values.

    emit: computes the results of an operation on arrays.
    """
    name, params = operation.name, operation.params if params is None else params
    if name == "transpose":
        return [_transposed(operands[0], params["permutation"])]
    if name == "broadcast_in_dim" and len(operands) == 1:
        return [LazyBroadcast(materialize(operands[0]), params["shape"], params["broadcast_dimensions"])]
    if name == "dynamic_update_slice":
        operands = [*operands[:2], *map(_not_negative, operands[2:])]
    if name in ("reshape", "squeeze") and isinstance(operands[0], LazyTranspose | LazyReshape):
        return [reshape(operands[0], operation.sizes(operands[0].shape))]
    call = _Call(operation, operands, params, emit)
    lazy = next((x for x in operands if isinstance(x, LazyReshape)), None)
    if lazy is not None and name in ELEMENTWISE:
        return _elementwise_before(call, lazy)
    if lazy is not None and name in _REDUCTIONS:
        return [_reduced_before(call, lazy)]
    call = call._replace(operands=list(map(as_transpose, operands)))
    lazy = next((x for x in call.operands if isinstance(x, LazyTranspose)), None)
    rule = RULES.get(name)
    return call.plain() if lazy is None or rule is None else rule(call, lazy.perm)


class _Call(NamedTuple):
    """An operation and its operands, some of which are lazy."""

    operation: Operation
    operands: Sequence[Any]
    params: Mapping[str, Any]
    emit: Emit

    def on(self, arrays: Sequence[Any], **params: Any) -> Sequence[Any]:
        """Computes the results for arrays. params: parameters to replace."""
        return self.emit(self.operation, arrays, {**self.params, **params})

    def plain(self) -> Sequence[Any]:
        """Computes the results in the layout of the program, after materializing the operands."""
        return self.on(list(map(materialize, self.operands)))


def of_strong_type(array: Any) -> Any:
    """Returns the array with a strong type, which JAX does not promote to the type of another operand."""
    return lax.convert_element_type(array, lax.dtype(array))


def _not_negative(start: Any) -> Any:
    """Returns `max(start, 0)` for a traced start of an update.

    XLA clips the start anyway. But with the maximum it makes a fusion of the update, and it compiles equal fusions
    once: DenseNet-121 compiles 83 kernels instead of 123, and starts sooner.
    """
    return lax.max(start, start.dtype.type(0)) if isinstance(start, Tracer) else start


def _transposed(value: Any, perm: Perm) -> Any:
    if isinstance(value, LazyBroadcast):
        return value.like(inverse(perm))
    value = as_transpose(value)
    if not isinstance(value, LazyTranspose):
        value = materialize(value)
        moves = _moves_channels(value.shape[0], perm)
        return LazyTranspose(value, tuple(perm)) if moves else lax.transpose(value, perm)
    return _lazily(value.array, tuple(value.perm[axis] for axis in perm))


def _lazily(array: Any, perm: Perm) -> Any:
    return array if perm == tuple(range(len(perm))) else LazyTranspose(array, perm)


def _moves_channels(batch: Any, perm: Perm) -> bool:
    """Returns True if a transpose moves the channels after the spatial axes, or back. Only such ones are delayed.

    Transposes of three axes are delayed only for a batch of one, which makes PointNet, a GRU and Conv-TasNet faster. If
    the first axis is larger, it may be the heads of attention: with their transposed keys delayed, a Llama would start
    later.
    """
    rank = len(perm)
    moves = perm in ((0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1)))
    return moves and (rank > 3 or (rank == 3 and batch == 1))


def _alike(value: Any, perm: Perm) -> Any:
    """Returns the array whose transpose by `perm` is the value; a scalar as it is."""
    if isinstance(value, LazyTranspose) and value.perm == perm:
        return value.array
    if isinstance(value, LazyBroadcast):
        return value.like(perm)
    array = materialize(value)
    return array if getattr(array, "ndim", 0) == 0 else lax.transpose(array, inverse(perm))


def _by_axis(items: Sequence[Any], perm: Perm) -> tuple[Any, ...]:
    """Returns items for the axes of an array, given those for the axes of its transpose by `perm`."""
    return tuple(items[axis] for axis in inverse(perm))


def _sunk(call: _Call, perm: Perm) -> list[Any]:
    """Computes an operation on arrays before their transpose; its parameters name the axes before the transpose."""
    operands, axes = call.operands, call.params.get("axes", ())
    if call.operation.name == "dynamic_update_slice":
        operands = [*operands[:2], *_by_axis(operands[2:], perm)]
    remaining = [array_axis for axis, array_axis in enumerate(perm) if axis not in axes]
    order = tuple(sorted(remaining).index(axis) for axis in remaining)
    results = call.on([_alike(x, perm) for x in operands], **transposed_params(call.params, perm))
    return [_lazily(y, order) for y in results]


def _elementwise_before(call: _Call, value: LazyReshape) -> list[Any]:
    """Computes an elementwise operation before a delayed reshape."""
    before = value.transposed

    def moved(x: Any) -> Any:
        if not getattr(x, "ndim", 0):
            return x
        if x.shape != value.shape:  # axes of size 1 are broadcast
            x = LazyBroadcast(materialize(x), value.shape, tuple(range(x.ndim)))
        return reshape(x, before.shape)

    results = _sunk(call._replace(operands=list(map(moved, call.operands))), before.perm)
    return [reshape(y, value.shape) for y in results]


def _reduced_before(call: _Call, value: LazyReshape) -> Any:
    """Computes a reduction before a delayed reshape: first over complete axes, then over parts of axes."""
    before, axes = value.transposed, call.params["axes"]
    factors = shared_factors(before.shape, value.shape) or []
    partly = {factor.old for factor in factors if factor.new not in axes}
    wholly = [axis for axis in range(before.ndim) if axis not in partly]
    inner = call._replace(operands=[before], params={**call.params, "axes": wholly})
    y = _sunk(inner, before.perm)[0] if wholly else before
    factors = [factor for factor in factors if factor.old in partly]
    reduced = tuple(k for k, factor in enumerate(factors) if factor.new in axes)
    if reduced:
        (y,) = call.on([lax.reshape(materialize(y), [factor.size for factor in factors])], axes=reduced)
    return reshape(y, tuple(size for axis, size in enumerate(value.shape) if axis not in axes))


def _convolution(call: _Call, perm: Perm) -> list[Any]:
    numbers = call.params["dimension_numbers"]
    specs = [numbers.lhs_spec, numbers.rhs_spec]
    for k, x in enumerate(call.operands):
        if isinstance(x, LazyTranspose):
            specs[k] = tuple(x.perm[axis] for axis in specs[k])
    numbers = lax.ConvDimensionNumbers(specs[0], specs[1], numbers.out_spec)
    return list(call.on(list(map(_array, call.operands)), dimension_numbers=numbers))


def _same_bits(call: _Call, perm: Perm) -> list[Any]:
    formal, result = call.operation.equation.invars[0].aval, call.operation.equation.outvars[0].aval
    if formal.shape == result.shape:
        return _sunk(call, perm)
    return list(call.plain())  # a bitcast to a larger or smaller dtype adds or removes an axis


def _one_by_one(call: _Call, perm: Perm) -> list[Any]:
    results = zip(call.operands, call.on(list(map(_array, call.operands))), strict=True)
    return [LazyTranspose(y, x.perm) if isinstance(x, LazyTranspose) else y for x, y in results]


def _array(value: Any) -> Any:
    return value.array if isinstance(value, LazyTranspose) else materialize(value)


RULES: dict[str, Callable[..., list[Any]]] = {
    **dict.fromkeys(ELEMENTWISE, _sunk),
    **{f"reduce_{kind}": _sunk for kind in ("sum", "max", "min", "prod", "window_sum", "window_max", "window_min")},
    **dict.fromkeys(("concatenate", "dynamic_update_slice", "pad", "slice"), _sunk),
    "bitcast_convert_type": _same_bits,
    "optimization_barrier": _one_by_one,
    "conv_general_dilated": _convolution,
}
