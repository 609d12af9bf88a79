"""Transposes that are held back: the same numbers as without, and fewer transposes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import TARGET, inlined

from jaxops.compiler.pipeline import function_of, lowering

X = np.random.default_rng(0).standard_normal((2, 3, 8, 10)).astype(np.float32)


def last(x):
    return lax.transpose(x, (0, 2, 3, 1))


def first(x):
    return lax.transpose(x, (0, 3, 1, 2))


def doubled(x):
    """Something that must see channels last: it runs along their axis."""
    return first(lax.cumsum(last(x), 3))


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 2), (1, 1, 2, 1), ((0, 0), (0, 0), (1, 0), (0, 1)))


def convolved(x):
    w = jnp.ones((4, x.shape[1], 3, 3)) * jnp.arange(3.0)[None, None, None]
    return lax.conv_general_dilated(x, w, (1, 2), ((1, 1), (0, 2)))


def scaled(x):
    scale = jnp.arange(1.0, 1 + x.shape[1])
    return x * lax.broadcast_in_dim(scale, x.shape, (1,)) + lax.broadcast_in_dim(
        scale[None, :, None, None], x.shape, (0, 1, 2, 3)
    )


BODIES = {
    "elementwise": lambda x: lax.tanh(x) * 2 - lax.max(x, lax.neg(x)),
    "plain partner": lambda x: x + X[:, :1] * 0 + jnp.sin(jnp.asarray(X)),
    "bits": lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, np.int32) ^ 1, np.float32),
    "bits of other sizes": lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, np.int8), np.float32),
    "pad": lambda x: lax.pad(x, 0.5, ((0, 0, 0), (0, 1, 0), (1, -1, 0), (2, 0, 1))),
    "slice": lambda x: lax.slice(x, (0, 1, 2, 0), (2, 3, 8, 9), (1, 1, 2, 3)),
    "concatenate": lambda x: lax.concatenate([x, lax.exp(x), jnp.asarray(X)], 1),
    "pool": pooled,
    "convolution": convolved,
    "per channel": scaled,
    "reduce spatial": lambda x: jnp.sum(x, (2, 3)),
    "reduce channels": lambda x: jnp.max(x, 1),
    "select": lambda x: lax.select(x > 0, x, lax.full_like(x, 2.0)),
    "clamp": lambda x: lax.clamp(-0.5, x, 0.5),
    "barrier": lambda x: (lambda y, z: y + z[0])(*lax.optimization_barrier((x, jnp.arange(4.0)))),
    "no rule": lambda x: lax.rev(x, (1, 3)),
}


def both(fn):
    """(what JAX computes, what the walk computes, the transposes of the two programs)."""
    program = inlined(fn, X)
    assert program.inputs == (0,)

    def walk(x):
        return function_of(program, lowering(TARGET))([x])[0]

    counts = [str(jax.make_jaxpr(f)(X)).count(" transpose[") for f in (fn, walk)]
    return jax.jit(fn)(X), jax.jit(walk)(X), counts


@pytest.mark.parametrize("name", BODIES)
def test_an_operation_between_two_that_need_channels_last(name):
    def fn(x):
        y = BODIES[name](doubled(x))
        return doubled(y) if y.ndim == 4 else y

    expected, found, (before, after) = both(fn)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert expected.shape == found.shape
    if name not in ("no rule", "bits of other sizes", "plain partner", "concatenate"):
        assert after < before


def test_transposes_that_meet_their_inverse_vanish():
    expected, found, (before, after) = both(lambda x: doubled(scaled(pooled(doubled(x)))))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (before, after) == (4, 3)  # the first, the last, and (1, C, 1, 1) as (1, 1, 1, C)


def test_other_transposes_stay_where_they_are():
    _, _, (before, after) = both(lambda x: lax.exp(lax.transpose(x, (0, 1, 3, 2))))
    assert before == after == 1


@pytest.mark.parametrize(("batch", "counts"), [(1, (3, 1)), (12, (3, 3))])
def test_channels_of_a_batch_of_one_move_and_keys_of_many_heads_stay(batch, counts):
    x = np.resize(X, (batch, 8, 10))

    def turned(x):
        return lax.transpose(x, (0, 2, 1))

    def fn(x):
        return turned(lax.exp(turned(lax.cumsum(turned(x), 2))))

    def walk(x):
        return function_of(inlined(fn, x), lowering(TARGET))([x])[0]

    assert tuple(str(jax.make_jaxpr(f)(x)).count(" transpose[") for f in (fn, walk)) == counts
    np.testing.assert_array_equal(jax.jit(walk)(x), jax.jit(fn)(x))


def test_an_output_is_transposed_after_all():
    expected, found, _ = both(lambda x: first(lax.exp(x)))
    assert found.shape == expected.shape == (2, 10, 3, 8)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.optimized
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="XLA:CPU compiles equal fusions once, and each update alone")
@pytest.mark.parametrize(("given", "read"), [(lambda x: x, lambda x: x), (last, first)], ids=["as they are", "moved"])
def test_updates_are_fusions(given, read):
    parts, starts = [given(1 - X[:, :1]), given(2 - X[:, :1])], [jnp.int32(2), jnp.int32(-4)]

    def write(x, parts, starts):
        for part, start in zip(map(lax.optimization_barrier, parts), starts, strict=True):
            x = lax.dynamic_update_slice_p.bind(x, read(part), 0, start, 0, 0)
        return x

    program = inlined(write, X, parts, starts)

    leaves = X, *parts, *starts
    compiled = jax.jit(lambda *leaves: function_of(program, lowering(TARGET))(leaves)[0]).lower(*leaves).compile()
    entry = compiled.as_text().split("ENTRY")[1]
    assert " fusion(" in entry
    assert " dynamic-update-slice(" not in entry
    np.testing.assert_array_equal(compiled(*leaves), np.concatenate([2 - X[:, :1], X[:, 1:2], 1 - X[:, :1]], 1))
