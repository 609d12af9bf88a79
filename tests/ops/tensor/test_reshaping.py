"""Reshape, Flatten and their kin: values in every way an operator can be run, programs, errors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Case, data, equations, name, program, same, table
from hypothesis import given, settings, strategies as st
from jax import lax
from jax.export import export, symbolic_args_specs

import jaxops as jo
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, StaticError

X = data(2, 3, 4)
INTS = data(2, 3, 4, dtype=np.int32)


def reshape(shape, x=X, out=None, symbolic=None, **attributes):
    expected = x.reshape(shape if out is None else out)
    return Case(f"reshape/{x.shape}->{shape}", partial(_reshape, shape, attributes), (x,), expected, symbolic)


def _reshape(shape, attributes, x):
    return jo.reshape(x, shape, **attributes)


def flatten(axis, out, x=X, symbolic=None):
    return Case(f"flatten/{x.shape} at {axis}", lambda v: jo.flatten(v, axis=axis), (x,), x.reshape(out), symbolic)


def case(title, fn, x, expected, symbolic=None):
    return Case(title, fn, (x,), expected, symbolic)


CASES = [
    reshape((6, 4)),
    reshape((4, 3, 2), x=INTS),
    reshape((0, -1), out=(2, 12), symbolic=("b, c, 4",)),
    reshape((0, 0, -1), out=(2, 3, 4), symbolic=("b, c, d",)),
    reshape((-1, 4), out=(6, 4), symbolic=("b, c, 4",)),
    reshape((-1,), out=(24,), symbolic=("b, c, d",)),
    reshape((2, -1, 2), symbolic=("b, 3, 4",), out=(2, 6, 2)),
    reshape((3, 0, 8), x=data(4, 2, 6), out=(3, 2, 8)),
    reshape((), x=data(1)),
    reshape((), x=data(1, 1, 1)),
    reshape((1, 1), x=data()),
    reshape((-1,), x=data(), out=(1,)),
    reshape((0, 0), x=data(0, 3), out=(0, 3)),
    reshape((0, 3), x=data(3, 0), allowzero=1),
    reshape((3, 0), x=data(0, 3), allowzero=1),
    reshape((0, 2), x=data(0, 2), allowzero=1),
    reshape((5, 0, 2), x=data(3, 0), allowzero=True),
    reshape((2, -1), x=data(0, 2), out=(2, 0)),
    reshape((2, -1, 3), x=data(3, 0), out=(2, 0, 3)),
    flatten(0, (1, 24), symbolic=("b, c, d",)),
    flatten(1, (2, 12), symbolic=("b, c, d",)),
    flatten(2, (6, 4), symbolic=("b, c, d",)),
    flatten(3, (24, 1), symbolic=("b, c, d",)),
    flatten(-1, (6, 4)),
    flatten(-2, (2, 12), x=INTS),
    flatten(-3, (1, 24)),
    flatten(0, (1, 1), x=data()),
    flatten(1, (5, 1), x=data(5), symbolic=("b",)),
    flatten(-1, (1, 5), x=data(5)),
    flatten(1, (2, 0), x=data(2, 0, 4), symbolic=None),
    flatten(2, (0, 4), x=data(2, 0, 4)),
    flatten(1, (0, 3), x=data(0, 3)),
    flatten(0, (1, 0), x=data(0, 3)),
    case("identity", jo.identity, X, X, ("b, c, 4",)),
    case("identity/0-d", jo.identity, data(), data()),
    case("squeeze/all", jo.squeeze, data(1, 3, 1), data(3)),
    case("squeeze/nothing to drop", jo.squeeze, X, X),
    case("squeeze/one", lambda x: jo.squeeze(x, (0,)), data(1, 3, 1), data(3, 1), ("1, b, 1",)),
    case("squeeze/negative", lambda x: jo.squeeze(x, (-1, 0)), data(1, 3, 1), data(3), ("1, b, 1",)),
    case("squeeze/no axes", lambda x: jo.squeeze(x, ()), data(1, 3), data(1, 3)),
    case("squeeze/empty", lambda x: jo.squeeze(x, (1,)), data(0, 1), data(0)),
    case("squeeze/0-d", jo.squeeze, data(), data()),
    case("unsqueeze/both ends", lambda x: jo.unsqueeze(x, (0, -1)), X, X[None, ..., None], ("b, c, d",)),
    case("unsqueeze/any order", lambda x: jo.unsqueeze(x, (3, 0)), X, X[None, :, :, None], ("b, c, d",)),
    case("unsqueeze/0-d", lambda x: jo.unsqueeze(x, (0, 1)), data(), data(1, 1)),
    case("unsqueeze/a single integer", lambda x: jo.unsqueeze(x, -1), X, X[..., None]),
    case("unsqueeze/a scalar array", lambda x: jo.unsqueeze(x, np.array(0)), X, X[None]),
    case("unsqueeze/no axes", lambda x: jo.unsqueeze(x, ()), X, X),
    case("unsqueeze/empty", lambda x: jo.unsqueeze(x, (1,)), data(0, 2), data(0, 1, 2)),
    case("transpose/reversed", jo.transpose, X, X.T.copy(), ("b, c, d",)),
    case("transpose/perm", lambda x: jo.transpose(x, perm=(2, 0, 1)), X, np.moveaxis(X, 2, 0), ("b, c, d",)),
    case("transpose/ints", lambda x: jo.transpose(x, perm=[1, 0, 2]), INTS, INTS.swapaxes(0, 1)),
    case("transpose/0-d", jo.transpose, data(), data()),
    case("transpose/0-d perm", lambda x: jo.transpose(x, perm=()), data(), data()),
    case("transpose/empty", jo.transpose, data(0, 3), data(3, 0)),
    case("expand/rows", lambda x: jo.expand(x, (2, 3)), data(3), np.stack([data(3)] * 2), ("3",)),
    case("expand/both", lambda x: jo.expand(x, (2, 1, 4)), data(3, 1), np.tile(data(3, 1), (2, 1, 4)), ("b, 1",)),
    case("expand/smaller shape", lambda x: jo.expand(x, (1,)), X, X, ("b, c, d",)),
    case("expand/empty shape", lambda x: jo.expand(x, ()), X, X),
    case("expand/0-d", lambda x: jo.expand(x, (2, 2)), data(), np.ones((2, 2), np.float32)),
    case("expand/to nothing", lambda x: jo.expand(x, (0, 3)), data(1, 3), data(0, 3)),
    case("expand/of nothing", lambda x: jo.expand(x, (2, 1, 1)), data(0, 3), data(2, 0, 3)),
    # A tail of shape arithmetic in front of each: symbolic sizes travel in NumPy.
    case("reshape/by shape", lambda x: jo.reshape(x, jo.shape(x)[::-1]), X, X.reshape(4, 3, 2), ("b, c, d",)),
    case("reshape/by size", lambda x: jo.reshape(x, (jo.size(x),)), X, X.ravel(), ("b, c, d",)),
    case("expand/by shape", lambda x: jo.expand(x[:1], jo.shape(x)), data(3, 2), data(3, 2)[[0, 0, 0]], ("b, 2",)),
]


@pytest.mark.grid
@pytest.mark.parametrize(("way", "case"), table(CASES), ids=name)
def test_value(way, case):
    way(case)


OPERANDS = [(2, 12), [2, 12], np.array([2, 12]), np.array([2, 12], np.int8), np.array([2, 12], np.uint64),
            (np.int32(2), np.uint8(12)), [np.array(2), np.array([12])[0]], range(2, 13, 10),
            np.array([2, 12], object), np.array([2, 12], jnp.int8)]  # fmt: skip


@pytest.mark.parametrize("shape", OPERANDS, ids=repr)
def test_any_integers_are_a_shape(shape):
    same(jo.reshape(X, shape), X.reshape(2, 12))
    same(jax.jit(lambda x: jo.reshape(x, shape))(X), X.reshape(2, 12))


def test_concrete_jax_arrays_are_static():
    x = jnp.asarray(X)
    same(jo.reshape(x, jnp.array([2, 12])), X.reshape(2, 12))
    same(jo.reshape(x, (jnp.array(2), 12)), X.reshape(2, 12))
    same(jo.flatten(x, axis=jnp.array(2)), X.reshape(6, 4))
    same(jo.flatten(x, axis=np.array([2])), X.reshape(6, 4))
    same(jo.unsqueeze(x, jnp.array([0])), X[None])
    same(jo.transpose(x, perm=jnp.array([2, 1, 0])), X.T)


def test_sub_byte_integers_are_a_shape():
    same(jo.reshape(X, np.array([3, -1], jnp.int4)), X.reshape(3, 8))
    same(jo.reshape(X[:, :1, :1], jnp.array([1, -1], jnp.int2)), X[:, :1, :1].reshape(1, 2))


def test_python_values_are_data():
    same(jo.reshape([1, 2, 3, 4], (2, 2)), np.array([[1, 2], [3, 4]]))
    same(jo.flatten(np.float32(3), axis=0), np.full((1, 1), 3, np.float32))


@pytest.mark.parametrize(
    ("fn", "attributes", "expected"),
    [
        (jo.reshape, {"shape": (0, -1), "allowzero": 0}, X.reshape(2, 12)),
        (jo.flatten, {"axis": 2}, X.reshape(6, 4)),
        (jo.squeeze, {"axes": None}, X),
        (jo.unsqueeze, {"axes": (0,)}, X[None]),
        (jo.transpose, {"perm": (2, 1, 0)}, X.T),
        (jo.expand, {"shape": (2, 1, 1, 1)}, np.stack([X, X])),
    ],
    ids=name,
)
def test_attributes_as_static_argnames(fn, attributes, expected):
    same(jax.jit(fn, static_argnames=tuple(attributes))(X, **attributes), expected)


@pytest.mark.parametrize(
    ("ours", "bare"),
    [
        (lambda x: jo.reshape(x, (0, -1)), lambda x: lax.reshape(x, (2, 12))),
        (lambda x: jo.flatten(x, axis=2), lambda x: lax.reshape(x, (6, 4))),
        (lambda x: jo.unsqueeze(x, (0,)), lambda x: lax.expand_dims(x, (0,))),
        (lambda x: jo.squeeze(x[:1], (0,)), lambda x: lax.squeeze(x[:1], (0,))),
        (lambda x: jo.transpose(x, perm=(1, 0, 2)), lambda x: lax.transpose(x, (1, 0, 2))),
        (lambda x: jo.expand(x, (5, 1, 1, 1)), lambda x: lax.broadcast_in_dim(x, (5, 2, 3, 4), (1, 2, 3))),
        (jo.identity, lambda x: x),
        (lambda x: jo.expand(x, (1,)), lambda x: x),
    ],
)
def test_jaxpr_is_the_lax_call(ours, bare):
    assert str(jax.make_jaxpr(ours)(X)) == str(jax.make_jaxpr(bare)(X))
    assert equations(ours, X) == equations(bare, X)


@pytest.mark.parametrize("shape", [(2, 3, 4), (8, 16, 32)])
@pytest.mark.parametrize(
    "move",
    [lambda x: jo.reshape(x, (0, -1)), jo.flatten, lambda x: jo.reshape(x, (-1,))],
    ids=["0,-1", "flatten", "-1"],
)
def test_hlo_moves_nothing(move, shape):
    text = program(lambda x: jnp.exp(move(jnp.sin(x) * 2)) + 1, shape)
    assert "exponential" in text
    for instruction in (" copy(", " transpose(", " copy-start("):
        assert instruction not in text, text


def test_hlo_assertion_can_fail():
    assert " transpose(" in program(lambda x: jnp.exp(jo.transpose(x) @ x), (64, 64)) or " copy(" in program(
        lambda x: jo.transpose(x), (64, 32)
    )


def test_static_reshape_to_a_symbolic_shape_is_traced():
    def fn(x):
        return jo.reshape(np.zeros((0, 3), np.float32), (0, x.shape[0], 3), allowzero=1)

    x = jnp.zeros((5, 2))
    made = export(jax.jit(fn))(*symbolic_args_specs([x], ["b, 2"]))
    assert made.call(x).shape == (0, 5, 3)


def test_flatten_of_symbolic_sizes():
    made = export(jax.jit(jo.flatten))(*symbolic_args_specs([jnp.zeros((2, 3, 4, 5))], ["b, c, h, w"]))
    assert str(made.out_avals[0].shape) == "(b, c*h*w)"


STRINGS = np.array([["a", "bc"], ["", "d"]], object)


@pytest.mark.parametrize("strings", [STRINGS, STRINGS.astype(str), STRINGS.astype("T")], ids=["object", "U", "T"])
def test_strings_stay_static(strings):
    same(jo.reshape(strings, (-1,)), strings.reshape(-1))
    same(jo.flatten(strings, axis=0), strings.reshape(1, 4))
    same(jo.identity(strings), strings)
    same(jo.unsqueeze(strings, (0,)), strings[None])
    same(jo.squeeze(strings[:1], (0,)), strings[0])
    same(jo.transpose(strings), strings.T)
    same(jo.expand(strings, (2, 1, 1)), np.stack([strings, strings]))


ERRORS = [
    (lambda x: jo.reshape(x, (5, 5)), ShapeError, r"reshape: `shape` \(5, 5\) .* \(2, 3, 4\): data has 24 .* has 25"),
    (lambda x: jo.reshape(x, ()), ShapeError, r"data has 24 elements, \(\) has 1"),
    (lambda x: jo.reshape(x, (-1, -1)), ShapeError, r"-1 is at positions 0 and 1; only one can be inferred"),
    (lambda x: jo.reshape(x, (2, -2)), ShapeError, r"-2 at position 1 is negative; only -1"),
    (lambda x: jo.reshape(x, (2, 3, 4, 0)), ShapeError, r"0 at position 3 .* 3 axes; .* pass allowzero=1"),
    (lambda x: jo.reshape(x, (0, -1), allowzero=1), ShapeError, r"allowzero=1 it cannot have both 0 and -1"),
    (lambda x: jo.reshape(x[:, :0], (0, 0, -1)), ShapeError, r"have the product 0, so -1 cannot be inferred"),
    (lambda x: jo.reshape(x, (5, -1)), ShapeError, r"24 elements are not a multiple of 5"),
    (lambda x: jo.reshape(x, (0, 0, 0), allowzero=1), ShapeError, r"\(0, 0, 0\) has 0"),
    (lambda x: jo.reshape(x, (6, 4), allowzero=2), ArgumentError, r"`allowzero` is 2; it must be 0 or 1"),
    (lambda x: jo.reshape(x, (6, 4), allowzero=-1), ArgumentError, r"`allowzero` is -1"),
    (lambda x: jo.reshape(x, (6, 4), allowzero=1.0), DTypeError, r"`allowzero` must be integers, got float64"),
    (lambda x: jo.reshape(x, 24), ShapeError, r"`shape` must be 1-D, but has 0 axes"),
    (lambda x: jo.reshape(x, np.array([[24]])), ShapeError, r"`shape` must be 1-D, but has 2 axes"),
    (lambda x: jo.reshape(x, [[24]]), ShapeError, r"`shape` must hold one integer per item\n  shape   \[24\]"),
    (lambda x: jo.reshape(x, (6.0, 4)), DTypeError, r"`shape` must be integers, got float64"),
    (lambda x: jo.reshape(x, np.array([6.0, 4.0])), DTypeError, r"float64\[2\] \[6. 4.\]"),
    (lambda x: jo.reshape(x, (True,)), DTypeError, r"must be integers, got bool"),
    (lambda x: jo.reshape(x, np.array([True])), DTypeError, r"must be integers, got bool"),
    (lambda x: jo.reshape(x, ("24",)), DTypeError, r"must be integers, got str"),
    (lambda x: jo.reshape(x, (None,)), DTypeError, r"must be integers, got object"),
    (lambda x: jo.reshape(x, np.array([2**64 - 1], np.uint64)), ShapeError, r"has 18446744073709551615"),
    (lambda x: jo.reshape(x, np.array([2**63 + 24], np.uint64)), ShapeError, r"has 9223372036854775832"),
    (lambda x: jo.reshape(x[:0], (0, 2**40, 2**40), allowzero=1), ShapeError, r"more elements than an int64"),
    (lambda x: jo.flatten(x, axis=4), AxisError, r"flatten: `axis` is 4, .* has 3 axes; the range is \[-3, 3\]"),
    (lambda x: jo.flatten(x, axis=-4), AxisError, r"`axis` is -4"),
    (lambda x: jo.flatten(x[0, 0, 0], axis=1), AxisError, r"has 0 axes; the range is \[0, 0\]"),
    (lambda x: jo.flatten(x, axis=1.0), DTypeError, r"flatten: `axis` must be integers, got float64"),
    (lambda x: jo.flatten(x, axis=True), DTypeError, r"flatten: `axis` must be integers, got bool"),
    (lambda x: jo.flatten(x, axis=(1, 2)), ShapeError, r"flatten: `axis` must hold one integer"),
    (lambda x: jo.squeeze(x, (0,)), ShapeError, r"squeeze: axis 0 of \(2, 3, 4\) has size 2, only size 1"),
    (lambda x: jo.squeeze(x[:0], (0,)), ShapeError, r"has size 0, only size 1 can be dropped"),
    (lambda x: jo.squeeze(x, (3,)), AxisError, r"squeeze: `axes` is 3, .* \[-3, 2\]"),
    (lambda x: jo.squeeze(x[:1], (0, -3)), AxisError, r"squeeze: `axes` names an axis twice: \(0, 0\) of 3 axes"),
    (lambda x: jo.squeeze(x, np.array([[0]])), ShapeError, r"`axes` must be 1-D, but has 2 axes"),
    (lambda x: jo.squeeze(x, True), DTypeError, r"`axes` must be integers, got bool"),
    (lambda x: jo.squeeze(x, 0.0), DTypeError, r"`axes` must be integers, got float64"),
    (lambda x: jo.squeeze(x[0, 0, 0], (0,)), AxisError, r"the range is empty: it is a scalar"),
    (lambda x: jo.unsqueeze(x, (4,)), AxisError, r"unsqueeze: `axes` is 4, .* has 4 axes; .* \[-4, 3\]"),
    (lambda x: jo.unsqueeze(x, (0, -5)), AxisError, r"names an axis twice"),
    (lambda x: jo.transpose(x, perm=(0, 1)), AxisError, r"`perm` \(0, 1\) is not a permutation of the 3 axes"),
    (lambda x: jo.transpose(x, perm=(0, 1, 1)), AxisError, r"`perm` \(0, 1, 1\) is not a permutation"),
    (lambda x: jo.transpose(x, perm=(0, 1, -1)), AxisError, r"`perm` \(0, 1, -1\) is not a permutation"),
    (lambda x: jo.expand(x, (5, 1, 1)), ShapeError, r"expand: shapes \(2, 3, 4\) and \(5, 1, 1\) do not broadcast"),
    (lambda x: jo.expand(x, (0, 1, 1)), ShapeError, r"do not broadcast"),
    (lambda x: jo.expand(x, (-1, 1, 1)), ArgumentError,
     r"expand: `shape` \(-1, 1, 1\) holds -1; sizes must not be neg"),
    (lambda x: jo.expand(x[:1, :1, :1], (2**20, 2**43, 1)), ShapeError, r"more elements than an int64 can count"),
]  # fmt: skip


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["static", "traced"])
@pytest.mark.parametrize(("fn", "error", "match"), ERRORS, ids=[f"{i}" for i in range(len(ERRORS))])
def test_error(fn, error, match, kind):
    with pytest.raises(error, match=match):
        fn(kind(X))


@pytest.mark.parametrize(
    ("fn", "operand"),
    [
        (lambda x, n: jo.reshape(x, n), "shape"),
        (lambda x, n: jo.reshape(x, (n[0], 12)), "shape"),
        (lambda x, n: jo.reshape(x, (24,), allowzero=n[0]), "allowzero"),
        (lambda x, n: jo.flatten(x, axis=n[0]), "axis"),
        (lambda x, n: jo.squeeze(x, n), "axes"),
        (lambda x, n: jo.unsqueeze(x, n), "axes"),
        (lambda x, n: jo.transpose(x, perm=n), "perm"),
        (lambda x, n: jo.expand(x, n), "shape"),
    ],
)
def test_traced_where_static_is_needed(fn, operand):
    match = (
        rf"`{operand}` must be known while tracing, but it is traced\n  {operand} .*int32.*\n  hint    give `{operand}`"
    )
    with pytest.raises(StaticError, match=match):
        jax.jit(fn)(X, np.array([2, 12]))
    with pytest.raises(StaticError, match=match):  # a concrete operand beside a traced attribute
        jax.vmap(lambda n: fn(jnp.asarray(X), n))(jnp.array([[2, 12]]))


SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@settings(deadline=None, max_examples=200)
@given(SHAPES, st.data())
def test_reshape_is_numpy_reshape(shape, draw):
    """Any factors in any order, some hidden behind 0 and -1, against NumPy without those."""
    x = data(*shape)
    target = draw.draw(st.permutations(shape))
    written = [
        0 if i < len(shape) and size == shape[i] and draw.draw(st.booleans()) else size for i, size in enumerate(target)
    ]
    rest = int(np.prod(list(target[:-1])))
    if written and rest and draw.draw(st.booleans()):
        written[-1] = -1
    if all(s != 0 or (i < len(shape) and shape[i] == target[i]) for i, s in enumerate(written)):
        same(jo.reshape(x, written), x.reshape(target))
    same(jo.reshape(x, tuple(target), allowzero=1), x.reshape(target))


@settings(deadline=None, max_examples=100)
@given(SHAPES, st.integers(-5, 5))
def test_flatten_is_two_products(shape, axis):
    x, rank = data(*shape), len(shape)
    if not -rank <= axis <= rank:
        with pytest.raises(AxisError):
            jo.flatten(x, axis=axis)
        return
    at = axis % rank if axis < 0 else axis
    same(jo.flatten(x, axis=axis), x.reshape(int(np.prod(shape[:at])), int(np.prod(shape[at:]))))


@settings(deadline=None, max_examples=100)
@given(SHAPES, SHAPES)
def test_expand_is_numpy_broadcasting(shape, target):
    try:
        out = np.broadcast_shapes(shape, target)
    except ValueError:
        with pytest.raises(ShapeError, match="do not broadcast"):
            jo.expand(data(*shape), target)
        return
    same(jo.expand(data(*shape), target), np.broadcast_to(data(*shape), out).copy())
