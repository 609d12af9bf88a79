"""Linear quantization, as onnxruntime defined it before the standard had 16-bit and 4-bit types."""

__all__ = ["dequantize_linear", "quantize_linear"]

import jax
import jax.numpy as jnp  # noqa: F401 - the doctests use it
import numpy as np

from jaxops.ops.quantization import linear_quantization as standard
from jaxops.signature import Traits, operator
from jaxops.static import ArrayLike

TRAITS = Traits(precision="exact")


def quantize_linear(
    x: ArrayLike, y_scale: ArrayLike, y_zero_point: ArrayLike | None = None, *, axis: int | None = None
) -> jax.Array:
    """saturate(round(x / y_scale) + y_zero_point), rounded half to even.

    x: any shape, floats. y_scale: a scalar, or (x.shape[axis],). y_zero_point: same shape, int4, uint4, int8, uint8,
    int16 or uint16; 0 of type uint8 when None. Returns: the shape of x, in the type of y_zero_point.
    axis: 1 when None. 16-bit floats are divided in float32. Raises as `jaxops.quantize_linear` does.
    Source: com.microsoft QuantizeLinear, opset 1, as onnxruntime defines it.

    >>> quantize_linear(jnp.array([-1.0, 0.25, 900.0]), np.float32(0.01), np.int16(1)).tolist()
    [-99, 26, 32767]
    """
    return standard.quantize_linear(x, y_scale, y_zero_point, axis=1 if axis is None else axis, precision=np.float32)


@operator(kind="form")
def dequantize_linear(
    x: ArrayLike, x_scale: ArrayLike, x_zero_point: ArrayLike | None = None, *, axis: int | None = None
) -> jax.Array:
    """(x - x_zero_point) · x_scale.

    x: any shape, of a type that `quantize_linear` gives, or int32. x_scale: a scalar, or (x.shape[axis],), floats.
    x_zero_point: same shape, in the type of x; 0 when None. Returns: the shape of x, in the type of x_scale.
    axis: 1 when None. Raises as `jaxops.dequantize_linear` does.
    Source: com.microsoft DequantizeLinear, opset 1, as onnxruntime defines it.

    >>> dequantize_linear(jnp.array([[0, 4], [2, 3]], jnp.uint16), jnp.array([0.5, 2.0])).tolist()
    [[0.0, 8.0], [1.0, 6.0]]
    """
    return standard.dequantize_linear(x, x_scale, x_zero_point, axis=1 if axis is None else axis)
