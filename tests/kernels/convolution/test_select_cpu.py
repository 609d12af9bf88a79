"""Which form of a convolution is chosen, and where."""

import math
import re

import jax
import numpy as np
import pytest
from jax import lax
from jax.export import symbolic_shape
from programs import specialized

from jaxops.compiler.xla_options import program_options
from jaxops.kernels.convolution import select_cpu
from jaxops.kernels.convolution.channels_last import dense_last
from jaxops.kernels.convolution.grouped import as_sum
from jaxops.kernels.convolution.im2col import as_columns
from jaxops.kernels.convolution.pointwise import as_product, product_last
from jaxops.kernels.target import Target, this_machine
from jaxops.ops import conv
from jaxops.shapes.nn import windows

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)
SPECIALIZED = Target("cpu", cores=2, specialized=True, prepared=True)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def over(x, w, **attributes):
    options = windows.Options("NOTSET", *(attributes.get(a) for a in ("pads", "strides", "dilations")))
    return windows.sliding(x[2:], w[2:], options)


def test_form_chosen_on_a_cpu():
    def way(x, w, group=1, prepared=False, **attributes):
        target = Target("cpu", specialized=prepared, prepared=prepared)
        form = select_cpu.cpu_form(target, x, w, over(x, w, **attributes), group)
        return form and getattr(form, "func", form).__name__

    (b,) = symbolic_shape("b")
    assert way((8, 64, 56, 56), (256, 64, 1, 1), prepared=True) == "product_last"
    assert way((8, 64, 56, 56), (64, 64, 3, 3), prepared=True) == "dense_last"
    assert way((8, 64, 56, 56), (64, 1, 3, 3), 64, prepared=True) == "by_channel"
    assert way((8, 64, 56, 56), (128, 1, 3, 3), 64, prepared=True) == "as_sum"
    assert way((8, 64, 56, 56), (64, 4, 3, 3), 16, prepared=True) == "by_member"
    assert way((8, 60, 56, 56), (60, 4, 3, 3), 15, prepared=True) == "as_sum"
    assert way((8, 64, 56, 56), (64, 8, 3, 3), 8, prepared=True) == "columns_by_group"
    assert way((8, 64, 56, 56), (64, 16, 3, 3), 4, prepared=True) == "convolution_last"
    assert way((8, 64, 56, 56), (64, 16, 1, 1), 4, prepared=True) == "columns_by_group"
    assert way((8, 64, 56, 56), (64, 4, 3, 3), 16) == "as_sum"
    assert way((8, 64, 56, 56), (256, 64, 1, 1)) == "as_product"
    assert way((b, 64, b, 56), (256, 64, 1, 1)) == "as_product"
    assert way((b, 64, b, 56), (256, 64, 1, 1), strides=(2, 2)) is None
    assert way((b, 32, 56, 56), (32, 1, 3, 3), 32) == "as_sum"
    assert way((1, 64, 14, 14), (64, 32, 3, 3), 2) == "as_columns"
    assert way((1, 512, 7, 7), (512, 512, 3, 3), pads=(1, 1, 1, 1)) == "as_columns"
    assert way((b, 512, 7, 7), (512, 512, 3, 3), pads=(1, 1, 1, 1)) is None
    assert way((1, 64, 56, 56), (64, 64, 3, 3)) is None
    assert way((b, 64, 8, 56, 56), (64, 64, 3, 3, 3)) == "as_planes"
    assert way((b, 64, 8, 56, b), (64, 64, 3, 3, 3)) is None
    assert way((1, 3, 64, 64, 64), (64, 3, 7, 7, 7), prepared=True) == "as_planes"
    assert way((1, 64, 8, 56, 56), (64, 1, 3, 3, 3), 64, prepared=True) == "by_channel"
    assert way((1, 3, 224, 224), (64, 3, 11, 11), prepared=True) == "dense_last"
    assert way((1, 8, 224, 224), (64, 4, 11, 11), 2) is None
    assert way((1, 4, 70, 8, 8), (4, 4, 65, 1, 1)) is None  # a convolution for each place
    assert way((1, 4, 70, 8, 8), (4, 4, 65, 1, 1), prepared=True) == "dense_last"
    assert way((1, 8, 90, 90), (8, 1, 65, 65), 8, prepared=True) is None  # as many slices for each row
    assert way((1, 8, 56, 56), (8, 1, 9, 9), 8) == "large_as_sum"
    assert way((1, 1, 16000), (258, 1, 256), strides=(128,)) is None
    assert way((1, 8, 56, 56), (16, 1, 9, 9), 8, prepared=True) == "large_as_sum"
    assert way((1, 8, 56, 56), (8, 1, 9, 9), 8, prepared=True) == "large_by_channel"


