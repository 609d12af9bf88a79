"""Sizes of the operators that move data without computing on it.

A size is a Python int or a symbolic dimension. Symbolic equality answers False when it cannot tell, so a check
here passes only when it holds for every size.
"""

import math
from collections.abc import Sequence

from jaxops.errors import ArgumentError, AxisError, ShapeError
from jaxops.static import Dim, Sizes, Undecided

_INT64_MAX = 2**63 - 1
_CONSTRAIN = "constraints of `jax.export.symbolic_shape` can settle it"


def text(sizes: Sequence[Dim]) -> str:
    """Sizes the way messages show them."""
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def countable(op: str, sizes: Sizes) -> Sizes:
    """The sizes themselves; more elements than an int64 can count, zero sizes aside, are an error.

    NumPy refuses such sizes in words of its own, XLA of jaxlib 0.10.2 ends the process.
    """
    count = math.prod(d for d in sizes if isinstance(d, int) and d > 0)
    if count > _INT64_MAX:
        raise ShapeError(f"{op}: {text(sizes)} has more elements than an int64 can count")
    return sizes


def reshape(sizes: Sizes, shape: Sizes, allowzero: bool) -> Sizes:
    """Resolves 0 (copy; with `allowzero` a size of zero) and -1 (what is left) in the target of a Reshape."""
    problem = f"reshape: `shape` {text(shape)} does not fit data of {text(sizes)}"
    given, free = [], None
    for i, size in enumerate(shape):
        if isinstance(size, int) and size < 0:
            if size < -1:
                raise ShapeError(f"{problem}: {size} at position {i} is negative; only -1 (inferred) may be")
            if free is not None:
                raise ShapeError(f"{problem}: -1 stands at positions {free} and {i}; only one can be inferred")
            free = i
        elif isinstance(size, int) and size == 0 and not allowzero:
            if i >= len(sizes):
                raise ShapeError(
                    f"{problem}: 0 at position {i} copies a size, but data has {len(sizes)} axes; "
                    f"for a size of zero pass allowzero=1"
                )
            given.append(sizes[i])
            continue
        given.append(size)
    if free is None:
        if math.prod(given) != math.prod(sizes):
            raise ShapeError(f"{problem}: data has {math.prod(sizes)} elements, {text(given)} has {math.prod(given)}")
        return countable("reshape", tuple(given))
    if allowzero and any(isinstance(size, int) and size == 0 for size in shape):
        raise ShapeError(f"{problem}: with allowzero=1 it cannot hold both 0 and -1")
    rest = math.prod(size for i, size in enumerate(given) if i != free)
    if isinstance(rest, int) and rest == 0:
        raise ShapeError(f"{problem}: the sizes beside -1 have the product 0, so it cannot be inferred")
    given[free] = _quotient(problem, math.prod(sizes), rest)
    return tuple(given)


def _quotient(problem: str, total: Dim, part: Dim) -> Dim:
    whole = total // part
    if whole * part != total:
        raise ShapeError(f"{problem}: {total} elements are not a multiple of {part}, so -1 cannot be inferred")
    return whole


def flatten(sizes: Sizes, axis: int) -> Sizes:
    """Two sizes: the product before `axis` and the product from `axis` on; `axis` is in [0, rank]."""
    return math.prod(sizes[:axis]), math.prod(sizes[axis:])


def squeeze(sizes: Sizes, axes: tuple[int, ...] | None) -> Sizes:
    """Drops the `axes`, which must have size 1; None drops all that have."""
    if axes is None:
        # Without axes the rank of the result depends on every size, so each must be a number.
        symbolic = [d for d in sizes if not isinstance(d, int)]
        if symbolic:
            raise ShapeError(f"squeeze: name the `axes`; whether {symbolic[0]} of {text(sizes)} is 1 is not known")
        return tuple(d for d in sizes if d != 1)
    for i in axes:
        if sizes[i] != 1:
            raise ShapeError(f"squeeze: axis {i} of {text(sizes)} has size {sizes[i]}, only size 1 can be dropped")
    return tuple(d for i, d in enumerate(sizes) if i not in axes)


def unsqueeze(sizes: Sizes, axes: tuple[int, ...]) -> Sizes:
    """Sizes with a 1 at each of the `axes`, which are positions in the result."""
    rest = iter(sizes)
    return tuple(1 if i in axes else next(rest) for i in range(len(sizes) + len(axes)))


