"""Products, attention, convolutions and pooling, beside OpenVINO and the specification."""

import numpy as np
import pytest
from openvino_files import Cases, agrees, assert_close, gives, has_derivative, outputs_of, single

from jaxops.openvino import load

CASES = Cases()
f, i, c, case = CASES.floats, CASES.integers, CASES.constant, CASES.add


case("MatMul", 1, [f(2, 3, 4), f(5, 4)], {"transpose_a": False, "transpose_b": True})
case("MatMul", 1, [f(4), f(4, 5)], {"transpose_a": True, "transpose_b": False})
case("MatMul", 1, [f(4, 2), f(4, 5)], {"transpose_a": True})
case("Einsum", 7, [f(2, 3), f(3, 4)], {"equation": "ij,jk->ik"})
case("ScaledDotProductAttention", 13, [f(2, 3, 5, 4), f(2, 3, 6, 4), f(2, 3, 6, 7)], {"causal": False})
case("ScaledDotProductAttention", 13, [f(2, 5, 4), f(2, 6, 4), f(2, 6, 4)], {"causal": True})
case(
    "ScaledDotProductAttention",
    13,
    [f(2, 3, 5, 4), f(2, 3, 6, 4), f(2, 3, 6, 4), f(5, 6), c(0.3, "f4")],
    {"causal": False},
)
case(
    "ScaledDotProductAttention",
    13,
    [f(2, 3, 5, 4), f(2, 3, 6, 4), f(2, 3, 6, 4), f(2, 1, 5, 6) > -1],
    {"causal": False},
)
case("ScaledDotProductAttention", 13, [f(2, 5, 4), f(2, 6, 4), f(2, 6, 4), f(2, 5, 6)], {"causal": False})
cv = {"strides": [1, 2], "pads_begin": [1, 0], "pads_end": [0, 1], "dilations": [1, 2], "auto_pad": "explicit"}
case("Convolution", 1, [f(2, 3, 8, 9), c(f(4, 3, 3, 2), "f4")], cv)
case("Convolution", 1, [f(2, 3, 8, 9), c(f(4, 3, 3, 2), "f4")], {**cv, "auto_pad": "same_upper"})
case("GroupConvolution", 1, [f(2, 4, 8, 9), c(f(2, 3, 2, 3, 2), "f4")], {**cv, "auto_pad": "valid"})
case(
    "ConvolutionBackpropData",
    1,
    [f(2, 3, 4, 5), c(f(3, 4, 3, 2), "f4")],
    {**cv, "strides": [2, 2], "output_padding": [0, 0]},
)
case(
    "ConvolutionBackpropData",
    1,
    [f(2, 3, 4, 5), c(f(3, 4, 3, 2), "f4")],
    {**cv, "strides": [2, 2], "output_padding": [1, 1]},
)
case(
    "ConvolutionBackpropData",
    1,
    [f(2, 3, 4, 5), c(f(3, 4, 3, 3), "f4")],
    {**cv, "strides": [2, 2], "dilations": [1, 1], "auto_pad": "same_upper", "output_padding": [0, 0]},
)
for ap in ["explicit", "same_upper", "same_lower", "valid"]:
    case(
        "ConvolutionBackpropData",
        1,
        [f(2, 3, 4, 5), c(f(3, 4, 3, 3), "f4"), c([8, 10])],
        {**cv, "strides": [2, 2], "dilations": [1, 1], "auto_pad": ap, "output_padding": [0, 0]},
        1,
    )
case(
    "GroupConvolutionBackpropData",
    1,
    [f(2, 4, 4, 5), c(f(2, 2, 3, 3, 2), "f4")],
    {**cv, "strides": [2, 2], "output_padding": [0, 0]},
)
pl = {"strides": [2, 2], "pads_begin": [1, 0], "pads_end": [1, 1], "kernel": [3, 2], "rounding_type": "floor"}
pl = {**pl, "auto_pad": "explicit"}
for rt in ("floor", "ceil"):
    case("MaxPool", 1, [f(2, 3, 8, 9)], {**pl, "rounding_type": rt})
    for e in (True, False):
        if e or rt == "floor":  # the plugin counts what the last window overhangs
            case("AvgPool", 1, [f(2, 3, 8, 9)], {**pl, "rounding_type": rt, "exclude-pad": e})
    case(
        "MaxPool",
        8,
        [f(2, 3, 8, 9)],
        {**pl, "rounding_type": rt, "dilations": [1, 1], "index_element_type": "i64", "axis": 2},
        2,
    )
case(
    "MaxPool",
    14,
    [f(2, 3, 8, 9)],
    {**pl, "rounding_type": "ceil_torch", "dilations": [1, 1], "index_element_type": "i32", "axis": 0},
    2,
)
for e in (True, False):
    case("AvgPool", 16, [f(2, 3, 8, 9)], {**pl, "dilations": [1, 2], "exclude-pad": e})
    case("AvgPool", 1, [f(2, 3, 8, 9)], {**pl, "auto_pad": "same_upper", "exclude-pad": e})
case("MaxPool", 1, [f(2, 3, 8, 9)], {**pl, "auto_pad": "same_lower"})
case("AvgPool", 14, [f(2, 3, 8, 9)], {**pl, "rounding_type": "ceil_torch", "exclude-pad": True})


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_as_openvino(case):
    agrees(*case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_derivatives(case):
    has_derivative(*case)


@pytest.mark.parametrize("rounding", ["ceil", "ceil_torch"])
def test_an_average_counts_padding_but_not_what_lies_beyond(rounding):
    x = np.arange(1, 5, dtype="f4").reshape(1, 1, 4)
    window = {"strides": [3], "pads_begin": [1], "pads_end": [0], "kernel": [3], "exclude-pad": False}
    gives("AvgPool", 14, [x], {**window, "rounding_type": rounding}, np.array([[[1.0, 3.5]]], "f4"))


@pytest.mark.parametrize("pads", [[0, 0], [1, 1]])
@pytest.mark.parametrize("op_type", ["MaxPool", "AvgPool", "AvgPool with padding"])
def test_one_program_for_all_sizes_that_are_rounded_up(op_type, pads):
    window = {"strides": [2, 3], "pads_begin": pads, "pads_end": [0, 0], "kernel": [3, 3], "rounding_type": "ceil"}
    if op_type != "MaxPool":
        window["exclude-pad"] = op_type == "AvgPool"
    file, _ = single(op_type.split()[0], 1, [f(1, 2, 8, 8)], window, free=True)
    model = load(file.xml)
    exported = model.export()
    for height, width in ((8, 8), (5, 11), (3, 4), (16, 9)):
        image = f(1, 2, height, width)
        assert_close([np.asarray(exported.call(model.params, image))], outputs_of(model, [image]), 1e-6)
    with pytest.raises(ValueError, match=r">= \d|refining shapes"):  # as JAX says it
        exported.call(model.params, f(1, 2, 1, 9))
