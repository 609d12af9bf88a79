"""Earlier versions of operators that move data: splitting, padding, tiling, indexing, resizing."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from jaxops import ops
from jaxops.attributes import axis as resolve_axis, whole_numbers
from jaxops.errors import ArgumentError, AxisError, ShapeError, SignatureError, amount, shape_text
from jaxops.onnx.registry import version
from jaxops.ops.tensor.grids import GridMode
from jaxops.ops.tensor.resizing import NearestMode
from jaxops.shapes.arithmetic import agree
from jaxops.shapes.tensor import splitting as sizes_of
from jaxops.signature import Static, StaticInts, StaticNumbers, like, operator
from jaxops.signature_errors import errors_of
from jaxops.static import Array, Ints, array, known


def nonnegative(op: str, name: str, values: Any) -> None:
    """Raises AxisError for negative axes, which the text of some versions before opset 11 forbids.

    The text of other operators before opset 11 does not say so, and models of the standard's own suite use them.
    """
    for value in (values,) if isinstance(values, int) else values or ():
        if value < 0:
            raise AxisError(f"{op}: `{name}` holds {value}; negative axes are allowed from opset 11 on")


def _even_split(input: Array, split: Any, axis: int, n_outputs: int) -> tuple[Array, ...]:
    """Splits as before opset 18: without lengths, the axis must divide evenly."""
    if split is None:
        count = _counted(n_outputs)
        with errors_of("split"):
            split = sizes_of.equal_chunks(array(input).shape[resolve_axis(axis, array(input).ndim)], count)
    return _listed_split(input, split, axis, n_outputs)


def _listed_split(input: Array, split: Any, axis: int, n_outputs: int) -> tuple[Array, ...]:
    lengths = np.size(split)  # ops.split refuses what is not 1-D
    if n_outputs and not agree("split: the number of lengths in `split` and that of outputs", lengths, n_outputs):
        raise SignatureError(
            f"split: `split` holds {amount(lengths, 'length')}, but {amount(n_outputs, 'output')} asked for"
        )
    return ops.split(input, split, axis=axis)


def _counted(n_outputs: int) -> int:
    if not n_outputs:
        raise SignatureError("split: the number of outputs is unknown; give `n_outputs`")
    return n_outputs


@version("Split", 1)
def split_1(
    input: Array, lengths: Static = None, /, *, axis: int | None = None, split: Ints | None = None, n_outputs: int
) -> tuple[Array, ...]:
    if lengths is not None:  # in the type of the data, which may be float
        with errors_of("split"):
            split = whole_numbers("split", lengths)
    return _even_split(input, split, axis or 0, n_outputs)


@version("Split", 2)
def split_2(input: Array, split: StaticInts = None, *, axis: int, n_outputs: int) -> tuple[Array, ...]:
    return _even_split(input, split, axis, n_outputs)


@version("Split", 18)
def split_18(
    input: Array, split: StaticInts = None, *, axis: int, num_outputs: int | None = None, n_outputs: int
) -> tuple[Array, ...]:
    if split is not None and num_outputs is None:
        return _listed_split(input, split, axis, n_outputs)
    if n_outputs and num_outputs not in (None, n_outputs):
        raise SignatureError(f"split: `num_outputs` is {num_outputs}, but {n_outputs} outputs are asked for")
    return ops.split(input, split, axis=axis, num_outputs=num_outputs)


@version("Concat", 1)
def concat_1(inputs: Sequence[Array], *, axis: int = 1) -> Array:
    return ops.concat(inputs, axis=axis)


version("Concat", 4)(ops.concat)


@version("Squeeze", 1)
def squeeze_1(data: Array, *, axes: Ints | None = None) -> Array:
    nonnegative("squeeze", "axes", axes)
    return ops.squeeze(data, axes)


version("Squeeze", 11)(ops.squeeze)


@version("Unsqueeze", 1)
def unsqueeze_1(data: Array, *, axes: Ints) -> Array:
    nonnegative("unsqueeze", "axes", axes)
    return ops.unsqueeze(data, axes)


version("Unsqueeze", 11)(ops.unsqueeze)


PadMode = Literal["constant", "reflect", "edge"]  # 'wrap' came with opset 19


def _valued_pad(data: Array, pads: Ints, mode: Any, value: float) -> Array:
    return ops.pad(data, pads, np.array(value, array(data).dtype), mode=mode)


@version("Pad", 1)
def pad_1(data: Array, *, paddings: Ints, mode: PadMode, value: float) -> Array:
    return _valued_pad(data, paddings, mode, value)


@version("Pad", 2)
def pad_2(data: Array, *, pads: Ints, mode: PadMode, value: float) -> Array:
    return _valued_pad(data, pads, mode, value)


@version("Pad", 11)
def pad_11(
    data: Array, pads: StaticInts, constant_value: Any = None, axes: StaticInts = None, *, mode: PadMode
) -> Array:
    return ops.pad(data, pads, constant_value, axes, mode=mode)


WrappingPadMode = Literal["constant", "reflect", "edge", "wrap"]  # no version of ONNX has 'symmetric'


@version("Pad", 19)
@like(ops.pad)
def pad_19(*inputs: Any, mode: WrappingPadMode) -> Array:
    return ops.pad(*inputs, mode=mode)


@version("Tile", 1)
def tile_1(input: Array, tiles: Static, axis: Static) -> Array:
    """Repeats along one axis. `tiles` and `axis` have the type of the data, which may be float."""
    data = array(input)
    count, at = (_one("tile", n, v) for n, v in (("tiles", tiles), ("axis", axis)))
    with errors_of("tile"):
        place = resolve_axis(at, data.ndim)
    return ops.tile(data, tuple(count if i == place else 1 for i in range(data.ndim)))


def _one(op: str, operand: str, value: Any) -> Any:
    with errors_of(op):
        found = whole_numbers(operand, value, single=True)
    if len(found) != 1:
        raise ShapeError(f"{op}: `{operand}` must be one number, got {len(found)}")
    return found[0]


version("Tile", 6)(ops.tile)

version("Scatter", 9)(ops.scatter_elements)
version("ScatterElements", 11)(ops.scatter_elements)
version("ScatterND", 11)(ops.scatter_nd)
Reduction = Literal["none", "add", "mul"]  # 'max' and 'min' came with opset 18


@version("ScatterElements", 16)
def scatter_elements_16(data: Array, indices: Array, updates: Array, *, axis: int, reduction: Reduction) -> Array:
    return ops.scatter_elements(data, indices, updates, axis=axis, reduction=reduction)


@version("ScatterND", 16)
def scatter_nd_16(data: Array, indices: Array, updates: Array, *, reduction: Reduction) -> Array:
    return ops.scatter_nd(data, indices, updates, reduction=reduction)


version("ScatterElements", 18)(ops.scatter_elements)
version("ScatterND", 18)(ops.scatter_nd)


@version("OneHot", 9)
def one_hot_9(indices: Array, depth: Static, values: Array, *, axis: int) -> Array:
    """A negative index selects nothing. `axis` must be -1 or more."""
    if axis < -1:
        raise AxisError(f"one_hot: `axis` is {axis}; before opset 11 it must be -1 or more")
    return ops.one_hot(indices, depth, values, axis=axis, wrap=False)


version("OneHot", 11)(ops.one_hot)


EarlyResizeMode = Literal["nearest", "linear"]  # 'cubic' came with opset 11
# 'half_pixel_symmetric' came with opset 19. The text lacks 'tf_half_pixel_for_nn' from opset 13 on, but models of those
# opsets have it, and onnxruntime runs them.
CoordinateMode = Literal[
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"
]


def _simple_resize(x: Array, scales: Any, mode: EarlyResizeMode) -> Array:
    """Resizes by x / scale as onnxruntime does, since the text is silent; a smaller axis takes the next element up."""
    with errors_of("resize"):
        values = np.asarray(known("scales", scales))
    x = array(x)
    if values.shape != (x.ndim,):
        raise ShapeError(f"resize: `scales` of {shape_text(values.shape)} must be ({x.ndim},), a number for each axis")
    axes = np.arange(x.ndim)
    halves: tuple[tuple[NearestMode, Any], ...] = ("ceil", values < 1), ("floor", values >= 1)
    for rounding, chosen in halves:
        if not chosen.any():
            continue
        x = ops.resize(
            x,
            scales=values[chosen],
            axes=axes[chosen],
            mode=mode,
            nearest_mode=rounding,
            coordinate_transformation_mode="asymmetric",
        )
    return x


@version("Upsample", 1)
@operator(precision="exact", grows=True)
def upsample_1(x: Array, *, height_scale: float, width_scale: float, mode: Literal["nearest", "bilinear"]) -> Array:
    scales = np.array([1, 1, height_scale, width_scale], np.float32)
    return upsample_9(x, scales, mode="linear" if mode == "bilinear" else mode)


@version("Upsample", 7)
@operator(precision="exact", grows=True)
def upsample_7(x: Array, *, scales: Sequence[float], mode: EarlyResizeMode) -> Array:
    return upsample_9(x, np.array(scales, np.float32), mode=mode)


@version("Upsample", 9)
@operator(precision="exact", grows=True)
def upsample_9(x: Array, scales: StaticNumbers, *, mode: EarlyResizeMode) -> Array:
    with errors_of("upsample"):
        smaller = [s for s in np.asarray(known("scales", scales)).ravel() if not s >= 1]
    if smaller:
        raise ArgumentError(f"upsample: `scales` holds {smaller[0]}; scales are 1 or more")
    return _simple_resize(x, scales, mode)


@version("Resize", 10)
def resize_10(x: Array, scales: StaticNumbers, *, mode: EarlyResizeMode) -> Array:
    return _simple_resize(x, scales, mode)


@version("Resize", 11)
@like(ops.resize)
def resize_11(*inputs: Any, coordinate_transformation_mode: CoordinateMode, **attributes: Any) -> Array:
    return ops.resize(*inputs, coordinate_transformation_mode=coordinate_transformation_mode, **attributes)


version("Resize", 19)(ops.resize)


_GRID_MODES: dict[str, GridMode] = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


@version("GridSample", 16)
@like(ops.grid_sample)
def grid_sample_16(*inputs: Any, mode: Literal["bilinear", "nearest", "bicubic"], **attributes: Any) -> Array:
    return ops.grid_sample(*inputs, mode=_GRID_MODES[mode], **attributes)


version("GridSample", 20)(ops.grid_sample)
