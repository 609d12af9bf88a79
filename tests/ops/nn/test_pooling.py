"""Pooling: values by loops in NumPy and by onnxruntime; indices, gradients, every version; errors."""

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax import lax
from jax.export import export, symbolic_shape
from onnx import helper

import jaxops.onnx
from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError, SignatureError, SizeError
from jaxops.ops import average_pool, global_average_pool, global_lp_pool, global_max_pool, lp_pool, max_pool

RNG = np.random.default_rng(0)
FUNCTIONS = {"MaxPool": max_pool, "AveragePool": average_pool, "LpPool": lp_pool}


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def by_hand(op, x, *, kernel_shape, pads=None, strides=None, dilations=None, auto_pad="NOTSET", ceil_mode=0, **more):
    """A window at a time: the indices it reaches, and of these the ones inside the data."""
    rank, kernel = x.ndim - 2, kernel_shape
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads, width = pads or (0,) * (2 * rank), [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    begins, ends, out = list(pads[:rank]), list(pads[rank:]), []
    for i, size in enumerate(x.shape[2:]):
        if auto_pad.startswith("SAME"):
            out.append(math.ceil(size / strides[i]))
            total = max(0, (out[-1] - 1) * strides[i] + width[i] - size)
            begins[i] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            ends[i] = total - begins[i]
            continue
        exact = (size + begins[i] + ends[i] - width[i]) / strides[i]
        count = (math.ceil(exact) if ceil_mode else math.floor(exact)) + 1
        if ceil_mode and (count - 1) * strides[i] >= size + begins[i]:
            count -= 1
        out.append(count)
    y, places = np.zeros((*x.shape[:2], *out)), np.zeros((*x.shape[:2], *out), np.int64)
    spatial = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:], order="F" if more.get("storage_order") else "C")
    planes = math.prod(x.shape[2:]) * np.arange(math.prod(x.shape[:2])).reshape(x.shape[:2])
    for at in np.ndindex(*out):
        reached = [
            [o * s - b + t * d for t in range(k)]
            for o, s, b, k, d in zip(at, strides, begins, kernel, dilations, strict=True)
        ]
        inside = [[j for j in js if 0 <= j < n] for js, n in zip(reached, x.shape[2:], strict=True)]
        padded = [
            [j for j in js if -b <= j < n + e] for js, n, b, e in zip(reached, x.shape[2:], begins, ends, strict=True)
        ]
        grid = np.ix_(*inside)
        values = (
            x[(slice(None), slice(None), *grid)].astype(np.float64).reshape(*x.shape[:2], math.prod(map(len, inside)))
        )
        spot = (slice(None), slice(None), *at)
        if op == "MaxPool":
            y[spot] = values.max(-1)
            places[spot] = planes + spatial[grid].reshape(-1)[values.argmax(-1)]
        elif op == "AveragePool":
            y[spot] = values.sum(-1) / math.prod(map(len, padded if more.get("count_include_pad") else inside))
        else:
            p = more.get("p", 2)
            y[spot] = (np.abs(values) ** p).sum(-1) ** (1 / p)
    return (y, places) if more.get("places") else y


def runtime(op: str, x: np.ndarray, outputs: int = 1, opset: int = 22, **attributes: Any) -> Any:
    names = ["y", "i"][:outputs]
    node = helper.make_node(op, ["x"], names, **attributes)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info(n) for n in names])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    found = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    return found if outputs > 1 else found[0]


@dataclass
class Case:
    name: str
    x: np.ndarray
    attributes: dict[str, Any] = field(default_factory=dict)
    runtime: bool = True

    def __str__(self) -> str:
        return self.name


