"""Sizes of the tensors that one step of an optimizer takes."""

from collections.abc import Sequence

from jaxops.errors import ShapeError, SignatureError, shape_text
from jaxops.shapes.arithmetic import all_agree, must_agree
from jaxops.static import Sizes


def groups(op: str, kinds: Sequence[str], tensors: Sequence[Sizes]) -> int:
    """How many tensors are optimized; there are as many of each kind, of the same sizes."""
    count, rest = divmod(len(tensors), len(kinds))
    if rest or not count:
        raise SignatureError(
            f"{op}: {len(tensors)} tensors were given, but it takes as many of each kind: {', '.join(kinds)}"
        )
    for i in range(count):
        for kind, sizes in zip(kinds, tensors[i::count], strict=True):
            if sizes != tensors[i]:
                must_agree(
                    f"{op}: the {kind} of tensor {i} has the shape {shape_text(sizes)}, but the tensor "
                    f"{shape_text(tensors[i])}",
                    sizes,
                    tensors[i],
                )
    return count


def single(op: str, name: str, sizes: Sizes) -> None:
    """Raises ShapeError unless an operand holds one number."""
    problem = f"{op}: `{name}` of {shape_text(sizes)} must be one number"
    if not all_agree(problem, sizes, (1,) * len(sizes)):
        raise ShapeError(problem)
