"""Formats of images against loops in NumPy and against OpenVINO."""

import jax
import numpy as np
import pytest
from openvino_peer import agree

from jaxops.errors import DTypeError, ShapeError, SignatureError
from jaxops.openvino import ops

RNG = np.random.default_rng(3)
TYPES = ["uint8", "float32"]


def clipped(x, dtype, to_even=False):
    x = np.clip(x, 0, 255)
    return (np.rint(x) if to_even else np.floor(x + 0.5)) if dtype == "uint8" else x


def colors(y, u, v, dtype):
    out = np.zeros((*y.shape[:3], 3))
    for n, i, j in np.ndindex(*y.shape[:3]):
        light = 1.164 * (float(y[n, i, j, 0]) - 16)
        a, b = (float(p[n, i // 2, j // 2]) - 128 for p in (u, v))
        out[n, i, j] = [light + 1.596 * b, light - 0.813 * b - 0.391 * a, light + 2.018 * a]
    return clipped(out, dtype, to_even=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [(2, 4, 6), (1, 6, 4)])
def test_colors(size, dtype):
    n, h, w = size
    y = RNG.uniform(0, 255, (*size, 1)).astype(dtype)
    u, v = RNG.uniform(0, 255, (2, n, h // 2, w // 2)).astype(dtype)
    expected = colors(y, u, v, dtype)
    uv = np.stack([u, v], -1)
    nv12 = np.concatenate([y, uv.reshape(n, h // 2, w, 1)], 1)
    i420 = np.concatenate([y, np.concatenate([u.reshape(n, -1), v.reshape(n, -1)], 1).reshape(n, h // 2, w, 1)], 1)
    cases = {
        ("NV12to", "nv12_to"): [[nv12], [y, uv]],
        ("I420to", "i420_to"): [[i420], [y, u[..., None], v[..., None]]],
    }
    for (theirs, mine), operands in cases.items():
        for inputs in operands:
            for order, name in ((1, "rgb"), (-1, "bgr")):
                found = jax.jit(getattr(ops, f"{mine}_{name}"))(*inputs)
                assert found.dtype == dtype
                difference = np.abs(np.asarray(found).astype(float) - expected[..., ::order])
                assert difference.max() <= (1 if dtype == "uint8" else 1e-3)  # halves are rounded in float32
                assert (difference > 0.5).mean() < 0.02
                agree(8, f"{theirs}{name.upper()}", inputs, {}, found, atol=1e-3)


@pytest.mark.parametrize("dtype", TYPES)
def test_planes(dtype):
    x = RNG.uniform(0, 255, (2, 4, 6, 3)).astype(dtype)
    red, green, blue = np.moveaxis(x.astype(float), -1, 0)
    light = clipped(0.257 * red + 0.504 * green + 0.098 * blue + 16, dtype)
    u = clipped(-0.148 * red - 0.291 * green + 0.439 * blue + 128, dtype)
    v = clipped(0.439 * red - 0.368 * green - 0.071 * blue + 128, dtype)
    means = [p.reshape(2, 2, 2, 3, 2).mean((2, 4)) for p in (u, v)]
    color = clipped(np.stack(means, -1), dtype)
    planes = jax.jit(lambda x: ops.rgb_to_nv12(x, single_plane=False))(x)
    np.testing.assert_allclose(planes[0][..., 0], light, atol=1e-3)
    np.testing.assert_allclose(planes[1], color, atol=1e-3)
    one = ops.rgb_to_nv12(x)
    assert one.dtype == dtype
    np.testing.assert_array_equal(one[:, :4], planes[0])
    np.testing.assert_array_equal(one[:, 4:].reshape(2, 2, 3, 2), planes[1])
    np.testing.assert_array_equal(ops.bgr_to_nv12(x[..., ::-1]), one)  # OpenVINO itself does not compute these yet


PLANE = np.zeros((1, 4, 4, 1), np.uint8)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, "must give an even height and width", lambda: ops.nv12_to_rgb(PLANE)),
        (ShapeError, r"`arg_uv` of \(1, 4, 4, 1\) must be \(1, 2, 2, 2\)", lambda: ops.nv12_to_rgb(PLANE, PLANE)),
        (SignatureError, "`arg_u` and `arg_v` must be given together", lambda: ops.i420_to_rgb(PLANE, PLANE)),
        (DTypeError, "`arg` must be uint8 or floats", lambda: ops.i420_to_bgr(PLANE.astype(np.int32))),
        (ShapeError, "must have an even height and width", lambda: ops.rgb_to_nv12(np.zeros((1, 3, 4, 3)))),
        (ShapeError, r"must be \(N, H, W, 3\)", lambda: ops.bgr_to_nv12(PLANE)),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
