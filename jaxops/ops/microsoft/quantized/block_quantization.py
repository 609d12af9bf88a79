"""Weights of a few bits, packed into bytes, with a scale for each block; the program unpacks them."""

__all__ = ["gather_block_quantized", "matmul_bnb4", "matmul_nbits"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag, integer
from jaxops.dtypes import as_traced, floating, integral, is_float
from jaxops.errors import ArgumentError, DTypeError, UnsupportedError
from jaxops.kernels.matmul.block_quantized import block_quantized_dot
from jaxops.kernels.matmul.dot import dot
from jaxops.kernels.unpack import unpacked
from jaxops.ops.common.elementwise import broadcast_to, traced_operands
from jaxops.ops.common.quantized_numbers import FLOAT8, quantized
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.microsoft.quantized import block_quantization as sizes_of
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import Bias, Weight, operator
from jaxops.static import ArrayLike, jit_if_concrete

# The numbers of the codes of bitsandbytes: a sign with a 3-bit float, and the quantiles of a normal
# distribution.
_FP4_POSITIVE = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_FP4 = (*_FP4_POSITIVE, *(-v for v in _FP4_POSITIVE))
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@operator(kind="linear")
def matmul_nbits(
    a: ArrayLike,
    b: Weight[ArrayLike],
    scales: ArrayLike,
    zero_points: ArrayLike | None = None,
    g_idx: ArrayLike | None = None,
    bias: Bias[ArrayLike] | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    weight_prepacked: int = 0,
) -> jax.Array:
    """Returns a · wᵀ + bias, where w (N, K) is (b - zero_points) · scales; b packs elements of `bits` bits into bytes.

    a: (…, K), float16, bfloat16 or float32. b: (N, blocks, block_size · bits / 8), uint8, the lowest bits first, with
    blocks = ceil(K / block_size). scales: (N, blocks) or flat, in the type of a. zero_points: uint8, packed as b is,
    (N, ceil(blocks · bits / 8)); or (N, blocks) in the type of a; either may be flat; 2^(bits - 1) when None.
    g_idx: (K,), int32: the block of each column; None: block_size neighbouring columns form a block. bias: (N,).
    Returns: (…, N), in the type of a; w is computed in float32, and the product at the precision that JAX
    is asked for. bits: 2, 4 or 8.
    accuracy_level has no effect. weight_prepacked: must be 0; other values are layouts of one accelerator.
    Raises ShapeError when the shapes do not fit, DTypeError for other types, ArgumentError, UnsupportedError.
    Source: com.microsoft MatMulNBits, opset 1, as onnxruntime defines it.

    >>> b = jnp.full((1, 1, 8), 0x9A, jnp.uint8)
    >>> matmul_nbits(jnp.ones((1, 16)), b, jnp.ones((1, 1)), K=16, N=1, block_size=16).tolist()
    [[24.0]]
    """
    if integer("weight_prepacked", weight_prepacked):
        raise UnsupportedError(
            f"`weight_prepacked` is {weight_prepacked}: the weights have the layout of one accelerator; export "
            f"the model with weight_prepacked 0"
        )
    floats = [scales] if bias is None else [scales, bias]
    data, by, *more = traced_operands((a, *floats), "floating-point")
    zeros = None if zero_points is None else as_traced(zero_points)
    if zeros is not None and zeros.dtype not in (jnp.uint8, data.dtype):
        raise DTypeError(
            f"`zero_points` is {zeros.dtype.name}; it must be uint8 (packed) or {data.dtype.name}, as `a` is"
        )
    (groups,) = integral(g_idx=g_idx)
    operands = data, quantized("b", b, ("uint8",)), by, zeros, groups, more[0] if more else None
    numbers = {"K": K, "N": N, "block_size": block_size, "bits": bits}
    return _matmul_nbits(operands, *(integer(name, value) for name, value in numbers.items()))


@jit_if_concrete
def _matmul_nbits(operands: tuple[Any, ...], k: int, n: int, block_size: int, bits: int) -> jax.Array:
    a, b, scales, zeros, g_idx, bias = operands
    names = {"b": b, "scales": scales, "zero_points": zeros, "g_idx": g_idx, "bias": bias}
    operand_sizes: dict[str, Any] = {name: value.shape for name, value in names.items() if value is not None}
    packed = zeros is not None and bool(zeros.dtype == jnp.uint8)
    blocks = sizes_of.matrix(n, k, bits, block_size, {**operand_sizes, "packed_zero_points": packed})
    sizes_of.product(a.shape, k)
    scales = lax.reshape(scales, (n, blocks))
    if zeros is not None and packed:
        zeros = unpacked(lax.reshape(zeros, (n, zeros.size // n)), bits)[:, :blocks]
    elif zeros is not None:
        zeros = lax.reshape(zeros, (n, blocks))
    b = lax.reshape(b, (n, blocks, block_size * bits // 8))
    if g_idx is None:
        y = block_quantized_dot(a.astype(jnp.float32), b, scales, zeros, bits)
    else:
        elements = lax.reshape(unpacked(b, bits), (n, blocks * block_size))
        w = _weights_of_groups(elements[:, :k], scales, zeros, 2 ** (bits - 1), g_idx)
        y = dot(a.astype(jnp.float32), w, (((a.ndim - 1,), (1,)), ((), ())), jnp.float32)
    y = y if bias is None else y + broadcast_to(bias.astype(jnp.float32), y.shape)
    return assert_sizes(y.astype(a.dtype), (*a.shape[:-1], n), a.dtype)


def _weights_of_groups(q: jax.Array, scales: jax.Array, zeros: jax.Array | None, middle: int, g_idx: Any) -> jax.Array:
    """(q - zeros) · scales in float32; g_idx names the block of each column."""
    by = jnp.take(scales.astype(jnp.float32), g_idx, 1)
    origin = middle if zeros is None else jnp.take(zeros.astype(jnp.float32), g_idx, 1)
    return (q.astype(jnp.float32) - origin) * by


@operator(kind="linear")
def matmul_bnb4(
    a: ArrayLike,
    b: Weight[ArrayLike],
    absmax: ArrayLike,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> jax.Array:
    """Returns a · wᵀ, where w (N, K) has 4-bit codes of bitsandbytes: a code is a number times `absmax` of its block.

    a: (…, K), float16, bfloat16 or float32. b: N · K codes, two in a byte, the first one in the high bits, uint8, any
    shape. absmax: a number for every `block_size` codes, in the type of a. quant_type: 0 for FP4, 1 for NF4.
    transB: 0 gives a · w instead, with a (…, N). Returns the type of a; w is computed in float32, and the
    product at the precision that JAX is asked for.
    Raises ShapeError when the shapes do not fit, DTypeError for other types, ArgumentError.
    Source: com.microsoft MatMulBnb4, opset 1, as onnxruntime defines it.

    >>> codes = jnp.full(8, 0xF0, jnp.uint8)
    >>> matmul_bnb4(jnp.ones((1, 16)), codes, jnp.ones(1) * 3, K=16, N=1, block_size=16, quant_type=1).tolist()
    [[0.0]]
    """
    flag("training_mode", training_mode)
    data, by = traced_operands((a, absmax), "floating-point")
    codes = quantized("b", b, ("uint8",))
    kind = integer("quant_type", quant_type)
    if kind not in (0, 1):
        raise ArgumentError(f"`quant_type` is {kind}; it must be 0 (FP4) or 1 (NF4)")
    numbers = {"K": K, "N": N, "block_size": block_size}
    sizes = tuple(integer(name, value) for name, value in numbers.items())
    return _matmul_bnb4((data, codes, by), sizes, kind, flag("transB", transB))


@jit_if_concrete
def _matmul_bnb4(operands: tuple[jax.Array, ...], sizes: tuple[int, ...], kind: int, swapped: bool) -> jax.Array:
    (a, b, absmax), (k, n, block_size) = operands, sizes
    sizes_of.flat(n, k, block_size, b.shape, absmax.shape)
    sizes_of.product(a.shape, k if swapped else n)
    flat = lax.reshape(b, (b.size,))
    codes = lax.reshape(jnp.stack([flat >> np.uint8(4), flat & np.uint8(15)], 1), (2 * b.size,))[: n * k]
    numbers = jnp.take(jnp.asarray(_NF4 if kind else _FP4, jnp.float32), codes.astype(jnp.int32))
    by = jnp.repeat(absmax.reshape(-1).astype(jnp.float32), block_size)[: n * k]
    w = lax.reshape(numbers * by, (n, k))
    y = dot(a.astype(jnp.float32), w, (((a.ndim - 1,), (1 if swapped else 0,)), ((), ())), jnp.float32)
    return y.astype(a.dtype)


@operator(kind="embedding")
def gather_block_quantized(
    data: Weight[ArrayLike],
    indices: ArrayLike,
    scales: ArrayLike,
    zero_points: ArrayLike | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> jax.Array:
    """Gathers slices of (data - zero_points) · scales, a quantized table; only the slices are dequantized.

    data: int4, uint4, uint8, an 8-bit float or float4_e2m1fn. A byte of uint8 packs 8 / bits elements of the last
    axis, which must be the quantize_axis; the gather_axis must then be 0. indices: int32 or int64, any shape;
    negative ones count from the end, and one out of range gives zeros. scales: floats of 16 bits or more, a scale for
    each `block_size` elements on the quantize_axis, else the sizes of data; for floats also 1 on another axis.
    zero_points: the sizes of scales, in the type of data, packed as data is; 0 when None, or 2^(bits - 1) for uint8.
    block_size: a power of 2, at least 16; for floats 0 is one block. Floats have no zero points.
    Returns: the elements of data with the gather_axis replaced by the axes of indices, in the type of scales.
    Raises ShapeError when the shapes do not fit, DTypeError for other types, ArgumentError, AxisError.
    Source: com.microsoft GatherBlockQuantized, opset 1, as onnxruntime defines it.

    >>> table = jnp.full((3, 8), 0x9A, jnp.uint8)
    >>> gather_block_quantized(table, jnp.array([2]), jnp.ones((3, 1)), block_size=16)[0, :4].tolist()
    [2.0, 1.0, 2.0, 1.0]
    """
    x = quantized("data", data, ("int4", "uint4", "uint8", *FLOAT8, "float4_e2m1fn"))
    floats = is_float(x.dtype)
    size = integer("block_size", block_size)
    if not (floats and size == 0) and (size < 16 or size & (size - 1)):
        raise ArgumentError(f"`block_size` is {size}; it must be a power of 2, at least 16")
    width = 8 if floats else integer("bits", bits)
    if width not in ((2, 4, 8) if floats or x.dtype == jnp.uint8 else (4,)):
        raise ArgumentError(f"`bits` is {width}; it must be 2, 4 or 8 for uint8, else 4")
    gathered_axis, along = resolve_axis(gather_axis, x.ndim), resolve_axis(quantize_axis, x.ndim)
    if x.dtype == jnp.uint8 and (gathered_axis != 0 or along != x.ndim - 1 or gathered_axis == along):
        raise ArgumentError("for uint8 `gather_axis` must be 0, and `quantize_axis` the last axis and not 0")
    (by,) = floating(scales=scales)
    zeros = None if zero_points is None else as_traced(zero_points)
    if zeros is not None and (floats or zeros.dtype != x.dtype):
        raise DTypeError(
            f"`zero_points` is {zeros.dtype.name}; "
            + ("floats have none" if floats else f"it must be {x.dtype.name}, as `data` is")
        )
    (integers,) = integral(indices=indices)
    return _gather((x, integers, by, zeros), gathered_axis, along, size, width)


@jit_if_concrete
def _gather(operands: tuple[Any, ...], axis: int, along: int, block_size: int, bits: int) -> jax.Array:
    data, indices, scales, zeros = operands
    per_byte = 8 // bits if data.dtype == jnp.uint8 else 1
    block = block_size or max(1, data.shape[along])
    sizes = None if zeros is None else zeros.shape
    sizes_of.table(data.shape, scales.shape, sizes, along, block, per_byte, is_float(data.dtype))
    count = data.shape[axis]
    valid = (indices >= -count) & (indices < count)
    rows = jnp.where(valid, jnp.where(indices < 0, indices + count, indices), 0)
    check_inhabited("`data`", data.shape, (axis,), rows.shape)
    x = jnp.take(_movable(data), rows, axis)
    # If the blocks lie along the gathered axis, each place has the scale of its block.
    of_blocks = rows // block if axis == along else rows
    lead = indices.ndim - 1
    by, origin = (
        None if v is None else v if v.shape[axis] == 1 and axis != along else jnp.take(_movable(v), of_blocks, axis)
        for v in (scales, zeros)
    )
    if data.dtype == jnp.uint8:
        x = unpacked(x, bits)
        # A row of zero points may have room for more than there are blocks.
        origin = None if origin is None else unpacked(origin, bits)[..., : scales.shape[-1]]
    result = x.shape
    x, by, origin = (None if v is None else _spread(v, axis, lead, along, block, result) for v in (x, by, origin))
    assert x is not None
    assert by is not None
    middle = 2 ** (bits - 1) if data.dtype == jnp.uint8 else 0
    y = (x.astype(jnp.float32) - (middle if origin is None else origin.astype(jnp.float32))) * by.astype(jnp.float32)
    axes = tuple(range(axis, axis + indices.ndim))
    is_valid = lax.broadcast_in_dim(valid, y.shape, axes)
    return jnp.where(is_valid, y, 0).astype(scales.dtype)


def _movable(x: jax.Array) -> jax.Array:
    """Returns 4-bit numbers in 8 bits, since XLA:CPU cannot move 4-bit ones."""
    if is_float(x.dtype) and x.dtype.itemsize == 1:
        return x.astype(jnp.float32)
    return x.astype(jnp.int8) if x.dtype.name == "int4" else x.astype(jnp.uint8) if x.dtype.name == "uint4" else x


def _spread(x: jax.Array, axis: int, lead: int, along: int, block: int, sizes: tuple[Any, ...]) -> jax.Array:
    """Returns a scale or zero point for each element of the slices; an array of their sizes is unchanged."""
    if x.shape == sizes:
        return x
    if x.ndim < len(sizes):  # broadcasts on the axis that is gathered
        x = lax.reshape(x, (*x.shape[:axis], *(1,) * (lead + 1), *x.shape[axis + 1 :]))
    where = along if along < axis else along + lead
    if along != axis and x.shape[where] != sizes[where]:
        x = lax.slice_in_dim(jnp.repeat(x, block, where), 0, sizes[where], axis=where)
    return broadcast_to(x, sizes)
