"""Operators that pass a state along a sequence, and return the last state for the tokens to come.

16-bit types are computed in float32.
"""

__all__ = ["causal_conv_with_state", "linear_attention"]

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import integer, one_of
from jaxops.dtypes import accumulation_type, floating, floats_of_one_type
from jaxops.errors import SignatureError
from jaxops.ops.common.scaled_dot_product import inverse_root
from jaxops.ops.nn.convolution import conv
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.nn import sequence_states as sizes_of
from jaxops.signature import Bias, Weight, operator
from jaxops.static import ArrayLike, jit_if_concrete

Activation = Literal["silu", "swish", "none"]
UpdateRule = Literal["linear", "gated", "delta", "gated_delta"]


@operator(kind="convolution")
def causal_conv_with_state(
    input: ArrayLike,
    weight: Weight[ArrayLike],
    bias: Bias[ArrayLike] | None = None,
    past_state: ArrayLike | None = None,
    *,
    activation: Activation = "none",
) -> tuple[jax.Array, jax.Array]:
    """Convolves each channel with a filter of its own that sees the present and the past only.

    input: (B, C, L). weight: (C, 1, k). bias: (C,). past_state: (B, C, k - 1), the elements before those of input,
    None for zeros. All of one floating-point dtype. activation: 'silu' or 'swish', x · sigmoid(x), or 'none'.
    Returns the output (B, C, L) and the state after it (B, C, k - 1), the last elements of past_state and input.
    Raises ShapeError, DTypeError, ArgumentError for another activation.
    Source: ONNX CausalConvWithState, opset 27.

    >>> y, state = causal_conv_with_state(jnp.array([[[1.0, 2.0, 3.0]]]), jnp.array([[[10.0, 1.0]]]))
    >>> y.tolist(), state.tolist()
    ([[[1.0, 12.0, 23.0]]], [[[3.0]]])
    """
    floats = floats_of_one_type(input=input, weight=weight, bias=bias, past_state=past_state)
    return _causal_conv(floats, one_of("activation", activation, Activation))


@jit_if_concrete
def _causal_conv(operands: tuple[Any, ...], activation: Activation) -> tuple[Any, Any]:
    x, weight, bias, past = operands
    before = sizes_of.causal_conv(x.shape, weight.shape, None if bias is None else bias.shape)
    if past is None:
        past = jnp.zeros(before, x.dtype)
    must_fit("past_state", past.shape, before)
    line = lax.concatenate([past, x], 2)
    y = convolved_by_channel(line, weight, bias, activation)
    return y, lax.slice_in_dim(line, x.shape[2], line.shape[2], axis=2)


def convolved_by_channel(line: Any, weight: Any, bias: Any, activation: Activation, dilation: int = 1) -> Any:
    """The activation of each channel of line (B, C, S + L) convolved with its own filter: (B, C, L).

    weight: (C, 1, k), with S = (k - 1) · dilation. bias: (C,) or None.
    """
    work = accumulation_type(line.dtype)
    shift = None if bias is None else bias.astype(work)
    y = conv(line.astype(work), weight.astype(work), shift, group=weight.shape[0], dilations=(dilation,))
    if activation != "none":
        y = y * lax.logistic(y)
    return y.astype(line.dtype)


