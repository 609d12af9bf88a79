"""Recurrent cells and sequences: batch first, one bias, gates f, i, c, o of an LSTM.

A cell is a sequence of one step.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from jaxops import ops
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import scalar_like
from jaxops.signature import Bias, Traits, Weight
from jaxops.static import Array

TRAITS = Traits(kind="recurrent")
Direction: TypeAlias = Literal["forward", "reverse", "bidirectional"]
_ONNX_GATES = "iofc"
# The activations with coefficients.
_WITH_ALPHA = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
_WITH_BETA = {"affine", "scaledtanh", "hardsigmoid"}


def _attributes(
    activations: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float, directions: int
) -> dict[str, Any]:
    """Returns ONNX's attributes: functions for each direction, and coefficients of those that have any."""
    chosen = {
        "activation_alpha": [a for name, a in zip(activations, alphas, strict=False) if name.lower() in _WITH_ALPHA],
        "activation_beta": [b for name, b in zip(activations, betas, strict=False) if name.lower() in _WITH_BETA],
    }
    values = {name: listed * directions for name, listed in chosen.items() if listed}
    return {"activations": [*activations] * directions, "clip": clip if clip > 0 else None, "layout": 1, **values}


def _gates(x: Any, order: str, axis: int) -> Any:
    """Returns the gates of an LSTM in ONNX's order. order: the order in `x`."""
    parts = dict(zip(order, ops.split(x, axis=axis, num_outputs=4), strict=True))
    return ops.concat([parts[gate] for gate in _ONNX_GATES], axis=axis)


def _both_biases(b: Any) -> Any:
    """Returns the bias of the input, with zeros for that of the state, in ONNX's form."""
    return ops.concat([b, ops.mul(b, scalar_like(b, 0))], axis=1)


def _steps_inside(y: Any) -> Array:
    """Returns (batch, steps, directions, hidden) as (batch, directions, steps, hidden)."""
    return ops.transpose(y, perm=(0, 2, 1, 3))


@version("LSTMSequence", 5)
def lstm_sequence(
    x: Array,
    h: Array,
    c: Array,
    sequence_lengths: Array,
    w: Weight[Array],
    r: Weight[Array],
    b: Bias[Array],
    *,
    hidden_size: int,
    direction: Direction,
    activations: Sequence[str],
    activations_alpha: Sequence[float],
    activations_beta: Sequence[float],
    clip: float,
) -> tuple[Array, ...]:
    both = 2 if direction == "bidirectional" else 1
    attributes = _attributes(activations, activations_alpha, activations_beta, clip, both)
    w, r, b = (_gates(value, "fico", 1) for value in (w, r, b))
    y, *states = ops.lstm(
        x, w, r, _both_biases(b), sequence_lengths, h, c, None,
        direction=direction, hidden_size=hidden_size, clip_cell=False, **attributes,
    )  # fmt: skip
    return _steps_inside(y), *states


@version("LSTMCell", 4)
def lstm_cell_4(
    x: Array,
    h: Array,
    c: Array,
    w: Weight[Array],
    r: Weight[Array],
    b: Bias[Array] | None = None,
    *,
    hidden_size: int,
    activations: Sequence[str],
    activations_alpha: Sequence[float],
    activations_beta: Sequence[float],
    clip: float,
) -> tuple[Array, ...]:
    return lstm_cell_1(
        x, h, c, w, r, b,
        hidden_size=hidden_size, activations=activations, activations_alpha=activations_alpha,
        activations_beta=activations_beta, clip=clip, input_forget=False, weights_format="fico",
    )  # fmt: skip


@version("LSTMCell", 1)
def lstm_cell_1(
    x: Array,
    h: Array,
    c: Array,
    w: Weight[Array],
    r: Weight[Array],
    b: Bias[Array] | None = None,
    p: Weight[Array] | None = None,
    *,
    hidden_size: int,
    activations: Sequence[str],
    activations_alpha: Sequence[float],
    activations_beta: Sequence[float],
    clip: float,
    input_forget: bool,
    weights_format: Literal["fico", "icof", "ifco", "ifoc", "iofc"],
) -> tuple[Array, ...]:
    """`weights_format` is the order of the gates; `p` holds the peepholes of i, o and f."""
    attributes = _attributes(activations, activations_alpha, activations_beta, clip, 1)
    w, r = (_one_direction(_gates(value, weights_format, 0)) for value in (w, r))
    bias = None if b is None else _both_biases(_one_direction(_gates(b, weights_format, 0)))
    peepholes = None if p is None else _one_direction(p)
    _, *states = ops.lstm(
        ops.unsqueeze(x, (1,)), w, r, bias, None, ops.unsqueeze(h, (1,)), ops.unsqueeze(c, (1,)), peepholes,
        hidden_size=hidden_size, clip_cell=False, input_forget=int(input_forget), **attributes,
    )  # fmt: skip
    return tuple(ops.squeeze(state, (1,)) for state in states)


