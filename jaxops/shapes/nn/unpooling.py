"""Sizes of MaxUnpool and Col2Im, which put windows back into images."""

import math

from jaxops.errors import ArgumentError, ShapeError, amount, shape_text
from jaxops.shapes.arithmetic import all_agree, divided, must_agree, must_fit
from jaxops.shapes.nn.windows import Options, Windows, sliding
from jaxops.static import Sizes


def same(x: Sizes, indices: Sizes) -> None:
    """Raises ShapeError unless `indices` has the sizes of `x`, (N, C, d1, …) (ONNX MaxUnpool-22)."""
    problem = f"`x` of {shape_text(x)} and `i` of {shape_text(indices)} must both be (N, C, d1, …)"
    if len(x) < 3 or not all_agree(problem, x, indices):
        raise ShapeError(problem)


def unpooled(sizes: Sizes, kernel: Sizes, strides: Sizes | None, pads: Sizes | None) -> Sizes:
    """(d - 1)·stride + kernel - pads of spatial axes (ONNX MaxUnpool-22)."""
    rank = len(sizes)
    strides, pads = strides or (1,) * rank, pads or (0,) * 2 * rank
    for name, numbers, count in (("kernel_shape", kernel, rank), ("strides", strides, rank), ("pads", pads, 2 * rank)):
        if len(numbers) != count:
            raise ShapeError(
                f"`{name}` {shape_text(numbers)} has {amount(len(numbers), 'number')}; "
                f"it must have {count} for {amount(rank, 'spatial axis', 'spatial axes')}"
            )
    rows = zip(sizes, kernel, strides, pads[:rank], pads[rank:], strict=True)
    return tuple((size - 1) * step + k - low - high for size, k, step, low, high in rows)


def larger(output: Sizes, least: Sizes) -> Sizes:
    """Returns `output_shape`, after a check that it has room for the sizes `least` (ONNX MaxUnpool-22)."""
    if len(output) != len(least):
        raise ShapeError(f"`output_shape` {shape_text(output)} must hold {amount(len(least), 'size')}")
    small = [i for i, (a, b) in enumerate(zip(output, least, strict=True)) if isinstance(a - b, int) and a < b]
    if small:
        raise ShapeError(f"`output_shape` {shape_text(output)} is smaller than {shape_text(least)} at axis {small[0]}")
    return output


def blocks(columns: Sizes, image: Sizes, block: Sizes, options: Options) -> tuple[Sizes, Windows]:
    """(N, C, *image) of columns (N, C·∏block, L), and the windows (ONNX Col2Im-18)."""
    if len(image) != len(block) or not image:
        raise ShapeError(f"`image_shape` {shape_text(image)} and `block_shape` {shape_text(block)} differ in rank")
    must_fit("input", columns, ("N", "C · elements of a block", "blocks"))
    count = math.prod(block)
    if min(block) < 1:
        raise ArgumentError(f"`block_shape` {shape_text(block)} must be positive")
    windows = sliding(image, block, options)
    count_of_blocks = math.prod(windows.sizes)
    problem = (
        f"`input` of {shape_text(columns)} does not fit blocks of {shape_text(block)} in {shape_text(image)}; "
        f"axis 1 must be a multiple of {count}, axis 2 {count_of_blocks}"
    )
    must_agree(problem, columns[2:], (count_of_blocks,))
    return (columns[0], divided(problem, columns[1], count), *image), windows
