"""A choice, a loop and a scan over Python callables: values from plain Python, under every way to run them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_shape
from programs import primitives

from jaxops import ops
from jaxops.errors import ArgumentError, AxisError, BoundsError, DTypeError, ShapeError, SignatureError, StaticError
from jaxops.ops import concat, greater, if_, less, loop, reduce_sum, sequence_at, sequence_insert, slice

X = np.float32([[1, 2, 3], [4, 5, 6]])


def scan(initial, inputs, body, **attributes):
    return ops.scan([*initial, *inputs], body, num_scan_inputs=len(inputs), **attributes)


def i64(*values):
    return np.array(values, np.int64)


# --- If


def test_a_known_condition_traces_one_branch():
    def never():
        raise AssertionError("this branch must not be traced")

    for cond in (True, np.array([True]), jnp.array(True)):
        (found,) = if_(cond, lambda: [np.array([1, 2])], never)
        assert isinstance(found, np.ndarray)
    assert if_(False, never, lambda: [None, ["a", "b"]]) == (None, ["a", "b"])


def test_a_traced_condition_compiles_both_branches():
    def f(cond, x):
        return if_(cond, lambda: [x * 2, [np.float32(1), x]], lambda: [np.ones(3, np.float32), [x[0], x]])

    x = jnp.arange(3.0)
    for cond in (True, False):
        first, (scalar, second) = jax.jit(f)(cond, x)
        np.testing.assert_array_equal(first, x * 2 if cond else np.ones(3))
        np.testing.assert_array_equal(scalar, 1 if cond else x[0])
        np.testing.assert_array_equal(second, x)
    assert "cond" in primitives(f, True, x)
    np.testing.assert_array_equal(jax.jit(f)(np.array([True]), x)[0], x * 2)  # one element, any rank


def test_a_choice_has_gradients_and_batches():
    def f(x):
        return if_(greater(x, np.float32(0)), lambda: [x * x], lambda: [-x])[0]

    assert jax.jit(jax.grad(f))(3.0) == 6
    assert jax.jit(jax.grad(f))(-3.0) == -1
    np.testing.assert_array_equal(jax.vmap(f)(jnp.array([-2.0, 3.0])), [2, 9])


def traced_if(one, other):
    return jax.jit(lambda cond: if_(cond, lambda: one, lambda: other))(True)


# --- Loop


def doubling(i, keep, x):
    return keep, x + x, x


RUNS = {
    "eager": lambda f, *a: f(*a),
    "jit": lambda f, *a: jax.jit(f)(*a),
    "vmap": lambda f, *a: jax.tree.map(
        lambda y: y[0], jax.vmap(f)(*(jnp.stack([jnp.asarray(v), jnp.asarray(v)]) for v in a))
    ),
}


@pytest.fixture(params=RUNS)
def run(request):
    return RUNS[request.param]


@pytest.mark.parametrize("cond", [None, True, np.array([True])])
@pytest.mark.parametrize("count", [4, np.int64(4), np.array([4])])
def test_a_counted_loop(run, count, cond):
    last, rows = run(lambda x: loop(count, cond, [x], doubling), jnp.asarray(X))
    np.testing.assert_array_equal(last, X * 16)
    np.testing.assert_array_equal(rows, [X, X * 2, X * 4, X * 8])


def test_a_counted_loop_is_a_scan_with_gradients():
    def f(x):
        return reduce_sum(loop(3, True, [x], lambda i, keep, y: (keep, y * x, y))[0], keepdims=0)

    x = jnp.asarray(X)
    assert "scan" in primitives(f, x)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(x), 4 * X**3)
    np.testing.assert_allclose(jax.grad(f)(x), 4 * X**3)


def test_a_loop_that_may_end_early_is_a_while_loop(run):
    def f(limit, x):
        return loop(100, True, [x], lambda i, keep, y: (less(y + y, limit), y + y))

    assert run(f, np.float32(10), np.float32(1))[0] == 16
    assert "while" in primitives(f, np.float32(10), np.float32(1))


def test_a_traced_count_and_condition(run):
    def f(count, keep, x):
        return loop(count, keep, [x], lambda i, keep, y: (keep, y + y))

    for count, keep, expected in ((3, True, 8), (3, False, 1), (0, True, 1), (-2, True, 1)):
        assert run(f, i64(count)[0].astype(np.int32), np.array(keep), np.float32(1))[0] == expected


def test_a_traced_condition_that_body_keeps_has_gradients():
    def f(keep, x):
        return loop(3, keep, [x], lambda i, keep, y: (keep, y * x))[0]

    assert jax.jit(jax.grad(f, argnums=1))(True, 2.0) == 32
    assert jax.jit(jax.grad(f, argnums=1))(False, 2.0) == 1


def test_int64_max_does_not_limit_a_loop(run):
    def f(x):
        return loop(2**63 - 1, True, [x], lambda i, keep, y: (less(i, np.int64(4)), y + y))

    assert run(f, np.float32(1))[0] == 32


def test_without_cond_the_condition_does_not_count_but_is_handed_on(run):
    def body(i, keep, total):
        return less(i, np.int64(1)), if_(keep, lambda: [total + np.float32(1)], lambda: [total])[0]

    assert run(lambda x: loop(5, None, [x], body), np.float32(0))[0] == 2  # iterations 0 and 1 saw True


def test_the_state_may_change_its_shape(run):
    last, rows = run(lambda x: loop(3, True, [x], lambda i, k, y: (k, concat([y, x], axis=0), x)), jnp.asarray(X))
    np.testing.assert_array_equal(last, np.concatenate([X] * 4))
    np.testing.assert_array_equal(rows, [X] * 3)


def test_the_state_may_hold_sequences(run):
    def f(x):
        return loop(2, True, [[]], lambda i, k, items: (k, sequence_insert(items, x), x))

    (one, two), rows = run(f, jnp.asarray(X))
    np.testing.assert_array_equal([one, two], rows)


def test_a_body_that_needs_the_number_is_unrolled(run):
    def f(x):
        return loop(2, True, [], lambda i, k: (k, slice(x, i.reshape(1), i.reshape(1) + 1)))

    np.testing.assert_array_equal(run(f, jnp.asarray(X))[0], X[:, None])


def test_a_static_state_stays_static_when_all_is():
    def f(x):
        size, counts = loop(5, True, [i64(1)], lambda i, keep, n: (less(n * 2, i64(8)), n * 2, n))
        assert isinstance(size, np.ndarray)
        assert size.dtype == np.int64
        assert counts.tolist() == [[1], [2], [4]]
        return x.reshape(size[0])

    assert jax.jit(f)(jnp.ones((2, 4))).shape == (8,)


def test_a_static_state_with_traced_scan_outputs_is_a_scan():
    def f(x):
        return loop(50, True, [np.float32(0)], lambda i, keep, n: (keep, n + np.float32(1), x))

    assert "scan" in primitives(f, jnp.asarray(X))
    last, rows = jax.jit(f)(jnp.asarray(X))
    assert (last, rows.shape) == (50, (50, 2, 3))


@pytest.mark.parametrize(("count", "cond"), [(0, True), (3, False), (-1, None)])
def test_no_iterations(run, count, cond):
    last, rows = run(lambda x: loop(count, cond, [x], doubling), jnp.asarray(X))
    np.testing.assert_array_equal(last, X)
    assert rows.shape == (0, 2, 3)
    assert rows.dtype == np.float32


def test_a_symbolic_count():
    def f(x):
        return loop(x.shape[0], None, [x[0] * 0], lambda i, keep, y: (keep, y + x[i], y))

    spec = jax.ShapeDtypeStruct(symbolic_shape("b, 3"), np.float32)
    last, rows = export(jax.jit(f))(spec).call(X)
    np.testing.assert_array_equal(last, X.sum(0))
    np.testing.assert_array_equal(rows, [X[0] * 0, X[0]])


def test_loops_nest_and_capture(run):
    def f(x):
        def outer(i, keep, y):
            return keep, loop(2, True, [y], lambda j, keep, z: (keep, z + x))[0]

        return loop(3, True, [x], outer)[0]

    np.testing.assert_array_equal(run(f, jnp.asarray(X)), X * 7)


def test_eagerly_a_condition_that_a_capture_traces():
    values = jnp.array([1.0, 3.0])
    found = jax.vmap(lambda x: loop(9, True, [np.float32(0)], lambda i, keep, n: (less(n, x), n + 1))[0])(values)
    np.testing.assert_array_equal(found, [2, 4])


# --- Scan


def running(total, x):
    return total + x, total + x


def test_scan(run):
    last, rows = run(lambda x: scan([x[0] * 0], [x], running), jnp.asarray(X))
    np.testing.assert_array_equal(last, X.sum(0))
    np.testing.assert_array_equal(rows, X.cumsum(0))


def test_scan_axes_and_directions(run):
    def f(x, w):
        return scan(
            [np.float32([0, 0])],
            [x, w],
            lambda total, a, b: (total + a * b, total, total),
            scan_input_axes=[-1, 0],
            scan_input_directions=[1, 0],
            scan_output_axes=[1, -2],
            scan_output_directions=[1, 0],
        )

    w = np.float32([1, 10, 100])
    terms = X[:, ::-1] * w
    totals = np.concatenate([np.zeros((2, 1)), terms.cumsum(1)], 1)
    last, one, other = run(f, jnp.asarray(X), jnp.asarray(w))
    np.testing.assert_array_equal(last, totals[:, -1])
    np.testing.assert_array_equal(one, totals[:, 2::-1])
    np.testing.assert_array_equal(other, totals[:, :3].T)


def test_scan_has_gradients():
    grad = jax.grad(lambda x: scan([jnp.ones(3)], [x], lambda p, v: (p * v, p))[0].sum())(jnp.asarray(X))
    np.testing.assert_allclose(grad, X[::-1])


def test_scan_over_no_rows():
    last, rows = scan([X[0]], [X[:0]], running)
    np.testing.assert_array_equal(last, X[0])
    assert rows.shape == (0, 3)


def test_scan_with_a_symbolic_length_and_batch():
    spec = jax.ShapeDtypeStruct(symbolic_shape("b, t, 3"), np.float32)
    fn = export(jax.jit(lambda x: scan([x[:, 0] * 0], [x], running, scan_input_axes=[1], scan_output_axes=[1])))(spec)
    x = np.stack([X, X + 1, X * 2])
    last, rows = fn.call(x)
    np.testing.assert_array_equal(last, x.sum(1))
    np.testing.assert_array_equal(rows, x.cumsum(1))


def test_scan_of_known_values_that_body_needs():
    def f(x):
        return scan([], [i64(0, 2, 1)], lambda at: [sequence_at([x, x + 1, x + 2], at)])

    np.testing.assert_array_equal(jax.jit(f)(jnp.asarray(X))[0], [X, X + 2, X + 1])
    (words,) = scan([], [np.array(["a", "b"], object)], lambda word: [word], scan_output_directions=[1])
    assert words.tolist() == ["b", "a"]


def test_a_body_may_stack_strings():
    word, seen = np.array(["a", "b"], object), []

    def traced(x):
        total, words = loop(2, None, [x], lambda i, keep, total: (keep, total + 1, word))
        last, more = scan([x], [jnp.stack([x, x])], lambda total, row: (total + row, word))
        seen[:] = [words, more]
        return total, last

    total, last = jax.jit(traced)(np.float32(3))
    assert [w.tolist() for w in seen] == [[["a", "b"]] * 2] * 2
    assert (total, last) == (5, 9)


def test_a_wrong_loop_is_caught():
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(loop(3, None, [X], doubling)[0], X * 16)


# --- Errors


def traced_loop(count=5, cond=True, state=X, body=doubling):
    return jax.jit(lambda x: loop(count, cond, [x], body))(state)


ONE = jnp.ones(1)
ERRORS = [
    (lambda: if_(np.array([True, False]), list, list), ShapeError, "if_: `cond` must be one boolean, but is bool"),
    (lambda: if_(1, list, list), DTypeError, "`cond` must be one boolean"),
    (lambda: traced_if([ONE], []), SignatureError, "then_branch has 1 output, else_branch 0"),
    (lambda: traced_if([ONE], [ONE[:0]]), ShapeError, r"(?s)output 0 is.*float32\[1\].*float32\[0\].*hint"),
    (lambda: traced_if([X, X > 1], [X, X]), DTypeError, r"(?s)output 1 is.*bool\[2,3\].*float32\[2,3\]"),
    (lambda: traced_if([[X]], [None]), ShapeError, r"(?s)a sequence of 1.*nothing"),
    (lambda: loop(None, None, [X], doubling), ArgumentError, "loop: without `m`, the trip count, .* it never ends"),
    (lambda: loop(X, None, [X], doubling), ShapeError, "`m` must hold one integer"),
    (
        lambda: jax.jit(lambda n: loop(n, None, [X], doubling))(X),
        ShapeError,
        "the trip count, must be one integer",
    ),
    (
        lambda: loop(1, None, [X], lambda *a: a[1:2]),
        SignatureError,
        "0 values after the condition, but the state has 1",
    ),
    (
        lambda: loop(2, None, [], lambda i, k: (k, X[: int(i)])),
        ShapeError,
        "scan output 0 must keep its type",
    ),
    (lambda: loop(1, True, [], lambda i, k: [X]), DTypeError, "the condition that body returns must be one boolean"),
    (lambda: traced_loop(body=lambda i, k, x: (k, x > 0)), DTypeError, "state 0 must keep .* float32.* to bool"),
    (
        lambda: jax.jit(lambda n: loop(n, None, [X], doubling))(3),
        StaticError,
        "(?s)`m`, the trip count, is traced.*each scan output has one row per iteration.*hint",
    ),
    (lambda: jax.jit(lambda c: loop(3, c, [X], doubling))(True), StaticError, "`cond` is traced"),
    (
        lambda: traced_loop(body=lambda i, k, x: (x.sum() > 0, x, x)),
        StaticError,
        "the condition that body returns is traced",
    ),
    (
        lambda: jax.jit(lambda n: loop(n, None, [ONE], lambda i, k, x: (k, concat([x, x], axis=0))))(3),
        StaticError,
        r"(?s)`m`, the trip count, is traced.*state 0 must keep .* float32\[1\] to float32\[2\]",
    ),
    (
        lambda: jax.jit(lambda n: loop(n, None, [], lambda i, k: (k, sequence_at([X, X], i))))(3),
        StaticError,
        "(?s)`m`, the trip count, is traced.*body needs a known value; sequence_at: `position`",
    ),
    (
        lambda: jax.jit(lambda n: loop(n, None, [np.array("a")], lambda i, k, s: (k, s)))(3),
        StaticError,
        "holds strings",
    ),
    (lambda: scan([X], [], running), SignatureError, "`num_scan_inputs` is 0; it must be from 1 to 1, the number of"),
    (lambda: scan([], [X], lambda x: [], scan_input_axes=[2]), AxisError, "`scan_input_axes` is 2"),
    (lambda: scan([], [X], lambda x: [x], scan_output_axes=[-3]), AxisError, "`scan_output_axes` is -3"),
    (
        lambda: scan([], [X], lambda x: [], scan_input_axes=[0, 0]),
        SignatureError,
        r"2 values; it needs 1",
    ),
    (lambda: scan([], [X], lambda x: [], scan_input_directions=[2]), ArgumentError, "must be 0 or 1"),
    (lambda: scan([X], [X], lambda s, x: []), SignatureError, "returns 0 values, but the state has 1"),
    (
        lambda: scan([X], [X], lambda s, x: [x]),
        ShapeError,
        r"state 0 must keep .* float32\[2,3\] to float32\[3\]",
    ),
    (lambda: scan([], [np.array([], object)], lambda x: [x]), ArgumentError, "over 0 rows .* are unknown"),
    (lambda: scan([], [X, X[:1]], lambda a, b: [a]), ShapeError, r"one size on the scanned axis, but have \(2, 1\)"),
    (lambda: jax.jit(lambda i: scan([], [i], lambda at: [sequence_at([X], at)]))(i64(0)), StaticError, "`position`"),
    (lambda: loop(3, None, [], lambda i, k: (k, sequence_at([X], i))), BoundsError, "`position` is 1"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[-30:] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_branches_that_differ_say_that_both_are_compiled():
    with pytest.raises(ShapeError) as caught:
        traced_if([ONE], [ONE[:0]])
    note = caught.value.__notes__[0]
    assert "the condition of this If is traced, so both branches are compiled" in note
    assert "load(path, values={name: value})" in note


def test_body_gets_the_condition_that_it_returned_as_an_array():
    found = loop(3, None, [jnp.zeros(())], lambda i, keep, x: (keep, x + keep.astype(jnp.float32)))
    assert found == (3,)
