"""Weights whose scales and codes are packed into blocks of bytes, as in GGUF files."""

__all__ = ["gather_packed", "matmul_fp_q4"]

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import element_type, integer, ints
from jaxops.dtypes import canonical, floating, integral
from jaxops.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError, shape_text
from jaxops.kernels.matmul.dot import dot
from jaxops.kernels.unpack import unpacked
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.ops.common.quantized_numbers import quantized
from jaxops.ops.microsoft.quantized.codebooks import codebook
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import ElementType, Static, Weight, operator
from jaxops.static import ArrayLike, Dim, Sizes, jit_if_concrete

# The numbers of the 4-bit codes of IQ4_NL and IQ4_XS.
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _bits_of(x: Any, width: int) -> Any:
    """Reads bytes (…, n) as little-endian unsigned integers of `width` bytes: (…, n / width)."""
    kind = {2: np.uint16, 4: np.uint32}[width]
    integers = x[..., ::width].astype(kind)
    for k in range(1, width):
        integers = integers | (x[..., k::width].astype(kind) << kind(8 * k))
    return integers


def _halves(x: Any) -> Any:
    """Reads bytes (…, 2n) as float16, and returns them in float32: (…, n)."""
    return lax.bitcast_convert_type(_bits_of(x, 2), np.float16).astype(np.float32)


def _nibbles(x: Any) -> Any:
    """Returns the low halves of bytes, then the high halves: (…, n) → (…, 2n)."""
    return jnp.concatenate([x & np.uint8(15), x >> np.uint8(4)], -1)


def _fields(x: Any, bits: int, count: int) -> Any:
    """Unpacks `count` numbers of `bits` bits from each integer, the lowest first: (…,) → (…, count)."""
    shifts = (np.arange(count) * bits).astype(x.dtype).reshape((1,) * x.ndim + (count,))
    return (x[..., None] >> shifts) & np.asarray(2**bits - 1, x.dtype)


def _blocks(x: Any, *sizes: int) -> Any:
    return x.reshape(*x.shape[:-1], *sizes)


def _f32(x: Any) -> Any:
    return lax.bitcast_convert_type(_bits_of(x, 4), np.float32)


def _bf16(x: Any) -> Any:
    return lax.bitcast_convert_type(_bits_of(x, 2), jnp.bfloat16).astype(np.float32)


def _q4_0(x: Any) -> Any:
    return (_nibbles(x[..., 2:]).astype(np.float32) - 8) * _halves(x[..., :2])


def _q5_0(x: Any) -> Any:
    high = _fields(_bits_of(x[..., 2:6], 4)[..., 0], 1, 32).astype(np.float32)
    return (_nibbles(x[..., 6:]).astype(np.float32) + 16 * high - 16) * _halves(x[..., :2])


def _q8_0(x: Any) -> Any:
    return lax.bitcast_convert_type(x[..., 2:], np.int8).astype(np.float32) * _halves(x[..., :2])


def _q2_0(x: Any) -> Any:
    return (unpacked(x[..., 2:], 2).astype(np.float32) - 1) * _halves(x[..., :2])


def _q5_k(x: Any) -> Any:
    """8 blocks of 32, each with a scale and a minimum of 6 bits; 4 bits of an element, and a fifth elsewhere."""
    factors, packed, high, low = x[..., :4], x[..., 4:16], x[..., 16:48], x[..., 48:]
    first, second, third = (packed[..., k : k + 4] for k in (0, 4, 8))
    scales = jnp.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], -1).astype(np.float32)
    least = jnp.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], -1).astype(np.float32)
    codes = _nibbles(_blocks(low, 4, 32)).reshape(*x.shape[:-1], 8, 32).astype(np.float32)
    fifth = jnp.swapaxes(_fields(high, 1, 8), -1, -2).astype(np.float32)
    d, m = (_halves(factors[..., k : k + 2]) for k in (0, 2))
    return ((codes + 16 * fifth) * (d * scales)[..., None] - (m * least)[..., None]).reshape(*x.shape[:-1], 256)


