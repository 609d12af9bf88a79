"""Sizes of GroupQueryAttention: heads, the rows of its cache, and its optional operands."""

from jaxops.errors import ArgumentError, ShapeError, SizeError, shape_text
from jaxops.shapes.arithmetic import agree, all_agree, sizes_fit
from jaxops.static import Dim, Sizes, Undecided


def head_size(query: Sizes, key: Sizes | None, value: Sizes | None, heads: int, groups: int) -> Dim:
    """H of query (B, S, heads · H) with key and value (B, L, groups · H), or of query that packs all three."""
    if min(heads, groups) < 1 or heads % groups:
        raise ArgumentError(f"`num_heads` is {heads}; it must be a multiple of `kv_num_heads`, which is {groups}")
    if (key is None) != (value is None):
        raise ShapeError("`key` and `value` must be given together, or neither with a packed `query`")
    parts = heads if key is not None else heads + 2 * groups
    if len(query) != 3 or query[2] % parts:
        raise ShapeError(f"`query` of {shape_text(query)} must be (B, S, {parts} · H)")
    size = query[2] // parts
    if key is not None and value is not None:
        expected = (query[0], query[1], groups * size)
        problem = (
            f"`key` of {shape_text(key)} and `value` of {shape_text(value)} must be {shape_text(expected)}, or "
            f"hold no token"
        )
        if not (all_agree(problem, key, value) and sizes_fit(problem, key, expected, (query[0], 0, groups * size))):
            raise ShapeError(problem)
    return size


def past(key: Sizes | None, value: Sizes | None, batch: Dim, groups: int, size: Dim) -> Dim:
    """P of past_key and past_value (B, groups, P, H); 0 without them."""
    if key is None and value is None:
        return 0
    shapes = " and ".join("none" if s is None else shape_text(s) for s in (key, value))
    problem = f"`past_key` and `past_value` are {shapes}; both must be {shape_text((batch, groups, 'P', size))}"
    fits = key is not None and value is not None and len(key) == 4 and all_agree(problem, value, key)
    if key is None or not (fits and all_agree(problem, (key[0], key[1], key[3]), (batch, groups, size))):
        raise ShapeError(problem)
    return key[2]


def rows(total: Dim, before: Dim, new: Dim) -> Dim:
    """The rows of the cache after this step.

    A cache that grows has `before` + `new` = `total` rows. A buffer keeps its `before` rows, which hold the `total`.
    """
    if isinstance(total, int) and total < 0:
        raise ShapeError(f"`total_sequence_length` is {total}; it must not be negative")
    if total == before + new:
        return total
    problem = (
        f"`total_sequence_length` is {total}; with a past of {before} rows and {new} new tokens it must be "
        f"{before + new} (a cache that grows), or at most {before} (a buffer)"
    )
    try:
        fits = bool(total <= before) and not (isinstance(before, int) and isinstance(new, int) and new > before)
    except Undecided:
        fits = None
    if fits:
        return before
    if agree(problem, total, before + new):
        return total
    if fits is None:
        raise SizeError(problem, total, before, needs=f"{total} <= {before}")
    raise ShapeError(problem)


def rows_for_chunk(total: Dim, before: Dim, new: Dim) -> Dim:
    """The rows of the cache after a step in which only some tokens count; `total` is an upper bound."""
    if total == before + new:
        return total
    problem = f"`total_sequence_length` is {total}; it must be at least {new}, the new tokens with their padding"
    try:
        if total < new:
            raise ShapeError(problem)
        return total if total > before else before
    except Undecided as error:
        raise SizeError(problem, total, before, new, needs=f"{total} == {before + new}") from error


def window(before: Dim, size: int) -> Dim:
    """Returns the rows of a sliding cache, after a check that a window of `size` tokens fits into them."""
    problem = f"`past_key` has {before} rows; with `sliding_window_cache` = 1 it needs {size}, the window, or more"
    try:
        if before < size:
            raise ShapeError(problem)
    except Undecided as error:
        raise SizeError(problem, before, needs=f"{before} >= {size}", fix=size) from error
    return before


def scales(kind: str, channels: Sizes, key: Sizes | None = None, value: Sizes | None = None) -> None:
    """Checks the scales of a quantized cache: one number per tensor, or one per channel."""
    for name, sizes in (("k_scale", key), ("v_scale", value)):
        if sizes is None or not (sizes == channels if kind == "PER_CHANNEL" else sizes in ((), (1,))):
            expected = shape_text(channels) if kind == "PER_CHANNEL" else "(1,)"
            actual = "none" if sizes is None else shape_text(sizes)
            raise ShapeError(f"`{name}` is {actual}; with the type {kind!r} it must be {expected}")
