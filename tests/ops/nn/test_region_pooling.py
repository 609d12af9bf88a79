"""Pooled regions against a loop over bins in NumPy, and against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from peer import runtime

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(4)
X = RNG.normal(size=(2, 3, 9, 8)).astype(np.float32)
ROIS = np.float32(
    [
        [0, 0, 0, 7, 8],
        [1, 1, 2, 5, 3],
        [0, 6, 6, 2, 2],  # ends before it begins: one element
        [1, -5, -5, 3, 20],
        [0, 30, 30, 40, 40],  # outside
        [1, 2.5, 3.5, 4.5, 6.5],
        [0, -2.5, -0.5, 3.5, 0.5],
    ]
)


def formula(x, rois, pooled_shape, spatial_scale=1.0):
    height, width = pooled_shape
    y = np.zeros((len(rois), x.shape[1], height, width))
    half_away = lambda v: int(np.sign(v) * np.floor(abs(v) + np.float32(0.5)))  # noqa: E731
    for r, (image, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (half_away(np.float32(c) * np.float32(spatial_scale)) for c in corners)
        for i, j in np.ndindex(height, width):
            spans = []
            for first, last, k, count, size in ((y1, y2, i, height, x.shape[2]), (x1, x2, j, width, x.shape[3])):
                step = np.float32(max(last - first + 1, 1)) / np.float32(count)
                low, high = np.floor(k * step) + first, np.ceil((k + 1) * step) + first
                spans.append(slice(int(np.clip(low, 0, size)), int(np.clip(high, 0, size))))
            window = x[(int(image), slice(None), *spans)]
            y[r, :, i, j] = window.max((1, 2)) if window.size else 0
    return y


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (7, 7)])
@pytest.mark.parametrize("scale", [1.0, 0.5, 0.7])
def test_formula(shape, scale):
    attributes = {"pooled_shape": shape, "spatial_scale": scale}
    expected = formula(X, ROIS, **attributes)
    assert jo.max_roi_pool(X, ROIS, **attributes).tolist() == expected.tolist()
    assert runtime("MaxRoiPool", [X, ROIS], 1, **attributes)[0].tolist() == expected.tolist()
    for opset in (1, 22):
        assert at_opset("MaxRoiPool", opset, X, ROIS, **attributes)[0].tolist() == expected.tolist()


@pytest.mark.optimized
def test_large_and_compiled():
    x = RNG.normal(size=(2, 4, 40, 50)).astype(np.float32)
    corners = RNG.uniform(-10, 500, (30, 2, 2))
    rois = np.concatenate([RNG.integers(0, 2, (30, 1)), np.sort(corners, 1).reshape(30, 4)], 1).astype(np.float32)
    attributes = {"pooled_shape": (7, 6), "spatial_scale": 1 / 16}
    found = jax.jit(lambda *a: jo.max_roi_pool(*a, **attributes))(x, rois)
    assert found.tolist() == runtime("MaxRoiPool", [x, rois], 1, **attributes)[0].tolist()


def test_nan_and_an_image_that_does_not_exist():
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 1, 1] = np.nan
    rois = np.float32([[0, 0, 0, 3, 3], [1, 0, 0, 1, 1], [-1, 0, 0, 0, 0]])
    found = jo.max_roi_pool(x, rois, pooled_shape=(2, 1))
    assert np.isnan(found).reshape(3, 2).tolist() == [[True, False], [True, True], [True, True]]
    assert jo.max_roi_pool(x, rois[:0], pooled_shape=(2, 1)).shape == (0, 1, 2, 1)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_narrow_types(dtype):
    found = jo.max_roi_pool(X.astype(dtype), ROIS.astype(dtype), pooled_shape=(2, 3))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), formula(X.astype(dtype).astype(np.float32), ROIS, (2, 3)))


def test_gradient_vmap_and_symbolic_sizes():
    fn = jax.jit(lambda x, r: jo.max_roi_pool(x, r, pooled_shape=(2, 2)))
    check_grads(lambda x: fn(x, ROIS), (X,), 1, ["fwd", "rev"], 1e-2, 1e-2, 1e-3)
    both = jax.vmap(fn)(np.stack([X, -X]), np.stack([ROIS, ROIS]))
    assert both[1].tolist() == fn(-X, ROIS).tolist()
    specs = symbolic_args_specs((jnp.asarray(X), jnp.asarray(ROIS)), ("n, c, h, w", "r, 5"))
    assert export(fn)(*specs).call(X, ROIS).tolist() == fn(X, ROIS).tolist()


ERRORS = [
    (lambda: jo.max_roi_pool(X[0], ROIS, pooled_shape=(1, 1)), ShapeError, r"`x` of \(3, 9, 8\) must be \(N, C, H"),
    (lambda: jo.max_roi_pool(X, ROIS[:, 1:], pooled_shape=(1, 1)), ShapeError, r"`rois` of \(7, 4\) \(R, 5\)"),
    (lambda: jo.max_roi_pool(X, ROIS, pooled_shape=(1, 0)), ArgumentError, r"`pooled_shape` \(1, 0\) must be two"),
    (lambda: jo.max_roi_pool(X, ROIS, pooled_shape=(1,)), ArgumentError, r"`pooled_shape` \(1,\) must be two"),
    (lambda: jo.max_roi_pool(X, ROIS.astype(np.float16), pooled_shape=(1, 1)), DTypeError, "rois float16"),
    (lambda: jo.max_roi_pool(X > 0, ROIS > 0, pooled_shape=(1, 1)), DTypeError, "`x` must be floating-point"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
