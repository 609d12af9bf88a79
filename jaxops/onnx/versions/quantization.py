"""Earlier versions of quantization."""

from typing import Any

import jax
import numpy as np

from jaxops import ops
from jaxops.dtypes import is_float
from jaxops.errors import ShapeError, shape_text
from jaxops.onnx.registry import version
from jaxops.signature import like
from jaxops.static import Array, array


def _per_tensor(op: str, operand: str, value: Any) -> None:
    if array(value).size != 1 or array(value).ndim > 1:
        raise ShapeError(
            f"{op}: `{operand}` of {shape_text(array(value).shape)} must be a scalar before opset 13, which has axes"
        )


@version("QuantizeLinear", 10)
def quantize_linear_10(x: Array, y_scale: Array, y_zero_point: Array | None = None) -> jax.Array:
    _per_tensor("quantize_linear", "y_scale", y_scale)
    return ops.quantize_linear(x, y_scale, y_zero_point)


@version("QuantizeLinear", 13)
@like(ops.quantize_linear, without=["precision"])
def quantize_linear_13(x: Array, y_scale: Array, y_zero_point: Array | None = None, **attributes: Any) -> jax.Array:
    # Before opset 23 the text has no precision; onnxruntime divides numbers of 16 bits in float32.
    precision = np.float32 if is_float(array(y_scale).dtype) else None
    return ops.quantize_linear(x, y_scale, y_zero_point, precision=precision, **attributes)


version("QuantizeLinear", 23)(ops.quantize_linear)


@version("DequantizeLinear", 10)
def dequantize_linear_10(x: Array, x_scale: Array, x_zero_point: Array | None = None) -> jax.Array:
    _per_tensor("dequantize_linear", "x_scale", x_scale)
    return ops.dequantize_linear(x, x_scale, x_zero_point)


version("DequantizeLinear", 13)(ops.dequantize_linear)
