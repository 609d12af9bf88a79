"""Programs of symbolic sizes on padded arrays give what they give on arrays of exact sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from padded_programs import check

import jaxops
from jaxops.compiler.padded import rules
from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity
from jaxops.errors import UnsupportedError
from jaxops.static import symbolic_shape


def spoiled(x):
    """With a surplus of infinities and NaN."""
    return jnp.log(x * x) / x


CASES = {
    "sum": (lambda x: spoiled(x).sum(1), (2, "s")),
    "mean": (lambda x: (x + 1).mean(1), (2, "s")),
    "max, min": (lambda x: ((x - 99).max(1), (x + 99).min(1)), (2, "s")),
    "prod": (lambda x: (x * 0.1).prod(0), ("s", 2)),
    "all, any": (lambda x: (x < 50).all(1) & (x != 0).any(1), (2, "s")),
    "argmax, argmin": (lambda x: (jnp.argmax(x - 99, 1), jnp.argmin(x + 99, 1)), (2, "s")),
    "softmax": (lambda x: jax.nn.softmax(x * 0.1, -1), (2, "s")),
    "logsumexp": (lambda x: jax.nn.logsumexp(x * 0.1, -1), (2, "s")),
    "cumsum": (lambda x: jnp.cumsum(x + 1, 1), (2, "s")),
    "cumsum, reversed": (lambda x: lax.cumsum(x + 1, 1, reverse=True), (2, "s")),
    "product of matrices": (lambda x, y: spoiled(x) @ jnp.exp(y), (2, "s"), ("s", 3)),
    "product with zeros behind": (lambda x, y: spoiled(x) @ y, (2, "s"), ("s", 3)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y, x]), ("s", 3), (2, 3)),
    "concatenate, the other way": (lambda x, y: jnp.concatenate([y, x + 1]), ("s", 3), (2, 3)),
    "reshape, apart": (lambda x: x.reshape(2, 3, -1), (6, "s")),
    "reshape, joined": (lambda x: x.reshape(-1), (2, "s", 3)),
    "reshape, parted": (lambda x: (x.reshape(2, -1), x.reshape(-1, 2)), ("2*s",)),
    "slice from the front": (lambda x: x[: x.shape[0] - 1], ("s + 1", 2)),
    "slice from the end": (lambda x: (x[-2:], x[1:]), ("s + 2", 2)),
    "slice with steps": (lambda x: x[::2], ("2*s", 2)),
    "slice of a table": (lambda x: jnp.arange(40.0)[x.shape[0] : x.shape[0] + 3], ("s", 1)),
    "rows of a table": (lambda x: jnp.arange(40.0)[: x.shape[0]] + x[:, 0], ("s", 1)),
    "columns that begin at a size": (lambda x: lax.slice_in_dim(x, x.shape[0], x.shape[0] + 2, axis=1), ("s", 9)),
    "no elements": (lambda x: x.reshape(3, x.shape[1], 0), (0, "s", 3)),
    "batches of transforms": (lambda x: jnp.abs(jnp.fft.rfft(x)), ("s", 4)),
    "beside each other": (lambda x: jnp.concatenate([x, x + 1], 1).reshape(-1, 2, 3).sum(0), ("s", 3)),
    "split": (lambda x: jnp.split(x, [1, 2]), ("s + 2", 2)),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=7), ("s", 2)),
    "pad before": (lambda x: lax.pad(spoiled(x), 7.0, [(x.shape[0], 1, 0), (0, 0, 0)]), ("s", 2)),
    "pad before, and crop": (lambda x: lax.pad(x, 7.0, [(2 * x.shape[0], -x.shape[0], 0), (0, 0, 0)]), ("s", 2)),
    "pad before, with zeros": (
        lambda x: lax.pad(spoiled(x), 0.0, [(x.shape[0] % 2, 1, 0), (0, 0, 0)]).sum(0),
        ("s", 2),
    ),
    "take": (lambda x: jnp.take(x, jnp.array([-1, 0]), axis=0), ("s", 2)),
    "take, out of range": (lambda x: jnp.take(x, jnp.array([x.shape[0], 0]), axis=0, fill_value=5), ("s", 2)),
    "take, clipped": (lambda x: jnp.take(x, jnp.array([20, 0]), axis=0, mode="clip"), ("s", 2)),
    "update": (lambda x: lax.dynamic_update_slice(x, jnp.ones((1, 2)), (x.shape[0] - 1, 0)), ("s", 2)),
    "dynamic slice": (lambda x: lax.dynamic_slice(x, (jnp.int32(30), 0), (1, 2)), ("s", 2)),
    "scatter": (lambda x: x.at[jnp.array([0, x.shape[0] - 1])].set(8), ("s", 2)),
    "flip": (lambda x: x[::-1], ("s", 2)),
    "top k": (lambda x: lax.top_k(x - 99, 1), (2, "s")),
    "iota and size": (lambda x: jnp.arange(x.shape[0]) * x.shape[0], ("s",)),
    "mask by sizes": (lambda x: jnp.where(jnp.tri(x.shape[0], dtype=bool), x[None], 0), ("s",)),
    "sort": (lambda x: (jnp.sort(x, 0), jnp.sort(x, 1), jnp.argsort(-x, 0)), ("s", 2)),
    "sort with infinity": (lambda x: jnp.sort(jnp.where(x < 0, jnp.inf, jnp.nan), 0), ("s", 2)),
    "scatter of each": (lambda x: jnp.zeros((9, 2)).at[jnp.arange(x.shape[0])].set(x + 1), ("s", 2)),
    "scatter, last one first": (lambda x: x.at[jnp.arange(x.shape[0])[::-1]].set(x), ("s", 2)),
    "scatter of each, added": (lambda x: jnp.ones(2).at[jnp.arange(x.shape[0]) % 2].add(x + 9), ("s",)),
    "scatter of each, multiplied": (lambda x: jnp.ones(2).at[jnp.zeros(x.shape[0], int)].mul(x + 9), ("s",)),
    "scatter of each, the largest": (lambda x: jnp.ones(2).at[jnp.zeros(x.shape[0], int)].max(x + 9), ("s",)),
    "loop of layers": (lambda x: lax.fori_loop(0, 3, lambda _, y: jax.nn.softmax(y + x), x), ("s",)),
    "loop over the tokens": (lambda x: lax.scan(lambda h, r: (jnp.tanh(h + r), h + r), jnp.ones(2), x), ("s", 2)),
    "backwards": (lambda x: lax.scan(lambda h, r: (h * 0.5 + r, h), jnp.ones(2), x + 1, reverse=True), ("s", 2)),
    "while": (lambda x: lax.while_loop(lambda y: y.sum() < 99, lambda y: y + jnp.abs(x).max() + 1, x), ("s",)),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda: (x + 1).sum() + x, lambda: (x - 1).sum() + x), ("s",)),
    "inner jit": (lambda x: jax.jit(lambda y: y.sum())(x + 1), ("s",)),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", CASES)
def test_same_as_with_exact_sizes(name):
    fn, *shapes = CASES[name]
    check(fn, *shapes)


def first(x, count):
    return lax.slice_in_dim(x, 0, count)


# Fewer elements than the operand has: true elements of the operand are surplus elements of the result.
FEWER = {
    "but the last": (lambda x: first(x, x.shape[0] - 1), ("s + 1", 2)),
    "half": (lambda x: first(x, x.shape[0] // 2), ("2*s", 2)),
    "half, of some columns": (lambda x: lax.slice(x, (0, 1), (x.shape[0] // 2, 3)), ("2*s", 3)),
    "the first piece": (lambda x: jnp.split(x, [x.shape[0] - 1])[0], ("s + 1", 2)),
    "a row before": (lambda x: first(jnp.concatenate([first(x, 1), x]), x.shape[0]), ("s", 2)),
    "rows of a table": (lambda x: first(jnp.arange(1.0, 41.0).reshape(20, 2), x.shape[0]), ("s", 1)),
    "cropped": (lambda x: lax.pad(x, 0.0, [(0, -1, 0), (0, 0, 0)]), ("s + 1", 2)),
    "cropped and moved": (lambda x: lax.pad(x, 0.0, [(1, -2, 0), (0, 0, 0)]), ("s + 2", 2)),
    "cropped by a size": (lambda x: lax.pad(x, 0.0, [(0, -(x.shape[0] // 2), 0), (0, 0, 0)]), ("2*s", 2)),
    "moved by a size": (
        lambda x: lax.pad(x, 0.0, [(x.shape[0] // 2, -(x.shape[0] // 2) - 1, 0), (0, 0, 0)]),
        ("2*s + 1", 2),
    ),
}
READERS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "products of columns": lambda x: x.T @ x,
    "einsum": lambda x: jnp.einsum("ij,ik->k", x, x),
    "reversed cumsum": lambda x: lax.cumsum(x, 0, reverse=True),
    "windows": lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), [(0, 1), (0, 0)]),
    "convolution": lambda x: jaxops.conv(x.T[None], jnp.ones((1, x.shape[1], 3)), pads=(1, 1)),
    "average pool": lambda x: jaxops.average_pool(x.T[None], kernel_shape=(3,), pads=(1, 1)),
    "moved": lambda x: (-x).astype(np.int32).T.reshape(x.shape[1], -1, 1).sum(1),
    "flat": lambda x: x.reshape(-1).sum(),
}


@pytest.mark.grid
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", FEWER)
def test_fewer_elements(name, reader):
    fn, *shapes = FEWER[name]
    check(lambda *x: READERS[reader](fn(*x)), *shapes)


def test_x64(x64):
    check(lambda x: (jnp.arange(x.shape[0]) * x.shape[0], x.sum() * x.shape[0]), ("s",), dtype=np.float64)
    check(lambda x: (x.min(0), x.max(0)), ("s", 2), dtype=np.uint64)


def test_bfloat16_and_integers():
    check(lambda x: x.max(0), ("s", 2), dtype=jnp.bfloat16)
    bits = jnp.bitwise_or, jnp.bitwise_xor, jnp.bitwise_and
    for dtype in (np.int32, np.uint8):
        check(lambda x: (x.max(0), x.min(0), *(f.reduce(x, 0) for f in bits)), ("s", 2), dtype=dtype)


def test_room_for_more():
    """A size may have more room than it needs, so that a cache is written in place."""
    (s,) = symbolic_shape("s", constraints=["s >= 1", "s <= 6"])
    specs = jax.ShapeDtypeStruct((s - 1, 2), np.float32), jax.ShapeDtypeStruct((1, 2), np.float32)
    program = jax.make_jaxpr(lambda old, new: jnp.concatenate([old, new]))(*specs)
    old = np.zeros((6, 2), np.float32)
    old[:3] = 1
    capacity = Capacity({"s": jnp.int32(4)}, {"s": 6}, {s - 1: 6})
    (found,) = run_padded(program, [jnp.asarray(old), jnp.full((1, 2), 2.0)], capacity)
    assert found.zeroed
    np.testing.assert_array_equal(np.asarray(found.array)[:, 0], [1, 1, 1, 2, 0, 0])
    text = jax.jit(lambda a, b: run_padded(program, [a, b], capacity)[0].array, donate_argnums=0)
    compiled = text.lower(jnp.asarray(old), jnp.ones((1, 2))).compile().as_text()
    assert "dynamic-update-slice" in compiled
    assert " pad(" not in compiled


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (
            lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 1), (1, 1), "VALID"),
            "`reduce_window` works along an axis whose size differs from call to call; that is not supported",
        ),
        (
            lambda x: lax.fori_loop(
                0, 3, lambda _, y: y + lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 1), "SAME"), x
            ),
            "`reduce_window` works along an axis",
        ),
        (
            lambda x: jnp.ones(2).at[jnp.arange(x.shape[0])].set(x[:, 0], mode="clip"),
            "`scatter` works along an axis .*: scatter with mode='clip' is not supported for a number of updates",
        ),
        (
            lambda x: lax.scatter(
                jnp.ones((9, x.shape[0])),
                jnp.zeros((1, 1), np.int32),
                first(x, x.shape[0] - 1).T[:1],
                lax.ScatterDimensionNumbers((1,), (0,), (0,)),
            ),
            "a scatter whose updates differ in size from call to call",
        ),
        (lambda x: lax.pad(x, 0.0, [(0, 0, 1), (0, 0, 0)]), "padding of 0 before and 1 between the elements"),
        (lambda x: lax.pad(x, 0.0, [(3 * x.shape[0], -3 * x.shape[0], 0), (0, 0, 0)]), r"padding of 3\*s before"),
    ],
)
def test_what_has_no_rule_says_so(fn, match):
    with pytest.raises(UnsupportedError, match=match):
        check(fn, ("s", 2), sizes=(2, 4))


def test_a_rule_that_lets_the_surplus_in_is_caught(monkeypatch):
    monkeypatch.setitem(rules.NEUTRAL, "reduce_max", rules._highest)
    with pytest.raises(AssertionError):
        check(*CASES["max, min"])
