"""Sizes of operators on packed batches that carry a state from token to token."""

from typing import NamedTuple

from jaxops.errors import ArgumentError, ShapeError, SizeError, shape_text
from jaxops.shapes.arithmetic import divided, must_fit
from jaxops.static import Dim, Sizes


def convolution(x: Sizes, weight: Sizes, bias: Sizes | None, state: Sizes, batch: Dim, dilation: int) -> int:
    """Returns how many elements before a sequence a convolution of x (T, C) with weight (C, 1, k) reads."""
    must_fit("input", x, ("T", "C"))
    if len(weight) != 3 or weight[:2] != (x[1], 1) or not isinstance(weight[2], int) or weight[2] == 0:
        raise ShapeError(f"`weight` of {shape_text(weight)} must be ({x[1]}, 1, k), with k at least 1")
    reach = (weight[2] - 1) * dilation
    must_fit("bias", bias, (x[1],))
    must_fit("initial_state", state, (batch, x[1], reach))
    return reach


class Heads(NamedTuple):
    """Tokens with Hk heads of size K for queries and keys, each of which serves `group` heads for values.

    lead: the sizes of the axes of tokens.
    """

    lead: Sizes
    keys: int
    group: int
    key_size: int
    value_size: int

    @property
    def values(self) -> int:
        return self.keys * self.group

    @property
    def state(self) -> Sizes:
        return (self.values, self.value_size, self.key_size)


def heads(query: Sizes, key: Sizes | None, value: Sizes | None, state: Sizes | None) -> Heads:
    """The heads of query, key and value (…, H, size), or of a query (…, width) that holds all three."""
    if (key is None) != (value is None):
        raise ShapeError("`key` and `value` must both be given, or both be left out")
    must_fit("initial_state", state, ("B", "Hv", "V", "K"))
    if key is None or value is None:
        if state is None:
            raise ArgumentError("without key and value `initial_state` must be given, for the heads in `query`")
        must_fit("query", query, ("T", "D"), ("B", "L", "D"), reason=" if it holds all three")
        _, number, value_size, key_size = state
        problem = f"the width of `query` {shape_text(query)} does not fit `initial_state` {shape_text(state)}"
        key_width = query[-1] - number * value_size
        if isinstance(key_width, int) and key_width <= 0:
            raise ShapeError(problem)
        return _grouped(query[:-1], divided(problem, key_width, 2 * key_size), number, key_size, value_size)
    must_fit("query", query, ("T", "Hk", "K"), ("B", "L", "Hk", "K"))
    must_fit("key", key, query)
    must_fit("value", value, (*query[:-2], *value[-2:]))
    return _grouped(query[:-2], query[-2], value[-2], query[-1], value[-1])


def _grouped(lead: Sizes, keys: Dim, values: Dim, key_size: Dim, value_size: Dim) -> Heads:
    for size in (keys, values, key_size, value_size):
        if not isinstance(size, int):
            problem = f"the numbers and sizes of heads must be numbers, got the symbolic size {size}"
            raise SizeError(problem, size, fix=8)
    if keys < 1 or values < 1 or values % keys:
        raise ShapeError(f"{values} heads for values must be a positive multiple of the {keys} for keys")
    return Heads(lead, keys, values // keys, key_size, value_size)


def samples(of: Heads, sums: Sizes | None, state: Sizes | None) -> tuple[Dim, Dim | None]:
    """Returns (B, L) of tokens in B sequences of length L; L is None if `sums`, (B + 1,), gives their lengths."""
    if sums is not None:
        if len(of.lead) != 1:
            raise ShapeError(f"with `cu_seqlens` the tokens must be on one axis, got {shape_text(of.lead)}")
        return sums[0] - 1, None
    if len(of.lead) == 2:
        return of.lead
    if state is None:
        raise ArgumentError("`cu_seqlens` or `initial_state` must be given, for the number of sequences")
    problem = f"{of.lead[0]} tokens do not divide into the {state[0]} sequences of `initial_state`"
    return state[0], divided(problem, of.lead[0], state[0])


def gates(of: Heads, decay: Sizes | None, beta: Sizes | None, a_log: Sizes | None, bias: Sizes | None) -> None:
    """Checks the gates of each head and the operands that they are computed from."""
    number, by_element = (of.values,), (of.values, of.key_size)
    by_key = decay is not None and len(decay) == len(of.lead) + 2
    must_fit("decay", decay, (*of.lead, *number), (*of.lead, *by_element))
    must_fit("beta", beta, (*of.lead, *number))
    must_fit("a_log", a_log, number)
    must_fit("dt_bias", bias, number, *([by_element, (of.values * of.key_size,)] if by_key else []))
