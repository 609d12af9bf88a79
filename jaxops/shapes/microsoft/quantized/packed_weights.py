"""Sizes of weights whose scales and codes are packed into blocks of bytes."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.static import Dim, Sizes


def rows(op: str, data: Sizes, k: int, block: int, block_bytes: int) -> int:
    """The number of blocks in a row of a table `data`, (V, blocks · block_bytes), of k elements a row."""
    if k < 1 or k % block:
        raise ArgumentError(f"{op}: `K` is {k}; it must be a positive multiple of {block}, the elements of a block")
    wanted = k // block * block_bytes
    if len(data) != 2 or data[1] != wanted:
        raise ShapeError(f"{op}: `data` of {shape_text(data)} must be (V, {wanted}), the bytes of rows of {k} elements")
    return k // block


def blob(op: str, a: Sizes, b: Sizes, shape: Sizes, block: int, block_bytes: int) -> tuple[Dim, Dim, int]:
    """(K, N, blocks of a column) of a product of `a`, (…, K), with a matrix whose columns are packed into `b`."""
    if len(shape) != 2 or not all(isinstance(d, int) and d >= 0 for d in shape):
        raise ShapeError(f"{op}: `B_shape` is {shape_text(shape)}; it must be two sizes, K and N")
    k, n = shape
    if not a or a[-1] != k:
        raise ShapeError(f"{op}: `a` of {shape_text(a)} must have K, {k}, elements on its last axis")
    blocks = -(-k // block)
    if b != (n * blocks * block_bytes,):
        raise ShapeError(
            f"{op}: `b` of {shape_text(b)} must be {shape_text((n * blocks * block_bytes,))}, {block_bytes} bytes for "
            f"each block of {block} elements of {n} columns of {k}"
        )
    return k, n, blocks
