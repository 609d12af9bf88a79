"""Adaptive pooling against loops in NumPy and against OpenVINO."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from openvino_peer import agree

from jaxops.errors import DTypeError, ShapeError, SizeError, StaticError
from jaxops.openvino import ops

X = np.random.default_rng(3).normal(size=(2, 3, 7, 5)).astype(np.float32)
X[0, 0, 2] = X[0, 0, 1]  # equal ones
X5 = np.random.default_rng(4).normal(size=(1, 2, 4, 5, 6)).astype(np.float32)
CASES = [(X, (3, 2)), (X, (1, 1)), (X, (7, 5)), (X, (9, 4)), (X[..., 0], (3,)), (X5, (2, 3, 4))]


def windows(x, shape):
    for place in np.ndindex(*shape):
        slices = [slice(i * d // o, -(-(i + 1) * d // o)) for i, d, o in zip(place, x.shape[2:], shape, strict=True)]
        yield (slice(None), slice(None), *place), (slice(None), slice(None), *slices), slices


@pytest.mark.parametrize(("x", "shape"), CASES, ids=lambda v: str(getattr(v, "shape", v)))
def test_pooling(x, shape):
    mean, largest, index = (np.zeros((*x.shape[:2], *shape)) for _ in range(3))
    for place, window, slices in windows(x, shape):
        part = x[window].reshape(*x.shape[:2], -1)
        mean[place], largest[place] = part.mean(-1, dtype=float), part.max(-1)
        flat = [
            np.ravel_multi_index(i, x.shape[2:]) for i in itertools.product(*(range(s.start, s.stop) for s in slices))
        ]
        index[place] = np.array(flat)[part.argmax(-1)]
    average = jax.jit(lambda x: ops.adaptive_avg_pool(x, shape))(x)
    np.testing.assert_allclose(average, mean, atol=1e-6)
    agree(8, "AdaptiveAvgPool", [x, np.array(shape)], {}, average, constants=(1,))
    pair = jax.jit(lambda x: ops.adaptive_max_pool(x, shape, index_element_type="int32"))(x)
    np.testing.assert_array_equal(pair[0], largest)
    np.testing.assert_array_equal(pair[1], index)
    agree(8, "AdaptiveMaxPool", [x, np.array(shape)], {"index_element_type": "i32"}, pair, constants=(1,))


def test_gradients_and_symbolic_sizes():
    x = jnp.asarray(X)
    check_grads(lambda x: ops.adaptive_avg_pool(x, (3, 2)), (x,), 1, ["rev"], 1e-2, 1e-2)
    check_grads(lambda x: ops.adaptive_max_pool(x, (3, 2))[0], (x[1:],), 1, ["rev"], 1e-2, 1e-2, 1e-3)
    specs = symbolic_args_specs((X,), ("n, c, h, w",))
    y = export(jax.jit(lambda x: ops.adaptive_avg_pool(x, (3, 2))))(*specs).call(X)
    np.testing.assert_allclose(y, ops.adaptive_avg_pool(X, (3, 2)), atol=1e-6)
    with pytest.raises(SizeError, match=r"(?s)sizes of `data` \(n, c, h, w\) and .* must be numbers.*{'h': 128}"):
        export(jax.jit(lambda x: ops.adaptive_max_pool(x, (3, 2))))(*specs)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, r"`output_shape` \(3,\) must have one number for each", lambda: ops.adaptive_avg_pool(X, (3,))),
        (ShapeError, r"`output_shape` \(3, -1\) must not be negative", lambda: ops.adaptive_max_pool(X, (3, -1))),
        (DTypeError, "`data` must be floating-point", lambda: ops.adaptive_avg_pool(X.astype(int), (3, 2))),
        (
            DTypeError,
            "`index_element_type` is int8",
            lambda: ops.adaptive_max_pool(X, (3, 2), index_element_type="int8"),
        ),
        (StaticError, "`output_shape` must be known", lambda: jax.jit(ops.adaptive_avg_pool)(X, np.array([3, 2]))),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
