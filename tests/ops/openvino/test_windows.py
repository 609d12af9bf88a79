"""Convolutions of moved places and of binary filters, and patches, against loops in NumPy and against OpenVINO."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.test_util import check_grads
from openvino_peer import agree

import jaxops as jo
from jaxops.errors import ArgumentError, ShapeError, SignatureError
from jaxops.openvino import ops

RNG = np.random.default_rng(7)
X = RNG.normal(size=(2, 4, 7, 6)).astype(np.float32)
BASE = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "auto_pad": "explicit"}


def read(image, y, x, pad):
    """An image (H, W) at a place: with zeros around it, or without interpolation at its borders."""
    height, width = image.shape
    if not pad:
        if not (0 <= y < height and 0 <= x < width):
            return 0.0
        y, x = min(y, height - 1), min(x, width - 1)
    i, j = int(np.floor(y)), int(np.floor(x))
    total = 0.0
    for a, b in itertools.product((i, i + 1), (j, j + 1)):
        if 0 <= a < height and 0 <= b < width:
            total += float(image[a, b]) * (1 - abs(y - a)) * (1 - abs(x - b))
    return total


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"bilinear_interpolation_pad": True},
        {"group": 2, "deformable_group": 2},
        {"strides": [2, 2], "auto_pad": "same_upper"},
        {"dilations": [2, 1], "pads_begin": [2, 1], "pads_end": [2, 1]},
    ],
    ids=str,
)
def test_deformable_convolution(change):
    how = {**BASE, "group": 1, "deformable_group": 1, "bilinear_interpolation_pad": False, **change}
    groups, moves, step = how["group"], how["deformable_group"], how["strides"][0]
    w = RNG.normal(size=(6, 4 // groups, 3, 3)).astype(np.float32)
    out = (4, 3) if step == 2 else (7, 6)
    offsets = (RNG.normal(size=(2, moves * 18, *out)) * 1.5).astype(np.float32)
    mask = RNG.uniform(size=(2, moves * 9, *out)).astype(np.float32)
    begin = (1, 0) if step == 2 else how["pads_begin"]
    expected = np.zeros((2, 6, *out))
    for n, o, i, j in np.ndindex(*expected.shape):
        for c, a, b in np.ndindex(4 // groups, 3, 3):
            channel = o // (6 // groups) * (4 // groups) + c
            tap = channel // (4 // moves) * 9 + a * 3 + b
            y = i * step - begin[0] + a * how["dilations"][0] + offsets[n, 2 * tap, i, j]
            x = j * step - begin[1] + b * how["dilations"][1] + offsets[n, 2 * tap + 1, i, j]
            value = read(X[n, channel], y, x, how["bilinear_interpolation_pad"])
            expected[n, o, i, j] += value * w[o, c, a, b] * mask[n, tap, i, j]
    inputs = [X, offsets, w, mask]
    y = jax.jit(lambda *v: ops.deformable_convolution(*v, **how))(*inputs)
    np.testing.assert_allclose(y, expected, atol=1e-4)
    agree(8, "DeformableConvolution", inputs, how, y, atol=1e-4)
    if not change:
        first = {k: v for k, v in how.items() if k != "bilinear_interpolation_pad"}
        plain = ops.deformable_convolution(*inputs[:3], **first)
        agree(1, "DeformableConvolution", inputs[:3], first, plain, atol=1e-4)
        check_grads(lambda *v: ops.deformable_convolution(*v, **how), inputs, 1, ["rev"], 5e-2, 5e-2, 1e-3)


def test_onnx_has_no_such_border():
    offsets = np.full((2, 18, 7, 6), 0.75, np.float32)
    w = np.ones((1, 4, 3, 3), np.float32)
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    zeros = jo.deform_conv(X, w, offsets, pads=(1, 1, 1, 1))
    inside = jo.deform_conv(X, w, offsets, pads=(1, 1, 1, 1), border="inside")
    assert float(jnp.abs(zeros - inside).max()) > 0.1
    np.testing.assert_allclose(at_opset("DeformConv", 22, X, w, offsets, **attributes)[0], zeros, atol=1e-5)
    with pytest.raises(SignatureError, match="border"):
        at_opset("DeformConv", 22, X, w, offsets, border="inside", **attributes)
    with pytest.raises(ArgumentError, match="`border` is 'edge'"):
        jo.deform_conv(X, w, offsets, border="edge")


@pytest.mark.parametrize("pad_value", [0.0, 1.0, -1.0])
def test_binary_convolution(pad_value):
    x = (X > 0).astype(np.float32)
    w = (RNG.normal(size=(3, 4, 2, 3)) > 0).astype(np.uint8)
    how = {**BASE, "strides": [2, 1], "pads_begin": [1, 2], "dilations": [1, 2], "mode": "xnor-popcount"}
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 1)), constant_values=pad_value)
    expected = np.zeros((2, 3, 4, 5))
    for n, o, i, j in np.ndindex(*expected.shape):
        window = padded[n, :, 2 * i : 2 * i + 2, j : j + 5 : 2]
        equal = (window == w[o]).sum()
        expected[n, o, i, j] = 2 * equal - w[o].size
    y = jax.jit(lambda *v: ops.binary_convolution(*v, **how, pad_value=pad_value))(x, w)
    np.testing.assert_array_equal(y, expected)
    assert ops.binary_convolution(x.astype(np.int32), w, **how, pad_value=pad_value).dtype == np.int32


PATCHES = {"sizes": (3, 3), "strides": (5, 5), "rates": (1, 1), "auto_pad": "valid"}


def test_the_patches_of_the_text():
    image = np.arange(1, 101).reshape(1, 1, 10, 10)
    y = ops.extract_image_patches(image, **PATCHES)
    assert y[0].tolist() == [
        [[1, 6], [51, 56]],
        [[2, 7], [52, 57]],
        [[3, 8], [53, 58]],
        [[11, 16], [61, 66]],
        [[12, 17], [62, 67]],
        [[13, 18], [63, 68]],
        [[21, 26], [71, 76]],
        [[22, 27], [72, 77]],
        [[23, 28], [73, 78]],
    ]
    apart = ops.extract_image_patches(image, **{**PATCHES, "rates": (2, 2)})
    assert apart[0, 4].tolist() == [[23, 28], [73, 78]]
    padded = ops.extract_image_patches(image, sizes=(4, 4), strides=(9, 9), rates=(1, 1), auto_pad="same_upper")
    assert padded[0, :2].tolist() == [[[0, 0], [0, 89]], [[0, 0], [81, 90]]]
    maps = np.arange(1, 51).reshape(1, 2, 5, 5)
    two = ops.extract_image_patches(maps, sizes=(2, 2), strides=(3, 3), rates=(1, 1), auto_pad="valid")
    assert two[0, :3].tolist() == [[[1, 4], [16, 19]], [[26, 29], [41, 44]], [[2, 5], [17, 20]]]


@pytest.mark.parametrize("auto_pad", ["valid", "same_upper", "same_lower"])
def test_openvino_takes_the_same_patches(auto_pad):
    how = {"sizes": [3, 2], "strides": [2, 1], "rates": [1, 2], "auto_pad": auto_pad}
    agree(3, "ExtractImagePatches", [X], how, jax.jit(lambda x: ops.extract_image_patches(x, **how))(X))


W, OFFSETS = np.ones((1, 4, 3, 3), np.float32), np.zeros((2, 18, 7, 6), np.float32)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            ArgumentError,
            "`auto_pad` is 'SAME'; it must be one of 'explicit'",
            lambda: ops.deformable_convolution(X, OFFSETS, W, **{**BASE, "auto_pad": "SAME"}),
        ),
        (
            ShapeError,
            r"`pads_begin` \(1,\) must be two numbers",
            lambda: ops.deformable_convolution(X, OFFSETS, W, **{**BASE, "pads_begin": [1]}),
        ),
        (
            ShapeError,
            r"`filters` of \(1, 3, 3, 3\) must be \(O, 4, kH, kW\)",
            lambda: ops.binary_convolution(X, W[:, :3], **BASE, mode="xnor-popcount", pad_value=0),
        ),
        (
            ArgumentError,
            "`mode` is 'and'",
            lambda: ops.binary_convolution(X, W, **BASE, mode="and", pad_value=0),
        ),
        (
            ArgumentError,
            "`auto_pad` is 'explicit'; it must be one of 'same_upper'",
            lambda: ops.extract_image_patches(X, **{**PATCHES, "auto_pad": "explicit"}),
        ),
        (
            ArgumentError,
            r"a window of \(0, 3\) has no elements",
            lambda: ops.extract_image_patches(X, **{**PATCHES, "sizes": (0, 3)}),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
