"""QuantizeLinear and DequantizeLinear of com.microsoft beside onnxruntime, which has them for more types."""

import ml_dtypes
import numpy as np
import pytest
from microsoft_peer import ours, runtime
from quantized_peer import close

from jaxops import microsoft as ms
from jaxops.errors import ShapeError

RNG = np.random.default_rng(5)
KINDS = [np.uint8, np.int8, np.uint16, np.int16, ml_dtypes.uint4, ml_dtypes.int4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["tensor", "axis"])
def test_both_ways(kind, way):
    info = ml_dtypes.iinfo(kind)
    sizes, attributes = ((), {}) if way == "tensor" else ((7,), {"axis": 1})
    x = RNG.normal(size=(5, 7)).astype(np.float32) * 9
    zero = RNG.integers(int(info.min), int(info.max) + 1, sizes).astype(kind)
    by = RNG.uniform(0.001, 2, sizes).astype(np.float32)
    # onnxruntime hands out 4-bit numbers as floats here
    found, theirs = (
        ours("QuantizeLinear", (x, by, zero), **attributes)[0],
        runtime("QuantizeLinear", (x, by, zero), **attributes)[0],
    )
    assert found.dtype == kind
    # The peer hands out 4-bit numbers as floats.
    assert (np.asarray(found).astype(np.float32) == theirs.astype(np.float32)).all()
    back = ours("DequantizeLinear", (found, by, zero), **attributes)[0]
    close(back, runtime("DequantizeLinear", (np.asarray(found), by, zero), **attributes)[0])


def test_an_axis_and_no_zero_point():
    x, by = RNG.normal(size=(4, 3)).astype(np.float16), np.float16([1, 2, 3, 4])
    assert ms.quantize_linear(x, by, axis=0).dtype == np.uint8
    assert ms.dequantize_linear(np.int32([[4], [5]]), np.float16([0.5, 2]), axis=0).tolist() == [[2.0], [10.0]]
    with pytest.raises(ShapeError, match=r"`y_scale` of \(4,\) does not fit axis 1"):
        ms.quantize_linear(x, by)
