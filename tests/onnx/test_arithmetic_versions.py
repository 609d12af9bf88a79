"""Arithmetic, comparison and activations at the versions whose signature or meaning differs from the newest."""

import numpy as np
import pytest

import jaxops.onnx
from jaxops.errors import AxisError, DTypeError, ShapeError

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


X, Y, ROW, F32 = f32(2, 3), f32(2, 3), f32(3), f32(4)

BINARY = ["Add", "Sub", "Mul", "Div", "Pow"]
LOGICAL = ["And", "Or", "Xor"]


@pytest.mark.parametrize("name", BINARY + LOGICAL + ["Greater", "Less", "Equal"])
@pytest.mark.parametrize("opset", [1, 6])
def test_broadcast_is_asked_for_before_7(name: str, opset: int) -> None:
    fn, newest = getattr(jaxops.onnx.opset(opset), name), getattr(jaxops.onnx.opset(7), name)
    kind = bool if name in LOGICAL else np.int32 if name == "Equal" else np.float32
    a = (np.abs(f32(2, 3, 4, 5)) * 2 + 1).astype(kind)
    for sizes, axis, new_sizes in [
        ((), None, ()),
        ((1, 1), None, ()),
        ((5,), None, (5,)),
        ((4, 5), None, (4, 5)),
        ((3, 4), 1, (3, 4, 1)),
        ((2,), 0, (2, 1, 1, 1)),
        ((3, 1), 1, (3, 1, 1)),
    ]:
        b = (np.abs(f32(*sizes)) * 2 + 1).astype(kind)
        found = fn(a, b, broadcast=1) if axis is None else fn(a, b, broadcast=1, axis=axis)
        np.testing.assert_array_equal(found, newest(a, b.reshape(new_sizes)))
    np.testing.assert_array_equal(fn(a, a), newest(a, a))
    with pytest.raises(ShapeError, match="must have one shape in this version; pass broadcast=1"):
        fn(a, a[0])
    with pytest.raises(ShapeError, match=r"b of \(3, 2\) does not fit the sizes \(4, 5\) of a of \(2, 3, 4, 5\)"):
        fn(a, a[0, :, :2, 0], broadcast=1)
    with pytest.raises(AxisError, match=r"with `axis` 3, b of \(3, 4\) does not fit inside a of \(2, 3, 4, 5\)"):
        fn(a, a[0, :, :, 0], broadcast=1, axis=3)


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min"])
def test_one_shape_before_8(name: str) -> None:
    np.testing.assert_allclose(getattr(jaxops.onnx.opset(6), name)(X, Y), getattr(jaxops.onnx.opset(8), name)(X, Y))
    assert getattr(jaxops.onnx.opset(8), name)(X, ROW).shape == (2, 3)
    with pytest.raises(ShapeError, match=r"operands of \(2, 3\) and \(3,\) must have one shape in this version"):
        getattr(jaxops.onnx.opset(6), name)(X, ROW)


def test_earlier_versions() -> None:
    opset = jaxops.onnx.opset
    np.testing.assert_array_equal(opset(1).Clip(X, min=-0.5), np.maximum(X, np.float32(-0.5)))
    np.testing.assert_array_equal(opset(6).Clip(X, max=0.5), np.minimum(X, np.float32(0.5)))
    np.testing.assert_array_equal(opset(6).Clip(np.float16([-np.inf, 1]), max=0.5), np.float16([-np.inf, 0.5]))
    np.testing.assert_array_equal(opset(11).Clip(X, None, np.float32(0.5)), np.minimum(X, 0.5))
    images, slope = f32(2, 3, 4, 5), f32(3)
    expected = np.where(images < 0, images * slope[:, None, None], images)
    np.testing.assert_allclose(opset(6).PRelu(images, slope), expected, rtol=1e-6)
    np.testing.assert_allclose(opset(7).PRelu(images, slope[:, None, None]), expected, rtol=1e-6)
    np.testing.assert_allclose(opset(1).PRelu(images, slope[:1]), np.where(images < 0, images * slope[0], images))
    np.testing.assert_array_equal(opset(9).Erf(np.int32([-9, 0, 9])), [-1, 0, 1])
    np.testing.assert_array_equal(opset(13).Mod(np.float32([-5.5]), np.float32([2]), fmod=1), [-1.5])
    np.testing.assert_array_equal(opset(28).Mod(np.float32([-5.5]), np.float32([2])), [0.5])
    with pytest.raises(DTypeError, match="before opset 28 floating-point operands need fmod=1, got float32"):
        opset(13).Mod(F32, F32)
    np.testing.assert_allclose(opset(1).Selu(np.float32([1])), [1.0507], rtol=1e-6)
