"""Operators on packed batches that carry a state from token to token: causal convolution and gated delta networks.

Everything is computed in float32.
"""

__all__ = ["gated_delta_net", "varlen_causal_conv_with_state"]

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, one_of
from jaxops.dtypes import accumulation_type, floating, floats_of_one_type, integral
from jaxops.errors import ArgumentError, DTypeError, UnsupportedError
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.ops.microsoft.packed_sequences import Packed, capacity, captured, check_offsets, packed, values_at
from jaxops.ops.nn.sequence_states import Activation, UpdateRule
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft import packed_sequences as packed_sizes, packed_states as sizes_of
from jaxops.signature import Bias, Weight, operator
from jaxops.static import ArrayLike, jit_if_concrete

GateActivation = Literal["none", "softplus", "qwen", "sigmoid", "kda"]
BetaActivation = Literal["none", "sigmoid"]


@operator(kind="convolution")
def varlen_causal_conv_with_state(
    input: ArrayLike,
    weight: Weight[ArrayLike],
    cumulative_sequence_length: ArrayLike,
    bias: Bias[ArrayLike] | None = None,
    initial_state: ArrayLike | None = None,
    capture_count: ArrayLike | None = None,
    kernel_delta: ArrayLike | None = None,
    previous_mask: ArrayLike | None = None,
    *,
    activation: Activation = "none",
    delta_offset: int = 0,
    dilation: int = 1,
    group_size: int = 1,
    state_update_capacity: int = 0,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Computes `causal_conv_with_state` of a packed batch: convolves each channel of each sequence with its own filter.

    input: (T, C), floats, the tokens of all B sequences. weight: (C, 1, k). bias: (C,). initial_state: (B, C, S) with
    S = (k-1)·dilation, the elements before each sequence; it must be given. One dtype. cumulative_sequence_length:
    int32 (B + 1,), the sums of the first lengths; traced ones that do not fit T give meaningless results.
    activation: 'silu' or 'swish', y · sigmoid(y), or 'none'. dilation: the distance of the taps of a filter.
    state_update_capacity: N in 0 to 8; capture_count, int32 (B,), must be given exactly if it is positive.
    Returns an array like input, the state after each sequence, and the first capture_count tokens of each sequence,
    (B, N, C), padded with zeros.
    kernel_delta and previous_mask, for filters that change with each token, are not supported, nor are delta_offset
    and group_size, which belong to them; onnxruntime's CPU does not have them either.
    Raises ShapeError, ArgumentError, DTypeError, UnsupportedError.
    Source: com.microsoft VarlenCausalConvWithState, opset 1.

    >>> x, state = jnp.array([[1.0], [2.0], [3.0]]), jnp.array([[[0.0]], [[9.0]]])
    >>> y, last, _ = varlen_causal_conv_with_state(x, jnp.ones((1, 1, 2)), np.array([0, 2, 3]), None, state)
    >>> y.ravel().tolist(), last.ravel().tolist()
    ([1.0, 3.0, 12.0], [2.0, 3.0])
    """
    grouped = integer("delta_offset", delta_offset), integer("group_size", group_size)
    if kernel_delta is not None or previous_mask is not None or grouped != (0, 1):
        raise UnsupportedError("`kernel_delta` and `previous_mask` are not supported, nor is `group_size`")
    if initial_state is None:
        raise ArgumentError("`initial_state` must be given")
    step, kind = integer("dilation", dilation, least=1), one_of("activation", activation, Activation)
    size = capacity(state_update_capacity, capture_count)
    x, w, b, state = floats_of_one_type(input=input, weight=weight, bias=bias, initial_state=initial_state)
    sums, counts = integral(cumulative_sequence_length=cumulative_sequence_length, capture_count=capture_count)
    batch = packed_sizes.offsets("cumulative_sequence_length", sums.shape)
    sizes_of.convolution(x.shape, w.shape, None if b is None else b.shape, state.shape, batch, step)
    must_fit("capture_count", None if counts is None else counts.shape, (batch,))
    # The text asks for a token in each sequence; onnxruntime accepts empty ones.
    check_offsets("cumulative_sequence_length", cumulative_sequence_length, x.shape[0], least=0)
    return _convolved((x, w, b, state, sums, counts), kind, step, size)


@jit_if_concrete
def _convolved(operands: tuple[Any, ...], activation: Activation, step: int, size: int) -> tuple[Any, Any, Any]:
    x, weight, bias, state, sums, counts = operands
    layout, before = packed(sums, x.shape[0]), jnp.swapaxes(state, 1, 2)
    work, taps, reach = accumulation_type(x.dtype), weight.shape[2], state.shape[2]
    y = jnp.zeros(x.shape, work)
    for k in range(taps):
        tap = values_at(x, before, layout, layout.sequence, layout.position - (taps - 1 - k) * step)
        y = y + tap.astype(work) * broadcast_to(weight[:, 0, k].astype(work), x.shape)
    if bias is not None:
        y = y + broadcast_to(bias.astype(work), y.shape)
    if activation != "none":
        y = y * lax.logistic(y)
    sequence, positions = (lax.broadcasted_iota(np.int32, (sums.shape[0] - 1, reach), axis) for axis in (0, 1))
    last = values_at(x, before, layout, sequence, layout.lengths[:, None] - reach + positions)
    return y.astype(x.dtype), jnp.swapaxes(last, 1, 2), _first(x, layout, counts, size)


def _first(x: Any, layout: Packed, counts: Any, size: int) -> Any:
    """Returns the captured tokens of each sequence, padded with zeros: (T, …) → (B, size, …)."""
    batch = layout.starts.shape[0]
    if not size:
        return jnp.zeros((batch, 0, *x.shape[1:]), x.dtype)
    sequence, positions = (lax.broadcasted_iota(np.int32, (batch, size), axis) for axis in (0, 1))
    tokens = values_at(x, jnp.zeros((batch, 0, *x.shape[1:]), x.dtype), layout, sequence, positions)
    is_captured = lax.broadcast_in_dim(captured(counts, layout.lengths, size), tokens.shape, (0, 1))
    return jnp.where(is_captured, tokens, jnp.zeros_like(tokens))


@dataclass(frozen=True)
class _Options:
    gate: GateActivation
    lowest: float
    sigmoid: bool  # of beta
    normalized: bool
    scale: float
    size: int  # of the state updates


@operator(kind="attention")
def gated_delta_net(
    query: ArrayLike,
    key: ArrayLike | None = None,
    value: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    decay: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    initial_state: ArrayLike | None = None,
    a_log: ArrayLike | None = None,
    dt_bias: ArrayLike | None = None,
    capture_count: ArrayLike | None = None,
    state_update_active: ArrayLike | None = None,
    *,
    beta_activation: BetaActivation = "none",
    chunk_size: int = 64,
    gate_activation: GateActivation = "none",
    gate_lower_bound: float = -5.0,
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: UpdateRule = "gated_delta",
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Computes `linear_attention` of a packed batch, with gates that may be computed from further operands.

    query, key: (T, Hk, K). value: (T, Hv, V), floats of one dtype; Hk divides Hv. Or query is (T, 2·Hk·K + Hv·V) and
    holds all three. Two axes (B, L) may replace T everywhere. cu_seqlens: int32 (B + 1,), the sums of the first
    lengths; traced ones that do not fit T give meaningless results. Without it all B sequences have one length.
    initial_state: (B, Hv, V, K), floats, the transposed state before each sequence; None is zeros.
    update_rule: how a token changes the state S, (K, V): 'linear' adds k ⊗ v; 'gated' first multiplies S by exp(decay);
    'delta' adds beta · k ⊗ (v - Sᵀk) instead; 'gated_delta' does both. The output is scale · Sᵀq; a scale of 0 means
    1/√K. decay: (T, Hv) or (T, Hv, K), a logarithm. beta: (T, Hv). They have the dtype of query or float32, and
    must be given exactly if the rule needs them.
    gate_activation: 'softplus' or 'qwen' replaces decay by -exp(a_log) · softplus(decay + dt_bias), 'sigmoid' or 'kda'
    by gate_lower_bound · sigmoid(exp(a_log) · (decay + dt_bias)). a_log: (Hv,). dt_bias: (Hv,); for a decay (T, Hv, K)
    also (Hv, K) or flat. beta_activation: 'sigmoid' takes the sigmoid of beta. qk_l2_norm: 1 divides each head of
    query and key by its norm, the root of the sum of squares and 1e-12. chunk_size has no effect.
    state_update_capacity: N in 0 to 8; capture_count, int32 (B,), must be given exactly if it is positive.
    Returns the output (T, Hv, V) in the dtype of query, the state after each sequence, and the updates of the state by
    the first capture_count tokens of each sequence: (B, N · (Hv + Hk·K + Hv·V)), the factors exp(decay) of all N tokens
    (Hv·K numbers each for a decay (T, Hv, K)), their keys k, and the vectors u of the added k ⊗ u. They are padded with
    zeros, and all zeros if state_update_active, one int32, is 0. State and updates have the dtype of the first given
    one of initial_state, a_log and dt_bias, or float32.
    Raises ShapeError, ArgumentError, DTypeError. Source: com.microsoft GatedDeltaNet, opset 1.

    >>> one = jnp.ones((2, 1, 1))
    >>> y, state, _ = gated_delta_net(one, one, one, np.array([0, 2]), update_rule="linear")
    >>> y.ravel().tolist(), state.tolist()
    ([1.0, 2.0], [[[[2.0]]]])
    """
    rule = one_of("update_rule", update_rule, UpdateRule)
    kind = one_of("gate_activation", gate_activation, GateActivation)
    integer("chunk_size", chunk_size, least=1)
    if not -np.inf < gate_lower_bound < 0:
        raise ArgumentError(f"`gate_lower_bound` is {gate_lower_bound}; it must be negative and finite")
    for name, gate, needed in (("decay", decay, "gated" in rule), ("beta", beta, "delta" in rule)):
        if (gate is not None) != needed:
            raise ArgumentError(f"the update rule '{rule}' {'needs' if needed else 'has no'} `{name}`")
    for name, operand in (("a_log", a_log), ("dt_bias", dt_bias)):
        if (operand is not None) != (kind != "none"):
            needs = "has no" if kind == "none" else "needs"
            raise ArgumentError(f"the gate activation '{kind}' {needs} `{name}`")
    size = capacity(state_update_capacity, capture_count)
    q, k, v = floats_of_one_type(query=query, key=key, value=value)
    g, b = floats_of_one_type(decay=decay, beta=beta)
    for name, gate in (("decay", g), ("beta", b)):
        if gate is not None and gate.dtype not in (np.float32, q.dtype):
            raise DTypeError(f"`{name}` is {gate.dtype.name}; it must be float32, or {q.dtype.name} as `query` is")
    state, a, shift = floating(initial_state=initial_state, a_log=a_log, dt_bias=dt_bias)
    sums, counts, active = integral(
        cu_seqlens=cu_seqlens, capture_count=capture_count, state_update_active=state_update_active
    )
    shapes = [None if x is None else x.shape for x in (q, k, v, g, b, state, a, shift, sums, counts, active)]
    heads = sizes_of.heads(q.shape, shapes[1], shapes[2], shapes[5])
    if sums is not None:
        packed_sizes.offsets("cu_seqlens", sums.shape)
    batch, length = sizes_of.samples(heads, shapes[8], shapes[5])
    check_offsets("cu_seqlens", cu_seqlens, heads.lead[0], least=0)
    sizes_of.gates(heads, *shapes[3:5], *shapes[6:8])
    must_fit("initial_state", shapes[5], (batch, *heads.state))
    must_fit("capture_count", shapes[9], (batch,))
    must_fit("state_update_active", shapes[10], (1,))
    options = _Options(
        gate=kind,
        lowest=float(gate_lower_bound),
        sigmoid=one_of("beta_activation", beta_activation, BetaActivation) == "sigmoid",
        normalized=flag("qk_l2_norm", qk_l2_norm),
        scale=float(scale or heads.key_size**-0.5),
        size=size,
    )
    return _delta_net((q, k, v, g, b, state, a, shift, sums, counts, active), heads, batch, length, options)


@jit_if_concrete
def _delta_net(operands: tuple[Any, ...], of: sizes_of.Heads, batch: Any, length: Any, options: _Options) -> Any:
    q, k, v, decay, beta, state, a_log, shift, sums, counts, active = operands
    kind = next((x.dtype for x in (state, a_log, shift) if x is not None), np.float32)
    narrow, total = q.dtype, of.lead[0] if len(of.lead) == 1 else of.lead[0] * of.lead[1]
    if k is None:
        width = of.keys * of.key_size
        q, k, v = q[..., :width], q[..., width : 2 * width], q[..., 2 * width :]
    by_key, by_value = (total, of.keys, 1), (total, of.keys, of.group)
    q, k = (x.astype(np.float32).reshape(*by_key, of.key_size) for x in (q, k))
    v = v.astype(np.float32).reshape(*by_value, of.value_size)
    if options.normalized:
        q, k = (x * lax.rsqrt(jnp.sum(lax.square(x), 3, keepdims=True) + 1e-12) for x in (q, k))
    factor = None if decay is None else _factor(decay, len(of.lead), a_log, shift, by_value, options)
    if beta is not None:
        beta = beta.astype(np.float32).reshape(*by_value, 1)
        beta = lax.logistic(beta) if options.sigmoid else beta
    turned = (batch, of.keys, of.group, of.key_size, of.value_size)
    if state is None:
        state = jnp.zeros(turned, np.float32)
    else:
        state = jnp.swapaxes(state.astype(np.float32).reshape(*turned[:3], of.value_size, of.key_size), 3, 4)

    def one(old: Any, token: tuple[Any, ...]) -> tuple[Any, tuple[Any, Any]]:
        """Returns the states (n, Hk, group, K, V) after one token of n sequences, its output and its update."""
        reads, writes, new, decayed, rate = token
        if decayed is not None:
            old = old * decayed[..., None]
        if rate is not None:
            new = rate * (new - jnp.sum(old * writes[..., None], 3))
        old = old + writes[..., None] * new[:, :, :, None]
        return old, (jnp.sum(old * reads[..., None], 3), new)

    tokens = (q * options.scale, k, v, factor, beta)
    if length is None:
        layout = packed(sums, total)

        def alone(states: Any, token: Any) -> Any:
            sequence, values = token
            row, results = one(
                lax.dynamic_index_in_dim(states, sequence, 0), tuple(x if x is None else x[None] for x in values)
            )
            return lax.dynamic_update_index_in_dim(states, row[0], sequence, 0), tuple(x[0] for x in results)

        state, (y, added) = lax.scan(alone, state, (layout.sequence, tokens))
    else:
        layout = packed(lax.iota(np.int32, batch + 1) * jnp.asarray(length, np.int32), total)
        steps = tuple(x if x is None else jnp.moveaxis(x.reshape(batch, length, *x.shape[1:]), 1, 0) for x in tokens)
        state, results = lax.scan(one, state, steps)
        y, added = (jnp.moveaxis(x, 0, 1).reshape(total, *x.shape[2:]) for x in results)
    y = y.astype(narrow).reshape(*of.lead, of.values, of.value_size)
    last = jnp.swapaxes(state, 3, 4).reshape(batch, *of.state)
    if factor is None:
        factor = jnp.ones((*by_value, 1), np.float32)
    changes = [_first(x, layout, counts, options.size) for x in (factor, k, added)]
    update = jnp.concatenate([x.reshape(batch, int(np.prod(x.shape[1:]))) for x in changes], 1)
    if active is not None:
        update = jnp.where(active.reshape(()) != 0, update, jnp.zeros_like(update))
    return y, last.astype(kind), update.astype(kind)


def _factor(decay: Any, axes: int, a_log: Any, shift: Any, lead: tuple[Any, ...], options: _Options) -> Any:
    """Returns the factor of a state, (*lead, 1 or K), for a decay with `axes` axes of tokens."""
    x = decay.astype(np.float32).reshape(*lead, *(decay.shape[axes + 1 :] or (1,)))
    if options.gate == "none":
        return jnp.exp(x)
    a = jnp.exp(a_log.astype(np.float32)).reshape(1, *lead[1:], 1)
    x = x + broadcast_to(shift.astype(np.float32).reshape(1, *lead[1:], -1), x.shape)
    a = broadcast_to(a, x.shape)
    gated = -a * jnp.logaddexp(x, 0.0) if options.gate in ("softplus", "qwen") else options.lowest * lax.logistic(a * x)
    return jnp.exp(gated)
