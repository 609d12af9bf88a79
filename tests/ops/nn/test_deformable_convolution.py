"""Deformable convolution against a loop over places in NumPy, and against onnxruntime."""

import itertools

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

RNG = np.random.default_rng(2)


def at(image, place):
    """Linear interpolation of (C, d1, …) at a place; outside is zero."""
    total = np.zeros(len(image))
    low = np.floor(place).astype(int)
    for corner in itertools.product((0, 1), repeat=len(place)):
        index = low + corner
        if all(0 <= i < d for i, d in zip(index, image.shape[1:], strict=True)):
            weight = np.prod([p - f if c else f + 1 - p for p, f, c in zip(place, low, corner, strict=True)])
            total += weight * image[(slice(None), *index)]
    return total


def formula(x, w, offset, b=None, mask=None, dilations=None, group=1, offset_group=1, pads=None, strides=None):
    n, c, *sizes = x.shape
    rank, kernel, m = len(sizes), w.shape[2:], w.shape[0]
    dilations, strides, pads = dilations or [1] * rank, strides or [1] * rank, pads or [0] * 2 * rank
    out = offset.shape[2:]
    offset = offset.reshape(n, offset_group, *kernel, rank, *out)
    mask = np.ones((n, offset_group, *kernel, *out)) if mask is None else mask.reshape(n, offset_group, *kernel, *out)
    y = np.zeros((n, m, *out))
    for image, o, k in itertools.product(range(n), np.ndindex(*out), np.ndindex(*kernel)):
        columns = np.empty(c)
        for g, channels in enumerate(np.split(np.arange(c), offset_group)):
            place = [
                o[a] * strides[a] - pads[a] + k[a] * dilations[a] + offset[(image, g, *k, a, *o)] for a in range(rank)
            ]
            columns[channels] = at(x[image, channels], np.array(place)) * mask[(image, g, *k, *o)]
        for rows, part in zip(np.split(np.arange(m), group), np.split(columns, group), strict=True):
            y[(image, rows, *o)] += w[(rows, slice(None), *k)] @ part
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def operands(x, w, out, groups=1, dtype=np.float32, spread=1.5):
    rank, taps = len(x) - 2, groups * int(np.prod(w[2:]))
    given = [RNG.normal(size=s) for s in (x, w, (x[0], taps * rank, *out), w[:1], (x[0], taps, *out))]
    given[2] *= spread
    return [v.astype(dtype) for v in given]


CASES = [
    ((2, 3, 5, 6), (2, 3, 3, 2), (3, 5), {}),
    ((1, 4, 6, 5), (6, 2, 2, 2), (5, 5), {"group": 2, "offset_group": 4, "pads": (1, 0, 1, 2), "dilations": (3, 2)}),
    ((2, 6, 7, 6), (3, 2, 3, 3), (4, 3), {"group": 3, "offset_group": 2, "strides": (2, 3), "pads": (1, 2, 1, 1)}),
    ((2, 2, 9), (2, 2, 3), (8,), {"pads": (1, 0)}),
    ((1, 2, 3, 4, 3), (1, 2, 2, 1, 2), (2, 4, 2), {"offset_group": 2}),
]


@pytest.mark.grid
@pytest.mark.parametrize(("x", "w", "out", "attributes"), CASES, ids=[str(c[0]) for c in CASES])
def test_formula(x, w, out, attributes):
    given = operands(x, w, out, attributes.get("offset_group", 1))
    for count in (3, 4, 5):
        expected = formula(*given[:count], **attributes)
        np.testing.assert_allclose(jo.deform_conv(*given[:count], **attributes), expected, rtol=1e-4, atol=1e-4)
    no_bias = [*given[:3], None, given[4]]
    np.testing.assert_allclose(jo.deform_conv(*no_bias, **attributes), formula(*no_bias, **attributes), atol=1e-4)
    if len(x) == 4:  # onnxruntime has two spatial axes only
        for opset in (19, 22):
            expected = runtime("DeformConv", given, opset, **attributes)[0]
            np.testing.assert_allclose(at_opset("DeformConv", opset, *given, **attributes)[0], expected, atol=2e-4)


@pytest.mark.optimized
def test_large_and_compiled():
    given = operands((2, 8, 20, 24), (8, 4, 3, 3), (20, 24), 2, spread=4)
    attributes = {"pads": (1, 1, 1, 1), "group": 2, "offset_group": 2}
    found = jax.jit(lambda *a: jo.deform_conv(*a, **attributes))(*given)
    np.testing.assert_allclose(found, runtime("DeformConv", given, 22, **attributes)[0], rtol=1e-4, atol=2e-4)


