"""Sizes of scales and zero points of matrix products: one for all, one per row, or one per column."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import all_agree
from jaxops.static import Sizes


def of_rows(operand: str, matrix: Sizes, sizes: Sizes) -> Sizes:
    """Returns the sizes in which an operand broadcasts to a matrix (…, M, K).

    sizes: of the operand, (M,) or (…, M, 1), or one element, for which the result is ().
    """
    rows = matrix[-2] if len(matrix) > 1 else 1
    return _sizes(operand, matrix, sizes, rows, (rows, 1))


def of_columns(operand: str, matrix: Sizes, sizes: Sizes) -> Sizes:
    """Returns the sizes in which an operand broadcasts to a matrix (…, K, N).

    sizes: of the operand, (N,) or (…, 1, N), or one element, for which the result is ().
    """
    columns = matrix[-1] if len(matrix) > 1 else 1
    return _sizes(operand, matrix, sizes, columns, (1, columns))


def _sizes(operand: str, matrix: Sizes, sizes: Sizes, count: int, last: Sizes) -> Sizes:
    if sizes in ((), (1,)):
        return ()
    by_matrix = (*matrix[:-2], *last)
    fits = f"({count},) or {shape_text(by_matrix)}" if len(matrix) > 1 else "one element, as there is one axis"
    problem = (
        f"`{operand}` of {shape_text(sizes)} does not fit the matrix of {shape_text(matrix)}; it must be a "
        f"scalar, or {fits}"
    )
    if all_agree(problem, sizes, (count,)):
        return last
    if len(matrix) < 2 or not all_agree(problem, sizes, by_matrix):
        raise ShapeError(problem)
    return by_matrix


def single(operand: str, sizes: Sizes) -> None:
    """Raises ShapeError unless an operand is a scalar or has one element."""
    if sizes not in ((), (1,)):
        raise ShapeError(f"`{operand}` of {shape_text(sizes)} must be a scalar")
