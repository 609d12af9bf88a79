"""Split, VariadicSplit, Concat and Slice: values in every way an operator can be run, programs, errors."""

import re
from itertools import accumulate

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Case, data, equations, name, program, same, table
from hypothesis import given, settings, strategies as st
from jax import lax

import jaxops as jo
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, SignatureError, StaticError

X = data(2, 7)
END, START = 2**63 - 1, -(2**63)  # as models write "to the end" and "from the start"


def pieces(x, lengths, axis):
    return tuple(np.split(x, list(accumulate(lengths))[:-1], axis))


def vsplit(axis, lengths, resolved=None, x=X, symbolic=None):
    return Case(
        f"variadic_split/{x.shape} at {axis}: {lengths}",
        lambda v: jo.variadic_split(v, axis, lengths),
        (x,),
        pieces(x, resolved or lengths, axis),
        symbolic,
    )


def split(lengths, x=X, symbolic=None, **attributes):
    given = {} if "num_outputs" in attributes else {"split": lengths}
    return Case(
        f"split/{x.shape} {attributes or lengths}",
        lambda v: jo.split(v, **given, **attributes),
        (x,),
        pieces(x, lengths, attributes.get("axis", 0)),
        symbolic,
    )


def concat(axis, *inputs, symbolic=None):
    expected = np.concatenate(inputs, axis)
    title = f"concat/{'+'.join(str(x.shape) for x in inputs)} at {axis} {inputs[0].dtype}"
    return Case(title, lambda *xs: jo.concat(xs, axis=axis), inputs, expected, symbolic)


def cut(expected, starts, ends, axes=None, steps=None, x=X, symbolic=None):
    title = f"slice/{x.shape} {starts}:{ends}:{steps} at {axes}"
    return Case(title, lambda v: jo.slice(v, starts, ends, axes, steps), (x,), expected, symbolic)


