"""Convolutions of quantized numbers against NumPy's integers, and against onnxruntime, exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from peer import runtime
from programs import specialized
from whole_numbers import whole_numbers

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(13)
whole = whole_numbers(RNG)
# data, filters, attributes; the ways in which a convolution is written on a CPU, and the plain one
CONVOLUTIONS = {
    "plain": ((2, 3, 12, 11), (5, 3, 3, 3), {}),
    "padded": ((1, 8, 14, 14), (16, 8, 3, 3), {"pads": (1, 0, 2, 1), "strides": (2, 1)}),
    "same": ((1, 4, 13, 9), (6, 4, 2, 4), {"auto_pad": "SAME_LOWER", "strides": (2, 2)}),
    "dilated": ((1, 4, 13, 13), (6, 4, 3, 3), {"dilations": (2, 3), "kernel_shape": (3, 3)}),
    "pointwise": ((2, 32, 9, 9), (16, 32, 1, 1), {}),
    "groups": ((2, 8, 10, 10), (12, 2, 3, 3), {"group": 4, "pads": (1, 1, 1, 1)}),
    "many a group": ((1, 64, 6, 6), (64, 32, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    "depthwise": ((1, 8, 10, 10), (8, 1, 3, 3), {"group": 8}),
    "columns": ((1, 64, 5, 5), (64, 64, 3, 3), {"pads": (1, 1, 1, 1)}),
    "one axis": ((2, 3, 40), (4, 3, 5), {"strides": (2,)}),
    "three axes": ((1, 2, 6, 6, 6), (3, 2, 2, 2, 2), {}),
}


def same(found, wanted):
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert (found != wanted).sum() == 0, f"{(found != wanted).sum()} of {found.size} differ"


def column(v, rank):
    return np.reshape(v, (-1,) + (1,) * (rank - 1)) if np.ndim(v) else v


def convolution(x, w, x_zero, w_zero, attributes):
    """By float64, which holds these sums; its own convolution is tested elsewhere."""
    with jax.enable_x64(True):
        filters = w.astype(np.float64) - column(w_zero.astype(np.float64), w.ndim)
        return np.asarray(jo.conv(x.astype(np.float64) - float(x_zero), filters, **attributes)).astype(np.int64)


KINDS = [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)]


@pytest.mark.grid
@pytest.mark.parametrize(("name", "kinds"), [(n, k) for n in CONVOLUTIONS for k in KINDS[: 4 if n == "plain" else 1]])
def test_values(name, kinds):
    shape, filters, attributes = CONVOLUTIONS[name]
    x, w, x_zero = whole(kinds[0], *shape), whole(kinds[1], *filters), whole(kinds[0])
    for sizes in ((), filters[:1]):
        w_zero, w_by = whole(kinds[1], *sizes), RNG.uniform(0.001, 0.02, sizes).astype(np.float32)
        total = convolution(x, w, x_zero, w_zero, attributes)
        found = jax.jit(lambda *v: jo.conv_integer(*v, **attributes))(x, w, x_zero, w_zero)
        same(found, total.astype(np.int32))
        bias, x_by = RNG.integers(-20_000, 20_000, filters[0]).astype(np.int32), np.float32(0.03)
        total = total + column(bias, w.ndim - 1)
        factor = x_by * column(w_by, w.ndim - 1)
        y_by = np.float32(np.abs(total * factor).max() / 140)
        y_zero = kinds[0](RNG.integers(-9, 9) + (128 if kinds[0] is np.uint8 else 0))
        ratio = np.rint(total.astype(np.float32) * (factor / y_by)).astype(np.float64) + int(y_zero)
        wanted = np.clip(ratio, np.iinfo(y_zero.dtype).min, np.iinfo(y_zero.dtype).max).astype(y_zero.dtype)
        assert len(np.unique(wanted)) > 15
        given = [x, x_by, x_zero, w, w_by, w_zero, y_by, y_zero, bias]
        same(jax.jit(lambda *v: jo.qlinear_conv(*v, **attributes))(*given), wanted)
        # Scales, filters and bias are constants of the program.
        same(jax.jit(lambda v: jo.qlinear_conv(v, *given[1:], **attributes))(x), wanted)  # noqa: B023
        # onnxruntime has one zero point of int8 filters for all channels, and no int8 data with uint8 filters.
        if kinds != (np.int8, np.uint8) and not sizes:
            same(
                at_opset("QLinearConv", 10, *given, **attributes)[0], runtime("QLinearConv", given, 10, **attributes)[0]
            )
            if kinds[0] is np.uint8:
                operands = (x, w, x_zero, w_zero)
                same(found, runtime("ConvInteger", operands, 10, **attributes)[0])


@pytest.mark.parametrize("kinds", KINDS[:2])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_values_in_specialized_programs(name, kinds):
    shape, filters, attributes = CONVOLUTIONS[name]
    x, w, x_zero, w_zero = whole(kinds[0], *shape), whole(kinds[1], *filters), whole(kinds[0]), whole(kinds[1])
    found = jax.jit(specialized(lambda *v: jo.conv_integer(*v, **attributes)))(x, w, x_zero, w_zero)
    same(found, convolution(x, w, x_zero, w_zero, attributes).astype(np.int32))


@pytest.mark.optimized
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="XLA:CPU copies parts along the last axis")
@pytest.mark.parametrize("attributes", [{"pads": (1, 1, 1, 1)}, {"pads": (1, 1, 1, 1), "strides": (2, 2)}])
def test_columns_are_put_together_by_a_loop(attributes):
    x, w = whole(np.uint8, 1, 64, 24, 24), whole(np.int8, 64, 64, 3, 3)
    filters, last = jnp.asarray(w), jnp.asarray(x.transpose(0, 2, 3, 1))

    def fn(v, filters):
        return jo.conv_integer(jnp.transpose(v, (0, 3, 1, 2)), filters, np.uint8(3), **attributes)

    compiled = jax.jit(lambda v: specialized(fn)(v, filters)).lower(last).compile()
    assert " concatenate(" not in compiled.as_text().split("ENTRY")[1]
    same(compiled(last), convolution(x, w, 3, np.int8(0), attributes).astype(np.int32))


def test_scales_of_channels_as_onnxruntime():
    shape, filters, attributes = CONVOLUTIONS["padded"]
    x, w, by = whole(np.uint8, *shape), whole(np.int8, *filters), RNG.uniform(0.001, 0.02, 16).astype(np.float32)
    given = [x, np.float32(0.1), np.uint8(120), w, by, np.zeros(16, np.int8), np.float32(0.9), np.uint8(128)]
    same(jo.qlinear_conv(*given, **attributes), runtime("QLinearConv", given, 10, **attributes)[0])


def test_without_zero_points_and_bias():
    x, w = whole(np.uint8, 1, 3, 8, 8), whole(np.int8, 4, 3, 3, 3)
    zero = np.zeros((), np.int8)
    same(jo.conv_integer(x, w), convolution(x, w, 0, zero, {}).astype(np.int32))
    same(jo.conv_integer(x, w, None, np.int8(3)), convolution(x, w, 0, zero + 3, {}).astype(np.int32))
    same(at_opset("ConvInteger", 10, x, w)[0], runtime("ConvInteger", (x, w), 10)[0])


@pytest.mark.optimized
def test_sums_wrap_around_in_32_bits():
    x, w = np.full((1, 2**15, 2), 255, np.uint8), np.full((1, 2**15, 2), 255, np.uint8)
    assert jo.conv_integer(x, w).tolist() == [[[255 * 255 * 2**16 - 2**32]]]


def test_vmap_export_and_x64(x64):
    x, w, w_zero = whole(np.uint8, 3, 4, 9, 9), whole(np.int8, 6, 4, 3, 3), whole(np.int8, 6)
    given = w, np.float32(0.1), w_zero, np.float32(30), np.uint8(7)

    def integers(v):
        return jo.conv_integer(v, w, np.uint8(5), w_zero, pads=(1, 1, 1, 1))

    def scaled(v):
        return jo.qlinear_conv(v, np.float32(0.2), np.uint8(5), *given)

    (batch,) = symbolic_args_specs([jnp.asarray(x)], ["n, 4, 9, 9"])
    (image,) = symbolic_args_specs([jnp.asarray(x)], ["n, 4, h, w"], constraints=["h >= 3", "w >= 3"])
    for fn in (integers, scaled):
        wanted = np.asarray(fn(x))
        assert wanted.dtype == (np.int32 if fn is integers else np.uint8)
        for spec in (batch, image):
            same(export(jax.jit(fn))(spec).call(x), wanted)
        same(jax.vmap(lambda v, fn=fn: fn(v[None])[0])(x), wanted)


def test_a_wrong_padding_is_caught():
    """Padding is the zero point, and not 0."""
    x, w, zero = whole(np.uint8, 1, 1, 5, 5), whole(np.int8, 1, 1, 3, 3), np.uint8(9)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = convolution(x, w, zero, np.int8(0), {"pads": (1, 1, 1, 1)}).astype(np.int32)
    same(jo.conv_integer(x, w, zero, pads=(1, 1, 1, 1)), wanted)
    with pytest.raises(AssertionError, match="differ"):
        same(jo.conv_integer(padded, w, zero), wanted)


X, W, S, Z = np.ones((1, 2, 5, 5), np.uint8), np.ones((3, 2, 3, 3), np.int8), np.float32(1), np.uint8(0)
I8, TWO = np.int8(0), np.ones(2, np.float32)
ERRORS = [
    (lambda: jo.conv_integer(X.astype("f4"), W), DTypeError, "`x` is float32; it must be of type int8, uint8"),
    (lambda: jo.conv_integer(X, W, np.int8(0)), DTypeError, "`x_zero_point` is int8; it must be uint8, as `x` is"),
    (lambda: jo.conv_integer(X, W, np.ones(2, "u1")), ShapeError, r"`x_zero_point` of \(2,\) must be a scalar"),
    (
        lambda: jo.conv_integer(X, W, Z, np.ones(2, "i1")),
        ShapeError,
        r"`w_zero_point` of \(2,\) does not fit `w` of \(3, 2, 3, 3\); it must be a scalar, or \(3,\), one per output",
    ),
    (lambda: jo.conv_integer(X, W[:, :1]), ShapeError, "conv_integer: `w` of .* takes 1 channels"),
    (lambda: jo.conv_integer(X, W, strides=(0, 1)), ArgumentError, "conv_integer: `strides` .* must be at least 1"),
    (lambda: jo.qlinear_conv(X, S, Z, W, TWO, I8, S, Z), ShapeError, r"qlinear_conv: `w_scale` of \(2,\) does not"),
    (lambda: jo.qlinear_conv(X, TWO, Z, W, S, I8, S, Z), ShapeError, r"`x_scale` of \(2,\) must be a scalar"),
    (lambda: jo.qlinear_conv(X, S, Z, W, S, I8, S, np.int16(0)), DTypeError, "`y_zero_point` is int16; it must be of"),
    (
        lambda: jo.qlinear_conv(X, S, Z, W, S, I8, S, Z, np.ones(3, "f4")),
        DTypeError,
        "`b` is float32; it must be int32",
    ),
    (lambda: jo.qlinear_conv(X, S, Z, W, S, I8, S, Z, np.ones(2, "i4")), ShapeError, r"`b` of \(2,\) must be"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
