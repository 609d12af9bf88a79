"""Mixtures of experts: each token passes through k of many layers, and their results are weighted and added."""

__all__ = ["moe", "qmoe"]

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import flag, integer, one_of
from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, SignatureError, UnsupportedError
from jaxops.kernels.unpack import unpacked
from jaxops.ops.common.elementwise import traced_operands
from jaxops.ops.common.quantized_numbers import quantized
from jaxops.ops.microsoft.gelu_variants import swiglu_factors
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft.quantized.block_quantization import packed
from jaxops.static import ArrayLike, Dim, Sizes, jit_if_concrete

Activation = Literal["relu", "gelu", "silu", "swiglu", "identity"]


# The operands of `moe` after the first two.
_LAYERS = tuple(f"{layer}_experts_{part}" for layer in ("fc1", "fc2", "fc3") for part in ("weights", "bias"))


def _check_scales(name: str, w: Sizes, scales: Sizes, zeros: Sizes | None, bits: int, block_size: int) -> None:
    """Raises ShapeError unless packed weights (experts, rows, bytes) have a scale per row, or per block of a row."""
    experts, rows, width = w
    blocks = -(-width * (8 // bits) // block_size) if block_size else None
    scale_sizes = (experts, rows) if blocks is None else (experts, rows, blocks)
    must_fit(f"{name}_scales", scales, scale_sizes)
    must_fit(f"{name}_zero_points", zeros, (*scale_sizes[:-1], packed(scale_sizes[-1], bits)))


class _Options(NamedTuple):
    k: int
    activation: Activation
    alpha: float
    beta: float
    limit: float | None
    fusion: int
    normalize: bool
    # The softmax is over the k chosen experts, not over all.
    of_chosen: bool = False
    bits: tuple[int, ...] = ()
    block_size: int = 0


def moe(
    input: ArrayLike,
    router_probs: ArrayLike,
    fc1_experts_weights: ArrayLike,
    fc1_experts_bias: ArrayLike | None,
    fc2_experts_weights: ArrayLike,
    fc2_experts_bias: ArrayLike | None = None,
    fc3_experts_weights: ArrayLike | None = None,
    fc3_experts_bias: ArrayLike | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: Activation = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
) -> jax.Array:
    """Returns Σ p · (f(x · fc1ᵀ + b1) · fc2ᵀ + b2) over the k experts with the largest p = softmax(router_probs).

    input: (tokens, H) or (batch, steps, H). router_probs: (tokens, E), before the softmax. fc1_experts_weights:
    (E, I, H). fc2_experts_weights: (E, H, I). The biases: (E, I) and (E, H). Floats of one type, that of the result;
    16-bit types are computed in float32. Returns: the sizes of input.
    activation_type: f; gelu by tanh. With fc3, (E, I, H), f(x · fc1ᵀ + b1) is multiplied by x · fc3ᵀ + b3. swiglu is
    g · sigmoid(alpha · g) · (l + beta), where g and l are clipped by swiglu_limit, g from above only. They are the even
    and odd columns of fc1, (E, 2 · I, H), with `swiglu_fusion` 1; its halves with 2; fc1 and fc3 with 0.
    normalize_routing_weights: 1 divides the k weights by their sum. use_sparse_mixer: no effect, as on onnxruntime's
    CPU. Among equal p the last expert is taken. Raises ShapeError, DTypeError, ArgumentError, SignatureError.
    Source: com.microsoft MoE, opset 1, as onnxruntime defines it; its CPU has no fc3, and of swiglu only fusion 1.

    >>> x, router, w = jnp.ones((5, 2)), jnp.ones((5, 3)), jnp.ones((3, 4, 2))
    >>> moe(x, router, w, None, w.swapaxes(1, 2), k=3).tolist()[0]
    [8.0, 8.0]
    """
    values = (fc1_experts_weights, fc1_experts_bias, fc2_experts_weights, fc2_experts_bias)
    values += (fc3_experts_weights, fc3_experts_bias)
    present = [n for n, v in zip(_LAYERS, values, strict=True) if v is not None]
    floats = traced_operands((input, router_probs, *(v for v in values if v is not None)), "floating-point")
    layers = dict(zip(present, floats[2:], strict=True))
    flag("use_sparse_mixer", use_sparse_mixer)
    options = _options(
        k,
        activation_type,
        activation_alpha,
        activation_beta,
        swiglu_limit,
        swiglu_fusion,
        normalize_routing_weights,
        "fc3_experts_weights" in layers,
    )
    return _moe((floats[0], floats[1], *(layers.get(n) for n in _LAYERS)), options)


def _options(
    k: int, kind: Any, alpha: float, beta: float, limit: float | None, fusion: int, normalize: int, third: bool
) -> _Options:
    one_of("activation_type", kind, Activation)
    fusion_kind = integer("swiglu_fusion", fusion)
    if fusion_kind not in (0, 1, 2):
        raise ArgumentError(f"`swiglu_fusion` is {fusion_kind}; it must be 0, 1 or 2")
    fused = kind == "swiglu" and fusion_kind > 0
    if (third and fused) or (kind == "swiglu" and not fusion_kind and not third):
        raise SignatureError("swiglu needs the weights of fc3 if `swiglu_fusion` is 0, and takes none otherwise")
    bound = None if limit is None else float(limit)
    chosen = integer("k", k), kind, float(alpha), float(beta), bound
    return _Options(*chosen, fusion_kind if fused else 0, flag("normalize_routing_weights", normalize))


def _check_sizes(x: Sizes, router: Sizes, layers: dict[str, Any], inner: Dim, options: _Options) -> None:
    """Checks the sizes of all operands; the weights among them are unpacked."""
    must_fit("input", x, ("tokens", "hidden"), ("batch", "steps", "hidden"))
    must_fit("router_probs", router, (math.prod(x[:-1]), "experts"))
    hidden, experts, doubled = x[-1], router[1], inner * (2 if options.fusion else 1)
    if not 1 <= options.k <= experts:
        raise ArgumentError(f"`k` is {options.k}; it must be from 1 to the number of experts, {experts}")
    for layer, rows, columns in (("fc1", doubled, hidden), ("fc2", hidden, inner), ("fc3", inner, hidden)):
        weights, bias = f"{layer}_experts_weights", f"{layer}_experts_bias"
        must_fit(weights, layers[weights], (experts, rows, columns))
        must_fit(bias, layers[bias], (experts, rows))


@jit_if_concrete
def _moe(operands: tuple[Any, ...], options: _Options) -> jax.Array:
    x, router, w1, b1, w2, b2, w3, b3 = operands
    layer_sizes = {n: None if v is None else v.shape for n, v in zip(_LAYERS, operands[2:], strict=True)}
    _check_sizes(x.shape, router.shape, layer_sizes, (w2.shape or (0,))[-1], options)
    parts = {"w1": w1, "b1": b1, "w2": w2, "b2": b2, "w3": w3, "b3": b3}
    weights, chosen = _routed(router, None, options)
    return _mixed(x, weights, chosen, router.shape[1], parts, lambda p: p, options)


def _routed(router: jax.Array, other_weights: jax.Array | None, options: _Options) -> tuple[jax.Array, jax.Array]:
    """Returns the weights and the indices of the k experts of each token, both (tokens, k).

    other_weights: are used in place of those of the router.
    """
    logits = router.astype(jnp.float32)
    weights = logits if options.of_chosen else jax.nn.softmax(logits, -1)
    # Reversed, since top_k takes the first of equal weights, and here the last one is wanted.
    picked, experts = lax.top_k(lax.rev(weights, (1,)), options.k)
    experts = router.shape[1] - 1 - experts
    if other_weights is not None:
        picked = jnp.take_along_axis(other_weights.astype(jnp.float32), experts, 1)
    elif options.of_chosen:
        picked = jax.nn.softmax(picked, -1)
    if options.normalize:
        picked = picked / jnp.broadcast_to(jnp.sum(picked, 1, keepdims=True), picked.shape)
    return picked, experts


Parts = dict[str, jax.Array | None]


def _mixed(
    x: jax.Array,
    weights: jax.Array,
    chosen: jax.Array,
    experts: Any,
    parts: Parts,
    to_floats: Callable[[Parts], Parts],
    options: _Options,
) -> jax.Array:
    """Adds the weighted results of the chosen experts. parts: weights and biases, which `to_floats` dequantizes."""
    tokens, k = chosen.shape
    wide = lax.reshape(x, (tokens, x.shape[-1])).astype(jnp.float32)
    if isinstance(tokens, int) and tokens * k <= experts:
        # Few tokens: only the weights of their experts are read.
        flat = chosen.reshape(-1)
        chosen_parts = {name: None if v is None else jnp.take(v, flat, 0) for name, v in parts.items()}
        y = _layers(jnp.repeat(wide, k, 0)[:, None], to_floats(chosen_parts), options)
        y = jnp.einsum("tkh,tk->th", lax.reshape(y, (tokens, k, y.shape[-1])), weights)
    else:
        # Many tokens: all experts see all of them. One that was not chosen adds 0, even if its result is infinite.
        one_hot = jax.nn.one_hot(chosen, experts, dtype=bool)
        all_weights = jnp.sum(jnp.where(one_hot, weights[:, :, None], 0), 1)
        data = jnp.broadcast_to(wide[None], (experts, *wide.shape))
        y = _layers(data, to_floats(parts), options)
        y = jnp.where(jnp.any(one_hot, 1).T[:, :, None], y, 0)
        y = jnp.einsum("eth,te->th", y, all_weights)
    return lax.reshape(y, x.shape).astype(x.dtype)


def _layers(x: jax.Array, parts: Parts, options: _Options) -> jax.Array:
    """Passes (B, M, H) through B experts. parts: their weights and biases, with B as the first axis."""
    first = _linear(x, parts["w1"], parts["b1"])
    other = None if parts["w3"] is None else _linear(x, parts["w3"], parts["b3"])
    return _linear(_activated(first, other, options), parts["w2"], parts["b2"])


def _linear(x: jax.Array, w: Any, b: Any) -> jax.Array:
    y = jnp.einsum("bmh,bih->bmi", x, w.astype(jnp.float32))
    return y if b is None else y + jnp.broadcast_to(b.astype(jnp.float32)[:, None], y.shape)


def _activated(x: jax.Array, other: jax.Array | None, options: _Options) -> jax.Array:
    if options.activation == "swiglu":
        if options.fusion == 1:
            x, other = x[..., ::2], x[..., 1::2]
        elif options.fusion == 2:
            x, other = jnp.split(x, 2, -1)
        assert other is not None
        activated, up = swiglu_factors(x, other, options.alpha, options.beta, options.limit)
        return activated * up
    functions: dict[str, Callable[[jax.Array], jax.Array]] = {
        "relu": jax.nn.relu,
        "gelu": jax.nn.gelu,
        "silu": jax.nn.silu,
        "identity": lambda v: v,
    }
    y = functions[options.activation](x)
    return y if other is None else y * other


def qmoe(
    input: ArrayLike,
    router_probs: ArrayLike,
    fc1_experts_weights: ArrayLike,
    fc1_scales: ArrayLike | None,
    fc1_experts_bias: ArrayLike | None,
    fc2_experts_weights: ArrayLike,
    fc2_scales: ArrayLike | None = None,
    fc2_experts_bias: ArrayLike | None = None,
    fc3_experts_weights: ArrayLike | None = None,
    fc3_scales: ArrayLike | None = None,
    fc3_experts_bias: ArrayLike | None = None,
    fc1_zero_points: ArrayLike | None = None,
    fc2_zero_points: ArrayLike | None = None,
    fc3_zero_points: ArrayLike | None = None,
    router_weights: ArrayLike | None = None,
    fc1_global_scale: ArrayLike | None = None,
    fc2_global_scale: ArrayLike | None = None,
    fc1_act_scale: ArrayLike | None = None,
    fc2_act_scale: ArrayLike | None = None,
    fc1_act_block_scale: ArrayLike | None = None,
    fc2_act_block_scale: ArrayLike | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: Activation = "relu",
    block_size: int | None = None,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
) -> jax.Array:
    """Runs `moe` with weights of 2, 4 or 8 bits, packed into bytes along their last axis, the lowest bits first.

    The weights: as in `moe`, uint8, the last axis packed. fc1_scales and so on: (E, rows), a scale for each row, or
    with `block_size` (E, rows, blocks), a scale for each block of it. Zero points: packed along the last axis of the
    scales; 2^(bits - 1) when None. router_weights: (tokens, E), the weights of the chosen experts; None:
    the softmax of the k largest numbers of the router, not of all numbers as in `moe`.
    expert_weight_bits: for all layers; fc1_expert_weight_bits and so on: for one layer. accuracy_level has no effect.
    weights_prepacked: 1, the layout of one accelerator, is not supported. quant_type: only 'int'; floats of 4 and 8
    bits raise UnsupportedError. The rest, and the other exceptions, are as in `moe`.
    Source: com.microsoft QMoE, opset 1, as onnxruntime defines it.

    >>> x, router, w = jnp.ones((5, 2)), jnp.ones((5, 3)), jnp.full((3, 4, 1), 0x99, jnp.uint8)
    >>> qmoe(x, router, w, jnp.ones((3, 4)), None, w[:, :2].repeat(2, 2), jnp.ones((3, 2)), k=3).tolist()[0]
    [8.0, 8.0]
    """
    floating_only = (
        fc1_global_scale,
        fc2_global_scale,
        fc1_act_scale,
        fc2_act_scale,
        fc1_act_block_scale,
        fc2_act_block_scale,
    )
    if quant_type != "int" or any(v is not None for v in floating_only):
        raise UnsupportedError(f"`quant_type` is {quant_type!r}; only 'int', integers of 2, 4 or 8 bits, is supported")
    if integer("weights_prepacked", weights_prepacked) == 1:
        raise UnsupportedError("`weights_prepacked` is 1, the layout of one accelerator; export plain weights")
    flag("use_sparse_mixer", use_sparse_mixer)
    codes = {"fc1": fc1_experts_weights, "fc2": fc2_experts_weights, "fc3": fc3_experts_weights}
    scales = {"fc1": fc1_scales, "fc2": fc2_scales, "fc3": fc3_scales}
    zeros = {"fc1": fc1_zero_points, "fc2": fc2_zero_points, "fc3": fc3_zero_points}
    biases = {"fc1": fc1_experts_bias, "fc2": fc2_experts_bias, "fc3": fc3_experts_bias}
    widths = {"fc1": fc1_expert_weight_bits, "fc2": fc2_expert_weight_bits, "fc3": fc3_expert_weight_bits}
    present = [layer for layer, w in codes.items() if w is not None]
    for layer in present:
        if scales[layer] is None:
            raise SignatureError(f"`{layer}_scales` is missing; integers need their scales")
    float_operands = {f"{layer}_scales": scales[layer] for layer in present}
    float_operands |= {f"{layer}_experts_bias": v for layer, v in biases.items() if v is not None}
    float_operands |= {} if router_weights is None else {"router_weights": router_weights}
    arrays = traced_operands((input, router_probs, *float_operands.values()), "floating-point")
    floats = dict(zip(float_operands, arrays[2:], strict=True))
    for layer in present:
        floats[layer] = quantized(f"{layer}_experts_weights", codes[layer], ("uint8",))  # pyright: ignore[reportArgumentType]
        if zeros[layer] is not None:
            floats[f"{layer}_zero_points"] = quantized(f"{layer}_zero_points", as_traced(zeros[layer]), ("uint8",))
    bits = tuple(integer("expert_weight_bits", widths[n] or expert_weight_bits) for n in ("fc1", "fc2", "fc3"))
    if any(b not in (2, 4, 8) for b in bits):
        raise ArgumentError(f"`expert_weight_bits` is {bits[0]}; it must be 2, 4 or 8")
    options = _options(
        k,
        activation_type,
        activation_alpha,
        activation_beta,
        swiglu_limit,
        swiglu_fusion,
        normalize_routing_weights,
        fc3_experts_weights is not None,
    )._replace(of_chosen=True, bits=bits, block_size=integer("block_size", block_size or 0))
    return _qmoe((arrays[0], arrays[1], *floats.values()), tuple(floats), options)


@jit_if_concrete
def _qmoe(operands: tuple[Any, ...], names: tuple[str, ...], options: _Options) -> jax.Array:
    x, router = operands[0], operands[1]
    named = dict(zip(names, operands[2:], strict=True))
    bits = dict(zip(("fc1", "fc2", "fc3"), options.bits, strict=True))
    sizes: dict[str, Any] = {f"{layer}_experts_bias": None for layer in bits}
    for layer, width in bits.items():
        w = named.get(layer)
        sizes[f"{layer}_experts_weights"] = None if w is None else (*w.shape[:2], w.shape[2] * (8 // width))
        if f"{layer}_experts_bias" in named:
            sizes[f"{layer}_experts_bias"] = named[f"{layer}_experts_bias"].shape
        if w is not None:
            zeros = named.get(f"{layer}_zero_points")
            shape = None if zeros is None else zeros.shape
            _check_scales(layer, w.shape, named[f"{layer}_scales"].shape, shape, width, options.block_size)
    _check_sizes(x.shape, router.shape, sizes, sizes["fc2_experts_weights"][2], options)
    parts: Parts = {}
    for i, layer in enumerate(bits, 1):
        keys = {"q": layer, "s": f"{layer}_scales", "z": f"{layer}_zero_points", "b": f"{layer}_experts_bias"}
        parts |= {f"{part}{i}": named.get(name) for part, name in keys.items()}

    def to_floats(packed: Parts) -> Parts:
        floats: Parts = {f"b{i}": packed[f"b{i}"] for i in (1, 2, 3)}
        for i, width in enumerate(options.bits, 1):
            q = packed[f"q{i}"]
            floats[f"w{i}"] = None if q is None else _unpacked(q, packed[f"s{i}"], packed[f"z{i}"], width, options)
        return floats

    weights, chosen = _routed(router, named.get("router_weights"), options)
    return _mixed(x, weights, chosen, router.shape[1], parts, to_floats, options)


def _unpacked(q: jax.Array, scales: Any, zeros: Any, bits: int, options: _Options) -> jax.Array:
    """Unpacks weights (B, rows, columns) from their bytes, in float32."""
    elements = unpacked(q, bits)
    columns = elements.shape[-1]
    origin = None if zeros is None else unpacked(zeros, bits)[..., : scales.shape[-1]]

    def spread(v: jax.Array) -> jax.Array:
        v = v.astype(jnp.float32)
        if options.block_size:
            return jnp.repeat(v, options.block_size, -1)[..., :columns]
        return jnp.broadcast_to(v[..., None], elements.shape)

    wide = elements.astype(jnp.float32)
    return (wide - (2 ** (bits - 1) if origin is None else spread(origin))) * spread(scales)
