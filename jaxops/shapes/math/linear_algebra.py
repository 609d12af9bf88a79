"""Sizes of matrix products and Einstein sums."""

from jaxops.errors import ArgumentError, ShapeError, amount, shape_text
from jaxops.shapes.arithmetic import agree, must_agree
from jaxops.shapes.math.broadcasting import broadcast, must_broadcast
from jaxops.static import Dim, Sizes


def matmul(a: Sizes, b: Sizes) -> Sizes:
    """NumPy's rule: a 1-D operand is a row (a) or a column (b), and the axes before the last two broadcast."""
    if min(len(a), len(b)) == 0:
        raise ShapeError(f"`{'b' if a else 'a'}` is a scalar; both need at least one axis")
    inner = b[-2:][0]
    problem = f"a of {shape_text(a)} and b of {shape_text(b)} do not fit: {a[-1]} columns against {inner} rows"
    must_agree(problem, (a[-1],), (inner,))
    batch = broadcast(a[:-2], b[:-2])
    return (*batch, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ()))


def gemm(a: Sizes, b: Sizes, c: Sizes | None, trans_a: bool, trans_b: bool) -> Sizes:
    """(M, N) of (M, K) and (K, N), one or both transposed; c must broadcast to it."""
    for name, sizes in (("a", a), ("b", b)):
        if len(sizes) != 2:
            raise ShapeError(f"`{name}` must be a matrix, got {shape_text(sizes)}")
    rows, left = reversed(a) if trans_a else a
    right, columns = reversed(b) if trans_b else b
    problem = (
        f"a of {shape_text(a)} (transA={int(trans_a)}) and b of {shape_text(b)} (transB={int(trans_b)}) "
        f"do not fit: {left} columns against {right} rows"
    )
    must_agree(problem, (left,), (right,))
    sizes = rows, columns
    if c is not None:
        must_broadcast("c", c, sizes)
    return sizes


def einsum(equation: str, shapes: list[Sizes]) -> tuple[str, Sizes]:
    """The equation without blanks and with an output term, and the sizes of the result."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ArgumentError(f"{equation!r} has {amount(len(terms), 'term')} for {amount(len(shapes), 'operand')}")
    named: dict[str, Dim] = {}
    dots: Sizes = ()
    for i, (term, sizes) in enumerate(zip(terms, shapes, strict=True)):
        before, ellipsis, after = term.partition("...")
        letters = before + after
        if any(not (c.isascii() and c.isalpha()) for c in letters):
            raise ArgumentError(f"term {term!r} of {equation!r} may only have letters and one '...'")
        if len(sizes) < len(letters) or (not ellipsis and len(sizes) > len(letters)):
            raise ShapeError(f"term {term!r} of {equation!r} does not fit operand {i} of {shape_text(sizes)}")
        behind = len(sizes) - len(after)
        dots = broadcast(dots, sizes[len(before) : behind])
        for letter, d in zip(letters, sizes[: len(before)] + sizes[behind:], strict=True):
            named[letter] = _same(equation, letter, named.get(letter, 1), d)
    if not arrow:
        once = sorted(c for c in named if sum(term.count(c) for term in terms) == 1)
        output = ("..." if "..." in left else "") + "".join(once)
    before, _, after = output.partition("...")
    unknown = [c for c in before + after if c not in named]
    if unknown or len(set(before + after)) < len(before + after):
        raise ArgumentError(f"the output {output!r} of {equation!r} may hold letters of the terms only, each once")
    result = (*(named[c] for c in before), *(dots if "..." in output else ()), *(named[c] for c in after))
    return f"{left}->{output}", result


def _same(equation: str, letter: str, a: Dim, b: Dim) -> Dim:
    for size, other in ((a, b), (b, a)):
        if isinstance(size, int) and size == 1:
            return other
    problem = f"{letter!r} of {equation!r} has the sizes {a} and {b}"
    if not agree(problem, a, b, broadcasts=True):
        raise ShapeError(problem)
    return a


def square(sizes: Sizes) -> Sizes:
    """The batch sizes of square matrices, after a check."""
    problem = f"the last two sizes of `x` must be equal, got {shape_text(sizes)}"
    if len(sizes) < 2 or not agree(problem, sizes[-1], sizes[-2]):
        raise ShapeError(problem)
    return sizes[:-2]
