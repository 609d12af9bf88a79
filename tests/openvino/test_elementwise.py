"""Activations, rounding, conversion, normalization and arithmetic, beside OpenVINO and the specification."""

import numpy as np
import pytest
from openvino_files import Cases, agrees, gives, has_derivative

CASES = Cases()
f, i, c, case = CASES.floats, CASES.integers, CASES.constant, CASES.add


pos = np.abs(f(2, 3)) + 0.1
for t in [
    "Abs",
    "Sin",
    "Cos",
    "Tan",
    "Sinh",
    "Cosh",
    "Tanh",
    "Sigmoid",
    "Relu",
    "Exp",
    "Erf",
    "Floor",
    "Ceiling",
    "Sign",
    "Negative",
    "Atan",
]:
    case(t, 1, [f(2, 3)])
for t in ["Log", "Sqrt"]:
    case(t, 1, [pos])
for t in ["Acos", "Asin"]:
    case(t, 1, [np.clip(f(2, 3), -0.9, 0.9)])
case("Acosh", 4, [pos + 1])
case("Asinh", 4, [f(2, 3)])
case("Atanh", 4, [np.clip(f(2, 3), -0.9, 0.9)])
case("HSigmoid", 5, [f(3, 4)])
case("HSwish", 4, [f(3, 4)])
case("Mish", 4, [f(3, 4)])
case("SoftPlus", 4, [f(3, 4)])
case("SoftSign", 9, [f(3, 4)])
case("Gelu", 2, [f(3, 4)])
case("Gelu", 7, [f(3, 4)], {"approximation_mode": "TANH"})
case("Gelu", 7, [f(3, 4)], {"approximation_mode": "erf"})
case("Elu", 1, [f(3, 4)], {"alpha": 1.5})
case("Clamp", 1, [f(3, 4)], {"min": -0.5, "max": 0.7})
case("Clamp", 1, [i(3, 4, lo=-9, hi=9)], {"min": -1.5, "max": 2.7})
case("HardSigmoid", 1, [f(3, 4), c(0.3, "f4"), c(0.4, "f4")])
case("Selu", 1, [f(3, 4), c([1.6], "f4"), c([1.05], "f4")])
case("Swish", 4, [f(3, 4)])
case("Swish", 4, [f(3, 4), c(0.7, "f4")])
case("PReLU", 1, [f(2, 3, 3), c([0.1, 0.2, 0.3], "f4")])
case("PReLU", 1, [f(2, 3, 4), c([0.1], "f4")])
case("Round", 5, [np.array([-2.5, -1.5, 0.5, 1.5, 2.3, 0.49999997], "f4")], {"mode": "half_to_even"})
case("Round", 5, [np.array([-2.5, -1.5, 0.5, 1.5, 2.3, 0.3], "f4")], {"mode": "half_away_from_zero"})
sp = np.array([1, np.inf, -np.inf, np.nan], "f4")
case("IsFinite", 10, [sp])
case("IsNaN", 10, [sp])
case("IsInf", 10, [sp], {"detect_negative": False, "detect_positive": True})
case("LogicalNot", 1, [f(3) > 0])
case("BitwiseNot", 13, [i(3)])
case("BitwiseNot", 13, [f(3) > 0])
case("SoftMax", 1, [f(2, 3, 4)], {"axis": 1})
case("SoftMax", 8, [f(2, 3, 4)], {"axis": -1})
case("LogSoftmax", 5, [f(2, 3, 4)], {"axis": 2})
case("Identity", 16, [f(2, 3)])
for t in ["f32", "i32", "i64", "u8", "boolean", "f16", "i8"]:
    case("Convert", 1, [np.array([-1.7, 0, 0.5, 3.9, 100], "f4")], {"destination_type": t})
case("Convert", 1, [np.array([300, -1, 5], "i8")], {"destination_type": "u8"})
case("ConvertLike", 1, [f(3), i(2)])
case(
    "FakeQuantize",
    1,
    [f(2, 3, 4, 4), c([-1.0], "f4"), c([1.0], "f4"), c([-1.0], "f4"), c([1.0], "f4")],
    {"levels": 256},
)
case(
    "FakeQuantize", 1, [f(2, 3, 4, 4), c([-1.0], "f4"), c([1.0], "f4"), c([2.0], "f4"), c([-1.0], "f4")], {"levels": 5}
)
case("GRN", 1, [f(2, 3, 4, 4)], {"bias": 0.5})
case("LRN", 1, [f(2, 5, 4, 4), c([1])], {"alpha": 1e-1, "beta": 0.75, "bias": 1, "size": 3})
case("LRN", 1, [f(2, 5, 4, 4), c([2, 3])], {"alpha": 1e-1, "beta": 0.75, "bias": 1, "size": 3})
for m in ("inside_sqrt", "OUTSIDE_SQRT"):
    case("MVN", 6, [f(2, 3, 4, 4), c([2, 3])], {"normalize_variance": True, "eps": 1e-3, "eps_mode": m})