@pytest.mark.parametrize("way", [as_product, as_columns, as_sum])
def test_other_platforms_get_a_plain_convolution(way):
    attributes = {"as_product": {}, "as_columns": {}, "as_sum": {"group": 4}}[way.__name__]
    shape = {"as_product": (6, 4, 1, 1), "as_columns": (64, 4, 3, 3), "as_sum": (4, 1, 3, 3)}[way.__name__]
    lowered = {}
    for platform in ("cpu", "tpu"):
        traced = jax.jit(lambda x, w: conv(x, w, **attributes)).trace(f32(1, 4, 5, 5), f32(*shape))
        lowered[platform] = traced.lower(lowering_platforms=(platform,)).as_text()
    assert "stablehlo.convolution" in lowered["tpu"]
    assert "stablehlo.convolution" not in lowered["cpu"]


def test_small_pointwise_convolutions_stay_convolutions():
    """With prepared weights and float32 alone; the values are those of the product."""

    def program(x, w, strides=(1, 1)):
        found = over(x.shape, w.shape, strides=strides)
        form = select_cpu.cpu_form(SPECIALIZED, x.shape, w.shape, found, 1)
        y = jax.jit(lambda x, w: form(x, w, found, 1))(x, w)
        np.testing.assert_allclose(y, conv(x, w, strides=strides), rtol=1e-3, atol=1e-3)
        return str(jax.make_jaxpr(lambda x, w: form(x, w, found, 1))(x, w))

    assert "conv_general_dilated" in program(f32(1, 80, 14, 14), f32(200, 80, 1, 1))
    assert "conv_general_dilated" in program(f32(1, 80, 28, 27), f32(200, 80, 1, 1), strides=(2, 2))
    assert "dot_general" in program(f32(1, 160, 7, 7), f32(96, 160, 1, 1))  # few rows
    assert "dot_general" in program(f32(1, 256, 28, 28), f32(256, 256, 1, 1))  # many multiplications
    assert "narrow_product" in program(f32(1, 80, 14, 14).astype(np.float16), f32(20, 80, 1, 1).astype(np.float16))


