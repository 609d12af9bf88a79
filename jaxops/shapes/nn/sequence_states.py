"""Sizes of operators that pass a state along a sequence: its heads, gates and state."""

from typing import NamedTuple

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import all_agree, must_agree, must_fit
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
    query: Sizes, key: Sizes, value: Sizes, q_heads: int, kv_heads: int, *, fewer_queries: bool = False
) -> Heads:
    """The heads of query (B, T, Hq · dk), key (B, T, Hkv · dk) and value (B, T, Hkv · dv).

    fewer_queries: Hkv may also be a multiple of Hq; `group` is 1 then.
    """
    must_fit("query", query, ("batch", "length", "heads * size"))
    for name, sizes in (("key", key), ("value", value)):
        must_fit(name, sizes, (*query[:2], "heads * size"), reason=f", as `query` is {shape_text(query)}")
    fits = min(q_heads, kv_heads) > 0 and (q_heads % kv_heads == 0 or (fewer_queries and kv_heads % q_heads == 0))
    if not fits:
        either = ", or the other way round" if fewer_queries else ""
        raise ArgumentError(f"`q_num_heads` {q_heads} must be a multiple of `kv_num_heads` {kv_heads}{either}")
    batch, _, length, key_size = split("query", query, q_heads, "q_num_heads")
    of_key = split("key", key, kv_heads, "kv_num_heads")[3]
    problem = (
        f"`query` {shape_text(query)} of {q_heads} heads and `key` {shape_text(key)} of {kv_heads} heads differ "
        f"in the size of a head"
    )
    must_agree(problem, (of_key,), (key_size,))
    value_size = split("value", value, kv_heads, "kv_num_heads")[3]
    return Heads(batch, length, kv_heads, max(q_heads // kv_heads, 1), key_size, value_size)


def gates(decay: Sizes | None, beta: Sizes | None, heads: Heads) -> None:
    """Raises ShapeError unless `decay` and `beta` are None or (B, T, n) for an n that the heads allow."""
    lead = (heads.batch, heads.length)
    must_fit("decay", decay, (*lead, heads.states), (*lead, heads.states * heads.key_size))
    must_fit("beta", beta, (*lead, heads.states), (*lead, 1))


def causal_conv(data: Sizes, weight: Sizes, bias: Sizes | None, dilation: int = 1) -> Sizes:
    """The sizes (B, C, (k - 1) · dilation) of the state of a convolution of data (B, C, L) with weight (C, 1, k)."""
    must_fit("input", data, ("batch", "channels", "length"))
    problem = (
        f"`weight` of {shape_text(weight)} must be ({data[1]}, 1, k), as `input` has {data[1]} channels, with k "
        f"at least 1"
    )
    if len(weight) != 3 or weight[2] == 0 or not all_agree(problem, weight[:2], (data[1], 1)):
        raise ShapeError(problem)
    must_fit("bias", bias, (data[1],), reason=", one number per channel")
    return (*data[:2], (weight[2] - 1) * dilation)
