"""Experimental operators of opsets 1 to 9, which `load` finds in the empty domain, against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import build, info, node
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from onnx import helper

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, SignatureError, UnsupportedError
from jaxops.onnx import load, opset

RNG = np.random.default_rng(5)
IMAGE = RNG.normal(size=(2, 3, 6, 5)).astype(np.float32)
WIDE = (30 * RNG.normal(size=(2, 3, 40, 50))).astype(np.float32)


def model(op, *values, version=7, **attributes):
    names = [f"x{i}" for i in range(len(values))]
    infos = [info(n, v.shape, helper.np_dtype_to_tensor_dtype(v.dtype)) for n, v in zip(names, values, strict=True)]
    outputs = [info("y", None, infos[0].type.tensor_type.elem_type)]
    return build(node(op, names, ["y"], **attributes), inputs=infos, outputs=outputs, opsets=[("", version)])


def agrees(op, *values, version=7, **attributes):
    proto = model(op, *values, version=version, **attributes)
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {f"x{i}": v for i, v in enumerate(values)})
    found = load(proto)(*values)
    assert (found.shape, str(found.dtype)) == (expected.shape, str(expected.dtype))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


CASES = [
    ("Affine", [IMAGE], {}),
    ("Affine", [WIDE], {"alpha": -2.5, "beta": 1.0}),
    ("Scale", [IMAGE], {}),
    ("Scale", [IMAGE], {"scale": 0.3}),
    ("ScaledTanh", [WIDE], {"alpha": 1.7159, "beta": 0.6667}),
    ("ParametricSoftplus", [WIDE], {"alpha": 2.0, "beta": 0.5}),
    ("ImageScaler", [IMAGE], {"bias": [1.0, -2.0, 0.5], "scale": 2.0}),
    ("ImageScaler", [IMAGE], {"bias": [1.0, -2.0, 0.5]}),
    ("Crop", [IMAGE], {"border": [1, 0, 2, 3]}),
    ("Crop", [IMAGE], {"border": [1, 2, 0, 0], "scale": [3, 4]}),
    ("Crop", [IMAGE], {"border": [0, 1, 2, 3], "scale": [5, 4]}),
    ("Crop", [IMAGE], {"border": [0, 6, 0, 0]}),
]


@pytest.mark.parametrize(("op", "values", "attributes"), CASES, ids=[f"{c[0]}{i}" for i, c in enumerate(CASES)])
def test_against_onnxruntime(op, values, attributes):
    agrees(op, *values, **attributes)


@pytest.mark.parametrize("version", [1, 9])
def test_the_other_opsets(version):
    agrees("Affine", IMAGE, version=version, alpha=2.0)


@pytest.mark.parametrize(
    "bounds",
    [([1, 0], [3, -1]), ([-2], [99], [-1]), ([4, 1], [-9, 2**63 - 1], [2, 0])],
    ids=["first axes", "clamped", "empty"],
)
def test_dynamic_slice(bounds):
    values = [np.array(b, np.int64) for b in bounds]
    (expected,) = onnxruntime.InferenceSession(model("DynamicSlice", IMAGE, *values).SerializeToString()).run(
        None, {f"x{i}": v for i, v in enumerate([IMAGE, *values])}
    )
    np.testing.assert_array_equal(ms.dynamic_slice(jnp.asarray(IMAGE), *values), expected)
    loaded = load(model("DynamicSlice", IMAGE, *values))
    np.testing.assert_array_equal(loaded(IMAGE, *values), expected)


def test_what_is_static_stays_static():
    assert type(ms.dynamic_slice(np.arange(4), [1], [3])) is np.ndarray


def test_16_bits_are_computed_in_32():
    x = WIDE.astype(np.float16)
    wide = x.astype(np.float32)
    expected = (wide * np.float32(1.1) + np.float32(0.1)).astype(np.float16)
    np.testing.assert_allclose(ms.affine(x, alpha=1.1, beta=0.1), expected, rtol=1e-3, atol=1e-3)
    soft = ms.parametric_softplus(x, alpha=2.0, beta=0.5)
    assert soft.dtype == np.float16
    np.testing.assert_allclose(soft, 2 * np.log1p(np.exp(wide / 2)), rtol=1e-3, atol=1e-3)


def test_a_symbolic_batch_and_vmap():
    def fn(x):
        x = ms.image_scaler(x, bias=(1.0, 2.0, 3.0), scale=0.5)
        return ms.scaled_tanh(ms.crop(x, border=(1, 1, 1, 1)), alpha=2.0, beta=0.5)

    expected = 2 * np.tanh(0.5 * (IMAGE * 0.5 + np.arange(1, 4)[:, None, None])[:, :, 1:-1, 1:-1])
    exported = export(jax.jit(fn))(*symbolic_args_specs((IMAGE,), ("b, 3, h, w",), ("h >= 2", "w >= 2")))
    np.testing.assert_allclose(exported.call(IMAGE), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(fn)(IMAGE[None])[0], expected, rtol=1e-5)


def test_gradients():
    x = jnp.asarray(IMAGE[:1, :, :3, :3])
    check_grads(lambda x: ms.parametric_softplus(x, alpha=2.0, beta=0.5), (x,), 1)
    check_grads(lambda x: ms.crop(ms.affine(x, alpha=2.0), border=(1, 0, 0, 1)), (x,), 1)
    slope = jax.grad(lambda x: ms.parametric_softplus(x, alpha=2.0, beta=1.0).sum())(jnp.array([-200.0, 200.0]))
    np.testing.assert_array_equal(slope, [0, 2])


ERRORS = [
    (lambda: ms.crop(IMAGE, border=(1, 1, 1)), ArgumentError, "`border` is .*; it must be left, top, right and bottom"),
    (lambda: ms.crop(IMAGE, border=(-1, 1, 1, 1)), ArgumentError, "each 0 or more"),
    (
        lambda: ms.crop(IMAGE, border=(1, 1, 1, 1), scale=(2,)),
        ArgumentError,
        "`scale` is .*; it must be height and width",
    ),
    (lambda: ms.crop(IMAGE, border=(0, 4, 0, 3)), ShapeError, "has height 6; the result needs 7"),
    (lambda: ms.crop(IMAGE, border=(2, 0, 0, 0), scale=(3, 4)), ShapeError, "has width 5; the result needs 6"),
    (lambda: ms.crop(IMAGE[0], border=(1, 1, 1, 1)), ShapeError, r"`input` of \(3, 6, 5\) must be \(N, C, H, W\)"),
    (
        lambda: ms.image_scaler(IMAGE, bias=(1.0,)),
        ShapeError,
        r"`input` of \(.*\) must be \(N, 1, H, W\), as `bias` holds 1 number\n",
    ),
    (lambda: ms.affine(np.arange(3)), DTypeError, "floating-point"),
    (lambda: ms.dynamic_slice(IMAGE, [0], [1], [4]), AxisError, "axis 4|4"),
    (lambda: load(model("Affine", IMAGE, version=10)), UnsupportedError, "Affine: not in opset 10"),
    (lambda: load(model("ScaledTanh", IMAGE, alpha=1.0)), SignatureError, "attribute `beta` is missing"),
    (lambda: opset(7).Affine, AttributeError, "Affine"),
]


@pytest.mark.parametrize(("call", "error", "match"), ERRORS, ids=[f"{e[1].__name__}{i}" for i, e in enumerate(ERRORS)])
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_wrong_operator_is_caught():
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(ms.scale(IMAGE, scale=1.001), IMAGE)