def permutation(perm: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """The axes of a transpose; None reverses them."""
    if perm is None:
        return tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        raise AxisError(f"transpose: `perm` {perm} is not a permutation of the {rank} axes {tuple(range(rank))}")
    return perm


def broadcast(op: str, *shapes: Sizes) -> Sizes:
    """The common shape of operands under the broadcasting of NumPy and ONNX."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result = []
    for column in zip(*padded, strict=True):
        wide = [d for d in column if not (isinstance(d, int) and d == 1)]
        if any(d != wide[0] for d in wide[1:]):
            raise ShapeError(f"{op}: shapes {' and '.join(map(text, shapes))} do not broadcast to each other")
        result.append(wide[0] if wide else 1)
    return tuple(result)


def pieces(op: str, size: Dim, lengths: Sizes) -> Sizes:
    """Lengths that fill an axis of `size` exactly; one of them may be -1, which takes what the others leave."""
    free = None
    for i, length in enumerate(lengths):
        if isinstance(length, int) and length < 0:
            if length < -1:
                raise ShapeError(f"{op}: length {length} at position {i} of {text(lengths)} is negative")
            if free is not None:
                raise ShapeError(f"{op}: {text(lengths)} holds -1 at positions {free} and {i}; only one may be")
            free = i
    taken = sum(length for i, length in enumerate(lengths) if i != free)
    if free is None:
        if taken != size:
            raise ShapeError(f"{op}: lengths {text(lengths)} sum to {taken}, but the axis has size {size}")
        return lengths
    rest = size - taken
    try:
        fits = rest >= 0
    except Undecided as error:
        raise ShapeError(f"{op}: {taken} of {text(lengths)} may exceed the size {size}; {_CONSTRAIN}") from error
    if not fits:
        raise ShapeError(f"{op}: lengths {text(lengths)} take {taken}, more than the axis of size {size} has")
    return (*lengths[:free], rest, *lengths[free + 1 :])


def ceil_chunks(size: Dim, parts: int) -> Sizes:
    """`parts` chunks of ceil(size / parts); the last takes what is left (ONNX Split-18)."""
    if parts < 1:
        raise ArgumentError(f"split: `num_outputs` is {parts}; it must be at least 1")
    chunk = -(-size // parts)
    last = size - chunk * (parts - 1)
    try:
        fits = last >= 0
    except Undecided as error:
        raise ShapeError(f"split: {parts} chunks of {chunk} may not fit into {size} elements; {_CONSTRAIN}") from error
    if not fits:
        raise ShapeError(f"split: {parts} chunks of {chunk} do not fit into {size} elements")
    return (chunk,) * (parts - 1) + (last,)


def equal_chunks(size: Dim, parts: int) -> Sizes:
    """`parts` chunks of one size, as Split before opset 18 demands."""
    if size % parts != 0:
        raise ShapeError(
            f"split: an axis of size {size} does not divide into {parts} equal outputs; "
            f"give `split`, or use opset 18, where the last output may be smaller"
        )
    return (size // parts,) * parts


def concat(shapes: Sequence[Sizes], axis: int) -> Sizes:
    """Sizes of a concatenation: equal but for `axis`, where they add up."""
    first = shapes[0]
    for i, sizes in enumerate(shapes[1:], 1):
        if len(sizes) != len(first) or any(
            a != b for j, (a, b) in enumerate(zip(first, sizes, strict=True)) if j != axis
        ):
            raise ShapeError(
                f"concat: operand {i} of {text(sizes)} does not fit operand 0 of {text(first)}; "
                f"they may differ on axis {axis} only"
            )
    return (*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :])


def slice_range(size: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """(first index, number of elements) of a slice of an axis, clamped as the standard says.

    Beside a symbolic size, a bound beyond any 32-bit size, as INT64_MAX, means the end of the axis. With a
    negative step the start is clamped to an element of the axis (ONNX Slice-13), where Python would pick none.
    """
    if step == 0:
        raise ArgumentError("slice: `steps` holds 0; a step must not be zero")
    if isinstance(size, int) and size == 0:
        return 0, 0
    low, high = (0, size) if step > 0 else (-1, size - 1)
    try:
        first = _clamp(size, start, max(low, 0), high)
        stop = _clamp(size, end, low, high)
        span = stop - first if step > 0 else first - stop
        return first, 0 if span < 0 else -(-span // abs(step))
    except Undecided as error:
        problem = f"slice: {start}:{end}:{step} of a size {size} depends on the value of {size}"
        raise ShapeError(f"{problem}; {_CONSTRAIN}") from error


def _clamp(size: Dim, bound: Dim, low: Dim, high: Dim) -> Dim:
    if isinstance(bound, int) and not isinstance(size, int) and abs(bound) >= 2**31 - 1:
        return high if bound > 0 else low
    bound = bound + size if bound < 0 else bound
    return low if bound < low else high if bound > high else bound
