"""Earlier versions of recurrent layers.

Version 1 has `output_sequence`: 1 when the model must have Y, which it has whenever a node asks for it. Its text
multiplies by R where later ones multiply by its transpose; its sizes of R fit the transpose only.
"""

from typing import Any, Literal

from jaxops import ops
from jaxops.attributes import flag
from jaxops.onnx.registry import version
from jaxops.signature import like


@version("RNN", 1)
@like(ops.rnn, without=["layout"])
def rnn_1(*inputs: Any, output_sequence: int, **attributes: Any) -> Any:
    flag("rnn", "output_sequence", output_sequence)
    return ops.rnn(*inputs, **attributes)


@version("GRU", 1)
@like(ops.gru, without=["layout"])
def gru_1(
    *inputs: Any,
    direction: Literal["foward", "forward", "reverse", "bidirectional"],
    output_sequence: int,
    **attributes: Any,
) -> Any:
    flag("gru", "output_sequence", output_sequence)
    # So the default is spelled in version 1.
    return ops.gru(*inputs, direction="forward" if direction == "foward" else direction, **attributes)


@version("LSTM", 1)
@like(ops.lstm, without=["layout"])
def lstm_1(*inputs: Any, output_sequence: int, **attributes: Any) -> Any:
    flag("lstm", "output_sequence", output_sequence)
    return ops.lstm(*inputs, **attributes)


version("RNN", 7)(ops.rnn)
version("GRU", 7)(ops.gru)
version("LSTM", 7)(ops.lstm)
