"""Sampling at a grid, and grids of affine maps: against formulas in NumPy, and against onnxruntime."""

import functools

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
import jaxops.onnx
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(6)
X = RNG.normal(size=(2, 3, 5, 4)).astype(np.float32)
GRID = RNG.uniform(-1.9, 1.9, (2, 6, 7, 2)).astype(np.float32)
VOLUME = RNG.normal(size=(2, 3, 4, 5, 3)).astype(np.float32)
SPACE = RNG.uniform(-1.9, 1.9, (2, 2, 3, 4, 3)).astype(np.float32)
MODES, PADDINGS = ["linear", "nearest", "cubic"], ["zeros", "border", "reflection"]


def reflect(v, size, align):
    low, high = (0, size - 1) if align else (-0.5, size - 0.5)
    while high > low and not low <= v <= high:
        v = 2 * low - v if v < low else 2 * high - v
    return v if high > low else 0


def weights(place, size, align, mode, padding):
    """One row of the matrix that reads an axis at a place."""
    at = (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2
    at = np.rint(at) if mode == "nearest" else at
    at = reflect(at, size, align) if padding == "reflection" else at
    row = np.zeros(size)
    for i in range(int(np.floor(at)) - 2, int(np.floor(at)) + 4):
        d, a = abs(i - at), -0.75
        if mode == "nearest":
            w = d < 0.25 or (d == 0.5 and i > at)
        elif mode == "linear":
            w = max(0, 1 - d)
        elif d <= 1:
            w = (a + 2) * d**3 - (a + 3) * d**2 + 1
        else:
            w = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0
        if padding == "border":
            row[np.clip(i, 0, size - 1)] += w
        elif padding == "reflection":
            row[int(reflect(i, size, align))] += w
        elif 0 <= i < size:
            row[i] += w
    return row


def formula(x, grid, align=0, mode="linear", padding="zeros"):
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for n, *at in np.ndindex(*grid.shape[:-1]):
        y = x[n].astype(np.float64)
        for place, size in zip(grid[(n, *at)].astype(np.float64), x.shape[:1:-1], strict=True):
            y = y @ weights(place, size, align, mode, padding)  # the last axis first
        out[(n, slice(None), *at)] = y
    return out


def runtime(op, inputs, opset, **attributes):
    names = ["a", "b"][: len(inputs)]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, dict(zip(names, inputs, strict=True)))[0]


def close(found, expected, digits=3e-5):
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=digits, atol=digits)


@pytest.mark.grid
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_grid_sample(mode, padding, align):
    attributes = {"align_corners": align, "mode": mode, "padding_mode": padding}
    fn = jax.jit(lambda x, g: jo.grid_sample(x, g, **attributes))
    close(fn(X, GRID), formula(X, GRID, align, mode, padding))
    close(fn(X[..., :1], GRID), formula(X[..., :1], GRID, align, mode, padding))
    close(fn(VOLUME, SPACE), formula(VOLUME, SPACE, align, mode, padding))
    close(fn(X[..., 0], GRID[:, 0, :, :1]), formula(X[..., 0], GRID[:, 0, :, :1], align, mode, padding))
    large, many = np.tile(X, (1, 1, 6, 8)), np.tile(GRID, (1, 8, 8, 1)) * 0.7
    close(fn(large, many), runtime("GridSample", [large, many], 20, **attributes))
    old = {**attributes, "mode": {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)}
    close(at_opset("GridSample", 16, X, GRID, **old)[0], runtime("GridSample", [X, GRID], 16, **old))
    close(jaxops.onnx.opset(22).GridSample(X, GRID, **attributes), np.asarray(fn(X, GRID)))


def test_element_types():
    whole = (X * 100).astype(np.int32) + 2**29
    found = jo.grid_sample(whole, GRID, mode="nearest", padding_mode="border")
    assert found.tolist() == formula(whole, GRID, mode="nearest", padding="border").astype(int).tolist()
    half = jo.grid_sample(X.astype(np.float16), GRID.astype(np.float16))
    assert half.dtype == np.float16
    close(half, formula(X.astype(np.float16), GRID.astype(np.float16)), 2e-3)
    with jax.enable_x64(True):
        wide = jo.grid_sample(X.astype(np.float64), GRID.astype(np.float64), mode="cubic")
        close(wide, formula(X, GRID, mode="cubic"), 1e-12)


