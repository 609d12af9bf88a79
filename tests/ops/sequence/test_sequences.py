"""Sequences and optionals: lists of arrays, static and traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_shape

import jaxops.onnx
from jaxops import ops
from jaxops.errors import (
    ArgumentError,
    AxisError,
    BoundsError,
    DTypeError,
    ShapeError,
    SignatureError,
    SizeError,
    StaticError,
)

A, B, C = (np.full(n, n, np.float32) for n in (1, 2, 3))
X = np.arange(12, dtype=np.float32).reshape(2, 6)


def sizes(items):
    return [item.shape[0] for item in items]


CASES = {
    "construct": (lambda *v: ops.sequence_construct(v), [1, 2, 3]),
    "insert at the end": (lambda *v: ops.sequence_insert(v[:2], v[2]), [1, 2, 3]),
    "insert in front": (lambda *v: ops.sequence_insert(v[:2], v[2], 0), [3, 1, 2]),
    "insert before the last": (lambda *v: ops.sequence_insert(v[:2], v[2], np.array(-1)), [1, 3, 2]),
    "insert behind all": (lambda *v: ops.sequence_insert(v[:2], v[2], 2), [1, 2, 3]),
    "insert into nothing": (lambda *v: ops.sequence_insert(ops.sequence_empty(), v[2]), [3]),
    "erase the last": (lambda *v: ops.sequence_erase(v), [1, 2]),
    "erase": (lambda *v: ops.sequence_erase(v, -3), [2, 3]),
    "at": (lambda *v: [ops.sequence_at(v, 1), ops.sequence_at(v, np.array(-1))], [2, 3]),
    "optional": (lambda *v: ops.optional_get_element(ops.optional(list(v))), [1, 2, 3]),
}


@pytest.mark.parametrize("name", CASES)
def test_value(name):
    fn, expected = CASES[name]
    static = fn(A, B, C)
    assert all(isinstance(item, np.ndarray) for item in static)
    for found in (static, fn(*map(jnp.asarray, (A, B, C))), jax.jit(fn)(A, B, C)):
        assert sizes(found) == expected
        for item in found:
            np.testing.assert_array_equal(item, np.full(item.shape, item.shape[0]))


def test_the_length_is_static_under_jit():
    assert jax.jit(lambda a, b: a.reshape(ops.sequence_length([a, b]), 3))(np.ones(6), A).shape == (2, 3)
    assert ops.sequence_length([]).dtype == np.int64


def test_an_operator_leaves_its_operand_alone():
    items = [A]
    ops.sequence_insert(items, B)
    ops.sequence_erase(items)
    assert sizes(items) == [1]


def test_static_items_stay_static_and_traced_items_traced():
    def f(x):
        one, other = ops.sequence_construct([np.array([7]), x])
        assert isinstance(one, np.ndarray)
        return other.reshape(one)

    assert jax.jit(f)(jnp.arange(7)).shape == (7,)


SPLITS = [
    ({"axis": 1}, [X[:, i : i + 1] for i in range(6)]),
    ({"axis": -1, "keepdims": 0}, [X[:, i] for i in range(6)]),
    ({"split": 4, "axis": 1}, [X[:, :4], X[:, 4:]]),
    ({"split": np.array(3), "axis": 1, "keepdims": 0}, [X[:, :3], X[:, 3:]]),  # keepdims has no part beside split
    ({"split": [1, 0, 5], "axis": 1}, [X[:, :1], X[:, 1:1], X[:, 1:]]),
    ({"split": [2]}, [X]),
]


@pytest.mark.parametrize(("attributes", "expected"), SPLITS, ids=str)
def test_split_to_sequence(attributes, expected):
    for run in (lambda f, x: f(x), jax.jit):
        fn = lambda x: ops.split_to_sequence(x, **attributes)  # noqa: E731
        found = fn(X) if run is not jax.jit else jax.jit(fn)(X)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_split_of_an_empty_axis():
    assert ops.split_to_sequence(X[:0]) == []


def test_concat_from_sequence():
    found = jax.jit(lambda *v: ops.concat_from_sequence(v, axis=-1))(A, B, C)
    np.testing.assert_array_equal(found, np.concatenate([A, B, C]))
    for axis in (-2, -1, 0, 1):
        found = ops.concat_from_sequence([B, B + 1], axis=axis, new_axis=1)
        np.testing.assert_array_equal(found, np.stack([B, B + 1], axis))
    words = ops.concat_from_sequence([np.array(["a"], object), np.array(["b"], object)], axis=0)
    assert words.tolist() == ["a", "b"]


def test_gradients_and_batches():
    def f(x):
        return (ops.concat_from_sequence(ops.split_to_sequence(x, 4), axis=0) ** 2).sum()

    np.testing.assert_array_equal(jax.grad(f)(X[0]), 2 * X[0])
    np.testing.assert_array_equal(jax.vmap(f)(X), (X**2).sum(1))


def test_a_symbolic_batch():
    spec = jax.ShapeDtypeStruct(symbolic_shape("b, 6"), np.float32)
    fn = export(jax.jit(lambda x: ops.concat_from_sequence(ops.split_to_sequence(x, axis=1)[::-1], axis=1)))(spec)
    np.testing.assert_array_equal(fn.call(X), X[:, ::-1])


def test_a_position_of_a_type_that_does_not_hold_the_size():
    spec = jax.ShapeDtypeStruct(symbolic_shape("2*b"), np.float32), jax.ShapeDtypeStruct((), np.int8)
    program = export(jax.jit(lambda x, i: ops.sequence_at(ops.split_to_sequence(x, 2), i)))(*spec)
    assert program.call(np.arange(300, dtype=np.float32), np.int8(100)).tolist() == [200, 201]
    assert program.call(np.arange(300, dtype=np.float32), np.int8(-1)).tolist() == [298, 299]


def test_optionals():
    assert ops.optional(type="tensor(float)") is None
    assert not ops.optional_has_element()
    assert not ops.optional_has_element(None)
    assert ops.optional_has_element([])
    assert jax.jit(lambda x: x if ops.optional_has_element(x) else None)(A) is not None


@pytest.mark.parametrize("opset", [11, 17, 24])
def test_by_opset(opset):
    op = jaxops.onnx.opset(opset)
    items = op.SequenceInsert(op.SequenceConstruct(A, B), C, 0)
    assert sizes(items) == [3, 1, 2]
    assert op.SequenceLength(items) == 3
    assert op.ConcatFromSequence(op.SequenceErase(items), axis=0).tolist() == [3, 3, 3, 1]
    assert op.SequenceAt(op.SplitToSequence(X, np.array([1, 1])), 1).shape == (1, 6)
    assert op.SequenceEmpty(dtype=7) == []


@pytest.mark.parametrize("opset", [15, 18, 28])
def test_optionals_by_opset(opset):
    op = jaxops.onnx.opset(opset)
    assert op.OptionalHasElement(A)
    assert op.OptionalHasElement([A])
    assert op.OptionalGetElement(op.Optional(A)) is A


def test_a_wrong_sequence_is_caught(monkeypatch):
    monkeypatch.setitem(CASES, "wrong", (lambda *v: ops.sequence_erase(v, 0), [1, 2]))
    with pytest.raises(AssertionError):
        test_value("wrong")


ERRORS = [
    (lambda: ops.sequence_construct([]), SignatureError, "`inputs` is empty"),
    (lambda: ops.sequence_construct([A, A > 1]), DTypeError, "one element type, got bool, float32"),
    (lambda: ops.sequence_insert([A], A.astype(int)), DTypeError, "one element type, got float32, int64"),
    (lambda: ops.sequence_insert([A], A, 2), BoundsError, r"`position` is 2, .* 1 item; the range is \[-1, 1\]"),
    (lambda: ops.sequence_at([A], 1), BoundsError, r"`position` is 1, .* the range is \[-1, 0\]"),
    (lambda: ops.sequence_empty(dtype=1), DTypeError, "sequence_empty: `dtype` is 1; it must be an element type"),
    (lambda: ops.sequence_erase([]), BoundsError, "0 items; the range is empty"),
    (lambda: ops.sequence_at(A, 0), DTypeError, "must be a sequence .*, got ndarray"),
    (lambda: jax.jit(lambda i: ops.sequence_at([A], i))(0), StaticError, "sequence_at: `position` must be known"),
    (lambda: ops.split_to_sequence(X, 0), ArgumentError, "`split` is 0; the length of a piece must be at least 1"),
    (lambda: ops.split_to_sequence(X, [1, 2]), ShapeError, "split_to_sequence: lengths"),
    (lambda: ops.split_to_sequence(X, axis=2), AxisError, "split_to_sequence: `axis` is 2"),
    (lambda: ops.split_to_sequence(X, keepdims=2), ArgumentError, "`keepdims` is 2"),
    (
        lambda: export(jax.jit(lambda x: ops.sequence_erase(ops.split_to_sequence(x))))(
            jax.ShapeDtypeStruct(symbolic_shape("b"), np.float32)
        ),
        SizeError,
        "sequence_erase: the length of the sequence is unknown, as an axis of size b is split into pieces of 1",
    ),
    (
        lambda: export(jax.jit(lambda x: ops.concat_from_sequence(ops.split_to_sequence(x, 3), axis=0, new_axis=1)))(
            jax.ShapeDtypeStruct(symbolic_shape("b"), np.float32)
        ),
        SizeError,
        "concat_from_sequence: all arrays must have one length, but b is not always a multiple of 3",
    ),
    (lambda: ops.concat_from_sequence([], axis=0), ArgumentError, "the sequence is empty"),
    (lambda: ops.concat_from_sequence([A, A], axis=1), AxisError, "concat_from_sequence: `axis` is 1"),
    (lambda: ops.optional(), SignatureError, "give `input`, or the `type`"),
    (lambda: ops.optional_get_element(None), ArgumentError, "the optional is empty"),
    (lambda: jaxops.onnx.opset(11).SequenceEmpty(dtype=99), ArgumentError, "`dtype` is 99"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
