"""Matrix products and convolutions of dequantized arrays become products of their integers."""

import dataclasses

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


KINDS = ["int2", "uint2", "int4", "uint4", "int8", "uint8"]


def in_blocks(kind, k, n, block, zeros, axis):
    """Numbers (K, N), or (N, K) for axis 1, with a scale for each block along K."""
    info, sizes = jnp.iinfo(kind), (k, n) if axis == 0 else (n, k)
    of_blocks = tuple(-(-size // block) if a == axis else size for a, size in enumerate(sizes))
    numbers = RNG.integers(int(info.min), int(info.max) + 1, sizes).astype(info.dtype)
    zero = RNG.integers(int(info.min), int(info.max) + 1, of_blocks).astype(info.dtype) if zeros else None
    return numbers, RNG.uniform(0.01, 0.1, of_blocks).astype(np.float32), zero


def packed(fn, *args, target=TARGET, most=1e-5):
    """The number of products with packed integers behind the pass. The program gives what the function gives."""
    program = integer_products(program_of(fn, *args), target)
    results = jax.jit(lambda *args: run(program, jax.tree.leaves(args)))(*args)
    for y, expected in zip(results, jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        np.testing.assert_allclose(y, expected, rtol=most, atol=most * np.nanmax(np.abs(expected)))
    found = equations(jax.make_jaxpr(lambda *args: run(program, jax.tree.leaves(args)))(*args).jaxpr)
    return sum(e.primitive.name == "block_quantized_dot" for e in found)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_weights_stay_packed(kind, axis, zeros):
    numbers, by, zero = in_blocks(kind, 512, 300, 32, zeros, axis)

    def fn(x, numbers, by, zero):
        w = jo.dequantize_linear(numbers, by, zero, axis=axis, block_size=32)
        return jnp.matmul(x, w if axis == 0 else w.T)

    x = RNG.normal(size=(3, 2, 512)).astype(np.float32)
    assert packed(fn, x, numbers, by, zero) == 1


BLOCKS = {
    "the last one is not full": ({"k": 500}, 1),
    "one": ({"k": 24, "block": 32}, 1),
    "of an odd number of 4 bits": ({"k": 15, "block": 5}, 0),
    "across the sum": ({"k": 64, "over": 1}, 0),
    "of a type of 16 bits": ({"k": 64, "kind": "int16"}, 0),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name):
    options, count = BLOCKS[name]
    k, block, kind = options["k"], options.get("block", 32), options.get("kind", "uint4")
    numbers, by, zero = in_blocks(kind, k, 64, block, True, 0)
    over = options.get("over", 0)

    def fn(x, numbers, by, zero):
        w = jo.dequantize_linear(numbers, by, zero, axis=0, block_size=block)
        return lax.dot_general(x, w, (((1,), (over,)), ((), ())))

    assert packed(fn, RNG.normal(size=(4, (k, 64)[over])).astype(np.float32), numbers, by, zero) == count


def test_values_of_blocks_that_are_no_numbers():
    numbers, by, zero = in_blocks("uint4", 256, 2000, 32, True, 0)
    by[3, 5], by[1, 7] = np.nan, np.inf

    def fn(x, numbers, by, zero):
        return jnp.matmul(x, jo.dequantize_linear(numbers, by, zero, axis=0, block_size=32))

    x = RNG.normal(size=(3, 256)).astype(np.float32)
    x[2, 9] = np.nan
    assert packed(fn, x, numbers, by, zero) == 1


def test_blocks_are_not_packed_at_each_call():
    numbers, by, _ = in_blocks("int4", 64, 64, 32, False, 0)

    def fn(x, numbers, by):
        return jnp.matmul(x, jo.dequantize_linear(numbers, by, axis=0, block_size=32))

    x = np.ones((1, 64), np.float32)
    assert packed(fn, x, numbers, by, target=dataclasses.replace(TARGET, prepared=False)) == 0


def test_blocks_beside_quantized_data_and_other_readers():
    numbers, by, _ = in_blocks("int4", 64, 96, 32, False, 0)

    def fn(x, numbers, by):
        w = jo.dequantize_linear(numbers, by, axis=0, block_size=32)
        return jnp.matmul(data(x), w), w + 1, lax.dot_general(w, w, (((0,), (0,)), ((), ())))

    assert packed(fn, integers(3, 64, kind=np.uint8), numbers, by) == 2