def test_without_offsets_it_is_a_convolution():
    x, w, offset, b, _ = operands((2, 4, 6, 6), (4, 2, 3, 3), (3, 3))
    attributes = {"strides": (2, 2), "pads": (1, 1, 1, 1), "group": 2}
    expected = jo.conv(x, w, b, **attributes)
    np.testing.assert_allclose(jo.deform_conv(x, w, offset * 0, b, **attributes), expected, atol=1e-5)


def test_far_places_and_nan():
    x, w = np.ones((1, 1, 1, 4), np.float32), np.ones((1, 1, 1, 1), np.float32)
    offset = np.zeros((1, 2, 1, 4), np.float32)
    offset[0, 1, 0] = [3e9, -3e9, np.inf, np.nan]
    assert jo.deform_conv(x, w, offset)[0, 0, 0, :3].tolist() == [0, 0, 0]
    x[0, 0, 0, 3] = np.nan  # only who reads it gets it
    offset[0, 1, 0] = [0, 1.5, 0.5, 1]
    assert np.isnan(jo.deform_conv(x, w, offset)).ravel().tolist() == [False, True, True, False]


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_types(dtype):
    with jax.enable_x64(True):
        given = operands((1, 2, 4, 4), (2, 2, 2, 2), (3, 3), dtype=dtype)
        found = jo.deform_conv(*given)
        assert found.dtype == dtype
        expected = formula(*(v.astype(np.float64) for v in given))
        digits = {"float64": 1e-12, "float16": 2e-2, "bfloat16": 1e-1}[np.dtype(dtype).name]
        np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=digits, atol=digits)


def test_gradients_vmap_and_symbolic_sizes():
    given = operands((2, 2, 4), (2, 2, 2), (3,))
    # Away from whole places, at which the interpolation has a kink.
    given[2] = (RNG.integers(-1, 2, given[2].shape) + RNG.uniform(0.3, 0.7, given[2].shape)).astype(np.float32)
    fn = jax.jit(jo.deform_conv)
    check_grads(fn, given, 1, ["rev"], 2e-2, 2e-2, 1e-2)
    mapped = jax.vmap(lambda x, o, m: jo.deform_conv(x, given[1], o, given[3], m))
    rows = [given[i][:, None] for i in (0, 2, 4)]
    np.testing.assert_allclose(mapped(*rows)[:, 0], fn(*given), atol=1e-5)
    shapes = ["n, 2, d", "2, 2, 2", "n, 2, d - 1", "2", "n, 2, d - 1"]
    made = export(fn)(*symbolic_args_specs(tuple(map(jnp.asarray, given)), shapes))
    np.testing.assert_allclose(made.call(*map(jnp.asarray, given)), fn(*given), atol=1e-5)


X, W, MOVED, B, M = operands((1, 4, 4, 4), (2, 2, 2, 2), (3, 3), 2)
GROUPS = {"group": 2, "offset_group": 2}
ERRORS = [
    (
        lambda: jo.deform_conv(X, W, MOVED, group=2),
        ShapeError,
        r"`offset` of \(1, 16, 3, 3\) must be \(1, 8",
    ),
    (lambda: jo.deform_conv(X, W, MOVED, B, M[:, :4], **GROUPS), ShapeError, r"`mask` of .* must be \(1, 8, 3, 3\)"),
    (
        lambda: jo.deform_conv(X, W, MOVED, B[:1], **GROUPS),
        ShapeError,
        r"deform_conv: `b` of \(1,\) must be",
    ),
    (lambda: jo.deform_conv(X, W, MOVED), ShapeError, "takes 2 channels, but"),
    (
        lambda: jo.deform_conv(X, W, MOVED, group=2, offset_group=3),
        ShapeError,
        "`offset_group` 3 does not divide the 4",
    ),
    (lambda: jo.deform_conv(X, W, MOVED, group=2, offset_group=0), ArgumentError, "`offset_group` is 0"),
    (lambda: jo.deform_conv(X, W, MOVED.astype(np.float64), **GROUPS), DTypeError, "offset float64"),
    (lambda: jo.deform_conv(X.astype(int), W.astype(int), MOVED.astype(int)), DTypeError, "`x` must be floating-point"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
