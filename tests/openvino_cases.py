"""A good call of each operator that only OpenVINO has: its arguments by name, of which floats are float32."""

from typing import Any

import numpy as np

RNG = np.random.default_rng(11)


def normal(*sizes: int) -> np.ndarray:
    return RNG.normal(size=sizes).astype(np.float32)


def uniform(*sizes: int) -> np.ndarray:
    return RNG.uniform(size=sizes).astype(np.float32)


def boxes(*sizes: int) -> np.ndarray:
    low = RNG.uniform(0, 0.6, (*sizes, 2))
    return np.concatenate([low, low + RNG.uniform(0.1, 0.4, (*sizes, 2))], -1).astype(np.float32)


X, Y = normal(2, 4, 5, 6), normal(2, 3)
IMAGES = np.array([[0], [1], [1]], np.float32)
PIXELS = np.concatenate([IMAGES, boxes(3) * 5], 1).astype(np.float32)
PARTS = np.concatenate([IMAGES, boxes(3)], 1).astype(np.float32)
ROI = {"data": X, "batch_indices": np.array([0, 1, 1]), "pooled_h": 2, "pooled_w": 3}
ROI |= {"sampling_ratio": 2, "spatial_scale": 0.9}
STEPS = {"strides": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1), "dilations": (1, 1)}
COUNTS = {"min_size": 0.01, "nms_threshold": 0.5, "pre_nms_count": 9, "post_nms_count": 5}
TABLE = {"emb_table": normal(5, 2), "indices": np.array([0, 2, 3, 4])}
IMAGE = RNG.uniform(0, 255, (1, 6, 4, 1)).astype(np.float32)
NMS = {"boxes": boxes(2, 6), "scores": uniform(2, 3, 6)}
BOX = {"output_size": (2, 3), "image_size": (20, 30), "offset": 0.5}

