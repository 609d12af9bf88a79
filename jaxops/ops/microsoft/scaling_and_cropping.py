"""Operators that the standard dropped after opset 9 and onnxruntime kept; 16-bit floats are computed in float32."""

__all__ = ["affine", "crop", "dynamic_slice", "image_scaler", "parametric_softplus", "scale", "scaled_tanh"]

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import ints
from jaxops.dtypes import accumulation_type, floating
from jaxops.errors import ArgumentError, ShapeError, amount, shape_text
from jaxops.ops.tensor.slicing import slice as slice_
from jaxops.shapes.arithmetic import must_fit
from jaxops.signature import StaticInts, operator
from jaxops.static import A, ArrayLike, Dim, Operand, Sizes, jit_if_concrete


def affine(x: ArrayLike, *, alpha: float = 1.0, beta: float = 0.0) -> jax.Array:
    """Returns alpha · x + beta.

    x: any shape, floating-point. Returns the same shape and dtype.
    Raises DTypeError. Source: Affine of onnxruntime, opsets 1–9.

    >>> affine(jnp.array([1.0, 2.0]), alpha=3.0, beta=0.5).tolist()
    [3.5, 6.5]
    """
    (data,) = floating(x=x)
    return _affine(data, float(alpha), float(beta))


def scale(input: ArrayLike, *, scale: float = 1.0) -> jax.Array:
    """Returns scale · input.

    input: any shape, floating-point. Returns the same shape and dtype.
    Raises DTypeError. Source: Scale of onnxruntime, opsets 1–9.

    >>> scale(jnp.array([1.0, 2.0]), scale=3.0).tolist()
    [3.0, 6.0]
    """
    (data,) = floating(input=input)
    return _affine(data, float(scale), 0.0)


@jit_if_concrete
def _affine(x: jax.Array, factor: float, offset: float) -> jax.Array:
    return (x.astype(accumulation_type(x.dtype)) * factor + offset).astype(x.dtype)


def scaled_tanh(input: ArrayLike, *, alpha: float, beta: float) -> jax.Array:
    """Returns alpha · tanh(beta · input).

    input: any shape, floating-point. Returns the same shape and dtype.
    Raises DTypeError. Source: ScaledTanh of onnxruntime, opsets 1–9.

    >>> scaled_tanh(jnp.array([0.0, 99.0]), alpha=2.0, beta=1.0).tolist()
    [0.0, 2.0]
    """
    (data,) = floating(input=input)
    return _scaled_tanh(data, float(alpha), float(beta))


@jit_if_concrete
def _scaled_tanh(x: jax.Array, alpha: float, beta: float) -> jax.Array:
    return (alpha * lax.tanh(beta * x.astype(accumulation_type(x.dtype)))).astype(x.dtype)


def parametric_softplus(x: ArrayLike, *, alpha: float, beta: float) -> jax.Array:
    """Returns alpha · log(1 + exp(beta · x)).

    x: any shape, floating-point. Returns the same shape and dtype.
    Raises DTypeError. Source: ParametricSoftplus of onnxruntime, opsets 1–9.

    >>> parametric_softplus(jnp.array([-999.0, 999.0]), alpha=2.0, beta=1.0).tolist()
    [0.0, 1998.0]
    """
    (data,) = floating(x=x)
    return _parametric_softplus(data, float(alpha), float(beta))


@jit_if_concrete
def _parametric_softplus(x: jax.Array, alpha: float, beta: float) -> jax.Array:
    return (alpha * jax.nn.softplus(beta * x.astype(accumulation_type(x.dtype)))).astype(x.dtype)


