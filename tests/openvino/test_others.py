"""Signals, detection, embeddings and what else only OpenVINO has, as files ask for it, beside OpenVINO."""

import numpy as np
import pytest
from openvino_files import Cases, agrees, has_derivative

CASES = Cases()
f, i, c, case = CASES.floats, CASES.integers, CASES.constant, CASES.add


case("DFT", 7, [f(2, 4, 5, 2), c([1, -1])])
case("DFT", 7, [f(2, 4, 5, 2), c([0, 1]), c([3, -1])])
case("IDFT", 7, [f(2, 4, 5, 2), c([1, 2])])
case("RDFT", 9, [f(2, 4, 5), c([1, -1])])
case("IRDFT", 9, [f(2, 4, 5, 2), c([1, 2])])
case("IRDFT", 9, [f(2, 4, 5, 2), c([2]), c([7])])
for t in (True, False):
    case("STFT", 15, [f(2, 50), f(16), c(16), c(5)], {"transpose_frames": t})
    case("STFT", 15, [f(50), f(11), c(16), c(5)], {"transpose_frames": t})
case(
    "Col2Im",
    15,
    [f(2, 12, 9), c([4, 4]), c([2, 2])],
    {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0]},
)
case(
    "GridSample",
    9,
    [f(2, 3, 4, 5), np.clip(f(2, 3, 3, 2), -1.1, 1.1)],
    {"align_corners": True, "mode": "bilinear", "padding_mode": "border"},
)
for m in ["bilinear", "nearest", "bicubic"]:
    case(
        "GridSample",
        9,
        [f(2, 3, 4, 5), np.clip(f(2, 3, 3, 2), -1.1, 1.1)],
        {"align_corners": False, "mode": m, "padding_mode": "zeros"},
    )
