"""Shared by recurrent layers: their operands, and the scan over the steps in one or two directions."""

import operator
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, one_of
from jaxops.dtypes import as_traced, at_least_int32, is_float, require_integers, unify
from jaxops.errors import ArgumentError
from jaxops.kernels.matmul.dot import dot
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.recurrent.gate_activations import Activation
from jaxops.shapes.recurrent import layers as sizes_of
from jaxops.static import Array, jit_if_concrete, static_array

Direction = Literal["forward", "reverse", "bidirectional"]
State: TypeAlias = tuple[jax.Array, ...]
Step: TypeAlias = Callable[[jax.Array, State], State]


class Weights(NamedTuple):
    """The weights of a step in one direction: R in the form that `Cell.recurrence` gives, the bias that the step adds,
    and the peepholes; None for a missing bias or peepholes.
    """

    r: Any
    bias: jax.Array | None
    p: jax.Array | None


def _inputs_times_w(x: Any, w: Any, valid: Any) -> Any:
    if valid is not None:
        # Padding may hold anything, even NaN, which must not reach a gradient.
        x = chosen(valid, x, jnp.zeros_like(x))
    return dot(x, w, (((2,), (1,)), ((), ())), x.dtype)


class Cell(NamedTuple):
    """A kind of layer. `step` makes the step of one direction; `variant` is the attribute that changes it.

    inputs: multiplies x of all steps by W of one direction; its third argument is a mask of the valid elements of x,
    None if all are valid. recurrence: makes `Weights.r` from R of one direction. A cell with `inputs` of its own may
    store W and R in another form: as pytrees of arrays whose first axis is that of the directions. Their `shape` must
    be that of the arrays that they stand for.
    """

    step: Callable[[Weights, tuple[Callable[[Any], Any], ...], bool], Step]
    gates: int
    states: int
    # In the variant, the step itself adds the recurrence bias of this gate and of all later gates.
    own_bias: int | None = None
    inputs: Callable[[Any, Any, Any], Any] = _inputs_times_w
    recurrence: Callable[[Any], Any] = jnp.transpose


def directions(direction: Direction) -> int:
    """The number of directions."""
    return 2 if one_of("direction", direction, Direction) == "bidirectional" else 1


def layer(
    cell: Cell,
    variant: bool,
    activations: tuple[Activation, ...],
    operands: dict[str, Any],
    *,
    clip: float | None,
    direction: Direction,
    hidden_size: int | None,
    layout: int,
) -> tuple[jax.Array, ...]:
    """Runs a layer. Returns Y, and the last value of each state.

    operands: x, w, r, b, sequence_lens, initial_h, initial_c and p, None if left out. w, r: see `Cell`.
    """
    batch_first, sequence_lens = flag("layout", layout), operands.get("sequence_lens")
    pytrees = {} if cell.inputs is _inputs_times_w else {name: operands[name] for name in ("w", "r")}
    absent = {name for name, x in operands.items() if x is None} | {"sequence_lens", *pytrees}
    present = {name: x for name, x in operands.items() if name not in absent}
    floats = dict(zip(present, unify(tuple(present.values()), tuple(f"{n} " for n in present)), strict=True))
    arrays = {name: as_traced(value) for name, value in floats.items()}
    require("floating-point", *arrays.values())
    if clip is not None and not clip > 0:
        raise ArgumentError(f"`clip` is {clip}; it must be above 0, or left out")
    lens = None if sequence_lens is None else integers("sequence_lens", sequence_lens)
    optional_sizes = {name: value.shape for name, value in arrays.items() if name not in ("x", "w", "r")}
    if lens is not None:
        optional_sizes["sequence_lens"] = lens.shape
    size = None if hidden_size is None else integer("hidden_size", hidden_size)
    arrays |= pytrees
    x, w, r = (arrays[name].shape for name in ("x", "w", "r"))
    both = directions(direction)
    length, _, _ = sizes_of.steps(cell.gates, both, batch_first, size, x, w, r, optional_sizes)
    if lens is not None:
        lens = lengths(lens, length)
    values = tuple(arrays.get(name) for name in ("x", "w", "r", "b", "initial_h", "initial_c", "p"))
    bound = None if clip is None else float(clip)
    return _layer((*values, lens), cell, variant, activations, bound, direction, batch_first)


def integers(operand: str, lens: Any) -> Array:
    """An operand of integers: a static one as a NumPy array."""
    lens = lens if isinstance(lens, jax.Array) else static_array(lens)
    require_integers(operand, lens)
    return lens


def lengths(lens: Array, length: Any) -> jax.Array | None:
    """The lengths as a JAX array; None if each is known to be the number of steps. Static lengths are checked."""
    if isinstance(lens, np.ndarray):
        if all(item == length for item in lens.flat):
            return None
        outside = [item for item in lens.flat if isinstance(length, int) and isinstance(item, np.integer)]
        outside = [int(item) for item in outside if not 0 <= item <= length]
        if outside:
            raise ArgumentError(f"`sequence_lens` holds {outside[0]}, but x has {length} steps")
    return at_least_int32(as_traced(lens))


