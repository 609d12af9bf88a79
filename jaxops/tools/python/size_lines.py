"""Writes the lines that read the sizes of a function's arguments, and that refuse sizes beyond its limits."""

from collections.abc import Callable, Sequence

from jaxops.errors import symbols_in
from jaxops.static import symbolic_shape
from jaxops.symbolic import sides
from jaxops.tools.python.expressions import INDENT, Size, call, laid_out, leaves
from jaxops.tools.python.literals import written_sizes
from jaxops.tools.python.steps import Function

# The function of a package that warns of two numbers for one size.
UNLIKE = '''
def warn_of_unlike(size: str, /, **found: Any) -> None:
    """Warns if two inputs have different numbers for a size."""
    (first, one), (second, other) = found.items()
    if one != other:
        text = f"the size '{size}' is {one} in input '{first}', but {other} in '{second}'; the package runs with both"
        warnings.warn(text, stacklevel=3)
'''
_OPPOSITE = {"<=": ">", ">=": "<", "==": "!="}


def symbols_of(function: Function, sizes_of: Callable[[Function], Sequence[str]]) -> list[str]:
    """The sizes that a function reads, including those that it passes to other functions. sizes_of: what these take."""
    expressions = [*(step.expression for step in function.steps), *function.results]
    symbols = [s for e in expressions for leaf in leaves(e) if isinstance(leaf, Size) for s in leaf.symbols]
    for step in function.steps:
        if step.calls is not None:
            symbols += sizes_of(step.calls)
        for body in step.bodies.values():
            symbols += symbols_of(body, sizes_of)
    return list(dict.fromkeys([*symbols, *symbols_in(*function.limits)]))


def size_lines(function: Function, names: Sequence[str], symbols: Sequence[str]) -> tuple[list[str], list[str]]:
    """(A line for the sizes of each argument that has some of them, the sizes that no argument has.)

    names: of the arguments. A size of a model is read from the axis that has its name in the file, whatever equals it.
    """
    lines: list[str] = []
    left = set(symbols)
    read: dict[str, str] = {}  # the argument from which each size was read
    for arg, name in zip(function.args, names, strict=True):
        sizes = function.declared.get(arg) or getattr(function.facts.get(arg), "shape", ())
        if function.is_main:
            for axis, dim in enumerate(sizes):
                lines += _unlike_lines(str(dim), read[str(dim)], name, axis) if str(dim) in read else []
        axis_of = {str(dim): k for k, dim in reversed(list(enumerate(sizes))) if str(dim) in left}
        if not axis_of:
            continue
        left -= axis_of.keys()
        read |= dict.fromkeys(axis_of, name)
        by_axis = {k: text for text, k in axis_of.items()}
        if len(by_axis) > 1:
            targets = ", ".join(by_axis.get(k, "_") for k in range(len(sizes)))
            lines.append(f"{INDENT}{targets} = {name}.shape")
        else:
            ((axis, text),) = by_axis.items()
            lines.append(f"{INDENT}{text} = {name}.shape[{axis}]")
    return lines, [text for text in symbols if text in left]


def _unlike_lines(symbol: str, first: str, second: str, axis: int) -> list[str]:
    """The statement that warns, as the model does, if an argument has another number for a size."""
    found = call("warn_of_unlike", [f'"{symbol}"', symbol, f"{second}.shape[{axis}]"], ["", first, second])
    return laid_out("", found, "", INDENT)


def limit_lines(limits: Sequence[str]) -> list[str]:
    """The statements that raise an error for sizes beyond limits such as `k <= 3`."""
    lines: list[str] = []
    for limit in limits:
        left, sign, right = sides(limit)
        written = map(written_sizes, symbolic_shape(f"{left}, {right}"))
        one, other = (size.text if isinstance(size, Size) else size for size in written)
        found = ", ".join(f"{symbol} = {{{symbol}}}" for symbol in symbols_in(limit))
        text = f'f"the sizes must have {one} {sign} {other}, not {found}"'
        lines += laid_out("if ", f"{one} {_OPPOSITE[sign]} {other}", ":", INDENT)
        lines += laid_out("raise ", call("ValueError", [text]), "", 2 * INDENT)
    return lines
