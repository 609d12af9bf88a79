"""Reductions and movement of elements, beside OpenVINO and the specification."""

import pytest
from openvino_files import Cases, agrees, has_derivative

CASES = Cases()
f, i, c, case = CASES.floats, CASES.integers, CASES.constant, CASES.add


for t in ["ReduceL1", "ReduceL2"]:
    case(t, 4, [f(2, 3, 4), c([1, -1])])
    case(t, 4, [f(2, 3, 4), c([1])], {"keep_dims": True})
for t in ["ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSum"]:
    case(t, 1, [f(2, 3, 4), c([1, -1])], {"keep_dims": False})
    case(t, 1, [f(2, 3, 4), c(1)], {"keep_dims": True})
    case(t, 1, [i(2, 3, 4), c(1)], {"keep_dims": True})
for t in ["ReduceLogicalAnd", "ReduceLogicalOr"]:
    case(t, 1, [f(2, 3, 4) > 0, c([1, -1])], {"keep_dims": False})
for e in (0, 1):
    for v in (0, 1):
        case("CumSum", 3, [f(2, 3, 4), c(1)], {"exclusive": bool(e), "reverse": bool(v)})
case("Broadcast", 3, [f(3, 1), c([2, 3, 4])], {"mode": "numpy"})
case("Broadcast", 3, [f(3, 1), c([1, 4])], {"mode": "bidirectional"})
case("Broadcast", 3, [f(3), c([2, 3, 4]), c([1])], {"mode": "explicit"})
case("Broadcast", 1, [f(3), c([2, 3, 4]), c([1])], {"mode": "none"})
case("Broadcast", 1, [f(3, 1), c([2, 3, 4])], {"mode": "numpy"})
case("SpaceToBatch", 2, [f(2, 3, 4, 6), c([1, 1, 2, 3]), c([0, 0, 1, 0]), c([0, 0, 1, 0])])
case("BatchToSpace", 2, [f(12, 3, 2, 2), c([1, 1, 2, 3]), c([0, 0, 1, 0]), c([0, 0, 0, 2])])
case("Concat", 1, [f(2, 3), f(2, 1)], {"axis": -1})
for m in ("blocks_first", "depth_first"):
    case("DepthToSpace", 1, [f(2, 8, 3, 4)], {"mode": m, "block_size": 2})
    case("DepthToSpace", 1, [f(2, 8, 3)], {"mode": m, "block_size": 2})
    case("DepthToSpace", 1, [f(2, 16, 2, 3, 4)], {"mode": m, "block_size": 2})
    case("SpaceToDepth", 1, [f(2, 3, 4, 6)], {"mode": m, "block_size": 2})
    case("SpaceToDepth", 1, [f(2, 3, 4)], {"mode": m, "block_size": 2})
    case("SpaceToDepth", 1, [f(2, 3, 4, 6, 2)], {"mode": m, "block_size": 2})


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_as_openvino(case):
    agrees(*case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_derivatives(case):
    has_derivative(*case)
