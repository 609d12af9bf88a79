"""What an operator made is asserted to have the sizes and the type that were resolved."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.export import symbolic_shape

import jaxops as jo
import jaxops.onnx
from jaxops.errors import SizeError
from jaxops.onnx.registry import Operator, find
from jaxops.ops.common.result_sizes import assert_sizes

X = jnp.arange(24, dtype=jnp.float32).reshape(2, 3, 4)
# Operator → a call of it, and the same with `lax`.
CALLS = {
    "reshape": (lambda x: jo.reshape(x, (0, -1)), lambda x: lax.reshape(x, (2, 12))),
    "flatten": (lambda x: jo.flatten(x, axis=2), lambda x: lax.reshape(x, (6, 4))),
    "split": (lambda x: jo.split(x, num_outputs=2, axis=2), lambda x: lax.split(x, (2, 2), axis=2)),
    "variadic_split": (lambda x: jo.variadic_split(x, 2, (1, -1)), lambda x: lax.split(x, (1, 3), axis=2)),
}


def longer(y):
    return lax.pad(y, y.dtype.type(0), [(0, 1, 0)] * y.ndim)


def whole(y):
    return y.astype(jnp.int32)


@pytest.fixture(params=["eager", "jit", "vmap"])
def run(request):
    """An operator called on a concrete array, under `jit`, and on the rows of a batch."""
    return {"eager": lambda fn: fn, "jit": jax.jit, "vmap": lambda fn: lambda x: jax.vmap(fn)(x[None])}[request.param]


@pytest.mark.parametrize(("fault", "match"), [(longer, "shape"), (whole, "type int32 but expected float32")])
@pytest.mark.parametrize("op", CALLS)
def test_an_operator_that_is_wrong_is_found(op, fault, match, run, monkeypatch):
    name = "split" if "split" in op else "reshape"
    right = getattr(lax, name)
    monkeypatch.setattr(lax, name, lambda *args, **named: jax.tree.map(fault, right(*args, **named)))
    jax.clear_caches()
    with pytest.raises(AssertionError, match=rf"Chex.*{match}") as error:
        run(CALLS[op][0])(X)
    assert f"in the operator {op}" in error.value.__notes__
    jax.clear_caches()


@pytest.mark.parametrize("op", CALLS)
def test_assertions_leave_nothing_in_a_program(op):
    ours, bare = CALLS[op]
    assert str(jax.make_jaxpr(ours)(X)) == str(jax.make_jaxpr(bare)(X))


@pytest.mark.parametrize("op", CALLS)
def test_a_second_call_asserts_nothing(op, monkeypatch):
    fn = jax.jit(chex.assert_max_traces(CALLS[op][0], n=1))
    first = fn(X)
    monkeypatch.setattr(chex, "assert_shape", None)
    chex.assert_trees_all_equal(fn(X), first)


def test_sizes_that_cannot_be_compared_are_no_assertion():
    b, s = symbolic_shape("b, s")
    y = jax.ShapeDtypeStruct((b, 3), np.float32)
    with pytest.raises(SizeError, match=r"the result has the sizes \(b, 3\), expected \(s, 3\): b and s must be"):
        assert_sizes(y, (s, 3), np.float32)
    for sizes in ((b, 4), (b + 1, 3), (b,)):
        with pytest.raises(AssertionError, match=r"Chex.*assert_shape"):
            assert_sizes(y, sizes, np.float32)
    assert assert_sizes(y, (b, 3), np.float32) is y


def test_a_static_result_is_not_asserted():
    y = np.zeros(3)
    assert assert_sizes(y, (4,), np.int8) is y


def test_with_x64_off_a_wide_type_is_its_narrow_one():
    assert assert_sizes(X.astype(jnp.int32), X.shape, np.int64).dtype == np.int32


def test_a_type_that_the_schema_does_not_allow_is_found():
    relu = find("Relu", "", 14)
    wrong = Operator(relu.schema, lambda x: x.astype(jnp.float16), 14)
    with pytest.raises(AssertionError, match=r"Chex.*type float16 but expected float32. \[Relu-14, output Y\]"):
        jax.jit(lambda x: wrong.call([x], {}, n_outputs=1, rng=None))(X)
    assert jax.jit(lambda x: relu.call([x], {}, n_outputs=1, rng=None))(X)[0].dtype == np.float32
