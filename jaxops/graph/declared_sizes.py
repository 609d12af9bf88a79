"""The symbolic sizes that the inputs of a model declare: names them, and replaces them by numbers."""

import ast
import dataclasses
import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.errors import ArgumentError, SignatureError
from jaxops.graph.nodes import Graph, Limits, Value
from jaxops.static import Dim
from jaxops.symbolic import size_of_text

# What an expression consists of: names, integers, signs. Python's parser runs out of its stack for long texts.
_EXPRESSION = re.compile(r"(?:[^\W\d]\w*+|\d++(?!\w)|[\s()+*-])++")
_LONGEST = 400
# The product of the numbers in it is smaller, as JAX may compute sizes in 32 bits.
_LARGEST = 2**31


def named(values: Sequence[Value]) -> tuple[Value, ...]:
    """The inputs, with a name such as `x_0` (input and axis) for each size that has no name."""
    used = set(names(values))

    def name(value: Value, axis: int, size: int | str | None) -> int | str:
        if size is not None:
            return size
        symbol = own_name(value, axis)
        while symbol in used:
            symbol += "_"
        used.add(symbol)
        return symbol

    return _renamed(values, name)


def _renamed(values: Sequence[Value], name: Callable[[Value, int, Any], Any]) -> tuple[Value, ...]:
    """The inputs, with `name(value, axis, size)` for each size."""
    return tuple(
        value
        if value.shape is None
        else dataclasses.replace(value, shape=tuple(name(value, i, size) for i, size in enumerate(value.shape)))
        for value in values
    )


def own_name(value: Value, axis: int) -> str:
    """The name of a size after its input and axis."""
    return _identifier(f"{value.name}_{axis}")


def separated(graph: Graph, values: Sequence[Value], chosen: Iterable[str]) -> tuple[Value, ...]:
    """The inputs, with different names for sizes of the same name, if no node combines the two inputs.

    In ONNX the same name does not mean that two sizes are equal. So the size of the second input `y` on axis 0 becomes
    `y_0`. chosen: the names that a caller uses; a size with such a name keeps it, unless the caller also uses `y_0`.
    """
    sizes = [d for value in values for d in value.shape or () if isinstance(d, str)]
    together = {*chosen, *(d for d in sizes if _terms(d, sizes)), *(n for d in sizes for n in _terms(d, sizes) or ())}
    meets = _meeting(graph)
    first: dict[str, str] = {}  # name of a size → the first input that has it

    def name(value: Value, axis: int, size: int | str | None) -> int | str | None:
        own = own_name(value, axis)
        if not isinstance(size, str) or own in sizes:
            return size
        apart = meets[first.setdefault(size, value.name)] != meets[value.name]
        return own if own in chosen or (apart and size not in together) else size

    return _renamed(values, name)


def _meeting(graph: Graph) -> dict[str, str]:
    """Input → the representative of its group; inputs are in one group if nodes combine them."""
    parents = {value.name: value.name for value in graph.inputs}

    def root(name: str) -> str:
        while parents[name] != name:
            name = parents[name]
        return name

    for node in graph.nodes:
        roots = sorted({root(name) for name in node.uses() if name in parents})
        for name in roots[1:]:
            parents[name] = roots[0]
        parents |= dict.fromkeys(filter(None, node.outputs), roots[0]) if roots else {}
    return {value.name: root(value.name) for value in graph.inputs}


def names(values: Iterable[Value]) -> list[str]:
    """The names of sizes, in the order of the inputs; an expression such as `past + sequence` has the names in it."""
    sizes = [d for value in values for d in value.shape or () if isinstance(d, str)]
    alone = dict.fromkeys(sizes)
    all_names = dict.fromkeys(name for size in sizes for name in (_terms(size, alone) or [size]))
    return list(all_names)


def batches(values: Sequence[Value]) -> dict[str, str]:
    """Name of a size → the size of the batch: the one name that inputs have on their first axis, and on no other axis.

    Empty if there is no such name.
    """
    shapes = [value.shape for value in values if value.shape]
    first = {shape[0] for shape in shapes if isinstance(shape[0], str)}
    later = dict.fromkeys(d for shape in shapes if shape[0] in first for d in shape[1:] if isinstance(d, str))
    if len(first) != 1 or first & {d for shape in shapes for d in shape[1:]}:
        return {}
    return dict.fromkeys(later, *first)


def symbols(values: Sequence[Value]) -> dict[str, str]:
    """Name of a size → a Python identifier for it."""
    return identifiers(names(values))


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """Name → a similar Python identifier; all are different."""
    symbols: dict[str, str] = {}
    for name in names:
        symbol = _identifier(name)
        while symbol in symbols.values():
            symbol += "_"
        symbols[name] = symbol
    return symbols


def expression(size: str, values: Mapping[str, Dim]) -> Dim:
    """A declared size, such as `past + sequence`, with values for its names: numbers or symbolic dimensions."""
    return values[size] if size in values else size_of_text(size, values.__getitem__)


