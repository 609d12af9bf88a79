"""Reading and writing by index, sorting, ranges, beside OpenVINO and the specification."""

import numpy as np
import pytest
from openvino_files import Cases, agrees, gives, has_derivative

CASES = Cases()
f, i, c, case = CASES.floats, CASES.integers, CASES.constant, CASES.add


case("Gather", 1, [f(3, 4), i(2, 2, hi=3), c(0)])
case("Gather", 7, [f(2, 3, 4), i(2, 5, hi=4), c(2)], {"batch_dims": 1})
case("Gather", 8, [f(2, 3, 4), i(2, 5, hi=4), c(-1)], {"batch_dims": -1})
case("Gather", 8, [f(3, 4), np.array([-1, 5, -9, 2]), c(1)])
case("Gather", 8, [f(2, 3, 4), i(2, 2, 2, lo=-4, hi=4), c(2)], {"batch_dims": 1})
case("GatherElements", 6, [f(3, 4), i(3, 2, hi=4)], {"axis": 1})
case("GatherND", 5, [f(2, 3, 4, 5), i(2, 3, 2, 1, hi=4)], {"batch_dims": 2})
case("GatherND", 8, [f(2, 3, 4, 5), i(2, 3, 2, 1, hi=4)], {"batch_dims": 2})
case("GatherND", 8, [f(2, 3, 4), i(2, 2, hi=2)], {"batch_dims": 0})
case("OneHot", 1, [np.array([0, 2, -1, 5]), c(3), c(5.0, "f4"), c(1.0, "f4")], {"axis": -1})
case(
    "OneHot",
    16,
    [np.array([0, 2, -1, 5]), c(3), c(5.0, "f4"), c(1.0, "f4")],
    {"axis": 0, "negative_indices_mode": "normalize"},
)
for m in ("constant", "edge", "reflect", "symmetric"):
    case("Pad", 1, [f(3, 4), c([1, 2]), c([2, 0])], {"pad_mode": m})
    case("Pad", 12, [f(4, 4), c([2, -1]), c([-1, 2])], {"pad_mode": m})
case("Pad", 12, [f(4, 4), c([2, -1]), c([-1, 2]), c(3.0, "f4")], {"pad_mode": "constant"})
case("Reshape", 1, [f(2, 3, 4), c([0, -1])], {"special_zero": True})
case("Reshape", 1, [f(2, 3, 4), c([4, 6])], {"special_zero": False})
case("Reshape", 1, [f(0, 3), c([0, -1])], {"special_zero": False})
case("Reshape", 1, [f(0, 3), c([0, -1])], {"special_zero": True})
case("Reverse", 1, [f(3, 4), c([1])], {"mode": "index"})
case("ReverseSequence", 1, [f(3, 4, 2), np.array([1, 4, 2], "i8")], {"batch_axis": 0, "seq_axis": 1})
case("Roll", 7, [f(3, 4), c([1, -2]), c([0, 1])])
case("ScatterUpdate", 3, [f(4, 3), i(2, hi=4) * 0 + [1, 3], f(2, 3), c(0)])
case("ScatterUpdate", 3, [f(2, 4, 3), np.array([[1], [3]]), f(2, 2, 1, 3), c(1)])
case("ScatterElementsUpdate", 3, [f(4, 3), np.array([[0, 1, 2], [3, 2, 0]]), f(2, 3), c(0)])
for m in ["none", "sum", "prod", "min", "max", "mean"]:
    for u in (True, False):
        case(
            "ScatterElementsUpdate",
            12,
            [
                f(4, 3),
                np.array([[0, 1, 2], [3, 2, 0]]) if m == "none" else np.array([[0, 1, 2], [0, 2, 0]]),
                f(2, 3),
                c(0),
            ],
            {"reduction": m, "use_init_val": u},
        )
case("ScatterNDUpdate", 4, [f(4, 3), np.array([[0], [2]]), f(2, 3)])
for m in ["none", "sum", "sub", "prod", "min", "max"]:
    case("ScatterNDUpdate", 15, [f(4, 3), np.array([[0], [2]]), f(2, 3)], {"reduction": m})
