"""Sizes of attention: the heads in query, key and value, the cache, and the mask."""

from typing import NamedTuple

from jaxops.errors import ArgumentError, ShapeError, SignatureError, SizeError, shape_text
from jaxops.shapes.arithmetic import agree, divided, must_agree, must_fit
from jaxops.static import Dim, Sizes, Undecided


class Scores(NamedTuple):
    """The sizes of the scores, one number for each query and key: (B, Nq, S, T)."""

    batch: Dim
    heads: Dim
    queries: Dim
    keys: Dim


def split(operand: str, sizes: Sizes, heads: int | None, attribute: str) -> Sizes:
    """The sizes (B, N, S, H) of an operand (B, S, N · H) or (B, N, S, H). attribute: the name of the one for N."""
    if len(sizes) == 4:
        problem = f"`{operand}` of {shape_text(sizes)} has {sizes[1]} heads, but `{attribute}` is {heads}"
        if heads is not None and not agree(problem, sizes[1], heads):
            raise ShapeError(problem)
        return sizes
    if len(sizes) != 3:
        raise ShapeError(
            f"`{operand}` of {shape_text(sizes)} must be (batch, sequence, heads * head_size) or "
            f"(batch, heads, sequence, head_size)"
        )
    if heads is None:
        raise SignatureError(f"`{operand}` of {shape_text(sizes)} has 3 axes, so `{attribute}` must be given")
    if heads < 1:
        raise ArgumentError(f"`{attribute}` is {heads}; it must be at least 1")
    problem = f"{sizes[2]} elements of `{operand}` {shape_text(sizes)} do not divide into {heads} heads"
    return (sizes[0], heads, sizes[1], divided(problem, sizes[2], heads))


def scores(query: Sizes, key: Sizes, value: Sizes) -> Scores:
    """The sizes of the scores of query (B, Nq, S, H), key (B, Nkv, T, H) and value (B, Nkv, T, Hv)."""
    problem = f"query {shape_text(query)} and key {shape_text(key)} differ in batch size or head size"
    must_agree(problem, (key[0], key[3]), (query[0], query[3]))
    problem = f"key {shape_text(key)} and value {shape_text(value)} must agree in all but the head size"
    must_agree(problem, value[:3], key[:3])
    problem = f"the {query[1]} heads of the query are not a multiple of the {key[1]} heads of the key"
    if isinstance(key[1], int) and key[1] == 0:
        raise ShapeError(problem)
    divided(problem, query[1], key[1])
    return Scores(query[0], query[1], query[2], key[2])


def cache(operand: str, past: Sizes, new: Sizes) -> None:
    """Raises ShapeError unless the past and the new key or value (B, N, S, H) agree in all but their length S."""
    must_fit(operand, past, (*new[:2], "past_length", new[3]))


def mask(operand: str, sizes: Sizes, scores: Scores) -> Dim:
    """Returns the number of keys to pad the last axis of a mask by, so that it broadcasts to the scores."""
    aligned = (1,) * (4 - len(sizes)) + sizes
    problem = (
        f"`{operand}` of {shape_text(sizes)} does not broadcast to the scores {shape_text(scores)}, "
        f"(batch, heads, queries, keys); only its last axis may be shorter"
    )
    fits = len(sizes) in (1, 2, 3, 4) and all(
        d in (1, w) or agree(problem, d, w, broadcasts=True) for d, w in zip(aligned[:3], scores[:3], strict=True)
    )
    missing = 0 if aligned[-1] in (1, scores.keys) else scores.keys - aligned[-1]
    try:
        fits = fits and missing >= 0
    except Undecided as error:
        raise SizeError(problem, aligned[-1], scores.keys, needs=f"{aligned[-1]} == {scores.keys}") from error
    if not fits:
        raise ShapeError(problem)
    return missing


def per_sample(operand: str, sizes: Sizes, batch: Dim) -> None:
    """Raises ShapeError unless the operand has one number per sample."""
    must_fit(operand, sizes, (batch,), reason=", one number per sample")
