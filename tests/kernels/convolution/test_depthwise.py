"""A filter for each channel, as one operation."""

import dataclasses
import itertools
import re

import jax
import numpy as np
import pytest
from jax import lax
from programs import equations, selected, specialized

from jaxops.compiler.xla_options import program_options
from jaxops.kernels.target import this_machine
from jaxops.ops.math.activations import relu
from jaxops.ops.nn.convolution import conv
from jaxops.ops.nn.pooling import max_pool

RNG = np.random.default_rng(0)

CASES = {
    "3×3": ((1, 64, 28, 28), (3, 3), {"pads": (1, 1, 1, 1)}),
    "stride": ((1, 96, 29, 30), (3, 3), {"strides": (2, 2), "pads": (1, 0, 1, 1)}),
    "dilated": ((2, 33, 17, 19), (3, 2), {"dilations": (2, 3), "strides": (1, 2)}),
    "7×7": ((1, 40, 20, 20), (7, 7), {"auto_pad": "SAME_UPPER"}),
    "one axis": ((3, 130, 50), (5,), {"pads": (0, 4)}),
    "three axes": ((1, 24, 9, 8, 7), (3, 1, 2), {"strides": (1, 2, 1)}),
    "pointwise": ((1, 1000, 5, 5), (1, 1), {}),
}


def run(x, w, **attributes):
    return specialized(lambda x, w: conv(x, w, group=x.shape[1], **attributes))(x, w)


def plain(x, w, **attributes):
    """As JAX does it with any program, in the widest type."""
    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda x, w: conv(x, w, group=x.shape[1], **attributes))(x.astype(float), w))


@pytest.mark.optimized
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_it_is_a_convolution(case, dtype):
    sizes, kernel, attributes = CASES[case]
    x = RNG.standard_normal(sizes).astype(dtype)
    w = RNG.standard_normal((sizes[1], 1, *kernel)).astype(dtype)
    found = jax.jit(lambda x, w: run(x, w, **attributes), compiler_options=program_options(this_machine()))(x, w)
    wanted = plain(x, w.astype(float), **attributes)
    assert found.dtype == dtype
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"rtol": 2e-3, "atol": 2e-3}
    np.testing.assert_allclose(found, wanted, **close)


@pytest.mark.optimized
def test_what_is_no_number_stays_where_it_is():
    x, w = RNG.standard_normal((1, 64, 20, 20), np.float32), RNG.standard_normal((64, 1, 3, 3), np.float32)
    x[0, 5, 3, 4], x[0, 6, 0, 0], w[7, 0, 1, 1] = np.nan, np.inf, np.nan
    found = np.asarray(jax.jit(run, compiler_options=program_options(this_machine()))(x, w))
    bad = {tuple(at) for at in np.argwhere(~np.isfinite(found))}
    near = {(0, 5, i, j) for i, j in itertools.product(range(1, 4), range(2, 5))} | {(0, 6, 0, 0)}
    assert bad == near | {(0, 7, i, j) for i, j in itertools.product(range(18), range(18))}


def test_it_is_one_operation_however_many_places_a_window_has():
    def names(kernel):
        x, w = np.ones((1, 8, 20, 20), np.float32), np.ones((8, 1, kernel, kernel), np.float32)
        return [eqn.primitive.name for eqn in equations(jax.make_jaxpr(run)(x, w).jaxpr)]

    assert names(3) == names(7)
    assert names(3).count("channel_sum") == 1


def test_data_stay_channels_last():
    """Nothing but the data and the result is transposed."""
    x, w = lax.iota(np.float32, 8 * 400).reshape(1, 8, 20, 20), np.ones((8, 1, 7, 7), np.float32)
    text = jax.jit(run).lower(x, w).as_text()
    assert text.count("stablehlo.multiply") == 49
    assert len([line for line in text.splitlines() if "stablehlo.transpose" in line and "20" in line]) == 1


def test_equal_ones_are_calls_of_one_function():
    """Or XLA would be given the places of all their windows."""

    def fn(x, w):
        return run(run(x, w, pads=(1, 1, 1, 1)), w, pads=(1, 1, 1, 1))

    lowered = jax.jit(fn).lower(np.ones((1, 32, 8, 8), np.float32), np.ones((32, 1, 3, 3), np.float32))
    text = lowered.as_text()
    assert text.count("call @channel_sum") == 2
    assert text.count("stablehlo.multiply") == 9


@pytest.mark.optimized
@pytest.mark.parametrize(("group", "filters"), [(96, (96, 1, 3, 3)), (1, (32, 3, 3, 3))], ids=["channels", "picture"])
def test_filters_are_turned_before_the_loop_that_reads_them(group, filters):
    """XLA would turn them in each step of it."""
    x, w = RNG.normal(size=(1, filters[1] * group, 30, 30)).astype(np.float32), RNG.normal(size=filters).astype("f")
    target = dataclasses.replace(this_machine(), specialized=True)
    run = selected(lambda x, w: relu(conv(x, w, group=group)), target)
    text = jax.jit(run).lower(x, w).compile().as_text()
    loops = [body for body in text.split("\n\n") if body.startswith("%fused_computation") and "channel_sum" in body]
    assert loops
    assert not [body for body in loops if re.search(r"f32\[(3,)?9,\d+\]\S* (copy|transpose)\(", body)]
    # In memory, the coefficients of a tap are adjacent.
    assert not re.search(r"f32\[9,\d+\]\{0,1\} (call|copy)|f32\[3,9,\d+\]\{(?!2,1,0)\S*\} (call|copy)", text)


@pytest.mark.optimized
def test_a_pool_reads_sums_of_a_picture_from_memory():
    """XLA would compute each as often as there are windows that read it."""
    x, w = RNG.normal(size=(1, 3, 63, 63)).astype(np.float32), RNG.normal(size=(32, 3, 3, 3)).astype(np.float32)
    run = specialized(lambda x, w: max_pool(relu(conv(x, w)), kernel_shape=(3, 3), strides=(2, 2))[0])
    text = jax.jit(run).lower(x, w).compile().as_text()
    pools = [body for body in text.split("\n\n") if "select_n" in body and body.startswith("%fused_computation")]
    assert pools
    assert not [body for body in pools if "channel_sum" in body]
