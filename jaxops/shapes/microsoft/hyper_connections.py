"""Sizes of hyper-connections: C streams of H elements, grouped (…, C, H) or flattened (…, C · H)."""

from typing import NamedTuple

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import all_agree, divided, must_fit
from jaxops.static import Dim, Sizes


class Streams(NamedTuple):
    """The sizes of grouped streams, (*lead, count, width)."""

    lead: Sizes
    count: Dim
    width: Dim

    @property
    def grouped(self) -> Sizes:
        return (*self.lead, self.count, self.width)


def streams(op: str, sizes: Sizes, branches: int) -> Streams:
    """Returns the streams that these sizes hold. branches: the attribute `num_branches`, 0 for grouped ones."""
    if branches < 0:
        raise ArgumentError(f"{op}: `num_branches` is {branches}; it must be positive, or 0 for grouped streams")
    if branches:
        if not sizes:
            raise ShapeError(f"{op}: `streams` of () must be (…, C · H)")
        problem = f"{op}: the last axis of `streams` {shape_text(sizes)} does not divide into {branches} branches"
        return Streams(sizes[:-1], branches, divided(problem, sizes[-1], branches))
    if len(sizes) < 2:
        raise ShapeError(f"{op}: `streams` of {shape_text(sizes)} must be (…, C, H), or flat with `num_branches`")
    return Streams(sizes[:-2], sizes[-2], sizes[-1])


def gates(op: str, operand: str, sizes: Sizes, of: Streams, *, flat: bool) -> Sizes:
    """The sizes that gates are reshaped to, (*lead, C, 1) or (*lead, C, H). flat: they may be (*lead, C · H)."""
    single, full = (*of.lead, of.count, 1), of.grouped
    allowed = [(*of.lead, of.count), single, full]
    results = [single, single, full]
    if flat:
        allowed.append((*of.lead, of.count * of.width))
        results.append(full)
    for option, result in zip(allowed, results, strict=True):
        if sizes == option:
            return result
    must_fit(op, operand, sizes, *allowed)
    return next(r for a, r in zip(allowed, results, strict=True) if len(a) == len(sizes) and all_agree("", sizes, a))


def features(op: str, block_output: Sizes, stream_mix: Sizes | None, of: Streams) -> None:
    """Checks the result of a branch, (*lead, H), and the matrix that mixes streams, (*lead, C, C)."""
    must_fit(op, "block_output", block_output, (*of.lead, of.width))
    must_fit(op, "stream_mix", stream_mix, (*of.lead, of.count, of.count))