def _q6_k(x: Any) -> Any:
    """16 blocks of 16, each with a scale of 8 bits; 4 bits of an element, and 2 more elsewhere."""
    low, high, scales, d = x[..., :128], x[..., 128:192], x[..., 192:208], x[..., 208:]
    low, high = _blocks(low, 2, 64), _blocks(high, 2, 32)
    upper = jnp.swapaxes(_fields(high, 2, 4), -1, -2)  # (…, 2, 4, 32)
    lower = _blocks(_nibbles(low), 4, 32)
    codes = (lower | (upper << np.uint8(4))).astype(np.float32) - 32
    by = lax.bitcast_convert_type(scales, np.int8).astype(np.float32) * _halves(d)
    return (codes.reshape(*by.shape, 16) * by[..., None]).reshape(*x.shape[:-1], 256)


def _iq4_nl(x: Any) -> Any:
    return jnp.take(np.asarray(_IQ4, np.float32), _nibbles(x[..., 2:])) * _halves(x[..., :2])


def _iq4_xs(x: Any) -> Any:
    """8 blocks of 32, each with a scale of 6 bits."""
    upper = _fields(_bits_of(x[..., 2:4], 2)[..., 0], 2, 8).astype(np.uint8)
    scales = (unpacked(x[..., 4:8], 4) | (upper << np.uint8(4))).astype(np.float32) - 32
    numbers = jnp.take(np.asarray(_IQ4, np.float32), _nibbles(_blocks(x[..., 8:], 8, 16)))
    return (numbers * (scales * _halves(x[..., :2]))[..., None]).reshape(*x.shape[:-1], 256)


def _signed(numbers: Any, signs: Any) -> Any:
    """Returns numbers (…, 8), negated where their bit in `signs` is 1."""
    return jnp.where(_fields(signs, 1, 8) == 1, -numbers, numbers)


def _even(signs: Any) -> Any:
    """Adds an eighth sign to seven, so that the number of negative ones is even."""
    odd = lax.population_count(signs) & np.asarray(1, signs.dtype)
    return signs | (odd << np.asarray(7, signs.dtype))


def _iq2_xxs(x: Any) -> Any:
    """8 blocks of 32: 4 codes, 4 times 7 signs, a scale of 4 bits."""
    parts = _blocks(x[..., 2:], 8, 8)
    tail = _bits_of(parts[..., 4:], 4)[..., 0]
    numbers = jnp.take(codebook("iq2_xxs"), parts[..., :4].astype(np.int32), 0)
    scales = _halves(x[..., :2]) * (0.5 + (tail >> 28).astype(np.float32)) * 0.25
    elements = _signed(numbers, _even(_fields(tail, 7, 4))) * scales[..., None, None]
    return elements.reshape(*x.shape[:-1], 256)


def _pairs_of_scales(x: Any, d: Any) -> Any:
    """16 scales of 4 bits, each for two codes of 8 elements: (…, 32, 1)."""
    scales = d * (0.5 + unpacked(x, 4).astype(np.float32)) * 0.25
    return jnp.repeat(scales, 2, -1)[..., None]


def _iq2_xs(x: Any) -> Any:
    """32 codes of 9 bits with 7 signs each."""
    both = _bits_of(x[..., 2:66], 2)
    numbers = jnp.take(codebook("iq2_xs"), (both & 511).astype(np.int32), 0)
    elements = _signed(numbers, _even(both >> 9)) * _pairs_of_scales(x[..., 66:], _halves(x[..., :2]))
    return elements.reshape(*x.shape[:-1], 256)


def _iq2_s(x: Any) -> Any:
    """32 codes, of 8 bits and 2 more elsewhere, with 8 signs each."""
    upper = unpacked(x[..., 66:74], 2).astype(np.int32)
    codes = x[..., 2:34].astype(np.int32) | (upper << 8)
    numbers = jnp.take(codebook("iq2_s"), codes, 0)
    elements = _signed(numbers, x[..., 34:66]) * _pairs_of_scales(x[..., 74:], _halves(x[..., :2]))
    return elements.reshape(*x.shape[:-1], 256)


def _iq3_xxs(x: Any) -> Any:
    """8 blocks of 32: 8 codes of 4 elements, 4 times 7 signs, a scale of 4 bits."""
    tail = _bits_of(x[..., 66:], 4)
    numbers = jnp.take(codebook("iq3_xxs"), x[..., 2:66].astype(np.int32), 0).reshape(*x.shape[:-1], 8, 4, 8)
    scales = _halves(x[..., :2]) * (0.5 + (tail >> 28).astype(np.float32)) * 0.5
    elements = _signed(numbers, _even(_fields(tail, 7, 4))) * scales[..., None, None]
    return elements.reshape(*x.shape[:-1], 256)