X = f32(2, 3, 7, 6)
CASES = [
    Case("plain", X, {"kernel_shape": (3, 2)}),
    Case("1d", f32(2, 3, 9), {"kernel_shape": (3,), "strides": (2,), "pads": (1, 0)}),
    Case("3d", f32(1, 2, 5, 4, 6), {"kernel_shape": (2, 3, 2), "strides": (2, 1, 3), "pads": (1, 2, 0, 0, 1, 1)}),
    Case("4d", f32(1, 2, 3, 3, 4, 3), {"kernel_shape": (2, 3, 2, 1)}, runtime=False),
    Case("dilated", X, {"kernel_shape": (3, 2), "dilations": (2, 3), "pads": (2, 1, 1, 0)}),
    Case("ceil", X, {"kernel_shape": (2, 3), "strides": (2, 2), "ceil_mode": 1}),
    Case("ceil/pads", X, {"kernel_shape": (3, 3), "strides": (2, 4), "pads": (0, 1, 1, 1), "ceil_mode": 1}),
    Case("ceil/start beyond", X, {"kernel_shape": (2, 1), "strides": (3, 4), "pads": (1, 0, 1, 0), "ceil_mode": 1}),
    Case("ceil/dilated", X, {"kernel_shape": (3, 2), "dilations": (1, 3), "strides": (3, 2), "ceil_mode": 1}),
    Case("same upper", X, {"kernel_shape": (3, 2), "auto_pad": "SAME_UPPER", "strides": (2, 1)}),
    Case("same lower", X, {"kernel_shape": (3, 2), "auto_pad": "SAME_LOWER", "strides": (3, 1)}),
    Case(
        "same/dilated", X, {"kernel_shape": (3, 2), "auto_pad": "SAME_UPPER", "dilations": (2, 3)}, runtime=False
    ),  # onnxruntime 1.23 leaves the dilation out of the padding
    Case("valid", X, {"kernel_shape": (3, 2), "auto_pad": "VALID", "strides": (2, 2)}),
    Case("valid/ceil", X, {"kernel_shape": (2, 4), "auto_pad": "VALID", "strides": (2, 3), "ceil_mode": 1}),
    Case("large kernel", f32(1, 2, 40, 3), {"kernel_shape": (35, 1), "pads": (3, 0, 4, 0), "strides": (2, 1)}),
    Case("large kernel/ceil", f32(1, 2, 13, 12), {"kernel_shape": (5, 6), "strides": (3, 5), "ceil_mode": 1}),
    Case("whole", X, {"kernel_shape": (7, 6)}),
    Case("empty batch", X[:0], {"kernel_shape": (3, 2)}, runtime=False),
    Case("empty result", X, {"kernel_shape": (8, 2)}, runtime=False),
]
VARIANTS = [
    ("MaxPool", {}),
    ("AveragePool", {}),
    ("AveragePool", {"count_include_pad": 1}),
    *[("LpPool", {"p": p} if p != 2 else {}) for p in (2, 1, 3)],
]


def label(variant: Any) -> str:
    if isinstance(variant, Case):
        return str(variant)
    return variant[0] + "".join(f",{k}={v}" for k, v in variant[1].items())


def close(found: Any, expected: Any, scale: float = 1e-5) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=scale, atol=scale)


def eager(fn: Any, x: np.ndarray) -> Any:
    return fn(jnp.asarray(x))


def static(fn: Any, x: np.ndarray) -> Any:
    return fn(x)


def mapped(fn: Any, x: np.ndarray) -> Any:
    return jax.jit(jax.vmap(fn))(np.stack([x + 1, x]))[1]


def exported(fn: Any, x: np.ndarray) -> Any:
    """With a symbolic batch."""
    if not len(x):
        pytest.skip("a symbolic size is at least 1")
    (b,) = symbolic_shape("b")
    return export(jax.jit(fn))(jax.ShapeDtypeStruct((b, *x.shape[1:]), x.dtype)).call(x)


@pytest.mark.grid
@pytest.mark.parametrize("run", [eager, static, mapped, exported])
@pytest.mark.parametrize("variant", VARIANTS[:4], ids=label)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case, variant, run):
    op, more = variant
    expected = by_hand(op, case.x, **case.attributes, **more)
    close(run(lambda x: FUNCTIONS[op](x, **case.attributes, **more), case.x), expected)