def image_scaler(input: ArrayLike, *, bias: Sequence[float], scale: float = 1.0) -> jax.Array:
    """Returns scale · input + bias, with one bias per channel.

    input: (N, C, H, W), floating-point. bias: C numbers. Returns the same shape and dtype.
    Raises ShapeError for a wrong rank or number of biases, DTypeError.
    Source: ImageScaler of onnxruntime, opsets 1–9.

    >>> image_scaler(jnp.ones((1, 2, 1, 1)), bias=(1.0, 2.0), scale=3.0)[0, :, 0, 0].tolist()
    [4.0, 5.0]
    """
    (data,) = floating(input=input)
    return _image_scaler(data, tuple(map(float, bias)), float(scale))


@jit_if_concrete
def _image_scaler(x: jax.Array, bias: tuple[float, ...], scale: float) -> jax.Array:
    must_fit(
        "input",
        x.shape,
        ("N", len(bias), "H", "W"),
        reason=f", as `bias` holds {amount(len(bias), 'number')}",
    )
    wide = accumulation_type(x.dtype)
    return (x.astype(wide) * scale + jnp.asarray(bias, wide).reshape(1, -1, 1, 1)).astype(x.dtype)


def crop(input: ArrayLike, *, border: Sequence[int], scale: Sequence[int] = ()) -> jax.Array:
    """Crops images by their borders, or to a given size that begins after the left and top borders.

    input: (N, C, H, W), floating-point. border: left, top, right and bottom, each 0 or more. scale: the height and
    width of the result; empty: all between the borders. Returns (N, C, h, w), same dtype.
    Raises ArgumentError for a wrong number of borders or sizes, or a negative one; ShapeError if the image is too small
    or has a wrong rank; DTypeError.
    Source: Crop of onnxruntime, opsets 1–9.

    >>> crop(jnp.arange(9.0).reshape(1, 1, 3, 3), border=(1, 0, 0, 2)).tolist()
    [[[[1.0, 2.0]]]]
    """
    (data,) = floating(input=input)
    return _crop(data, ints("border", tuple(border)), ints("scale", tuple(scale)))


def _cropped_spans(sizes: Sizes, border: Sizes, scale: Sizes) -> tuple[tuple[Dim, Dim], tuple[Dim, Dim]]:
    """Returns begin and end of the remaining rows and columns."""
    must_fit("input", sizes, ("N", "C", "H", "W"))
    if len(border) != 4 or min(border) < 0:
        raise ArgumentError(f"`border` is {border}; it must be left, top, right and bottom, each 0 or more")
    if len(scale) not in (0, 2) or min(scale, default=0) < 0:
        raise ArgumentError(f"`scale` is {scale}; it must be height and width, each 0 or more, or empty")
    left, top, right, bottom = border
    spans = []
    for axis, name, low, high in ((2, "height", top, bottom), (3, "width", left, right)):
        size = sizes[axis]
        end = low + scale[axis - 2] if scale else size - high
        # A symbolic size is taken to be large enough.
        needed = max(end, low + high) if scale else low + high
        if isinstance(size, int) and size < needed:
            raise ShapeError(f"`input` of {shape_text(sizes)} has {name} {size}; the result needs {needed}")
        spans.append((low, end))
    return spans[0], spans[1]


@jit_if_concrete
def _crop(x: jax.Array, border: tuple[int, ...], scale: tuple[int, ...]) -> jax.Array:
    rows, columns = _cropped_spans(x.shape, border, scale)
    x = lax.slice_in_dim(x, *rows, axis=2)
    return lax.slice_in_dim(x, *columns, axis=3)


@operator(foldable=True)
def dynamic_slice(data: Operand[A], starts: StaticInts, ends: StaticInts, axes: StaticInts = None) -> A:
    """Returns the elements from `start` up to, not including, `end` along each of the axes, as `jaxops.slice` does.

    data: n axes, any dtype. starts, ends, axes: as in `jaxops.slice`.
    Raises ShapeError, AxisError. Source: DynamicSlice of onnxruntime, opsets 1–9.

    >>> dynamic_slice(jnp.arange(10), (-3,), (9,)).tolist()
    [7, 8]
    """
    return slice_(data, starts, ends, axes)
