"""Elementwise: 8-bit floats, inverse error function, squared difference, common types; and GRN, a norm."""

__all__ = ["convert_promote_types", "erf_inv", "fake_convert", "grn", "squared_difference"]

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import element_type, flag, one_of
from jaxops.dtypes import accumulation_type, as_traced, canonical, floating, floats_of_one_type, is_float, type_name
from jaxops.errors import DTypeError, ShapeError, describe
from jaxops.ops.common.elementwise import broadcast_reduce, broadcast_to
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.math.arithmetic import arithmetic_operands
from jaxops.ops.quantization.straight_through_estimator import rounded
from jaxops.shapes.arithmetic import must_agree
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.signature import ElementType, operator
from jaxops.static import A, ArrayLike, Operand, jit_if_concrete

Float8 = Literal["f8e4m3", "f8e5m2"]
_FLOAT8 = {"f8e4m3": jnp.float8_e4m3fn, "f8e5m2": jnp.float8_e5m2}


def _fake_convert(
    straight_through: bool, data: ArrayLike, scale: ArrayLike, shift: ArrayLike | None, *, destination_type: Float8
) -> jax.Array:
    """`fake_convert`. straight_through: whether a derivative treats rounding as the identity."""
    x, factor, offset = floats_of_one_type(data=data, scale=scale, shift=shift)
    must_agree(
        f"`scale` {describe(factor)} and `shift` must broadcast to `data` {describe(x)}",
        broadcast(*(v.shape for v in (x, factor, offset) if v is not None)),
        x.shape,
    )
    kind = one_of("destination_type", destination_type, Float8)
    return _converted((x, factor, offset), kind, straight_through)


@jit_if_concrete
def _converted(operands: tuple[Any, Any, Any], kind: str, straight_through: bool) -> Any:
    x, factor, offset = operands
    work = accumulation_type(x.dtype)
    wide, factor = x.astype(work), broadcast_to(factor.astype(work), x.shape)
    offset = jnp.zeros((), work) if offset is None else broadcast_to(offset.astype(work), x.shape)
    most = float(jnp.finfo(_FLOAT8[kind]).max)
    moved = wide * factor - offset
    # OpenVINO rounds to float16 first, so that some numbers are rounded twice.
    narrow = jnp.clip(moved, -most, most).astype(np.float16).astype(_FLOAT8[kind]).astype(work)
    if straight_through:  # an element out of range, which may be infinite, stays out of the derivative
        is_inside = (-most <= moved) & (moved <= most)
        narrow = rounded(narrow, jnp.where(is_inside, jnp.where(is_inside, wide, 0) * factor - offset, 0))
    return assert_sizes(((narrow + offset) / factor).astype(x.dtype), x.shape, x.dtype)


@operator(precision="exact", straight_through=functools.partial(_fake_convert, True))
def fake_convert(
    data: ArrayLike, scale: ArrayLike, shift: ArrayLike | None = None, *, destination_type: Float8 = "f8e4m3"
) -> jax.Array:
    """Rounds data to the precision of 8-bit floats: (f8(data · scale - shift) + shift) / scale.

    data: any sizes, floats. scale, shift: broadcast to data, same dtype; shift None is 0. Returns an array like data.
    f8 rounds to `destination_type`; a number beyond its largest becomes the largest. As in OpenVINO, numbers are
    rounded to float16 first.
    Raises ShapeError, DTypeError, ArgumentError. Source: OpenVINO FakeConvert-13.

    >>> fake_convert(jnp.array([1.06, 500.0]), jnp.array(1.0)).tolist()
    [1.0, 448.0]
    """
    return _fake_convert(False, data, scale, shift, destination_type=destination_type)


@operator(kind="activation", precision="float32")
def erf_inv(data: ArrayLike) -> jax.Array:
    """Computes the inverse of the error function: infinite at -1 and 1, NaN beyond.

    data: any sizes, floats. Returns an array like data.
    Raises DTypeError. Source: OpenVINO ErfInv-17.

    >>> erf_inv(jnp.array([0.0, 1.0])).tolist()
    [0.0, inf]
    """
    (x,) = floating(data=data)
    return _erf_inv(x)


@jit_if_concrete
def _erf_inv(x: Any) -> Any:
    return lax.erf_inv(x.astype(accumulation_type(x.dtype))).astype(x.dtype)


