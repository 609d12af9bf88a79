"""Sizes of matrices whose elements of a few bits are packed into bytes, with a scale for each block."""

import math
from typing import Any

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import agree, must_fit
from jaxops.static import Dim, Sizes


def packed(count: Dim, bits: int) -> Dim:
    """The number of bytes of `count` elements."""
    return (count * bits + 7) // 8


def matrix(n: int, k: int, bits: int, block_size: int, operands: dict[str, Any]) -> int:
    """Returns the number of blocks per row.

    operands: the sizes of b, scales and so on, and `packed_zero_points`, which is True for packed zero points.
    Raises ShapeError if an operand does not have the sizes that follow from N, K and the attributes.
    """
    if bits not in (2, 4, 8):
        raise ArgumentError(f"`bits` is {bits}; it must be 2, 4 or 8")
    if block_size < 16 or block_size & (block_size - 1):
        raise ArgumentError(f"`block_size` is {block_size}; it must be a power of 2, at least 16")
    blocks = -(-k // block_size)
    zeros = packed(blocks, bits) if operands["packed_zero_points"] else blocks
    expected: dict[str, tuple[Sizes, ...]] = {
        "b": ((n, blocks, block_size * bits // 8),),
        "scales": ((n, blocks), (n * blocks,)),
        "zero_points": ((n, zeros), (n * zeros,)),
        "g_idx": ((k,), (blocks * block_size,)),
        "bias": ((n,),),
    }
    reason = f", as N is {n} and K is {k}, in {bits} bits and blocks of {block_size}"
    for operand, allowed in expected.items():
        must_fit(operand, operands.get(operand), *allowed, reason=reason)
    return blocks


def product(a: Sizes, k: int) -> None:
    """Raises ShapeError unless the last axis of a has K elements."""
    problem = f"`a` of {shape_text(a)} must have K, {k}, elements on its last axis"
    if not a or not agree(problem, a[-1], k):
        raise ShapeError(problem)


def flat(n: int, k: int, block_size: int, b: Sizes, absmax: Sizes) -> None:
    """Raises ShapeError unless b has room for N·K elements of 4 bits, and absmax for one number per block."""
    for operand, sizes, count in (("b", b, (n * k + 1) // 2), ("absmax", absmax, -(-n * k // block_size))):
        if math.prod(sizes) != count:
            raise ShapeError(
                f"`{operand}` of {shape_text(sizes)} must have {count} elements for N {n}, K {k} and blocks of "
                f"{block_size}"
            )


def table(
    data: Sizes, scales: Sizes, zero_points: Sizes | None, axis: int, block: int, per_byte: int, floats: bool
) -> None:
    """Raises ShapeError unless scales and zero points have an element for each block on an axis of a table.

    per_byte: the number of elements in a byte, on the last axis. floats: True if a scale may broadcast.
    """
    if len(scales) != len(data):
        raise ShapeError(f"`scales` of {shape_text(scales)} must have the rank of `data`, {shape_text(data)}")
    expected = tuple(-(-d * per_byte // block) if i == axis else d for i, d in enumerate(data))
    pairs = enumerate(zip(scales, expected, strict=True))
    if not all(s == e or (floats and s == 1 and i != axis) for i, (s, e) in pairs):
        raise ShapeError(
            f"`scales` of {shape_text(scales)} does not fit `data` of {shape_text(data)} in blocks of {block} on "
            f"axis {axis}; it must be {shape_text(expected)}"
        )
    if zero_points is not None:
        expected_zeros = tuple(-(-s // per_byte) if i == axis else s for i, s in enumerate(scales))
        must_fit("zero_points", zero_points, expected_zeros)
