"""Sampling of an image at the coordinates in a grid, and the grid of an affine map."""

__all__ = ["affine_grid", "grid_sample"]

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, ints, one_of
from jaxops.dtypes import accumulation_type, as_traced, floating
from jaxops.errors import ShapeError, shape_text
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.interpolation import Tap, cubic_taps, gather_taps, inside, linear_taps
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.shapes.arithmetic import all_agree, must_agree
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import StaticInts, Traits
from jaxops.static import ArrayLike, Dim, Sizes, jit_if_concrete

TRAITS = Traits(grows=True)

GridMode = Literal["linear", "nearest", "cubic"]
GridPadding = Literal["zeros", "border", "reflection"]


def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    *,
    align_corners: int = 0,
    mode: GridMode = "linear",
    padding_mode: GridPadding = "zeros",
) -> jax.Array:
    """Samples `x` at the coordinates in `grid`, interpolating between its elements.

    x: (N, C, d1, …, dr), floats, or any numbers for 'nearest'. grid: (N, o1, …, or, r), floats; the last axis holds
    coordinates from the innermost axis to the outermost, -1 and 1 being the centres of the first and last elements
    with align_corners, else their outer edges. Returns (N, C, o1, …, or), x's dtype; 16-bit types are computed in
    float32. mode: 'nearest' rounds halves to even. padding_mode: outside of x, 'zeros' reads zero, 'border' the element
    at the edge, 'reflection' the data mirrored at the edge.
    Raises ShapeError, DTypeError, ArgumentError.
    Source: ONNX GridSample, opsets 16–22.

    >>> grid_sample(jnp.array([[[[0.0, 4.0]]]]), jnp.zeros((1, 1, 1, 2))).tolist()
    [[[[2.0]]]]
    """
    x, (coordinates,) = as_traced(x), floating(grid=grid)
    how = one_of("mode", mode, GridMode)
    padding = one_of("padding_mode", padding_mode, GridPadding)
    require("numbers" if how == "nearest" else "floating-point", x)
    return _grid_sample((x, coordinates), flag("align_corners", align_corners), how, padding)


def _sampled_sizes(x: Sizes, grid: Sizes) -> Sizes:
    """The sizes (N, C, o1, …, or) for data (N, C, d1, …, dr) and a grid (N, o1, …, or, r) (ONNX GridSample-22)."""
    rank = len(x) - 2
    problem = (
        f"`grid` of {shape_text(grid)} does not fit `x` of {shape_text(x)}; data (N, C, d1, …, dr) "
        f"need a grid (N, o1, …, or, r)"
    )
    if rank < 1 or len(grid) != rank + 2 or not all_agree(problem, (grid[-1], grid[0]), (rank, x[0])):
        raise ShapeError(problem)
    check_inhabited("`x`", x, range(2, len(x)), grid[:-1])
    return (*x[:2], *grid[1:-1])


@jit_if_concrete
def _grid_sample(operands: tuple[Any, Any], align: bool, mode: GridMode, padding: GridPadding) -> Any:
    x, grid = operands
    sizes = _sampled_sizes(x.shape, grid.shape)
    rank = len(sizes) - 2
    exact = accumulation_type(x.dtype, grid.dtype)
    wide = x.dtype if mode == "nearest" else exact
    grid = lax.convert_element_type(grid, exact)
    # The grid holds (…, y, x): the last axis of the data first.
    axes = [_taps(grid[..., rank - 1 - i], size, align, mode, padding) for i, size in enumerate(x.shape[2:])]
    y = jnp.moveaxis(gather_taps(lax.convert_element_type(x, wide), axes), -1, 1)
    return assert_sizes(lax.convert_element_type(y, x.dtype), sizes, x.dtype)