@pytest.mark.parametrize(
    ("features", "filters", "in_float32"),
    [
        ({"avx512_bf16", "AuthenticAMD"}, 184, True),
        ({"avx512_bf16", "AuthenticAMD"}, 672, False),  # many multiplications
        ({"amx_bf16"}, 184, False),
        ({"avx2"}, 184, True),
    ],
)
def test_the_smallest_beside_bfloat16_stay_float32(features, filters, in_float32):
    target = Target("cpu", frozenset(features), specialized=True, prepared=True)
    x, w = f32(1, 80, 14, 14), f32(filters, 80, 1, 1)
    found = over(x.shape, w.shape)
    with jax.default_matmul_precision("bfloat16"):
        form = specialized(lambda x, w: product_last(target, x, w, found, 1), target)
        program = str(jax.make_jaxpr(form)(x, w))
    assert ("conv_general_dilated" in program, "bf16" in program) == (in_float32, not in_float32)


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ((1, 72, 1, 1), (24, 72, 1, 1)),
        ((1, 7, 1, 1), (300, 7, 1, 1)),  # a prime number of channels
        ((1, 45, 1), (8, 45, 1)),
        ((1, 480, 1, 1, 1), (120, 480, 1, 1, 1)),
        ((1, 64, 2, 2), (48, 64, 1, 1)),  # a stride leaves one row
        ((1, 480, 1, 1), (240, 480, 1, 1)),  # more weights: a product
        ((1, 1, 1, 1), (4, 1, 1, 1)),
    ],
)
def test_one_row_is_multiplied_by_a_convolution(x, w):
    """XLA compiles no kernel for one with several taps; NaNs and infinities reach what they reach in the product."""
    found = over(x, w, strides=x[2:])
    form = select_cpu.cpu_form(SPECIALIZED, x, w, found, 1)
    data, filters = f32(*x), f32(*w)
    if x[1] > 4:
        data[0, 3] = np.nan
        filters[1, 3:5], filters[2, 4] = 0, np.inf
    run = jax.jit(lambda x, w: form(x, w, found, 1), compiler_options=program_options(this_machine()))
    compiled = run.lower(data, filters).compile()
    np.testing.assert_allclose(compiled(data, filters), conv(data, filters, strides=x[2:]), rtol=1e-4, atol=1e-4)
    operations = set(re.findall(r" (dot|convolution)\(", compiled.as_text()))
    if w[1] > 1:  # what becomes of one channel differs between releases of XLA
        assert operations == {"convolution" if math.prod(w) <= 1 << 16 else "dot"}


@pytest.mark.optimized
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 20, 40, 30), (3, 20, 3, 3), {"pads": (1, 1, 1, 1)}),
        ((1, 32, 200), (1, 32, 7), {"pads": (6, 0), "dilations": (2,)}),
        ((1, 16, 33, 18), (6, 16, 5, 2), {"pads": (0, 3, 1, 0), "dilations": (1, 2)}),
        ((1, 9, 6, 20, 21), (2, 9, 3, 3, 3), {"pads": (1,) * 6}),
    ],
)
def test_few_filters_are_one_product(x, w, attributes):
    """Numbers that are not finite reach what they reach in a convolution."""
    found = over(x, w, **attributes)
    form = select_cpu.cpu_form(SPECIALIZED, x, w, found, 1)
    data, filters = f32(*x), f32(*w)
    run = jax.jit(lambda x, w: form(x, w, found, 1), compiler_options=program_options(this_machine()))
    program = run.trace(data, filters).lower().as_text()
    assert "stablehlo.dot_general" in program
    assert "stablehlo.convolution" not in program
    for value in (0, np.inf, np.nan):
        data[(0, 1, *(size // 2 for size in x[2:]))] = value
        wanted = lax.conv_general_dilated(
            data, filters, found.strides, found.pads, rhs_dilation=found.dilations, precision="highest"
        )
        np.testing.assert_allclose(run(data, filters), wanted, rtol=1e-4, atol=1e-4)


def test_when_filters_are_few():
    def product(x, w, dtype=np.float32, **attributes):
        data, filters = np.zeros(x, dtype), np.zeros(w, dtype)
        found = over(x, w, **attributes)
        program = jax.make_jaxpr(lambda x, w: dense_last(SPECIALIZED, x, w, found, 1))(data, filters)
        return "conv_general_dilated" not in str(program)

    assert product((1, 64, 20, 20), (6, 64, 3, 3))
    assert product((1, 64, 40, 40), (3, 64, 9, 9))
    assert not product((1, 64, 20, 20), (7, 64, 3, 3))
    assert not product((1, 32, 40, 40), (3, 32, 9, 9))  # too many results of each place
    assert not product((1, 512, 40, 40), (1, 512, 12, 12))  # as many slices
    assert not product((1, 64, 20, 20), (3, 64, 3, 3), strides=(1, 2))
    assert not product((1, 64, 20, 20), (3, 64, 3, 3), np.float16)  # the results would be rounded before they are added
