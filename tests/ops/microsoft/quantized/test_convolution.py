"""QLinearConv of com.microsoft beside onnxruntime."""

import numpy as np
import pytest
from microsoft_peer import ours
from quantized_peer import agree
from whole_numbers import whole_numbers

RNG = np.random.default_rng(8)
whole = whole_numbers(RNG)
f32 = np.float32


@pytest.mark.parametrize(("left", "right"), [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
@pytest.mark.parametrize("last", [0, 1])
def test_channels_last(left, right, last):
    x = whole(left, *(2, 9, 8, 6) if last else (2, 6, 9, 8))
    w_zero = whole(right) if right is np.uint8 else np.int8(0)
    scales = RNG.uniform(0.01, 0.02, 4).astype(f32)
    given = (x, f32(0.1), whole(left), whole(right, 4, 6, 3, 3), scales, np.full(4, w_zero), f32(1.5), whole(left))
    agree("QLinearConv", given, steps=1, channels_last=last, pads=[1, 1, 1, 1], strides=[2, 1])
    bias = RNG.integers(-9999, 9999, 4).astype(np.int32)
    agree("QLinearConv", (*given, bias), steps=1, channels_last=last, auto_pad="SAME_UPPER")
    grouped = (*given[:3], whole(right, 4, 3, 3, 3), *given[4:])
    agree("QLinearConv", grouped, steps=1, channels_last=last, group=2, dilations=[1, 2])


def test_it_is_the_standards_own_else():
    x, w = whole(np.uint8, 1, 3, 7), whole(np.int8, 2, 3, 3)
    assert ours("QLinearConv", (x, f32(1), np.uint8(3), w, f32(1), np.int8(0), f32(90), np.uint8(9)))[0].shape == (
        1,
        2,
        5,
    )
