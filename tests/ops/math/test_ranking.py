"""TopK: order, ties, signed zeros and NaN, static and compiled; long enough to take the kernel of XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxops as jo
from jaxops.errors import ShapeError

pytestmark = pytest.mark.optimized

SPECIAL = np.float32([0.0, -0.0, 1, -1, np.nan, -np.nan, np.inf, -np.inf, 2])


@pytest.mark.grid
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16, np.int32, np.uint8])
def test_static_and_compiled_agree(dtype, largest):
    rows = np.random.default_rng(0).choice(SPECIAL, (40, 300))
    rows = (rows if jnp.issubdtype(dtype, np.floating) else np.nan_to_num(rows, posinf=90, neginf=5)).astype(dtype)
    for axis in (0, 1):
        values, places = jo.top_k(rows, 17, axis=axis, largest=largest)
        got = jax.jit(lambda x, axis=axis: jo.top_k(x, 17, axis=axis, largest=largest))(rows)
        np.testing.assert_array_equal(places, got[1])
        np.testing.assert_array_equal(np.asarray(got[0]).view(np.uint8), np.ascontiguousarray(values).view(np.uint8))
        key = np.where(np.isnan(rows.astype(np.float64)), np.inf, rows.astype(np.float64))
        best = np.argsort(-key if largest else key, axis, kind="stable").take(range(17), axis)
        np.testing.assert_array_equal(places, best)


def test_zeros_keep_their_order_and_their_sign():
    values, places = jo.top_k(jnp.array([-0.0, 0.0, -1.0]), 3)
    assert places.tolist() == [0, 1, 2]
    assert np.signbit(values).tolist() == [True, False, True]


def test_gradients():
    x = np.random.default_rng(1).normal(size=(4, 9)).astype(np.float32)
    check_grads(lambda v: jo.top_k(v, 3)[0], (x,), 1)


def test_a_k_beyond_the_axis():
    with pytest.raises(ShapeError, match=r"`k` is 4, but axis 0 of \(3,\) has 3 elements"):
        jo.top_k(np.arange(3), 4)