@operator(kind="normalization", precision="float32")
def grn(data: ArrayLike, *, bias: float) -> jax.Array:
    """Divides by the norm over the channels: x / sqrt(Σ x² + bias).

    data: (N, C, …), floats; the sum is over the second axis. Returns an array like data; 16-bit types are computed in
    float32.
    Raises ShapeError, DTypeError. Source: OpenVINO GRN-1.

    >>> grn(jnp.array([[3.0, 4.0]]), bias=0.0).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    (x,) = floating(data=data)
    if x.ndim < 2:
        raise ShapeError(f"`data` {describe(x)} must have a batch and channels")
    return _grn(x, float(bias))


@jit_if_concrete
def _grn(x: Any, bias: float) -> Any:
    wide = x.astype(accumulation_type(x.dtype))
    return (wide * lax.rsqrt((wide * wide).sum(1, keepdims=True) + bias)).astype(x.dtype)


@operator(foldable=True, grows=True)
def squared_difference(a: Operand[A], b: Operand[A]) -> A:
    """(a - b)², element by element; the operands broadcast to each other.

    a, b: numbers of one dtype. Returns that dtype, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: OpenVINO SquaredDifference-1.

    >>> squared_difference(jnp.array([1.0, 5.0]), jnp.array([3.0])).tolist()
    [4.0, 4.0]
    """
    difference = broadcast_reduce(arithmetic_operands((a, b)), np.subtract, lax.sub)
    return broadcast_reduce((difference, difference), np.multiply, lax.mul)


@operator(kind="form")
def convert_promote_types(
    input_0: ArrayLike,
    input_1: ArrayLike,
    *,
    promote_unsafe: bool = False,
    pytorch_scalar_promotion: bool = False,
    u64_integer_promotion_target: ElementType = "float32",
) -> tuple[jax.Array, jax.Array]:
    """Converts two arrays to a type that holds the numbers of both.

    input_0, input_1: any sizes, numbers or booleans. Returns both, of one dtype. With a float and an integer it
    is the float type; with an integer and a boolean, the integer type. For two floats it is the narrowest type with the
    range and precision of both, likewise for two integers; u64_integer_promotion_target for uint64 and a signed type.
    pytorch_scalar_promotion: if both are of one kind and one is a scalar, the type is that of the other.
    promote_unsafe: if False, the result may be neither a type wider than both, nor one that loses numbers, nor a float
    with less than twice the bits of the integer.
    Raises DTypeError, ArgumentError. Source: OpenVINO ConvertPromoteTypes-14.

    >>> [y.dtype.name for y in convert_promote_types(jnp.zeros(2, jnp.int8), jnp.zeros(2))]
    ['float32', 'float32']
    """
    x, y = as_traced(input_0), as_traced(input_1)
    target = element_type("u64_integer_promotion_target", u64_integer_promotion_target)
    scalars = flag("pytorch_scalar_promotion", pytorch_scalar_promotion)
    kind, safe = _promoted(x, y, scalars, target)
    if not safe and not flag("promote_unsafe", promote_unsafe):
        raise DTypeError(
            f"{type_name(x)} and {type_name(y)} become {kind.name}, which is wider or may lose numbers; "
            f"allow it with promote_unsafe=True"
        )
    return x.astype(canonical(kind)), y.astype(canonical(kind))


def _bits(dtype: Any) -> int:
    return 1 if dtype == np.bool_ else jnp.finfo(dtype).bits if is_float(dtype) else jnp.iinfo(dtype).bits


def _promoted(x: Any, y: Any, scalars: bool, target: np.dtype) -> tuple[np.dtype, bool]:
    """Returns the common type, and whether it loses nothing and is the type of an operand."""
    a, b = np.dtype(x.dtype), np.dtype(y.dtype)
    ranks = [2 if is_float(d) else 0 if d == np.bool_ else 1 for d in (a, b)]
    if a == b:
        return a, True
    if ranks[0] != ranks[1]:
        high, low = (a, b) if ranks[0] > ranks[1] else (b, a)
        return high, not (is_float(high) and low != np.bool_ and _bits(high) < 2 * _bits(low))
    if scalars and (x.ndim == 0) != (y.ndim == 0):
        kind, other = (b, a) if x.ndim == 0 else (a, b)
        return kind, _holds(kind, other)
    if ranks[0] == 2:
        kind = _of_floats(a, b)
        return kind, kind in (a, b)
    signed = [d for d in (a, b) if d.kind == "i"]
    unsigned = [d for d in (a, b) if d.kind == "u"]
    if len(signed) != 1:
        return (a if _bits(a) > _bits(b) else b), True
    if _bits(unsigned[0]) == 64:
        return target, False
    kind = np.dtype(f"int{max(_bits(signed[0]), 2 * _bits(unsigned[0]))}")
    return kind, kind == signed[0]


def _holds(kind: np.dtype, other: np.dtype) -> bool:
    if is_float(kind):
        return _of_floats(kind, other) == kind
    return jnp.iinfo(kind).min <= jnp.iinfo(other).min and jnp.iinfo(kind).max >= jnp.iinfo(other).max


def _of_floats(a: np.dtype, b: np.dtype) -> np.dtype:
    if {_bits(a), _bits(b)} == {8}:
        return np.dtype(np.float16)
    if _bits(a) == _bits(b):  # float16 and bfloat16
        return np.dtype(np.float32)
    return a if _bits(a) > _bits(b) else b
