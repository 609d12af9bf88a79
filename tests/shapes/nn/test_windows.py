"""Sizes of sliding windows: values by the standard's formulas, counted by hand; symbolic sizes; errors."""

import itertools
import math

import pytest
from jax.export import symbolic_shape

from jaxops.errors import ArgumentError, ShapeError, SizeError
from jaxops.jax_internals import evaluated
from jaxops.shapes.nn import windows
from jaxops.shapes.nn.windows import Options
from jaxops.static import LIMITING

DEFAULT = Options("NOTSET", None, None, None)


def one(size, kernel, step=1, dilation=1, pads=(0, 0), auto_pad="NOTSET", ceil=False):
    options = Options(auto_pad, pads if auto_pad == "NOTSET" else None, (step,), (dilation,))
    return windows.sliding((size,), (kernel,), options, ceil)


# size, kernel, stride, dilation, pads, auto_pad, ceil → size of the result, pads
ROWS = [
    ((5, 3), 3, (0, 0)),
    ((5, 3, 2, 1, (1, 1)), 3, (1, 1)),
    ((5, 2, 1, 3), 2, (0, 0)),
    ((6, 3, 2), 2, (0, 0)),
    ((6, 3, 2, 1, (0, 0), "NOTSET", True), 3, (0, 1)),
    # the second window would start in the padding at the end
    ((2, 1, 2, 1, (0, 0), "NOTSET", True), 1, (0, 0)),
    ((3, 3, 3, 1, (1, 1), "NOTSET", True), 2, (1, 2)),
    ((1, 2, 2, 1, (0, 0), "NOTSET", True), 1, (0, 1)),
    ((5, 6), 0, (0, 0)),
    ((5, 3, 2, 1, None, "SAME_UPPER"), 3, (1, 1)),
    ((6, 3, 2, 1, None, "SAME_UPPER"), 3, (0, 1)),
    ((6, 3, 2, 1, None, "SAME_LOWER"), 3, (1, 0)),
    ((6, 3, 1, 2, None, "SAME_UPPER"), 6, (2, 2)),
    ((5, 1, 3, 1, None, "SAME_LOWER"), 2, (0, 0)),
    ((5, 2, 2, 1, None, "VALID"), 2, (0, 0)),
    ((5, 2, 2, 1, None, "VALID", True), 3, (0, 1)),
    ((0, 3, 1, 1, (1, 2)), 1, (1, 2)),
]


@pytest.mark.parametrize(("row", "count", "pads"), ROWS, ids=str)
def test_size(row, count, pads):
    found = one(*row)
    assert found.sizes == (count,)
    assert found.pads == (pads,)


def test_ceil_mode_drops_windows_that_start_beyond_the_input():
    for size, kernel, step, dilation in itertools.product(range(1, 9), range(1, 4), range(1, 5), (1, 2)):
        for begin, end in itertools.product(range(kernel), repeat=2):
            width = windows.span(kernel, dilation)
            expected = math.ceil((size + begin + end - width) / step) + 1
            if expected < 0:
                continue
            if (expected - 1) * step >= size + begin:
                expected -= 1
            found = one(size, kernel, step, dilation, (begin, end), ceil=True)
            assert found.sizes == (expected,), (size, kernel, step, dilation, begin, end)
            assert (size + sum(found.pads[0]) - width) // step + 1 == expected
            assert found.ends == (end,)


def test_symbolic_sizes():
    (b,) = symbolic_shape("b")
    assert one(b, 3, 1, 1, (1, 1)).sizes == (b,)
    assert one(2 * b, 2, 2).sizes == (b,)
    assert one(2 * b, 3, 2, 1, None, "SAME_UPPER").sizes == (b,)
    assert one(2 * b, 3, 2, ceil=True).sizes == (b,)
    assert one(b, 3, 1, 1, None, "SAME_LOWER").pads == ((1, 1),)
    # A stride above the window needs no padding, whatever the size.
    (found,) = one(b, 1, 2, 1, None, "SAME_LOWER").sizes
    assert [evaluated(found, {"b": size}) for size in (1, 4, 5)] == [1, 2, 3]
    found = windows.transposed((b,), (4,), Options("NOTSET", (1, 1), (2,), None))
    assert found.sizes == (2 * b,)
    with pytest.raises(ShapeError, match=r"the padding .* that `output_shape` asks for may be negative"):
        windows.transposed((b,), (4,), DEFAULT, None, (7,))
    token = LIMITING.set(True)
    try:
        with pytest.raises(SizeError, match=r"the size b may be too small for a window\n.*b - 2 >= 0"):
            one(b, 3)
    finally:
        LIMITING.reset(token)