CASES: dict[str, dict[str, Any]] = {
    "adaptive_avg_pool": {"data": X, "output_shape": (2, 3)},
    "adaptive_max_pool": {"data": X, "output_shape": (2, 3)},
    "batch_to_space": {"data": X, "block_shape": (1, 2, 1, 1), "crops_begin": (0,) * 4, "crops_end": (0,) * 4},
    "bgr_to_nv12": {"arg": RNG.uniform(0, 255, (1, 4, 6, 3)).astype(np.float32), "single_plane": False},
    "binary_convolution": {
        **{"data": (X > 0).astype(np.float32), "filters": np.ones((2, 4, 3, 3), np.uint8), **STEPS},
        **{"mode": "xnor-popcount", "pad_value": 0.0},
    },
    "bucketize": {"data": X, "buckets": np.array([-1, 0, 1], np.float32)},
    "convert_promote_types": {"input_0": X, "input_1": np.ones(2, np.int8)},
    "ctc_greedy_decoder": {"data": normal(5, 2, 3), "sequence_mask": np.ones((5, 2), np.float32)},
    "ctc_greedy_decoder_seq_len": {"data": normal(2, 5, 3), "sequence_length": np.array([5, 4])},
    "ctc_loss": {
        **{"logits": normal(2, 5, 4), "logit_length": np.array([5, 4])},
        **{"labels": np.array([[0, 1, 2, 0, 0]] * 2), "label_length": np.array([3, 1])},
    },
    "look_up": {"codes": np.uint8([[1, 0], [2, 1]]), "table": np.float32([-1, 0, 2]), "to": np.float32},
    "deformable_convolution": {"data": X, "offsets": normal(2, 18, 5, 6), "filters": normal(2, 4, 3, 3), **STEPS},
    "deformable_psroi_pooling": {"feature_maps": X, "coords": PIXELS, "output_dim": 4, "spatial_scale": 0.9},
    "detection_output": {
        **{"box_logits": normal(2, 24), "class_preds": uniform(2, 18), "keep_top_k": (5,), "nms_threshold": 0.4},
        **{"proposals": np.stack([boxes(6).reshape(1, -1), np.full((1, 24), 0.1, np.float32)], 1)},
        "normalized": True,
    },
    "embedding_bag_offsets": {**TABLE, "offsets": np.array([0, 2, 2])},
    "embedding_bag_offsets_sum": {**TABLE, "offsets": np.array([0, 2, 2])},
    "embedding_bag_packed": {"emb_table": normal(5, 2), "indices": np.array([[0, 2], [3, 4]])},
    "embedding_bag_packed_sum": {"emb_table": normal(5, 2), "indices": np.array([[0, 2], [3, 4]])},
    "embedding_segments_sum": {**TABLE, "segment_ids": np.array([0, 0, 2, 2]), "num_segments": 3},
    "erf_inv": {"data": np.tanh(X)},
    "experimental_detectron_detection_output": {
        **{"rois": boxes(6) * 20, "deltas": normal(6, 12), "scores": uniform(6, 3)},
        **{"im_info": np.array([[30, 30, 1]], np.float32), "score_threshold": 0.1, "nms_threshold": 0.5},
        **{"num_classes": 3, "post_nms_count": 5, "max_detections_per_image": 4, "max_delta_log_wh": 4.0},
        "deltas_weights": (10.0, 10.0, 5.0, 5.0),
    },
    "experimental_detectron_generate_proposals_single_image": {
        **{"im_info": np.array([30, 30, 1], np.float32), "anchors": boxes(12) * 20, "deltas": normal(8, 2, 3)},
        **{"scores": uniform(2, 2, 3), **COUNTS},
    },
    "experimental_detectron_prior_grid_generator": {"priors": boxes(3), "feature_map": X[:1], "im_data": X[:1]},
    "experimental_detectron_roi_feature_extractor": {
        **{"rois": boxes(3) * 9, "pyramid": [X[:1]], "output_size": 2, "sampling_ratio": 2, "pyramid_scales": (2,)},
    },
    "experimental_detectron_topk_rois": {"input_rois": boxes(6), "rois_probs": uniform(6), "max_rois": 4},
    "extract_image_patches": {"data": X, "sizes": (2, 2), "strides": (1, 2), "rates": (1, 1), "auto_pad": "valid"},
    "fake_convert": {"data": X, "scale": np.array(1.5, np.float32)},
    "gather_tree": {
        **{"step_ids": np.array([[[1, 2]], [[3, 4]]]), "parent_idx": np.array([[[0, 0]], [[1, 0]]])},
        **{"max_seq_len": np.array([2]), "end_token": np.array(9)},
    },
    "generate_proposals": {
        **{"im_info": np.array([[1, 1, 1]], np.float32), "anchors": boxes(2, 3, 2), "boxesdeltas": normal(1, 8, 2, 3)},
        **{"scores": uniform(1, 2, 2, 3), **COUNTS, "size": 6},
    },
    "grn": {"data": X, "bias": 0.5},
    "grouped_matmul": {"mat_a": normal(5, 2), "mat_b": normal(2, 3, 2), "offsets": np.array([2, 5])},
    "i420_to_bgr": {"arg": IMAGE},
    "i420_to_rgb": {"arg": IMAGE},
    "inverse": {"data": normal(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)},
    "istft": {
        **{"data": normal(2, 5, 6, 2), "window": np.ones(8, np.float32), "frame_size": 8, "frame_step": 4},
        **{"center": True, "normalized": False},
    },
    "matrix_nms": {**NMS, "size": 20},
    "multiclass_nms": {**NMS, "iou_threshold": 0.4, "size": 20},
    "multinomial": {
        **{"probs": uniform(2, 5), "num_samples": 4, "convert_type": np.dtype(np.int32), "with_replacement": False},
        **{"log_probs": True, "op_seed": 7},
    },
    "nms_rotated": {
        **{"boxes": np.concatenate([boxes(2, 6), normal(2, 6, 1)], -1), "scores": uniform(2, 3, 6), "size": 12},
        **{"max_output_boxes_per_class": 3, "iou_threshold": 0.3, "score_threshold": 0.1},
    },
    "non_max_suppression": {**NMS, "max_output_boxes_per_class": 3, "iou_threshold": 0.4, "size": 12},
    "nv12_to_bgr": {"arg": IMAGE},
    "nv12_to_rgb": {"arg": IMAGE},
    "prior_box": {**BOX, "min_size": (4.0,), "aspect_ratio": (2.0,)},
    "prior_box_clustered": {**BOX, "width": (4.0, 3.0), "height": (4.0, 5.0)},
    "proposal": {
        **{"class_probs": uniform(2, 4, 2, 3), "bbox_deltas": normal(2, 8, 2, 3)},
        **{"image_shape": np.array([30, 40, 1], np.float32), "base_size": 8, "pre_nms_topn": 9, "post_nms_topn": 5},
        **{"nms_thresh": 0.5, "feat_stride": 8, "min_size": 2, "ratio": (1.0, 2.0), "scale": (1.0,)},
    },
    "psroi_pooling": {"input": X, "coords": PIXELS, "output_dim": 1, "spatial_scale": 0.9, "group_size": 2},
    "random_uniform": {
        **{
            "shape": (2, 3),
            "min_val": np.array(-1, np.float32),
            "max_val": np.array(2, np.float32),
            "output_type": np.dtype(np.float32),
        },
        "global_seed": 5,
    },
    "region_yolo": {
        **{"data": normal(2, 12, 2, 3), "axis": 1, "end_axis": 3, "coords": 4, "classes": 1, "num": 2},
    },
    "reorg_yolo": {"data": normal(2, 4, 4, 6), "stride": 2},
    "reverse": {"data": X, "axis": (1, -1), "mode": "index"},
    "rgb_to_nv12": {"arg": RNG.uniform(0, 255, (1, 4, 6, 3)).astype(np.float32), "single_plane": False},
    "roi_align": {**ROI, "rois": boxes(3) * 5, "mode": "avg"},
    "roi_align_rotated": {**ROI, "rois": np.concatenate([boxes(3) * 5, normal(3, 1)], 1)},
    "roi_pooling": {
        "input": X,
        "coords": PARTS,
        "pooled_h": 2,
        "pooled_w": 3,
        "spatial_scale": 1.0,
        "method": "bilinear",
    },
    "roll": {"data": X, "shift": np.array([1, -2]), "axes": (0, 3)},
    "search_sorted": {"sorted_sequence": np.sort(Y, 1), "values": Y},
    "segment_max": {"data": X, "segment_ids": np.array([0, 2]), "num_segments": 3, "fill_mode": "ZERO"},
    "shuffle_channels": {"data": X, "group": 2},
    "slice_scatter": {"data": X, "updates": X[:1], "start": (0,), "stop": (1,), "step": (1,), "axes": (0,)},
    "space_to_batch": {"data": X, "block_shape": (1, 2, 1, 2), "pads_begin": (0, 0, 1, 0), "pads_end": (0,) * 4},
    "sparse_fill_empty_rows": {
        **{"values": np.array([1, 3], np.float32), "dense_shape": (3, 3), "indices": np.array([[0, 0], [2, 2]])},
        **{"default_value": np.array(42, np.float32), "size": 4},
    },
    "squared_difference": {"a": X, "b": X[:1] + 1},
    "string_tensor_pack": {"begins": (0, 1), "ends": (1, 2), "symbols": np.array([97, 98], np.uint8)},
    "string_tensor_unpack": {"data": np.array(["a", "bc"])},
}
