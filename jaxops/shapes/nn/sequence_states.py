"""Sizes of operators that pass a state along a sequence: its heads, gates and state."""

from typing import NamedTuple

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import all_agree, must_agree, sizes_fit
from jaxops.shapes.nn.dot_product_attention import split
from jaxops.static import Dim, Sizes


class Heads(NamedTuple):
    """B samples of T tokens; each of Hkv states, of (dk, dv), is read by `group` query heads."""

    batch: Dim
    length: Dim
    states: int
    group: int
    key_size: Dim
    value_size: Dim

    @property
    def state(self) -> Sizes:
        return (self.batch, self.states, self.key_size, self.value_size)


def linear_attention(
    op: str, query: Sizes, key: Sizes, value: Sizes, q_heads: int, kv_heads: int, *, fewer_queries: bool = False
) -> Heads:
    """The heads of query (B, T, Hq · dk), key (B, T, Hkv · dk) and value (B, T, Hkv · dv).

    fewer_queries: Hkv may also be a multiple of Hq; `group` is 1 then.
    """
    for name, sizes in (("query", query), ("key", key), ("value", value)):
        problem = (
            f"{op}: `{name}` of {shape_text(sizes)} must be (batch, length, heads * size), with the batch and "
            f"length of `query` {shape_text(query)}"
        )
        if not sizes_fit(problem, sizes, (*query[:2], None)):
            raise ShapeError(problem)
    fits = min(q_heads, kv_heads) > 0 and (q_heads % kv_heads == 0 or (fewer_queries and kv_heads % q_heads == 0))
    if not fits:
        either = ", or the other way round" if fewer_queries else ""
        raise ArgumentError(f"{op}: `q_num_heads` {q_heads} must be a multiple of `kv_num_heads` {kv_heads}{either}")
    batch, _, length, key_size = split(op, "query", query, q_heads, "q_num_heads")
    of_key = split(op, "key", key, kv_heads, "kv_num_heads")[3]
    if of_key != key_size:
        must_agree(
            f"{op}: `query` {shape_text(query)} of {q_heads} heads and `key` {shape_text(key)} of {kv_heads} heads "
            f"differ in the size of a head",
            (of_key,),
            (key_size,),
        )
    value_size = split(op, "value", value, kv_heads, "kv_num_heads")[3]
    return Heads(batch, length, kv_heads, max(q_heads // kv_heads, 1), key_size, value_size)


def gates(op: str, decay: Sizes | None, beta: Sizes | None, heads: Heads) -> None:
    """Raises ShapeError unless `decay` and `beta` are None or (B, T, n) for an n that the heads allow."""
    allowed = {"decay": (heads.states, heads.states * heads.key_size), "beta": (heads.states, 1)}
    for (operand, widths), sizes in zip(allowed.items(), (decay, beta), strict=True):
        allowed_sizes = [(heads.batch, heads.length, n) for n in widths]
        problem = (
            f"{op}: `{operand}` of {shape_text(sizes or ())} must be {' or '.join(map(shape_text, allowed_sizes))}"
        )
        if not sizes_fit(problem, sizes, *allowed_sizes):
            raise ShapeError(problem)


def state(op: str, sizes: Sizes, expected: Sizes) -> None:
    """Raises ShapeError unless `past_state` has the sizes of the state."""
    problem = f"{op}: `past_state` of {shape_text(sizes)} must be {shape_text(expected)}"
    if not all_agree(problem, sizes, expected):
        raise ShapeError(problem)


def causal_conv(op: str, data: Sizes, weight: Sizes, bias: Sizes | None, dilation: int = 1) -> Sizes:
    """The sizes (B, C, (k - 1) · dilation) of the state of a convolution of data (B, C, L) with weight (C, 1, k)."""
    if len(data) != 3:
        raise ShapeError(f"{op}: `input` of {shape_text(data)} must be (batch, channels, length)")
    problem = (
        f"{op}: `weight` of {shape_text(weight)} must be ({data[1]}, 1, k), as `input` has {data[1]} channels, with k "
        f"at least 1"
    )
    if len(weight) != 3 or weight[2] == 0 or not all_agree(problem, weight[:2], (data[1], 1)):
        raise ShapeError(problem)
    if bias is not None and bias != (data[1],):
        must_agree(f"{op}: `bias` of {shape_text(bias)} must be ({data[1]},), one number per channel", bias, (data[1],))
    return (*data[:2], (weight[2] - 1) * dilation)
