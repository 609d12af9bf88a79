"""A product with weights of a few bits, in blocks that share a scale.

XLA makes floats of all weights at each call before it multiplies, eight times the bytes of 4 bits. On a CPU the product
runs in panels instead, of which the floats stay in a cache: a row costs what it costs to read the bytes, and many rows
what they cost with float32. The weights of each place in a byte are a matrix of their own, which meets its columns of
the other operand: to lay them side by side takes longer than the product. On two cores of AMD, in µs, with float32
weights, as XLA has it, in panels: 1×768×3072 290, 960, 330; 4 rows 780, 5300, 470; 64 rows 2060, 6500, 2100.

What takes half of the time for a row, and 100 ms to compile where panels take 40: a sum of all blocks, block by block,
in one loop. A token of a Llama of 110 million weights took 11 to 15 ms, not 18, and its program 12 s to compile, not 4.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.matmul.dot import Multiply, bilinear, dot
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target

# The weights of a panel; and of the smallest matrix for which a loop pays.
_PANEL = 1 << 19
_FEWEST = 1 << 16


def unpacked(x: jax.Array, bits: int) -> jax.Array:
    """Returns the elements in bytes, the lowest bits first: uint8, the last axis 8 / bits times as long."""
    if bits == 8:
        return x
    elements = jnp.stack(_places(x, bits), -1)
    return lax.reshape(elements, (*x.shape[:-1], x.shape[-1] * (8 // bits)))


def block_quantized_dot(a: jax.Array, b: jax.Array, scales: jax.Array, zeros: jax.Array | None, bits: int) -> jax.Array:
    """Returns a · wᵀ (…, N), float32, where w (N, K) is (b - zeros) · scales.

    a: (…, K), float32. b: (N, blocks, bytes of a block), uint8, the lowest bits first. scales, zeros: (N, blocks),
    numbers; a zero is 2^(bits - 1) where they are None. The last block may have more elements than K asks for.
    """
    return _dot(a, b, scales, *([] if zeros is None else [zeros]), bits=bits)


def _places(x: jax.Array, bits: int) -> list[jax.Array]:
    """The elements at each place in a byte, the lowest first."""
    return [(x >> np.uint8(shift)) & np.uint8(2**bits - 1) for shift in range(0, 8, bits)]


def _floats(elements: jax.Array, scales: jax.Array, *zeros: jax.Array, middle: int) -> jax.Array:
    """(elements - zero) · scale, (N, elements of all blocks)."""

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
        floats = [_floats(place, *more, middle=2 ** (bits - 1)) for place in _places(codes, bits)]
        return None, sum(bilinear(multiply, w, x, rows) for w, x in zip(floats, columns, strict=True))

    # The last panel begins earlier where the sizes do not divide N.
    _, products = lax.scan(panel, None, np.minimum(np.arange(count) * size, n - size).astype(np.int32))
    before = lax.reshape(products[:-1], ((count - 1) * size, rows))
    y = lax.concatenate([before, products[-1, count * size - n :]], 0)
    return lax.reshape(lax.transpose(y, (1, 0)), (*lead, n))


def _select(target: Target, a: Any, b: Any, *_: Any, bits: int) -> Any:
    k = a.shape[-1]
    if target.platform != "cpu" or not all(isinstance(d, int) for d in (k, *b.shape)):
        return None
    # An infinite scale times a zero would be NaN in columns beyond K.
    fills = k == b.shape[1] * b.shape[2] * (8 // bits)
    return _in_panels if fills and b.shape[0] * k >= _FEWEST else None


_dot = NamedCall("block_quantized_dot", _of_all_floats, _select)
