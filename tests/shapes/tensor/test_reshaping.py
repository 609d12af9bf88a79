"""Sizes in, sizes out: hundreds of rows, with numbers and with symbolic dimensions. No array in this file."""

import itertools
import math
import re

import pytest
from jax.export import symbolic_shape

from jaxops.errors import ArgumentError, JaxopsError, ShapeError, shape_text
from jaxops.shapes import arithmetic
from jaxops.shapes.math import broadcasting
from jaxops.shapes.tensor import reshaping, slicing, splitting

b, c, h, w = symbolic_shape("b, c, h, w")
(large,) = symbolic_shape("n", constraints=("n >= 5",))
END, START = 2**63 - 1, -(2**63)

RESHAPE = [
    # sizes, shape, allowzero, result
    ((2, 3, 4), (24,), 0, (24,)),
    ((2, 3, 4), (0, -1), 0, (2, 12)),
    ((2, 3, 4), (0, 0, 0), 0, (2, 3, 4)),
    ((2, 3, 4), (-1, 0, 2), 0, (4, 3, 2)),
    ((2, 3, 4), (4, 0, 2), 0, (4, 3, 2)),
    ((2, 3, 4), (1, -1, 1, 1, 1), 0, (1, 24, 1, 1, 1)),
    ((), (), 0, ()),
    ((), (1, 1), 0, (1, 1)),
    ((), (-1,), 0, (1,)),
    ((1,), (), 0, ()),
    ((1, 1, 1), (), 1, ()),
    ((0,), (0,), 0, (0,)),
    ((0,), (0,), 1, (0,)),
    ((0, 3), (3, 0), 1, (3, 0)),
    ((3, 0), (0, 7), 1, (0, 7)),
    ((0, 3), (0, 3), 0, (0, 3)),
    ((3, 0), (5, 0), 0, (5, 0)),
    ((0, 3), (-1, 3), 0, (0, 3)),
    ((0, 3), (3, -1), 1, (3, 0)),
    ((b, 3), (0, -1), 0, (b, 3)),
    ((b, c, h, w), (0, -1), 0, (b, c * h * w)),
    ((b, c, h, w), (0, 0, -1), 0, (b, c, h * w)),
    ((b, c), (-1,), 0, (b * c,)),
    ((b, 6), (-1, 2, 3), 0, (b, 2, 3)),
    ((b, 6), (-1, 2), 0, (3 * b, 2)),
    ((2 * b, 3), (b, -1), 0, (b, 6)),
    ((b, c), (c, b), 0, (c, b)),
    ((b, 4), (b, 2, 2), 1, (b, 2, 2)),
    ((b, 0), (0, 5), 1, (0, 5)),
    ((0, b), (0, b), 1, (0, b)),
    ((b + 1, 2), (-1,), 0, (2 * b + 2,)),
    ((b * b, 3), (b, -1), 0, (b, 3 * b)),
]
RESHAPE_ERRORS = [
    ((2, 3), (5,), 0, "data has 6 elements, (5,) has 5"),
    ((2, 3), (), 0, "data has 6 elements, () has 1"),
    ((2, 3), (-1, -1), 0, "-1 is at positions 0 and 1; only one can be inferred"),
    ((2, 3), (-2, 3), 0, "-2 at position 0 is negative; only -1 (inferred) may be"),
    ((2, 3), (-(2**63), 3), 1, "-9223372036854775808 at position 0 is negative"),
    ((2, 3), (2, 3, 0), 0, "0 at position 2 copies a size, but data has 2 axes; for a size of zero pass allowzero=1"),
    ((), (0,), 0, "0 at position 0 copies a size, but data has 0 axes"),
    ((2, 3), (0, -1), 1, "with allowzero=1 it cannot have both 0 and -1"),
    ((0, 3), (0, -1), 1, "with allowzero=1 it cannot have both 0 and -1"),
    ((0, 3), (0, -1), 0, "the other sizes have the product 0, so -1 cannot be inferred"),
    ((2, 3), (4, -1), 0, "6 elements are not a multiple of 4, so -1 cannot be inferred"),
    ((2, 3), (0, 3), 1, "data has 6 elements, (0, 3) has 0"),
    ((0,), (2**40, 0, 2**40), 1, "has more elements than an int64 can count"),
    ((2,), (2**64 + 2,), 0, "has 18446744073709551618"),
    ((b, 3), (2, 3), 0, "data has 3*b elements, (2, 3) has 6"),
    ((b, 3), (-1, 2), 0, "3*b elements are not a multiple of 2"),
    ((b, 3), (c, 3), 0, "data has 3*b elements, (c, 3) has 3*c"),
    ((b, 3), (-1, c), 0, "are not a multiple of c"),
    ((b, 0), (0, 0, -1), 0, "the other sizes have the product 0"),
]