def test_what_is_outside_does_not_count():
    """Not even a NaN."""
    x = np.full((1, 1, 2, 2), np.nan, np.float32)
    assert jo.grid_sample(x, np.full((1, 1, 1, 2), 5, np.float32)).tolist() == [[[[0]]]]


@pytest.mark.grid
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_gradients_vmap_and_symbolic_sizes(mode, padding):
    fn = jax.jit(functools.partial(jo.grid_sample, mode=mode, padding_mode=padding))
    with jax.enable_x64(True):
        given = X[:1, :1].astype(np.float64), GRID[:1, :2, :2].astype(np.float64)
        check_grads(fn, given, 1, ["fwd", "rev"], eps=1e-6)
    specs = symbolic_args_specs((X, GRID), ("b, c, h, w", "b, u, v, 2"))
    close(export(fn)(*specs).call(X, GRID), np.asarray(fn(X, GRID)))
    each = jax.jit(jax.vmap(lambda x, g: fn(x[None], g[None])[0]))(X, GRID)
    close(each, np.asarray(fn(X, GRID)))


def places(size, align):
    if align:
        return np.linspace(-1, 1, size) if size > 1 else np.zeros(1)
    return (2 * np.arange(size) + 1) / size - 1


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (1, 3, 4, 1), (1, 1, 2, 3, 4), (2, 1, 1, 3, 1), (1, 2, 60, 70)])
def test_affine_grid(size, align):
    rank = len(size) - 2
    theta = RNG.normal(size=(size[0], rank, rank + 1)).astype(np.float32)
    mesh = np.meshgrid(*(places(d, align) for d in size[2:]), indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(size[2:])], -1)
    expected = np.einsum("nij,...j->n...i", theta.astype(np.float64), points)
    close(jax.jit(lambda t: jo.affine_grid(t, size, align_corners=align))(theta), expected)
    if 1 not in size[2:]:  # the body in the standard divides by zero there
        close(runtime("AffineGrid", [theta, np.array(size)], 20, align_corners=align), expected)
    (found,) = at_opset("AffineGrid", 20, theta, np.array(size), align_corners=align)
    close(found, expected)


def test_affine_grid_types_gradients_and_symbolic_sizes():
    theta = RNG.normal(size=(2, 2, 3)).astype(np.float32)
    assert jo.affine_grid(theta.astype(np.float16), (2, 1, 3, 3)).dtype == np.float16
    check_grads(lambda t: jo.affine_grid(t, (2, 1, 3, 3)), (theta,), 1, ["fwd", "rev"], 1e-2, 1e-2, 0.1)
    fn = jax.jit(lambda t, x: jo.grid_sample(x, jo.affine_grid(t, jo.shape(x), align_corners=1)))
    specs = symbolic_args_specs((theta, X), ("b, 2, 3", "b, c, h, w"))
    close(export(fn)(*specs).call(theta, X), np.asarray(fn(theta, X)))


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, r"`grid` of \(1, 6, 7, 2\) does not fit `x`", lambda: jo.grid_sample(X, GRID[:1])),
        (ShapeError, r"need a grid \(N, o1, …, or, r\)", lambda: jo.grid_sample(X, SPACE)),
        (DTypeError, "must be floating-point, got int32", lambda: jo.grid_sample(X.astype(np.int32), GRID)),
        (DTypeError, "must be floating-point, got int32", lambda: jo.grid_sample(X, GRID.astype(np.int32))),
        (ArgumentError, "`mode` is 'bilinear'", lambda: jo.grid_sample(X, GRID, mode="bilinear")),
        (ArgumentError, "`padding_mode` is 'edge'", lambda: jo.grid_sample(X, GRID, padding_mode="edge")),
        (ArgumentError, "`align_corners` is 2", lambda: jo.grid_sample(X, GRID, align_corners=2)),
        (ShapeError, r"`size` \(2, 1, 3\) must be \(N, C, H, W\)", lambda: jo.affine_grid(X[0, :2], (2, 1, 3))),
        (
            ShapeError,
            r"`theta` of \(1, 2, 3\) does not fit `size` \(2, 1, 3, 3\); it must be \(2, 2, 3\)",
            lambda: jo.affine_grid(np.zeros((1, 2, 3), np.float32), (2, 1, 3, 3)),
        ),
        (
            StaticError,
            "`size` must be known while tracing",
            lambda: jax.jit(jo.affine_grid)(jnp.zeros((1, 2, 3)), jnp.ones(4, int)),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
