"""NaN, infinities and negative zeros in compiled programs, as NumPy has them, at every size and along every axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import jaxops as jo

pytestmark = pytest.mark.optimized

# One element; less than a vector, and not a multiple of one; many. Axes that are first, last, and in the middle.
F32, BF16 = np.dtype(np.float32), np.dtype(jnp.bfloat16)
LAYOUTS = [((1,), 0, F32), ((17, 3), 0, F32), ((2, 4099, 2), 1, F32), ((3, 1000), 1, BF16), ((65536,), 0, F32)]
CONTENT = {
    "NaN first": {0: -np.nan},
    "NaN last": {-1: np.nan},
    "NaN beside infinity": {0: np.inf, -1: np.nan},
    "infinities": {0: np.inf, -1: -np.inf},
    "an infinity": {-1: np.inf},
}
FILLS = {"all -inf": -np.inf, "all inf": np.inf, "all NaN": np.nan, "all -0": -0.0}
EXACT = {
    "reduce_max": (lambda x, a: jo.reduce_max(x, (a,)), lambda x, a: np.max(x, a, keepdims=True)),
    "reduce_min": (lambda x, a: jo.reduce_min(x, (a,)), lambda x, a: np.min(x, a, keepdims=True)),
    "arg_max": (lambda x, a: jo.arg_max(x, axis=a), lambda x, a: np.argmax(x, a, keepdims=True)),
    "arg_min": (lambda x, a: jo.arg_min(x, axis=a), lambda x, a: np.argmin(x, a, keepdims=True)),
    "max": (lambda x, a: jo.max([x, jnp.flip(x, a)]), lambda x, a: np.maximum(x, np.flip(x, a))),
    "min": (lambda x, a: jo.min([x, jnp.flip(x, a)]), lambda x, a: np.minimum(x, np.flip(x, a))),
    "clip": (lambda x, a: jo.clip(x, -1.0, 1.0), lambda x, a: np.clip(x, -1, 1)),
    "hardmax": (lambda x, a: jo.hardmax(x, axis=a), lambda x, a: _first(x, a)),
    "max_pool": (lambda x, a: _pool(x, a), lambda x, a: _windows(x, a)),
}
CLOSE = {
    "softmax": (lambda x, a: jo.softmax(x, axis=a), lambda x, a: special.softmax(x, a)),
    "reduce_sum": (lambda x, a: jo.reduce_sum(x, (a,)), lambda x, a: np.sum(x, a, keepdims=True)),
    "reduce_l1": (lambda x, a: jo.reduce_l1(x, (a,)), lambda x, a: np.sum(np.abs(x), a, keepdims=True)),
    "reduce_l2": (lambda x, a: jo.reduce_l2(x, (a,)), lambda x, a: np.sqrt(np.sum(x * x, a, keepdims=True))),
    "reduce_log_sum_exp": (
        lambda x, a: jo.reduce_log_sum_exp(x, (a,)),
        lambda x, a: special.logsumexp(x, a, keepdims=True),
    ),
    "cumsum": (lambda x, a: jo.cumsum(x, a), lambda x, a: np.cumsum(x, a)),
}


def _first(x, axis):
    places = np.argmax(x, axis, keepdims=True)
    return np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.ndim)]) == places


def _pool(x, axis):
    return jo.max_pool(jnp.moveaxis(x, axis, -1).reshape(1, -1, x.shape[axis]), kernel_shape=(3,), pads=(1, 1))


def _windows(x, axis):
    rows = np.moveaxis(x, axis, -1).reshape(1, -1, x.shape[axis])
    padded = np.pad(rows, [(0, 0), (0, 0), (1, 1)], constant_values=-np.inf)
    return np.max(np.lib.stride_tricks.sliding_window_view(padded, 3, 2), -1)


def _inputs(shape, dtype):
    clean = np.random.default_rng(0).normal(size=shape)
    for name, places in CONTENT.items():
        x = clean.copy()
        for place, value in places.items():
            x.flat[place] = value
        yield name, x.astype(dtype)
    for name, value in FILLS.items():
        yield name, np.full(shape, value, dtype)


@pytest.mark.grid
@pytest.mark.parametrize(("shape", "axis", "dtype"), LAYOUTS, ids=str)
def test_as_numpy(shape, axis, dtype):
    operators = EXACT | CLOSE
    run = jax.jit(lambda x: {name: ours(x, axis) for name, (ours, _) in operators.items()})
    for content, x in _inputs(shape, dtype):
        found = run(x)
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
            for name, (_, theirs) in operators.items():
                got, expected = np.asarray(found[name], np.float64), np.asarray(theirs(wide, axis), np.float64)
                if name in CLOSE:
                    rough = 1 if dtype == F32 else 100
                    np.testing.assert_allclose(
                        got, expected, 2e-4 * rough, 2e-3 * rough, err_msg=f"{name}, {content}", strict=True
                    )
                    continue
                np.testing.assert_array_equal(got, expected, err_msg=f"{name}, {content}", strict=True)
                if content == "all -0" and name != "hardmax":
                    assert np.array_equal(np.signbit(got), np.signbit(expected)), name
