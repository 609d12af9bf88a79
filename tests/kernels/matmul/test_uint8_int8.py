"""Specialized programs multiply uint8 by int8 where a processor has only that: with the same sums."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import equations, specialized

import jaxops as jo
from jaxops.kernels import target

RNG = np.random.default_rng(0)
# What a processor can do → whether it should multiply uint8 by int8.
PROCESSORS = {
    "VNNI": ({"avx2", "avx512f", "avx512_vnni"}, True),
    "AMX": ({"avx2", "avx512f", "avx512_vnni", "amx_int8"}, False),
    "neither": ({"avx2"}, False),
}


@pytest.fixture(params=PROCESSORS)
def mixed(request, monkeypatch):
    """A specialized program on some processor, whatever this one is; whether it multiplies uint8 by int8."""
    features, mixed = PROCESSORS[request.param]
    monkeypatch.setattr(target, "processor_features", lambda: frozenset(features))
    return mixed


def names(jaxpr):
    return (eqn.primitive.name for eqn in equations(jaxpr))


def integers(kind, *shape):
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max + 1, shape).astype(kind)


def check(function, operands, expected, mixed, special=specialized):
    function = special(function)
    assert ("mixed_product" in names(jax.make_jaxpr(function)(*operands).jaxpr)) == mixed
    found = jax.jit(function)(*operands)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, expected)


KINDS = list(itertools.product(("uint8", "int8"), repeat=2))
SHAPES = {
    "many": ((70, 300), (300, 130)),
    "batches": ((2, 5, 40), (40, 96)),
    "one row": ((1, 2048), (2048, 100)),
    "a vector": ((300,), (300, 130)),
    "one column": ((70, 300), (300, 1)),
    "one term": ((70, 1), (1, 130)),
    "none": ((0, 300), (300, 130)),
}


@pytest.mark.parametrize(("of_a", "of_b"), KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_products(shape, of_a, of_b, mixed):
    a, b = integers(of_a, *SHAPES[shape][0]), integers(of_b, *SHAPES[shape][1])
    zeros = integers(of_a), integers(of_b)
    wide = (a.astype(np.int32) - zeros[0]) @ (b.astype(np.int32) - zeros[1])
    check(lambda a, b: jo.matmul_integer(a, b, *zeros), (a, b), wide, mixed)
    check(jo.matmul_integer, (a, b), a.astype(np.int32) @ b.astype(np.int32), mixed)


def test_sums_do_not_saturate(mixed):
    a, b = np.full((64, 512), 255, np.uint8), np.full((512, 64), -128, np.int8)
    check(jo.matmul_integer, (a, b), np.full((64, 64), -512 * 255 * 128), mixed)


@pytest.mark.parametrize(("of_x", "of_w"), KINDS)
@pytest.mark.parametrize(("kernel", "pads"), [(3, [1, 0, 2, 1]), (1, [0, 0, 0, 0])])
def test_convolutions(kernel, pads, of_x, of_w, mixed):
    x, w = integers(of_x, 2, 16, 20, 19), integers(of_w, 24, 16, kernel, kernel)
    zeros = integers(of_x), integers(of_w, 24)
    edges = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    data = np.pad(x.astype(np.int32) - zeros[0], edges)
    windows = np.lib.stride_tricks.sliding_window_view(data, (kernel, kernel), (2, 3))
    expected = np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.int32) - zeros[1].reshape(-1, 1, 1, 1))
    check(lambda x, w: jo.conv_integer(x, w, *zeros, pads=pads), (x, w), expected, mixed)


def test_two_batches_are_of_int8(mixed):
    a, b = integers("uint8", 3, 40, 50), integers("int8", 3, 50, 60)
    check(jo.matmul_integer, (a, b), a.astype(np.int32) @ b.astype(np.int32), False)


def test_only_specialized_programs_have_them(mixed):
    a, b = integers("uint8", 40, 50), integers("int8", 50, 60)
    check(jo.matmul_integer, (a, b), a.astype(np.int32) @ b.astype(np.int32), False, lambda fn: fn)


@pytest.mark.parametrize(("of_a", "of_b"), KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_a_users_own_program(shape, of_a, of_b):
    """The weights stay bytes: not even their sums make int32 of them."""
    a, b = integers(of_a, *SHAPES[shape][0]), integers(of_b, *SHAPES[shape][1])
    zeros = integers(of_a), integers(of_b)

    def fn(a, b):
        return jo.matmul_integer(a, b, *zeros)

    wide = (a.astype(np.int32) - zeros[0]) @ (b.astype(np.int32) - zeros[1])
    np.testing.assert_array_equal(jax.jit(fn)(a, b), wide)
    rows = jax.jit(jax.vmap(fn, (0, None)))(np.stack([a, a]), b)
    np.testing.assert_array_equal(rows, np.stack([wide, wide]))
    text = jax.jit(fn).lower(a, b).as_text()
    assert len(b) == 1 or f"tensor<{'x'.join(map(str, b.shape))}xi32>" not in text