case("SpaceToBatch", 2, [f(2, 3, 4, 6), c([1, 1, 2, 3]), c([0, 0, 1, 0]), c([0, 0, 1, 0])])
case("BatchToSpace", 2, [f(12, 3, 2, 2), c([1, 1, 2, 3]), c([0, 0, 1, 0]), c([0, 0, 0, 2])])
case("ShuffleChannels", 1, [f(2, 6, 3)], {"axis": 1, "group": 3})
case("Roll", 7, [f(3, 4), c([1, -2]), c([0, 1])])
case("Reverse", 1, [f(3, 4), c([1])], {"mode": "index"})
case("GRN", 1, [f(2, 3, 4, 4)], {"bias": 0.5})
case("Bucketize", 3, [f(4), c([-1.0, 0, 1], "f4")], {"output_type": "i32", "with_right_bound": False})
case("SearchSorted", 15, [np.sort(f(2, 5)), f(2, 3)], {"right_mode": True})
case("AdaptiveAvgPool", 8, [f(2, 3, 7, 8), c([3, 5])])
case(
    "ExtractImagePatches",
    3,
    [f(1, 2, 8, 8)],
    {"sizes": [3, 3], "strides": [2, 2], "rates": [1, 1], "auto_pad": "valid"},
)
case("EmbeddingBagOffsetsSum", 3, [f(5, 3), np.array([0, 2, 3, 4], "i4"), np.array([0, 2, 2], "i4")])
case("EmbeddingBagPackedSum", 3, [f(5, 3), np.array([[0, 2], [3, 4]], "i4")])
case("EmbeddingSegmentsSum", 3, [f(5, 3), np.array([0, 2, 3, 4], "i4"), np.array([0, 0, 2, 2], "i4"), c(3, "i4")])
case("ReorgYolo", 2, [f(1, 4, 6, 6)], {"stride": [2, 2]})
case(
    "RegionYolo",
    1,
    [f(1, 125, 13, 13)],
    {
        "coords": 4,
        "classes": 20,
        "num": 5,
        "do_softmax": True,
        "mask": [],
        "axis": 1,
        "end_axis": 3,
        "anchors": [1.0, 2.0],
    },
)
case(
    "ROIAlign",
    9,
    [f(1, 3, 8, 8), np.array([[0, 0, 5, 6.0]], "f4"), np.array([0], "i4")],
    {
        "pooled_h": 2,
        "pooled_w": 3,
        "sampling_ratio": 2,
        "spatial_scale": 1.0,
        "mode": "avg",
        "aligned_mode": "half_pixel_for_nn",
    },
)
case(
    "ROIPooling",
    2,
    [f(1, 3, 8, 8), np.array([[0, 0, 0, 5, 6.0]], "f4")],
    {"pooled_h": 2, "pooled_w": 3, "spatial_scale": 1.0, "method": "max", "output_roi": [2, 3]},
)
case(
    "ROIPooling",
    1,
    [f(1, 3, 8, 8), np.array([[0, 0, 0, 0.5, 0.6]], "f4")],
    {"pooled_h": 2, "pooled_w": 3, "spatial_scale": 1.0, "method": "bilinear", "output_roi": [2, 3]},
)
case(
    "PSROIPooling",
    1,
    [f(1, 12, 8, 8), np.array([[0, 0, 0, 5, 6.0]], "f4")],
    {
        "output_dim": 3,
        "group_size": 2,
        "spatial_scale": 1.0,
        "mode": "average",
        "spatial_bins_x": 1,
        "spatial_bins_y": 1,
    },
)
case(
    "PriorBox",
    8,
    [c([3, 3]), c([30, 30])],
    {
        "min_size": [4.0],
        "max_size": [9.0],
        "aspect_ratio": [2.0],
        "flip": True,
        "clip": False,
        "step": 0,
        "offset": 0.5,
        "variance": [0.1],
        "scale_all_sizes": True,
        "fixed_ratio": [],
        "fixed_size": [],
        "density": [],
        "min_max_aspect_ratios_order": True,
    },
)
case(
    "PriorBoxClustered",
    1,
    [c([3, 3]), c([30, 30])],
    {
        "width": [4.0, 5.0],
        "height": [3.0, 6.0],
        "clip": False,
        "step": 0,
        "step_w": 0,
        "step_h": 0,
        "offset": 0.5,
        "variance": [0.1],
    },
)
do = {
    "background_label_id": 0,
    "top_k": 10,
    "variance_encoded_in_target": False,
    "keep_top_k": [5],
    "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
    "share_location": True,
    "nms_threshold": 0.45,
    "confidence_threshold": 0.01,
    "clip_after_nms": False,
    "clip_before_nms": False,
    "decrease_label_id": False,
    "normalized": True,
    "input_height": 1,
    "input_width": 1,
    "objectness_score": 0,
}
pr = np.concatenate([np.sort(CASES.random.rand(1, 1, 20), -1).astype("f4"), np.full((1, 1, 20), 0.1, "f4")], 1)
case("DetectionOutput", 1, [0.1 * f(1, 20), np.abs(f(1, 10)), pr], {**do, "num_classes": 2})
case("DetectionOutput", 8, [0.1 * f(1, 20), np.abs(f(1, 10)), pr], do)
nb = np.sort(CASES.random.rand(1, 6, 2, 2), 2).reshape(1, 6, 4).astype("f4")
ns = CASES.random.rand(1, 2, 6).astype("f4")
for o in (1, 3, 4):
    case(
        "NonMaxSuppression",
        o,
        [nb, ns, c(3), c(0.5, "f4"), c(0.1, "f4")],
        {"box_encoding": "corner", "sort_result_descending": True, **({} if o == 1 else {"output_type": "i64"})},
    )
for o in (5, 9):
    case(
        "NonMaxSuppression",
        o,
        [nb, ns, c(3), c(0.5, "f4"), c(0.1, "f4"), c(0.0, "f4")],
        {"box_encoding": "corner", "sort_result_descending": True, "output_type": "i64"},
        3,
    )