@operator(kind="attention")
def linear_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    past_state: ArrayLike | None = None,
    decay: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: UpdateRule = "gated_delta",
) -> tuple[jax.Array, jax.Array]:
    """Attention with a state matrix per head in place of all earlier keys and values.

    For each token S' = exp(decay) · S, then S = S' + key ⊗ u, and the output is scale · queryᵀ · S. u is the value, or
    beta · (value - S'ᵀ · key) by the rules 'delta' and 'gated_delta'; S' is S by the rules 'linear' and 'delta'.
    query: (B, T, Hq · dk). key: (B, T, Hkv · dk). value: (B, T, Hkv · dv). Query head i reads the state of head
    i // (Hq / Hkv). past_state: (B, Hkv, dk, dv), None for zeros; its dtype may differ from that of the other operands.
    decay: (B, T, Hkv · dk), or (B, T, Hkv) for one number per head; the two gated rules need it.
    beta: (B, T, Hkv) or (B, T, 1); the two delta rules need it. scale: 0 means 1 / sqrt(dk).
    chunk_size: a hint, ignored: the tokens run one by one.
    Returns the output (B, T, Hq · dv) in the dtype of query and the last state in that of past_state, or of query.
    Raises ShapeError, DTypeError, ArgumentError, SignatureError when `decay` or `beta` is missing though the rule needs
    it, or given though the rule has none.
    Source: ONNX LinearAttention, opset 27.

    >>> one = jnp.ones((1, 3, 1))
    >>> linear_attention(one, one, one, q_num_heads=1, kv_num_heads=1, update_rule="linear")[0].ravel().tolist()
    [1.0, 2.0, 3.0]
    """
    rule = one_of("update_rule", update_rule, UpdateRule)
    for name, gate, rules in (("decay", decay, ("gated", "gated_delta")), ("beta", beta, ("delta", "gated_delta"))):
        if (gate is not None) != (rule in rules):
            raise SignatureError(
                f"the update rule {rule!r} {'needs' if gate is None else 'has no'} `{name}`; the rules "
                f"{' and '.join(map(repr, rules))} have it"
            )
    floats = floats_of_one_type(query=query, key=key, value=value, decay=decay, beta=beta)
    (past,) = floating(past_state=past_state)
    integer("chunk_size", chunk_size)
    heads = (integer("q_num_heads", q_num_heads), integer("kv_num_heads", kv_num_heads))
    return _linear_attention((*floats, past), heads, float(scale))


@jit_if_concrete
def _linear_attention(operands: tuple[Any, ...], heads: tuple[int, int], scale: float) -> tuple[Any, Any]:
    query, key, value, decay, beta, past = operands
    sizes = sizes_of.linear_attention(query.shape, key.shape, value.shape, *heads)
    sizes_of.gates(None if decay is None else decay.shape, None if beta is None else beta.shape, sizes)
    if past is None:
        past = jnp.zeros(sizes.state, query.dtype)
    must_fit("past_state", past.shape, sizes.state)
    outputs, last = remembered((query, key, value, decay, beta), past[None], sizes, scale)
    return outputs, last[0]


def remembered(operands: tuple[Any, ...], past: Any, sizes: sizes_of.Heads, scale: float) -> tuple[Any, Any]:
    """Linear attention. The gates that are not None decide the update rule.

    operands: query (B, T, Hkv · group · dk), key, value, and decay and beta or None. past: (W, B, Hkv, dk, dv), the
    last W states before the first token. scale: 0 means 1 / sqrt(dk).
    Returns the output (B, T, Hkv · group · dv) in the dtype of query, and the last W states in that of past.
    """
    query, key, value, decay, beta = operands
    batch, length, states, group, key_size, value_size = sizes
    work = accumulation_type(past.dtype, *(v.dtype for v in operands if v is not None))

    def steps(x: Any, *each: Any) -> Any:
        """(B, T, …) as (T, B, *each), the slices of the scan."""
        return None if x is None else jnp.moveaxis(x.astype(work).reshape(batch, length, *each), 1, 0)

    slices = (
        steps(query, states, group, key_size) * (scale or inverse_root(key_size)),
        steps(key, states, key_size, 1),
        steps(value, states, 1, value_size),
        None if decay is None else jnp.exp(steps(decay, states, decay.shape[2] // states, 1)),
        None if beta is None else steps(beta, beta.shape[2], 1, 1),
    )

    def one(window: Any, token: tuple[Any, ...]) -> tuple[Any, Any]:
        state = window[-1]
        reads, writes, new, decayed, rate = token
        if decayed is not None:
            state = state * decayed
        if rate is not None:
            new = rate * (new - jnp.sum(state * writes, 2, keepdims=True))
        state = state + writes * new
        return lax.concatenate([window[1:], state[None]], 0), jnp.einsum("bhgk,bhkv->bhgv", reads, state)

    last, outputs = lax.scan(one, past.astype(work), slices)
    outputs = jnp.moveaxis(outputs, 0, 1).reshape(batch, length, states * group * value_size)
    return outputs.astype(query.dtype), last.astype(past.dtype)
