"""NaN in compiled maxima and minima: a NaN wins, wherever it is and however many elements there are."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from programs import specialized

import jaxops as jo
import jaxops.microsoft
from jaxops.compiler.xla_options import program_options
from jaxops.kernels.target import this_machine
from jaxops.ops.ml.scores import transformed
from jaxops.ops.ml.support_vectors import _coupled, _greatest

pytestmark = pytest.mark.optimized

LAYOUTS = [
    ((64, 10), (1,)),
    ((64, 1000), (1,)),
    ((3, 5000), (1,)),
    ((1000, 64), (0,)),
    ((3, 1000, 4), (1,)),
    ((1, 8, 56, 56), (2, 3)),
    ((8, 16, 16, 8), (1, 2)),
    ((5000,), (0,)),
    ((100, 70), (0, 1)),
]
DTYPES = [np.float32, np.float16, jnp.bfloat16, np.float64]
KINDS = {"max": (jo.reduce_max, np.max), "min": (jo.reduce_min, np.min)}


def own(fn):
    """A function as a specialized program."""
    return jax.jit(specialized(fn), compiler_options=program_options(this_machine()))


PROGRAMS = pytest.mark.parametrize("jit", [jax.jit, own])


def _data(shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def _same(found, expected):
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(expected, np.float64))


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(("shape", "axes"), LAYOUTS, ids=str)
@PROGRAMS
def test_reductions(jit, kind, dtype, shape, axes):
    ours, theirs = KINDS[kind]
    with jax.enable_x64(dtype == np.float64):
        run = jit(lambda x: ours(x, axes))
        clean = _data(shape, dtype)
        flat = clean.size
        for place in (None, 0, 1, flat // 2, flat - 1):
            for nan in (np.nan, -np.nan):
                x = clean.copy()
                x.flat[[3, 4]] = np.inf, -np.inf
                if place is not None:
                    x.flat[place] = nan
                expected = theirs(x.astype(np.float64), axes, keepdims=True)  # NumPy warns of NaNs in narrow types
                _same(run(x), expected)
                _same(ours(jnp.asarray(x), axes), expected)
        for fill in (np.nan, np.inf, -np.inf, jnp.finfo(dtype).max):
            x = np.full(shape, fill, dtype)
            found = run(x)
            _same(found, np.broadcast_to(x.flat[0], found.shape))


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@PROGRAMS
def test_pools(jit, dtype):
    with jax.enable_x64(dtype == np.float64):
        x = _data((1, 4, 48, 48), dtype)
        x[0, 1, 7, 9], x[0, 2, 47, 47], x[0, 3, 5, 5], x[0, 3, 5, 6] = np.nan, -np.nan, np.inf, -np.inf
        wide = x.astype(np.float64)
        _same(jit(jo.global_max_pool)(x), np.max(wide, (2, 3), keepdims=True))
        # Slices; windows that overlap, touch, or are all there is.
        for size, step in ((2, 2), (3, 1), (9, 1), (9, 4), (6, 6), (8, 12), (48, 1), (48, 48)):
            windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))[:, :, ::step, ::step]
            attributes = {"kernel_shape": (size, size), "strides": (step, step)}
            found = jit(lambda x, attributes=attributes: jo.max_pool(x, **attributes))(x)
            _same(found, np.max(windows, (4, 5)))


@pytest.mark.parametrize("shape", [(64, 10), (64, 1000), (3, 5000)], ids=str)
@PROGRAMS
def test_other_operators(jit, shape):
    x = _data(shape)
    x[0, 5], x[1, -2] = np.nan, np.nan  # before and behind the largest number
    x[2, 3], x[2, 4] = np.inf, -np.inf
    place = np.argmax(x, -1)
    _same(jit(jo.hardmax)(x), np.arange(shape[1]) == place[:, None])
    _same(jit(lambda x: jo.arg_max(x, axis=1, keepdims=0))(x), place)
    _same(jit(lambda x: jo.arg_min(x, axis=1, keepdims=0))(x), np.argmin(x, -1))
    _same(jit(lambda x: jo.clip(x, -1.0, 1.0))(x), np.clip(x, -1, 1))
    _same(jit(lambda x: jo.max([x, x[:, ::-1]]))(x), np.maximum(x, x[:, ::-1]))
    _same(jit(lambda x: jo.min([x, x[:, ::-1]]))(x), np.minimum(x, x[:, ::-1]))
    values, indices = jit(lambda x: jo.top_k(x, 2))(x)
    _same(indices[:2, 0], place[:2])
    assert np.isnan(values[:2, 0]).all()
    _, scale, _ = jit(jo.dynamic_quantize_linear)(x)
    assert np.isnan(scale)
    for op in (jo.softmax, jo.log_softmax, lambda x: jo.reduce_log_sum_exp(x, (1,)), lambda x: jo.cumsum(x, 1)):
        found = np.isnan(jit(op)(x))
        assert found[:2, -1].all()
        assert not found[3:].any()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(
    "bounds", [(-1, 1), (1, -1), (np.nan, 1), (-1, np.nan), (-np.inf, np.inf), (None, -1), (1, None)]
)
@PROGRAMS
def test_clip_is_the_minimum_of_a_maximum(jit, bounds, dtype):
    with jax.enable_x64(dtype == np.float64):
        x = _data((5000,), dtype)
        x[[0, 77, 4999]], x[[1, 78]], x[[2, 79]] = np.nan, np.inf, -np.inf
        low, high = (None if v is None else np.asarray(v, dtype) for v in bounds)
        given = [None if v is None else jnp.asarray(v) for v in (low, high)]
        largest = np.asarray(jnp.finfo(dtype).max, dtype)  # in place of a bound that is left out
        with np.errstate(invalid="ignore"):
            expected = np.minimum(np.maximum(x, -largest if low is None else low), largest if high is None else high)
        _same(jit(lambda x: jo.clip(x, low, high))(jnp.asarray(x)), expected)
        _same(jit(jo.clip)(jnp.asarray(x), *given), expected)
        _same(jo.clip(jnp.asarray(x), *given), expected)
        _same(jo.clip(x, low, high), expected)


@PROGRAMS
def test_operators_of_other_domains(jit):
    """A maximum that loses NaNs would hide them here, or one that keeps them would spread them."""
    letters = np.ones((4, 2000), np.int32)
    letters[1, 700] = 2
    table = np.zeros((3, 8), np.float32)
    table[2] = np.nan
    filters, bias = np.ones((16, 1, 3, 8), np.float32), np.zeros(16, np.float32)
    found = jit(jo.microsoft.word_conv_embedding)(letters, filters, bias, table)
    assert np.isnan(found).any(1).tolist() == [False, True, False, False]
    scores = np.ones((3, 5000), np.float32)
    scores[1, 700] = np.nan
    for how in ("SOFTMAX", "SOFTMAX_ZERO"):
        found = np.isnan(jit(lambda x, how=how: transformed(x, how))(scores))
        assert found.all(1).tolist() == found.any(1).tolist() == [False, True, False]
    votes = np.ones((3000, 2), np.float32)
    votes[7, 0] = np.nan
    assert np.flatnonzero(jit(lambda x: _greatest(x, True))(votes) == 0).tolist() == [7]
    pairs = np.zeros((3, 1225), np.float32)  # of 50 classes
    pairs[1] = np.nan
    first, second = np.triu_indices(50, 1)
    found = np.isnan(jit(lambda x: _coupled(x, np.float32([1]), np.float32([0]), 50, first, second))(pairs))
    assert found.all(1).tolist() == found.any(1).tolist() == [False, True, False]


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 6), (8, 1000)], ids=str)
def test_derivatives(kind, shape):
    ours, plain = KINDS[kind][0], getattr(lax, f"reduce_{kind}")
    x = np.round(_data(shape))  # equal elements share the gradient
    t, w = jnp.asarray(_data(shape)), jnp.asarray(_data((shape[0], 1)))

    def both(of):
        found = [of(f) for f in (lambda x: ours(x, (-1,)), lambda x: plain(x, (x.ndim - 1,))[..., None])]
        chex.assert_trees_all_close(*found, rtol=1e-6)

    both(lambda f: jax.jit(lambda x: jax.jvp(f, (x,), (t,)))(x))
    both(lambda f: jax.jit(jax.grad(lambda x: jnp.sum(f(x) * w)))(x))
    both(lambda f: jax.vmap(jax.grad(lambda x: jnp.sum(f(x) ** 2)))(x))
    both(lambda f: jax.jvp(jax.grad(lambda x: jnp.sum(f(x) ** 2)), (jnp.asarray(x),), (t,))[1])


def test_derivative_of_windows():
    x = jnp.asarray(_data((1, 2, 30, 30)))
    grad = jax.jit(jax.grad(lambda x: jnp.sum(jo.max_pool(x, kernel_shape=(6, 6), strides=(6, 6)) ** 2)))(x)
    blocks = np.asarray(x).reshape(1, 2, 5, 6, 5, 6)
    top = blocks.max((3, 5), keepdims=True)
    np.testing.assert_allclose(grad, np.where(blocks == top, 2 * blocks, 0).reshape(x.shape))


def test_vmap_and_symbolic_sizes():
    x = _data((5, 64, 100))
    x[1, 3, 7] = np.nan
    _same(jax.jit(jax.vmap(lambda x: jo.reduce_max(x, (1,))))(x), np.max(x, 2, keepdims=True))
    spec = jax.ShapeDtypeStruct(export.symbolic_shape("a, b, c"), np.float32)
    for op, expected in ((jo.reduce_min, np.min(x, 2, keepdims=True)), (jo.softmax, None)):
        called = op if expected is None else (lambda x, op=op: op(x, (2,)))
        found = export.export(jax.jit(called))(spec).call(x)
        _same(
            found if expected is not None else np.isnan(found).any(-1),
            np.isnan(x).any(-1) if expected is None else expected,
        )


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_], ids=lambda d: np.dtype(d).name)
def test_integers_and_booleans_cost_nothing(dtype):
    x = jnp.zeros((64, 1000), dtype)
    text = str(jax.make_jaxpr(lambda x: (jo.reduce_max(x, (1,)), jo.reduce_min(x, (1,))))(x))
    assert "select" not in text
    assert "sum" not in text


def test_no_elements():
    assert jo.reduce_max(jnp.zeros((2, 0)), (1,), keepdims=0).tolist() == [-np.inf] * 2
    assert jo.reduce_min(jnp.zeros((2, 0)), (1,), keepdims=0).tolist() == [np.inf] * 2
