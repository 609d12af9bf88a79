"""Operators on sequences; a sequence is a Python list of arrays, or a `SplitSequence` of a symbolic number of them."""

__all__ = [
    "concat_from_sequence",
    "sequence_at",
    "sequence_construct",
    "sequence_empty",
    "sequence_erase",
    "sequence_insert",
    "sequence_length",
    "sequence_map",
    "split_to_sequence",
]

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np

from jaxops.attributes import axis as resolve_axis, element_type, flag, integer, ints
from jaxops.dtypes import as_traced, canonical, type_name
from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError, SignatureError, amount
from jaxops.lazy_sequences import GrowingSequence, SplitSequence
from jaxops.memory import bounded
from jaxops.ops.common.size_tracking import only_number
from jaxops.ops.sequence import split_sequences
from jaxops.ops.tensor.inspection import dims
from jaxops.ops.tensor.joining import concat
from jaxops.ops.tensor.reshaping import squeeze, unsqueeze
from jaxops.ops.tensor.splitting import split as split_into
from jaxops.shapes.arithmetic import agree, greater_or_equal
from jaxops.signature import ElementType, ShapeOnly, Static, Subgraph, Traits, operator
from jaxops.static import A, ArrayLike, Dim, FromSizes, Operand, Tracer, array, is_symbolic, known

TRAITS = Traits(foldable=True)


def _items(value: Any) -> list[Any]:
    if isinstance(value, SplitSequence | GrowingSequence):
        raise value.problem()
    if not isinstance(value, list | tuple):
        raise DTypeError(f"`input_sequence` must be a sequence (a list of arrays), got {type(value).__name__}")
    return [array(item) for item in value]


def _one_type(items: list[Any]) -> list[Any]:
    """The items, after a check of their element types; while x64 is off, static int64 may join traced int32."""
    traced = any(isinstance(item, jax.Array) for item in items)
    names = {canonical(name).name if traced and name != "string" else name for name in map(type_name, items)}
    if len(names) > 1:
        raise DTypeError(f"the arrays of a sequence must have one element type, got {', '.join(sorted(names))}")
    return items


def _place(position: Any, count: int, *, end: bool = False) -> int:
    index = integer("position", position)
    last = count if end else count - 1
    if not -count <= index <= last:
        allowed = f"[{-count}, {last}]" if count or end else "empty"
        raise BoundsError(
            f"`position` is {index}, but the sequence has {amount(count, 'item')}; the range is {allowed}"
        )
    return index + count if index < 0 else index


def sequence_construct(inputs: Sequence[Operand[A]]) -> list[A]:
    """A sequence of the given arrays.

    inputs: at least one array, of one dtype; their shapes may differ. Returns a list.
    Raises DTypeError when the dtypes differ, SignatureError without arrays.
    Source: ONNX SequenceConstruct, opset 11.

    >>> len(sequence_construct([np.ones(2), np.ones(3)]))
    2
    """
    if len(inputs) == 0:
        raise SignatureError("`inputs` is empty; sequence_empty makes an empty sequence")
    return _one_type([array(item) for item in inputs])


def sequence_empty(*, dtype: ElementType = np.float32) -> list[A]:
    """An empty sequence. dtype: the element type of later arrays; it is checked, but an empty list does not record it.

    Raises DTypeError for anything but an element type.
    Source: ONNX SequenceEmpty, opset 11.

    >>> sequence_empty()
    []
    """
    element_type("dtype", dtype)
    return []


def sequence_at(input_sequence: Sequence[Operand[A]], position: Static) -> A:
    """The array at a position of a sequence.

    input_sequence: n arrays. position: static, in [-n, n-1]. In a sequence of a symbolic number of arrays it may be
    traced.
    Raises BoundsError for a position out of range, SizeError if symbolic sizes decide that, StaticError when `position`
    is traced and the sequence is a list.
    Source: ONNX SequenceAt, opset 11.

    >>> sequence_at([np.ones(2), np.ones(3)], -1).shape
    (3,)
    """
    if isinstance(input_sequence, SplitSequence):
        traced = isinstance(position, Tracer) and position.size == 1
        index = position.reshape(()) if traced else integer("position", position)
        return split_sequences.taken(input_sequence, index)
    items = _items(input_sequence)
    return items[_place(position, len(items))]


