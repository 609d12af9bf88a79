"""A program that runs for one block of an axis at a time, as one operation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax

from jaxops.compiler.axis_rules import with_size
from jaxops.compiler.ir import Emit, Operand, Program, run
from jaxops.compiler.passes import lazy_moves
from jaxops.dtypes import wide


@dataclass(frozen=True, eq=False)
class Loop:
    """A program that runs for `step` entries of an axis at a time: for one block.

    program: computes one block. operands: the values that it reads from outside. cuts: for each operand, the axis along
    which it is cut; None if each block reads the complete operand. results: the values that are read outside. types:
    their types. axes: for each result, the axis along which its blocks are put together. size: that of the axis.
    transformable: whether JAX may differentiate the loop, which then computes a block's scores anew in the gradient.
    """

    program: Program
    operands: tuple[Operand, ...]
    cuts: tuple[int | None, ...]
    results: tuple[int, ...]
    types: tuple[Any, ...]
    axes: tuple[int, ...]
    size: int
    step: int
    scope: str
    transformable: bool
    name = "loop"
    effects = frozenset[Any]()

    @property
    def params(self) -> Mapping[str, Any]:
        """The size of the axis, and that of a block."""
        return {"size": self.size, "step": self.step}

    def lower(self, operands: Sequence[Any], emit: Emit) -> Sequence[Any]:
        """Computes the results for these operands, some of which may be lazy."""
        if self.transformable:
            return self._scanned(list(map(lazy_moves.materialize, operands)))

        def block(k: Any, arrays: Sequence[Any]) -> list[Any]:
            # JAX moves a block back that would extend beyond the end: the last two blocks may have entries in common.
            start = k * self.step
            inputs = [_cut(x, axis, start, self.step) for x, axis in zip(operands, self.cuts, strict=True)]
            results = map(lazy_moves.materialize, run(self.program, inputs, emit))
            parts = zip(arrays, results, self.axes, strict=True)
            return [lax.dynamic_update_slice_in_dim(array, y, start, axis) for array, y, axis in parts]

        arrays = [lax.full(type.shape, 0, type.dtype) for type in self.types]
        return lax.fori_loop(0, math.ceil(self.size / self.step), block, arrays)

    def _scanned(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Computes the results with a gradient that keeps operands alone."""
        # What every block reads gets a sum of gradients, which stays exact for 16-bit types.
        whole = [wide(x) if axis is None else None for x, axis in zip(operands, self.cuts, strict=True)]
        cut = [
            None if axis is None else _stacked(x, axis, self.step) for x, axis in zip(operands, self.cuts, strict=True)
        ]

        def block(whole: Sequence[Any], cut: Sequence[Any]) -> list[Any]:
            inputs = [
                part if axis is not None else x.astype(kept.dtype)
                for x, part, axis, kept in zip(whole, cut, self.cuts, operands, strict=True)
            ]
            return run(self.program, inputs)

        has_inner = any(isinstance(operation, Loop) for operation in self.program.operations)
        compute = block if has_inner else jax.checkpoint(block)
        _, results = lax.scan(lambda carry, parts: (carry, compute(whole, parts)), None, cut)
        return [_joined(y, axis, self.size) for y, axis in zip(results, self.axes, strict=True)]


def _stacked(x: Any, axis: int, step: int) -> Any:
    """Returns blocks of an array, one after the other. The last two have entries in common if `step` does not divide
    the size."""
    size = x.shape[axis]
    even = size // step * step
    blocks = lax.slice_in_dim(x, 0, even, axis=axis)
    blocks = blocks.reshape(*x.shape[:axis], size // step, step, *x.shape[axis + 1 :])
    blocks = jax.numpy.moveaxis(blocks, axis, 0)
    if even == size:
        return blocks
    return lax.concatenate([blocks, lax.slice_in_dim(x, size - step, size, axis=axis)[None]], 0)


def _joined(blocks: Any, axis: int, size: int) -> Any:
    """Returns the array of which `_stacked` makes these blocks."""
    count, step = blocks.shape[0], blocks.shape[axis + 1]
    even = size // step
    x = jax.numpy.moveaxis(blocks[:even], 0, axis)
    x = x.reshape(*x.shape[:axis], even * step, *x.shape[axis + 2 :])
    if even == count:
        return x
    rest = lax.slice_in_dim(blocks[-1], step - (size - even * step), step, axis=axis)
    return lax.concatenate([x, rest], axis)


def _cut(x: Any, axis: int | None, start: Any, step: int) -> Any:
    if axis is None:
        return x
    if not isinstance(x, lazy_moves.LazyBroadcast):
        return lax.dynamic_slice_in_dim(lazy_moves.materialize(x), start, step, axis)
    array = x.array
    if axis in x.axes and array.shape[x.axes.index(axis)] > 1:
        array = lax.dynamic_slice_in_dim(array, start, step, x.axes.index(axis))
    return lazy_moves.LazyBroadcast(array, with_size(x.shape, axis, step), x.axes)