# size, kernel, stride, dilation, pads, auto_pad, output_padding, output_shape → size, elements cropped
TRANSPOSED = [
    ((3, 3, 2, 1, None, "NOTSET", None, None), 7, (0, 0)),
    ((3, 3, 2, 2, (1, 2), "NOTSET", None, None), 6, (1, 2)),
    ((3, 3, 2, 1, (1, 1), "NOTSET", 1, None), 6, (1, 0)),
    ((3, 3, 2, 1, None, "SAME_UPPER", None, None), 6, (0, 1)),
    ((3, 3, 2, 1, None, "SAME_LOWER", None, None), 6, (1, 0)),
    ((3, 3, 2, 1, None, "SAME_UPPER", 1, None), 6, (1, 0)),
    ((3, 3, 4, 1, None, "SAME_LOWER", None, None), 12, (0, -1)),
    ((3, 3, 2, 1, None, "VALID", None, None), 7, (0, 0)),
    # the odd element goes first, but with SAME_UPPER last (ConvTranspose-11)
    ((3, 3, 2, 1, None, "NOTSET", None, 4), 4, (2, 1)),
    ((3, 3, 2, 1, None, "SAME_UPPER", None, 4), 4, (1, 2)),
    ((3, 3, 2, 1, (9, 9), "NOTSET", None, 8), 8, (0, -1)),
]


@pytest.mark.parametrize(("row", "count", "cut"), TRANSPOSED, ids=str)
def test_transposed_size(row, count, cut):
    size, kernel, step, dilation, pads, auto_pad, extra, shape = row
    found = windows.transposed(
        (size,),
        (kernel,),
        Options(auto_pad, pads, (step,), (dilation,)),
        None if extra is None else (extra,),
        None if shape is None else (shape,),
    )
    assert (found.sizes, found.pads) == ((count,), (cut,))


X = (2, 4, 8, 8)
ERRORS = [
    (lambda: windows.spatial((2, 3)), ShapeError, r"`x` has sizes \(2, 3\); it needs batch"),
    (
        lambda: one(3, 5, 1, 2, (1, 1)),
        ShapeError,
        r"a window of 9 elements \(5, dilated by 2\) does not fit into spatial axis 0 of size 3, padded by 1 and 1",
    ),
    (lambda: one(3, 2, 0), ArgumentError, r"`strides` \(0,\) holds 0; it must be at least 1"),
    (lambda: one(3, 2, 1, -1), ArgumentError, r"`dilations` \(-1,\) holds -1; it must be at least 1"),
    (lambda: one(3, 0), ArgumentError, r"`kernel_shape` \(0,\) holds 0; it must be at least 1"),
    (lambda: one(3, 2, pads=(0, -1)), ArgumentError, r"`pads` \(0, -1\) holds -1; it must be at least 0"),
    (lambda: one(3, 2, pads=(1,)), ShapeError, r"`pads` \(1,\) has 1 value; the spatial axes of `x` need 2"),
    (
        lambda: windows.sliding((5,), (2,), Options("VALID", (1, 0), None, None)),
        ArgumentError,
        r"`pads` \(1, 0\) and `auto_pad` VALID exclude each other",
    ),
    (
        lambda: windows.transposed((3,), (3,), Options("NOTSET", (4, 2), None, None)),
        ShapeError,
        "the windows cover 5 elements of spatial axis 0, fewer than `pads` 4 and 2 cut off",
    ),
    (
        lambda: windows.transposed((3,), (3,), DEFAULT, (1,)),
        ArgumentError,
        r"`output_padding` \(1,\) holds 1 on spatial axis 0; it must be less than the stride 1 or the dilation 1",
    ),
    (
        lambda: windows.transposed((3,), (3,), DEFAULT, None, (1, 1, 5)),
        ShapeError,
        r"`output_shape` \(1, 1, 5\) has 3 values; .* need 1",
    ),
    (
        lambda: windows.channels(X, (6, 3, 1, 1), 1),
        ShapeError,
        r"`w` of \(6, 3, 1, 1\) with `group` 1 takes 3 channels, but `x` of \(2, 4, 8, 8\) has 4",
    ),
    (lambda: windows.channels(X, (5, 2, 1, 1), 2), ShapeError, "`group` 2 does not divide the 5 output"),
    (lambda: windows.channels(X, (6, 4, 1), 1), ShapeError, r"`w` of \(6, 4, 1\) must have the rank of `x`"),
    (lambda: windows.channels(X, (6, 4, 1, 1), 0), ArgumentError, "`group` is 0; it must be at least 1"),
    (lambda: windows.transposed_channels(X, (6, 4, 1, 1), 1), ShapeError, "takes 6 channels, but `x` .* has 4"),
    (lambda: windows.transposed_channels(X, (4, 4, 1, 1), 3), ShapeError, "`group` 3 does not divide the 4"),
    (
        lambda: windows.kernel_of((6, 4, 3, 3), (3, 1)),
        ShapeError,
        r"`kernel_shape` is \(3, 1\), but `w` of \(6, 4, 3, 3\) has a kernel of \(3, 3\)",
    ),
    (lambda: windows.bias((1,), 6), ShapeError, r"`b` of \(1,\) must be \(6,\), one per output"),
]


@pytest.mark.parametrize(("call", "error", "match"), ERRORS, ids=[row[2][:30] for row in ERRORS])
def test_error(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_zero_pads_are_allowed_beside_auto_pad():
    assert windows.sliding((5,), (2,), Options("VALID", (0, 0), None, None)).sizes == (4,)