INTS = data(4, 6, dtype=np.int32)
CASES = [
    vsplit(0, (1, 1)),
    vsplit(1, (1, 2, 4), symbolic=("b, 7",)),
    vsplit(1, (1, -1, 4), (1, 2, 4), symbolic=("b, 7",)),
    vsplit(1, (3, -1, 4), (3, 0, 4)),
    vsplit(1, (-1, 7), (0, 7)),
    vsplit(1, (-1,), (7,), symbolic=("b, c",)),
    vsplit(0, (1, -1), (1, 1), symbolic=("b, 7",)),
    vsplit(1, (0, 7, 0)),
    vsplit(-1, (7, 0)),
    vsplit(-2, (2,)),
    vsplit(1, (0, -1, 0), (0, 0, 0), x=data(2, 0)),
    vsplit(0, (0, 0), x=data(0, 3)),
    vsplit(0, (2, -1), (2, 2), x=INTS),
    split((3, 4), axis=1),
    split((0, 2, 0), axis=0),
    split((3, 3, 1), axis=-1, num_outputs=3),
    split((2, 2, 2, 1), axis=1, num_outputs=4),
    split((7,), axis=1, num_outputs=1, symbolic=("b, c",)),
    split((2, 2), x=INTS, num_outputs=2, symbolic=("2*b, c",)),
    split((0, 0, 0), x=data(0), num_outputs=3),
    split((1, 1), x=X, num_outputs=2),
    concat(0, X, data(1, 7), symbolic=("b, c", "d, c")),
    concat(1, X, data(2, 1), data(2, 0), symbolic=("b, 7", "b, 1", "b, 0")),
    concat(-1, X, X, symbolic=("b, c", "b, c")),
    concat(-2, INTS, INTS[:1]),
    concat(0, data(3)),
    concat(0, data(0), data(0)),
    concat(1, data(0, 2), data(0, 3)),
    concat(0, *[data(1, 2)] * 5),
    cut(X[1:], (1,), (2,)),
    cut(X[:, 2:5], (0, 2), (2, 5), symbolic=None),
    cut(X[:, 2:5], (2,), (5,), (1,), symbolic=("b, 7",)),
    cut(X[:, -3:-1], (-3,), (-1,), (-1,)),
    cut(X[:, 1:], (1,), (END,), (1,), symbolic=("b, c",)),
    cut(X[:, 1:], (1,), (2**31 - 1,), (1,), symbolic=("b, c",)),
    cut(X[:, :-1], (0,), (-1,), (1,), symbolic=("b, c",)),
    cut(X[:, ::2], (START,), (END,), (1,), (2,), symbolic=("b, c",)),
    cut(X[:, ::-1], (-1,), (START,), (1,), (-1,), symbolic=("b, c",)),
    cut(X[:, ::-1], (END,), (START,), (1,), (-1,)),
    cut(X[::-1, ::-3], (END, END), (START, START), (0, 1), (-1, -3)),
    cut(X[:, 5:1:-2], (5,), (1,), (1,), (-2,)),
    cut(X[:, 6:0:-4], (-1,), (-7,), (1,), (-4,)),
    cut(X[:, 100:], (100,), (200,), (1,)),
    cut(X[:, :0], (3,), (1,), (1,)),
    cut(X[:, :0], (1,), (3,), (1,), (-1,)),
    cut(X[:, :100], (-100,), (100,), (1,)),
    cut(X[:, :1], (0,), (7,), (1,), (END,)),
    cut(X[:, -1:], (-1,), (START,), (1,), (START,)),
    # With a negative step the start is clamped to an element, as Slice-13 says; Python clamps alike.
    cut(X[:, 0:1], (START,), (START,), (1,), (-1,)),
    cut(X, (), ()),
    cut(X[1:2, 3:4], (3, 1), (4, 2), (1, 0)),
    cut(data(0, 3), (0,), (END,), x=data(0, 3)),
    cut(data(0, 3), (-1,), (START,), (0,), (-1,), x=data(0, 3)),
    cut(data(), (), (), x=data()),
    cut(INTS[1:3, ::2], (1, 0), (3, 6), None, (1, 2), x=INTS),
    # Sizes that travel in NumPy, symbolic ones too.
    Case("slice/by shape", lambda x: jo.slice(x, (0,), jo.shape(x)[:1]), (X,), X, ("b, 7",)),
    Case(
        "variadic_split/by shape",
        lambda x: jo.variadic_split(x, 0, jo.concat([jo.shape(x)[:1] // 2, np.array([-1])], axis=0)),
        (INTS,),
        (INTS[:2], INTS[2:]),
        ("2*b, 6",),
    ),
    Case(
        "reshape/by pieces of the shape",
        lambda x: jo.reshape(x, jo.concat([jo.slice(jo.shape(x), (0,), (1,)), np.array([-1])], axis=0)),
        (data(2, 3, 4),),
        data(2, 12),
        ("b, c, d",),
    ),
]
# No lengths for no elements: an empty tuple has no leaf that the ways could look at.
NOTHING = data(0, 3)


@pytest.mark.grid
@pytest.mark.parametrize(("way", "case"), table(CASES), ids=name)
def test_value(way, case):
    # The start of this row lies before the axis and is clamped to element 0, and so is the end, to before it.
    way(case)


def test_no_lengths_for_no_elements():
    assert jo.variadic_split(NOTHING, 0, ()) == ()
    assert jo.variadic_split(jnp.asarray(NOTHING), 0, []) == ()
    assert jo.split(NOTHING, ()) == ()
    with pytest.raises(ShapeError, match=r"lengths \(\) sum to 0, but the axis has size 3"):
        jo.variadic_split(NOTHING, 1, ())


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
                                  jnp.int4, jnp.uint4, jnp.int8, int])  # fmt: skip
def test_any_integer_type_for_both_operands(kind):
    expected = pieces(X, (2, 5), 1)
    for axis in (np.array(1, kind), np.array([1], kind)):
        same(jo.variadic_split(X, axis, np.array([2, 5], kind)), expected)
        same(jo.variadic_split(jnp.asarray(X), axis, np.array([2, 5], kind)), expected)
        same(jax.jit(lambda x, axis=axis: jo.variadic_split(x, axis, np.array([2, 5], kind)))(X), expected)


def test_concrete_jax_arrays_are_static():
    x = jnp.asarray(X)
    same(jo.variadic_split(x, jnp.array([1]), jnp.array([2, -1])), pieces(X, (2, 5), 1))
    same(jo.split(x, jnp.array([2, 5]), axis=jnp.array(1)), pieces(X, (2, 5), 1))
    same(jo.split(x, num_outputs=np.array(2), axis=np.int64(0)), pieces(X, (1, 1), 0))
    same(jo.concat([x, x], axis=jnp.array(1)), np.concatenate([X, X], 1))
    same(jo.slice(x, jnp.array([1]), jnp.array([2])), X[1:2])


@pytest.mark.parametrize(
    ("fn", "attributes", "expected"),
    [
        (jo.split, {"split": (3, 4), "axis": 1}, pieces(X, (3, 4), 1)),
        (jo.split, {"num_outputs": 2, "axis": 1}, pieces(X, (4, 3), 1)),
        (jo.variadic_split, {"axis": 1, "split_lengths": (-1, 3)}, pieces(X, (4, 3), 1)),
        (jo.slice, {"starts": (1,), "ends": (END,), "axes": (1,), "steps": (2,)}, X[:, 1::2]),
    ],
)
def test_attributes_as_static_argnames(fn, attributes, expected):
    same(jax.jit(fn, static_argnames=tuple(attributes))(X, **attributes), expected)


def test_concat_axis_as_static_argname():
    fn = jax.jit(jo.concat, static_argnames="axis")
    same(fn([X, X], axis=1), np.concatenate([X, X], 1))


def test_concat_of_static_and_traced():
    ints = np.array([5, 6])
    same(jo.concat([jnp.array([1, 2]), ints], axis=0), np.array([1, 2, 5, 6], np.int32))
    same(jax.jit(lambda x: jo.concat([x, ints], axis=0))(jnp.array([1, 2])), np.array([1, 2, 5, 6], np.int32))
    same(jo.concat([[1], [2, 3]], axis=0), np.array([1, 2, 3]))


STRINGS = np.array([["a", "bc", ""], ["d", "e", "fgh"]], object)


@pytest.mark.parametrize("strings", [STRINGS, STRINGS.astype(str), STRINGS.astype("T")], ids=["object", "U", "T"])
def test_strings_stay_static(strings):
    same(jo.split(strings, (1, 2), axis=1), (strings[:, :1], strings[:, 1:]))
    same(jo.variadic_split(strings, 0, (-1, 1)), (strings[:1], strings[1:]))
    same(jo.concat([strings, strings], axis=0), np.concatenate([strings, strings]))
    same(jo.slice(strings, (-1,), (START,), (1,), (-1,)), strings[:, ::-1])


@pytest.mark.parametrize(
    ("ours", "bare"),
    [
        (lambda x: jo.variadic_split(x, 1, (2, -1)), lambda x: lax.split(x, (2, 5), axis=1)),
        (lambda x: jo.split(x, num_outputs=3, axis=1), lambda x: lax.split(x, (3, 3, 1), axis=1)),
        (lambda x: jo.concat([x, x], axis=1), lambda x: lax.concatenate([x, x], 1)),
        (lambda x: jo.slice(x, (1,), (5,), (1,), (2,)), lambda x: lax.slice(x, (0, 1), (2, 4), (1, 2))),
        (lambda x: jo.slice(x, (-1,), (START,), (1,), (-1,)), lambda x: lax.rev(x, [1])),
    ],
)
def test_jaxpr_is_the_lax_call(ours, bare):
    assert equations(ours, X) == equations(bare, X)
    kinds = [[e.primitive.name for e in jax.make_jaxpr(f)(X).jaxpr.eqns] for f in (ours, bare)]
    assert kinds[0] == kinds[1]


def test_slice_of_every_element_adds_no_equation():
    assert equations(lambda x: jo.slice(x, (0, START), (END, END)), X) == 0


def materialized(text: str, operation: str) -> list[str]:
    """Instructions of that kind in the entry computation: those outside a fusion."""
    entry = text[text.index("\nENTRY ") :]
    return re.findall(rf"= \S+ {operation}\(", entry)


def test_hlo_split_fuses_with_its_consumers():
    def fn(x):
        a, b, c = jo.variadic_split(jnp.sin(x), 1, (128, -1, 128))
        return jnp.tanh(a) * c + jnp.exp(b)

    text = program(fn, (64, 384))
    assert "fusion(" in text
    assert not materialized(text, "slice"), text
    assert not materialized(text, "copy"), text


def test_hlo_assertion_can_fail():
    text = program(lambda x: jo.variadic_split(x, 1, (128, 256)), (64, 384))
    assert materialized(text, "slice") or materialized(text, "fusion"), text


ERRORS = [
    (lambda x: jo.variadic_split(x, 1, (3, 3)), ShapeError, r"variadic_split: lengths \(3, 3\) sum to 6, .* size 7"),
    (lambda x: jo.variadic_split(x, 1, (4, 4)), ShapeError, r"sum to 8, but the axis has size 7"),
    (lambda x: jo.variadic_split(x, 1, (4, 4, -1)), ShapeError, r"\(4, 4, -1\) take 8, more than .* size 7 has"),
    (lambda x: jo.variadic_split(x, 1, (-1, 8)), ShapeError, r"take 8, more than the axis of size 7"),
    (lambda x: jo.variadic_split(x, 1, (-1, 1, -1)), ShapeError, r"has -1 at positions 0 and 2; only one is allowed"),
    (lambda x: jo.variadic_split(x, 1, (9, -2)), ShapeError, r"length -2 at position 1 of \(9, -2\) is negative"),
    (lambda x: jo.variadic_split(x, 2, (7,)), AxisError, r"variadic_split: `axis` is 2, .* 2 axes; .* \[-2, 1\]"),
    (lambda x: jo.variadic_split(x, -3, (7,)), AxisError, r"`axis` is -3"),
    (lambda x: jo.variadic_split(x, [0, 1], (7,)), ShapeError, r"`axis` must hold one integer"),
    (lambda x: jo.variadic_split(x, [[0]], (2,)), ShapeError, r"`axis` must hold one integer"),
    (lambda x: jo.variadic_split(x, [], (2,)), ShapeError, r"`axis` must hold one integer"),
    (lambda x: jo.variadic_split(x, 0.0, (2,)), DTypeError, r"`axis` must be integers, got float64"),
    (lambda x: jo.variadic_split(x, False, (2,)), DTypeError, r"`axis` must be integers, got bool"),
    (lambda x: jo.variadic_split(x, 0, 2), ShapeError, r"`split_lengths` must be 1-D, but has 0 axes"),
    (lambda x: jo.variadic_split(x, 0, [[2]]), ShapeError, r"`split_lengths` must hold one integer per item"),
    (lambda x: jo.variadic_split(x, 0, np.array([[2]])), ShapeError, r"`split_lengths` must be 1-D, but has 2 axes"),
    (lambda x: jo.variadic_split(x, 0, (2.0,)), DTypeError, r"`split_lengths` must be integers, got float64"),
    (lambda x: jo.variadic_split(x, 0, np.array([True, True])), DTypeError, r"must be integers, got bool"),
    (lambda x: jo.variadic_split(x, 0, np.array([2**63 - 1, 2**63 - 1, 4])), ShapeError,
     r"sum to 18446744073709551618"),
    (lambda x: jo.variadic_split(x, 0, np.array([2**64 - 1, 3], np.uint64)), ShapeError,
     r"sum to 18446744073709551618"),
    (lambda x: jo.variadic_split(x, 0, (2**64 - 1, -1)), ShapeError, r"take 18446744073709551615, more than"),
    (lambda x: jo.variadic_split(x, np.uint64(2**64 - 1), (2,)), AxisError, r"`axis` is 18446744073709551615"),
    (lambda x: jo.variadic_split(x[0, 0], 0, (1,)), AxisError, r"the range is empty: it is a scalar"),
    (lambda x: jo.split(x, (3, 3), axis=1), ShapeError, r"split: lengths \(3, 3\) sum to 6, but the axis has size 7"),
    (lambda x: jo.split(x, (8, -1), axis=1), ArgumentError, r"split: `split` \(8, -1\) holds -1; .* not be negative"),
    (lambda x: jo.split(x), SignatureError, r"split: give either the lengths `split` or `num_outputs`"),
    (lambda x: jo.split(x, (1, 1), num_outputs=2), SignatureError, r"give either the lengths"),
    (lambda x: jo.split(x, num_outputs=0), ArgumentError, r"`num_outputs` is 0; it must be at least 1"),
    (lambda x: jo.split(x[:, :5], num_outputs=4, axis=1), ShapeError, r"4 chunks of 2 do not fit into 5 elements"),
    (lambda x: jo.split(x, num_outputs=2.0), DTypeError, r"`num_outputs` must be integers, got float64"),
    (lambda x: jo.split(x, num_outputs=2, axis=2), AxisError, r"split: `axis` is 2"),
    (lambda x: jo.concat([], axis=0), SignatureError, r"concat: `inputs` is empty"),
    (lambda x: jo.concat([x, x[:, :1]], axis=0), ShapeError,
     r"operand 1 of \(2, 1\) does not fit operand 0 of \(2, 7\)"),
    (lambda x: jo.concat([x, x[0]], axis=0), ShapeError, r"operand 1 of \(7,\) does not fit .* only along axis 0"),
    (lambda x: jo.concat([x, x], axis=2), AxisError, r"concat: `axis` is 2"),
    (lambda x: jo.concat([x[0, 0]], axis=0), AxisError, r"the range is empty: it is a scalar"),
    (lambda x: jo.concat([x, np.zeros((2, 7), np.int32)], axis=0), DTypeError,
     r"must have one element type, got float32, int32"),
    (lambda x: jo.slice(x, (1,), (2, 3)), ShapeError, r"slice: `starts` \(1,\), `ends` \(2, 3\), .* one length"),
    (lambda x: jo.slice(x, (1,), (2,), (0, 1)), ShapeError, r"`axes` \(0, 1\) and `steps` \(1,\) must have one length"),
    (lambda x: jo.slice(x, (1,), (2,), (0,), (0,)), ArgumentError, r"slice: `steps` holds 0; a step must not be zero"),
    (lambda x: jo.slice(x, (1,), (2,), (2,)), AxisError, r"slice: `axes` is 2"),
    (lambda x: jo.slice(x, (1, 1), (2, 2), (1, -1)), AxisError, r"slice: `axes` names an axis twice"),
    (lambda x: jo.slice(x, (1, 1, 1), (2, 2, 2)), AxisError, r"slice: `axes` is 2"),
    (lambda x: jo.slice(x, (1.0,), (2,)), DTypeError, r"`starts` must be integers, got float64"),
    (lambda x: jo.slice(x, 1, 2), ShapeError, r"`starts` must be 1-D"),
]  # fmt: skip


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["static", "traced"])
@pytest.mark.parametrize(("fn", "error", "match"), ERRORS, ids=[f"{i}" for i in range(len(ERRORS))])
def test_error(fn, error, match, kind):
    with pytest.raises(error, match=match):
        fn(kind(X))


