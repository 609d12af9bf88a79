"""Sizes of MultiHeadAttention: the layouts of queries, keys and values, and their cache."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import agree, must_fit, sizes_fit
from jaxops.shapes.microsoft.attentions.cached_attention import head_size
from jaxops.static import Dim, Sizes


def heads(query: Sizes, key: Sizes | None, value: Sizes | None, count: int) -> tuple[Dim, Dim, Dim, Dim, Dim]:
    """B, S, L, H and Hv of separate, half packed or packed queries, keys and values."""
    shapes = ", ".join("none" if s is None else shape_text(s) for s in (query, key, value))
    problem = f"`query`, `key` and `value` are {shapes}, with num_heads={count}; they must be "
    if key is None:
        packed = len(query) == 5 and query[2:4] == (count, 3)
        if value is not None or not (packed or len(query) == 3):
            raise ShapeError(problem + "(B, S, N, 3, H) or (B, S, 3 · N · H) alone if there is no key")
        size = query[-1] if packed else head_size("query", query[2], 3 * count)
        return query[0], query[1], query[1], size, size
    same = problem + "(B, S, N · H) and keys of the same B"
    if len(query) != 3 or not key or not agree(same, key[0], query[0]):
        raise ShapeError(same)
    size = head_size("query", query[2], count)
    if len(key) == 5 and value is None and key[2:] == (count, 2, size):
        return query[0], query[1], key[1], size, size
    alike = problem + "keys and values of as many samples and rows"
    if value is not None and len(key) == 3 and key[2] == query[2] and sizes_fit(alike, value, (*key[:2], None)):
        return query[0], query[1], key[1], size, head_size("value", value[2], count)
    by_heads = len(key) == 4 and key[1] == count and key[-1] == size
    if value is not None and by_heads and sizes_fit(alike, value, (*key[:3], None)):
        return query[0], query[1], key[2], size, value[-1]
    raise ShapeError(problem + "(B, S, N · H) with (B, L, N · H) and (B, L, N · Hv), (B, L, N, 2, H) or (B, N, L, H)")


def bias(sizes: Sizes | None, width: Dim, value_width: Dim) -> None:
    """Checks the bias of queries, keys and values, (D + D + Dv,)."""
    must_fit("bias", sizes, (2 * width + value_width,))


def past(key: Sizes | None, value: Sizes | None, expected: tuple[Dim, Dim, Dim], value_size: Dim) -> None:
    """Checks past_key (B, N, P, H) and past_value (B, N, P, Hv), which come together."""
    if key is None and value is None:
        return
    batch, count, size = expected
    shapes = " and ".join("none" if s is None else shape_text(s) for s in (key, value))
    problem = (
        f"`past_key` and `past_value` are {shapes}; they must be "
        f"{shape_text((batch, count, 'P', size))} and {shape_text((batch, count, 'P', value_size))}"
    )
    fits = key is not None and value is not None and sizes_fit(problem, key, (batch, count, None, size))
    if not (fits and key is not None and sizes_fit(problem, value, (*key[:3], value_size))):
        raise ShapeError(problem)