@pytest.mark.parametrize(("sizes", "shape", "allowzero", "result"), RESHAPE)
def test_reshape(sizes, shape, allowzero, result):
    assert reshaping.reshape(sizes, shape, bool(allowzero)) == result


@pytest.mark.parametrize(("sizes", "shape", "allowzero", "problem"), RESHAPE_ERRORS)
def test_reshape_errors(sizes, shape, allowzero, problem):
    with pytest.raises(ShapeError, match=re.escape(problem)) as caught:
        reshaping.reshape(sizes, shape, bool(allowzero))
    assert str(caught.value).startswith("")


SMALL = [s for rank in range(4) for s in itertools.product((0, 1, 2, 3), repeat=rank)]


@pytest.mark.parametrize("sizes", SMALL, ids=shape_text)
def test_reshape_against_every_target(sizes):
    """All targets of up to three axes from -1, 0, 1, 2, 3, 6: what the standard's text says, said another way."""
    for shape in itertools.chain.from_iterable(itertools.product((-1, 0, 1, 2, 3, 6), repeat=r) for r in range(4)):
        for allowzero in (False, True):
            count = math.prod(sizes)
            allowed = shape.count(-1) <= 1 and not (allowzero and 0 in shape and -1 in shape)
            copied = []
            for i, s in enumerate(shape):
                allowed = allowed and not (s == 0 and not allowzero and i >= len(sizes))
                copied.append(sizes[i] if s == 0 and not allowzero and i < len(sizes) else s)
            rest = math.prod(s for s in copied if s != -1)
            if -1 in copied:
                allowed = allowed and rest != 0 and count % rest == 0
                copied = [count // rest if s == -1 and rest else s for s in copied]
            else:
                allowed = allowed and rest == count
            if allowed:
                assert reshaping.reshape(sizes, shape, allowzero) == tuple(copied)
            else:
                with pytest.raises(ShapeError):
                    reshaping.reshape(sizes, shape, allowzero)


@pytest.mark.parametrize("sizes", [s for s in SMALL if len(s) == 3] + [(1, b, 1)], ids=shape_text)
def test_squeeze_undoes_unsqueeze(sizes):
    for count in range(4):
        for axes in itertools.combinations(range(len(sizes) + count), count):
            wide = reshaping.unsqueeze(sizes, axes)
            assert len(wide) == len(sizes) + count
            assert all(wide[i] == 1 for i in axes)
            assert reshaping.squeeze(wide, axes) == sizes


def test_squeeze():
    assert reshaping.squeeze((1, 2, 1, 0), None) == (2, 0)
    assert reshaping.squeeze((1, 2, 1), ()) == (1, 2, 1)
    assert reshaping.squeeze((1, b), (0,)) == (b,)
    with pytest.raises(ShapeError, match=r"axis 1 of \(1, 2\) has size 2, only size 1 can be dropped"):
        reshaping.squeeze((1, 2), (1,))
    with pytest.raises(ShapeError, match=r"axis 0 of .* has size b"):
        reshaping.squeeze((b, 2), (0,))
    with pytest.raises(ShapeError, match=r"b of \(b, 1\) may be 1 or larger; name the `axes`"):
        reshaping.squeeze((b, 1), None)


BROADCAST = [
    (((),), ()),
    (((), (2,)), (2,)),
    (((3, 1), (2, 1, 6)), (2, 3, 6)),
    (((1,), (0,)), (0,)),
    (((0, 1), (1, 0)), (0, 0)),
    (((b, 1), (3,)), (b, 3)),
    (((b, 1), (1, c)), (b, c)),
    (((b, 3), (b, 1), (1, 1)), (b, 3)),
    (((2 * b,), (b + b,)), (2 * b,)),
    (((), (), ()), ()),
]


@pytest.mark.parametrize(("shapes", "result"), BROADCAST)
def test_broadcast(shapes, result):
    assert broadcasting.broadcast(*shapes) == result
    assert broadcasting.broadcast(*reversed(shapes)) == result


@pytest.mark.parametrize(
    "shapes", [((2,), (3,)), ((0,), (2,)), ((2, 1), (3, 1)), ((b,), (2,)), ((b,), (c,)), ((b,), (b + 1,))]
)
def test_broadcast_errors(shapes):
    with pytest.raises(ShapeError, match=r"shapes .* and .* do not broadcast to each other"):
        broadcasting.broadcast(*shapes)


PIECES = [
    (7, (3, 4), (3, 4)),
    (7, (0, 7, 0), (0, 7, 0)),
    (7, (-1,), (7,)),
    (7, (3, -1), (3, 4)),
    (7, (-1, 7), (0, 7)),
    (0, (), ()),
    (0, (0, -1, 0), (0, 0, 0)),
    (b, (b,), (b,)),
    (b, (0, b), (0, b)),
    (b, (-1,), (b,)),
    (b, (1, -1), (1, b - 1)),
    (2 * b, (b, -1), (b, b)),
    (2 * b, (b, b), (b, b)),
    (b + c, (-1, c), (b, c)),
    (b + 4, (-1, 4), (b, 4)),
    (large, (5, -1), (5, large - 5)),
]
PIECES_ERRORS = [
    (7, (3, 3), "lengths (3, 3) sum to 6, but the axis has size 7"),
    (7, (), "lengths () sum to 0, but the axis has size 7"),
    (7, (8, -1), "lengths (8, -1) take 8, more than the axis of size 7 has"),
    (7, (END, END, -1), "take 18446744073709551614, more than"),
    (7, (-1, -1), "(-1, -1) has -1 at positions 0 and 1; only one is allowed"),
    (7, (-2, 9), "length -2 at position 0 of (-2, 9) is negative"),
    (7, (START, -1), "length -9223372036854775808 at position 0"),
    (b, (3,), "lengths (3,) sum to 3, but the axis has size b"),
    (b, (2, -1), "lengths (2, -1) take 2, more than the axis of size b has for some sizes"),
    (b, (c, -1), "lengths (c, -1) take c, more than the axis of size b has for some sizes"),
    (b, (2 * b, -1), "take 2*b, more than the axis of size b has"),
    (3, (b, -1), "lengths (b, -1) take b, more than the axis of size 3 has for some sizes"),
]


@pytest.mark.parametrize(("size", "lengths", "result"), PIECES)
def test_pieces(size, lengths, result):
    assert splitting.pieces(size, lengths) == result
    assert sum(result) == size


@pytest.mark.parametrize(("size", "lengths", "problem"), PIECES_ERRORS)
def test_pieces_errors(size, lengths, problem):
    with pytest.raises(ShapeError, match=re.escape(problem)):
        splitting.pieces(size, lengths)


def test_ceil_chunks():
    for size, parts in itertools.product(range(25), range(1, 9)):
        chunk = math.ceil(size / parts)
        if chunk * (parts - 1) > size:
            with pytest.raises(ShapeError, match=rf"{parts} chunks of {chunk} do not fit into {size} elements"):
                splitting.ceil_chunks(size, parts)
        else:
            found = splitting.ceil_chunks(size, parts)
            assert found == (chunk,) * (parts - 1) + (size - chunk * (parts - 1),)
    assert splitting.ceil_chunks(3 * b, 3) == (b, b, b)
    assert splitting.ceil_chunks(b, 1) == (b,)
    assert sum(splitting.ceil_chunks(b, 2)) == b
    with pytest.raises(ShapeError, match=r"b elements may be too few for 4 chunks of"):
        splitting.ceil_chunks(b, 4)  # 5 elements in 4 chunks of 2
    for parts in (0, -1):
        with pytest.raises(ArgumentError, match=f"`num_outputs` is {parts}; it must be at least 1"):
            splitting.ceil_chunks(7, parts)


def test_equal_chunks():
    assert splitting.equal_chunks(6, 3) == (2, 2, 2)
    assert splitting.equal_chunks(0, 3) == (0, 0, 0)
    assert splitting.equal_chunks(4 * b, 2) == (2 * b, 2 * b)
    for size in (7, b):
        with pytest.raises(
            ShapeError, match=f"an axis of size {size} does not divide into 2 equal outputs; give `split`"
        ):
            splitting.equal_chunks(size, 2)


def by_hand(size, start, end, step):
    """Which elements the text of Slice-13 picks."""
    start, end = (v + size if v < 0 else v for v in (start, end))
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return list(range(start, end, step)) if size else []


BOUNDS = [*range(-8, 9), 2**31 - 1, 2**31, -(2**31), END, START]


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, -3, END, START])
@pytest.mark.parametrize("size", range(6))
def test_slice_range(size, step):
    for start, end in itertools.product(BOUNDS, BOUNDS):
        first, count = slicing.slice_range(size, start, end, step)
        picked = by_hand(size, start, end, step)
        assert count == len(picked)
        if picked:
            assert [first + i * step for i in range(count)] == picked


