"""Resizing against the formulas of the standard's text, place by place, and against onnxruntime."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs, symbolic_shape
from jax.test_util import check_grads
from onnx import helper

import jaxops as jo
import jaxops.onnx
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 3, 6, 5)).astype(np.float32)
BIG = RNG.normal(size=(2, 4, 40, 30)).astype(np.float32)
MODES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
EXTRA = ["tf_half_pixel_for_nn", "tf_crop_and_resize"]
ROUND = {
    "round_prefer_floor": lambda v: math.ceil(v - 0.5),
    "round_prefer_ceil": lambda v: math.floor(v + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def coordinate(how, at, size, length, scale, roi):
    width = scale * size
    if how == "align_corners":
        return at * (size - 1) / (width - 1) if length > 1 else 0
    if how == "asymmetric":
        return at / scale
    if how == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if how == "tf_crop_and_resize":
        start, end = roi
        span = (end - start) * (size - 1)
        return start * (size - 1) + at * span / (width - 1) if length > 1 else (start + end) * (size - 1) / 2
    if how == "pytorch_half_pixel" and length == 1:
        return 0
    offset = size / 2 * (1 - length / width) if how == "half_pixel_symmetric" else 0
    return offset + (at + 0.5) / scale - 0.5


def kernel(mode, distance, a):
    d = abs(distance)
    if mode == "linear":
        return max(1 - d, 0)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0


def row(size, length, scale, roi, mode, how, nearest, a, exclude, antialias):
    """The matrix of one axis; None where a place lies outside."""
    rows = []
    for at in range(length):
        x, weights = coordinate(how, at, size, length, scale, roi), np.zeros(size)
        if how == "tf_crop_and_resize" and not 0 <= np.float32(x) <= size - 1:
            rows.append(None)
            continue
        if mode == "nearest":
            weights[min(max(ROUND[nearest](round(x, 5)), 0), size - 1)] = 1
        else:
            narrow = min(scale, 1) if antialias else 1
            for i in range(math.floor(x - 2 / narrow) - 1, math.ceil(x + 2 / narrow) + 2):
                if 0 <= i < size or not exclude:
                    weights[min(max(i, 0), size - 1)] += kernel(mode, (i - x) * narrow, a)
            weights /= weights.sum() or 1  # with exclude_outside there may be no neighbour
        rows.append(weights)
    return rows


def formula(
    x,
    axes,
    lengths,
    scales,
    roi=None,
    *,
    mode="nearest",
    coordinate_transformation_mode="half_pixel",
    nearest_mode="round_prefer_floor",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    antialias=0,
    extrapolation_value=0,
):
    y, count, outside = x.astype(np.float64), len(axes), []
    for i, axis in enumerate(axes):
        rows = row(
            x.shape[axis],
            lengths[i],
            scales[i],
            roi and (roi[i], roi[i + count]),
            mode,
            coordinate_transformation_mode,
            nearest_mode,
            cubic_coeff_a,
            exclude_outside,
            antialias,
        )
        outside.append((axis, [at for at, r in enumerate(rows) if r is None]))
        matrix = np.array([np.zeros(x.shape[axis]) if r is None else r for r in rows])
        y = np.moveaxis(np.tensordot(y, matrix, ((axis,), (1,))), -1, axis)
    for axis, places in outside:
        np.moveaxis(y, axis, 0)[places] = extrapolation_value
    return y


def runtime(op, inputs, opset, **attributes):
    names = ["abcd"[i] if x is not None else "" for i, x in enumerate(inputs)]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
        if n
    ]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {n: x for n, x in zip(names, inputs, strict=True) if n})[0]


def close(found, expected, digits=2e-5):
    found = np.asarray(found)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=digits, atol=digits)


KINDS = [
    {"mode": "linear"},
    {"mode": "cubic"},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic", "antialias": 1, "exclude_outside": 1},
    *({"mode": "nearest", "nearest_mode": r} for r in ROUND),
]
SCALES = [(2, 3), (1.5, 0.75), (0.5, 2.6), (0.3, 0.6)]


@pytest.mark.grid
@pytest.mark.parametrize("how", [*MODES, *EXTRA])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(map(str, k.values())))
def test_formula(kind, how):
    attributes = {**kind, "coordinate_transformation_mode": how, "extrapolation_value": 7.0}
    roi = (0.2, -0.1, 0.9, 1.2) if how == "tf_crop_and_resize" else None
    for scales, x in [*((s, X) for s in SCALES), ((2, 1.7), BIG)]:
        exact = [float(np.float32(s)) for s in scales]
        lengths = [math.floor(np.float32(n) * np.float32(s)) for n, s in zip(x.shape[2:], scales, strict=True)]
        fn = jax.jit(lambda x, s=scales: jo.resize(x, roi, s, axes=(2, 3), **attributes))
        close(fn(x), formula(x, (2, 3), lengths, scales, roi, **attributes))
    for lengths in [(9, 1), (1, 7)]:
        exact = [m / n for m, n in zip(lengths, X.shape[2:], strict=True)]
        found = jo.resize(jnp.asarray(X), roi, None, lengths, axes=(-2, -1), **attributes)
        close(found, formula(X, (2, 3), lengths, exact, roi, **attributes))


@pytest.mark.grid
@pytest.mark.parametrize("opset", [11, 13, 18, 19])
@pytest.mark.parametrize("how", [*MODES, *EXTRA])
def test_onnxruntime(how, opset):
    if how == "half_pixel_symmetric" and opset < 19:
        return
    roi = np.float32([0, 0, 0.2, -0.1, 1, 1, 0.9, 1.2]) if how == "tf_crop_and_resize" else None
    kinds = [k for k in KINDS if opset >= 18 or "antialias" not in k]
    for kind, scales in itertools.product(kinds, [(2, 1.5), (0.5, 4)]):
        if "antialias" in kind and kind["mode"] == "cubic":
            continue  # it normalizes before it excludes
        attributes = {**kind, "coordinate_transformation_mode": how, "extrapolation_value": 7.0}
        # Whole lengths: for others onnxruntime rounds length_resized.
        x = BIG[:, :, :8, :8]
        inputs = [x, np.zeros(0, np.float32) if roi is None else roi, np.float32([1, 1, *scales])]
        (found,) = at_opset("Resize", opset, *inputs, **attributes)
        close(found, runtime("Resize", inputs, opset, **attributes))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_early_versions(mode):
    for scales in [(1, 1, 2, 2), (1, 1, 1.3, 3), (1, 1, 1, 1.7), (1, 1, 0.7, 0.3), (1, 1, 0.5, 2)]:
        values = np.float32(scales)
        close(at_opset("Resize", 10, BIG, values, mode=mode)[0], runtime("Resize", [BIG, values], 10, mode=mode))
        if min(scales) >= 1:
            expected = runtime("Upsample", [BIG, values], 9, mode=mode)
            close(at_opset("Upsample", 9, BIG, values, mode=mode)[0], expected)
            close(jaxops.onnx.opset(8).Upsample(BIG, scales=list(scales), mode=mode), expected)
            first = "bilinear" if mode == "linear" else mode
            (found,) = at_opset("Upsample", 1, BIG, height_scale=scales[2], width_scale=scales[3], mode=first)
            close(found, expected)
    with pytest.raises(ArgumentError, match=r"upsample: `scales` holds 0\.5; scales are 1 or more"):
        at_opset("Upsample", 9, BIG, np.float32([1, 1, 0.5, 2]), mode=mode)
    with pytest.raises(ShapeError, match=r"resize: `scales` of \(3,\) must be \(4,\), a number for each axis"):
        at_opset("Resize", 10, BIG, np.float32([1, 1, 0.5]), mode=mode)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
def test_aspect_ratio(policy):
    for mode, lengths in itertools.product(["nearest", "linear", "cubic"], [(9, 10), (3, 4), (11, 2)]):
        attributes = {"mode": mode, "keep_aspect_ratio_policy": policy, "axes": [2, 3]}
        expected = runtime("Resize", [X, None, None, np.array(lengths)], 19, **attributes)
        close(jo.resize(X, sizes=lengths, **attributes), expected)


def test_element_types():
    x = np.array([[10, 201, 33, 7]])
    up = {"scales": (1, 2), "mode": "linear"}
    for dtype in (np.uint8, np.int16):
        assert jo.resize(x.astype(dtype), **up).tolist() == [[10, 57, 153, 159, 75, 26, 13, 7]]
    cubic = jo.resize(np.uint8([0, 255, 0, 0]), scales=(2,), mode="cubic")
    assert cubic.dtype == np.uint8
    assert (
        cubic.tolist()
        == np.clip(np.floor(0.5 + formula(np.float64([0, 255, 0, 0]), [0], [8], [2.0], mode="cubic")), 0, 255).tolist()
    )
    with pytest.raises(DTypeError, match=r"interpolating int32 needs float64, and x64 is off"):
        jo.resize(x.astype(np.int32), **up)
    with pytest.raises(DTypeError, match=r"operands must be numbers, got bool"):
        jo.resize(x > 9, **up)
    with jax.enable_x64(True):
        big = jo.resize(np.array([2**40, 2**40 + 4]), scales=(2,), mode="linear")
        assert big.tolist() == [2**40, 2**40 + 1, 2**40 + 3, 2**40 + 4]
        assert jo.resize(X.astype(np.float64), scales=(1, 1, 2, 1), mode="cubic").dtype == np.float64
    for dtype in (np.float16, jnp.bfloat16):
        found = jo.resize(jnp.asarray(X, dtype), scales=(1, 1, 2, 1.3), mode="linear")
        assert found.dtype == dtype
        wide = jo.resize(jnp.asarray(X, dtype).astype(np.float32), scales=(1, 1, 2, 1.3), mode="linear")
        assert (found == wide.astype(dtype)).all()
    for dtype in (bool, np.int32, jnp.int4, np.complex64):
        values = jnp.arange(4).astype(dtype)
        for scale in (2, 1.3, 0.5):
            at = formula(np.arange(4), [0], [math.floor(4 * scale)], [scale])
            assert (jo.resize(values, scales=(scale,)) == values[at.astype(int)]).all()
    assert jo.resize(np.array(["a", "b"]), scales=(2,)).tolist() == ["a", "a", "b", "b"]
    assert jo.resize(np.complex64([1j, 3]), scales=(2,), mode="linear").shape == (4,)


@pytest.mark.parametrize("kind", KINDS[:5:2] + KINDS[5:6], ids=lambda k: k["mode"])
def test_symbolic_sizes(kind):
    for scales, how in itertools.product([(2, 3), (0.5, 4)], ["half_pixel", "asymmetric"]):
        attributes = {**kind, "coordinate_transformation_mode": how}
        symbols = "b, c, 6, 5" if "exclude_outside" in kind else "b, c, 2*h, w"
        fn = jax.jit(lambda x, s=scales, a=attributes: jo.resize(x, scales=(1, 1, *s), **a))
        (spec,) = symbolic_args_specs((X,), (symbols,))
        close(export(fn)(spec).call(X), np.asarray(fn(X)))


def test_a_symbolic_size_that_cannot_be_resolved():
    def exported(**attributes):
        (spec,) = symbolic_args_specs((X,), ("b, c, h, w",))
        return export(jax.jit(lambda x: jo.resize(x, **attributes)))(spec)

    (w,) = symbolic_shape("w")
    with pytest.raises(ShapeError, match=r"axis 0 goes from 2 to w; for strings, both must be numbers"):
        jo.resize(np.array(["a", "b"]), sizes=(w,))
    how = {"sizes": (1, 2), "coordinate_transformation_mode": "tf_crop_and_resize"}
    with pytest.raises(DTypeError, match=r"strings cannot be extrapolated; choose `roi` inside of \[0, 1\]"):
        jo.resize(np.array([["a", "b"]]), np.float32([0, 0, 0, 2]), mode="nearest", **how)
    with pytest.raises(ShapeError, match=r"\(13\*h\) / 10 is rounded in float32 to another size where h is 90"):
        exported(scales=(1, 1, 1.3, 2))
    with pytest.raises(ShapeError, match=r"the scale that 'not_larger' chooses .* `sizes` \(5, 7\) depends"):
        exported(sizes=(5, 7), axes=(2, 3), keep_aspect_ratio_policy="not_larger")


@pytest.mark.grid
@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 1.3, 0.4), (1, 1, 0.5, 3)])
@pytest.mark.parametrize("kind", KINDS[:6], ids=lambda k: "-".join(map(str, k.values())))
def test_gradients_and_vmap(kind, scales):
    check_grads(
        jax.jit(lambda x: jo.resize(x, scales=scales, **kind)), (X[:1, :1],), 1, ["fwd", "rev"], 1e-2, 1e-2, 0.1
    )
    each = jax.jit(jax.vmap(lambda x: jo.resize(x, scales=scales[1:], **kind)))(X)
    close(each, np.asarray(jo.resize(X, scales=scales, **kind)))


def test_what_stays_is_left_alone():
    jaxpr = jax.make_jaxpr(lambda x: jo.resize(x, scales=(1, 1, 1, 1), mode="cubic"))(X)
    assert not jaxpr.eqns
    assert jo.resize(X, sizes=(0,), axes=(1,)).shape == (2, 0, 6, 5)
    assert jo.resize(np.float32(3), scales=()).item() == 3
    # A scale below 1 by its last bit still gives the length that it stands for.
    assert jo.resize(np.arange(10.0, dtype=np.float32), scales=(0.7,)).shape == (7,)


@pytest.mark.parametrize(
    ("error", "text", "attributes"),
    [
        (ArgumentError, "give either `scales` or `sizes`; neither is given", {}),
        (ArgumentError, "give either `scales` or `sizes`; both are given", {"scales": (1,) * 4, "sizes": X.shape}),
        (ArgumentError, r"`scales` holds 0\.0; scales are greater than 0", {"scales": (1, 1, 0, 1)}),
        (ArgumentError, r"`sizes` holds -1; sizes are not negative", {"sizes": (1, 1, -1, 1)}),
        (ShapeError, "`scales` has 3 numbers for 4 axes; give one for each", {"scales": (1, 1, 1)}),
        (ShapeError, "`sizes` has 1 number for 4 axes", {"sizes": (1,)}),
        (ShapeError, "`scales` must be 1-D, but has 2 axes", {"scales": np.ones((1, 4))}),
        (AxisError, "`axes` is 4, but the operand has 4 axes", {"scales": (1,), "axes": (4,)}),
        (ArgumentError, "`mode` is 'area'; it must be one of 'nearest', 'linear', 'cubic'", {"mode": "area"}),
        (ArgumentError, "`nearest_mode` is 'half'", {"nearest_mode": "half"}),
        (ArgumentError, "`coordinate_transformation_mode` is 'a'", {"coordinate_transformation_mode": "a"}),
        (ArgumentError, "`keep_aspect_ratio_policy` is 'a'", {"keep_aspect_ratio_policy": "a"}),
        (
            ArgumentError,
            "'tf_crop_and_resize' needs `roi`",
            {"scales": (1,) * 4, "coordinate_transformation_mode": "tf_crop_and_resize"},
        ),
        (
            ShapeError,
            "`roi` has 2 numbers; it must have 8, a start for each axis, then an end for each",
            {"scales": (1,) * 4, "roi": (0, 1), "coordinate_transformation_mode": "tf_crop_and_resize"},
        ),
    ],
)
def test_errors(error, text, attributes):
    with pytest.raises(error, match=text):
        jo.resize(X, **attributes)


def test_errors_of_values():
    with pytest.raises(ShapeError, match=r"axis 1 of .* is empty; it cannot get 3 elements"):
        jo.resize(X[:, :0], sizes=(3,), axes=(1,))
    with pytest.raises(StaticError, match="`scales` must be known while tracing"):
        jax.jit(lambda x, s: jo.resize(x, scales=s))(X, jnp.ones(4))
    with pytest.raises(DTypeError, match="strings cannot be extrapolated"):
        jo.resize(np.array(["a", "b"]), (-1, 1), (2,), coordinate_transformation_mode="tf_crop_and_resize")
