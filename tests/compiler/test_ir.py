"""Programs as lists of operations on numbered values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import inlined

from jaxops.compiler.ir import Constant, Program, evaluate, operation_of, plain, run

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def fn(x, y):
    z = lax.exp(x)
    return lax.sin(z) + z, y, lax.neg(y) * 2


@pytest.fixture
def program():
    """%2 = exp %0, %3 = sin %2, %4 = add %3 %2, %5 = neg %1, %6 = mul %5 2."""
    return inlined(fn, X, X)


def test_each_equation_is_an_operation():
    """Calls are not opened: a pass does that."""
    closed = jax.make_jaxpr(lambda x: jax.jit(fn)(x, x))(X)
    program = Program.of(closed)
    assert [operation.name for operation in program.operations] == [eqn.primitive.name for eqn in closed.jaxpr.eqns]
    assert program.inputs == (0,)
    for y, expected in zip(run(program, [X]), fn(X, X), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_constants_of_a_jaxpr_are_operands():
    program = Program.of(jax.make_jaxpr(lambda x: (x + jnp.asarray(X), 3.0))(X))
    (add,) = [operation for operation in program.operations if operation.name == "add"]
    assert any(isinstance(v, Constant) and np.shape(v.value) == X.shape for v in add.operands)
    assert isinstance(program.outputs[1], Constant)
    assert program.results == program.outputs[:1]
    np.testing.assert_array_equal(run(program, [X])[0], 2 * X)


def test_producers_and_readers_are_positions(program):
    assert program.producers == {2: 0, 3: 1, 4: 2, 5: 3, 6: 4}
    readers = {v: positions for v, positions in program.readers.items() if isinstance(v, int)}
    assert readers == {0: [0], 2: [1, 2], 3: [2], 1: [3, 5], 5: [4], 4: [5], 6: [5]}  # 5 stands for the outputs


def test_operations_that_nobody_needs_go(program):
    assert [o.name for o in program.replace(outputs=[3]).needed().operations] == ["exp", "sin"]
    printing = inlined(lambda x: (jax.debug.print("{}", x[0, 0]), x)[1], X)
    assert printing.needed().operations  # effects stay


def test_a_program_can_be_read(program):
    lines = str(program).splitlines()
    assert lines[0] == "inputs %0:float32[2,3], %1:float32[2,3]"
    assert lines[1] == "%2:float32[2,3] = exp %0" or lines[1].startswith("%2:float32[2,3] = exp[")
    assert lines[5] == "%6:float32[2,3] = mul %5 2.0"
    assert lines[-1] == "outputs %4, %1, %6"


def test_an_operation_of_a_function(program):
    types = [*program.types, program.types[0]]
    added = operation_of(lax.add, (4, Constant(np.float32(1))), (7,), types, "here")
    assert (added.name, added.scope, added.results) == ("add", "here", (7,))
    longer = program.replace(operations=[*program.operations, added], types=types, outputs=[7])
    np.testing.assert_allclose(run(longer, [X, X])[0], fn(X, X)[0] + 1, rtol=1e-6)


def test_a_rule_computes_each_operation(program):
    names = []

    def emit(operation, operands, params=None):
        names.append(operation.name)
        return plain(operation, operands, params)

    values = {0: X, 1: X}
    evaluate(program.operations, values, program.outputs, emit)
    assert names == ["exp", "sin", "add", "neg", "mul"]
    assert sorted(values) == list(range(7))
