"""Matrix products with weights of a few bits, in blocks that share a scale.

In the plain form, XLA converts all weights to floats at each call, which are eight times as large as 4 bits. On a CPU,
one or two rows are multiplied as sums over blocks, in one loop that stores no floats; more rows are multiplied with
panels of floats, which stay in the cache. The weights at one position in all bytes form a matrix, which is multiplied
with the corresponding columns of the other operand: interleaving the positions would take longer than the product.

Sums for one or two rows are faster than panels, and than float32 weights; they also compile faster. From JAX 0.11 on,
panels take two to three times as long.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.dequantize import Quantized
from jaxops.kernels.matmul.dot import Multiply, bilinear, dot
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned
from jaxops.kernels.unpack import at_positions, unpacked

# The number of weights in a panel, and in the smallest matrix for which a loop pays.
_PANEL: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 1 << 20
_FEWEST: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 1 << 16
# Sums pay for at most `_FEW_ROWS` rows. A sum has 4 to 15 terms: XLA fuses an operand into at most 15 readers, and
# fewer terms are longer.
_FEW_ROWS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 2
_FEWEST_TERMS = 4
_MOST_TERMS = 15
# From 2^23 on, neighbouring float32 numbers differ by 1, so the lowest bits of such a number are an integer.
_INTEGERS = 1 << 23


def block_quantized_dot(a: jax.Array, b: jax.Array, scales: jax.Array, zeros: jax.Array | None, bits: int) -> jax.Array:
    """Returns a · wᵀ (…, N), float32, where w (N, K) is (b - zeros) · scales.

    a: (…, K), float32. b: (N, blocks, bytes of a block), uint8, the lowest bits first. scales, zeros: (N, blocks),
    numbers; a zero is 2^(bits - 1) if they are None. The last block may have more elements than K asks for.
    """
    return _dot(a, b, scales, *([] if zeros is None else [zeros]), bits=bits)


def packed_product(a: Any, w: Quantized, dimensions: Any) -> Callable[[Any, Quantized], jax.Array] | None:
    """Returns the function that computes `lax.dot_general` of floats and dequantized blocks by packed integers.

    None if the blocks do not lie along the sum, or fill no whole bytes. a, w: the types of the operands; both
    functions take a dequantized `a`, too. What is packed takes the bytes of the integers at most, so it pays if it
    is prepared.
    """
    (over_a, over_w), (batch, _) = dimensions
    kind = w.numbers.dtype
    bits = jnp.iinfo(kind).bits
    if batch or len(over_w) != 1 or w.numbers.ndim != 2 or w.axis != over_w[0] or w.block * bits % 8:
        return None
    if not isinstance(a, Quantized) and a.dtype != jnp.float32:
        return None
    middle = np.int32(0 if kind.name.startswith("u") else 2 ** (bits - 1))

    def multiply(a: Any, w: Quantized) -> jax.Array:
        numbers, scale, *zero = (x if w.axis else lax.transpose(x, (1, 0)) for x in w.operands)
        codes, *zeros = ((x.astype(jnp.int32) + middle).astype(jnp.uint8) for x in (numbers, *zero))
        if not zeros:
            zeros = [None if middle else jnp.zeros(scale.shape, jnp.uint8)]
        a = a.floats() if isinstance(a, Quantized) else a
        rows = lax.transpose(a, [*(axis for axis in range(a.ndim) if axis not in over_a), *over_a])
        return block_quantized_dot(rows, _packed(codes, w.block, bits), scale, zeros[0], bits)

    return multiply


def _packed(codes: jax.Array, block: int, bits: int) -> jax.Array:
    """Codes (N, K) of a few bits in bytes, the lowest bits first: (N, blocks, bytes of a block)."""
    n, k = codes.shape
    blocks, per_byte = -(-k // block), 8 // bits
    filled = lax.pad(codes, np.uint8(0), [(0, 0, 0), (0, blocks * block - k, 0)])
    places = lax.reshape(filled, (n, blocks, block // per_byte, per_byte))
    return sum((places[..., k] << np.uint8(bits * k) for k in range(1, per_byte)), places[..., 0])


def _floats(elements: jax.Array, scales: jax.Array, *zeros: jax.Array, middle: int) -> jax.Array:
    """Returns (elements - zero) · scale, of shape (N, elements of all blocks)."""

    def of_blocks(x: jax.Array) -> jax.Array:
        return lax.broadcast_in_dim(x.astype(jnp.float32), elements.shape, (0, 1))

    zero = of_blocks(zeros[0]) if zeros else np.float32(middle)
    numbers = (elements.astype(jnp.float32) - zero) * of_blocks(scales)
    return lax.reshape(numbers, (elements.shape[0], elements.shape[1] * elements.shape[2]))


def _of_all_floats(a: jax.Array, b: jax.Array, scales: jax.Array, *zeros: jax.Array, bits: int) -> jax.Array:
    w = _floats(unpacked(b, bits), scales, *zeros, middle=2 ** (bits - 1))[:, : a.shape[-1]]
    return dot(a, w, (((a.ndim - 1,), (1,)), ((), ())), jnp.float32)


def _in_panels(a: jax.Array, b: jax.Array, scales: jax.Array, *zeros: jax.Array, bits: int) -> jax.Array:
    *lead, k = a.shape
    n, per_byte = b.shape[0], 8 // bits
    rows = math.prod(lead)
    count = max(2, -(-n * k // _PANEL))
    size = -(-n // count)
    columns = lax.transpose(lax.reshape(a, (rows, k // per_byte, per_byte)), (2, 1, 0))
    numbers = (("dimension_numbers", (((1,), (0,)), ((), ()))), ("preferred_element_type", np.dtype(np.float32)))
    multiply = Multiply(lax.dot_general, numbers)

    def panel(_: None, start: Any) -> tuple[None, Any]:
        codes, *more = (lax.dynamic_slice_in_dim(x, start, size) for x in (b, scales, *zeros))
        floats = [_floats(place, *more, middle=2 ** (bits - 1)) for place in at_positions(codes, bits)]
        return None, sum(bilinear(multiply, w, x, rows) for w, x in zip(floats, columns, strict=True))

    # If N is not a multiple of a panel, the last panel begins earlier, and overlaps the one before.
    _, products = lax.scan(panel, None, np.minimum(np.arange(count) * size, n - size).astype(np.int32))
    before = lax.reshape(products[:-1], ((count - 1) * size, rows))
    y = lax.concatenate([before, products[-1, count * size - n :]], 0)
    return lax.reshape(lax.transpose(y, (1, 0)), (*lead, n))


def _as_sums(a: jax.Array, b: jax.Array, scales: jax.Array, *zeros: jax.Array, bits: int) -> jax.Array:
    *lead, _ = a.shape
    n, blocks, size = b.shape
    rows, per_byte, count = math.prod(lead), 8 // bits, _terms(blocks)

    def of_terms(x: jax.Array) -> jax.Array:
        return lax.reshape(x, (1, n, count, blocks // count, *x.shape[2:], *[1] * (3 - x.ndim)))

    # A concatenation is stored in memory. A transpose would be fused into the loop and computed for each row of `b`.
    columns = lax.reshape(a, (1, rows, 1, count, blocks // count, size, per_byte))
    x = lax.concatenate([columns[..., place] * np.float32(2.0 ** (-bits * place)) for place in range(per_byte)], 0)
    # With `x` in the same barrier, no part depends on weights alone, so none is prepared as floats or moved out of a
    # user's loop.
    codes, by, x, *zero = lax.optimization_barrier((of_terms(b), of_terms(scales), x, *map(of_terms, zeros)))

    def product(place: int) -> jax.Array:
        """Returns the products at one position in the bytes. Bits are not shifted: elements and zeros are multiples of
        2^(bits · place), and `x[place]` is divided by that number."""
        unit = 2 ** (bits * place)
        word = (codes & np.uint8((2**bits - 1) * unit)).astype(jnp.uint32) | np.float32(_INTEGERS).view(np.uint32)
        number = lax.bitcast_convert_type(word, jnp.float32)
        if zero:
            return (number - np.float32(_INTEGERS) - zero[0].astype(jnp.float32) * np.float32(unit)) * x[place]
        # One exact subtraction: between two with constants, `keep_order` would put a barrier.
        return (number - np.float32(_INTEGERS + 2 ** (bits - 1) * unit)) * x[place]

    products = sum(map(product, range(1, per_byte)), product(0)) * by.astype(jnp.float32)
    total = sum((products[:, :, term] for term in range(1, count)), products[:, :, 0])
    # Without a barrier, XLA from JAX 0.11 on fuses the additions with the reduction, and stores each term, which takes
    # many times as long.
    return lax.reshape(lax.reduce_sum(lax.optimization_barrier(total), (2, 3)), (*lead, n))


def _terms(blocks: int) -> int:
    """Returns the number of terms of a sum; each has the same number of blocks."""
    return max(count for count in range(1, _MOST_TERMS + 1) if blocks % count == 0)


def _select(target: Target, a: Any, b: Any, *_: Any, bits: int) -> Any:
    k = a.shape[-1]
    if target.platform != "cpu" or not all(isinstance(d, int) for d in (k, *b.shape)):
        return None
    # If the last block extends beyond K, an infinite scale times 0 would give NaN there.
    fills = k == b.shape[1] * b.shape[2] * (8 // bits)
    if not fills or b.shape[0] * k < _FEWEST:
        return None
    rows = math.prod(a.shape[:-1])
    is_few = isinstance(rows, int) and rows <= _FEW_ROWS
    return _as_sums if is_few and _terms(b.shape[1]) >= _FEWEST_TERMS else _in_panels


_dot = NamedCall("block_quantized_dot", _of_all_floats, _select, rows=True)
