"""Sizes of sampling grids."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import all_agree
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.static import Sizes


def sampled(x: Sizes, grid: Sizes) -> Sizes:
    """(N, C, o1, …, or) of data (N, C, d1, …, dr) and a grid (N, o1, …, or, r) (ONNX GridSample-22)."""
    rank = len(x) - 2
    problem = (
        f"grid_sample: `grid` of {shape_text(grid)} does not fit `x` of {shape_text(x)}; data (N, C, d1, …, dr) "
        f"need a grid (N, o1, …, or, r)"
    )
    if rank < 1 or len(grid) != rank + 2 or not all_agree(problem, (grid[-1], grid[0]), (rank, x[0])):
        raise ShapeError(problem)
    check_inhabited("grid_sample: `x`", x, range(2, len(x)), grid[:-1])
    return (*x[:2], *grid[1:-1])


def affine(theta: Sizes, size: Sizes) -> Sizes:
    """(N, H, W, 2) or (N, D, H, W, 3) of matrices (N, 2, 3) or (N, 3, 4) (ONNX AffineGrid-20)."""
    rank = len(size) - 2
    if rank not in (2, 3):
        raise ShapeError(f"affine_grid: `size` {shape_text(size)} must be (N, C, H, W) or (N, C, D, H, W)")
    problem = (
        f"affine_grid: `theta` of {shape_text(theta)} does not fit `size` {shape_text(size)}; it must be "
        f"{shape_text((size[0], rank, rank + 1))}"
    )
    if not all_agree(problem, theta, (size[0], rank, rank + 1)):
        raise ShapeError(problem)
    return (size[0], *size[2:], rank)
