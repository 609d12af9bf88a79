"""OpenVINO's VariadicSplit-1: values, every integer type for axis and lengths, and what is refused."""

import inspect
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxops
import jaxops.openvino
from jaxops.errors import AxisError, DTypeError, JaxopsError, ShapeError, StaticError
from jaxops.openvino import opset1

X = np.arange(12, dtype=np.float32).reshape(6, 2)
INTEGERS = ["int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]

VALUES = [
    (0, (1, 2, 3), [X[:1], X[1:3], X[3:]]),
    (0, (1, -1, 3), [X[:1], X[1:3], X[3:]]),
    (-1, (1, 1), [X[:, :1], X[:, 1:]]),
    (-2, [-1], [X]),
    (1, np.array([2, -1]), [X, X[:, 2:]]),  # 0 is a legal remainder
    (0, (0, 6, 0), [X[:0], X, X[:0]]),
    (np.array([0]), (6,), [X]),
    (np.array([-1]), (-1, 2), [X[:, :0], X]),
    (np.array(1), (1, 1), [X[:, :1], X[:, 1:]]),
]


def eager(axis, lengths):
    return opset1.VariadicSplit(jnp.array(X), axis, lengths)


def static(axis, lengths):
    return opset1.VariadicSplit(X, axis, lengths)


def jitted(axis, lengths):
    return jax.jit(lambda x: opset1.VariadicSplit(x, axis, lengths))(X)


@pytest.mark.parametrize("run", [eager, static, jitted])
@pytest.mark.parametrize(("axis", "lengths", "expected"), VALUES)
def test_value(axis, lengths, expected, run):
    results = run(axis, lengths)
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(result), value)
        assert (result.shape, result.dtype) == (value.shape, value.dtype)


@pytest.mark.parametrize("lengths_type", INTEGERS)
@pytest.mark.parametrize("axis_type", INTEGERS)
def test_every_integer_type_for_axis_and_lengths(axis_type, lengths_type):
    for shape in ((), (1,)):
        axis = np.ones(shape, jnp.dtype(axis_type))
        pieces = opset1.VariadicSplit(X, axis, np.array([1, 1]).astype(jnp.dtype(lengths_type)))
        assert [p.shape for p in pieces] == [(6, 1), (6, 1)]
        if not lengths_type.startswith("u"):
            pieces = opset1.VariadicSplit(X, axis, np.array([-1, 1]).astype(jnp.dtype(lengths_type)))
            assert [p.shape for p in pieces] == [(6, 1), (6, 1)]


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "float16", "bfloat16", "complex64", "int4", "float8_e4m3fn", "object"]
)
def test_data_of_any_type(dtype):
    x = np.array(["a", "b"], object) if dtype == "object" else np.array([1, 0]).astype(jnp.dtype(dtype))
    first, second = opset1.VariadicSplit(x, 0, (1, -1))
    assert (first.dtype, second.dtype) == (x.dtype, x.dtype)
    assert (first[0], second[0]) == (x[0], x[1])


def test_concrete_jax_arrays_are_known():
    pieces = opset1.VariadicSplit(jnp.array(X), jnp.array(0), jnp.array([2, 4]))
    assert [p.shape for p in pieces] == [(2, 2), (4, 2)]


def test_no_lengths_at_all_are_for_an_empty_axis():
    assert opset1.VariadicSplit(X[:0], 0, ()) == ()
    with pytest.raises(ShapeError, match=r"lengths \(\) sum to 0, but the axis has size 6"):
        opset1.VariadicSplit(X, 0, ())