class _Format(NamedTuple):
    """A block: its elements, its bytes, and how to read them, (…, bytes) → (…, elements) in float32."""

    elements: int
    size: int
    read: Callable[[Any], Any]


# GGUF's number of a format → the format, for those that onnxruntime reads on a CPU.
_FORMATS = {
    0: _Format(1, 4, _f32),
    1: _Format(1, 2, _halves),
    2: _Format(32, 18, _q4_0),
    6: _Format(32, 22, _q5_0),
    8: _Format(32, 34, _q8_0),
    13: _Format(256, 176, _q5_k),
    14: _Format(256, 210, _q6_k),
    16: _Format(256, 66, _iq2_xxs),
    17: _Format(256, 74, _iq2_xs),
    18: _Format(256, 98, _iq3_xxs),
    20: _Format(32, 18, _iq4_nl),
    22: _Format(256, 82, _iq2_s),
    23: _Format(256, 136, _iq4_xs),
    30: _Format(1, 2, _bf16),
    42: _Format(64, 18, _q2_0),
}


def gather_packed(
    data: ArrayLike, indices: ArrayLike, *, K: int, packed_type: int, output_dtype: ElementType = jnp.bfloat16
) -> jax.Array:
    """Returns dequantized rows of a table whose elements are packed into blocks.

    data: (V, bytes), uint8. indices: int32 or int64, any shape; one outside of [0, V) reads row 0. K: the elements of a
    row, a multiple of those of a block. packed_type: the format of GGUF: 0 float32, 1 float16, 30 bfloat16; 2 Q4_0,
    6 Q5_0, 8 Q8_0, 20 IQ4_NL in blocks of 32, 42 Q2_0 in blocks of 64; 13 Q5_K, 14 Q6_K, 16 IQ2_XXS, 17 IQ2_XS,
    18 IQ3_XXS, 22 IQ2_S, 23 IQ4_XS in blocks of 256. output_dtype: float32, float16 or bfloat16.
    Returns the axes of indices and K, in output_dtype; it is computed in float32.
    Raises ShapeError when the sizes do not fit, DTypeError, ArgumentError, BoundsError for a table without rows,
    UnsupportedError for another format. Source: com.microsoft GatherPacked, opset 1.

    >>> row = np.array([0, 60, *[0x97] * 16], np.uint8)  # 1 in float16, then (7 - 8) and (9 - 8)
    >>> gather_packed(row[None], np.array([0]), K=32, packed_type=2)[0, 15:17].tolist()
    [-1.0, 1.0]
    """
    kind = integer("packed_type", packed_type)
    if kind not in _FORMATS:
        formats = ", ".join(map(str, _FORMATS))
        raise UnsupportedError(f"`packed_type` is {kind}; the formats are {formats}")
    dtype = canonical(element_type("output_dtype", output_dtype))
    if dtype.name not in ("float32", "float16", "bfloat16"):
        raise DTypeError(f"`output_dtype` is {dtype.name}; it must be float32, float16 or bfloat16")
    (rows,) = integral(indices=indices)
    return _gathered((quantized("data", data, ("uint8",)), rows), kind, integer("K", K), dtype)


def _blocks_per_row(data: Sizes, k: int, block: int, block_bytes: int) -> int:
    """Returns the number of blocks per row of a table `data`, (V, blocks · block_bytes), with k elements per row."""
    if k < 1 or k % block:
        raise ArgumentError(f"`K` is {k}; it must be a positive multiple of {block}, the elements of a block")
    width = k // block * block_bytes
    must_fit("data", data, ("V", width), reason=f", the bytes of rows of {k} elements")
    return k // block


