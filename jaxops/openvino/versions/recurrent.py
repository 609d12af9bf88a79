"""Recurrent cells and sequences: batch first, one bias, gates f, i, c, o of an LSTM.

A cell is a sequence of one step.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from jaxops import ops
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import Word, scalar_like
from jaxops.signature import Bias, Traits, Weight, like
from jaxops.static import Array

TRAITS = Traits(kind="recurrent")
W: TypeAlias = Weight[Array]
B: TypeAlias = Bias[Array]
_ONNX_GATES = "iofc"
# The activations with coefficients.
_WITH_ALPHA = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
_WITH_BETA = {"affine", "scaledtanh", "hardsigmoid"}


def _of_onnx(
    *,
    hidden_size: int,
    direction: Word = "forward",
    activations: Sequence[str],
    activations_alpha: Sequence[float],
    activations_beta: Sequence[float],
    clip: float,
) -> dict[str, Any]:
    """Returns ONNX's attributes: functions for each direction, and coefficients of those that have any."""
    directions = 2 if direction == "bidirectional" else 1
    chosen = {
        "activation_alpha": [
            a for f, a in zip(activations, activations_alpha, strict=False) if f.lower() in _WITH_ALPHA
        ],
        "activation_beta": [b for f, b in zip(activations, activations_beta, strict=False) if f.lower() in _WITH_BETA],
    }
    coefficients = {name: listed * directions for name, listed in chosen.items() if listed}
    functions, clipped = [*activations] * directions, clip if clip > 0 else None
    options = {"hidden_size": hidden_size, "direction": direction, "activations": functions, "clip": clipped}
    return {**options, "layout": 1, **coefficients}


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
@like(_of_onnx)
def lstm_sequence(
    x: Array, h: Array, c: Array, lengths: Array, w: W, r: W, b: B, **attributes: Any
) -> tuple[Array, ...]:
    w, r, b = (_gates(value, "fico", 1) for value in (w, r, b))
    options = {"clip_cell": False, **_of_onnx(**attributes)}
    y, *states = ops.lstm(x, w, r, _both_biases(b), lengths, h, c, None, **options)
    return _steps_inside(y), *states


@version("LSTMCell", 1)
@like(_of_onnx, without=["direction"])
def lstm_cell_1(
    x: Array,
    h: Array,
    c: Array,
    w: W,
    r: W,
    b: B | None = None,
    p: W | None = None,
    *,
    input_forget: bool,
    weights_format: Word,
    **attributes: Any,
) -> tuple[Array, ...]:
    """`weights_format` is the order of the gates; `p` holds the peepholes of i, o and f."""
    w, r = (_one_direction(_gates(value, weights_format, 0)) for value in (w, r))
    bias = None if b is None else _both_biases(_one_direction(_gates(b, weights_format, 0)))
    states = ops.unsqueeze(h, (1,)), ops.unsqueeze(c, (1,)), None if p is None else _one_direction(p)
    options = {"clip_cell": False, "input_forget": int(input_forget), **_of_onnx(**attributes)}
    _, *after = ops.lstm(ops.unsqueeze(x, (1,)), w, r, bias, None, *states, **options)
    return tuple(ops.squeeze(state, (1,)) for state in after)


@version("LSTMCell", 4)
@like(_of_onnx, without=["direction"])
def lstm_cell_4(x: Array, h: Array, c: Array, w: W, r: W, b: B | None = None, **attributes: Any) -> tuple[Array, ...]:
    return lstm_cell_1(x, h, c, w, r, b, input_forget=False, weights_format="fico", **attributes)


def _one_direction(x: Any) -> Any:
    return ops.unsqueeze(x, (0,))


@version("GRUSequence", 5)
@like(_of_onnx)
def gru_sequence(
    x: Array, h: Array, lengths: Array, w: W, r: W, b: B, *, linear_before_reset: bool, **attributes: Any
) -> tuple[Array, Array]:
    options = {"linear_before_reset": int(linear_before_reset), **_of_onnx(**attributes)}
    y, state = ops.gru(x, w, r, _gru_bias(b, linear_before_reset), lengths, h, **options)
    return _steps_inside(y), state


def _gru_bias(b: Any, linear_before_reset: bool) -> Any:
    """Returns ONNX's six biases. With `linear_before_reset`, `b` has four: z, r, h of the input, h of the state."""
    if not linear_before_reset:
        return _both_biases(b)
    z, r, of_input, of_state = ops.split(b, axis=1, num_outputs=4)
    zero = ops.mul(z, scalar_like(z, 0))
    return ops.concat([z, r, of_input, zero, zero, of_state], axis=1)


@version("GRUCell", 3)
@like(_of_onnx, without=["direction"])
def gru_cell(
    x: Array, h: Array, w: W, r: W, b: B | None = None, *, linear_before_reset: bool, **attributes: Any
) -> Array:
    bias = None if b is None else _gru_bias(_one_direction(b), linear_before_reset)
    x, h, w, r = ops.unsqueeze(x, (1,)), ops.unsqueeze(h, (1,)), _one_direction(w), _one_direction(r)
    options = {"linear_before_reset": int(linear_before_reset), **_of_onnx(**attributes)}
    _, state = ops.gru(x, w, r, bias, None, h, **options)
    return ops.squeeze(state, (1,))


@version("RNNSequence", 5)
@like(_of_onnx)
def rnn_sequence(x: Array, h: Array, lengths: Array, w: W, r: W, b: B, **attributes: Any) -> tuple[Array, Array]:
    y, state = ops.rnn(x, w, r, _both_biases(b), lengths, h, **_of_onnx(**attributes))
    return _steps_inside(y), state


@version("RNNCell", 1)
@like(_of_onnx, without=["direction"])
def rnn_cell(x: Array, h: Array, w: W, r: W, b: B | None = None, **attributes: Any) -> Array:
    bias = None if b is None else _both_biases(_one_direction(b))
    x, h, w, r = ops.unsqueeze(x, (1,)), ops.unsqueeze(h, (1,)), _one_direction(w), _one_direction(r)
    _, state = ops.rnn(x, w, r, bias, None, h, **_of_onnx(**attributes))
    return ops.squeeze(state, (1,))
