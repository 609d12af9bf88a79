"""RotaryEmbedding against complex products in NumPy, and against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from peer import runtime

import jaxops as jo
from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError, SignatureError

RNG = np.random.default_rng(3)
B, N, S, H = 2, 3, 4, 8
X = RNG.normal(size=(B, N, S, H)).astype(np.float32)
POSITIONS = np.array([[0, 1, 2, 3], [9, 4, 4, 0]])


def tables(*sizes):
    angles = RNG.uniform(-3, 3, sizes)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def formula(x, cos, sin, positions=None, interleaved=0):
    """Each pair as a complex number, times that of its angle."""
    cos, sin = (c if positions is None else c[positions] for c in (cos, sin))
    turn = (cos.astype(np.float64) + 1j * sin.astype(np.float64))[:, None]
    half = cos.shape[-1]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    found = x.astype(np.float64)
    product = (found[..., first] + 1j * found[..., second]) * turn
    found[..., first], found[..., second] = product.real, product.imag
    return found


def close(found, expected, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=tolerance, atol=tolerance)


def packed(x):
    return np.asarray(x).swapaxes(1, 2).reshape(B, S, -1)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("count", [0, 4, 8])
@pytest.mark.parametrize("chosen", [True, False])
def test_values(chosen, count, interleaved):
    half = (count or H) // 2
    more = (*tables(10, half), POSITIONS) if chosen else tables(B, S, half)
    given = {"rotary_embedding_dim": count, "interleaved": interleaved}
    expected = formula(X, *more, interleaved=interleaved)
    (found,) = at_opset("RotaryEmbedding", 23, X, *more, **given)
    close(found, expected)
    # The 4-D form of onnxruntime 1.31 wants the number of heads for a partial rotation.
    close(runtime("RotaryEmbedding", (X, *more), 23, num_heads=N, **given)[0], expected)
    close(jo.rotary_embedding(packed(X), *more, num_heads=N, **given), packed(expected))
    close(runtime("RotaryEmbedding", (packed(X), *more), 23, num_heads=N, **given)[0], packed(expected))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_element_types(dtype, x64):
    given = [v.astype(dtype) for v in (X, *tables(B, S, H // 2))]
    found = jo.rotary_embedding(*given)
    assert found.dtype == dtype
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}[np.dtype(dtype).name]
    close(found, formula(*given), tolerance)


@pytest.mark.optimized
def test_thousands_of_elements_traced_positions():
    x = RNG.normal(size=(2, 4, 50, 32)).astype(np.float32)
    cos, sin, positions = *tables(64, 16), RNG.integers(0, 64, (2, 50))
    close(jax.jit(jo.rotary_embedding)(x, cos, sin, positions), formula(x, cos, sin, positions))


def test_transformations():
    cos, sin = tables(B, S, 2)
    run = lambda x, cos, sin: jo.rotary_embedding(x, cos, sin, rotary_embedding_dim=4, interleaved=1)  # noqa: E731
    check_grads(jax.jit(run), (X, cos, sin), 1, modes=["rev"], rtol=2e-2, atol=2e-2)
    close(jax.vmap(run)(X[None], cos[None], sin[None])[0], formula(X, cos, sin, interleaved=1))
    given = (packed(X), *tables(10, H // 2), jnp.asarray(POSITIONS))
    named = jax.jit(lambda *a: jo.rotary_embedding(*a, num_heads=N))
    exported = export(named)(*symbolic_args_specs(given, ("b,s,24", "10,4", "10,4", "b,s")))
    close(exported.call(*given), packed(formula(X, *given[1:])))


CACHE = np.ones((10, H // 2), np.float32)
ERRORS = [
    (lambda: jo.rotary_embedding(packed(X), CACHE, CACHE, POSITIONS), SignatureError, "so `num_heads` must be given"),
    (
        lambda: jo.rotary_embedding(X[..., :7], CACHE, CACHE),
        ArgumentError,
        "is 0, which rotates 7 elements of each head; their number must be even",
    ),
    (
        lambda: jo.rotary_embedding(X, CACHE, CACHE, rotary_embedding_dim=10),
        ArgumentError,
        "`rotary_embedding_dim` is 10",
    ),
    (lambda: jo.rotary_embedding(X, CACHE, CACHE), ShapeError, r"`cos_cache` .* must be \(2, 4, 4\) without `position"),
    (
        lambda: jo.rotary_embedding(X, CACHE, CACHE[:, 1:], POSITIONS),
        ShapeError,
        r"`sin_cache` of \(10, 3\) must be \(positions, 4\) with `position_ids`, as 8 elements",
    ),
    (lambda: jo.rotary_embedding(X, CACHE, CACHE, POSITIONS[:1]), ShapeError, r"`position_ids` .* must be \(2, 4\)"),
    (lambda: jo.rotary_embedding(X, CACHE, CACHE, POSITIONS + 1), BoundsError, "10"),
    (lambda: jo.rotary_embedding(X, CACHE, CACHE.astype(np.float16), POSITIONS), DTypeError, "sin_cache float16"),
]


@pytest.mark.parametrize(("call", "error", "match"), ERRORS)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_wrong_formula_is_caught():
    cos, sin = tables(B, S, H // 2)
    with pytest.raises(AssertionError):
        close(jo.rotary_embedding(X, cos, sin), formula(X, cos, sin, interleaved=1))