@pytest.mark.parametrize(
    ("fn", "operand"),
    [
        (lambda x, n: jo.variadic_split(x, n[0], (7,)), "axis"),
        (lambda x, n: jo.variadic_split(x, 1, n), "split_lengths"),
        (lambda x, n: jo.variadic_split(x, 1, (n[0], 6)), "split_lengths"),
        (lambda x, n: jo.split(x, n, axis=1), "split"),
        (lambda x, n: jo.split(x, num_outputs=n[0]), "num_outputs"),
        (lambda x, n: jo.split(x, (2,), axis=n[0]), "axis"),
        (lambda x, n: jo.concat([x, x], axis=n[0]), "axis"),
        (lambda x, n: jo.slice(x, n, (2,)), "starts"),
        (lambda x, n: jo.slice(x, (0,), n), "ends"),
        (lambda x, n: jo.slice(x, (0,), (2,), n), "axes"),
        (lambda x, n: jo.slice(x, (0,), (2,), (0,), n), "steps"),
    ],
)
def test_traced_where_static_is_needed(fn, operand):
    match = (
        rf"`{operand}` must be known while tracing, but it is traced\n  {operand} .*int32.*\n  hint    give `{operand}`"
    )
    with pytest.raises(StaticError, match=match):
        jax.jit(fn)(X, np.array([1]))
    with pytest.raises(StaticError, match=match):
        jax.vmap(lambda n: fn(jnp.asarray(X), n))(jnp.array([[1]]))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(-2, 1), st.data())
