"""Elements in another order: blocks between axes, channels in groups, axes turned or rolled."""

import math
from typing import Any, Literal

import numpy as np

from jaxops import ops
from jaxops.attributes import axis as resolve_axis
from jaxops.errors import ShapeError
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import vector
from jaxops.signature import Static
from jaxops.static import Array, Dim, array

_DEPTH_MODES: dict[str, Any] = {"blocks_first": "DCR", "depth_first": "CRD"}


@version("DepthToSpace", 1, of=ops.depth_to_space)
def depth_to_space(data: Array, *, mode: Literal["blocks_first", "depth_first"], block_size: int) -> Array:
    x = array(data)
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
def space_to_depth(data: Array, *, mode: Literal["blocks_first", "depth_first"], block_size: int) -> Array:
    x = array(data)
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


@version("SpaceToBatch", 2, of=ops.space_to_depth)
def space_to_batch(data: Array, block_shape: Static, pads_begin: Static, pads_end: Static) -> Array:
    blocks = vector("SpaceToBatch", "block_shape", block_shape).tolist()
    pads = [*vector("SpaceToBatch", "pads_begin", pads_begin), *vector("SpaceToBatch", "pads_end", pads_end)]
    x = array(ops.pad(data, pads))
    batch, *sizes = x.shape
    small = [_divided("SpaceToBatch", size, block) for size, block in zip(sizes, blocks[1:], strict=True)]
    x = ops.reshape(x, [batch, *(d for pair in zip(small, blocks[1:], strict=True) for d in pair)], allowzero=1)
    rank = len(sizes)
    x = ops.transpose(x, perm=[*(2 + 2 * axis for axis in range(rank)), 0, *(1 + 2 * axis for axis in range(rank))])
    return ops.reshape(x, [batch * math.prod(blocks), *small], allowzero=1)


@version("BatchToSpace", 2, of=ops.depth_to_space)
def batch_to_space(data: Array, block_shape: Static, crops_begin: Static, crops_end: Static) -> Array:
    blocks = vector("BatchToSpace", "block_shape", block_shape).tolist()
    x = array(data)
    batch, *sizes = x.shape
    small, rank = _divided("BatchToSpace", batch, math.prod(blocks)), len(sizes)
    x = ops.reshape(x, [*blocks[1:], small, *sizes], allowzero=1)
    x = ops.transpose(x, perm=[rank, *(a for axis in range(rank) for a in (rank + 1 + axis, axis))])
    x = ops.reshape(x, [small, *(size * block for size, block in zip(sizes, blocks[1:], strict=True))], allowzero=1)
    crops = np.concatenate(
        [vector("BatchToSpace", "crops_begin", crops_begin), vector("BatchToSpace", "crops_end", crops_end)]
    )
    return ops.pad(x, -crops)


@version("ShuffleChannels", 1, of=ops.transpose)
def shuffle_channels(data: Array, *, axis: int, group: int) -> Array:
    x = array(data)
    along = resolve_axis("ShuffleChannels", axis, x.ndim)
    before, count, after = x.shape[:along], x.shape[along], x.shape[along + 1 :]
    x = ops.reshape(x, [*before, group, _divided("ShuffleChannels", count, group), *after], allowzero=1)
    order = list(range(x.ndim))
    order[along], order[along + 1] = order[along + 1], order[along]
    return ops.reshape(ops.transpose(x, perm=order), [*before, count, *after], allowzero=1)


@version("ReverseSequence", 1, of=ops.reverse_sequence)
def reverse_sequence(data: Array, seq_lengths: Array, *, batch_axis: int, seq_axis: int) -> Array:
    """On any two axes, with lengths of any type."""
    x = array(data)
    batch, time = (resolve_axis("ReverseSequence", a, x.ndim) for a in (batch_axis, seq_axis))
    others = [a for a in range(x.ndim) if a not in (batch, time)]
    order = [time, batch, *others]
    lengths = ops.cast(seq_lengths, to=np.int64)
    turned = ops.reverse_sequence(ops.transpose(x, perm=order), lengths, batch_axis=1, time_axis=0)
    return ops.transpose(turned, perm=np.argsort(order).tolist())


@version("Roll", 7, of=ops.slice)
def roll(data: Array, shift: Static, axes: Static) -> Array:
    x = array(data)
    along = vector("Roll", "axes", axes).tolist()
    shifts = np.broadcast_to(vector("Roll", "shift", shift), len(along)).tolist()
    for axis, by in zip(along, shifts, strict=True):
        axis = resolve_axis("Roll", axis, x.ndim)
        size = x.shape[axis]
        if isinstance(size, int) and (not size or by % size == 0):
            continue
        cut = -by % size
        halves = [ops.slice(x, [a], [b], [axis]) for a, b in ((cut, np.iinfo(np.int64).max), (0, cut))]
        x = ops.concat(halves, axis=axis)
    return ops.identity(x)


@version("Reverse", 1, of=ops.slice)
def reverse(data: Array, axis: Static, *, mode: Literal["index", "mask"]) -> Array:
    values = vector("Reverse", "axis", axis)
    axes = np.flatnonzero(values).tolist() if mode == "mask" else values.tolist()
    if not axes:
        return ops.identity(data)
    lowest = np.iinfo(np.int64).min
    return ops.slice(data, [-1] * len(axes), [lowest] * len(axes), axes, [-1] * len(axes))
