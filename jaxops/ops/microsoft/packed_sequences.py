"""Packed batches, which hold the tokens (T, …) of all sequences one after another, without padding."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.errors import ArgumentError, describe
from jaxops.static import Dim, is_static, is_symbolic


class Packed(NamedTuple):
    """The layout of a packed batch: first token and length of each sequence (B,); sequence and position of each token
    (T,).
    """

    starts: Any
    lengths: Any
    sequence: Any
    position: Any


def packed(offsets: Any, total: Dim) -> Packed:
    """Returns the layout of a packed batch. offsets: (B + 1,), the sums of the lengths."""
    offsets = offsets.astype(np.int32)
    starts, lengths = offsets[:-1], offsets[1:] - offsets[:-1]
    # `jnp.searchsorted` does not take symbolic sizes.
    begins = jnp.zeros(total, np.int32).at[starts[1:]].add(1, mode="drop")
    sequence = jnp.cumsum(begins, dtype=np.int32)
    return Packed(starts, lengths, sequence, lax.iota(np.int32, total) - starts[sequence])


def values_at(values: Any, before: Any, layout: Packed, sequence: Any, position: Any) -> Any:
    """Returns the values at positions of sequences; negative positions are those before the first token of a sequence.

    values: (T, …). before: (B, n, …), the n values before each sequence. sequence, position: integers of one shape,
    which replaces the axis T in the result. Results at positions below -n are meaningless.
    """
    length, reach = values.shape[0], before.shape[1]
    if isinstance(length, int) and length == 0:  # there are no values to take
        values = jnp.zeros((1, *values.shape[1:]), values.dtype)
    here = jnp.take(values, layout.starts[sequence] + position, 0, mode="clip")
    if isinstance(reach, int) and reach == 0:
        return here
    old = before[sequence, jnp.clip(reach + position, 0, reach - 1)]
    inside = lax.broadcast_in_dim(position >= 0, here.shape, tuple(range(position.ndim)))
    return jnp.where(inside, here, old)


def check_offsets(operand: str, value: Any, total: Dim, least: int = 1) -> None:
    """Raises ArgumentError for static sums of lengths that do not divide `total` tokens into sequences.

    least: the least number of tokens of a sequence.
    """
    if value is None or not is_static(value):
        return
    sums = np.asarray(value)
    if is_symbolic(sums) or sums.ndim != 1 or sums.size == 0:
        return
    fits = sums[0] == 0 and (sums[1:] - sums[:-1] >= least).all()
    if not fits or (isinstance(total, int) and sums[-1] != total):
        raise ArgumentError(
            f"`{operand}` is {describe(sums)}; it must begin with 0, end with {total}, the number of tokens, and "
            f"grow by at least {least} with each sequence"
        )


def capacity(value: Any, counts: Any) -> int:
    """Returns `state_update_capacity`, 0 to 8; checks that `capture_count` is given exactly if it is positive."""
    size = integer("state_update_capacity", value)
    if not 0 <= size <= 8:
        raise ArgumentError(f"`state_update_capacity` is {size}; it must be in 0 to 8")
    if (counts is None) == (size > 0):
        needs = "needs `capture_count`" if size else "allows no `capture_count`"
        raise ArgumentError(f"a `state_update_capacity` of {size} {needs}")
    return size


def captured(counts: Any, lengths: Any, size: int) -> Any:
    """Returns (B, size), boolean: which of the first `size` tokens of each sequence are captured."""
    count = jnp.clip(counts.astype(np.int32), 0, jnp.minimum(lengths, size))
    return lax.broadcasted_iota(np.int32, (count.shape[0], size), 1) < count[:, None]