def test_variadic_split_is_numpy_split(lengths, axis, draw):
    x = np.moveaxis(data(sum(lengths), 3), 0, axis)
    written = list(lengths)
    if draw.draw(st.booleans()):
        written[draw.draw(st.integers(0, len(lengths) - 1))] = -1
    found = jo.variadic_split(x, axis, written)
    same(found, pieces(x, lengths, axis))
    same(jo.concat(found, axis=axis), np.ascontiguousarray(x))
    same(jo.split(x, lengths, axis=axis), pieces(x, lengths, axis))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 30), st.integers(1, 12))
def test_num_outputs_is_ceil_and_rest(size, parts):
    chunk = -(-size // parts)
    lengths = [chunk] * (parts - 1) + [size - chunk * (parts - 1)]
    if lengths[-1] < 0:
        with pytest.raises(ShapeError, match="do not fit into"):
            jo.split(data(size), num_outputs=parts)
    else:
        same(jo.split(data(size), num_outputs=parts), pieces(data(size), lengths, 0))


BOUND = st.integers(-9, 9) | st.sampled_from([END, START, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1])
STEP = st.integers(-4, 4).filter(bool) | st.sampled_from([END, START])


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 6), BOUND, BOUND, STEP)
def test_slice_is_the_clamping_of_the_standard(size, start, end, step):
    """The formula of Slice-13, written down literally, and Python's own slices where the two agree."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start + size if start < 0 else start, 0), size if step > 0 else max(size - 1, 0))
    last = min(max(end + size if end < 0 else end, low), high)
    picked = [i for i in range(first, last, step) if 0 <= i < size]
    x = data(size, 2)
    same(jo.slice(x, (start,), (end,), (0,), (step,)), x[picked])
    if step > 0 or start >= -size:
        same(jo.slice(x, (start,), (end,), (0,), (step,)), x[start:end:step].copy())


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 5), BOUND, BOUND, STEP)
def test_slice_traced_is_slice_static(size, start, end, step):
    x = data(size, 2)
    same(jo.slice(jnp.asarray(x), (start,), (end,), (0,), (step,)), jo.slice(x, (start,), (end,), (0,), (step,)))
