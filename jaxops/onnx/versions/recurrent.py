"""Earlier versions of recurrent layers.

Version 1 has `output_sequence`, which is 1 if Y is needed. It is ignored, since Y is computed if the node has it. The
text of version 1 multiplies by R, and later ones by its transpose; but the sizes of R in version 1 only fit the latter.
"""

from typing import Any, Literal

from jaxops import ops
from jaxops.attributes import flag
from jaxops.onnx.registry import version
from jaxops.signature import like
from jaxops.signature_errors import errors_of


@version("RNN", 1)
@like(ops.rnn, without=["layout"])
def rnn_1(*inputs: Any, output_sequence: int, **attributes: Any) -> Any:
    with errors_of("rnn"):
        flag("output_sequence", output_sequence)
    return ops.rnn(*inputs, **attributes)


@version("GRU", 1)
@like(ops.gru, without=["layout"])
def gru_1(
    *inputs: Any,
    direction: Literal["foward", "forward", "reverse", "bidirectional"],
    output_sequence: int,
    **attributes: Any,
) -> Any:
    with errors_of("gru"):
        flag("output_sequence", output_sequence)
    # 'foward' is the spelling of the default in version 1.
    return ops.gru(*inputs, direction="forward" if direction == "foward" else direction, **attributes)


@version("LSTM", 1)
@like(ops.lstm, without=["layout"])
def lstm_1(*inputs: Any, output_sequence: int, **attributes: Any) -> Any:
    with errors_of("lstm"):
        flag("output_sequence", output_sequence)
    return ops.lstm(*inputs, **attributes)


version("RNN", 7)(ops.rnn)
version("GRU", 7)(ops.gru)
version("LSTM", 7)(ops.lstm)
