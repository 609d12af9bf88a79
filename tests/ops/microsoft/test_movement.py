"""Operators of com.microsoft that move data, static and traced, against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from microsoft_peer import agree, compare, ours, runtime

from jaxops import microsoft as ms
from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, AxisError, ShapeError, SignatureError, StaticError

RNG = np.random.default_rng(12)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


X = f32(2, 5, 4)
NUMBER = np.float32(2)
CASES = [
    ("ExpandDims", [X, np.int32(-1)], [1], {}),
    ("ExpandDims", [X, np.array([-4], np.int32)], [1], {}),
    ("ExpandDims", [NUMBER, np.int32(0)], [1], {}),
    ("GatherND", [X, np.array([[0, 1], [1, 2]])], [], {}),
    ("GatherND", [X, np.array([[0, -1], [1, 2]], np.int32)], [], {}),
    ("Pad", [X[0], np.array([1, 0, 2, 1]), NUMBER], [1], {}),
    ("Pad", [X[0], np.array([[1, 0, -1, 1]]), np.array([2], np.float32)], [1], {}),
    ("Pad", [X[0], np.array([1, 0, 2, 1])], [1], {"mode": "reflect"}),
    ("Pad", [X[0], np.array([1, 0, 2, 1])], [1], {"mode": "edge"}),
    ("Pad", [X[0], np.array([1, 0, 2, 1])], [1], {"mode": "wrap"}),
    ("Range", [np.int32(2), np.int32(9), np.int32(2)], [0, 1, 2], {}),
    ("Range", [np.float32(1), np.float32(2.2), np.float32(0.3)], [0, 1, 2], {}),
    ("Range", [np.array([2]), np.array([-3]), np.array([-2])], [0, 1, 2], {}),
    ("Range", [np.int64(1), np.int64(4)], [0, 1], {}),
    ("Trilu", [X, None], [], {}),
    ("Trilu", [X, np.int64(1)], [], {"upper": 0}),
    ("Trilu", [X, np.int64(-1)], [1], {}),
    ("UnfoldTensor", [X], [], {"size": 3}),
    ("UnfoldTensor", [X], [], {"size": 2, "step": 2, "dim": 1}),
    ("UnfoldTensor", [X.astype(np.int32)], [], {"size": 4, "step": 3, "dim": -1}),
]


@pytest.mark.parametrize(("op", "inputs", "static", "attributes"), CASES, ids=[c[0] for c in CASES])
def test_against_onnxruntime(op, inputs, static, attributes):
    agree(op, inputs, static=static, **attributes)
    found = ours(op, inputs, **attributes)  # all static: computed by NumPy, in 64 bits
    expected = runtime(op, inputs, **attributes)
    assert isinstance(found[0], np.ndarray)
    assert found[0].dtype == expected[0].dtype
    # A range of floats adds up the steps in onnxruntime, and multiplies them here, as the standard says.
    np.testing.assert_allclose(found[0], expected[0], rtol=3e-7 if op == "Range" else 0)


def test_compiled():
    x = f32(20, 30, 10)
    agree("UnfoldTensor", [x], compiled=True, size=7, step=3, dim=1)
    agree("GatherND", [x, RNG.integers(0, 10, (500, 3))], compiled=True)
    assert ms.unfold_tensor(np.array(["a", "b", "c"], object), size=2).tolist() == [["a", "b"], ["b", "c"]]
    narrow = jnp.arange(4).astype(jnp.int4)
    assert ms.unfold_tensor(narrow, size=3).astype(np.int8).tolist() == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("values", [[2.5, -1, 2.5, 3, -1], [2.0], []], ids=len)
def test_unique(values):
    x = np.array(values, np.float32)
    agree("Unique", [x], (True, True, True), static=[0])
    expected = [np.asarray(v) for v in ms.unique(x)]
    size = len(expected[0]) + (1 if values else 0)
    y, places, counts = jax.jit(lambda x: ms.unique(x, size=size))(x)
    np.testing.assert_array_equal(y[: len(expected[0])], expected[0])
    np.testing.assert_array_equal(places, expected[1])
    np.testing.assert_array_equal(counts[: len(expected[0])], expected[2])
    assert not counts[len(expected[0]) :].any()


def test_unique_of_other_types():
    assert [v.tolist() for v in ms.unique(np.array(["b", "a", "b"], object))] == [["b", "a"], [0, 1, 0], [2, 1]]
    assert ms.unique(np.array([2**40, 1, 2**40]))[0].tolist() == [2**40, 1]


def test_is_all_finite():
    fine, infinite, nan = f32(3), np.array([1, -np.inf], np.float32), np.array([np.nan], np.float32)
    for inputs, expected in (
        ([fine], (True, True, True)),
        ([fine, infinite], (False, False, True)),
        ([nan, fine], (False, True, False)),
    ):
        found = [
            ours("IsAllFinite", inputs)[0],
            ours("IsAllFinite", inputs, isinf_only=1)[0],
            jax.jit(lambda *xs: ms.is_all_finite(xs, isnan_only=1))(*inputs),
        ]
        assert tuple(map(bool, found)) == expected
        compare(found[:1], [np.asarray(expected[0])], 0, 0)


def test_symbolic_sizes_and_vmap():
    def fn(x):
        y = ms.pad(ms.expand_dims(x, 1), [0, 0, 1, 0, 0, 0, 0, 0])
        return ms.trilu(ms.unfold_tensor(y, size=2, dim=2), 1)

    made = export(jax.jit(fn))(*symbolic_args_specs([X], ["n, s, 4"], constraints=["s >= 2"]))
    np.testing.assert_array_equal(made.call(X), fn(X))
    np.testing.assert_array_equal(jax.vmap(lambda x: ms.unfold_tensor(x, size=2))(X), ms.unfold_tensor(X, size=2))
    gradient = jax.grad(lambda x: ms.unfold_tensor(x, size=2).sum())(jnp.arange(4.0))
    assert gradient.tolist() == [1, 2, 2, 1]


SIZES = {
    "expand_dims": lambda n, s: ms.expand_dims(s, 0),
    "gather_nd": lambda n, s: ms.gather_nd(s, np.array([[1], [0]])),
    "pad": lambda n, s: ms.pad(s, (1, -1), 7),
    "pad edge": lambda n, s: ms.pad(s, [[0, 2]], mode="edge"),
    "range": lambda n, s: ms.range(0, n),
    "trilu": lambda n, s: ms.trilu(np.stack([s, s]), upper=0),
    "unfold_tensor": lambda n, s: ms.unfold_tensor(s, size=2),
}


@pytest.mark.parametrize("name", SIZES)
def test_symbolic_sizes_stay_static(name):
    def fn(x):
        found = SIZES[name](x.shape[0], np.array([x.shape[0], 3, 4], object))
        assert isinstance(found, jax.Array if name == "range" else np.ndarray)  # as many numbers as n says
        return as_traced(found)

    made = export(jax.jit(fn))(*symbolic_args_specs([X[0, 0]], ["n"]))
    for n in (2, 5):
        np.testing.assert_array_equal(made.call(jnp.ones(n)), SIZES[name](n, np.array([n, 3, 4])))


def test_the_order_of_symbolic_sizes_is_open():
    with pytest.raises(ShapeError, match=r"unique: the order of .* depends on the value of a symbolic size"):
        export(jax.jit(lambda x: ms.unique(np.array([x.shape[0], 3], object))[0]))(
            *symbolic_args_specs([X[0, 0]], ["n"])
        )


ERRORS = [
    (lambda: ms.expand_dims(X, 4), AxisError, "-1?4"),
    (
        lambda: jax.jit(lambda a: ms.expand_dims(X, a))(1),
        StaticError,
        "expand_dims: `axis` must be known while tracing",
    ),
    (lambda: ms.pad(X, (1, 2)), ShapeError, "pad"),
    (lambda: ms.range(np.int32(1), np.int32(3), np.int32(0)), ArgumentError, "range: `delta` is 0"),
    (lambda: ms.unfold_tensor(X, size=5), ShapeError, r"`size` is 5, but axis 2 of \(2, 5, 4\) has 4 elements"),
    (lambda: ms.unfold_tensor(X, size=0), ArgumentError, "`size` is 0; it must be at least 1"),
    (lambda: ms.unfold_tensor(X, size=1, dim=3), AxisError, "unfold_tensor: `dim` is 3"),
    (lambda: ms.unique(X), ShapeError, r"unique: x must have one axis, got float32\[2,5,4\]"),
    (lambda: jax.jit(ms.unique)(X[0, 0]), StaticError, "the size of the result depends on `x`, which is traced"),
    (lambda: ms.is_all_finite([]), SignatureError, "is_all_finite: an operand is missing; at least one is needed"),
    (lambda: ms.is_all_finite([X], isinf_only=1, isnan_only=1), ArgumentError, "`isinf_only` and `isnan_only` are bo"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
