"""Sizes of operands that broadcast to each other."""

from collections.abc import Sequence
from itertools import combinations

from jaxops.errors import ShapeError, SizeError, shape_text
from jaxops.shapes.arithmetic import agree
from jaxops.static import Sizes


def must_broadcast(operand: str, sizes: Sizes, target: Sizes) -> None:
    """Raises ShapeError, which names the operand, unless its sizes broadcast to the target and leave that as it is."""
    if broadcast(target, sizes) != target:
        raise ShapeError(f"`{operand}` of {shape_text(sizes)} must broadcast to {shape_text(target)}, not extend it")


def broadcast(*shapes: Sizes) -> Sizes:
    """The common shape of operands under the broadcasting of NumPy and ONNX."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result = []
    for column in zip(*padded, strict=True):
        wide = [d for d in column if not (isinstance(d, int) and d == 1)]
        if any(d != wide[0] for d in wide[1:]):
            problem = f"shapes {' and '.join(map(shape_text, shapes))} do not broadcast to each other"
            try:
                fits = all(agree(problem, d, wide[0], broadcasts=True) for d in wide[1:])
            except SizeError as error:
                error.broadcasts = not _is_square(padded)
                raise
            if not fits:
                raise ShapeError(problem)
        result.append(wide[0] if wide else 1)
    return tuple(result)


def _is_square(shapes: Sequence[Sizes]) -> bool:
    """Returns True if a shape meets its own transpose, as in x + xᵀ, so that a size of 1 would change the result."""
    for one, other in combinations(shapes, 2):
        pairs = {(a, b) for a, b in zip(one, other, strict=True) if a != b}
        if any((b, a) in pairs for a, b in pairs):
            return True
    return False
