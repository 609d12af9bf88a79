"""RoiAlign against loops in NumPy and against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from onnx import helper

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(8)
X = RNG.normal(size=(2, 3, 9, 8)).astype(np.float32)
CORNERS = RNG.uniform(-2, 9, (5, 2)).astype(np.float32)
ROIS = np.concatenate([CORNERS, CORNERS + RNG.uniform(0.2, 9, (5, 2))], 1).astype(np.float32)
BATCH = np.array([0, 1, 1, 0, 1])


def formula(x, rois, batch, half_pixel=True, mode="avg", height=2, width=3, samples=0, scale=1.0):
    out = np.zeros((len(rois), x.shape[1], height, width))
    for r, c, h, w in np.ndindex(*out.shape):
        x1, y1, x2, y2 = rois[r].astype(np.float64) * scale - (0.5 if half_pixel else 0)
        extent = [y2 - y1, x2 - x1] if half_pixel else [max(y2 - y1, 1), max(x2 - x1, 1)]
        size = [extent[0] / height, extent[1] / width]
        n = [samples or max(int(np.ceil(s)), 0) for s in size]
        found = []
        for i, j in np.ndindex(*n):
            at = [y1 + (h + (i + 0.5) / n[0]) * size[0], x1 + (w + (j + 0.5) / n[1]) * size[1]]
            terms = [0.0]
            if all(-1 <= a <= d for a, d in zip(at, x.shape[2:], strict=True)):
                y, z = (min(max(a, 0), d - 1) for a, d in zip(at, x.shape[2:], strict=True))
                terms = [
                    max(0, 1 - abs(y - p)) * max(0, 1 - abs(z - q)) * x[batch[r], c, min(p, 8), min(q, 7)]
                    for p in (int(y), int(y) + 1)
                    for q in (int(z), int(z) + 1)
                ]
            found.append(max(terms) if mode == "max" else sum(terms))
        out[r, c, h, w] = (max(found) if mode == "max" else np.mean(found)) if found else 0
    return out


def runtime(inputs, opset, **attributes):
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip("abc", inputs, strict=True)
    ]
    node = helper.make_node("RoiAlign", list("abc"), ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, dict(zip("abc", inputs, strict=True)))[0]


@pytest.mark.grid
@pytest.mark.parametrize("samples", [0, 1, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_roi_align(coordinates, mode, samples):
    attributes = {"mode": mode, "output_height": 2, "output_width": 3, "sampling_ratio": samples, "spatial_scale": 0.9}
    newer = {**attributes, "coordinate_transformation_mode": coordinates}
    expected = formula(X, ROIS, BATCH, coordinates == "half_pixel", mode, 2, 3, samples, 0.9)
    found = jax.jit(lambda *a: jo.roi_align(*a, **newer))(X, ROIS, BATCH)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(runtime([X, ROIS, BATCH], 16, **newer), expected, atol=2e-5)
    np.testing.assert_allclose(at_opset("RoiAlign", 16, X, ROIS, BATCH, **newer)[0], expected, atol=2e-5)
    if coordinates == "output_half_pixel":
        np.testing.assert_allclose(at_opset("RoiAlign", 10, X, ROIS, BATCH, **attributes)[0], expected, atol=2e-5)
        np.testing.assert_allclose(runtime([X, ROIS, BATCH], 10, **attributes), expected, atol=2e-5)


def test_types_gradients_and_symbolic_sizes():
    half = jo.roi_align(X.astype(np.float16), ROIS.astype(np.float16), BATCH, output_height=2, output_width=3)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, formula(X, ROIS, BATCH), atol=2e-2)
    fn = jax.jit(lambda x, r, b: jo.roi_align(x, r, b, output_height=2, output_width=3, sampling_ratio=2))
    check_grads(lambda x: fn(x, ROIS, BATCH), (X,), 1, ["fwd", "rev"], 1e-2, 1e-2, 0.1)
    specs = symbolic_args_specs((X, ROIS, jnp.asarray(BATCH)), ("n, c, h, w", "r, 4", "r"))
    np.testing.assert_allclose(export(fn)(*specs).call(X, ROIS, jnp.asarray(BATCH)), fn(X, ROIS, BATCH), atol=1e-6)
    assert jo.roi_align(X, ROIS[:0], BATCH[:0]).shape == (0, 3, 1, 1)


@pytest.mark.grid
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_derivatives_of_bins_of_any_size(x64, mode):
    """`sampling_ratio` 0 is a loop whose length depends on the data: both modes, twice, and under `vmap`."""
    x, rois = jnp.asarray(X[:1, :1], float), jnp.asarray(np.abs(ROIS[:2]), float)

    @jax.jit
    def pooled(x, rois):
        return jo.roi_align(x, rois, np.zeros(2, int), output_height=2, output_width=2, mode=mode)

    if mode == "avg":
        check_grads(pooled, (x, rois), 2, ["rev"])
    gradient = jax.jit(jax.grad(lambda *a: jnp.sin(pooled(*a)).sum(), (0, 1)))
    many = jnp.stack([x, 2 * x]), jnp.stack([rois, rois + 0.25])
    found = jax.jit(jax.vmap(gradient))(*many)
    for k in range(2):
        for got, expected in zip(found, gradient(*(a[k] for a in many)), strict=True):
            np.testing.assert_allclose(got[k], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, r"`x` of \(3, 9, 8\) must be \(N, C, H, W\)", lambda: jo.roi_align(X[0], ROIS, BATCH)),
        (ShapeError, r"`rois` of \(5, 3\) must be \(R, 4\)", lambda: jo.roi_align(X, ROIS[:, :3], BATCH)),
        (ShapeError, r"`batch_indices` of \(2,\) must be \(R,\)", lambda: jo.roi_align(X, ROIS, BATCH[:2])),
        (
            ArgumentError,
            "`output_height` is 0; it must",
            lambda: jo.roi_align(X, ROIS, BATCH, output_height=0),
        ),
        (ArgumentError, "`sampling_ratio` is -1", lambda: jo.roi_align(X, ROIS, BATCH, sampling_ratio=-1)),
        (ArgumentError, "`mode` is 'sum'", lambda: jo.roi_align(X, ROIS, BATCH, mode="sum")),
        (DTypeError, "`batch_indices` must be integers", lambda: jo.roi_align(X, ROIS, BATCH * 1.0)),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