@jit_if_concrete
def _layer(
    operands: tuple[Any, ...],
    cell: Cell,
    variant: bool,
    activations: tuple[Activation, ...],
    clip: float | None,
    direction: Direction,
    batch_first: bool,
) -> tuple[jax.Array, ...]:
    x, lens = operands[0], operands[-1]
    dtype = x.dtype
    work = np.float64 if dtype == np.float64 else np.float32
    x, w, r, b, h, c, p = jax.tree.map(lambda v: v.astype(work) if is_float(v.dtype) else v, operands[:-1])
    if batch_first:
        x = jnp.swapaxes(x, 0, 1)
        h, c = (None if v is None else jnp.swapaxes(v, 0, 1) for v in (h, c))
    length, batch, _ = x.shape
    both, _, hidden = r.shape
    valid = None
    if lens is not None:
        counts = lax.broadcasted_iota(lens.dtype, (length, batch, 1), 0)
        valid = counts < lax.broadcast_in_dim(lens, (length, batch, 1), (1,))
    outputs, last = [], []
    each = len(activations) // both
    for d in range(both):
        functions = tuple(clipped(f, clip) for f in activations[d * each : (d + 1) * each])
        w_d, r_d = (jax.tree.map(operator.itemgetter(d), matrices) for matrices in (w, r))
        inputs, bias = _with_bias(cell.inputs(x, w_d, valid), None if b is None else b[d], cell, variant)
        weights = Weights(cell.recurrence(r_d), bias, None if p is None else p[d])
        zero = jnp.zeros((batch, hidden), work)
        state = tuple(zero if v is None else v[d] for v in (h, c)[: cell.states])
        backward = direction == "reverse" or d == 1
        ys, state = run(cell.step(weights, functions, variant), inputs, state, valid, backward)
        outputs.append(ys)
        last.append(last_states(state, lens, length))
    y = jnp.stack(outputs, 1)
    states = [jnp.stack(values) for values in zip(*last, strict=True)]
    y = assert_sizes(y, (length, both, batch, hidden), work)
    if batch_first:
        y, states = jnp.transpose(y, (2, 0, 1, 3)), [jnp.swapaxes(v, 0, 1) for v in states]
    return tuple(lax.convert_element_type(v, dtype) for v in (y, *states))


def clipped(function: Activation, clip: float | None) -> Callable[[Any], Any]:
    """A function of its input, clipped to [-clip, clip] first; None does not clip."""
    return function if clip is None or not function.bounded else lambda x: function(jnp.clip(x, -clip, clip))


def _with_bias(product: Any, b: Any, cell: Cell, variant: bool) -> tuple[Any, Any]:
    """The inputs of all steps times W, plus the biases that need no state; and the bias that the step adds, or None."""
    if b is None:
        return product, None
    ours, theirs = jnp.split(b, 2)
    if not variant or cell.own_bias is None:
        return product + _row(ours + theirs), None
    first = cell.own_bias * (len(ours) // cell.gates)
    shared = jnp.concatenate([theirs[:first], jnp.zeros_like(theirs[first:])])
    return product + _row(ours + shared), _row(theirs[first:])[0]


def _row(vector: Any) -> Any:
    return lax.expand_dims(vector, (0, 1))


def run(step: Step, inputs: Any, state: State, valid: Any, backward: bool) -> tuple[jax.Array, State]:
    """The hidden state after each step, 0 after the end of a sequence; and the last states.

    A step after the end of a sequence leaves its state unchanged. In the backward direction these steps come first, so
    the initial state reaches the last step of each sequence without a move of data.
    """

    def one(state: State, row: Any) -> tuple[State, jax.Array]:
        x, counts = row
        after = step(x, state)
        if counts is None:
            return after, after[0]
        next_state = tuple(chosen(counts, new, old) for new, old in zip(after, state, strict=True))
        return next_state, chosen(counts, after[0], jnp.zeros_like(after[0]))

    # A single step, as in streaming, runs without a loop: there the product reads the matrix in the layout that it has.
    if isinstance(inputs.shape[0], int) and inputs.shape[0] == 1:
        last, y = one(state, jax.tree.map(lambda x: x[0], (inputs, valid)))
        return lax.expand_dims(y, (0,)), last
    last, ys = lax.scan(one, state, (inputs, valid), reverse=backward)
    return ys, last


def chosen(condition: Any, one: Any, other: Any) -> Any:
    """Selects elements of one array or of the other; `condition` has fewer axes, or some of size 1."""
    return lax.select(lax.broadcast_in_dim(condition, one.shape, tuple(range(condition.ndim))), one, other)


def last_states(state: State, lens: Any, length: Any) -> State:
    """The last states; those of a sequence of length 0 are 0, as in onnxruntime, not the initial states."""
    if lens is not None:
        some = lax.expand_dims(lens > 0, (1,))
        return tuple(chosen(some, v, jnp.zeros_like(v)) for v in state)
    return tuple(map(jnp.zeros_like, state)) if isinstance(length, int) and length == 0 else state
