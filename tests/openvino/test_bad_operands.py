"""Files of one operation whose operands or attributes do not fit: what is said of them."""

import re

import numpy as np
import pytest
from openvino_files import File, single

from jaxops.errors import ArgumentError, AxisError, JaxopsError, ModelError, ShapeError, SignatureError
from jaxops.openvino import load

X, ONE = np.ones((1, 4, 6, 6), "f4"), np.ones(3, "f4")
WINDOW = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0]}
STRIDES = {**WINDOW, "dilations": [1, 1]}
POOL = {**WINDOW, "kernel": [2, 2], "rounding_type": "ceil"}
AXES = (np.array([2, 3]),)


def scalar(value):
    return (np.asarray(value),)


RANKS = "must have at least {} ax[ei]s"
BAD = [
    ("GroupConvolution", 1, [X, (ONE,)], STRIDES, ShapeError, r"`filters` of \(3,\) " + RANKS.format(2)),
    ("GroupConvolutionBackpropData", 1, [X, (ONE,)], STRIDES, ShapeError, r"`filters` of \(3,\) " + RANKS.format(2)),
    *[
        (
            *(op, 1, [X, (np.ones(sizes, "f4"),)], {**STRIDES, name: [1, 1, 1]}),
            *(ArgumentError, rf"\b{op}: `{name}` has 3 numbers; it must have 2, one per spatial axis"),
        )
        for op, sizes in (
            ("ConvolutionBackpropData", (4, 2, 3, 3)),
            ("GroupConvolutionBackpropData", (2, 2, 2, 3, 3)),
        )
        for name in ("dilations", "output_padding")
    ],
    ("MaxPool", 1, [X], {**POOL, "strides": [1]}, ArgumentError, "`strides` has 1 number; it must have 2, one per"),
    ("AvgPool", 1, [ONE], {**POOL, "exclude-pad": True}, ArgumentError, "has 2 numbers; it must have 0, one per"),
    ("RDFT", 9, [X, (np.zeros(0, "i8"),)], {}, ShapeError, "RDFT: `axes` is empty"),
    ("IRDFT", 9, [X, scalar([9])], {}, AxisError, "IRDFT: .*9"),
    ("LRN", 1, [X, scalar([4])], {"alpha": 1, "beta": 1, "bias": 1, "size": 3}, AxisError, "LRN: .*4"),
    ("LRN", 1, [X, scalar([2])], {"alpha": 1, "beta": 1, "bias": 1, "size": 0}, ArgumentError, "`size` is 0; it must"),
    ("ReorgYolo", 2, [X], {"stride": ""}, ArgumentError, "ReorgYolo: `stride` is empty"),
    ("SpaceToDepth", 1, [ONE], {"mode": "blocks_first", "block_size": 2}, ShapeError, RANKS.format(3)),
    ("DepthToSpace", 1, [ONE], {"mode": "blocks_first", "block_size": 2}, ShapeError, RANKS.format(3)),
    ("NonMaxSuppression", 3, [ONE, X, scalar(3)], {}, ShapeError, r"`boxes` of \(3,\) " + RANKS.format(2)),
    ("NonMaxSuppression", 4, [X, ONE, scalar(3)], {}, ShapeError, r"`scores` of \(3,\) " + RANKS.format(3)),
    ("Range", 1, [(np.arange(3),), scalar(9), scalar(1)], {}, ShapeError, "must be one number each, got 3"),
    (
        *("StridedSlice", 1, [ONE, scalar([0]), scalar([1, 2]), scalar([1])], {"begin_mask": "", "end_mask": ""}),
        *(ShapeError, "`begin` has 1 number, `end` 2, `stride` 1"),
    ),
    ("EmbeddingSegmentsSum", 3, [X, scalar([0]), scalar([0])], {}, SignatureError, "`num_segments` is missing"),
    ("Interpolate", 11, [X, scalar([-2, 3]), AXES], {
        "mode": "nearest", "shape_calculation_mode": "sizes", "pads_begin": [0], "pads_end": [0]
    }, ArgumentError, "`sizes` is -2; it must be at least 0"),
    ("If", 8, [scalar(True)], {"then_body": "0"}, ModelError, r"layer 1 'If_1' \(If\): it has no <then_body>"),
    ("Interpolate", 1, [X, scalar([2, 2])], {
        "axes": [2, 3], "mode": "area", "align_corners": False, "antialias": False, "pads_begin": [0], "pads_end": [0]
    }, ArgumentError, "Interpolate: `mode` 'area' is not supported, .* use 'nearest', 'linear' or 'cubic'"),
    ("MatMul", 1, [X, X], {"transpose_a": "maybe"}, ModelError, "`transpose_a` is 'maybe'; it must be true or false"),
    ("Add", 1, [ONE, X], {"auto_broadcast": "pdpd"}, ShapeError, r"\(1, 4, 6, 6\) has more axes than \(3,\) for pdpd"),
    ("SpaceToDepth", 1, [X], {"mode": "blocks_first", "block_size": 4}, ShapeError, "6 elements cannot be divided"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "opset", "operands", "attributes", "error", "message"), BAD)
def test_operands_and_attributes_that_do_not_fit(op_type, opset, operands, attributes, error, message):
    file, inputs = single(op_type, opset, operands, attributes)
    with pytest.raises(JaxopsError) as raised:
        load(file.xml, weights=file.bin)(*inputs)
    assert isinstance(raised.value, error), repr(raised.value)
    assert re.search(message, str(raised.value)), str(raised.value)


def test_values_that_no_layer_makes():
    file = File()
    x = file.parameter([2], name="x")
    file.layer("Result", 1, [])
    with pytest.raises(ModelError, match=r"layer 1 'Result_1' \(Result\) has 0 inputs; it takes one"):
        load(file.xml)
    file = File()
    layer, port = file.layer("Parameter", 1, (), {"shape": "2", "element_type": "f32"}, 2, name="x")
    file.result((layer, port + 1))
    with pytest.raises(ModelError, match=r"it reads output 1 of layer 0 'x' \(Parameter\), which has no such output"):
        load(file.xml)
    assert x == (0, 0)