def sequence_insert(input_sequence: Sequence[Operand[A]], tensor: Operand[A], position: Static = None) -> Any:
    """The sequence with `tensor` inserted before the item at `position`; None appends it.

    input_sequence: n arrays. position: static, in [-n, n]. Returns a new list.
    Raises BoundsError for a position out of range, DTypeError when the dtypes differ.
    Source: ONNX SequenceInsert, opset 11.

    >>> [item.size for item in sequence_insert([np.ones(2), np.ones(3)], np.ones(4), -1)]
    [2, 4, 3]
    """
    if isinstance(input_sequence, GrowingSequence) and position is None:
        return replace(input_sequence, added=(*input_sequence.added, array(tensor)))
    items = _items(input_sequence)
    index = len(items) if position is None else _place(position, len(items), end=True)
    return _one_type([*items[:index], array(tensor), *items[index:]])


def sequence_erase(input_sequence: Sequence[Operand[A]], position: Static = None) -> list[A]:
    """The sequence without the item at a position.

    input_sequence: n arrays. position: static, in [-n, n-1]; None removes the last one. Returns a new list.

    Raises BoundsError for a position out of range or an empty sequence.
    Source: ONNX SequenceErase, opset 11.

    >>> [item.size for item in sequence_erase([np.ones(2), np.ones(3)], 0)]
    [3]
    """
    items = _items(input_sequence)
    index = _place(-1 if position is None else position, len(items))
    return [*items[:index], *items[index + 1 :]]


def sequence_length(input_sequence: ShapeOnly) -> np.ndarray:
    """The number of items, as a static int64 scalar, or of dtype object when it is symbolic.

    Source: ONNX SequenceLength, opset 11.

    >>> sequence_length([np.ones(2), np.ones(3)])
    array(2)
    """
    if isinstance(input_sequence, SplitSequence):
        return dims(split_sequences.count(input_sequence))
    return dims(len(_items(input_sequence)))


