"""Areas and overlaps of boxes, and the greedy choice among them, for operators that suppress overlapping boxes."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def overlap(box: Any, boxes: Any, one: float = 0, gap: float = 0) -> Any:
    """Returns the intersection over union of a box (4,) with boxes (n, 4): x1, y1, x2, y2.

    one: 1 if a box includes its last pixel, else 0. gap: boxes further apart do not overlap. A box with x2 < x1 or
    y2 < y1 has no area, and a box without area does not overlap any other.
    """
    low, high = jnp.maximum(box[None, :2], boxes[:, :2]), jnp.minimum(box[None, 2:], boxes[:, 2:])
    common = _area(low, high, one)
    common = jnp.where((high - low >= -gap).all(-1), common, jnp.zeros_like(common))
    union = _area(box[:2], box[2:], one) + _area(boxes[:, :2], boxes[:, 2:], one) - common
    return jnp.where(union > 0, common / jnp.where(union > 0, union, jnp.ones_like(union)), jnp.zeros_like(union))


def _area(low: Any, high: Any, one: float) -> Any:
    return jnp.maximum(high - low + one, 0).prod(-1)


def below(v: Any, like: Any) -> Any:
    """Returns an array with axes of size 1 in front, so that it has the rank of `like`."""
    return v.reshape((1,) * (like.ndim - v.ndim) + v.shape)


def inside(boxes: Any, bounds: Any) -> Any:
    """Returns boxes cut at zero and at the bounds (x, y). The corners are along the last axis, or the last two."""
    bounds = jnp.tile(bounds, 2) if boxes.shape[-1] == 4 else bounds
    return jnp.clip(boxes, jnp.zeros((), boxes.dtype), below(bounds, boxes))


def ended(table: Any, total: Any) -> Any:
    """Returns a table with -1 in the first column of the row after the first `total` rows."""
    rows, columns = (lax.broadcasted_iota(np.int32, table.shape, axis) for axis in (0, 1))
    return jnp.where((rows == total) & (columns == 0), jnp.full_like(table, -1), table)


def survivors(
    overlaps: Callable[[Any], Any],
    candidates: Any,
    threshold: float,
    *,
    most: Any = None,
    eta: float = 1.0,
) -> Any:
    """Returns (n,), boolean: which boxes remain, of boxes in descending order of their scores.

    overlaps: maps the index of a box to its overlaps (n,) with all boxes. A box that overlaps a chosen one by more than
    the threshold is dropped. most: the largest number of chosen boxes. eta: if it is below 1, the threshold is
    multiplied by it whenever a box is chosen, as long as the threshold exceeds 0.5.
    """
    index = lax.iota(np.int32, candidates.shape[0])

    def more(state: Any) -> Any:
        left, _, _, count, _ = state
        return left.any() if most is None else left.any() & (count < most)

    def step(state: Any) -> Any:
        left, chosen, largest, count, limit = state
        first = jnp.argmax(left).astype(np.int32)
        largest = jnp.maximum(largest, overlaps(first))
        limit = jnp.where(limit > 0.5, limit * eta, limit) if eta < 1 else limit
        return left & (index > first) & ~(largest > limit), chosen | (index == first), largest, count + 1, limit

    like = jnp.zeros_like(overlaps(np.int32(0)))
    state = (candidates, jnp.zeros_like(candidates), like, np.int32(0), jnp.asarray(threshold, like.dtype))
    return lax.while_loop(more, step, state)[1]


def compacted(rows: Any, chosen: Any, size: Any) -> tuple[Any, Any]:
    """Returns the chosen rows in their order, padded with zeros to `size`, and the number of chosen rows."""
    index = jnp.nonzero(chosen, size=size, fill_value=chosen.shape[0])[0]
    return rows.at[index].get(mode="fill", fill_value=0), chosen.sum(dtype=np.int32)