case("MVN", 6, [f(2, 3, 4, 4), c([-1])], {"normalize_variance": False, "eps": 1e-3, "eps_mode": "inside_sqrt"})
case("MVN", 2, [f(2, 3, 4, 4)], {"across_channels": False, "normalize_variance": True, "eps": 1e-3})
case("MVN", 1, [f(2, 3, 4, 4)], {"across_channels": True, "normalize_variance": True, "eps": 1e-3})
for m in ("add", "max"):
    case("NormalizeL2", 1, [f(2, 3, 4), c([1])], {"eps": 0.5, "eps_mode": m})
case(
    "BatchNormInference",
    1,
    [c(f(3), "f4"), c(f(3), "f4"), f(2, 3, 4), c(f(3), "f4"), c(np.abs(f(3)), "f4")],
    {"epsilon": 1e-3},
)
case(
    "BatchNormInference",
    5,
    [f(2, 3, 4), c(f(3), "f4"), c(f(3), "f4"), c(f(3), "f4"), c(np.abs(f(3)), "f4")],
    {"epsilon": 1e-3},
)
case("GroupNormalization", 12, [f(2, 4, 5), c(f(4), "f4"), c(f(4), "f4")], {"num_groups": 2, "epsilon": 1e-3})
for t in [
    "Add",
    "Subtract",
    "Multiply",
    "Divide",
    "Maximum",
    "Minimum",
    "SquaredDifference",
    "FloorMod",
    "Mod",
    "Equal",
    "NotEqual",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
]:
    case(t, 1, [f(2, 3, 4), f(3, 1)])
    low = 0 if t == "Divide" else -9  # of negative integers the plugin does not go to the floor
    case(t, 1, [i(2, 3, lo=low, hi=9), i(3, lo=1, hi=4)])
    if t in {"Add", "Multiply", "Maximum", "Minimum"}:  # of others, the plugin refuses it
        case(t, 1, [f(2, 3, 4), f(2, 3)], {"auto_broadcast": "pdpd"})
case("Divide", 1, [i(9, lo=-9, hi=9), i(9, lo=1, hi=4)], {"m_pythondiv": False})
case("Power", 1, [pos, f(3)])
case("Power", 1, [i(2, 3, lo=1), i(3, lo=0, hi=3)])
b = f(2, 3) > 0
for t in ["LogicalAnd", "LogicalOr", "LogicalXor", "Xor"]:
    case(t, 1, [b, f(3) > 0])
for t in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
    case(t, 13, [i(2, 3), i(3)])
    case(t, 13, [b, f(3) > 0])
for t in ["BitwiseLeftShift", "BitwiseRightShift"]:
    case(t, 15, [i(2, 3, lo=-9, hi=9).astype("i4"), i(3, lo=0, hi=3).astype("i4")])
case("Select", 1, [b, f(2, 3), f(3)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_as_openvino(case):
    agrees(*case)


# Ties are rounded; GroupNormalization computes in float32, too coarsely for differences.
@pytest.mark.parametrize(
    "case", CASES.without({"Round", "GroupNormalization"}), ids=lambda case: f"{case[0]}-{case[1]}"
)
def test_derivatives(case):
    has_derivative(*case)


WHOLE = np.array([-7, 7, -7, 7])
BY = np.array([2, 2, -2, -2])
# Where OpenVINO's plugin contradicts the text, or refuses what it allows.
TEXT = [
    ("Divide", [WHOLE, BY], {}, np.array([-4, 3, 3, -4])),
    ("Divide", [WHOLE, BY], {"m_pythondiv": True}, np.array([-4, 3, 3, -4])),
    ("Round", [np.array([0.49999997, -2.5, np.inf], "f4")], {"mode": "half_away_from_zero"},
     np.array([0, -3, np.inf], "f4")),
    ("NormalizeL2", [np.array([-2.0, 0, 3], "f4"), c([])], {"eps": 1e-9, "eps_mode": "add"}, np.array([1, 0, 1], "f4")),
    ("Subtract", [np.ones((2, 3, 2), "f4"), np.array([[1], [2]], "f4")], {"auto_broadcast": "pdpd"},
     np.array([0, -1], "f4").reshape(2, 1, 1) * np.ones((2, 3, 2), "f4")),
    ("Relu", [np.array([np.nan, -1], "f4")], {}, np.array([np.nan, 0], "f4")),
    ("Maximum", [np.array([np.nan, 2], "f4"), np.array([1, 1], "f4")], {}, np.array([np.nan, 2], "f4")),
    ("Add", [np.array([2**40]), np.array([1])], {}, np.array([2**40 + 1])),
    ("Add", [np.array([250], "u1"), np.array([10], "u1")], {}, np.array([4], "u1")),
    ("FakeQuantize", [np.array([-1.0, 0.2, 0.3], "f4"), *(c(x, "f4") for x in (0.25, 0.25, -1.0, 1.0))], {"levels": 2},
     np.array([-1, -1, 1], "f4")),
    ("Convert", [np.array([0.5, 0, np.nan], "f4")], {"destination_type": "boolean"}, np.array([True, False, True])),
    ("Clamp", [np.array([-9, 0, 9])], {"min": -np.inf, "max": 2.5}, np.array([-9, 0, 2])),
]  # fmt: skip


@pytest.mark.parametrize("case", TEXT, ids=lambda case: case[0])
def test_as_the_text(case):
    op_type, operands, attributes, expected = case
    gives(op_type, 5 if op_type == "Round" else 1, operands, attributes, expected)
