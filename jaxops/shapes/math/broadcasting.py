"""Sizes of operands that broadcast to each other."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import agree
from jaxops.static import Sizes


def must_broadcast(op: str, operand: str, sizes: Sizes, target: Sizes) -> None:
    """Raises ShapeError, which names the operand, unless its sizes broadcast to the target and leave that as it is."""
    if broadcast(op, target, sizes) != target:
        raise ShapeError(
            f"{op}: `{operand}` of {shape_text(sizes)} must broadcast to {shape_text(target)}, not extend it"
        )


def broadcast(op: str, *shapes: Sizes) -> Sizes:
    """The common shape of operands under the broadcasting of NumPy and ONNX."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result = []
    for column in zip(*padded, strict=True):
        wide = [d for d in column if not (isinstance(d, int) and d == 1)]
        if any(d != wide[0] for d in wide[1:]):
            problem = f"{op}: shapes {' and '.join(map(shape_text, shapes))} do not broadcast to each other"
            if not all(agree(problem, d, wide[0], broadcasts=True) for d in wide[1:]):
                raise ShapeError(problem)
        result.append(wide[0] if wide else 1)
    return tuple(result)