@jit_if_concrete
def _gathered(operands: tuple[Any, Any], kind: int, k: int, dtype: np.dtype) -> jax.Array:
    (data, indices), form = operands, _FORMATS[kind]
    blocks = _blocks_per_row(data.shape, k, form.elements, form.size)
    check_inhabited("`data`", data.shape, (0,), indices.shape)
    count = jnp.asarray(data.shape[0], indices.dtype)
    rows = jnp.take(data, jnp.where((indices >= 0) & (indices < count), indices, 0), 0)
    elements = form.read(rows.reshape(*indices.shape, blocks, form.size))
    return elements.reshape(*indices.shape, k).astype(dtype)


# The elements of a block of MatMulFpQ4 by `blk_quant_type`; type 1 has a zero point after the scale.
_COLUMN_BLOCKS = {0: 32, 1: 32, 2: 64}


@operator(kind="linear")
def matmul_fp_q4(a: ArrayLike, b: Weight[ArrayLike], b_shape: Static, *, blk_quant_type: int = 1) -> jax.Array:
    """Returns a · w, where the columns of w (K, N) are packed into blocks of 4-bit codes, each with a scale.

    a: (…, K), floats. b: uint8, flat: column by column, with the last block of each padded. A block has a scale, the 4
    bytes of a float32; for type 1 a byte with the zero point; then the codes: of each 32, byte i has code i in its low
    half and code i + 16 in its high half. A code c stands for (c - zero point) · scale; the zero point of the other
    types is 8. b_shape: static, K and N. blk_quant_type: 0 and 1 for blocks of 32, 2 of 64.
    Returns (…, N), in the type of a; it is computed in float32 at the precision that JAX is asked for.
    Raises ShapeError when the shapes do not fit, DTypeError, ArgumentError, StaticError.
    Source: com.microsoft MatMulFpQ4, opset 1; onnxruntime 1.32 reads blocks of type 2 as those of type 1.

    >>> block = np.array([0, 0, 128, 63, 8, *[0x97] * 16], np.uint8)  # 1 in float32, the zero point 8
    >>> matmul_fp_q4(jnp.eye(32)[14:18], block, (32, 1)).ravel().tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """
    kind = integer("blk_quant_type", blk_quant_type)
    if kind not in _COLUMN_BLOCKS:
        raise ArgumentError(f"`blk_quant_type` is {kind}; it must be 0, 1 or 2")
    (x,) = floating(a=a)
    return _product((x, quantized("b", b, ("uint8",))), ints("b_shape", b_shape), kind)


def _product_sizes(a: Sizes, b: Sizes, shape: Sizes, block: int, block_bytes: int) -> tuple[Dim, Dim, int]:
    """Returns (K, N, blocks per column) for a product of `a`, (…, K), with a matrix packed by columns into `b`."""
    if len(shape) != 2 or not all(isinstance(d, int) and d >= 0 for d in shape):
        raise ShapeError(f"`B_shape` is {shape_text(shape)}; it must be two sizes, K and N")
    k, n = shape
    if not a or a[-1] != k:
        raise ShapeError(f"`a` of {shape_text(a)} must have K, {k}, elements on its last axis")
    blocks = -(-k // block)
    if b != (n * blocks * block_bytes,):
        raise ShapeError(
            f"`b` of {shape_text(b)} must be {shape_text((n * blocks * block_bytes,))}, {block_bytes} bytes for "
            f"each block of {block} elements of {n} columns of {k}"
        )
    return k, n, blocks


@jit_if_concrete
def _product(operands: tuple[Any, Any], shape: tuple[int, ...], kind: int) -> jax.Array:
    a, b = operands
    block, extra = _COLUMN_BLOCKS[kind], int(kind == 1)
    size = 4 + extra + block // 2
    k, n, blocks = _product_sizes(a.shape, b.shape, shape, block, size)
    parts = b.reshape(n, blocks, size)
    codes = _nibbles(parts[..., 4 + extra :].reshape(n, blocks, block // 32, 16)).reshape(n, blocks, block)
    zeros = parts[..., 4:5].astype(np.float32) if extra else np.full((1, 1, 1), 8, np.float32)
    w = codes.astype(np.float32) - broadcast_to(jnp.asarray(zeros), codes.shape)
    w = (w * broadcast_to(_f32(parts[..., :4]), codes.shape)).reshape(n, blocks * block)[:, :k]
    return dot(a.astype(np.float32), w, (((a.ndim - 1,), (1,)), ((), ())), np.float32).astype(a.dtype)
