"""Fourier transforms of real signals, and products of complex numbers."""

__all__ = ["complex_mul", "complex_mul_conj", "irfft", "rfft"]

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import integer, one_of
from jaxops.dtypes import accumulation_type, floating
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.elementwise import broadcast_to, traced_operands
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.static import ArrayLike, Sizes, jit_if_concrete

No = Literal[0]
Yes = Literal[1]


def rfft(x: ArrayLike, *, normalized: No = 0, onesided: Yes = 1, signal_ndim: int = 1) -> jax.Array:
    """Returns the Fourier transform of real numbers over the last `signal_ndim` axes; only half of the last axis.

    x: (…, n), floats. Returns (…, n // 2 + 1, 2): real and imaginary parts, same dtype; 16-bit types are computed in
    float32. signal_ndim: 1 to 3. normalized must be 0, and onesided 1.
    Raises ShapeError for too few axes, ArgumentError, DTypeError. Source: com.microsoft Rfft, opset 1.

    >>> rfft(jnp.ones(4)).tolist()
    [[4.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    (data,) = floating(x=x)
    return _rfft(data, _axes(normalized, onesided, signal_ndim))


def irfft(x: ArrayLike, *, normalized: No = 0, onesided: Yes = 1, signal_ndim: int) -> jax.Array:
    """Inverts `rfft`, for a last axis of even size.

    x: (…, m, 2), floats. Returns (…, 2 · (m - 1)), same dtype. The attributes are as in `rfft`.
    Raises ShapeError for too few axes, ArgumentError, DTypeError. Source: com.microsoft Irfft, opset 1.

    >>> irfft(jnp.array([[4.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), signal_ndim=1).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    (data,) = floating(x=x)
    return _irfft(data, _axes(normalized, onesided, signal_ndim))


def _axes(normalized: Any, onesided: Any, signal_ndim: Any) -> int:
    one_of("normalized", normalized, No)
    one_of("onesided", onesided, Yes)
    count = integer("signal_ndim", signal_ndim)
    if not 1 <= count <= 3:
        raise ArgumentError(f"`signal_ndim` is {count}; it must be 1, 2 or 3")
    return count


@jit_if_concrete
def _rfft(x: jax.Array, count: int) -> jax.Array:
    if x.ndim < count:
        raise ShapeError(f"x of {shape_text(x.shape)} has fewer axes than `signal_ndim`, {count}")
    if any(isinstance(d, int) and d == 0 for d in x.shape[-count:]):
        raise ShapeError(f"a signal of {shape_text(x.shape[-count:])} has no elements")
    values = jnp.fft.rfftn(x.astype(accumulation_type(x.dtype)), axes=range(-count, 0))
    return lax.convert_element_type(jnp.stack([jnp.real(values), jnp.imag(values)], -1), x.dtype)


def _signal_sizes(sizes: Sizes, count: int) -> Sizes:
    """Returns the sizes of the last `count` axes of a real signal, from the sizes (…, m, 2) of its transform."""
    if len(sizes) < count + 1 or sizes[-1] != 2:
        raise ShapeError(
            f"x of {shape_text(sizes)} must have at least {count + 1} axes, the last of 2 for real and imaginary"
        )
    if isinstance(sizes[-2], int) and sizes[-2] < 2:
        raise ShapeError(
            f"x of {shape_text(sizes)} has {sizes[-2]} frequency bins on axis {len(sizes) - 2}; it needs at least 2"
        )
    return (*sizes[-1 - count : -2], 2 * (sizes[-2] - 1))


@jit_if_concrete
def _irfft(x: jax.Array, count: int) -> jax.Array:
    sizes = _signal_sizes(x.shape, count)
    wide = x.astype(accumulation_type(x.dtype))
    values = lax.complex(wide[..., 0], wide[..., 1])
    return lax.convert_element_type(jnp.fft.irfftn(values, sizes, range(-count, 0)), x.dtype)


def complex_mul(a: ArrayLike, b: ArrayLike) -> jax.Array:
    """Returns the product of complex numbers; the operands broadcast to each other.

    a, b: (…, 2), real and imaginary parts, floats of one dtype. Returns their common shape, same dtype; 16-bit types
    are computed in float32.
    Raises ShapeError when the shapes do not broadcast or a last axis is not 2, DTypeError.
    Source: com.microsoft ComplexMul, opset 1.

    >>> complex_mul(jnp.array([0.0, 1.0]), jnp.array([3.0, 4.0])).tolist()
    [-4.0, 3.0]
    """
    return _complex_mul(traced_operands((a, b), "floating-point"), False)


def complex_mul_conj(a: ArrayLike, b: ArrayLike) -> jax.Array:
    """Returns the product of a and the conjugate of b; operands and exceptions are those of `complex_mul`.

    Source: com.microsoft ComplexMulConj, opset 1.

    >>> complex_mul_conj(jnp.array([0.0, 1.0]), jnp.array([3.0, 4.0])).tolist()
    [4.0, 3.0]
    """
    return _complex_mul(traced_operands((a, b), "floating-point"), True)


def _pair_sizes(*shapes: Sizes) -> Sizes:
    """Returns the common shape of operands whose last axis is (real, imaginary)."""
    for sizes in shapes:
        if not sizes or sizes[-1] != 2:
            raise ShapeError(
                f"an operand of {shape_text(sizes)} must end with an axis of size 2, the real and imaginary parts"
            )
    return broadcast(*shapes)


@jit_if_concrete
def _complex_mul(operands: tuple[jax.Array, ...], conjugated: bool) -> jax.Array:
    sizes = _pair_sizes(*(v.shape for v in operands))
    a, b = (broadcast_to(v.astype(accumulation_type(v.dtype)), sizes) for v in operands)
    x, y, u, v = a[..., 0], a[..., 1], b[..., 0], -b[..., 1] if conjugated else b[..., 1]
    return jnp.stack([x * u - y * v, x * v + y * u], -1).astype(operands[0].dtype)
