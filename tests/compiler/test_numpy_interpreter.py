"""What NumPy computes of weights is what XLA computes."""

import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import inlined

import jaxops
from jaxops.compiler import numpy_interpreter
from jaxops.compiler.ir import run
from jaxops.compiler.run import prepare_weights

RNG = np.random.default_rng(0)
BYTES = RNG.integers(-128, 128, (6, 5, 4)).astype(np.int8)
WHOLE = RNG.integers(-(2**31), 2**31, (6, 5, 4)).astype(np.int32)
FLOATS = RNG.standard_normal((6, 5, 4)).astype(np.float32)
FUNCTIONS = {
    "sums of bytes": (lambda x: jnp.sum(x, (0, 2), jnp.int32), BYTES),
    "sums wrap around": (lambda x: lax.reduce_sum(x, (1,)), WHOLE),
    "products wrap around": (lambda x: x * x - x + 7, WHOLE),
    "integers as floats": (lambda x: x.astype(jnp.float32) * 0.5, WHOLE),
    "wide integers as narrow": (lambda x: x.astype(jnp.int8), WHOLE),
    "a choice": (lambda x: lax.select(x != x, x, 2 - x), FLOATS),
    "quotients": (lambda x: lax.stop_gradient(x) / (1 + x * x), FLOATS),
    "moves": (lambda x: lax.transpose(lax.slice(x, (1, 0, 0), (6, 5, 3)), (2, 0, 1))[:, None], FLOATS),
    "rows": (lambda x: jaxops.gather(x, np.array([[5, 0, -1], [2, 2, 1]])), FLOATS),
    "rounded": (lambda x: x.astype(jnp.bfloat16), FLOATS),
}


def on_both(fn, x):
    """(what NumPy computes, what XLA computes), or None where NumPy is not asked."""
    program = inlined(fn, x)
    found = numpy_interpreter.numpy_computable(program)
    if program.outputs[0] not in found:
        return None
    return run(program, [x], numpy_interpreter.run_numpy)[0], jax.jit(fn)(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_numbers(name):
    results = on_both(*FUNCTIONS[name])
    assert results is not None
    found, expected = results
    assert found.dtype == expected.dtype
    # XLA may multiply and add at once, with one rounding.
    np.testing.assert_allclose(found, expected, rtol=0 if found.dtype.kind == "i" else 2e-7)


def test_a_choice_keeps_what_is_no_number():
    x = np.where(FLOATS > 0, FLOATS, np.nan).astype(np.float32)
    found, expected = on_both(FUNCTIONS["a choice"][0], x)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (lambda x: jnp.sum(x, 1), FLOATS),  # the order of a sum decides about its last digits
        (lambda x: jaxops.gather(x, np.array([3, 0]), axis=1), FLOATS),  # rows only
        (lambda x: x.astype(jnp.int8), FLOATS),  # out of range XLA saturates
        (jnp.exp, FLOATS),
        (lambda x: x // 3, WHOLE),
    ],
)
def test_what_numpy_computes_in_another_way_is_left_to_xla(fn, x):
    assert on_both(fn, x) is None


def test_what_is_between_is_let_go(monkeypatch):
    program = inlined(lambda x: lax.reduce_sum(-x.astype(jnp.int32) * 3, (1,)), BYTES)
    made, alive, plain = [], [], numpy_interpreter.run_numpy

    def counted(operation, operands, params=None):
        alive.append(sum(ref() is not None for ref in made))
        results = plain(operation, operands)
        made.append(weakref.ref(results[0]))
        return results

    monkeypatch.setattr(numpy_interpreter, "run_numpy", counted)
    [found] = prepare_weights._by_numpy(program.operations, {0: BYTES}, program.outputs)
    np.testing.assert_array_equal(found, -3 * BYTES.astype(np.int32).sum(1))
    assert alive == [0, 1, 1, 1]  # converted, negated, multiplied, summed


def test_weights_are_let_go_one_by_one():
    """Also those that results are views of; what is left has memory of its own."""
    read = []

    class Weight:
        def __array__(self, dtype=None, copy=None):
            assert all(ref() is None for ref in read)
            found = np.arange(6.0, dtype=np.float32).reshape(2, 3).copy()
            read.append(weakref.ref(found))
            return found

    program = inlined(lambda *xs: [x.T for x in xs], *[np.ones((2, 3), np.float32)] * 3)
    found = prepare_weights._by_numpy(
        program.operations, dict(enumerate([Weight(), Weight(), Weight()])), program.outputs
    )
    assert len(read) == 3
    for y in found:
        np.testing.assert_array_equal(y, np.arange(6.0).reshape(2, 3).T)
