"""Declared sizes of inputs, rounded up to buckets, so that one program serves all calls whose sizes are in one.

The program of a bucket is traced with a symbol for each such size, and runs on inputs with zeros behind their elements
(`jaxops.compiler.padded`). It gets the true sizes as numbers, and gives those of its results, which are cropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity
from jaxops.compiler.primitives import symbolic_axes, symbolic_sizes
from jaxops.dtypes import as_traced, canonical
from jaxops.errors import JaxopsError, ShapeError, UnsupportedError
from jaxops.graph.declared_sizes import identifiers
from jaxops.graph.interpreter import run_graph, unwrap
from jaxops.graph.nodes import Graph
from jaxops.static import Sizes, StaticValue, Undecided, is_symbolic, symbolic_shape
from jaxops.symbolic import bounded_by, numbers_of


class Range(NamedTuple):
    """The sizes of a bucket. name: that the model declares. symbol: that stands for it."""

    name: str
    symbol: str
    least: int
    most: int


@partial(jax.tree_util.register_dataclass, data_fields=["values", "sizes"], meta_fields=["axes", "ranges"])
@dataclass(frozen=True)
class Rounded:
    """Inputs of which some axes have room for the largest size of a bucket.

    values: the inputs by name. sizes: symbol → its true size. axes: input, axis, symbol.
    """

    values: Mapping[str, Any]
    sizes: Mapping[str, Any]
    axes: tuple[tuple[str, int, str], ...]
    ranges: tuple[Range, ...]


class _Result(NamedTuple):
    """An array with room for more elements. sizes: axis → its true size."""

    array: Any
    sizes: Mapping[int, Any]


class _Sizes(NamedTuple):
    """A static result that was computed from sizes."""

    numbers: Any


def rounded(graph: Graph, inputs: Mapping[str, Any], buckets: Mapping[str, int]) -> Rounded | None:
    """Returns the inputs with zeros behind them, up to multiples of the numbers in `buckets`; None where there is none
    of these sizes, or one is 0.

    inputs: as `InputBinder.bind_inputs` gives them. buckets: the name of a size → the number.

    Raises ShapeError where two inputs give one name different sizes, UnsupportedError for a static input of such a
    size.
    """
    symbols, sizes, axes = identifiers(buckets), dict[str, tuple[str, int]](), list[tuple[str, int, str]]()
    for value in graph.inputs:
        x = inputs.get(value.name)
        for axis, name in enumerate(value.shape or ()):
            if x is None or not isinstance(name, str) or name not in buckets:
                continue
            if isinstance(x, StaticValue):
                raise UnsupportedError(
                    f"buckets: '{name}' is a size of input '{value.name}', which must be known while tracing\n"
                    f"  needed  {value.static}\n"
                    f"  hint    load the model without buckets for '{name}'"
                )
            first, size = sizes.setdefault(name, (value.name, x.shape[axis]))
            if size != x.shape[axis]:
                raise ShapeError(
                    f"buckets: the size '{name}' is {size} in input '{first}', but {x.shape[axis]} in '{value.name}'\n"
                    f"  hint    give both the same size, or load the model without buckets for '{name}'"
                )
            axes.append((value.name, axis, symbols[name]))
    if not sizes or not all(size for _, size in sizes.values()):
        return None
    most = {name: -(-size // buckets[name]) * buckets[name] for name, (_, size) in sizes.items()}
    ranges = tuple(Range(name, symbols[name], n - buckets[name] + 1, n) for name, n in most.items())
    room = {symbols[name]: n for name, n in most.items()}
    values = dict(inputs)
    for name in dict.fromkeys(name for name, _, _ in axes):
        values[name] = _with_room(inputs[name], {axis: room[symbol] for k, axis, symbol in axes if k == name})
    true = {symbols[name]: np.asarray(size, canonical(np.int64)) for name, (_, size) in sizes.items()}
    return Rounded(values, true, tuple(axes), ranges)


def _with_room(x: Any, room: Mapping[int, int]) -> Any:
    shape = tuple(room.get(axis, size) for axis, size in enumerate(x.shape))
    if shape == x.shape:
        return x
    padded = np.zeros(shape, x.dtype)
    padded[tuple(map(slice, x.shape))] = x
    return padded


def run_rounded(graph: Graph, params: Mapping[str, Any], inputs: Rounded, rng: Any) -> dict[str, Any]:
    """Returns the outputs of a graph by name, as `cropped` takes them; to be traced.

    Raises UnsupportedError for an operation that has no rule along such an axis, or a size that grows as one of the
    inputs shrinks; SizeError and StaticError as an export does.
    """
    names = [size.symbol for size in inputs.ranges]
    limits = [f"{size.symbol} {sign}" for size in inputs.ranges for sign in (f">= {size.least}", f"<= {size.most}")]
    sizes: Sequence[Any] = symbolic_shape(", ".join(names), constraints=limits)
    symbols = dict(zip(names, sizes, strict=True))
    ranges = {size.symbol: range(size.least, size.most + 1) for size in inputs.ranges}
    shapes: dict[str, Any] = {name: list(x.shape) for name, x in inputs.values.items() if hasattr(x, "shape")}
    for name, axis, symbol in inputs.axes:
        shapes[name][axis] = symbols[symbol]
    bounded_by(sizes[0].scope, partial(_bounds, ranges=ranges))

    def spec(path: Any, x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(tuple(shapes.get(path[0].key, x.shape)), x.dtype)

    def outputs(params: Any, values: Any, rng: Any) -> dict[str, Any]:
        results = run_graph(graph, unwrap(values), params, rng)
        return {name: jax.tree.map(_static, y) for name, y in zip(graph.output_names, results, strict=True)}

    arguments = dict(params), dict(inputs.values), rng
    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (arguments[0], arguments[2]))
    try:
        program, types = jax.make_jaxpr(outputs, return_shape=True)(
            specs[0], jax.tree_util.tree_map_with_path(spec, arguments[1]), specs[1]
        )
        _check_growth(program, ranges)
        capacity = Capacity(inputs.sizes, {size.symbol: size.most for size in inputs.ranges}, {})
        results = run_padded(program, jax.tree.leaves(arguments), capacity)
    except (JaxopsError, Undecided) as error:
        served = " and ".join(f"'{size.name}' from {size.least} to {size.most}" for size in inputs.ranges)
        error.add_note(f"in a program for {served}, as `buckets` asks for; without them each size gets its own program")
        raise
    leaves, tree = jax.tree.flatten(types)

    def result(array: Any, sizes: Sizes) -> Any:
        axes = symbolic_axes(sizes)
        return _Result(array, {axis: capacity.count(sizes[axis]) for axis in axes}) if axes else array

    return jax.tree.unflatten(tree, [result(x.array, y.shape) for x, y in zip(results, leaves, strict=True)])


def cropped(values: Any) -> Any:
    """Returns what `run_rounded` gives, once it is computed, as a program of the true sizes would give it."""

    def crop(x: Any) -> Any:
        if isinstance(x, _Sizes):
            return StaticValue(np.asarray(x.numbers, np.int64))
        if not isinstance(x, _Result):
            return x
        sizes = tuple(int(x.sizes.get(axis, size)) for axis, size in enumerate(x.array.shape))
        return x.array if sizes == x.array.shape else as_traced(np.asarray(x.array)[tuple(map(slice, sizes))])

    return jax.tree.map(crop, values, is_leaf=lambda x: isinstance(x, _Result | _Sizes))


def _static(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return _Sizes(as_traced(value, np.dtype(np.int64))) if is_symbolic(value) else StaticValue(value)


def _bounds(size: Any, ranges: Mapping[str, range]) -> tuple[float, float] | None:
    numbers = numbers_of(size, ranges)
    return None if numbers is None else (int(numbers.min()), int(numbers.max()))


def _check_growth(program: Any, ranges: Mapping[str, range]) -> None:
    """Raises UnsupportedError for a size in a program that needs more room than for the largest sizes of the inputs."""
    largest = {symbol: range(numbers.stop - 1, numbers.stop) for symbol, numbers in ranges.items()}
    for size in symbolic_sizes(program.jaxpr):
        numbers, room = numbers_of(size, ranges), numbers_of(size, largest)
        if numbers is None or room is None or numbers.max() > room.max():
            raise UnsupportedError(f"the size {size} may be larger for smaller inputs, so it cannot be rounded up")
