"""Small detectors beside onnxruntime: what they find has a size that depends on the image."""

from typing import Any

import chex
import jax
import numpy as np
import onnxruntime
import pytest
from graphs import model

from jaxops.onnx import load

RNG = np.random.default_rng(7)


def weights(**shapes):
    return {name: RNG.normal(size=shape).astype(np.float32) / 8 for name, shape in shapes.items()}


# Boxes of 3×3 cells, each with 4 distances and 3 class scores, as the YOLO exports with the suppression inside.
YOLO = model(
    """main (float[1,3,24,24] image) => (float[K,4] boxes, float[K] scores, int64[K] classes) {
        f = Conv<kernel_shape = [8, 8], strides = [8, 8]>(image, w)
        flat = Reshape(f, by_cell)
        cells = Transpose<perm = [0, 2, 1]>(flat)
        s0 = Constant<value_ints = [0]>() s4 = Constant<value_ints = [4]>() s7 = Constant<value_ints = [7]>()
        s2 = Constant<value_ints = [2]>()
        raw = Slice(cells, s0, s4, s2)
        size = Exp(raw)
        corner = Sub(grid, size)
        other = Add(grid, size)
        lt = Slice(corner, s0, s2, s2)
        rb = Slice(other, s2, s4, s2)
        all_boxes = Concat<axis = 2>(lt, rb)
        logits = Slice(flat, s4, s7, one)
        all_scores = Sigmoid(logits)
        found = NonMaxSuppression(all_boxes, all_scores, most, overlap, least)
        zero = Constant<value_ints = [0]>()
        column = Constant<value_ints = [2]>()
        which = Gather<axis = 1>(found, column)
        place = Squeeze(which, one)
        kind = Gather<axis = 1>(found, one)
        classes = Squeeze(kind, one)
        image_boxes = Squeeze(all_boxes, zero)
        boxes = Gather(image_boxes, place)
        scores = GatherND(all_scores, found)
    }""",
    initializers=weights(w=(7, 3, 8, 8))
    | {
        "by_cell": np.array([1, 7, 9]),
        "one": np.array([1]),
        "grid": np.array([[[8 * (i // 3), 8 * (i % 3)] * 2 for i in range(9)]], np.float32),
        "most": np.array([2**63 - 1]),
        "overlap": np.float32([0.5]),
        "least": np.float32([0.4]),
    },
)

# For each class the best cells over a threshold, then suppression over all classes: SSD and RetinaNet in torchvision.
PER_CLASS = """
        row{c} = Gather<axis = 1>(all_scores, c{c})
        good{c} = Greater(row{c}, least)
        at{c} = NonZero(good{c})
        i{c} = Squeeze(at{c}, zero)
        kept{c} = Gather(row{c}, i{c})
        n{c} = Shape(kept{c})
        k{c} = Min(n{c}, limit)
        top{c}, order{c} = TopK(kept{c}, k{c})
        from{c} = Gather(i{c}, order{c})
        b{c} = Gather(all_boxes, from{c})
        l{c} = Expand(c{c}, k{c})"""
SSD = model(
    """main (float[1,3,24,24] image) => (float[K,4] boxes, float[K] scores, int64[K] labels) {
        f = Conv<kernel_shape = [8, 8], strides = [8, 8]>(image, w)
        flat = Reshape(f, by_cell)
        cells = Transpose<perm = [1, 0]>(flat)
        four = Constant<value_ints = [4, 3]>()
        raw, logits = Split<axis = 1>(cells, four)
        size = Exp(raw)
        moved = Mul(size, sign)
        all_boxes = Add(grid, moved)
        all_scores = Sigmoid(logits)
        zero = Constant<value_ints = [0]>()
        limit = Constant<value_ints = [5]>()"""
    + "".join(PER_CLASS.replace("{c}", str(c)) for c in range(3))
    + """
        some = Concat<axis = 0>(b0, b1, b2)
        points = Concat<axis = 0>(top0, top1, top2)
        kinds = Concat<axis = 0>(l0, l1, l2)
        shift = Cast<to = 1>(kinds)
        far = Mul(shift, hundred)
        one = Constant<value_ints = [1]>()
        column = Unsqueeze(far, one)
        apart = Add(some, column)
        batch = Unsqueeze(apart, zero)
        two = Constant<value_ints = [0, 1]>()
        marks = Unsqueeze(points, two)
        found = NonMaxSuppression(batch, marks, most, overlap)
        last = Constant<value = int64 {2}>()
        keep = Gather<axis = 1>(found, last)
        boxes = Gather(some, keep)
        scores = Gather(points, keep)
        labels = Gather(kinds, keep)
    }""",
    initializers=weights(w=(7, 3, 8, 8))
    | {
        "by_cell": np.array([7, 9]),
        "sign": np.float32([-1, -1, 1, 1]),
        "grid": np.array([[8 * (i // 3), 8 * (i % 3)] * 2 for i in range(9)], np.float32),
        "most": np.array([2**63 - 1]),
        "overlap": np.float32([0.5]),
        "least": np.array(0.4, np.float32),
        "hundred": np.array(100, np.float32),
    }
    | {f"c{c}": np.array(c) for c in range(3)},
)

# Proposals, their features, a class and a mask for each: Faster and Mask R-CNN.
RCNN = model(
    """main (float[1,3,24,24] image)
        => (float[K,4] boxes, float[K] scores, float[K,1,8,8] masks, float[K,24,24] pasted) {
        f = Conv<kernel_shape = [4, 4], strides = [4, 4]>(image, w)
        features = Relu(f)
        rpn = Conv<kernel_shape = [1, 1]>(features, w_rpn)
        flat = Reshape(rpn, by_cell)
        cells = Transpose<perm = [1, 0]>(flat)
        parts = Constant<value_ints = [4, 1]>()
        raw, objectness = Split<axis = 1>(cells, parts)
        size = Exp(raw)
        moved = Mul(size, sign)
        outside = Add(grid, moved)
        anchors = Clip(outside, low, high)
        zero = Constant<value_ints = [0]>()
        one = Constant<value_ints = [1]>()
        minus = Constant<value_ints = [-1]>()
        scored = Reshape(objectness, minus)
        ten = Constant<value_ints = [20]>()
        best, order = TopK(scored, ten)
        chosen = Gather(anchors, order)
        chance = Sigmoid(best)
        batch = Unsqueeze(chosen, zero)
        both = Constant<value_ints = [0, 1]>()
        marks = Unsqueeze(chance, both)
        first = NonMaxSuppression(batch, marks, most, overlap)
        last = Constant<value = int64 {2}>()
        keep = Gather<axis = 1>(first, last)
        rois = Gather(chosen, keep)
        count = Shape(keep)
        image_of = ConstantOfShape<value = int64[1] {0}>(count)
        pooled = RoiAlign<output_height = 4, output_width = 4, sampling_ratio = 2, spatial_scale = 0.25,
                          coordinate_transformation_mode = "half_pixel">(features, rois, image_of)
        vectors = Flatten(pooled)
        logits = MatMul(vectors, w_class)
        chances = Softmax<axis = 1>(logits)
        good = ReduceMax<axes = [1], keepdims = 0>(chances)
        over = Greater(good, least)
        at = NonZero(over)
        i = Squeeze(at, zero)
        boxes = Gather(rois, i)
        scores = Gather(good, i)
        number = Shape(scores)
        again = ConstantOfShape<value = int64[1] {0}>(number)
        wide = RoiAlign<output_height = 4, output_width = 4, sampling_ratio = 2, spatial_scale = 0.25,
                        coordinate_transformation_mode = "half_pixel">(features, boxes, again)
        up = ConvTranspose<kernel_shape = [2, 2], strides = [2, 2]>(wide, w_mask)
        masks = Sigmoid(up)
        trips = Squeeze(number, zero)
        yes = Constant<value = bool {1}>()
        pasted = Loop(trips, yes) <body = paste (int64 number_of, bool go) => (bool go_on, float[24,24] canvas) {
            go_on = Identity(go)
            mask = Gather(masks, number_of)
            box = Gather(boxes, number_of)
            down = Floor(box)
            whole = Cast<to = 7>(down)
            fours = Constant<value_ints = [1, 1, 1, 1]>()
            left, top, right, bottom = Split<axis = 0>(whole, fours)
            w0 = Sub(right, left)
            wd = Max(w0, one)
            h0 = Sub(bottom, top)
            hd = Max(h0, one)
            sizes = Concat<axis = 0>(one, one, hd, wd)
            m4 = Unsqueeze(mask, zero)
            big = Resize<mode = "linear">(m4, , , sizes)
            lines = Squeeze(big, both)
            side = Constant<value_ints = [24]>()
            after_y = Sub(side, top)
            ry = Sub(after_y, hd)
            after_x = Sub(side, left)
            rx = Sub(after_x, wd)
            around = Concat<axis = 0>(top, left, ry, rx)
            canvas = Pad(lines, around)
        }>
    }""",
    opset=16,
    initializers=weights(w=(6, 3, 4, 4), w_rpn=(5, 6, 1, 1), w_class=(96, 4), w_mask=(6, 1, 2, 2))
    | {
        "by_cell": np.array([5, 36]),
        "sign": np.float32([-1, -1, 1, 1]),
        "grid": np.array([[4 * (i % 6) + 2, 4 * (i // 6) + 2] * 2 for i in range(36)], np.float32),
        "low": np.array(0, np.float32),
        "high": np.array(23, np.float32),
        "most": np.array([2**63 - 1]),
        "overlap": np.float32([0.3]),
        "least": np.array(0.5, np.float32),
    },
)


@pytest.mark.parametrize("proto", [YOLO, SSD, RCNN], ids=["yolo", "ssd and retinanet", "mask r-cnn"])
def test_detectors_agree_with_onnxruntime(proto):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    loaded = load(proto)
    counts = set()
    for scale in (0.5, 1, 2, 3):
        image = (RNG.normal(size=(1, 3, 24, 24)) * scale).astype(np.float32)
        want = session.run(None, {"image": image})
        for got, wanted in zip(loaded(image), want, strict=True):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
        counts.add(len(want[0]))
    assert len(counts) > 2
    assert loaded.cuts


def test_a_bounded_detector_is_one_program():
    """Its first rows are those of onnxruntime."""
    session = onnxruntime.InferenceSession(YOLO.SerializeToString(), providers=["CPUExecutionProvider"])
    loaded = load(YOLO, bounds={"NonMaxSuppression": 27})
    assert not loaded.cuts
    apply, exported = jax.jit(chex.assert_max_traces(loaded.apply, 1)), loaded.export()
    counts = set()
    for scale in (0.5, 1, 2, 3):
        image = (RNG.normal(size=(1, 3, 24, 24)) * scale).astype(np.float32)
        exact: Any = session.run(None, {"image": image})
        for results in (apply(loaded.params, image), exported.call(loaded.params, image), loaded(image)):
            for got, expected in zip(results, exact, strict=True):
                assert len(got) == 27
                np.testing.assert_allclose(got[: len(expected)], expected, rtol=2e-4, atol=2e-4)
        counts.add(len(exact[0]))
    assert len(counts) > 2
