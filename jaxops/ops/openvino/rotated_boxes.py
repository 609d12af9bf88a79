"""The overlap of rotated boxes."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import accumulation_type


def rotated_overlaps(boxes: Any) -> Callable[[Any], Any]:
    """Returns a function from the index of a box to its intersection over union with all boxes, (S,).

    boxes: (S, 5): centre x, y, width, height, and an angle, which turns x towards y. A box without area does not
    overlap any other. Half precision is computed in float32.
    """
    dtype = boxes.dtype
    boxes = boxes.astype(accumulation_type(dtype))
    area = boxes[:, 2] * boxes[:, 3]

    def overlaps(box: Any) -> Any:
        one = boxes[box][None]
        # Relative to the centre of `box`, where floats are more precise.
        nearer = boxes.at[:, :2].add(-one[:, :2])
        common = _common_area(_corners(one.at[:, :2].set(0)), _corners(nearer))
        union = area + area[box] - common
        ratio = common / jnp.where(union > 0, union, jnp.ones_like(union))
        return jnp.where((area > 0) & (area[box] > 0), ratio, jnp.zeros_like(ratio)).astype(dtype)

    return overlaps


def _corners(boxes: Any) -> Any:
    """Returns the corners, one after another along the edges: (S, 4, 2)."""
    cosine, sine = jnp.cos(boxes[:, 4])[:, None], jnp.sin(boxes[:, 4])[:, None]
    x, y = (boxes[:, 2 + i, None] * np.asarray([row], boxes.dtype) / 2 for i, row in enumerate(_SIGNS))
    return jnp.stack([x * cosine - y * sine, x * sine + y * cosine], -1) + boxes[:, None, :2]


_SIGNS = ((-1, 1, 1, -1), (-1, -1, 1, 1))


def _cross(a: Any, b: Any) -> Any:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _common_area(one: Any, others: Any) -> Any:
    """Returns the area that a box has in common with others, (S,). one: (1, 4, 2). others: (S, 4, 2).

    The common polygon consists of the corners inside the other box, and of the crossings of edges. It has at most 8
    corners, but each may be found several times; they are sorted around their middle, and repeats do not change the
    area.
    """
    edges, others_edges = jnp.roll(one, -1, 1) - one, jnp.roll(others, -1, 1) - others
    # p + s·d = q + t·e for each pair of edges.
    d, e = edges[:, :, None], others_edges[:, None]
    between = others[:, None] - one[:, :, None]
    turn = _cross(d, e)
    parallel = jnp.abs(turn) <= 1e-14
    safe = jnp.where(parallel, jnp.ones_like(turn), turn)
    s, t = _cross(between, e) / safe, _cross(between, d) / safe
    crossing = ~parallel & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
    points = one[:, :, None] + s[..., None] * d
    count = others.shape[0]
    places = [points.reshape(count, 16, 2), jnp.broadcast_to(one, others.shape), others]
    exists = [crossing.reshape(count, 16), _within(one, others, others_edges), _within(others, one, edges)]
    corners, exists = jnp.concatenate(places, 1), jnp.concatenate(exists, 1)
    number = exists.sum(1, keepdims=True, dtype=np.int32)
    corners = jnp.where(exists[..., None], corners, jnp.zeros_like(corners))
    middle = corners.sum(1, keepdims=True) / jnp.maximum(number, 1)[..., None].astype(corners.dtype)
    around = corners - middle
    angle = jnp.where(exists, jnp.arctan2(around[..., 1], around[..., 0]), jnp.inf)
    around = jnp.take_along_axis(around, jnp.argsort(angle, 1)[..., None], 1)
    # Unused entries repeat the first corner, so that they add no area.
    index = jnp.arange(24, dtype=np.int32)[None, :, None]
    around = jnp.where(index < number[..., None], around, around[:, :1])
    doubled = _cross(around, jnp.roll(around, -1, 1)).sum(1)
    return jnp.where(number[:, 0] > 2, jnp.abs(doubled) / 2, jnp.zeros_like(doubled))


def _within(corners: Any, box: Any, edges: Any) -> Any:
    """Returns (S, 4): which corners lie in a box or on its edge. The first two edges span the box."""
    first, last = edges[:, None, 0], -edges[:, None, 3]
    place = corners - box[:, :1]
    along = [(place * side).sum(-1) for side in (first, last)]
    least = [1e-5 * (side * side).sum(-1) for side in (first, last)]
    return (
        (along[0] >= -least[0])
        & (along[1] >= -least[1])
        & (along[0] <= least[0] * (1e5 + 1))
        & (along[1] <= least[1] * (1e5 + 1))
    )
