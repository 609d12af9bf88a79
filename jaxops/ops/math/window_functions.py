"""Window functions: factors of the samples of a signal that fall off towards both of its ends."""

__all__ = ["blackman_window", "hamming_window", "hann_window"]

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import element_type, flag, integer
from jaxops.dtypes import canonical, is_string
from jaxops.errors import DTypeError
from jaxops.memory import bounded
from jaxops.signature import ElementType, Static, Traits

TRAITS = Traits(foldable=True)


def hann_window(size: Static, *, output_datatype: ElementType = np.float32, periodic: int = 1) -> np.ndarray:
    """The window 0.5 - 0.5 · cos(2πk/N).

    size: static, one integer >= 0, the number n of factors. periodic: 1 for N = n, one period; 0 for N = n - 1, a
    symmetric window, which is NaN if n is 1.
    output_datatype: a type of real numbers; integers are rounded towards zero.
    Returns a static array (n,), unless the size is symbolic. Raises ArgumentError for a negative size, DTypeError.
    Source: ONNX HannWindow, opset 17.

    >>> hann_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _window(size, output_datatype, periodic, (0.5, 0.5, 0.0))


def hamming_window(size: Static, *, output_datatype: ElementType = np.float32, periodic: int = 1) -> np.ndarray:
    """The window 25/46 - 21/46 · cos(2πk/N).

    The operands and errors are those of `hann_window`.
    Source: ONNX HammingWindow, opset 17.

    >>> hamming_window(2, output_datatype=np.float64).round(3).tolist()
    [0.087, 1.0]
    """
    return _window(size, output_datatype, periodic, (25 / 46, 21 / 46, 0.0))


def blackman_window(size: Static, *, output_datatype: ElementType = np.float32, periodic: int = 1) -> np.ndarray:
    """The window 0.42 - 0.5 · cos(2πk/N) + 0.08 · cos(4πk/N).

    The operands and errors are those of `hann_window`.
    Source: ONNX BlackmanWindow, opset 17.

    >>> blackman_window(2, output_datatype=np.int32)
    array([0, 1], dtype=int32)
    """
    return _window(size, output_datatype, periodic, (0.42, 0.5, 0.08))


def _window(size: Any, dtype: Any, periodic: int, factors: tuple[float, float, float]) -> Any:
    count, is_periodic = integer("size", size, least=0), flag("periodic", periodic)
    kind = element_type("output_datatype", dtype)
    if is_string(np.empty(0, kind)) or kind.kind in "bc":
        raise DTypeError(f"`output_datatype` is {kind.name}; it must be a type of real numbers")
    if isinstance(count, int):
        bounded((count,), np.dtype(np.float64).itemsize)
        with np.errstate(invalid="ignore"):
            values = _factors(np, np.arange(count), np.float64(count if is_periodic else count - 1), factors)
            # As in the standard's function body, factors are float32 numbers first: a peak of 1 - 1e-16 becomes the
            # integer 1.
            return (values if kind == np.float64 else values.astype(np.float32)).astype(kind)
    work = canonical(np.float64 if kind == np.float64 else np.float32)
    values = _factors(jnp, lax.iota(work, count), jnp.asarray(count if is_periodic else count - 1, work), factors)
    return lax.convert_element_type(values, canonical(kind))


def _factors(xp: Any, k: Any, period: Any, factors: tuple[float, float, float]) -> Any:
    # A symmetric window of one factor has the period 0: as in the standard's function body, 0 / 0 is NaN.
    angle = 2 * np.pi * k / period
    constant, first, second = factors
    return constant - first * xp.cos(angle) + second * xp.cos(2 * angle)