def _taps(coordinates: Any, size: Dim, align: bool, mode: GridMode, padding: GridPadding) -> list[Tap]:
    """The taps along one axis; `coordinates` in [-1, 1]."""
    count = jnp.asarray(size, coordinates.dtype)
    coordinates = (coordinates + 1) / 2 * (count - 1) if align else ((coordinates + 1) * count - 1) / 2
    if mode == "nearest":
        coordinates = lax.round(coordinates, lax.RoundingMethod.TO_NEAREST_EVEN)
    if padding == "reflection":
        low, high = (0.0 * count, count - 1) if align else (0.0 * count - 0.5, count - 0.5)
        span = jnp.maximum(high - low, 1)
        mirrored = low + (span - abs((coordinates - low) % (2 * span) - span))
        coordinates = jnp.where((coordinates < low) | (coordinates > high), mirrored, coordinates)
    else:
        # Beyond this the whole filter is outside, so the clip changes no result and keeps the index within int32. The
        # standard leaves open whether 'cubic' moves the coordinate itself to the edge; as in onnxruntime, it does not.
        coordinates = jnp.clip(coordinates, -3, count + 2)
    if mode == "nearest":
        pairs = [(coordinates.astype(np.int32), None)]
    else:
        pairs = linear_taps(coordinates) if mode == "linear" else cubic_taps(coordinates)
    if padding == "zeros":
        return [(index, weight, inside(index, size)) for index, weight in pairs]
    if padding == "border":  # the gather clips indices to the edge
        return [(index, weight, None) for index, weight in pairs]
    return [(_reflected(index, jnp.asarray(size, np.int32), align), weight, None) for index, weight in pairs]


def _reflected(index: Any, size: Any, align: bool) -> Any:
    """The index mirrored at the centre of the outermost element (with `align`) or at its outer edge."""
    period = jnp.maximum(2 * size - 2, 1) if align else 2 * size
    index = index % period
    return jnp.where(index < size, index, period - index - (0 if align else 1))


def affine_grid(theta: ArrayLike, size: StaticInts, *, align_corners: int = 0) -> jax.Array:
    """The coordinates at which `grid_sample` reads an image to transform it by an affine map.

    theta: (N, 2, 3) or (N, 3, 4), floats, the matrix of the map for each image. size: static, that of the result of
    `grid_sample`, (N, C, H, W) or (N, C, D, H, W). Returns (N, H, W, 2) or (N, D, H, W, 3), same dtype; 16-bit types
    are computed in float32. align_corners: as in `grid_sample`; with 1 the coordinate on an axis of one element is 0,
    as in PyTorch (the standard leaves this open).
    Raises ShapeError, DTypeError.
    Source: ONNX AffineGrid, opset 20.

    >>> affine_grid(jnp.eye(2, 3)[None], (1, 1, 1, 2))[0, 0, :, 0].tolist()
    [-0.5, 0.5]
    """
    (matrices,) = floating(theta=theta)
    sizes, align = ints("size", size), flag("align_corners", align_corners)
    return _affine_grid(matrices, sizes, align)


def _affine_sizes(theta: Sizes, size: Sizes) -> Sizes:
    """The sizes (N, H, W, 2) or (N, D, H, W, 3) for matrices (N, 2, 3) or (N, 3, 4) (ONNX AffineGrid-20)."""
    rank = len(size) - 2
    if rank not in (2, 3):
        raise ShapeError(f"`size` {shape_text(size)} must be (N, C, H, W) or (N, C, D, H, W)")
    problem = (
        f"`theta` of {shape_text(theta)} does not fit `size` {shape_text(size)}; it must be "
        f"{shape_text((size[0], rank, rank + 1))}"
    )
    must_agree(problem, theta, (size[0], rank, rank + 1))
    return (size[0], *size[2:], rank)


@jit_if_concrete
def _affine_grid(theta: Any, size: Sizes, align: bool) -> Any:
    sizes = _affine_sizes(theta.shape, size)
    bounded_like(sizes, theta)
    rank = len(size) - 2
    work = lax.convert_element_type(theta, accumulation_type(theta.dtype))
    rows = work.reshape(work.shape[0], *([1] * rank), rank, rank + 1)
    total = rows[..., rank]
    for i, length in enumerate(size[2:]):
        # (x, y, …): the last axis is multiplied with the first column.
        coordinates = _places(length, align, work.dtype).reshape([-1 if a == i else 1 for a in range(rank)])
        total = total + rows[..., rank - 1 - i] * coordinates[None, ..., None]
    return assert_sizes(lax.convert_element_type(total, theta.dtype), sizes, theta.dtype)


def _places(length: Dim, align: bool, dtype: Any) -> Any:
    index, count = lax.iota(dtype, length), jnp.asarray(length, dtype)
    if not align:
        return (2 * index + 1) / count - 1
    return (2 * index - (count - 1)) / jnp.maximum(count - 1, 1)
