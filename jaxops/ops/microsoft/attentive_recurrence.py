"""A recurrent layer that attends to a memory at each step."""

__all__ = ["attn_lstm"]

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer
from jaxops.dtypes import as_traced, at_least_int32, floats_of_one_type
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.kernels.matmul.dot import dot
from jaxops.ops.recurrent.gate_activations import Activation, resolve
from jaxops.ops.recurrent.layers import lstm_step
from jaxops.ops.recurrent.recurrence import (
    Direction,
    State,
    Weights,
    chosen,
    clipped,
    directions,
    integers,
    last_states,
    lengths,
    run,
)
from jaxops.shapes.arithmetic import sizes_fit
from jaxops.shapes.recurrent import layers as layer_sizes
from jaxops.signature import Bias, Traits, Weight
from jaxops.static import ArrayLike, Dim, Sizes, jit_if_concrete

TRAITS = Traits(kind="recurrent")

_NAMES = ("x", "w", "r", "b", "initial_h", "initial_c", "p", "qw", "mw", "v", "m", "aw")


def _attention_size(directions: int, x: Sizes, w: Sizes, r: Sizes, shapes: Mapping[str, Any]) -> Dim:
    """Returns A, the number of elements that a step reads from the memory.

    shapes: the sizes of m (B, T, depth), mw (D, depth, attn), qw (D, hidden, attn), v (D, attn), aw (D, depth + hidden,
    n) or None, and memory_seq_lens (B,) or None. w is (D, 4 · hidden, input + A).
    """
    m, mw, aw = shapes["m"], shapes["mw"], shapes["aw"]
    for name, sizes, axes in (("x", x, 3), ("r", r, 3), ("w", w, 3), ("m", m, 3), ("mw", mw, 3), ("aw", aw, 3)):
        if sizes is not None and len(sizes) != axes:
            raise ShapeError(f"`{name}` of {shape_text(sizes)} must have {axes} axes")
    hidden, depth, inner = r[2], m[2], mw[2]
    size = depth if aw is None else aw[2]
    expected_sizes = {
        "m": (x[1], None, None),
        "mw": (directions, depth, None),
        "qw": (directions, hidden, inner),
        "v": (directions, inner),
        "memory_seq_lens": (x[1],),
        "aw": (directions, depth + hidden, None),
    }
    for name, expected in ({"w": (directions, 4 * hidden, x[2] + size)} | expected_sizes).items():
        sizes = w if name == "w" else shapes[name]
        text = shape_text(["*" if d is None else d for d in expected])
        problem = (
            f"`{name}` of {shape_text(sizes or ())} must be {text}; x is {shape_text(x)}, "
            f"with {hidden} hidden neurons and a memory of {shape_text(m)}"
        )
        if not sizes_fit(problem, sizes, expected):
            raise ShapeError(problem)
    return size


