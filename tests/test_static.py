"""What is known while tracing: conversions, `jit_if_concrete`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import symbolic_shape

import jaxops as jo
from jaxops import attributes, static
from jaxops.errors import AxisError, DTypeError, ShapeError, StaticError

(b,) = symbolic_shape("b")

INTS = [
    (((1, -2)), (1, -2)),
    ([1, 2], (1, 2)),
    ((), ()),
    ([], ()),
    (np.zeros(0), ()),
    (range(3), (0, 1, 2)),
    (np.array([1, 2]), (1, 2)),
    (np.array([1, 2], np.uint8), (1, 2)),
    (np.array([2**64 - 1], np.uint64), (2**64 - 1,)),
    (np.array([-(2**63)]), (-(2**63),)),
    (np.array([1, -2], jnp.int4), (1, -2)),
    (np.array([1, 2], object), (1, 2)),
    (np.array([b, 2], object), (b, 2)),
    ([b, np.int64(3)], (b, 3)),
    ((np.int32(1), np.array(2), np.array([3]), jnp.array(4)), None),
    ((np.int32(1), np.array(2), jnp.array(4)), (1, 2, 4)),
    (jnp.array([1, 2]), (1, 2)),
]


@pytest.mark.parametrize(("value", "expected"), INTS, ids=lambda v: repr(v)[:40])
def test_ints(value, expected):
    if expected is None:
        with pytest.raises(ShapeError, match=r"`sizes` must hold one integer per item\n  sizes   int64\[1\] \[3\]"):
            attributes.ints("sizes", value)
        return
    found = attributes.ints("sizes", value)
    assert found == expected
    assert all(type(v) is int or static.is_symbolic(v) for v in found)
    hash(found)


@pytest.mark.parametrize("value", [3, np.int8(3), np.array(3), np.array([3]), jnp.array(3), [3], np.array([3], object)])
def test_integer(value):
    assert attributes.integer("axis", value) == 3
    assert type(attributes.integer("axis", value)) is int


WRONG = [
    (2.0, DTypeError, "must be integers, got float64"),
    (True, DTypeError, "must be integers, got bool"),
    (np.True_, DTypeError, "must be integers, got bool"),
    (1j, DTypeError, "must be integers, got complex128"),
    ("1", DTypeError, "must be integers, got str"),
    (b"1", DTypeError, "must be integers, got bytes"),
    (None, DTypeError, "must be integers, got object"),
    (np.array([1.5], object), DTypeError, "must be integers, got object"),
    (np.array([True], object), DTypeError, "must be integers, got object"),
    (np.array(["1"], object), DTypeError, "must be integers, got object"),
    (np.datetime64(3, "s"), DTypeError, "must be integers, got datetime64"),
    (np.timedelta64(3, "s"), DTypeError, "must be integers, got timedelta64"),
    ((1, 2), ShapeError, r"must hold one integer\n  axis    \(1, 2\)"),
    ((), ShapeError, "must hold one integer"),
    (np.zeros((1, 1), int), ShapeError, "must hold one integer"),
]


@pytest.mark.parametrize(("value", "error", "match"), WRONG, ids=lambda v: repr(v)[:40])
def test_integer_errors(value, error, match):
    with pytest.raises(error, match=match):
        attributes.integer("axis", value)


@pytest.mark.parametrize(
    ("value", "match"), [(2, "has 0 axes"), ("12", "has 0 axes"), (None, "0 axes"), ({1}, "0 axes")]
)
def test_ints_need_one_axis(value, match):
    with pytest.raises(ShapeError, match=f"`sizes` must be 1-D, but .*{match}"):
        attributes.ints("sizes", value)


ONE = [1, np.int32(1), np.array(1), jnp.array(1), np.array(1, object), np.array(1, jnp.int4), b]


@pytest.mark.parametrize("value", ONE, ids=repr)
def test_one_integer_names_one_axis(value):
    assert attributes.ints("axes", value, single=True) == (value if value is b else 1,)
    with pytest.raises(ShapeError, match="`axes` must be 1-D"):
        attributes.ints("axes", value)
    if value is not b:
        assert attributes.axes(value, 3) == (1,)


CALLS_WITH_ONE = [
    (lambda x, i, n: jo.reduce_sum(x, i), lambda x: x.sum(0, keepdims=True)),
    (lambda x, i, n: jo.reduce_max(x, i, keepdims=0), lambda x: x.max(0)),
    (lambda x, i, n: jo.squeeze(x, i), lambda x: x[0]),
    (lambda x, i, n: jo.unsqueeze(x, i), lambda x: x[None]),
    (lambda x, i, n: jo.expand(x, n), lambda x: np.repeat(x, 2, 1)),
    (lambda x, i, n: jo.tile(x[0], n), lambda x: np.tile(x[0], 2)),
    (lambda x, i, n: jo.pad(x, (1, 0), axes=i), lambda x: np.pad(x, ((1, 0), (0, 0)))),
    (lambda x, i, n: jo.center_crop_pad(x, (3,), axes=i), lambda x: np.pad(x, ((1, 1), (0, 0)))),
]


@pytest.mark.parametrize("zero", [0, np.int8(0), np.array(0), jnp.array(0)], ids=repr)
@pytest.mark.parametrize(("call", "expected"), CALLS_WITH_ONE)
def test_operators_take_one_integer(call, expected, zero):
    x, two = np.array([[3]]), zero + 2
    assert call(x, zero, two).tolist() == expected(x).tolist()
    assert jax.jit(lambda x: call(x, zero, two))(x).tolist() == expected(x).tolist()


def test_tracers_are_refused():
    hint = (
        r"`n` must be known while tracing, but it is traced\n  n       int32\[\]\n  hint    give `n` as Python numbers"
    )
    for resolve in (attributes.integer, static.known):
        with pytest.raises(StaticError, match=hint):
            jax.jit(lambda n, resolve=resolve: resolve("n", n))(1)
    with pytest.raises(StaticError, match=hint):
        jax.jit(lambda n: attributes.ints("n", (1, n)))(1)
    with pytest.raises(StaticError, match="static_argnames"):
        jax.grad(lambda n: static.known("n", n) * 1.0)(1.0)


def test_axis():
    for rank in range(5):
        for value in range(-rank, rank):
            assert attributes.axis(value, rank) == value % rank
        for value in (-rank - 1, rank, 2**63, -(2**63)):
            with pytest.raises(
                AxisError, match=rf"`axis` is {value}, but the operand has {rank} ax[ei]s; the range is"
            ):
                attributes.axis(value, rank)
        assert attributes.axis(rank, rank, end=True) == rank
    with pytest.raises(AxisError, match="the range is empty: it is a scalar"):
        attributes.axis(0, 0)
    with pytest.raises(AxisError, match=r"the range is \[0, 0\]"):
        attributes.axis(1, 0, end=True)


def test_axes():
    assert attributes.axes((2, -3), 3) == (2, 0)
    assert attributes.axes(np.array([], np.int64), 3) == ()
    with pytest.raises(AxisError, match=r"`axes` names an axis twice: \(1, 1\) of 3 axes"):
        attributes.axes((1, -2), 3)


def test_is_static_and_symbolic():
    assert static.is_static(np.zeros(1))
    assert static.is_static(1)
    assert not static.is_static(jnp.zeros(1))
    assert not jax.jit(lambda x: jnp.asarray(static.is_static(x)))(1)
    assert static.is_symbolic(b)
    assert static.is_symbolic(np.array([b, 1], object))
    assert not static.is_symbolic(np.array([2, 1], object))
    assert not static.is_symbolic(np.zeros(2))
    assert not static.is_symbolic(3)


CALLS = []


@static.jit_if_concrete
def doubled(data, times, more=1):
    CALLS.append(type(data))
    return data * times * more


@static.jit_if_concrete
def added(data):
    CALLS.append(type(data))
    return data[0] + data[1]


def test_jit_if_concrete():
    CALLS.clear()
    x = jnp.arange(3.0)
    assert isinstance(doubled(np.arange(3.0), 2), np.ndarray)
    assert isinstance(doubled([1.0, 2.0], 2), np.ndarray)
    assert [np.ndarray] * 2 == CALLS
    CALLS.clear()
    for _ in range(3):
        assert doubled(x, 2, 3).tolist() == [0, 6, 12]
    assert len(CALLS) == 1, "compiled once, in JAX's own cache"
    assert doubled(x, 3).tolist() == [0, 3, 6]
    assert len(CALLS) == 2
    jaxpr = jax.make_jaxpr(lambda v: doubled(v, 2.0))(x)
    assert [e.primitive.name for e in jaxpr.jaxpr.eqns] == ["mul", "mul"], "no jit inside a trace"
    assert doubled.__name__ == "doubled"


def test_jit_if_concrete_on_several_arrays():
    x = jnp.arange(3.0)
    assert isinstance(added((np.ones(1), np.ones(1))), np.ndarray)
    CALLS.clear()
    for _ in range(3):
        assert added((x, x)).tolist() == [0, 2, 4]
    assert [tuple] == CALLS
    assert jax.make_jaxpr(lambda v: added((v, v)))(x).jaxpr.eqns[0].primitive.name == "add"
    assert jax.make_jaxpr(lambda v: added((x, v)))(x).jaxpr.eqns[0].primitive.name == "add"


def test_known_keys_a_compilation():
    same, other = static.StaticValue(np.array([1, 2])), static.StaticValue(np.array([1, 3]))
    assert same == static.StaticValue(np.array([1, 2]))
    assert hash(same) == hash(static.StaticValue(np.array([1, 2])))
    assert same != other
    assert same != static.StaticValue(np.array([1, 2], np.int32))
    assert same != static.StaticValue(np.array([[1, 2]]))
    assert static.StaticValue(np.array(["a"], object)) == static.StaticValue(np.array(["a"], object))
    traces = []

    @jax.jit
    def fn(x, shape):
        traces.append(shape.value.tolist())
        return x.reshape(shape.value.tolist()), shape

    x = jnp.arange(6)
    for value in ([2, 3], [3, 2], [2, 3]):
        found, kept = fn(x, static.StaticValue(np.array(value)))
        assert list(found.shape) == value
        assert kept.value.tolist() == value
    assert traces == [[2, 3], [3, 2]]


def test_no_program_is_compiled_to_see_whether_arrays_are_traced(monkeypatch, caplog):
    monkeypatch.setitem(static._CALM, "state", None)
    jax.clear_caches()
    with jax.log_compiles():
        assert not static.tracing()
    assert not [record for record in caplog.records if "ompil" in record.getMessage()]
    assert jax.make_jaxpr(lambda x: x if static.tracing() else 1 / 0)(1.0)


def test_strings_are_not_asked_one_by_one_for_symbols(monkeypatch):
    asked = []
    monkeypatch.setattr(static, "is_symbolic_dim", lambda x: bool(asked.append(x)))
    assert not static.is_symbolic(np.full(1000, "a", object))
    assert asked == []
    assert not static.is_symbolic(np.array(["a", 2], object))
    assert asked == ["a", 2]


def test_once():
    class Counted:
        calls = 0

        @static.once
        def value(self):
            self.calls += 1
            return [self.calls]

    counted = Counted()
    assert counted.value is counted.value
    assert (counted.calls, counted.value, Counted().value) == (1, [1], [1])