def test_slice_range_of_axes_beyond_32_bits():
    size = 2**40
    assert slicing.slice_range(size, 2**32, 2**33, 1) == (2**32, 2**32)
    assert slicing.slice_range(size, -(2**35), END, 1) == (size - 2**35, 2**35)
    assert slicing.slice_range(size, END, START, -1) == (size - 1, size)


SLICE_SYMBOLIC = [
    (b, 0, END, 1, (0, b)),
    (b, 0, 2**31 - 1, 1, (0, b)),
    (b, 1, END, 1, (1, b - 1)),
    (b, 0, 1, 1, (0, 1)),
    (b, 0, -1, 1, (0, b - 1)),
    (b, -1, END, 1, (b - 1, 1)),
    (b, 0, b, 1, (0, b)),
    (2 * b, 0, b, 1, (0, b)),
    (2 * b, b, END, 1, (b, b)),
    (b, -1, START, -1, (b - 1, b)),
    (b, END, START, -1, (b - 1, b)),
    (2 * b, 0, END, 2, (0, b)),
    (b, 0, 5, 1, (0, arithmetic.smaller(5, b))),
    (5, 0, b, 1, (0, arithmetic.smaller(b, 5))),
    (b, -3, END, 1, (arithmetic.larger(b - 3, 0), b - arithmetic.larger(b - 3, 0))),
    (b, 0, -2, 1, (0, arithmetic.larger(b - 2, 0))),
    (b, 0, c, 1, (0, arithmetic.smaller(c, b))),
    (large, 0, 5, 1, (0, 5)),
    (large, -5, END, 1, (large - 5, 5)),
    (4, 1, END, 1, (1, 3)),
]


