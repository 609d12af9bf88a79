"""A router that chooses groups of experts first, beside onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from microsoft_peer import agree, compare, ours, runtime

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, ShapeError, SizeError

RNG = np.random.default_rng(42)
ROUTER = "MoEGroupRouter"
FULL = (False, True, True)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


GROUPS = [(1, 1, 2, 2), (4, 2, 2, 3), (4, 2, 2, 7), (8, 3, 1, 2), (2, 1, 9, 8), (4, 4, 3, 5)]


@pytest.mark.parametrize(("groups", "chosen", "best", "experts"), GROUPS)
def test_router(groups, chosen, best, experts):
    how = {"n_group": groups, "topk_group": chosen, "group_topk": best, "top_k": experts}
    agree(ROUTER, [3 * f32(50, 16), f32(16)], compiled=True, rtol=1e-4, **how)
    # Of equal scores the first ones are chosen; an expert whose bias is -inf only where no other is left.
    tied = RNG.integers(0, 4, (2, 10, 16)).astype(np.float32)  # of both signs, the sums of groups were nearly equal
    agree(ROUTER, [tied, np.zeros(16, np.float32)], rtol=1e-4, router_sentinel=-7.0, **how)
    agree(ROUTER, [tied, np.where(np.arange(16) % 3, 0, -np.inf).astype(np.float32)], rtol=1e-4, **how)


def test_infinite_logits_and_nan():
    x = np.array([[-np.inf, -200, 3, 4, 5, 6, np.inf, 7]], np.float32)
    agree(ROUTER, [x, np.zeros(8, np.float32)], compiled=True, top_k=8, rtol=1e-4)
    x[0, 2] = np.nan  # chosen first, so that it is seen; onnxruntime's sort leaves it anywhere
    found = jax.jit(lambda x: ms.moe_group_router(x, jnp.zeros(8), top_k=2, n_group=2))(x)
    assert np.isnan(found).tolist() == [[i == 2 for i in range(8)]]


def test_full_scores():
    x, bias, weight, rows = f32(2, 5, 6), f32(6), f32(6, 256), f32(9, 256)
    agree(ROUTER, [x, bias], FULL, compiled=True, top_k=2)
    agree(ROUTER, [rows, bias, weight], FULL, compiled=True, top_k=2)
    half = [rows.astype(np.float16), bias, weight.astype(np.float16)]
    compare(ours(ROUTER, half, 3, top_k=2)[1:], runtime(ROUTER, half, FULL, top_k=2), 1e-3, 1e-3)
    half = [x.astype(np.float16), bias]
    compare(ours(ROUTER, half, 1, top_k=2), runtime(ROUTER, half, top_k=2), 2e-3, 2e-3)


def test_scores_have_the_type_of_the_bias():
    x, bias = f32(3, 8).astype(jnp.bfloat16), f32(8)
    for kind in (np.float32, jnp.bfloat16):
        found = ms.moe_group_router(x, bias.astype(kind), top_k=2, full_scores=True)
        assert [y.dtype for y in found] == [jnp.bfloat16, kind, kind]


def test_gradient_vmap_and_symbolic_sizes():
    x, bias = f32(3, 4, 8), f32(8)

    def fn(x, bias):
        return ms.moe_group_router(x, bias, top_k=2, n_group=4, topk_group=2, router_sentinel=0.0)

    expected = np.asarray(fn(x, bias))
    slope = jax.grad(lambda x: fn(x, bias).sum())(x).reshape(12, 8)
    np.testing.assert_allclose(slope, np.where(expected, 1 / (1 + np.exp(x.reshape(12, 8))), 0), rtol=1e-4)
    compare([jax.vmap(fn, (0, None))(x, bias).reshape(12, 8)], [expected], 1e-6, 0)
    made = export(jax.jit(fn))(*symbolic_args_specs((x, bias), ["b, s, 8", "8"]))
    compare([made.call(x, bias)], [expected], 1e-6, 0)


X, BIAS = f32(2, 8), f32(8)
ERRORS = [
    (lambda: ms.moe_group_router(X[0], BIAS, top_k=1), ShapeError, r"`logits` of \(8,\) must have at least 2 axes"),
    (lambda: ms.moe_group_router(X, BIAS[1:], top_k=1), ShapeError, r"`expert_bias` of \(7,\) must be \(8,\)"),
    (lambda: ms.moe_group_router(X, BIAS, top_k=0), ArgumentError, "`top_k` is 0; it must be at least 1"),
    (lambda: ms.moe_group_router(X, BIAS, top_k=9), ArgumentError, "nor `top_k` 9 the experts"),
    (lambda: ms.moe_group_router(X, BIAS, top_k=1, n_group=3), ArgumentError, "`n_group` 3 must divide the 8 experts"),
    (lambda: ms.moe_group_router(X, BIAS, top_k=1, topk_group=2), ArgumentError, "`topk_group` 2 must not exceed it"),
    (
        lambda: ms.moe_group_router(X, BIAS, top_k=1, n_group=2, full_scores=True),
        ArgumentError,
        "`n_group` is 2; the full scores need 1, a single group",
    ),
    (lambda: ms.moe_group_router(X, BIAS, X, top_k=1), ArgumentError, "`projection_weight` needs the full scores"),
    (
        lambda: ms.moe_group_router(X, BIAS, X[:, 1:], top_k=1, full_scores=True),
        ShapeError,
        r"`projection_weight` of \(2, 7\) must be \(E, 8\) for `logits` of \(2, 8\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:40] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_the_number_of_experts_must_be_known():
    specs = symbolic_args_specs((X, BIAS), ["b, e", "e"])
    with pytest.raises(SizeError, match=r"(?s)the number of experts is the symbolic size e; it must be .*{'e': 8}"):
        export(jax.jit(lambda x, bias: ms.moe_group_router(x, bias, top_k=1)))(*specs)
