"""Attention in blocks of queries: the numbers of all scores at once, and their derivatives, in less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxops as jo
from jaxops.kernels.target import Target
from jaxops.ops.common import scaled_dot_product as module
from jaxops.ops.common.query_blocks import blocks, in_blocks
from jaxops.ops.common.scaled_dot_product import key_mask, scaled_dot_product_attention

RNG = np.random.default_rng(0)
QUERIES, KEYS = 35, 24
CAUSAL = np.asarray(key_mask(QUERIES, KEYS, offset=2, right=0))
NO_KEY = RNG.random((2, 1, QUERIES, KEYS)) < 0.7
NO_KEY[:, :, 4] = False  # this query may use no key
EXCLUDED = np.where(NO_KEY, 0, -np.inf).astype(np.float32)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


CASES = {
    "plain": {},
    "causal": {"mask": CAUSAL},
    "a query without keys": {"mask": NO_KEY},
    "excluded by the bias": {"bias": EXCLUDED},
    "bias by head": {"bias": array(1, 4, QUERIES, KEYS), "mask": CAUSAL},
    "bias by key": {"bias": array(2, 1, 1, KEYS)},
    "cap and sink": {"softcap": 2.0, "sink": array(4), "mask": NO_KEY},
    "another softmax": {"softmax_dtype": jnp.float16, "bias": array(QUERIES, KEYS)},
}


def operands(dtype=np.float32):
    shapes = (2, 4, QUERIES, 8), (2, 2, KEYS, 8), (2, 2, KEYS, 6)
    return tuple(jnp.asarray(array(*shape), dtype) for shape in shapes)


def at_once(q, k, v, bias=None, mask=None, sink=None, **how):
    return scaled_dot_product_attention(q, k, v, scale=0.4, bias=bias, mask=mask, sink=sink, **how).output


def cut(q, k, v, bias=None, mask=None, sink=None, count=4, **how):
    def attend(q, k, v, by_score, sink):
        return at_once(q, k, v, *by_score, sink, **how)

    return in_blocks(attend, count, q, k, v, (bias, mask), sink)


def with_derivatives(attend, q, k, v, more):
    """The output, the gradients by all floats, a tangent, and a derivative of the gradient."""
    how = {name: x for name, x in more.items() if not isinstance(x, np.ndarray)}
    given = {name: x for name, x in more.items() if isinstance(x, np.ndarray)}
    moving = {name: x for name, x in given.items() if x.dtype != bool}
    fixed = {name: x for name, x in given.items() if x.dtype == bool}

    def loss(q, k, v, moving):
        return (attend(q, k, v, **fixed, **moving, **how).astype(jnp.float32) ** 2).sum()

    def gradient(q):
        return jax.grad(loss, argnums=(0, 1, 2, 3))(q, k, v, moving)

    found = jax.jit(lambda q: (attend(q, k, v, **given, **how), gradient(q), jax.jvp(gradient, (q,), (q,))[1]))(q)
    return jax.tree.leaves(found)


def close(found, expected, tolerance):
    for got, want in zip(found, expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        want = np.asarray(want, np.float32)
        largest = np.abs(want).max(initial=1e-3, where=np.isfinite(want))
        np.testing.assert_allclose(np.asarray(got, np.float32), want, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("case", CASES)
def test_values_and_derivatives(case):
    """35 queries: three blocks of 9 and one of 8."""
    given = operands()
    found = with_derivatives(cut, *given, CASES[case])
    close(found, with_derivatives(at_once, *given, CASES[case]), 3e-3 if case == "another softmax" else 1e-5)


@pytest.mark.parametrize("count", [1, 5, 12, 35])
def test_any_number_of_blocks(count):
    given, more = operands(), CASES["causal"]
    close([cut(*given, **more, count=count)], [at_once(*given, **more)], 1e-6)


def test_gradients_of_16_bit_keys_are_summed_in_float32():
    q, k, v = operands(jnp.bfloat16)
    exact = with_derivatives(at_once, *(x.astype(jnp.float32) for x in (q, k, v)), {})[1:4]
    found = with_derivatives(lambda *given: cut(*given, count=35), q, k, v, {})[1:4]
    close([x.astype(jnp.float32) for x in found], exact, 2e-2)
    ones = [jnp.ones(x.shape, x.dtype) for x in (q, k, v)]  # 35 · 2 heads = 70, and 300 to add: bfloat16 stops at 256
    total = jax.grad(lambda v: cut(ones[0], ones[1], v, count=35).astype(jnp.float32).sum() * 300)(ones[2])
    np.testing.assert_allclose(np.asarray(total, np.float32), 300 * 70 / KEYS, rtol=1e-2)


def test_what_no_query_may_see_can_hold_anything():
    q, k, v = operands()
    mask = np.arange(KEYS) < 20
    spoiled = (q, k.at[:, :, 20:].set(np.nan), v)
    close([cut(*spoiled, mask=mask[None])], [cut(q, k, v, mask=mask[None])], 1e-6)
    assert np.isnan(cut(q.at[0, 0, 30, 0].set(np.nan), k, v)[0, 0, 30]).all()


def test_mapped():
    q, k, v = operands()
    qs = jnp.stack([q, q + 1])
    close([jax.vmap(lambda q: cut(q, k, v))(qs)], [jnp.stack([at_once(q, k, v) for q in qs])], 1e-5)


@pytest.mark.parametrize(
    ("query", "keys", "count"),
    [
        ((1, 16, 4096, 64), 4096, 64),
        ((1, 16, 1024, 64), 1024, 4),
        ((1, 16, 1024, 64), 1023, 1),
        ((8, 32, 1, 64), 10**6, 1),
    ],
)
def test_how_many_blocks(query, keys, count):
    key = jax.ShapeDtypeStruct((query[0], query[1], keys, query[3]), np.float32)
    assert blocks(jax.ShapeDtypeStruct(query, np.float32), key) == count


X = jax.ShapeDtypeStruct((1, 16, 4096, 64), jnp.bfloat16)
PACKED = jax.ShapeDtypeStruct((1, 4096, 1024), jnp.bfloat16)


def causal(q, k, v):
    return jo.attention(q, k, v, is_causal=1)


def multi_head(q, k, v):
    return jo.microsoft.multi_head_attention(q, k, v, num_heads=16, unidirectional=1)[0]


def group_query(q, k, v):
    lengths = np.full((1,), 4095, np.int32)
    return jo.microsoft.group_query_attention(q, k, v, None, None, lengths, 4096, num_heads=16, kv_num_heads=16)[0]


def gradient(attend):
    return lambda *given: jax.grad(lambda *given: attend(*given).astype(jnp.float32).sum(), argnums=(0, 1, 2))(*given)


OPERATORS = {"attention": (causal, X), "multi_head": (multi_head, PACKED), "group_query": (group_query, PACKED)}


@pytest.mark.parametrize("name", OPERATORS)
def test_memory(name):
    """All scores together would take 1,074 MB; those of 16 bits for the gradient as much again."""
    attend, x = OPERATORS[name]
    for function, most in ((attend, 110e6), (gradient(attend), 220e6)):
        assert jax.jit(function).lower(x, x, x).compile().memory_analysis().temp_size_in_bytes < most


def few_queries(q, k, v):
    return jo.microsoft.multi_head_attention(q, k, v, num_heads=16)[0]


def after_a_past(q, k, v):
    lengths = np.full((1,), 65535, np.int32)
    return jo.microsoft.group_query_attention(q, q, q, k, v, lengths, 65536, num_heads=16, kv_num_heads=16)[0]


@pytest.mark.parametrize(
    ("attend", "query", "key"),
    [
        (jo.attention, (1, 16, 512, 64), (1, 16, 65536, 64)),
        (few_queries, (1, 512, 1024), (1, 65536, 1024)),
        (after_a_past, (1, 512, 1024), (1, 16, 65024, 64)),
    ],
)
def test_memory_of_many_keys(attend, query, key):
    """All scores take 2,147 MB, and their gradient needs them twice; keys take 268 MB."""
    q, k = (jax.ShapeDtypeStruct(sizes, np.float32) for sizes in (query, key))
    compiled = jax.jit(gradient(attend)).lower(q, k, k).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 1600e6


def test_form_by_platform_and_size():
    """A pass makes loops over heads of a specialized program for a CPU. A gradient of small sizes is faster at once."""
    small = jax.ShapeDtypeStruct((1, 16, 2048, 64), jnp.bfloat16)
    assert module._select(Target("cpu"), X, X, X) is module._of_blocks
    assert module._select(Target("gpu", specialized=True), small, small, small) is module._of_blocks
    assert module._select(Target("cpu", specialized=True), X, X, X) is None
    assert module._select(Target("cpu"), small, small, small) is None
