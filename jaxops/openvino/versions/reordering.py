"""Operations that reorder elements: blocks between channels and spatial axes, and ReverseSequence."""

from typing import Any

import numpy as np

from jaxops import ops
from jaxops.errors import ShapeError
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import Word, resolve_axis, with_axes
from jaxops.static import Array, Dim, array

_DEPTH_MODES: dict[str, Any] = {"blocks_first": "DCR", "depth_first": "CRD"}


@version("DepthToSpace", 1, of=ops.depth_to_space)
def depth_to_space(data: Array, *, mode: Word, block_size: int) -> Array:
    x = with_axes("DepthToSpace", "data", data, 3)
    if x.ndim == 4:
        return ops.depth_to_space(x, blocksize=block_size, mode=_DEPTH_MODES[mode])
    rank = x.ndim - 2
    batch, channels, *sizes = x.shape
    depth = _divided("DepthToSpace", channels, block_size**rank)
    blocks = [block_size] * rank
    grouped = [batch, *blocks, depth, *sizes] if mode == "blocks_first" else [batch, depth, *blocks, *sizes]
    first_block, first_size = (1, 2 + rank) if mode == "blocks_first" else (2, 2 + rank)
    order = [0, 1 + rank if mode == "blocks_first" else 1]
    for axis in range(rank):
        order += [first_size + axis, first_block + axis]
    x = ops.transpose(ops.reshape(x, grouped, allowzero=1), perm=order)
    return ops.reshape(x, [batch, depth, *(size * block_size for size in sizes)], allowzero=1)


@version("SpaceToDepth", 1, of=ops.space_to_depth)
def space_to_depth(data: Array, *, mode: Word, block_size: int) -> Array:
    x = with_axes("SpaceToDepth", "data", data, 3)
    rank = x.ndim - 2
    batch, channels, *sizes = x.shape
    small = [_divided("SpaceToDepth", size, block_size) for size in sizes]
    grouped = [batch, channels, *(d for size in small for d in (size, block_size))]
    blocks, spaces = [3 + 2 * axis for axis in range(rank)], [2 + 2 * axis for axis in range(rank)]
    order = [0, *blocks, 1, *spaces] if mode == "blocks_first" else [0, 1, *blocks, *spaces]
    x = ops.transpose(ops.reshape(x, grouped, allowzero=1), perm=order)
    return ops.reshape(x, [batch, channels * block_size**rank, *small], allowzero=1)


def _divided(op: str, size: Dim, by: int) -> Dim:
    if by < 1 or (isinstance(size, int) and size % by):
        raise ShapeError(f"{op}: {size} elements cannot be divided into blocks of {by}")
    return size // by


@version("ReverseSequence", 1, of=ops.reverse_sequence)
def reverse_sequence(data: Array, seq_lengths: Array, *, batch_axis: int, seq_axis: int) -> Array:
    """Reverses along any two axes, with lengths of any numeric type."""
    x = array(data)
    batch, time = (resolve_axis("ReverseSequence", a, x.ndim) for a in (batch_axis, seq_axis))
    others = [a for a in range(x.ndim) if a not in (batch, time)]
    order = [time, batch, *others]
    lengths = ops.cast(seq_lengths, to=np.int64)
    turned = ops.reverse_sequence(ops.transpose(x, perm=order), lengths, batch_axis=1, time_axis=0)
    return ops.transpose(turned, perm=np.argsort(order).tolist())
