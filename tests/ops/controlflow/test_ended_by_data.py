"""Loops that data end: their derivatives, and the results of at most `size` iterations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export
from programs import primitives

from jaxops.errors import ArgumentError, StaticError
from jaxops.ops import less, loop
from jaxops.ops.controlflow.ended_by_data import _with_derivative_of

LIMIT = np.float32(10)


def grown(x, w, m=None, size=None):
    """x times a power of w, until the sum is at least 10; and the values before each product."""
    return loop(m, True, [x], lambda i, keep, y: (less(y.sum(), LIMIT), y * w, y), size=size)


def last(x, w, m=None, size=None):
    return loop(m, True, [x], lambda i, keep, y: (less(y.sum(), LIMIT), y * w), size=size)[0]


def by_python(x, w):
    """Returns x times w to the n, and n. The sum before a product decides whether another one follows."""
    count, y, goes_on = 0, x, True
    while goes_on:
        goes_on, y, count = y.sum() < LIMIT, y * w, count + 1
    return y, count


X, W = np.float32([1, 0.5, 2]), np.float32(1.5)
LIMITED = [{"size": 9}, {"size": 1200}, {"m": 1000}, {"m": 40, "size": 12}]


@pytest.mark.parametrize("limits", LIMITED)
def test_derivatives(limits):
    expected, count = by_python(X, W)

    def total(x, w):
        return last(x, w, **limits).sum()

    for run in (lambda f: f, jax.jit):
        np.testing.assert_allclose(run(lambda x, w: last(x, w, **limits))(jnp.asarray(X), W), expected, 1e-6)
        by_x, by_w = run(jax.grad(total, (0, 1)))(X, W)
        np.testing.assert_allclose(by_x, np.full(3, W**count), 1e-6)
        np.testing.assert_allclose(by_w, count * expected.sum() / W, 1e-6)
    _, along = jax.jvp(total, (X, W), (np.zeros_like(X), np.float32(1)))
    np.testing.assert_allclose(along, by_w, 1e-6)


def test_second_derivatives():
    expected, count = by_python(X, W)

    def total(x, w):
        return last(x, w, size=9).sum()

    second = count * (count - 1) * expected.sum() / W**2
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(total, 1), 1))(X, W), second, 1e-5)
    np.testing.assert_allclose(jax.jacfwd(jax.grad(total, 1), 1)(X, W), second, 1e-5)
    np.testing.assert_allclose(jax.grad(lambda w: jax.jvp(total, (X, w), (0 * X, w / w))[1])(W), second, 1e-5)


def test_a_call_stays_a_while_loop():
    for limits in ({}, *LIMITED):
        found = primitives(lambda x, w, limits=limits: last(x, w, **limits), X, W)
        assert "while" in found
        assert "scan" not in found


def test_forward_mode_needs_no_limit():
    expected, count = by_python(X, W)
    _, along = jax.jit(lambda x, w: jax.jvp(last, (x, w), (0 * x, w / w)))(X, W)
    np.testing.assert_allclose(along, count * expected / W, 1e-6)


@pytest.mark.parametrize("m", [None, 1001])
def test_reverse_mode_without_a_limit(m):
    with pytest.raises(StaticError, match=r"reverse mode needs a largest number\n  hint    loop\(…, size=n\) runs at"):
        jax.jit(jax.grad(lambda x: last(x, W, m).sum()))(X)


@pytest.mark.parametrize("run", [lambda f: f, jax.jit])
def test_scan_outputs_have_as_many_rows_as_size(run):
    expected, count = by_python(X, W)
    y, rows = run(lambda x: grown(x, W, size=9))(jnp.asarray(X))
    np.testing.assert_allclose(y, expected, 1e-6)
    np.testing.assert_allclose(rows, [X * W**k if k < count else 0 * X for k in range(9)], 1e-6)
    gradient = run(jax.grad(lambda w: grown(jnp.asarray(X), w, size=9)[1].sum()))(W)
    np.testing.assert_allclose(gradient, sum(k * X.sum() * W ** (k - 1) for k in range(count)), 1e-6)


def test_a_traced_trip_count():
    def f(n, x):
        return loop(n, None, [x], lambda i, keep, y: (keep, y + y, y), size=4)

    for n, y, rows in ((-1, 1, [0, 0, 0, 0]), (2, 4, [1, 2, 0, 0]), (4, 16, [1, 2, 4, 8])):
        chosen = jax.jit(f)(np.int32(n), np.float32(1))
        assert (chosen[0], chosen[1].tolist()) == (y, rows)
    assert jax.jit(jax.grad(lambda x: f(np.int32(3), x)[0]))(np.float32(1)) == 8


def test_a_loop_that_has_not_ended():
    def f(w):
        state = [X * w, np.int32([1, 2]), np.uint8([3]), np.array(True), X.astype(jnp.bfloat16)]
        body = lambda i, keep, *state: (w > 0, *state, i)  # noqa: E731
        return loop(None, True, state, body, size=3)

    floats, ints, unsigned, flag, narrow, numbers = jax.jit(f)(W)
    assert np.isnan(floats).all()
    assert np.isnan(narrow.astype(jnp.float32)).all()
    assert ints.tolist() == [-1, -1]
    assert unsigned.tolist() == [255]
    assert not flag
    assert numbers.tolist() == [-1, -1, -1]
    assert np.isnan(jax.grad(lambda w: f(w)[0].sum())(W))
    assert np.isnan(jax.grad(lambda w: last(X, w, size=2).sum())(W))
    assert np.isfinite(f(-W)[0]).all()


def root(x, w, size=6):
    """The derivative of a step is infinite at 0, where the loop ends: one more step would make 0 times infinity."""
    body = lambda i, keep, y, s: (less(np.float32(0), y - 1), y - np.float32(1), s + w * jnp.sqrt(y))  # noqa: E731
    return loop(None, less(np.float32(0), x), [x, jnp.zeros_like(x)], body, size=size)[1]


def test_a_skipped_step_enters_no_derivative():
    numbers = np.float32([3, 1, 0, 2])
    by_w = np.float32([sum(np.sqrt(k) for k in range(1, int(n) + 1)) for n in numbers])
    by_x = np.float32([sum(0.5 / np.sqrt(k) for k in range(1, int(n) + 1)) for n in numbers])
    assert not np.isfinite(jax.grad(root)(np.float32(0), np.float32(1), 1) + jax.grad(jnp.sqrt)(0.0))
    each = [jax.grad(root, (0, 1))(n, np.float32(1)) for n in numbers]
    np.testing.assert_allclose(each, np.stack([by_x, by_w], 1), 1e-6)
    for run in (lambda f: f, jax.jit):
        mapped = run(jax.vmap(jax.grad(root, (0, 1)), (0, None)))(numbers, np.float32(1))
        np.testing.assert_allclose(mapped, [by_x, by_w], 1e-6)
        of_mapped = run(jax.grad(lambda x, w: jax.vmap(root, (0, None))(x, w).sum(), (0, 1)))(numbers, np.float32(1))
        np.testing.assert_allclose(of_mapped[0], by_x, 1e-6)
        np.testing.assert_allclose(of_mapped[1], by_w.sum(), 1e-6)


def test_rows_of_skipped_steps_enter_no_derivative():
    def f(x, w):
        body = lambda i, keep, y: (less(np.float32(0), y - 1), y - np.float32(1), w * jnp.sqrt(y))  # noqa: E731
        return loop(None, True, [x], body, size=5)[1].sum()

    numbers = np.float32([3, 1, 2])
    expected = [sum(0.5 / np.sqrt(k) for k in range(1, int(n) + 1)) for n in numbers]
    np.testing.assert_allclose(jax.vmap(jax.grad(f), (0, None))(numbers, np.float32(1)), expected, 1e-6)
    batch = jax.grad(lambda x: jax.vmap(f, (0, None))(x, np.float32(1)).sum())(numbers)
    np.testing.assert_allclose(batch, expected, 1e-6)


def test_nested_loops():
    def f(x):
        body = lambda i, keep, y: (less(y.sum(), np.float32(100)), last(y, W, size=8) + x)  # noqa: E731
        return loop(None, True, [x], body, size=6)[0].sum()

    step = 1e-2
    direction = np.float32([1, 2, -1])
    slope = jnp.vdot(jax.jit(jax.grad(f))(X), direction)
    np.testing.assert_allclose(slope, (f(X + step * direction) - f(X - step * direction)) / (2 * step), 1e-3)


def test_known_numbers_of_iterations_keep_their_sizes():
    total, rows = jax.jit(lambda x: loop(3, True, [x], lambda i, keep, y: (keep, y + y, y), size=9))(X)
    assert rows.shape == (3, 3)
    np.testing.assert_array_equal(total, 8 * X)
    assert isinstance(loop(4, None, [np.array(1)], lambda i, keep, n: (keep, n * 2, n), size=9)[1], np.ndarray)
    assert loop(4, False, [X], lambda i, keep, y: (keep, y, y), size=9)[1].shape == (0, 3)
    assert jax.jit(lambda x: loop(3, None, [x], lambda i, k, y: (x.sum() > 0, y), size=2)[0])(X).tolist() == X.tolist()


def test_an_exported_loop():
    exported = export(jax.jit(lambda x, w: grown(x, w, size=7)))(X, W)
    for found, expected in zip(exported.call(X, W), grown(jnp.asarray(X), W, size=7), strict=True):
        np.testing.assert_allclose(found, expected, 1e-6)
    pulled = export(jax.jit(lambda x, w: last(x, w, m=30)))(X, W).vjp().call(X, W, np.ones(3, np.float32))
    np.testing.assert_allclose(pulled[0], np.full(3, W ** by_python(X, W)[1]), 1e-6)


def test_a_wrong_derivative_is_caught():
    """The derivative is that of the other function, so these tests would see a wrong one."""
    function = _with_derivative_of(lambda x: 3 * x, lambda x: 2 * x, AssertionError)
    assert (function(W), jax.grad(function)(W), jax.jvp(function, (W,), (W,))[1]) == (3, 3, 4.5)


@pytest.mark.parametrize("size", [0, -1])
def test_a_wrong_size(size):
    with pytest.raises(ArgumentError, match=rf"loop: `size` is {size}; it must be at least 1"):
        grown(X, W, size=size)
