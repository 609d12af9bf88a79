"""Sizes of recurrent layers, and of their weights."""

from collections.abc import Mapping

from jaxops.errors import ShapeError, amount, shape_text
from jaxops.shapes.arithmetic import agree, must_fit
from jaxops.static import Dim, Sizes


def steps(
    gates: int,
    directions: int,
    batch_first: bool,
    hidden_size: int | None,
    x: Sizes,
    w: Sizes,
    r: Sizes,
    optional: Mapping[str, Sizes],
) -> tuple[Dim, Dim, Dim]:
    """The number of steps, of sequences and of hidden neurons. optional: the sizes of the optional operands."""
    must_fit("x", x, (*(("batch", "steps") if batch_first else ("steps", "batch")), "input size"))
    length, batch = (x[1], x[0]) if batch_first else (x[0], x[1])
    must_fit("r", r, ("directions", f"{gates} · hidden size", "hidden size"))
    hidden = r[2]
    problem = f"`r` of {shape_text(r)} has {hidden} hidden neurons, but `hidden_size` is {hidden_size}"
    if hidden_size is not None and not agree(problem, hidden, hidden_size):
        raise ShapeError(problem)
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    expected = {
        "w": (directions, gates * hidden, x[2]),
        "r": (directions, gates * hidden, hidden),
        "b": (directions, 2 * gates * hidden),
        "sequence_lens": (batch,),
        "initial_h": state,
        "initial_c": state,
        "p": (directions, 3 * hidden),
    }
    layer = f"{amount(hidden, 'hidden neuron')} and {amount(directions, 'direction')}"
    for name, sizes in {"w": w, "r": r, **optional}.items():
        must_fit(name, tuple(sizes), expected[name], reason=f"; x is {shape_text(x)}, with {layer}")
    return length, batch, hidden
