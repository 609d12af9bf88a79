"""The distribution function Φ of the normal distribution, and Gelu, which is x · Φ(x).

`jax.nn.gelu` computes Φ with erfc, for which XLA evaluates three polynomials, an exponential and two quotients: twice
as long as here. With erf it would be a little faster, but XLA's erf has an error of up to two units in the last place
near -1, and 1 + erf consists of these units: the error is 7e-7 at x = -5, where onnxruntime's is 8e-8.
"""

from typing import Any

import jax
import numpy as np
from jax import lax

from jaxops.dtypes import accumulation_type
from jaxops.kernels.named_call import NamedCall

# Beyond this |x|, the tail Φ(-|x|) is computed instead.
_FAR = 2.0
# The polynomials minimize the largest error, by least squares with weights that are multiplied by the errors (Lawson
# 1961). The largest absolute error of Φ is 2e-9; the relative error of the tail is about 4e-8 · (2Φ(-x)) ^ -0.2.
# (Φ(x) - ½) / x as a polynomial in x², lowest power first, up to x = 2.
_CENTRE = (
    *(0.3989422619342804, -0.06649018824100494, 0.00997286569327116, -0.0011862065875902772),
    *(0.00011446127609815449, -8.957101272244472e-06, 5.219349645813054e-07, -1.6666440671997407e-08),
)
# (2Φ(-x)) ^ (-1/16) as a polynomial in x, fitted from 2 to 5.8, where Φ(-x) is 3e-9. It goes on growing beyond.
_TAIL = (
    *(1.002406120300293, 0.04336845502257347, 0.028742114081978798, -0.0017487548757344484, 0.0020935817155987024),
    *(-0.000486004282720387, 9.369038889417425e-05, -8.937127859098837e-06, 4.624596385838231e-07),
)


def weighed(x: Any, approximate: bool) -> Any:
    """Returns x · Φ(x); if `approximate`, ½x(1 + tanh(√(2/π)(x + 0.044715x³))). Computes 16-bit floats in float32."""
    wide = lax.convert_element_type(x, accumulation_type(x.dtype))
    result = jax.nn.gelu(wide, approximate=True) if approximate else wide * normal_distribution(wide)
    return lax.convert_element_type(result, x.dtype)


@jax.custom_jvp
def distribution(x: Any) -> Any:
    """Returns Φ(x) = ½(1 + erf(x/√2)). x: float32 or float64."""
    if x.dtype == np.float64:
        return 0.5 * lax.erfc(x * -np.sqrt(0.5))
    right = x > 0
    tail = 1 / _polynomial(_TAIL, lax.select(right, x, -x))
    for _ in range(4):
        tail = tail * tail
    tail = 0.5 * tail
    far = lax.select(right, 1 - tail, tail)
    # For a NaN the comparison is False, and the tail is NaN.
    return lax.select(lax.abs(x) < _FAR, 0.5 + x * _polynomial(_CENTRE, x * x), far)


@distribution.defjvp
def _density(values: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    (x,), (along,) = values, tangents
    return distribution(x), along * (lax.exp(x * x * -0.5) * float(np.sqrt(0.5 / np.pi)))


# A named call, since one operation is traced faster than fifty.
normal_distribution = NamedCall("normal_distribution", distribution, elementwise=True)


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    total = lax.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total
