"""Products with packed weights as sums and in panels, beside the product with all floats."""

import functools

import jax
import numpy as np
import pytest
from graphs import model
from jax.test_util import check_grads
from programs import equations

from jaxops import microsoft
from jaxops.jaxprs import lax_only
from jaxops.kernels.matmul.block_quantized import block_quantized_dot
from jaxops.onnx import load

pytestmark = pytest.mark.optimized
RNG = np.random.default_rng(4)


def operands(lead, k, n, bits, block=32, zeros=True):
    codes = RNG.integers(0, 256, (n, k // block, block * bits // 8)).astype(np.uint8)
    scales = RNG.uniform(0.01, 0.1, (n, k // block)).astype(np.float32)
    more = [RNG.integers(0, 2**bits, scales.shape).astype(np.uint8)] if zeros else [None]
    return [RNG.normal(size=(*lead, k)).astype(np.float32), codes, scales, *more]


def expected(a, codes, scales, zeros, bits):
    """In 64 bits, by NumPy alone."""
    parts = np.stack([(codes >> shift) & (2**bits - 1) for shift in range(0, 8, bits)], -1)
    elements = parts.reshape(*codes.shape[:2], -1).astype(np.float64)
    origin = 2.0 ** (bits - 1) if zeros is None else zeros[..., None].astype(np.float64)
    return a.astype(np.float64) @ ((elements - origin) * scales[..., None]).reshape(codes.shape[0], -1).T


def agree(y, expected):
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def loops(fn, *operands):
    return jax.jit(fn).lower(*operands).as_text().count("stablehlo.while")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("lead", "k", "n", "count"),
    [
        ((), 768, 512, 0),
        ((1,), 256, 301, 0),
        ((2, 1), 2048, 77, 0),
        ((1,), 1088, 256, 1),  # 34 blocks are 2 terms of 17
        ((2, 3), 1024, 1537, 1),
        ((40,), 96, 900, 1),
    ],
)
def test_values(lead, k, n, count, bits, zeros):
    a, codes, scales, zeros = operands(lead, k, n, bits, zeros=zeros)
    fn = functools.partial(block_quantized_dot, bits=bits)
    assert loops(fn, a, codes, scales, zeros) == count
    agree(jax.jit(fn)(a, codes, scales, zeros), expected(a, codes, scales, zeros, bits))


def test_mapped_rows_are_rows():
    """`jax.vmap` over `a` alone gives one product of more rows, whose weights are unpacked once."""
    a, *weights = operands((2, 1), 1024, 512, 4)
    fn = jax.vmap(functools.partial(block_quantized_dot, bits=4), (1, None, None, None), 1)
    agree(jax.jit(fn)(a, *weights), expected(a, *weights, 4))
    (call,) = [e for e in jax.make_jaxpr(fn)(a, *weights).eqns if e.primitive.name == "block_quantized_dot"]
    assert call.params["call"].transforms == ()
    both = jax.vmap(functools.partial(block_quantized_dot, bits=4), (1, None, None, 0), 1)
    zeros = np.stack([weights[2]])
    agree(jax.jit(both)(a, *weights[:2], zeros), expected(a, *weights, 4))


def test_elements_that_fill_no_block_are_not_read():
    a, codes, scales, zeros = operands((2,), 768, 512, 4)
    scales[:, -1] = np.inf
    fn = functools.partial(block_quantized_dot, bits=4)
    short = a[:, :736]  # of 24 blocks, 23
    assert loops(fn, short, codes, scales, zeros) == 0
    agree(jax.jit(fn)(short, codes, scales, zeros), expected(short, codes[:, :-1], scales[:, :-1], zeros[:, :-1], 4))


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers_stay_in_their_rows_and_columns(value, rows):
    a, codes, scales, zeros = operands((rows,), 768, 512, 4)
    finite = expected(a, codes, scales, zeros, 4)
    a[1, 5], scales[7, 3] = value, value
    y = jax.jit(functools.partial(block_quantized_dot, bits=4))(a, codes, scales, zeros)
    touched = np.zeros(y.shape, bool)
    touched[1], touched[:, 7] = True, True
    assert not np.isfinite(y[:, 7]).any()
    assert not np.isfinite(y[1]).all()
    agree(y[~touched], finite[~touched])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_row_has_the_infinities_of_the_plain_form(zeros, value):
    a, codes, scales, zeros = operands((1,), 768, 512, 4, zeros=zeros)
    a[0, 5], scales[7, 3], scales[9] = value, value, 0
    fn = functools.partial(block_quantized_dot, bits=4)
    y, plain = (jax.jit(f)(a, codes, scales, zeros) for f in (fn, lax_only(fn)))
    assert np.isnan(plain).any()
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(plain))
    np.testing.assert_array_equal(
        np.nan_to_num(y, nan=7)[~np.isfinite(y)], np.nan_to_num(plain, nan=7)[~np.isfinite(y)]
    )


@pytest.mark.parametrize("block", [16, 64, 128])
def test_sums_need_no_memory_for_floats(block):
    a, codes, scales, zeros = operands((1,), 2048, 512, 4, block)
    compiled = jax.jit(functools.partial(block_quantized_dot, bits=4)).lower(a, codes, scales, zeros).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 512 * 2048 * 4 / 6
    agree(compiled(a, codes, scales, zeros), expected(a, codes, scales, zeros, 4))


def test_zeros_that_are_no_integers():
    a, codes, scales, _ = operands((1,), 768, 512, 4)
    zeros = RNG.uniform(0, 15, scales.shape).astype(np.float32)
    fn = functools.partial(block_quantized_dot, bits=4)
    agree(jax.jit(fn)(a, codes, scales, zeros), expected(a, codes, scales, zeros, 4))


def test_transformed():
    a, codes, scales, zeros = operands((4,), 256, 512, 4)
    fn = functools.partial(block_quantized_dot, bits=4)
    plain = lax_only(fn)
    check_grads(lambda a, scales: fn(a, codes, scales, zeros.astype(np.float32)), (a, scales), 1, atol=0.1, rtol=0.1)
    for argument in (0, 2):
        found, wanted = (
            jax.jit(jax.grad(lambda *xs, f=f: (f(*xs) ** 2).sum(), argument))(a, codes, scales, zeros)
            for f in (fn, plain)
        )
        agree(found, wanted)
    two = [np.stack([x, x[::-1]]) for x in (a, codes, scales, zeros)]
    for axes in ((0, None, None, None), (0, 0, 0, 0)):
        mapped = [x if axis is None else y for x, y, axis in zip((a, codes, scales, zeros), two, axes, strict=True)]
        agree(jax.jit(jax.vmap(fn, axes))(*mapped), jax.vmap(plain, axes)(*mapped))


def test_symbolic_rows():
    _, codes, scales, zeros = operands((1,), 768, 512, 4)
    fn = jax.jit(lambda a: block_quantized_dot(a, codes, scales, zeros, 4))
    (rows,) = jax.export.symbolic_shape("rows")
    program = jax.export.export(fn)(jax.ShapeDtypeStruct((rows, 768), np.float32))
    assert program.mlir_module().count("stablehlo.while") == 1
    a = operands((5,), 768, 512, 4)[0]
    agree(program.call(a), expected(a, codes, scales, zeros, 4))


def test_a_model_keeps_the_bytes():
    k, n = 256, 2048
    a, codes, scales, _ = operands((1,), k, n, 4, zeros=False)
    nodes = f"{{ y = com.microsoft.MatMulNBits <K = {k}, N = {n}, bits = 4, block_size = 32> (x, b, s) }}"
    weights = {"b": codes, "s": scales}
    loaded = load(
        model(
            f"m (float[1, {k}] x) => (float[1, {n}] y) {nodes}", imports=', "com.microsoft" : 1', initializers=weights
        )
    )
    agree(loaded(a), expected(a, codes, scales, None, 4))
    prepare, run = loaded.specialize(a)
    prepared = jax.eval_shape(prepare, loaded.params)
    assert sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(prepared)) <= codes.nbytes + scales.nbytes
    agree(jax.jit(run)(prepare(loaded.params), a), expected(a, codes, scales, None, 4))


def test_small_products_have_no_loop():
    a, codes, scales, _ = operands((4,), 64, 64, 4)
    call = functools.partial(microsoft.matmul_nbits, K=64, N=64, block_size=32)
    assert loops(call, a, codes, scales) == 0
    names = [eqn.primitive.name for eqn in equations(jax.make_jaxpr(lax_only(call))(a, codes, scales).jaxpr)]
    assert "scan" not in names
