"""Greedy non-maximum suppression: chooses the best box, drops those that overlap it, and repeats with the rest."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def choose_boxes(
    overlaps: Callable[[Any], Any], scores: Any, most: Any, threshold: Any, least: Any, sigma: Any = None
) -> tuple[Any, Any]:
    """The indices (S,) of the chosen boxes in the order of choice, then -1; and their scores (S,), then -1.

    overlaps: a function from the index of a box to its overlaps (S,) with all boxes. scores: (S,), floats; a box whose
    score is below `least`, or NaN, is not chosen; of equal scores the first box comes first. most: the largest number
    of boxes to choose. A box that overlaps a chosen one by more than the threshold is dropped; where sigma is positive,
    its score is multiplied by exp(-overlap² / (2·sigma)) instead.
    """
    number = scores.shape[0]

    def more(state: Any) -> Any:
        left, _, (_, count) = state
        return left.any() & (count.astype(most.dtype) < most)

    def step(state: Any) -> Any:
        left, (chosen, marks), (now, count) = state
        best = jnp.argmax(jnp.where(left, now, -jnp.inf)).astype(np.int32)
        # Where all scores that remain are -inf, the argmax may be a box that was dropped: take the first that remains.
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
    """A function from the index of a box to its intersection over union (S,) with all boxes.

    low, high: (S, 2), the lower and the upper corners. A box without area overlaps nothing.
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