def _one_direction(x: Any) -> Any:
    return ops.unsqueeze(x, (0,))


@version("GRUSequence", 5)
def gru_sequence(
    x: Array,
    h: Array,
    sequence_lengths: Array,
    w: Weight[Array],
    r: Weight[Array],
    b: Bias[Array],
    *,
    hidden_size: int,
    direction: Direction,
    activations: Sequence[str],
    activations_alpha: Sequence[float],
    activations_beta: Sequence[float],
    clip: float,
    linear_before_reset: bool,
) -> tuple[Array, Array]:
    both = 2 if direction == "bidirectional" else 1
    attributes = _attributes(activations, activations_alpha, activations_beta, clip, both)
    y, state = ops.gru(
        x, w, r, _gru_bias(b, linear_before_reset), sequence_lengths, h,
        direction=direction, hidden_size=hidden_size, linear_before_reset=int(linear_before_reset), **attributes,
    )  # fmt: skip
    return _steps_inside(y), state


def _gru_bias(b: Any, linear_before_reset: bool) -> Any:
    """Returns ONNX's six biases. With `linear_before_reset`, `b` has four: z, r, h of the input, h of the state."""
    if not linear_before_reset:
        return _both_biases(b)
    z, r, of_input, of_state = ops.split(b, axis=1, num_outputs=4)
    zero = ops.mul(z, scalar_like(z, 0))
    return ops.concat([z, r, of_input, zero, zero, of_state], axis=1)


@version("GRUCell", 3)
def gru_cell(
    x: Array,
    h: Array,
    w: Weight[Array],
    r: Weight[Array],
    b: Bias[Array] | None = None,
    *,
    hidden_size: int,
    activations: Sequence[str],
    activations_alpha: Sequence[float],
    activations_beta: Sequence[float],
    clip: float,
    linear_before_reset: bool,
) -> Array:
    attributes = _attributes(activations, activations_alpha, activations_beta, clip, 1)
    bias = None if b is None else _gru_bias(_one_direction(b), linear_before_reset)
    _, state = ops.gru(
        ops.unsqueeze(x, (1,)), _one_direction(w), _one_direction(r), bias, None, ops.unsqueeze(h, (1,)),
        hidden_size=hidden_size, linear_before_reset=int(linear_before_reset), **attributes,
    )  # fmt: skip
    return ops.squeeze(state, (1,))


@version("RNNSequence", 5)
def rnn_sequence(
    x: Array,
    h: Array,
    sequence_lengths: Array,
    w: Weight[Array],
    r: Weight[Array],
    b: Bias[Array],
    *,
    hidden_size: int,
    direction: Direction,
    activations: Sequence[str],
    activations_alpha: Sequence[float],
    activations_beta: Sequence[float],
    clip: float,
) -> tuple[Array, Array]:
    both = 2 if direction == "bidirectional" else 1
    attributes = _attributes(activations, activations_alpha, activations_beta, clip, both)
    y, state = ops.rnn(
        x, w, r, _both_biases(b), sequence_lengths, h, direction=direction, hidden_size=hidden_size, **attributes
    )
    return _steps_inside(y), state


@version("RNNCell", 1)
def rnn_cell(
    x: Array,
    h: Array,
    w: Weight[Array],
    r: Weight[Array],
    b: Bias[Array] | None = None,
    *,
    hidden_size: int,
    activations: Sequence[str],
    activations_alpha: Sequence[float],
    activations_beta: Sequence[float],
    clip: float,
) -> Array:
    attributes = _attributes(activations, activations_alpha, activations_beta, clip, 1)
    bias = None if b is None else _both_biases(_one_direction(b))
    _, state = ops.rnn(
        ops.unsqueeze(x, (1,)), _one_direction(w), _one_direction(r), bias, None, ops.unsqueeze(h, (1,)),
        hidden_size=hidden_size, **attributes,
    )  # fmt: skip
    return ops.squeeze(state, (1,))