REFUSED = [
    (0, (7, -1), ShapeError, r"lengths \(7, -1\) take 7, more than the axis of size 6 has"),
    (0, (-1, 3, 4), ShapeError, r"take 7, more than the axis of size 6 has"),
    (0, (1, 2), ShapeError, r"lengths \(1, 2\) sum to 3, but the axis has size 6"),
    (0, (-1, -1), ShapeError, r"\(-1, -1\) has -1 at positions 0 and 1; only one is allowed"),
    (0, (8, -2), ShapeError, r"length -2 at position 1 of \(8, -2\) is negative"),
    (0, np.array([2**63, 2**63 + 6], np.uint64), ShapeError, "sum to 18446744073709551622, but the axis has size 6"),
    (0, np.array([2**63 - 1, -1]), ShapeError, "take 9223372036854775807, more than the axis"),
    (0, [2**64, -1], ShapeError, "take 18446744073709551616, more than the axis"),
    (2, (-1,), AxisError, r"`axis` is 2, but the operand has 2 axes; the range is \[-2, 1\]"),
    (-3, (-1,), AxisError, "`axis` is -3, but the operand has 2 axes"),
    (2**64, (-1,), AxisError, "`axis` is 18446744073709551616"),
    (np.zeros((1, 1), int), (-1,), ShapeError, "`axis` must hold one integer"),
    (np.zeros(0, int), (-1,), ShapeError, "`axis` must hold one integer"),
    (np.array([0, 0]), (-1,), ShapeError, "`axis` must hold one integer"),
    (0, 6, ShapeError, "`split_lengths` must be 1-D, but has 0 axes"),
    (0, np.array([[6]]), ShapeError, "`split_lengths` must be 1-D, but has 2 axes"),
    (0, [[6]], ShapeError, "`split_lengths` must hold one integer per item"),
    (0.0, (-1,), DTypeError, "`axis` must be integers, got float64"),
    (True, (-1,), DTypeError, "`axis` must be integers, got bool"),
    (np.array([0.0]), (-1,), DTypeError, "`axis` must be integers, got float64"),
    (0, (6.0,), DTypeError, "`split_lengths` must be integers, got float64"),
    (0, np.array([6], np.float32), DTypeError, "`split_lengths` must be integers, got float32"),
    (0, (True, -1), DTypeError, "`split_lengths` must be integers, got bool"),
    (0, np.array([True]), DTypeError, "`split_lengths` must be integers, got bool"),
    (0, ["6"], DTypeError, "`split_lengths` must be integers, got str"),
]


@pytest.mark.parametrize(("axis", "lengths", "error", "text"), REFUSED)
def test_refused(axis, lengths, error, text):
    for data in (X, jnp.array(X)):
        with pytest.raises(error, match=text) as raised:
            opset1.VariadicSplit(data, axis, lengths)
        assert isinstance(raised.value, JaxopsError)


def test_a_scalar_has_no_axis():
    with pytest.raises(AxisError, match="the operand has 0 axes; the range is empty"):
        opset1.VariadicSplit(np.float32(1), 0, (1,))


@pytest.mark.parametrize("operand", ["axis", "split_lengths"])
def test_traced_operands_say_what_to_do(operand):
    given = {"axis": 0, "split_lengths": np.array([6])}
    with pytest.raises(StaticError, match=rf"variadic_split: `{operand}` must be known while tracing(.|\n)*hint"):
        jax.jit(lambda v: opset1.VariadicSplit(X, **{**given, operand: v}))(given[operand])


def test_keywords_hash_under_static_argnames():
    split = jax.jit(opset1.VariadicSplit, static_argnames=("axis", "split_lengths"))
    assert [p.shape for p in split(X, axis=0, split_lengths=(1, -1))] == [(1, 2), (5, 2)]


def test_grad_vmap_and_symbolic_export():
    grad = jax.grad(lambda x: opset1.VariadicSplit(x, 0, (1, -1))[1].sum())(jnp.array(X))
    np.testing.assert_array_equal(grad, np.r_[np.zeros((1, 2)), np.ones((5, 2))])
    first, _ = jax.vmap(lambda x: opset1.VariadicSplit(x, 0, (1, -1)))(X)
    assert first.shape == (6, 1)
    (dim,) = export.symbolic_shape("b", constraints=["b >= 2"])
    exported = export.export(jax.jit(lambda x: opset1.VariadicSplit(x, 0, (2, -1))))(
        jax.ShapeDtypeStruct((dim, 2), jnp.float32)
    )
    assert [str(a.shape) for a in exported.out_avals] == ["(2, 2)", "(b - 2, 2)"]
    np.testing.assert_array_equal(exported.call(X)[1], X[2:])


def test_both_names_are_one_function_as_the_public_one_takes_its_operands():
    assert opset1.VariadicSplit is opset1.variadic_split
    assert jaxops.openvino.opset1 is opset1
    names = list(inspect.signature(opset1.VariadicSplit).parameters)
    assert names == ["data", "axis", "split_lengths"] == list(inspect.signature(jaxops.variadic_split).parameters)
    assert "OpenVINO VariadicSplit-1" in opset1.VariadicSplit.__doc__


def test_it_needs_no_onnx():
    code = "import sys; import jaxops.openvino; print([m for m in sys.modules if m.split('.')[-1] == 'onnx'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
