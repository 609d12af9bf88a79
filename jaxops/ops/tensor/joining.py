"""Operators that join arrays along an axis."""

__all__ = ["concat"]

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, integer
from jaxops.dtypes import unify, widened
from jaxops.errors import ShapeError, SignatureError, shape_text
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.shapes.arithmetic import agree
from jaxops.signature import Traits
from jaxops.static import A, Array, Operand, Sizes, jit_if_concrete

# More arrays are joined in groups.
_MOST_AT_ONCE = 64

TRAITS = Traits(kind="movement", foldable=True)


@moves_strings(0)
@tracks_sizes
def concat(inputs: Sequence[Operand[A]], *, axis: int) -> A:
    """Joins arrays along an existing axis.

    inputs: at least one array, of one dtype and rank; their sizes may differ only along `axis`.
    axis: static, in [-n, n-1].
    Raises ShapeError when the sizes do not fit, DTypeError when the dtypes differ, AxisError, SignatureError without
    arrays.
    Source: ONNX Concat, opsets 1–13.

    >>> concat([np.zeros((2, 3)), np.zeros((2, 1))], axis=-1).shape
    (2, 4)
    """
    if len(inputs) == 0:
        raise SignatureError("`inputs` is empty; at least one array is needed")
    return _concat(unify(tuple(inputs)), integer("axis", axis))


def concatenated_sizes(shapes: Sequence[Sizes], axis: int) -> Sizes:
    """Sizes of a concatenation: all operands have equal sizes except along `axis`, where they add up."""
    first = shapes[0]
    for i, sizes in enumerate(shapes[1:], 1):
        problem = (
            f"operand {i} of {shape_text(sizes)} does not fit operand 0 of {shape_text(first)}; "
            f"they may differ only along axis {axis}"
        )
        if len(sizes) != len(first) or not all(
            agree(problem, a, b) for j, (a, b) in enumerate(zip(first, sizes, strict=True)) if j != axis
        ):
            raise ShapeError(problem)
    return (*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :])


def _joined(arrays: Sequence[Any], along: int) -> Any:
    """Joins many arrays in groups, since XLA compiles each operand of a fused concatenation on its own."""
    while len(arrays) > _MOST_AT_ONCE:
        groups = [arrays[k : k + _MOST_AT_ONCE] for k in range(0, len(arrays), _MOST_AT_ONCE)]
        arrays = lax.optimization_barrier([lax.concatenate(group, along) for group in groups])
    return lax.concatenate(arrays, along)


@jit_if_concrete
def _concat(inputs: tuple[Array, ...], axis: int) -> Array:
    along = resolve_axis(axis, inputs[0].ndim)
    sizes = concatenated_sizes([x.shape for x in inputs], along)
    if isinstance(inputs[0], np.ndarray):
        bounded_like(sizes, inputs[0])
        return np.concatenate(inputs, axis=along)
    of_one_form = tuple(assert_sizes(x, (*sizes[:along], x.shape[along], *sizes[along + 1 :])) for x in inputs)
    joined = widened(lambda arrays: _joined(arrays, along), of_one_form)
    return assert_sizes(joined, sizes, inputs[0].dtype)
