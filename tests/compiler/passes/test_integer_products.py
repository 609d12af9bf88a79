"""Matrix products and convolutions of dequantized arrays become products of their integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import TARGET, equations

import jaxops as jo
from jaxops.compiler.ir import Program, run
from jaxops.compiler.passes.inline_calls import inline_calls
from jaxops.compiler.passes.integer_products import integer_products

RNG = np.random.default_rng(0)
SCALE = np.float32(0.02)


def integers(*shape, kind=np.int8):
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max, shape, kind, endpoint=True)


def scales(count):
    return RNG.uniform(0.01, 0.02, count).astype(np.float32)


def data(x, zero=117):
    return jo.dequantize_linear(x, SCALE, np.uint8(zero))


def program_of(fn, *args):
    return Program.of(jax.make_jaxpr(fn)(*args))


def sums(fn, *args, most=1e-5):
    """The types of the sums of all products behind the pass. The program gives what the function gives."""
    program = integer_products(program_of(fn, *args), TARGET)
    found = jax.jit(lambda *args: run(program, args))(*args)
    for y, expected in zip(found, jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        np.testing.assert_allclose(y, expected, rtol=most, atol=most * np.abs(expected).max())
    products = equations(jax.make_jaxpr(lambda *args: run(program, args))(*args).jaxpr)
    names = {"dot_general", "conv_general_dilated"}
    return [e.outvars[0].aval.dtype.name for e in products if e.primitive.name in names]


DIMENSIONS = {
    "matrices": ((5, 6), (6, 7), ((1,), (0,)), ((), ())),
    "both transposed": ((6, 5), (7, 6), ((0,), (1,)), ((), ())),
    "one row": ((1, 6), (6, 7), ((1,), (0,)), ((), ())),
    "three axes": ((2, 5, 6), (6, 7), ((2,), (0,)), ((), ())),
    "columns of two axes": ((5, 6), (3, 6, 7), ((1,), (1,)), ((), ())),
    "a batch": ((3, 5, 6), (3, 6, 7), ((2,), (1,)), ((0,), (0,))),
    "a batch behind": ((6, 5, 3), (7, 3, 6), ((0,), (2,)), ((2,), (1,))),
    "a batch of two axes": ((2, 5, 4, 3, 6), (3, 2, 7, 6), ((4,), (3,)), ((0, 3), (1, 0))),
    "a batch of rows": ((3, 6), (3, 6, 7), ((1,), (1,)), ((0,), (0,))),
}


@pytest.mark.parametrize("zero", [None, 9])
@pytest.mark.parametrize("name", DIMENSIONS)
def test_a_product_along_any_axes(name, zero):
    left, right, *dimensions = DIMENSIONS[name]

    def fn(x, w):
        return lax.dot_general(
            data(x), jo.dequantize_linear(w, SCALE, None if zero is None else np.int8(zero)), dimensions
        )

    assert sums(fn, integers(*left, kind=np.uint8), integers(*right)) == ["int32"]


@pytest.mark.parametrize(("axis", "over"), [(1, 0), (0, 1)])
def test_a_scale_for_each_column(axis, over):
    w = integers(6, 7) if over == 0 else integers(7, 6)

    def fn(x, w, by, zero):
        return lax.dot_general(data(x), jo.dequantize_linear(w, by, zero, axis=axis), (((1,), (over,)), ((), ())))

    assert sums(fn, integers(5, 6, kind=np.uint8), w, scales(7), integers(7)) == ["int32"]


@pytest.mark.parametrize("columns", [1, 7])
@pytest.mark.parametrize("precision", [None, "bfloat16"])
def test_the_name_of_a_product_does_not_hide_it(precision, columns):
    def fn(x, w):
        with jax.default_matmul_precision(precision):
            return jo.matmul(data(x), jo.dequantize_linear(w, SCALE))

    assert sums(fn, integers(1, 16, 6, kind=np.uint8), integers(1, 6, columns), most=1e-2) == ["int32"]


MOVES = {
    "transpose": lambda x: x.T,
    "reshape": lambda x: x.reshape(2, 3, 6).reshape(6, 6),
    "broadcast": lambda x: jnp.broadcast_to(x[None], (2, 6, 6)),
    "squeeze": lambda x: lax.squeeze(lax.expand_dims(x, (0,)), (0,)),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_between(name):
    def fn(x, w):
        return jnp.matmul(MOVES[name](data(x)), MOVES[name](jo.dequantize_linear(w, SCALE)))

    assert sums(fn, integers(6, 6, kind=np.uint8), integers(6, 6)) == ["int32"]


def test_moves_of_many_scales_are_those_of_floats():
    def fn(x, w, by):
        return jnp.matmul(data(x), jo.dequantize_linear(w, by, axis=0).T)

    assert sums(fn, integers(5, 6, kind=np.uint8), integers(7, 6), scales(7)) == ["float32"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, by: jnp.matmul(data(x), jo.dequantize_linear(w, by, axis=0)),  # within the sums
        lambda x, w, by: jnp.matmul(jo.dequantize_linear(x, by, axis=1), jo.dequantize_linear(w, SCALE)),
        lambda x, w, by: lax.dot_general(data(x), jo.dequantize_linear(w, SCALE), (((0, 1), (0, 1)), ((), ()))),
        lambda x, w, by: jnp.matmul(data(x), jo.dequantize_linear(w, SCALE)[:, 0]),  # with a vector
        lambda x, w, by: jnp.matmul(data(x), w.astype(np.float32)),
        lambda x, w, by: jnp.matmul(data(x) + 1, jo.dequantize_linear(w, SCALE)),
    ],
)
def test_other_products_stay_those_of_floats(fn):
    assert sums(fn, integers(6, 6, kind=np.uint8), integers(6, 6), scales(6)) == ["float32"]


def test_what_else_reads_the_floats():
    def fn(x, w):
        floats = jo.dequantize_linear(w, SCALE)
        return jnp.matmul(data(x), floats), floats * 2, jnp.matmul(floats + 1, floats)

    assert sums(fn, integers(6, 6, kind=np.uint8), integers(6, 6)) == ["int32", "float32"]


def conv(x, w):
    return jo.conv(data(x), jo.dequantize_linear(w, SCALE), pads=(1, 1, 1, 1))


PROGRAMS = {
    "call": jax.jit(conv),
    "call of floats": lambda x, w: jax.jit(lambda x, w: jo.conv(x, w))(data(x), jo.dequantize_linear(w, SCALE)),
    "scan": lambda x, w: lax.scan(lambda c, _: (c + conv(x, w), None), jnp.zeros((1, 4, 7, 7)), None, length=2)[0],
    "while": lambda x, w: lax.while_loop(lambda c: c.sum() < 1, lambda c: c + conv(x, w), jnp.zeros((1, 4, 7, 7))),
    "cond": lambda x, w: lax.cond(x.sum() > 0, conv, lambda x, w: -conv(x, w), x, w),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_loops_and_branches(name):
    x, w = integers(1, 4, 7, 7, kind=np.uint8), integers(4, 4, 3, 3)
    assert {*sums(PROGRAMS[name], x, w)} == {"int32"}


def test_a_loop_may_read_floats_beside_its_own_products():
    def fn(x, w):
        floats = data(x)

        def step(c, _):
            return c + floats.sum() + jnp.matmul(data(x), jo.dequantize_linear(w, SCALE)), None

        return lax.scan(step, jnp.zeros((6, 6)), None, length=2)[0], jnp.matmul(floats, floats)

    assert sums(fn, integers(6, 6, kind=np.uint8), integers(6, 6)) == ["int32", "int32"]


def test_derivatives_are_those_of_the_floats():
    def fn(x, w, by):
        return jax.value_and_grad(lambda by: jnp.sum(jnp.matmul(data(x), jo.dequantize_linear(w, by, axis=1)) ** 2))(by)

    types = sums(fn, integers(5, 6, kind=np.uint8), integers(6, 7), scales(7))
    assert types.count("int32") == 1  # the value
    assert "float32" in types


def test_no_call_is_left_where_all_are_read_by_products():
    program = integer_products(program_of(conv, integers(1, 4, 7, 7, kind=np.uint8), integers(4, 4, 3, 3)), TARGET)
    assert "dequantize" not in {o.name for o in inline_calls(program, TARGET).operations}


def test_a_program_without_calls_is_left_as_it_is():
    program = program_of(lambda x: jnp.matmul(x, x), np.ones((3, 3), np.float32))
    assert integer_products(program, TARGET) is program
