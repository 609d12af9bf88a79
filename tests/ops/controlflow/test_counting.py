"""Loops that a counter ends: scans of as many iterations as they run, with a trip count or without one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.export import export, symbolic_args_specs
from programs import equations, primitives

from jaxops.dtypes import as_traced
from jaxops.ops import (
    add,
    and_,
    cast,
    equal,
    gather,
    greater,
    greater_or_equal,
    less,
    less_or_equal,
    loop,
    mul,
    not_,
    shape,
)
from jaxops.ops.controlflow import looping

ROWS = np.linspace(-1, 1, 96, dtype=np.float32).reshape(32, 3)


def i32(value):
    return np.array(value, np.int32)


def running(x, *, count, start=0, step=1, limit, as_type=None, size=None):
    """Sums of the rows of x, with a counter in the state: TensorFlow's loops compare it and the number with a limit."""

    def body(number, keep, at, total, most):
        total = total + gather(x, number, axis=0)
        after = add(at, i32(step))
        pairs = [(number, np.array(count) if size is None else size), (after, most)]
        below = [less(*pair) if as_type is None else less(*(cast(v, to=as_type) for v in pair)) for pair in pairs]
        return and_(*below), after, total, most, total * 2

    return loop(count if size is None else size, True, [i32(start), jnp.zeros(3), limit], body)


def expected(x, count, start, step, limit):
    total, rows, at = np.zeros(3, np.float32), [], start
    for number in range(count):
        total, at = total + x[number], at + step
        rows.append(total * 2)
        if not (number < count and at < limit):
            break
    return at, total, np.stack(rows)


@pytest.mark.parametrize("as_type", [None, np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2, 5, 31, 32])
def test_it_is_a_scan_and_its_counter_stays_known(count, as_type):
    def f(x):
        at, total, _, rows = running(x, count=count, limit=i32(count), as_type=as_type)
        np.testing.assert_array_equal(at, i32(count), strict=True)
        return total, rows

    assert {"scan", "while"} & primitives(f, ROWS) == {"scan"}
    for found, wanted in zip(jax.jit(f)(ROWS), expected(ROWS, count, 0, 1, count)[1:], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    gradient = jax.grad(lambda x: f(x)[0].sum())(jnp.asarray(ROWS))
    np.testing.assert_array_equal(gradient, np.float32([[1] * 3] * count + [[0] * 3] * (32 - count)))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 32),
    st.integers(-3, 3),
    st.integers(-1, 3),
    st.integers(-2, 40),
    st.sampled_from([None, np.float32]),
)
def test_whatever_ends_it_the_rows_are_those_of_python(count, start, step, limit, as_type):
    at, total, rows = expected(ROWS, count, start, step, limit)
    found = jax.jit(lambda x: running(x, count=count, start=start, step=step, limit=i32(limit), as_type=as_type))(ROWS)
    assert int(found[0]) == at
    np.testing.assert_allclose(found[1], total, rtol=1e-6, atol=1e-6)
    assert found[3].shape == rows.shape
    np.testing.assert_allclose(found[3], rows, rtol=1e-6, atol=1e-6)


def test_one_program_for_all_lengths():
    def f(x):
        size = gather(shape(x), 0, axis=0)
        at, total, _, rows = running(x, count=None, limit=size, size=size, as_type=np.float32)
        return as_traced(at), total, rows

    program = export(jax.jit(f))(*symbolic_args_specs([jax.ShapeDtypeStruct((4, 3), jnp.float32)], "t, 3"))
    for count in (1, 2, 7, 32):
        wanted = expected(ROWS, count, 0, 1, count)
        for found, value in zip(program.call(jnp.asarray(ROWS[:count])), wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-6)


# What ends a loop: (first counter, step, the condition of the number of the iteration and the counter after it).
ENDS = {
    "i < n": (0, 1, lambda i, at: less(at, i32(8))),
    "n > i": (0, 1, lambda i, at: greater(i32(8), at)),
    "i <= n": (0, 1, lambda i, at: less_or_equal(at, i32(8))),
    "n >= i": (0, 3, lambda i, at: greater_or_equal(i32(9), at)),
    "i != n": (0, 2, lambda i, at: not_(equal(at, i32(8)))),
    "steps that go beyond": (-1, 5, lambda i, at: less(at, i32(8))),
    "down to 0": (8, -1, lambda i, at: less(i32(0), at)),
    "down past 0": (8, -3, lambda i, at: greater_or_equal(at, i32(0))),
    "floats": (0, 1, lambda i, at: less(cast(at, to=np.float32), np.float32(8))),
    "arithmetic": (0, 1, lambda i, at: less(add(mul(at, i32(3)), i32(1)), i32(20))),
    "the number of the iteration": (5, -2, lambda i, at: less(i, np.array(7))),
    "the first of two": (0, 1, lambda i, at: and_(less(at, i32(6)), less(i, np.array(100)))),
    "the second of two": (0, 1, lambda i, at: and_(less(i, np.array(100)), less(at, i32(6)))),
}


