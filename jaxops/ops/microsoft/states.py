"""Operators that carry a state from token to token: causal convolution and linear attention.

16-bit types are computed in float32.
"""

__all__ = ["causal_conv_with_state", "linear_attention", "linear_attention_gate"]

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, one_of
from jaxops.dtypes import accumulation_type, floating, floats_of_one_type
from jaxops.errors import ArgumentError, ShapeError, UnsupportedError, shape_text
from jaxops.ops.common.elementwise import broadcast_to, traced_operands
from jaxops.ops.nn.sequence_states import Activation, UpdateRule, convolved_by_channel, remembered
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft import biases
from jaxops.shapes.nn import sequence_states as standard_sizes
from jaxops.shapes.nn.sequence_states import causal_conv
from jaxops.signature import Bias, Weight, operator
from jaxops.static import ArrayLike, Sizes, jit_if_concrete


@operator(kind="convolution")
def causal_conv_with_state(
    input: ArrayLike,
    weight: Weight[ArrayLike],
    bias: Bias[ArrayLike] | None = None,
    past_state: ArrayLike | None = None,
    *,
    activation: Activation = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Convolves each channel with its own filter over this and earlier elements; returns the state for the next call.

    input: (N, C, L), floats; with channels_last (N, L, c1, …, cn), where C is the product of c1 to cn. bias: (C,).
    weight: (C, 1, k). past_state: (N, C, S), or (N, S, c1, …, cn), with S = (k-1)·dilation: the elements before input;
    None is zeros. One dtype. Returns (an array like input, present_state like past_state).
    activation: 'silu' or 'swish', y · sigmoid(y), or 'none'. dilation: the distance of the taps of a filter.
    state_window: 0, or W in 1 to 8 for states with a leading axis W: item i is the state after element L - W + i,
    counted from 0, or zeros before the first element. ndim must be 1.
    Raises ShapeError when the shapes do not fit, ArgumentError, DTypeError, UnsupportedError for another ndim, which
    onnxruntime lacks too. Source: com.microsoft CausalConvWithState, opset 1.

    >>> y, state = causal_conv_with_state(jnp.array([[[1.0, 2.0, 3.0]]]), jnp.ones((1, 1, 2)))
    >>> y.tolist(), state.tolist()
    ([[[1.0, 3.0, 5.0]]], [[[3.0]]])
    """
    if integer("ndim", ndim) != 1:
        raise UnsupportedError(f"`ndim` is {ndim}; only 1 is supported")
    step, window = integer("dilation", dilation, least=1), _window(state_window)
    kind = one_of("activation", activation, Activation)
    operands = floats_of_one_type(input=input, weight=weight, bias=bias, past_state=past_state)
    return _causal_conv(operands, kind, flag("channels_last", channels_last), step, window)


def _window(state_window: Any) -> int:
    window = integer("state_window", state_window)
    if not 0 <= window <= 8:
        raise ArgumentError(f"`state_window` is {window}; it must be in 0 to 8")
    return window


def _causal_sizes(
    x: Sizes, weight: Sizes, bias: Sizes | None, *, channels_last: bool, dilation: int
) -> tuple[Sizes, Sizes]:
    """Returns x as (N, C, L), and the sizes of a state: (N, C, S), or (N, S, c1, …, cn) with the channels last."""
    if not channels_last:
        return x, causal_conv(x, weight, bias, dilation)
    if len(x) < 3:
        raise ShapeError(f"`input` of {shape_text(x)} must be (N, L, c1, …, cn)")
    flat = (x[0], math.prod(x[2:]), x[1])
    return flat, (x[0], causal_conv(flat, weight, bias, dilation)[2], *x[2:])


@jit_if_concrete
def _causal_conv(operands: tuple[Any, ...], activation: Activation, last: bool, step: int, window: int) -> Any:
    x, weight, bias, past = operands
    bias_sizes = None if bias is None else bias.shape
    flat, state = _causal_sizes(x.shape, weight.shape, bias_sizes, channels_last=last, dilation=step)
    if past is not None:
        must_fit("past_state", past.shape, (window, *state) if window else state)
    batch, channels, length = flat
    reach = state[1] if last else state[2]

    def channels_second(v: Any, count: Any) -> Any:
        return jnp.moveaxis(v.reshape(batch, count, channels), 2, 1) if last else v

    def as_given(v: Any, sizes: Any) -> Any:
        return jnp.moveaxis(v, 1, 2).reshape(sizes) if last else v

    before = jnp.zeros(state, x.dtype) if past is None else past[-1] if window else past
    line = lax.concatenate([channels_second(before, reach), channels_second(x, length)], 2)
    y = as_given(convolved_by_channel(line, weight, bias, activation, step), x.shape)
    if not window:
        return y, as_given(lax.slice_in_dim(line, length, length + reach, axis=2), state)
    done = _tokens_done(length, window)
    items = jax.vmap(lambda start: lax.dynamic_slice_in_dim(line, jnp.maximum(start, 0), reach, 2))(done)
    return y, _without_earlier(jax.vmap(lambda v: as_given(v, state))(items), done)


def _tokens_done(length: Any, window: int) -> Any:
    """Returns the number of tokens before each state of a window, (W,); the last state comes after all tokens."""
    return jnp.asarray(length, np.int32) - window + 1 + jnp.arange(window, dtype=np.int32)


def _without_earlier(states: Any, done: Any) -> Any:
    """Returns the states of a window, with zeros for those before the first token, which earlier calls returned."""
    return jnp.where(done.reshape(-1, *(1,) * (states.ndim - 1)) > 0, states, jnp.zeros_like(states))


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
    state_window: int = 0,
    update_rule: UpdateRule = "gated_delta",
) -> tuple[jax.Array, jax.Array]:
    """Computes attention without a softmax: each head has a state, a matrix that accumulates keys and values by token.

    query: (N, T, q_num_heads·K). key: (N, T, kv_num_heads·K). value: (N, T, kv_num_heads·V), floats of one dtype.
    Returns (output, present_state): (N, T, max(q_num_heads, kv_num_heads)·V) in that dtype, and the state after the
    last token, (N, kv_num_heads, K, V). One of the numbers of heads must divide the other.
    past_state: the state before the first token, floats; None is zeros. decay: (N, T, kv_num_heads·K) or
    (N, T, kv_num_heads), a logarithm. beta: (N, T, kv_num_heads) or (N, T, 1).
    update_rule: how token t changes the state S: 'linear' adds k ⊗ v; 'gated' first multiplies S by exp(decay); 'delta'
    adds beta · k ⊗ (v - Sᵀk) instead; 'gated_delta' does both. The output is scale · Sᵀq; a scale of 0 means 1/√K.
    state_window: as in `causal_conv_with_state`. chunk_size has no effect.
    Raises ShapeError when the shapes do not fit, ArgumentError when decay or beta is missing, DTypeError.
    Source: com.microsoft LinearAttention, opset 1.

    >>> one = jnp.ones((1, 2, 1))
    >>> y, state = linear_attention(one, one, one, kv_num_heads=1, q_num_heads=1, update_rule="linear")
    >>> y.tolist(), state.tolist()
    ([[[1.0], [2.0]]], [[[[2.0]]]])
    """
    rule = one_of("update_rule", update_rule, UpdateRule)
    integer("chunk_size", chunk_size)
    needs = {"decay": (decay, "gated" in rule), "beta": (beta, "delta" in rule)}
    for name, (operand, needed) in needs.items():
        if needed and operand is None:
            raise ArgumentError(f"`{name}` is missing; the update rule '{rule}' needs it")
    operands = floats_of_one_type(
        query=query,
        key=key,
        value=value,
        decay=decay if "gated" in rule else None,
        beta=beta if "delta" in rule else None,
    )
    (state,) = floating(past_state=past_state)
    heads = integer("q_num_heads", q_num_heads), integer("kv_num_heads", kv_num_heads)
    return _linear_attention((*operands, state), heads, float(scale), _window(state_window))


@jit_if_concrete
def _linear_attention(operands: tuple[Any, ...], heads: tuple[int, int], scale: float, window: int) -> Any:
    query, key, value, decay, beta, past = operands
    sizes = standard_sizes.linear_attention(query.shape, key.shape, value.shape, *heads, fewer_queries=True)
    standard_sizes.gates(None if decay is None else decay.shape, None if beta is None else beta.shape, sizes)
    shape = (window, *sizes.state) if window else sizes.state
    if past is None:
        past = jnp.zeros(shape, query.dtype)
    must_fit("past_state", past.shape, shape)
    if heads[1] > heads[0]:
        by_head = query.reshape(*query.shape[:2], heads[0], sizes.key_size)
        query = jnp.repeat(by_head, heads[1] // heads[0], 2).reshape(key.shape)
    y, states = remembered((query, key, value, decay, beta), past if window else past[None], sizes, scale)
    return (y, _without_earlier(states, _tokens_done(sizes.length, window))) if window else (y, states[0])


def linear_attention_gate(a: ArrayLike, dt_bias: ArrayLike, decay_scale: ArrayLike, b: ArrayLike | None = None) -> Any:
    """Returns the gates of `linear_attention`: decay = decay_scale · softplus(a + dt_bias) and beta = sigmoid(b).

    a, b: (N, T, H), floats of one dtype. dt_bias, decay_scale: (H,), floats. Returns the decay, an array like a; with b
    (decay, beta).
    Raises ShapeError when the shapes do not fit, DTypeError. Source: com.microsoft LinearAttentionGate, opset 1.

    >>> linear_attention_gate(jnp.full((1, 1, 1), 100.0), jnp.ones(1), -jnp.ones(1)).tolist()
    [[[-101.0]]]
    """
    gates = traced_operands((a,) if b is None else (a, b), "floating-point")
    gates_of_state = _gate((*gates, *floating(dt_bias=dt_bias, decay_scale=decay_scale)))
    return gates_of_state if b is not None else gates_of_state[0]


@jit_if_concrete
def _gate(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    *gates, shift, factor = operands
    work = accumulation_type(*(v.dtype for v in operands))
    a = gates[0].astype(work)
    biases.last_axis(a.shape, dt_bias=shift.shape, decay_scale=factor.shape)
    shift, factor = (broadcast_to(v.astype(work), a.shape) for v in (shift, factor))
    results = [factor * jnp.logaddexp(a + shift, 0.0)]
    if len(gates) > 1:
        biases.same(a.shape, b=gates[1].shape)
        results.append(lax.logistic(gates[1].astype(work)))
    return tuple(v.astype(gates[0].dtype) for v in results)
