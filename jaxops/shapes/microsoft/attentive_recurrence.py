"""Sizes of a recurrent layer that attends to a memory at each step."""

from collections.abc import Mapping
from typing import Any

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import one_of
from jaxops.static import Dim, Sizes


def attention(op: str, directions: int, x: Sizes, w: Sizes, r: Sizes, given: Mapping[str, Any]) -> Dim:
    """The elements of what a step gets from the memory.

    given: the sizes of m (B, T, depth), mw (D, depth, attn), qw (D, hidden, attn), v (D, attn), aw (D, depth + hidden,
    n) or None, and memory_seq_lens (B,) or None. w is (D, 4 · hidden, input + those elements).
    """
    m, mw, aw = given["m"], given["mw"], given["aw"]
    for name, sizes, axes in (("x", x, 3), ("r", r, 3), ("w", w, 3), ("m", m, 3), ("mw", mw, 3), ("aw", aw, 3)):
        if sizes is not None and len(sizes) != axes:
            raise ShapeError(f"{op}: `{name}` of {shape_text(sizes)} must have {axes} axes")
    hidden, depth, inner = r[2], m[2], mw[2]
    size = depth if aw is None else aw[2]
    wanted = {
        "m": (x[1], None, None),
        "mw": (directions, depth, None),
        "qw": (directions, hidden, inner),
        "v": (directions, inner),
        "memory_seq_lens": (x[1],),
        "aw": (directions, depth + hidden, None),
    }
    for name, expected in ({"w": (directions, 4 * hidden, x[2] + size)} | wanted).items():
        sizes = w if name == "w" else given[name]
        text = shape_text(["*" if d is None else d for d in expected])
        problem = (
            f"{op}: `{name}` of {shape_text(sizes or ())} must be {text}; x is {shape_text(x)}, "
            f"with {hidden} hidden neurons and a memory of {shape_text(m)}"
        )
        if not one_of(problem, sizes, expected):
            raise ShapeError(problem)
    return size
