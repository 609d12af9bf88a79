"""Random programs of symbolic sizes: moves, slices, gathers and combinations of rows.

Values are small whole numbers, so results are equal and not only close, but for a few that end a program.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from random_padded_steps import MOTIFS, At, Operation, Values, rounded

from jaxops.errors import JaxopsError
from jaxops.jax_internals import evaluated
from jaxops.static import Undecided, is_symbolic, symbolic_shape

# The ranges of the symbols. The least size leaves something after a few slices.
LEAST, LARGEST = 4, 9
_MOST_ELEMENTS, _MOST_AXES = 4096, 4


class Program(NamedTuple):
    """A random program. inputs: their types. steps: (operation, the positions of its operands).

    ends: steps whose results are equal only to rounding. reserved: sizes with more room than they need, as in a
    decoder.
    """

    inputs: list[jax.ShapeDtypeStruct]
    steps: list[tuple[Operation, tuple[int, ...]]]
    ends: list[tuple[Operation, tuple[int, ...]]]
    reserved: tuple[Any, ...]

    def run(self, *inputs: Any, at: At = lambda sizes: sizes) -> tuple[list[Any], list[Any]]:
        """Computes the results of all steps, and those of the ends."""
        values = list(inputs)
        for operation, operands in self.steps:
            values.append(operation(at, *(values[k] for k in operands)))
        ends = [operation(at, *(values[k] for k in operands)) for operation, operands in self.ends]
        return values[len(inputs) :], ends


def numbers(sizes: Any, symbols: dict[str, int]) -> Any:
    """Returns sizes, in any tuples, with numbers in place of symbols."""
    if isinstance(sizes, tuple | list):
        return type(sizes)(numbers(size, symbols) for size in sizes)
    return evaluated(sizes, symbols) if is_symbolic(sizes) else sizes


def random_padded_program(seed: int) -> Program:
    """Returns a program of one or two symbolic sizes, s and t."""
    rng = np.random.default_rng(seed)
    limits = [f"{name} {sign}" for name in "st" for sign in (f">= {LEAST}", f"<= {LARGEST}")]
    s, t = symbolic_shape("s, t", constraints=limits)
    is_decoder = rng.random() < 0.2
    shapes = [(s - 1, 2), (1, 2)] if is_decoder else [(s, 3), (2, s), (t, s), (s,), (2, 2, s), (s, 2, t), (2 * s, 2)]
    chosen = shapes if is_decoder else [shapes[k] for k in rng.integers(len(shapes), size=2)]
    types = [jax.ShapeDtypeStruct(shape, rng.choice([np.float32, np.float32, np.int32])) for shape in chosen]
    program, values = Program(list(types), [], [], (s - 1,) if is_decoder else ()), Values(types)
    length = int(rng.integers(4, 10))
    if is_decoder:
        _add(program, values, lambda at, x, y: lax.concatenate([x.astype(y.dtype), y], 0), (0, 1))
    for _ in range(4 * length):
        if len(program.steps) >= length:
            break
        motif = MOTIFS[rng.integers(len(MOTIFS))]
        if (found := motif(rng, values)) is not None:
            _add(program, values, *found, ends=motif is rounded)
    return program


def _add(program: Program, values: Values, operation: Operation, operands: tuple[int, ...], ends: bool = False) -> None:
    """Adds a step, unless it has no results of these sizes, or one that is too large."""
    try:
        result = jax.eval_shape(lambda *x: operation(lambda sizes: sizes, *x), *(values.types[k] for k in operands))
    except (JaxopsError, Undecided, ValueError, TypeError, NotImplementedError):
        return
    rooms = [[numbers(d, {"s": n, "t": n}) for d in result.shape] for n in range(LEAST, LARGEST + 1)]
    if rooms != sorted(rooms) or not all(map(all, rooms)):
        return  # a size that shrinks as another one grows, or that may be 0
    if math.prod(rooms[-1]) <= _MOST_ELEMENTS and len(result.shape) <= _MOST_AXES:
        (program.ends if ends else program.steps).append((operation, operands))
        values.types.extend([] if ends else [result])
