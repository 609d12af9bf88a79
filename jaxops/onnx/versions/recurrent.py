"""Earlier versions of recurrent layers.

Version 1 has `output_sequence`: 1 when the model must have Y, which it has whenever a node asks for it. Its text
multiplies by R where later ones multiply by its transpose; its sizes of R fit the transpose only.
"""

from collections.abc import Sequence
from typing import Any, Literal

from jaxops import ops
from jaxops.attributes import flag
from jaxops.onnx.registry import version
from jaxops.ops.recurrent.recurrence import Direction
from jaxops.static import Array


@version("RNN", 1)
def rnn_1(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str],
    clip: float | None = None,
    direction: Direction,
    hidden_size: int | None = None,
    output_sequence: int,
) -> Any:
    flag("rnn", "output_sequence", output_sequence)
    return ops.rnn(
        x,
        w,
        r,
        b,
        sequence_lens,
        initial_h,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        activations=activations,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
    )


@version("GRU", 1)
def gru_1(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: Literal["foward", "forward", "reverse", "bidirectional"],
    hidden_size: int | None = None,
    linear_before_reset: int = 0,
    output_sequence: int,
) -> Any:
    flag("gru", "output_sequence", output_sequence)
    return ops.gru(
        x,
        w,
        r,
        b,
        sequence_lens,
        initial_h,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        activations=activations,
        clip=clip,
        direction="forward" if direction == "foward" else direction,  # so the default is spelled in version 1
        hidden_size=hidden_size,
        linear_before_reset=linear_before_reset,
    )


@version("LSTM", 1)
def lstm_1(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    p: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: Direction,
    hidden_size: int | None = None,
    input_forget: int,
    output_sequence: int,
) -> Any:
    flag("lstm", "output_sequence", output_sequence)
    return ops.lstm(
        x,
        w,
        r,
        b,
        sequence_lens,
        initial_h,
        initial_c,
        p,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        activations=activations,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        input_forget=input_forget,
    )


version("RNN", 7)(ops.rnn)
version("GRU", 7)(ops.gru)
version("LSTM", 7)(ops.lstm)
