"""Windows along a symbolic axis of padded arrays give what they give on arrays of exact sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from padded_programs import LARGEST, check

from jaxops import average_pool, conv, conv_integer, conv_transpose, lp_pool, max_pool
from jaxops.compiler.padded import windows
from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity
from jaxops.errors import UnsupportedError
from jaxops.kernels.convolution.convolve import convolution
from jaxops.static import symbolic_shape

IMAGE, SIZES = (2, 3, 5, "s + 3"), range(1, LARGEST + 1)


def filters(*shape):
    return jnp.asarray(np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32))


def with_nan(x):
    """With a surplus of NaN, and one among the true elements."""
    return jnp.where(x == 0, jnp.nan, x)


def with_infinity(x):
    return jnp.where(x == 0, jnp.inf, x)


W, GROUPED = filters(4, 3, 3, 3), filters(6, 1, 3, 2)
CASES = {
    "convolution": lambda x: conv(x, W),
    "padded": lambda x: conv(x, W, pads=(1, 2, 0, 1)),
    "with strides": lambda x: conv(x, W, strides=(1, 2), pads=(1, 1, 1, 1)),
    "with strides that leave some out": lambda x: conv(x, filters(4, 3, 1, 1), strides=(2, 3)),
    "dilated": lambda x: conv(x, W, dilations=(1, 2), pads=(0, 2, 0, 2)),
    "same": lambda x: conv(x, W, auto_pad="SAME_UPPER"),
    "same, with strides": lambda x: conv(x, W, auto_pad="SAME_UPPER", strides=(2, 2)),
    "same, the larger part first": lambda x: conv(x, W, auto_pad="SAME_LOWER", strides=(1, 2)),
    "in groups": lambda x: conv(x, GROUPED, group=3, pads=(1, 1, 1, 1)),
    "twice": lambda x: conv(jax.nn.relu(conv(x, W, pads=(1, 1, 1, 1)) + 1), filters(2, 4, 3, 3), pads=(1, 1, 1, 1)),
    "transposed": lambda x: conv_transpose(x, filters(3, 2, 3, 3), pads=(1, 1, 1, 1)),
    "transposed, with strides": lambda x: conv_transpose(x, filters(3, 2, 3, 3), strides=(2, 2), pads=(0, 1, 0, 1)),
    "transposed in groups": lambda x: conv_transpose(x, filters(3, 2, 2, 2), strides=(1, 3), group=3),
    "channels last": lambda x: lax.conv_general_dilated(
        jnp.moveaxis(x, 1, 3), W, (1, 2), [(0, 0), (2, 0)], dimension_numbers=("NHWC", "OIHW", "NHWC")
    ),
    "cropped": lambda x: lax.conv_general_dilated(x, W, (1, 1), [(0, 0), (1, -1)]),
    "max pool": lambda x: max_pool(x - 99, kernel_shape=(2, 3), strides=(1, 2), pads=(0, 1, 0, 1)),
    "max pool, with ceil": lambda x: max_pool(x - 99, kernel_shape=(2, 2), strides=(2, 2), ceil_mode=1),
    "max pool, with strides that leave some out": lambda x: max_pool(x - 99, kernel_shape=(1, 2), strides=(1, 4)),
    "max pool, wide": lambda x: max_pool(x - 99, kernel_shape=(5, 5), pads=(2, 2, 2, 2), dilations=(1, 1)),
    "average pool": lambda x: average_pool(x, kernel_shape=(2, 3), strides=(1, 2), pads=(0, 1, 0, 1)),
    "average pool, padding counts": lambda x: average_pool(
        x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), count_include_pad=1, ceil_mode=1
    ),
    "average pool, wide": lambda x: average_pool(x, kernel_shape=(5, 6), pads=(2, 3, 2, 3)),
    "lp pool": lambda x: lp_pool(x, kernel_shape=(2, 2), pads=(0, 1, 0, 1)),
    "least of windows": lambda x: lax.reduce_window(
        x, jnp.inf, lax.min, (1, 1, 1, 3), (1, 1, 1, 2), [(0, 0)] * 3 + [(1, 1)]
    ),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("data", [with_nan, with_infinity])
def test_same_as_with_exact_sizes(name, data):
    check(lambda x: CASES[name](data(x)), IMAGE, sizes=SIZES)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_windows_of_integers_read_the_zero_point_outside(pads):
    """That of the surplus is not its 0."""
    filters = jnp.asarray(np.random.default_rng(1).integers(-3, 4, (4, 3, 3, 3)), np.int8)
    zero = jnp.asarray(5, np.uint8)
    check(lambda x: conv_integer(x, filters, zero, pads=pads), IMAGE, dtype=np.uint8, sizes=SIZES)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: lax.reduce_window(x, np.int32(0), lax.add, (1, 2), (1, 1), "SAME"),
        lambda x: lax.reduce_window(x, np.int32(np.iinfo(np.int32).min), lax.max, (1, 2), (1, 2), "VALID"),
    ],
)
def test_integers(fn):
    check(fn, (2, "s + 1"), dtype=np.int32, sizes=SIZES)


def test_the_sizes_of_batch_channels_and_filters():
    check(lambda x: conv(x, W), ("s", 3, 5, 4), sizes=SIZES)
    check(lambda x, w: conv(with_nan(x), with_nan(w)), (2, "s", 4, 4), (2, "s", 3, 3), sizes=SIZES)
    check(lambda w: conv(jnp.ones((1, 3, 4, 4)), with_nan(w)), ("s", 3, 3, 3), sizes=SIZES)


def test_a_convolution_keeps_its_name():
    """So that it takes the form that is fastest on the machine."""
    (s,) = symbolic_shape("s")
    closed = jax.make_jaxpr(lambda x: conv(x, W, pads=(1, 1, 1, 1)))(jax.ShapeDtypeStruct((1, 3, 5, s), np.float32))

    def padded(x, size):
        return run_padded(closed, [x], Capacity({"s": size}, {"s": LARGEST}, {}))[0].array

    program = jax.make_jaxpr(padded)(jnp.ones((1, 3, 5, LARGEST)), jnp.int32(2))
    assert convolution.name in [eqn.primitive.name for eqn in program.jaxpr.eqns]


@pytest.mark.parametrize(
    ("fn", "shapes", "match"),
    [
        (
            lambda x, w: lax.conv_general_dilated(x, w, (1,), [(0, 0)]),
            [(1, 2, 9), (3, 2, "s")],
            "`conv_general_dilated` works along an axis .*: a convolution with filters whose size differs",
        ),
        (
            lambda x, w: lax.conv_general_dilated(x, w, (1,), [(0, 0)], batch_group_count=2),
            [("2*s", 2, 9), (2, 2, 3)],
            "a convolution in groups of channels whose number differs",
        ),
        (
            lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), "VALID", base_dilation=(2,)),
            [("s",)],
            "`reduce_window_max` works along an axis .*: windows over dilated data",
        ),
        (
            lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), [(x.shape[0], 0)]),
            [("s",)],
            "works along an axis .*: windows whose size or padding differs from call to call",
        ),
    ],
)
def test_what_has_no_rule_says_so(fn, shapes, match):
    with pytest.raises(UnsupportedError, match=match):
        check(fn, *shapes)


def test_a_rule_that_lets_the_surplus_in_is_caught(monkeypatch):
    monkeypatch.setattr(windows.Padded, "masked", lambda x, *_: x.array)
    for name in ("padded", "max pool", "transposed"):
        with pytest.raises(AssertionError):
            check(lambda x, name=name: CASES[name](with_nan(x)), IMAGE, sizes=SIZES)