@pytest.mark.parametrize(("size", "start", "end", "step", "result"), SLICE_SYMBOLIC)
def test_slice_range_symbolic(size, start, end, step, result):
    assert slicing.slice_range(size, start, end, step) == result


@pytest.mark.parametrize(("start", "end"), [(0, b - 3), (b - 3, END)])
def test_slice_range_undecided(start, end):
    # Of b = 2 the bound -1 would count from the end.
    with pytest.raises(ShapeError, match=r".* from the start of an axis of size b for some sizes, and from its end"):
        slicing.slice_range(b, start, end, 1)
    with pytest.raises(ShapeError, match=r"fix 'b' when exporting or loading|export with sizes=\{'b': "):
        slicing.slice_range(b, start, end, 1)


def test_slice_range_errors():
    with pytest.raises(ArgumentError, match="`steps` holds 0; a step must not be zero"):
        slicing.slice_range(4, 0, 1, 0)


def test_countable():
    assert reshaping.countable((2**31, 2**31)) == (2**31, 2**31)
    assert reshaping.countable((b, 0, 3)) == (b, 0, 3)
    for sizes in ((2**32, 2**31), (0, 2**63), (b, 2**63)):
        with pytest.raises(ShapeError, match=r"\(.*\) has more elements than an int64 can count"):
            reshaping.countable(sizes)


def test_text():
    assert [shape_text(s) for s in [(), (2,), (b, 3)]] == ["()", "(2,)", "(b, 3)"]
    assert issubclass(ShapeError, JaxopsError)
    assert issubclass(ShapeError, ValueError)