@pytest.mark.grid
@pytest.mark.parametrize("variant", VARIANTS, ids=label)
@pytest.mark.parametrize("case", [c for c in CASES if c.runtime], ids=str)
def test_value_equals_onnxruntime(case, variant):
    op, more = variant
    found = FUNCTIONS[op](case.x, **case.attributes, **more)
    close(found, runtime(op, case.x, **case.attributes, **more))


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_indices(case, order):
    x = np.round(case.x)  # ties
    attributes = {**case.attributes, "storage_order": order}
    y, places = by_hand("MaxPool", x, **attributes, places=True)
    found, indices = max_pool(x, **attributes, return_indices=True)
    assert indices.dtype == jnp.int32
    close(found, y)
    np.testing.assert_array_equal(indices, places)
    with jax.enable_x64(True):
        assert max_pool(x, **attributes, return_indices=True)[1].dtype == jnp.int64
    if case.runtime:
        np.testing.assert_array_equal(indices, runtime("MaxPool", x, 2, **attributes)[1])


def test_indices_of_negative_infinity_are_not_those_of_padding():
    x = np.full((1, 1, 3), -np.inf, np.float32)
    y, indices = max_pool(x, kernel_shape=(2,), pads=(1, 1), return_indices=True)
    assert y.tolist() == [[[-np.inf] * 4]]
    assert indices.tolist() == [[[0, 0, 1, 2]]]