case("ShapeOf", 1, [f(2, 3)])
case("ShapeOf", 3, [f(2, 3)], {"output_type": "i32"})
case("ShuffleChannels", 1, [f(2, 6, 3)], {"axis": 1, "group": 3})
case("Slice", 8, [f(4, 5), c([0, -1]), c([3, 0]), c([2, -2])])
case("Slice", 8, [f(4, 5), c([1]), c([9]), c([1]), c([-1])])
case("Split", 1, [f(4, 6), c(1)], {"num_splits": 3}, 3)
case("VariadicSplit", 1, [f(4, 6), c(1), c([1, -1, 2])], None, 3)
case("Squeeze", 1, [f(2, 1, 3, 1), c([1])])
case("Squeeze", 1, [f(2, 1, 3, 1)])
case("Squeeze", 15, [f(2, 1, 3, 1), c([1, 2])], {"allow_axis_skip": True})
ss = {"begin_mask": [0, 0], "end_mask": [0, 0], "new_axis_mask": [], "shrink_axis_mask": [], "ellipsis_mask": []}
case("StridedSlice", 1, [f(4, 5), c([1, 0]), c([3, 4]), c([1, 2])], ss)
case("StridedSlice", 1, [f(4, 5), c([1, 0]), c([3, 4]), c([1, 2])], {**ss, "begin_mask": [1, 0], "end_mask": [0, 1]})
case("StridedSlice", 1, [f(4, 5), c([1, 0]), c([3, 4]), c([1, 2])], {**ss, "shrink_axis_mask": [1, 0]})
case(
    "StridedSlice",
    1,
    [f(4, 5), c([1, 0, 0]), c([3, 4, 4]), c([1, 2, 1])],
    {**ss, "begin_mask": [0, 0, 0], "end_mask": [0, 0, 0], "new_axis_mask": [0, 1, 0]},
)
case("StridedSlice", 1, [f(4, 5, 6), c([0, 1]), c([0, 3]), c([1, 1])], {**ss, "ellipsis_mask": [1, 0]})
case("StridedSlice", 1, [f(4, 5), c([3, 4]), c([0, 0]), c([-1, -2])], {**ss, "begin_mask": [0, 1], "end_mask": [1, 0]})
case("Tile", 1, [f(2, 3), c([2, 1, 3])])
case("Tile", 1, [f(2, 3), c([2])])
case("Transpose", 1, [f(2, 3, 4), c([2, 0, 1])])
case("Unsqueeze", 1, [f(2, 3), c([0, -1])])
case("NonZero", 3, [i(2, 3)], {"output_type": "i32"})
case("Unique", 10, [np.array([3, 1, 3, 2], "f4")], {"sorted": True}, 4)
case("Range", 1, [c(1.0, "f4"), c(6.0, "f4"), c(1.5, "f4")])
case("Range", 4, [c(1), c(6), c(2)], {"output_type": "f32"})
case("Eye", 9, [c(3), c(4), c(1)], {"output_type": "f32"})
for s in ("index", "value"):
    for m in ("min", "max"):
        case("TopK", 3, [f(3, 6), c(3)], {"axis": 1, "mode": m, "sort": s, "index_element_type": "i64"}, 2)
case("TopK", 1, [f(3, 6), c(3)], {"axis": 1, "mode": "max", "sort": "value"}, 2)
case("TopK", 11, [f(3, 6), c(3)], {"axis": 0, "mode": "max", "sort": "value", "stable": True}, 2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_as_openvino(case):
    agrees(*case)


@pytest.mark.parametrize("case", CASES.without({"Unique"}), ids=lambda case: f"{case[0]}-{case[1]}")
def test_derivatives(case):
    has_derivative(*case)


# Where OpenVINO's plugin contradicts the text, or refuses what it allows.
TEXT = [
    ("Range", 4, [c(0, "f4"), c(10, "f4"), c(2.7, "f4")], {"output_type": "i64"}, np.array([0, 2, 4, 6])),
    ("Range", 4, [c(5), c(1), c(1)], {"output_type": "i64"}, np.zeros(0, "i8")),
    ("Transpose", 1, [np.arange(6).reshape(1, 2, 3), c([])], {}, np.arange(6).reshape(1, 2, 3).T),
    ("ScatterElementsUpdate", 12, [np.array([1, -3]), c([0, 0, 1]), np.array([2, 5, -4]), c(0)], {"reduction": "mean"},
     np.array([2, -4])),
    ("Reshape", 1, [np.zeros((0, 3), "f4"), c([0, -1])], {"special_zero": False}, np.zeros((0, 1), "f4")),
    ("GatherND", 5, [np.arange(8).reshape(2, 2, 2), c([[[1], [0]], [[0], [1]]])], {"batch_dims": 2},
     np.array([1, 2, 4, 7])),
]  # fmt: skip


@pytest.mark.parametrize("case", TEXT, ids=lambda case: case[0])
def test_as_the_text(case):
    gives(*case)