@pytest.mark.parametrize("limit", [None, 32])
@pytest.mark.parametrize(("start", "step", "holds"), ENDS.values(), ids=ENDS)
def test_it_is_a_scan_without_a_trip_count_or_with_a_larger_one(start, step, holds, limit):
    def f(x, limit=limit):
        def body(number, keep, at, total):
            total, at = total + gather(x, number, axis=0), add(at, i32(step))
            return holds(number, at), at, total, total * 2

        return loop(limit, True, [i32(start), jnp.zeros(3)], body)

    at, total, rows = f(jnp.asarray(ROWS), limit=32)  # iteration by iteration
    assert len(rows) == (int(at) - start) // step > 0
    last = []
    assert {"scan", "while"} & primitives(lambda x: last.append(f(x)[0]) or f(x)[1:], ROWS) == {"scan"}
    np.testing.assert_array_equal(last[0], at, strict=True)
    compiled = jax.jit(f)(ROWS)
    assert compiled[2].shape == rows.shape
    for found, wanted in zip(compiled, (at, total, rows), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    gradient = jax.grad(lambda x: f(x)[1].sum())(jnp.asarray(ROWS))
    np.testing.assert_array_equal(gradient, np.float32([[1] * 3] * len(rows) + [[0] * 3] * (32 - len(rows))))


def test_a_loop_that_never_ends_is_none_of_these():
    def body(number, keep, at, total):
        return less(at, i32(0)), add(at, i32(-1)), total + 1

    assert "while" in primitives(lambda x: loop(None, True, [i32(0), x], body)[1], jnp.zeros(3))


@pytest.mark.parametrize("limit", [None, 2**63 - 1])
@pytest.mark.parametrize("limits", ["t, 3", "t, 3; t >= 2"])
@pytest.mark.parametrize(
    ("holds", "iterations"),
    [
        (lambda at, n: less(at, n), lambda t: t),
        (lambda at, n: less(cast(at, to=np.float32), cast(n, to=np.float32)), lambda t: t),
        (lambda at, n: not_(equal(n, at)), lambda t: t),
        (lambda at, n: less_or_equal(at, n), lambda t: t + 1),
        (lambda at, n: less(mul(at, np.array(2)), n), lambda t: (t + 1) // 2),
    ],
    ids=["less", "floats", "not equal", "less or equal", "twice"],
)
def test_one_program_for_all_lengths_without_a_trip_count(holds, iterations, limits, limit):
    def f(x):
        size = gather(shape(x), 0, axis=0)

        def body(number, keep, at, total):
            at = add(at, np.array(1))
            return holds(at, size), at, total + x.sum(0), total

        at, total, rows = loop(limit, True, [np.array(0), jnp.zeros(3)], body)
        return as_traced(at), total, rows

    names, _, constraint = limits.partition("; ")
    constraints = [constraint] if constraint else []
    specs = symbolic_args_specs([jax.ShapeDtypeStruct((4, 3), jnp.float32)], names, constraints=constraints)
    program = export(jax.jit(f))(*specs)
    for length in (2, 5, 32):
        x, count = ROWS[:length], iterations(length)
        at, total, rows = program.call(jnp.asarray(x))
        assert int(at) == len(rows) == count
        np.testing.assert_allclose(total, count * x.sum(0), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(rows, np.arange(count)[:, None] * x.sum(0), rtol=1e-5, atol=1e-5)


def test_loops_inside_loops_are_scans():
    def inner(depth, x):
        def body(number, keep, at, value):
            value = inner(depth - 1, value)[1] if depth else value * 1.5
            after = add(at, i32(1))
            return less(after, i32(3)), after, value, value

        return loop(None, True, [i32(0), x], body)

    rows = jax.jit(lambda x: inner(1, x)[2])(jnp.ones(4))
    np.testing.assert_allclose(rows, np.float32([[1.5**3] * 4, [1.5**6] * 4, [1.5**9] * 4]), rtol=1e-6)
    assert (
        sum(e.primitive.name == "scan" for e in equations(jax.make_jaxpr(lambda x: inner(1, x)[1:])(jnp.ones(4)).jaxpr))
        == 2
    )


# Each is a loop of six iterations at most that ends before: (state, condition from the state, next state).
EARLY = {
    "a counter that doubles": (i32(1), lambda c: less(c, i32(9)), lambda c, i: add(c, c)),
    "a counter that grows by the number": (
        i32(0),
        lambda c: less(c, i32(7)),
        lambda c, i: add(c, cast(i, to=np.int32)),
    ),
    "a float that doubles": (np.float32(1), lambda c: less(c, np.float32(9)), lambda c, i: mul(c, np.float32(2))),
    "a truth that turns": (np.array(True), lambda c: c, lambda c, i: less(i, np.array(3))),
    "a counter that wraps": (np.int8(100), lambda c: less(np.int8(0), c), lambda c, i: add(c, np.int8(10))),
}


@pytest.mark.parametrize(("start", "holds", "after"), EARLY.values(), ids=EARLY)
def test_what_does_not_count_to_the_end_is_unrolled(start, holds, after):
    def f(x):
        def body(number, keep, value, total):
            value = after(value, number)
            return holds(value), value, total + x, total

        return loop(6, True, [np.asarray(start), jnp.zeros(3)], body)

    eager, compiled = f(jnp.ones(3)), jax.jit(f)(jnp.ones(3))
    assert 1 < len(eager[2]) < 6
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_counter_beyond_the_bits_of_a_program_stays_known():
    """A scan would have it in 32 bits."""

    def f(x):
        def body(number, keep, value, total):
            return less(number, np.array(9)), add(value, np.array(2**30)), total + x, value

        last, total, rows = loop(6, True, [np.array(1), jnp.zeros(3)], body)
        np.testing.assert_array_equal(last, 1 + 6 * 2**30)
        np.testing.assert_array_equal(rows, 1 + 2**30 * np.arange(6))
        return total

    np.testing.assert_array_equal(jax.jit(f)(jnp.ones(3)), 6)


def test_a_size_that_is_counted_down_ends_as_a_number():
    def f(x):
        size = shape(x)

        def body(number, keep, left, total):
            return less(number, gather(size, 0, axis=0)), add(left, np.array([-1, 0])), total + 1, total

        left, total, _ = loop(gather(size, 0, axis=0), True, [size, jnp.zeros(())], body)
        assert left[0] == 0
        assert left[1] == 3
        return total

    program = export(jax.jit(f))(*symbolic_args_specs([jax.ShapeDtypeStruct((4, 3), jnp.float32)], "t, 3"))
    assert program.call(jnp.ones((5, 3))) == 5


def test_a_condition_on_data_beside_a_counter_stays_one():
    def f(x):
        def body(number, keep, at, total):
            at = add(at, i32(1))
            return and_(less(at, i32(9)), less(jnp.sum(total), jnp.float32(5))), at, total + x

        return loop(9, True, [i32(0), jnp.zeros(3)], body)

    assert "while" in primitives(f, jnp.ones(3))
    at, total = jax.jit(f)(jnp.ones(3))
    np.testing.assert_array_equal([at, *total], 3)


def test_what_a_body_cannot_do_with_a_symbol_is_no_error():
    x = jnp.asarray(ROWS)

    def body(number, keep, at):
        after = add(at, i32(1))
        return less(after, i32(4)), after, x[number] + jnp.sin(number)

    found = jax.jit(lambda: loop(4, True, [i32(0)], body)[1])()
    np.testing.assert_allclose(found, ROWS[:4] + np.sin(np.float32([[0], [1], [2], [3]])), rtol=1e-6, atol=1e-6)


def test_loops_inside_loops_are_traced_a_few_times(monkeypatch):
    times = itertools.count()

    def inner(depth, value):
        def body(number, keep, at, value):
            if depth:
                value = inner(depth - 1, value)
            else:
                next(times)
            after = add(at, i32(1))
            return less(after, i32(2)), after, value + 1

        return loop(2, True, [i32(0), value], body)[1]

    assert jax.jit(lambda x: inner(5, x))(jnp.zeros(())) == 2**7 - 2
    assert next(times) < 100


def test_random_numbers_differ_in_each_iteration():
    def body(number, keep, at, *, rng):
        after = add(at, i32(1))
        return less(after, i32(4)), after, jax.random.uniform(rng, ())

    def f(x, key):
        return loop(4, True, [i32(0)], body, rng=key)[1] + x

    key = jax.random.key(0)
    assert "scan" in primitives(f, jnp.zeros(()), key)
    found = jax.jit(f)(jnp.zeros(()), key)
    assert len(set(found.tolist())) == 4
    np.testing.assert_array_equal(found, f(jnp.zeros(()), key))


@pytest.mark.parametrize("shape", [(), (1,)])
def test_nothing_of_an_iteration_that_was_tried_enters_the_program(shape):
    """A condition of shape (1,) becomes a scalar, in the trace of the iteration that has it."""

    def run(x):
        return loop(9, True, [x], lambda i, keep, s: [jnp.reshape(s.sum() < 20, shape), s * 2])

    assert len(jax.make_jaxpr(run)(jnp.ones(3)).in_avals) == 1
    np.testing.assert_array_equal(jax.jit(run)(jnp.ones(3))[0], np.full(3, 16))


def test_the_proof_is_asked_for_only_where_a_condition_may_end_the_loop(monkeypatch):
    monkeypatch.setattr(looping, "counted", None)
    jax.jit(lambda x: loop(3, True, [x], lambda i, keep, y: (keep, y * 2)))(jnp.ones(3))