def _terms(size: str, symbols: Iterable[str]) -> list[str] | None:
    """The names in a sum, difference or product of `symbols` and integers; None for any other text."""
    if len(size) > _LONGEST or not _EXPRESSION.fullmatch(size):
        return None
    try:
        tree = ast.parse(size, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a name of any text
        return None
    if not isinstance(tree, ast.BinOp):
        return None
    terms, numbers = list[str](), list[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in symbols:
            terms.append(node.id)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            numbers.append(node.value)
        elif not isinstance(node, (ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Load)):
            return None
    return terms if math.prod(filter(None, numbers)) < _LARGEST else None


def _identifier(name: str) -> str:
    symbol = re.sub(r"\W", "_", name, flags=re.ASCII)
    # JAX takes a single underscore for a size that a shape gives.
    symbol = symbol if symbol.isidentifier() and symbol.strip("_") else f"d{symbol}"
    # In the text of a symbolic size, these names mean operations.
    is_taken = symbol in ("floordiv", "mod", "max", "min", "non_negative") or keyword.iskeyword(symbol)
    return f"{symbol}_" if is_taken else symbol


def fixed(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with numbers for some of the symbolic sizes of its inputs.

    Raises ArgumentError for a name that no input has, for a negative number, and for one outside of an input's limits.
    """
    if not sizes:
        return graph
    inputs = named(graph.inputs)
    known(inputs, sizes)
    check_numbers(sizes)
    check_limits(inputs, sizes)

    def numbered(declared: Value, value: Value) -> Value:
        """value: the same input, with a name for each size."""
        if value.shape is None or declared.shape is None:
            return declared
        pairs = zip(declared.shape, value.shape, strict=True)
        return dataclasses.replace(declared, shape=tuple(_number(b, sizes, a) for a, b in pairs))

    return dataclasses.replace(
        graph,
        inputs=tuple(map(numbered, graph.inputs, inputs)),
        outputs=tuple(numbered(value, value) for value in graph.outputs),
    )


def with_buckets(graph: Graph, buckets: Mapping[str, int]) -> Graph:
    """The graph with names for the sizes of inputs that are in `buckets`.

    Raises ArgumentError for a name that no axis of an input has, and for a number that is not at least 1.
    """
    if not buckets:
        return graph
    inputs = named(graph.inputs)
    known(inputs, buckets, "buckets")
    for name, number in buckets.items():
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
            raise ArgumentError(f"buckets: '{name}' is {number!r}; it must be an integer of at least 1")
        computed = [d for value in inputs for d in value.shape or () if isinstance(d, str) and d != name]
        for size in computed:
            if name in (_terms(size, names(inputs)) or ()):
                raise ArgumentError(
                    f"buckets: '{name}' is a part of the size '{size}'; only whole sizes are rounded up"
                )

    def with_names(declared: Value, value: Value) -> Value:
        """value: the same input, with a name for each size."""
        if value.shape is None or declared.shape is None:
            return declared
        pairs = zip(declared.shape, value.shape, strict=True)
        return dataclasses.replace(declared, shape=tuple(b if b in buckets else a for a, b in pairs))

    return dataclasses.replace(graph, inputs=tuple(map(with_names, graph.inputs, inputs)))


def known(inputs: Sequence[Value], sizes: Mapping[str, Any], option: str = "sizes") -> None:
    """Raises ArgumentError for a name that no size of an input has. inputs: with a name for each size."""
    if not isinstance(sizes, Mapping):
        raise SignatureError(f"{option}: {sizes!r:.80} is not a dictionary; give one such as {{'batch': 4}}")
    there = names(inputs)
    unknown = [name for name in sizes if name not in there]
    if unknown:
        listing = ", ".join(map(repr, there)) or "none: all sizes are numbers"
        raise ArgumentError(f"{option}: no input has a size named {unknown[0]!r}; the names are {listing}")


def constraints(inputs: Iterable[Value], meanings: Mapping[str, str]) -> list[str]:
    """The limits of sizes, such as `s <= 8`. meanings: name of a size → its text, as in the result of `symbols`."""
    texts = []
    for value in inputs:
        for axis, (low, high) in value.limits:
            size = meanings.get(str((value.shape or ())[axis]), "")
            if size and not size.isdigit():
                texts += [f"{size} >= {low}"] if low > 1 else []
                texts += [] if high is None else [f"{size} <= {high}"]
    return texts


def smallest(inputs: Iterable[Value]) -> dict[str, int]:
    """The smallest size of each name, at least 1."""
    sizes = dict.fromkeys(names(inputs := tuple(inputs)), 1)
    for value in inputs:
        for axis, (low, _) in value.limits:
            size = (value.shape or ())[axis]
            if size in sizes:
                sizes[str(size)] = max(sizes[str(size)], low)
    return sizes


def check_limits(inputs: Iterable[Value], sizes: Mapping[str, Any]) -> None:
    """Raises ArgumentError for a size outside of an input's limits."""
    for value in inputs:
        for axis, limits in value.limits:
            number = sizes.get(str((value.shape or ())[axis]))
            if isinstance(number, int) and not within(number, limits):
                raise ArgumentError(
                    f"sizes: '{(value.shape or ())[axis]}' is {number}, but input '{value.name}' takes "
                    f"{limits_text(limits)} on axis {axis}"
                )


def within(size: int, limits: Limits) -> bool:
    """True if a size is within limits."""
    low, high = limits
    return low <= size and (high is None or size <= high)


def limits_text(limits: Limits) -> str:
    """The limits of a size in words."""
    low, high = limits
    return f"{low} or more" if high is None else f"{low} to {high}"


def check_numbers(sizes: Mapping[str, Any]) -> None:
    """Raises ArgumentError for a size that is not an integer of at least 0."""
    for name, number in sizes.items():
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
            raise ArgumentError(f"sizes: '{name}' is {number!r}; it must be an integer of at least 0")


def _number(size: int | str | None, sizes: Mapping[str, int], declared: int | str | None) -> int | str | None:
    if not isinstance(size, str):
        return size
    if size in sizes or _terms(size, sizes):
        return expression(size, sizes)
    return declared
