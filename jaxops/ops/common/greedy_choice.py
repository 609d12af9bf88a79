"""The greedy choice among overlapping boxes: the best one, then the best of those that it leaves, and so on."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def choose_boxes(
    overlaps: Callable[[Any], Any], scores: Any, most: Any, threshold: Any, least: Any, sigma: Any = None
) -> tuple[Any, Any]:
    """(S,) the boxes that are chosen, in their order, then -1; and (S,) their scores.

    overlaps: of the box at an index, its overlap (S,) with all boxes. scores: (S,), floats; a box whose score is below
    `least`, or NaN, is not chosen; of equal scores the first box comes first. most: the number of boxes to choose. A
    box that overlaps a chosen one by more than the threshold is dropped; where sigma is positive, its score is
    multiplied by exp(-overlap² / (2·sigma)) instead.
    """
    number = scores.shape[0]

    def more(state: Any) -> Any:
        left, _, (_, count) = state
        return left.any() & (count.astype(most.dtype) < most)

    def step(state: Any) -> Any:
        left, (chosen, marks), (now, count) = state
        best = jnp.argmax(jnp.where(left, now, -jnp.inf)).astype(np.int32)
        # Among the remaining boxes: scores may be -inf.
        best = jnp.where(left[best], best, jnp.argmax(left).astype(np.int32))
        common = overlaps(best)
        apart = ~(common > threshold)
        chosen, marks = chosen.at[count].set(best), marks.at[count].set(now[best])
        if sigma is not None:
            is_soft = sigma > 0
            decay = jnp.exp(-common * common / (2 * jnp.where(is_soft, sigma, jnp.ones_like(sigma))))
            now = jnp.where(is_soft, now * decay.astype(now.dtype), now)
            apart = jnp.where(is_soft, now >= least.astype(now.dtype), apart)
        return left & apart & (jnp.arange(number, dtype=np.int32) != best), (chosen, marks), (now, count + 1)

    left = scores >= least.astype(scores.dtype)
    empty = jnp.full(number, -1, np.int32), jnp.full(number, -1, scores.dtype)
    return lax.while_loop(more, step, (left, empty, (scores, np.int32(0))))[1]


def overlap_of(low: Any, high: Any) -> Callable[[Any], Any]:
    """Of the box at an index, its intersection over union with all boxes: (S, 2) each, the corners.

    A box without area overlaps nothing.
    """
    area = (high - low).prod(-1)

    def overlaps(box: Any) -> Any:
        edges = jnp.minimum(high, high[box][None]) - jnp.maximum(low, low[box][None])
        common = jnp.maximum(edges, 0).prod(-1)
        union = area + area[box] - common
        ratio = common / jnp.where(union > 0, union, 1)
        return jnp.where((area > 0) & (area[box] > 0), ratio, jnp.zeros_like(ratio))

    return overlaps


def ordered_corners(boxes: Any, centred: bool) -> tuple[Any, Any]:
    """The lower and the upper corners (…, 2) of boxes (…, 4): two opposite corners, or a centre and the sizes."""
    a, b, c, d = (boxes[..., i] for i in range(4))
    # The two axes; which of them is x does not matter.
    if centred:
        return jnp.stack([a - c / 2, b - d / 2], -1), jnp.stack([a + c / 2, b + d / 2], -1)
    return (
        jnp.stack([jnp.minimum(a, c), jnp.minimum(b, d)], -1),
        jnp.stack([jnp.maximum(a, c), jnp.maximum(b, d)], -1),
    )
