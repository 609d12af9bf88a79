"""Weights that a program cuts: which are, into which parts, and that each part computes what the whole does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxops.compiler.partition.fused_weights import Part, cut_weights, part_of
from jaxops.jax_internals import jaxpr_as_fun

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def as_in_numpy():
    """The functions below are short."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def drawn(*sizes, dtype=np.float32):
    return (RNG.normal(size=sizes) * 40 if dtype == np.int8 else RNG.normal(size=sizes)).astype(dtype)


def cut(fn, axes, *arguments):
    """The parts of the weights of a function, checked: it computes the same from them. axes: of its first arguments."""
    closed = jax.make_jaxpr(fn)(*arguments)
    changed, parts = cut_weights(closed, len(axes), {k: axis for k, axis in enumerate(axes) if axis is not None})
    given = []
    for k, x in enumerate(arguments):
        given += [part_of(x, axes[k], p.start, p.stop) for p in parts[k]] if k in parts else [x]
    expected = jaxpr_as_fun(closed)(*arguments)
    for y, e in zip(jaxpr_as_fun(changed)(*given), expected, strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-5, atol=1e-5)
        assert y.dtype == e.dtype
    return parts


def thirds(*heads):
    return tuple(Part(16 * k, 16 * k + 16, h) for k, h in enumerate(heads))


X, W, B = drawn(2, 5, 8), drawn(8, 48), drawn(48)


def attention(q, k, v):
    return jnp.einsum("bshd,bthd->bsthd", q, k).sum(2) + v


def in_heads(*parts):
    return attention(*(y.reshape(2, 5, 4, 4) for y in parts))


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda w, b, x: in_heads(*jnp.split(x @ w + b, 3, axis=-1)), thirds(4, 4, 4)),
        (lambda w, b, x: in_heads(*(part_of(x @ w + b, 2, s, s + 16) for s in (0, 16, 32))), thirds(4, 4, 4)),
        # Side by side on an axis of their own, as networks for images have them.
        (
            lambda w, b, x: attention(*(jnp.moveaxis((x @ w + b).reshape(2, 5, 3, 4, 4), 2, 0)[k] for k in range(3))),
            thirds(4, 4, 4),
        ),
        # Grouped attention cuts heads: 8 of queries, 2 of keys, 2 of values.
        (
            lambda w, b, x: [y * 2 for y in jnp.split((x @ w + b).reshape(2, 5, 12, 4), (8, 10), axis=2)],
            (Part(0, 32, 8), Part(32, 40, 2), Part(40, 48, 2)),
        ),
        # A gate has no heads; a bias that is spread before it is added; a product in a call.
        (
            lambda w, b, x: jax.jit(lambda y: jax.nn.silu(y[..., :24]) * y[..., 24:])(jax.jit(jnp.matmul)(x, w) + b),
            (Part(0, 24, 0), Part(24, 48, 0)),
        ),
        # One slice holds two parts.
        (
            lambda w, b, x: [y[..., :16] * y[..., 16:] for y in [(x @ w + b)[..., :32]]] + [(x @ w + b)[..., 32:]],
            thirds(0, 0, 0),
        ),
        # A slice of a part, and the part itself.
        (
            lambda w, b, x: [(y := (x @ w + b)[..., :32])[..., :32][..., :16], y.sum()],
            (Part(0, 16, 0), Part(16, 32, 0), Part(32, 48, 0)),
        ),
    ],
)
def test_parts(fn, expected):
    assert cut(fn, (1, 0), W, B, X) == {0: expected, 1: expected}


@pytest.mark.parametrize(
    "fn",
    [
        lambda w, b, x: [(x @ w + b)[..., :24], (x @ w + b)],  # an output
        lambda w, b, x: (y := x @ w + b)[..., :24] * y.max(-1, keepdims=True),
        lambda w, b, x: (x @ w + b)[..., ::2],
        lambda w, b, x: jnp.tanh(x @ w + b),  # never cut
        lambda w, b, x: (x @ w + b)[:1, :, :24],  # cut along two axes at once
        lambda w, b, x: (x @ w + b + jnp.tile(x, 6))[..., :24],  # meets what the inputs make
        lambda w, b, x: (x @ w + b).reshape(2, 5, 3, 16)[:, :, 0] * (x @ w + b)[..., :24].sum(),  # inside a unit
        lambda w, b, x: lax.scan(lambda c, t: (c, (t @ w)[..., :24]), 0, x)[1] + b[:24],
        lambda w, b, x: b[:24] + x.sum() + w.sum(),  # a vector alone
    ],
)
def test_what_stays_whole(fn):
    assert cut(fn, (1, 0), W, B, X) == {}


def test_weights_that_are_read_apart_are_cut_apart():
    def fn(w, v, x):
        return (x @ w)[..., :24], x @ v, (x @ v)[..., :24]

    assert cut(fn, (1, 1), W, drawn(8, 48), X) == {0: (Part(0, 24, 0), Part(24, 48, 0))}


def test_weights_of_integers_with_their_scales_and_constants():
    zero, packed = drawn(48, dtype=np.int8), RNG.integers(0, 256, (48, 2, 2)).astype(np.uint8)

    def quantized(w, scale, x):
        y = x @ ((w.astype(np.float32) - jnp.broadcast_to(zero, w.shape)) * scale)
        return y[..., :24] * y[..., 24:]

    halves = (Part(0, 24, 0), Part(24, 48, 0))
    assert cut(quantized, (1, 0), drawn(8, 48, dtype=np.int8), drawn(48), X) == {0: halves, 1: halves}

    def in_four_bits(w, scale, x):
        nibbles = jnp.stack([w & 15, w >> 4], axis=3).reshape(48, 2, 4).astype(np.float32)
        y = x @ (nibbles * scale[..., None]).reshape(48, 8).T
        return y[..., :24] * y[..., 24:]

    assert cut(in_four_bits, (0, 0), packed, drawn(48, 2), X) == {0: halves, 1: halves}


def test_no_slice_of_a_large_value_is_left():
    """A constant that meets features is cut before it is spread over rows."""

    def fn(w, x):
        y = x @ w + jnp.broadcast_to(np.arange(48, dtype=np.float32), (2, 5, 48))
        return y[..., :24] * y[..., 24:]

    changed, parts = cut_weights(jax.make_jaxpr(fn)(W, X), 1, {0: 1})
    assert parts
    assert {"slice", "split", "concatenate"}.isdisjoint(e.primitive.name for e in changed.jaxpr.eqns)
