"""The elements that share a scale in linear quantization: all, those at one index of an axis, or a block."""

from typing import NamedTuple

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import ceiled, must_agree
from jaxops.static import Sizes


class Layout(NamedTuple):
    """The shape in which a scale broadcasts to the data.

    sizes: the shape to give the scale, of the rank of the data. axis: the axis on which each scale is repeated for
    `block` elements; None if the reshaped scale broadcasts.
    """

    sizes: Sizes
    axis: int | None = None
    block: int = 1


def per_tensor(x: Sizes, scale: Sizes, block_size: int) -> bool:
    """Returns True if the scale is one number for all data, so that no axis matters."""
    return scale == () or (scale == (1,) and not (block_size and len(x) == 1))


def layout(operand: str, x: Sizes, scale: Sizes, axis: int, block_size: int) -> Layout:
    """The layout of a scale of these sizes for data of sizes `x`; `axis` is in [0, rank), if one matters.

    Per tensor: a scalar, or one element. Per axis: 1-D. By blocks, with a block_size: the sizes of x, but
    ceil(size / block_size) on the axis.
    """
    if block_size < 0:
        raise ArgumentError(f"`block_size` is {block_size}; it must be positive, or 0 for no blocks")
    if per_tensor(x, scale, block_size):
        return Layout((1,) * len(x))
    subject = f"`{operand}` of {shape_text(scale)}"
    if block_size:
        expected = (*x[:axis], ceiled(x[axis], block_size), *x[axis + 1 :])
        problem = f"{subject} does not fit `x` of {shape_text(x)} in blocks of {block_size} on axis {axis}; it must be "
        must_agree(f"{problem}{shape_text(expected)}, or a scalar", scale, expected)
        return Layout(scale, axis, block_size)
    if len(scale) != 1:
        raise ShapeError(
            f"{subject} must be a scalar (per tensor) or 1-D (per axis) for `x` of {shape_text(x)}; give `block_size` "
            f"for quantization by blocks"
        )
    problem = f"{subject} does not fit axis {axis} of `x` of {shape_text(x)}; it must have {x[axis]} elements, or be a "
    must_agree(f"{problem}scalar", scale, (x[axis],))
    return Layout(tuple(scale[0] if i == axis else 1 for i in range(len(x))))


def same_layout(names: tuple[str, str], scale: Sizes, zero_point: Sizes) -> None:
    """Raises ShapeError unless scale and zero point have one shape; one element may be a scalar or 1-D in either."""
    single = ((), (1,))
    if scale != zero_point and not (scale in single and zero_point in single):
        must_agree(
            f"`{names[1]}` of {shape_text(zero_point)} must have the shape of `{names[0]}`, {shape_text(scale)}",
            zero_point,
            scale,
        )