def split_to_sequence(input: Operand[A], split: Static = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    """Splits `input` along `axis` into a sequence: a list, or a `SplitSequence` if symbolic sizes decide its length.

    input: n axes, any dtype. axis: static, in [-n, n-1].
    split: static; a 1-D array holds the lengths, which sum to the size of the axis; a scalar is the length of every
    piece, except that the last may be shorter. None splits into pieces of 1, and drops the axis unless `keepdims`.
    Raises ShapeError when the lengths do not fill the axis, ArgumentError for a scalar below 1, SizeError for a
    symbolic one that may be below 1, AxisError.
    Source: ONNX SplitToSequence, opsets 11–24.

    >>> [piece.shape for piece in split_to_sequence(np.zeros((2, 5)), 2, axis=1)]
    [(2, 2), (2, 2), (2, 1)]
    """
    data, keep = array(input), flag("keepdims", keepdims)
    along = resolve_axis(axis, data.ndim)
    if isinstance(split, FromSizes):
        split = _one_length(split, data.shape[along])
    lengths = None if split is None else known("split", split)
    if lengths is not None and lengths.ndim:
        return list(split_into(data, ints("split", lengths), axis=along))
    each = 1 if lengths is None else integer("split", lengths)
    if not greater_or_equal(each, 1):
        raise ArgumentError(f"`split` is {each}; the length of a piece must be at least 1")
    size, keep = data.shape[along], keep or split is not None
    number = size // each
    divides = number * each == size
    if not isinstance(number, int) or not (divides or (isinstance(size, int) and isinstance(each, int))):
        return SplitSequence(input if isinstance(input, FromSizes) else as_traced(data), each, along, keep)
    bounded((number,), np.dtype(object).itemsize, "the list of pieces")
    pieces = split_into(data, (each,) * number + (() if divides else (size - number * each,)), axis=along)
    return list(pieces) if keep else [squeeze(piece, (along,)) for piece in pieces]


def _one_length(split: Any, size: Dim) -> Any:
    """The length of all pieces, if `split` has this length a symbolic number of times."""
    lengths = only_number(split)
    if lengths is None or split.ndim != 1:
        return split
    problem = f"`split` holds {lengths} {split.shape[0]} times, but the axis has size {size}"
    if not agree(problem, split.shape[0] * lengths, size):
        raise ShapeError(problem)
    return np.array(lengths, object if is_symbolic(lengths) else np.int64)


def concat_from_sequence(input_sequence: Sequence[Operand[A]], *, axis: int, new_axis: int = 0) -> A:
    """Joins the arrays of a sequence along `axis`, or along a new axis with `new_axis`.

    input_sequence: at least one array of n axes, of one dtype; their sizes may differ on `axis` only.
    axis: static, in [-n, n-1], with `new_axis` in [-n-1, n].
    Raises ArgumentError for an empty sequence, ShapeError when the sizes do not fit, AxisError.
    Source: ONNX ConcatFromSequence, opset 11.

    >>> concat_from_sequence([np.zeros(3), np.zeros(3)], axis=-1, new_axis=1).shape
    (3, 2)
    """
    new = flag("new_axis", new_axis)
    if isinstance(input_sequence, SplitSequence):
        rank = input_sequence.data.ndim - (not input_sequence.keepdims)
        along = resolve_axis(axis, rank + new)
        return split_sequences.joined(input_sequence, along, bool(new))
    items = _items(input_sequence)
    if not items:
        raise ArgumentError("the sequence is empty; at least one array is needed")
    along = resolve_axis(axis, items[0].ndim + new)
    return concat([unsqueeze(item, (along,)) for item in items] if new else items, axis=along)


Body: TypeAlias = Annotated[Callable[..., Sequence[Any]], Subgraph(first=0)]


@operator(foldable=False)
def sequence_map(
    input_sequence: Sequence[ArrayLike],
    additional_inputs: Sequence[Any] = (),
    *,
    body: Body,
    n_outputs: int = 1,
    rng: Any = None,
) -> tuple[Any, ...]:
    """Applies `body` to each item; returns a sequence for each of its outputs.

    If the number of items is symbolic, body is traced once (`lax.scan`), and all items must have one length.

    additional_inputs: sequences of the same length, passed item by item, or arrays, passed to every call.
    body: (item, *additional items) → a sequence of outputs. n_outputs: their number, used for an empty sequence.
    rng: a random key; each call of body gets a key of its own, as `rng`.
    Raises ShapeError for an additional sequence of another length.
    Source: ONNX SequenceMap, opset 17.

    >>> sequence_map([np.ones(2), np.ones(3)], body=lambda item: [item.sum()])
    ([array(2.), array(3.)],)
    """
    if isinstance(input_sequence, SplitSequence):
        return split_sequences.mapped(input_sequence, additional_inputs, body, rng)
    items = _items(input_sequence)
    for position, value in enumerate(additional_inputs, 1):
        if isinstance(value, SplitSequence | GrowingSequence):
            raise value.problem()
        if isinstance(value, list) and len(value) != len(items):
            has = amount(len(value), "item")
            raise ShapeError(f"input {position} has {has}, but `input_sequence` has {len(items)}")
    rows = []
    for k, item in enumerate(items):
        extra_items = [value[k] if isinstance(value, list) else value for value in additional_inputs]
        # A key per item, so that each draws other random numbers.
        key = {} if rng is None else {"rng": jax.random.fold_in(rng, k)}
        rows.append([array(value) for value in body(item, *extra_items, **key)])
    return tuple(list(column) for column in zip(*rows, strict=True)) if rows else ([],) * n_outputs