def attn_lstm(
    x: ArrayLike,
    w: Weight[ArrayLike],
    r: Weight[ArrayLike],
    b: Bias[ArrayLike] | None = None,
    sequence_lens: ArrayLike | None = None,
    initial_h: ArrayLike | None = None,
    initial_c: ArrayLike | None = None,
    p: Weight[ArrayLike] | None = None,
    qw: ArrayLike | None = None,
    mw: ArrayLike | None = None,
    v: ArrayLike | None = None,
    m: ArrayLike | None = None,
    memory_seq_lens: ArrayLike | None = None,
    aw: ArrayLike | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: Direction = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Runs an LSTM whose steps also read a context, which the step before took from a memory by Bahdanau's attention.

    x: (steps, batch, input). w: (D, 4 · hidden, input + A), for the input and the A elements from the memory. m: the
    memory (batch, T, depth). memory_seq_lens: integers (batch,) in [1, T], the numbers of rows in use. mw:
    (D, depth, n), qw: (D, hidden, n) and v: (D, n) must be given. With h, the hidden state after the step, row t has
    the score v · tanh(m[t]·mw + h·qw); the context is the sum of the rows, weighted by the softmax of the scores. aw:
    (D, hidden + depth, A) turns h and the context into the A elements for the next step; without it they are the
    context, and A is depth. The first step reads zeros. Everything is computed in float32, or float64.
    The rest, the results (Y, Y_h, Y_c) and the exceptions are as in `jaxops.lstm` with layout 0.
    Source: com.microsoft AttnLSTM, opset 1.

    >>> x, m = jnp.ones((2, 1, 2)), jnp.ones((1, 3, 4))
    >>> layer = jnp.zeros((1, 12, 6)), jnp.zeros((1, 12, 3))
    >>> attention = {"qw": jnp.ones((1, 3, 5)), "mw": jnp.ones((1, 4, 5)), "v": jnp.ones((1, 5)), "m": m}
    >>> attn_lstm(x, *layer, initial_c=jnp.array([[[4.0, 8, 0]]]), **attention)[2].tolist()
    [[[1.0, 2.0, 0.0]]]
    """
    for name, value in (("qw", qw), ("mw", mw), ("v", v), ("m", m)):
        if value is None:
            raise ArgumentError(f"`{name}` must be given, for the attention to the memory")
    both, variant = directions(direction), flag("input_forget", input_forget)
    names = ("Sigmoid", "Tanh", "Tanh") * both if activations is None else activations
    functions = resolve(names, 3 * both, activation_alpha, activation_beta)
    if clip is not None and not clip > 0:
        raise ArgumentError(f"`clip` is {clip}; it must be above 0, or left out")
    values = (x, w, r, b, initial_h, initial_c, p, qw, mw, v, m, aw)
    arrays = dict(zip(_NAMES, floats_of_one_type(**dict(zip(_NAMES, values, strict=True))), strict=True))
    shapes: dict[str, Any] = {name: None if a is None else a.shape for name, a in arrays.items()}
    lens, rows = (
        None if value is None else integers(name, value)
        for name, value in (("sequence_lens", sequence_lens), ("memory_seq_lens", memory_seq_lens))
    )
    shapes |= {"memory_seq_lens": None if rows is None else rows.shape}
    size = _attention_size(both, shapes["x"], shapes["w"], shapes["r"], shapes)
    optional_sizes = {name: shapes[name] for name in ("b", "initial_h", "initial_c", "p") if shapes[name] is not None}
    optional_sizes |= {} if lens is None else {"sequence_lens": lens.shape}
    hidden = None if hidden_size is None else integer("hidden_size", hidden_size)
    w_shape = (*shapes["w"][:2], shapes["x"][2])
    steps, *_ = layer_sizes.steps(4, both, False, hidden, shapes["x"], w_shape, shapes["r"], optional_sizes)
    lens = None if lens is None else lengths(lens, steps)
    memory = shapes["m"][1]
    if isinstance(rows, np.ndarray) and rows.dtype != object and isinstance(memory, int) and rows.size:
        wrong = rows[(rows < 1) | (rows > memory)]
        if wrong.size:
            raise ArgumentError(f"`memory_seq_lens` holds {wrong[0]}; the memory has 1 to {memory} rows")
    operands = (*arrays.values(), None if rows is None else at_least_int32(as_traced(rows)), lens)
    return _layer(operands, variant, functions, None if clip is None else float(clip), direction, size)


@jit_if_concrete
def _layer(
    operands: tuple[Any, ...],
    variant: bool,
    activations: tuple[Activation, ...],
    clip: float | None,
    direction: Direction,
    size: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    *floats, rows, lens = operands
    dtype = floats[0].dtype
    work = np.float64 if dtype == np.float64 else np.float32
    wide: list[Any] = [None if a is None else a.astype(work) for a in floats]
    x, w, r, b, h, c, p, qw, mw, v, m, aw = wide
    length, batch, width = x.shape
    both, _, hidden = r.shape
    valid = seen = None
    if lens is not None:
        counts = lax.broadcasted_iota(lens.dtype, (length, batch, 1), 0)
        valid = counts < lax.broadcast_in_dim(lens, (length, batch, 1), (1,))
        x = chosen(valid, x, jnp.zeros_like(x))  # padding may hold anything, even NaN
    if rows is not None:
        counts = lax.broadcasted_iota(rows.dtype, (batch, m.shape[1], 1), 1)
        seen = counts < lax.broadcast_in_dim(rows, counts.shape, (0,))
        m = chosen(seen, m, jnp.zeros_like(m))
    outputs, last = [], []
    each = len(activations) // both
    for d in range(both):
        functions = tuple(clipped(f, clip) for f in activations[d * each : (d + 1) * each])
        inputs = dot(x, w[d][:, :width], (((2,), (1,)), ((), ())), work)
        if b is not None:
            inputs = inputs + lax.expand_dims(b[d][: 4 * hidden] + b[d][4 * hidden :], (0, 1))
        step = lstm_step(Weights(r[d].T, None, None if p is None else p[d]), functions, variant)
        keys = dot(m, mw[d], (((2,), (0,)), ((), ())), work)

        def attending(
            row: jax.Array, state: State, step: Any = step, keys: Any = keys, d: int = d
        ) -> tuple[jax.Array, ...]:
            *cell, read = state
            after = step(row + read @ w[d][:, width:].T, tuple(cell))
            query = after[0] @ qw[d]
            scores = jnp.sum(jnp.tanh(keys + query[:, None]) * v[d][None, None], 2, keepdims=True)
            if seen is not None:
                scores = jnp.where(seen, scores, -np.inf)
            context = jnp.sum(jax.nn.softmax(scores, 1) * m, 1)
            if aw is None:
                return (*after, context)
            return (*after, after[0] @ aw[d][:hidden] + context @ aw[d][hidden:])

        zero = jnp.zeros((batch, hidden), work)
        state = tuple(zero if value is None else value[d] for value in (h, c))
        backward = direction == "reverse" or d == 1
        ys, state = run(attending, inputs, (*state, jnp.zeros((batch, size), work)), valid, backward)
        outputs.append(ys)
        last.append(last_states(state[:2], lens, length))
    states = (jnp.stack(values) for values in zip(*last, strict=True))
    y, y_h, y_c = (value.astype(dtype) for value in (jnp.stack(outputs, 1), *states))
    return y, y_h, y_c