@pytest.mark.parametrize("kernel", [(2, 2), (5, 2)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_padding_is_never_the_largest_integer(dtype, kernel):
    low = np.iinfo(dtype).min
    x = np.full((1, 1, 3, 3), low, dtype)
    attributes = {"kernel_shape": kernel, "pads": (1, 1, 1, 1)}
    assert (max_pool(x, **attributes) == low).all()
    y, indices = max_pool(x, **attributes, return_indices=True)
    assert y.dtype == dtype
    assert (indices >= 0).all()
    x = RNG.integers(low, np.iinfo(dtype).max, (1, 2, 5, 5)).astype(dtype)
    close(max_pool(x, **attributes), by_hand("MaxPool", x, **attributes))


def test_nan_is_the_largest():
    x = np.array([[[1, np.nan, 3, 2]]], np.float32)
    np.testing.assert_array_equal(max_pool(x, kernel_shape=(2,)), [[[np.nan, np.nan, 3]]])
    assert max_pool(x, kernel_shape=(2,), return_indices=True)[1].tolist() == [[[1, 1, 2]]]


@pytest.mark.parametrize("case", [c for c in CASES if c.x.size and c.name != "empty result"], ids=str)
def test_gradient_of_max_goes_to_the_first_of_equals(case):
    x = np.round(case.x)

    def loss(x):
        return jnp.sum(max_pool(x, **case.attributes) * weights)

    _, places = by_hand("MaxPool", x, **case.attributes, places=True)
    weights = f32(*places.shape)
    expected = np.zeros(x.size)
    np.add.at(expected, places.reshape(-1), weights.reshape(-1))
    close(jax.jit(jax.grad(loss))(x), expected.reshape(x.shape))


@pytest.mark.parametrize("variant", VARIANTS[1:], ids=label)
@pytest.mark.parametrize("case", CASES[4:7], ids=str)
def test_gradient_of_sums(case, variant):
    op, more = variant
    fn = lambda x: FUNCTIONS[op](x, **case.attributes, **more)  # noqa: E731
    direction, weights, step = f32(*case.x.shape), f32(*fn(case.x).shape), 1e-6
    slope = jax.jit(jax.grad(lambda x: jnp.sum(fn(x) * weights)))(case.x)
    ahead, behind = (
        by_hand(op, case.x.astype(np.float64) + s * direction, **case.attributes, **more) for s in (step, -step)
    )
    numeric = ((ahead - behind) / (2 * step) * weights).sum()
    np.testing.assert_allclose((slope * direction).sum(), numeric, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("p", [2, 3, 1.5])
def test_gradient_of_zeros_is_zero(p):
    zeros = jnp.zeros((1, 1, 4))
    assert (jax.grad(lambda x: lp_pool(x, kernel_shape=(2,), p=p).sum())(zeros) == 0).all()
    assert (jax.grad(lambda x: global_lp_pool(x, p=p).sum())(zeros) == 0).all()


SPATIAL = [
    {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    {"kernel_shape": (3, 2), "strides": (2, 3), "pads": (1, 0, 1, 1), "ceil_mode": 1},
    {"kernel_shape": (3, 2), "auto_pad": "SAME_UPPER", "strides": (2, 1)},
    {"kernel_shape": (2, 2), "dilations": (2, 1)},
]


@pytest.mark.parametrize("variant", VARIANTS[:4], ids=label)
@pytest.mark.parametrize("attributes", SPATIAL, ids=str)
def test_symbolic_spatial_sizes(attributes, variant):
    op, more = variant
    shape = symbolic_shape("b, 3, h, w", constraints=["h >= 3", "w >= 3"])
    fn = jax.jit(lambda x: FUNCTIONS[op](x, **attributes, **more))
    close(export(fn)(jax.ShapeDtypeStruct(shape, X.dtype)).call(X), by_hand(op, X, **attributes, **more))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, np.float64])
@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_other_types(variant, dtype):
    op, more = variant
    attributes = {**CASES[6].attributes, **more}
    with jax.enable_x64(True):
        x = jnp.asarray(X, dtype)
        found = FUNCTIONS[op](x, **attributes)
        assert found.dtype == dtype
        scale = {2: float(jnp.finfo(dtype).eps), 8: 1e-12}[np.dtype(dtype).itemsize]
        close(found, by_hand(op, np.asarray(x, np.float64), **attributes), scale)


def test_sixteen_bits_are_summed_in_thirty_two():
    x = jnp.full((1, 1, 100, 100), 300, jnp.float16)
    assert (average_pool(x, kernel_shape=(50, 50)) == 300).all()
    assert (global_average_pool(x) == 300).all()
    assert global_lp_pool(x[..., :2, :2]) == 600


GLOBAL = [
    (global_average_pool, {}, lambda x, axes: x.mean(axes, keepdims=True)),
    (global_max_pool, {}, lambda x, axes: x.max(axes, keepdims=True)),
    (global_lp_pool, {}, lambda x, axes: np.sqrt((x * x).sum(axes, keepdims=True))),
    (global_lp_pool, {"p": 3}, lambda x, axes: (abs(x) ** 3).sum(axes, keepdims=True) ** (1 / 3)),
]


@pytest.mark.parametrize("run", [eager, static, mapped, exported])
@pytest.mark.parametrize(("fn", "attributes", "formula"), GLOBAL)
def test_global(fn, attributes, formula, run):
    for x in (f32(2, 3, 5), X, f32(1, 2, 3, 4, 2)):
        expected = formula(x.astype(np.float64), tuple(range(2, x.ndim)))
        close(run(lambda x: fn(x, **attributes), x), expected)
    shape = symbolic_shape("b, c, h, w")
    program = export(jax.jit(lambda x: fn(x, **attributes)))(jax.ShapeDtypeStruct(shape, X.dtype))
    close(program.call(X), formula(X.astype(np.float64), (2, 3)))
    slope = jax.grad(lambda x: fn(x, **attributes).sum())(X)
    assert bool(jnp.isfinite(slope).all())


@pytest.mark.parametrize("opset", [1, 7, 8, 10, 11, 12, 18, 19, 22, 25])
def test_every_version(opset):
    op = jaxops.onnx.opset(opset)
    basic = {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}
    for name in FUNCTIONS:
        close(getattr(op, name)(X, **basic), by_hand(name, X, **basic))
    for name, fn in (("GlobalAveragePool", global_average_pool), ("GlobalMaxPool", global_max_pool)):
        close(getattr(op, name)(X), np.asarray(fn(X)))
    p = 3.0 if opset == 1 else 3
    close(op.LpPool(X, **basic, p=p), by_hand("LpPool", X, **basic, p=3))
    close(op.GlobalLpPool(X, p=p), np.asarray(global_lp_pool(X, p=3)))
    if opset >= 8:
        y, places = op.MaxPool(X, **basic, storage_order=1, n_outputs=2)
        expected, where = by_hand("MaxPool", X, **basic, storage_order=1, places=True)
        close(y, expected)
        np.testing.assert_array_equal(places, where)


# Attributes, and types, with the opset that brought them.
NEWER = [
    ("MaxPool", {"storage_order": 0}, 8),
    ("MaxPool", {"ceil_mode": 1}, 10),
    ("MaxPool", {"dilations": (1, 1)}, 10),
    ("AveragePool", {"count_include_pad": 1}, 7),
    ("AveragePool", {"ceil_mode": 1}, 10),
    ("AveragePool", {"dilations": (1, 1)}, 19),
    ("LpPool", {"ceil_mode": 1}, 18),
    ("LpPool", {"dilations": (1, 1)}, 18),
]


@pytest.mark.parametrize(("name", "attributes", "since"), NEWER)
def test_an_attribute_is_unknown_before_its_version(name, attributes, since):
    getattr(jaxops.onnx.opset(since), name)(X, kernel_shape=(2, 2), **attributes)
    with pytest.raises(SignatureError, match=rf"{name}-\d+: unknown attribute `{next(iter(attributes))}`"):
        getattr(jaxops.onnx.opset(since - 1), name)(X, kernel_shape=(2, 2), **attributes)


def test_what_else_a_version_forbids():
    x = np.ones((1, 1, 3), np.int8)
    assert jaxops.onnx.opset(12).MaxPool(x, kernel_shape=(2,)).dtype == jnp.int8
    with pytest.raises(DTypeError, match=r"MaxPool-11: input 0 `X` is int8"):
        jaxops.onnx.opset(11).MaxPool(x, kernel_shape=(2,))
    with pytest.raises(SignatureError, match="MaxPool-1: 2 outputs asked for"):
        jaxops.onnx.opset(7).MaxPool(X, kernel_shape=(2, 2), n_outputs=2)
    with pytest.raises(SignatureError, match="LpPool-1: attribute `kernel_shape` is missing"):
        jaxops.onnx.opset(1).LpPool(X)


def _symbolic_indices() -> Any:
    spec = jax.ShapeDtypeStruct(symbolic_shape("2, 3, h, 6"), X.dtype)
    return export(jax.jit(lambda x: max_pool(x, kernel_shape=(2, 2), return_indices=True)))(spec)


def _many_indices() -> Any:
    spec = jax.ShapeDtypeStruct((1 << 12, 1 << 10, 1 << 10), np.float32)
    return jax.eval_shape(lambda x: max_pool(x, kernel_shape=(2,), return_indices=True), spec)


ERRORS = [
    (lambda: max_pool(X[0, 0], kernel_shape=(2, 2)), ShapeError, r"max_pool: `x` has sizes \(7, 6\); it needs batch"),
    (lambda: max_pool(X, kernel_shape=(2,)), ShapeError, r"max_pool: `kernel_shape` \(2,\) has 1 value; .* need 2"),
    (lambda: lp_pool(X, kernel_shape=(2, 2), auto_pad="x"), ArgumentError, "lp_pool: `auto_pad` is 'x'; it must be"),
    (lambda: max_pool(X, kernel_shape=(2, 2), storage_order=2), ArgumentError, "max_pool: `storage_order` is 2"),
    (lambda: average_pool(X, kernel_shape=(9, 2)), ShapeError, "average_pool: a window of 9 elements"),
    (lambda: average_pool(X, kernel_shape=(2, 2), ceil_mode=3), ArgumentError, "average_pool: `ceil_mode` is 3"),
    (lambda: average_pool(X.astype(int), kernel_shape=(2, 2)), DTypeError, "`x` must be floating-point, got int32"),
    (lambda: lp_pool(X, kernel_shape=(2, 2), p=0), ArgumentError, "lp_pool: `p` is 0; it must be greater than 0"),
    (lambda: global_average_pool(X[0, 0]), ShapeError, r"global_average_pool: `x` has sizes \(7, 6\)"),
    (_symbolic_indices, SizeError, r"(?s)`return_indices` the spatial sizes of \(2, 3, h, 6\) must .*{'h': 128}"),
    (_many_indices, OutOfRangeError, "max_pool: indices of 4294967296 elements do not fit int32"),
]


@pytest.mark.parametrize(("call", "error", "match"), ERRORS, ids=[row[2][:30] for row in ERRORS])
def test_error(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_wrong_operator_is_caught(monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "AveragePool", lambda x, **k: average_pool(x, **{**k, "count_include_pad": 1}))
    with pytest.raises(AssertionError, match="Mismatched elements"):
        test_value(CASES[1], ("AveragePool", {}), eager)
    monkeypatch.setitem(FUNCTIONS, "MaxPool", lambda x, **k: max_pool(lax.concatenate([x, x], 2), **k))
    with pytest.raises(AssertionError):
        test_value(CASES[1], ("MaxPool", {}), mapped)