case(
    "MatrixNms",
    8,
    [nb, ns],
    {
        "sort_result_type": "score",
        "output_type": "i64",
        "score_threshold": 0.1,
        "nms_top_k": -1,
        "keep_top_k": -1,
        "background_class": -1,
        "decay_function": "linear",
        "normalized": True,
    },
    3,
)
case(
    "MulticlassNms",
    8,
    [nb, ns],
    {"sort_result_type": "classid", "output_type": "i64", "iou_threshold": 0.5, "score_threshold": 0.1},
    3,
)
case(
    "ConvertPromoteTypes",
    14,
    [f(2), i(2)],
    {"promote_unsafe": True, "pytorch_scalar_promotion": False, "u64_integer_promotion_target": "f32"},
    2,
)
case("FakeConvert", 13, [f(3), c(1.0, "f4"), c(0.0, "f4")], {"destination_type": "f8e5m2"})
case("Inverse", 14, [f(2, 3, 3)], {"adjoint": False})
case("ErfInv", 17, [np.clip(f(4), -0.9, 0.9)])
case(
    "DeformableConvolution",
    8,
    [f(1, 3, 6, 6), 0.3 * f(1, 18, 4, 4), c(f(2, 3, 3, 3), "f4")],
    {
        "strides": [1, 1],
        "pads_begin": [0, 0],
        "pads_end": [0, 0],
        "dilations": [1, 1],
        "auto_pad": "explicit",
        "group": 1,
        "deformable_group": 1,
        "bilinear_interpolation_pad": True,
    },
)
case(
    "DeformableConvolution",
    1,
    [f(1, 3, 6, 6), 0.3 * f(1, 18, 4, 4), c(f(2, 3, 3, 3), "f4")],
    {
        "strides": [1, 1],
        "pads_begin": [0, 0],
        "pads_end": [0, 0],
        "dilations": [1, 1],
        "auto_pad": "explicit",
        "group": 1,
        "deformable_group": 1,
    },
)
case("SliceScatter", 15, [f(4, 5), f(2, 5), c([0]), c([4]), c([2]), c([0])])
case("GatherTree", 1, [f(4, 2, 3).round(), np.zeros((4, 2, 3), "f4"), np.full(2, 4, "f4"), c(9.0, "f4")])
case("CTCGreedyDecoder", 1, [f(5, 2, 4), np.ones((5, 2), "f4")], {"ctc_merge_repeated": True})
case(
    "CTCGreedyDecoderSeqLen",
    6,
    [f(2, 5, 4), np.array([5, 3], "i4")],
    {"merge_repeated": True, "classes_index_type": "i32", "sequence_length_type": "i32"},
    2,
)
case("NV12toRGB", 8, [CASES.random.randint(0, 255, (1, 6, 4, 1)).astype("u1")])
case("I420toBGR", 8, [CASES.random.randint(0, 255, (1, 6, 4, 1)).astype("u1")])
case(
    "ROIAlignRotated",
    15,
    [f(1, 3, 8, 8), np.array([[3, 3, 4, 5, 0.3]], "f4"), np.array([0], "i4")],
    {"pooled_h": 2, "pooled_w": 3, "sampling_ratio": 2, "spatial_scale": 1.0, "clockwise_mode": True},
)
case("SegmentMax", 16, [f(5, 3), np.array([0, 0, 1, 3, 3], "i4")], {"fill_mode": "ZERO"})
case(
    "NMSRotated",
    13,
    [np.concatenate([nb, np.zeros((1, 6, 1), "f4")], -1), ns, c(3), c(0.5, "f4"), c(0.1, "f4")],
    {"clockwise": True},
    3,
)
case(
    "Proposal",
    4,
    [np.abs(f(1, 6, 4, 4)), 0.1 * f(1, 12, 4, 4), np.array([64, 64, 1], "f4")],
    {
        "base_size": 8,
        "pre_nms_topn": 20,
        "post_nms_topn": 5,
        "nms_thresh": 0.7,
        "feat_stride": 16,
        "min_size": 4,
        "ratio": [1.0],
        "scale": [1.0, 2.0, 4.0],
    },
    2,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_as_openvino(case):
    agrees(*case)


# Results whose sizes depend on data; operands that are whole numbers; a cast to 8 bits, which counts as the identity.
SIZED = {"NonMaxSuppression", "MatrixNms", "MulticlassNms", "NMSRotated", "SegmentMax"}
FLAT = {"ROIPooling", "GatherTree", "FakeConvert"}


@pytest.mark.parametrize("case", CASES.without(SIZED | FLAT), ids=lambda case: f"{case[0]}-{case[1]}")
def test_derivatives(case):
    has_derivative(*case)
