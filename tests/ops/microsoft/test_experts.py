"""Mixtures of experts beside onnxruntime, and beside NumPy where its CPU has no kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from quantized_peer import agree, close

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, ShapeError, SignatureError, UnsupportedError

RNG = np.random.default_rng(10)
f32 = np.float32
HIDDEN, INNER, EXPERTS = 32, 64, 4
SWIGLU = {
    "activation_type": "swiglu",
    "swiglu_fusion": 1,
    "activation_alpha": 1.702,
    "activation_beta": 1.0,
    "swiglu_limit": 2.0,
}


def floats(*shape, scale=1.0):
    return (RNG.normal(size=shape) * scale).astype(f32)


def layers(rows=INNER):
    """fc1 and fc2 with their biases."""
    return floats(EXPERTS, rows, HIDDEN), floats(EXPERTS, rows), floats(EXPERTS, HIDDEN, INNER), floats(EXPERTS, HIDDEN)


@pytest.mark.parametrize("kind", ["relu", "gelu", "silu", "identity", "swiglu"])
def test_moe(kind):
    options = SWIGLU if kind == "swiglu" else {"activation_type": kind}
    given = layers(2 * INNER if kind == "swiglu" else INNER)
    x, router = floats(2, 3, HIDDEN), floats(6, EXPERTS)
    agree("MoE", (x, router, *given), k=2, tolerance=1e-3, **options)
    agree("MoE", (x, router, *given), k=1, tolerance=1e-3, normalize_routing_weights=1, **options)
    # One token: only its experts are read.
    agree("MoE", (x[0, :1], router[:1], given[0], None, given[2]), k=3, tolerance=1e-3, **options)


def test_an_infinity_of_an_expert_that_was_not_chosen_is_not_read():
    w1 = np.where(np.arange(EXPERTS)[:, None, None] % 2, f32(1), f32(-1)) * abs(floats(EXPERTS, INNER, HIDDEN))
    x, router = floats(6, HIDDEN), floats(6, EXPERTS)
    x[2] = np.inf  # gelu makes it 0 in the experts 0 and 2, and infinite in the others
    router[2] = [1, 2, 0, 0]
    given = x, router, w1, None, abs(floats(EXPERTS, HIDDEN, INNER))
    found = jax.jit(lambda *v: ms.moe(*v[:3], None, v[3], k=1, activation_type="gelu"))(*given[:3], given[4])
    assert np.isposinf(found[2]).all()
    assert np.isfinite(np.delete(found, 2, 0)).all()
    agree("MoE", given, k=1, tolerance=1e-3, activation_type="gelu")


def formula(x, router, w1, w2, w3, gate):
    weights = np.exp(router) / np.exp(router).sum(1, keepdims=True)
    y = np.zeros_like(x)
    for token, row in enumerate(weights):
        for e in np.argsort(-row)[:2]:
            y[token] += row[e] * (gate(x[token] @ w1[e].T, x[token] @ w3[e].T) @ w2[e].T)
    return y


def test_a_third_layer_and_other_layouts():  # onnxruntime's CPU has neither
    (w1, _, w2, _), w3 = layers(), floats(EXPERTS, INNER, HIDDEN)
    x, router = floats(6, HIDDEN), floats(6, EXPERTS)

    def silu(x):
        return x / (1 + np.exp(-x))

    wanted = formula(x, router, w1, w2, w3, lambda a, b: silu(a) * b)
    found = ms.moe(x, router, w1, None, w2, None, w3, k=2, activation_type="silu")
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    wanted = formula(x, router, w1, w2, w3, lambda a, b: a / (1 + np.exp(-0.5 * a)) * (b + 1))
    options = {"k": 2, "activation_type": "swiglu", "activation_alpha": 0.5, "activation_beta": 1.0}
    both = np.concatenate([w1, w3], 1), np.stack([w1, w3], 2).reshape(EXPERTS, -1, HIDDEN)
    for found in (
        ms.moe(x, router, w1, None, w2, None, w3, **options),
        ms.moe(x, router, both[0], None, w2, swiglu_fusion=2, **options),
        ms.moe(x, router, both[1], None, w2, swiglu_fusion=1, **options),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def packed(bits, rows, columns, block, zeros):
    """Packed weights, their scales and zero points."""

    def codes(*shape):
        return RNG.integers(0, 256, shape).astype(np.uint8)

    at = (EXPERTS, rows, columns // block) if block else (EXPERTS, rows)
    scales = RNG.uniform(0.01, 0.1, at).astype(f32)
    packed_zeros = codes(*at[:-1], -(-at[-1] * bits // 8)) if zeros else None
    return codes(EXPERTS, rows, columns * bits // 8), scales, packed_zeros


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("block", "zeros"), [(0, False), (0, True), (32, False), (32, True)])
def test_qmoe(bits, block, zeros):
    rows = 2 * INNER if zeros else INNER
    options = {**(SWIGLU if zeros else {"activation_type": "silu"}), "k": 2, "expert_weight_bits": bits}
    options |= {"block_size": block} if block else {}
    (w1, s1, z1), (w2, s2, z2) = packed(bits, rows, HIDDEN, block, zeros), packed(bits, HIDDEN, INNER, block, zeros)
    x, router, weights = floats(6, HIDDEN), floats(6, EXPERTS), abs(floats(6, EXPERTS))
    given = (x, router, w1, s1, floats(EXPERTS, rows), w2, s2, floats(EXPERTS, HIDDEN), None, None, None, z1, z2)
    # With 2 bits in blocks onnxruntime quantizes the activations too.
    near = {"tolerance": 0.05 if bits == 2 and block else 2e-3}
    agree("QMoE", given, **near, **options)
    agree("QMoE", (*given, None, weights), normalize_routing_weights=1, **near, **options)


def test_in_all_ways():
    x, router, given = floats(8, HIDDEN), floats(8, EXPERTS), layers()
    (w1, s1, _), (w2, s2, _) = packed(4, INNER, HIDDEN, 0, False), packed(4, HIDDEN, INNER, 0, False)

    def fn(x, router):
        y = ms.moe(x, router, *given, k=2, activation_type="gelu")
        return ms.qmoe(y, router, w1, s1, None, w2, s2, k=2)

    wanted = np.asarray(fn(x, router))
    size = {"tolerance": 1e-4 * abs(wanted).max()}
    close(jax.jit(fn)(x, router), wanted, **size)
    specs = symbolic_args_specs([jnp.asarray(x), jnp.asarray(router)], [f"n, {HIDDEN}", f"n, {EXPERTS}"])
    close(export(jax.jit(fn))(*specs).call(x, router), wanted, **size)
    one = np.asarray(fn(x[:1], router[:1]))
    close(one, wanted[:1], **size)
    small = [v[:, :3] if i % 2 else v[:, :3, :5] for i, v in enumerate((given[0], given[1]))]
    last = given[2][:, :5, :3], given[3][:, :5]
    check_grads(lambda x: ms.moe(x, router[:2], *small, *last, k=2, activation_type="silu"), (x[:2, :5],), 1, rtol=0.05)


X, ROUTER, GIVEN = floats(6, HIDDEN), floats(6, EXPERTS), layers()
PACKED, OTHER = packed(4, INNER, HIDDEN, 0, False), packed(4, HIDDEN, INNER, 0, False)
LAYERS = (*PACKED[:2], None, *OTHER[:2])
ERRORS = [
    (lambda: ms.moe(X[0], ROUTER, *GIVEN), ShapeError, r"`input` of \(32,\) must be \(tokens, hidden\)"),
    (lambda: ms.moe(X, ROUTER[:5], *GIVEN), ShapeError, r"`router_probs` of \(5, 4\) must be \(6, experts\)"),
    (lambda: ms.moe(X, ROUTER, *GIVEN, k=5), ArgumentError, "`k` is 5; it must be from 1 to the number of experts, 4"),
    (lambda: ms.moe(X, ROUTER, GIVEN[0][:, 1:], *GIVEN[1:]), ShapeError, r"`fc1_experts_weights` of .* \(4, 64, 32\)"),
    (lambda: ms.moe(X, ROUTER, *GIVEN, activation_type="tanh"), ArgumentError, "`activation_type` is 'tanh'"),
    (lambda: ms.moe(X, ROUTER, *GIVEN, swiglu_fusion=3), ArgumentError, "`swiglu_fusion` is 3; it must be 0, 1 or 2"),
    (lambda: ms.moe(X, ROUTER, *GIVEN, activation_type="swiglu"), SignatureError, "swiglu needs the weights of fc3 if"),
    (lambda: ms.qmoe(X, ROUTER, *LAYERS, quant_type="fp8"), UnsupportedError, "`quant_type` is 'fp8'; only 'int'"),
    (lambda: ms.qmoe(X, ROUTER, *LAYERS, weights_prepacked=1), UnsupportedError, "`weights_prepacked` is 1"),
    (lambda: ms.qmoe(X, ROUTER, PACKED[0], None, *LAYERS[2:]), SignatureError, "`fc1_scales` is missing"),
    (lambda: ms.qmoe(X, ROUTER, *LAYERS, expert_weight_bits=3), ArgumentError, "`expert_weight_bits` is 3"),
    (lambda: ms.qmoe(X, ROUTER, *LAYERS, block_size=16), ShapeError, r"`fc1_scales` of \(4, 64\) must be \(4, 64, 2\)"),
    (
        lambda: ms.qmoe(X, ROUTER, *LAYERS, fc1_zero_points=PACKED[0][..., 0]),
        ShapeError,
        r"`fc1_zero_points` of \(4, 64\) must be \(4, 32\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
