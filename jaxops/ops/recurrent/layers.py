"""Recurrent layers: a cell with a hidden state, run along sequences in one or both directions.

The inputs of all steps are multiplied by W at once, before the loop. 16-bit types are computed in float32.
"""

__all__ = ["gru", "lstm", "rnn"]

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxops.attributes import flag
from jaxops.kernels.stored_values import stored_gate
from jaxops.ops.recurrent.gate_activations import resolve
from jaxops.ops.recurrent.recurrence import Cell, Direction, State, Step, Weights, directions, layer
from jaxops.signature import Bias, Traits, Weight
from jaxops.static import ArrayLike

TRAITS = Traits(kind="recurrent")


def rnn(
    x: ArrayLike,
    w: Weight[ArrayLike],
    r: Weight[ArrayLike],
    b: Bias[ArrayLike] | None = None,
    sequence_lens: ArrayLike | None = None,
    initial_h: ArrayLike | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: Direction = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """A layer of cells with one gate: Hₜ = f(Xₜ·Wᵀ + Hₜ₋₁·Rᵀ + Wb + Rb).

    x: (steps, batch, input), floats. w: (D, hidden, input). r: (D, hidden, hidden). b: (D, 2 · hidden), Wb then Rb.
    initial_h: (D, batch, hidden). b and initial_h are 0 when left out. All of one dtype; D is 2 for the direction
    'bidirectional', else 1.
    sequence_lens: (batch,), integers from 0 to steps: the length of each sequence; all steps when left out. After the
    end of a sequence Y is 0; the reverse direction begins at its last step. A traced length is clipped to the range.
    Returns (Y, Y_h): (steps, D, batch, hidden), the state after each step, and (D, batch, hidden), the state after
    the last step that was computed; for a sequence of length 0 it is 0.
    layout: 1 puts batch first, in x, Y, initial_h and Y_h.
    activations: f of each direction: Affine, Relu, LeakyRelu, ThresholdedRelu, Tanh, ScaledTanh, Sigmoid, HardSigmoid,
    Elu, Softsign or Softplus, in upper or lower case. activation_alpha, activation_beta: the coefficients of those
    that have some, in this order. clip: bounds the input of an activation to [-clip, clip].
    hidden_size: only checked against r.
    Raises ShapeError, DTypeError, ArgumentError for an attribute or static length outside its range.
    Source: ONNX RNN, opsets 1–22.

    >>> y, y_h = rnn(jnp.ones((5, 1, 2)), jnp.ones((1, 3, 2)), jnp.zeros((1, 3, 3)), activations=["Relu"])
    >>> y.shape, y_h.tolist()
    ((5, 1, 1, 3), [[[2.0, 2.0, 2.0]]])
    """
    both = directions(direction)
    # The default is that of both directions.
    names = activations[:1] if both == 1 and len(activations) == 2 else activations
    functions = resolve(names, both, activation_alpha, activation_beta)
    operands = {"x": x, "w": w, "r": r, "b": b, "sequence_lens": sequence_lens, "initial_h": initial_h}
    attributes = {"clip": clip, "direction": direction, "hidden_size": hidden_size, "layout": layout}
    y, y_h = layer(_RNN, False, functions, operands, **attributes)
    return y, y_h


def _rnn_step(weights: Weights, functions: tuple[Callable[[Any], Any], ...], variant: bool) -> Step:
    (f,) = functions

    def step(x: jax.Array, state: State) -> State:
        (h,) = state
        return (f(x + h @ weights.r),)

    return step


def gru(
    x: ArrayLike,
    w: Weight[ArrayLike],
    r: Weight[ArrayLike],
    b: Bias[ArrayLike] | None = None,
    sequence_lens: ArrayLike | None = None,
    initial_h: ArrayLike | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: Direction = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """A layer of cells with an update gate z, a reset gate r and a hidden gate h, in this order in w, r and b.

    zₜ = f(Xₜ·Wzᵀ + Hₜ₋₁·Rzᵀ + Wbz + Rbz), rₜ likewise, hₜ = g(Xₜ·Whᵀ + (rₜ ∘ Hₜ₋₁)·Rhᵀ + Rbh + Wbh),
    Hₜ = (1 - zₜ) ∘ hₜ + zₜ ∘ Hₜ₋₁.
    linear_before_reset: 1 makes it hₜ = g(Xₜ·Whᵀ + rₜ ∘ (Hₜ₋₁·Rhᵀ + Rbh) + Wbh).
    w: (D, 3 · hidden, input). r: (D, 3 · hidden, hidden). b: (D, 6 · hidden). activations: f and g for each direction,
    by default Sigmoid and Tanh. All else, the results (Y, Y_h) and the exceptions, as in `rnn`.
    Source: ONNX GRU, opsets 1–22.

    >>> y, y_h = gru(jnp.ones((5, 1, 2)), jnp.zeros((1, 9, 2)), jnp.zeros((1, 9, 3)), initial_h=jnp.ones((1, 1, 3)))
    >>> y.shape, y_h.tolist()
    ((5, 1, 1, 3), [[[0.03125, 0.03125, 0.03125]]])
    """
    both = directions(direction)
    names = ("Sigmoid", "Tanh") * both if activations is None else activations
    functions = resolve(names, 2 * both, activation_alpha, activation_beta)
    operands = {"x": x, "w": w, "r": r, "b": b, "sequence_lens": sequence_lens, "initial_h": initial_h}
    attributes = {"clip": clip, "direction": direction, "hidden_size": hidden_size, "layout": layout}
    # The text of the standard says "linear_before_reset != 0", so any number is allowed.
    y, y_h = layer(_GRU, linear_before_reset != 0, functions, operands, **attributes)
    return y, y_h


def _gru_step(weights: Weights, functions: tuple[Callable[[Any], Any], ...], linear_before_reset: bool) -> Step:
    f, g = functions
    first, second = jnp.split(weights.r, [2 * weights.r.shape[0]], 1)

    def step(x: jax.Array, state: State) -> State:
        (h,) = state
        of_gates, of_hidden = jnp.split(x, [first.shape[1]], 1)
        if linear_before_reset:
            gates, product = jnp.split(h @ weights.r, [first.shape[1]], 1)
            product = product if weights.bias is None else product + weights.bias
            update, reset = jnp.split(stored_gate(f(of_gates + gates)), 2, 1)
            hidden = g(of_hidden + reset * product)
        else:
            update, reset = jnp.split(stored_gate(f(of_gates + h @ first)), 2, 1)
            hidden = g(of_hidden + (reset * h) @ second)
        return ((1 - update) * hidden + update * h,)

    return step


def lstm(
    x: ArrayLike,
    w: Weight[ArrayLike],
    r: Weight[ArrayLike],
    b: Bias[ArrayLike] | None = None,
    sequence_lens: ArrayLike | None = None,
    initial_h: ArrayLike | None = None,
    initial_c: ArrayLike | None = None,
    p: Weight[ArrayLike] | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    clip_cell: bool = True,
    direction: Direction = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A layer of cells with a second state C and gates i, o, f (forget), c, in this order in w, r and b.

    iₜ = f(Xₜ·Wiᵀ + Hₜ₋₁·Riᵀ + Pi ∘ Cₜ₋₁ + Wbi + Rbi), fₜ likewise, cₜ = g(Xₜ·Wcᵀ + Hₜ₋₁·Rcᵀ + Wbc + Rbc),
    Cₜ = fₜ ∘ Cₜ₋₁ + iₜ ∘ cₜ, oₜ = f(Xₜ·Woᵀ + Hₜ₋₁·Roᵀ + Po ∘ Cₜ + Wbo + Rbo), Hₜ = oₜ ∘ h(Cₜ).
    w: (D, 4 · hidden, input). r: (D, 4 · hidden, hidden). b: (D, 8 · hidden). initial_c: as initial_h.
    p: (D, 3 · hidden), Pi, Po and Pf; 0 when left out. input_forget: 1 makes the forget gate fₜ = 1 - iₜ.
    activations: f, g and h for each direction, by default Sigmoid, Tanh and Tanh. clip_cell: True makes `clip` bound
    the input of h, too, as in ONNX; False does not, as in OpenVINO.
    Returns (Y, Y_h, Y_c), the last like Y_h. All else, and the exceptions, as in `rnn`.
    Source: ONNX LSTM, opsets 1–22.

    >>> y, y_h, y_c = lstm(jnp.ones((2, 1, 2)), jnp.zeros((1, 12, 2)), jnp.zeros((1, 12, 3)), initial_c=[[[4.0, 8, 0]]])
    >>> y.shape, y_c.tolist()
    ((2, 1, 1, 3), [[[1.0, 2.0, 0.0]]])
    """
    both = directions(direction)
    names = ("Sigmoid", "Tanh", "Tanh") * both if activations is None else activations
    functions = resolve(names, 3 * both, activation_alpha, activation_beta)
    if not clip_cell:
        functions = tuple(f._replace(bounded=position % 3 != 2) for position, f in enumerate(functions))
    operands = {"x": x, "w": w, "r": r, "b": b, "sequence_lens": sequence_lens}
    operands |= {"initial_h": initial_h, "initial_c": initial_c, "p": p}
    attributes = {"clip": clip, "direction": direction, "hidden_size": hidden_size, "layout": layout}
    y, y_h, y_c = layer(_LSTM, flag("input_forget", input_forget), functions, operands, **attributes)
    return y, y_h, y_c


def lstm_step(
    weights: Weights,
    functions: tuple[Callable[[Any], Any], ...],
    input_forget: bool,
    times: Callable[[Any, Any], Any] = jnp.matmul,
) -> Step:
    """Makes the step of a cell. times: multiplies a hidden state by `weights.r`."""
    # By the text of the standard, `clip` bounds the input of h as those of f and g; onnxruntime does not clip it.
    f, g, h_of = functions
    peepholes = (None,) * 3 if weights.p is None else jnp.split(weights.p, 3)

    def step(x: jax.Array, state: State) -> State:
        h, c = state
        i, o, forget, cell = jnp.split(x + times(h, weights.r), 4, 1)
        i = stored_gate(f(_with_peephole(i, peepholes[0], c)))
        forget = 1 - i if input_forget else stored_gate(f(_with_peephole(forget, peepholes[2], c)))
        c = forget * c + i * stored_gate(g(cell))
        o = f(_with_peephole(o, peepholes[1], c))
        return o * h_of(c), c

    return step


def _with_peephole(gate: jax.Array, peephole: jax.Array | None, c: jax.Array) -> jax.Array:
    """A gate plus its peephole: the cell state times a weight."""
    return gate if peephole is None else gate + peephole[None] * c


_RNN = Cell(_rnn_step, gates=1, states=1)
_GRU = Cell(_gru_step, gates=3, states=1, own_bias=2)
_LSTM = Cell(lstm_step, gates=4, states=2)
