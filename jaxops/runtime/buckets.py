"""Rounds sizes of inputs up to buckets, so that one program serves all calls with sizes in the same bucket.

The program of a bucket is traced with a symbol for each such size, and runs on inputs that are padded with zeros
(`jaxops.compiler.padded`). It takes the true sizes as numbers, and returns the true sizes of its results, which are
then cropped.
"""

import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxops.compiler.padded.blocks import may_run_in_blocks, run_in_blocks
from jaxops.compiler.padded.growth import check_growth
from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity
from jaxops.compiler.primitives import symbolic_axes
from jaxops.dtypes import as_traced, canonical
from jaxops.errors import JaxopsError, ShapeError, SizeError, StaticError, UnsupportedError
from jaxops.graph.declared_sizes import identifiers
from jaxops.graph.interpreter import unwrap
from jaxops.graph.nodes import Graph, Value
from jaxops.jax_internals import bounded_by
from jaxops.lazy_sequences import SplitSequence
from jaxops.runtime.counted_sizes import Counted, exact, run_graph_counted
from jaxops.runtime.host_data import widened
from jaxops.shown_text import clean
from jaxops.static import Sizes, StaticValue, Undecided, is_symbolic, symbolic_shape
from jaxops.symbolic import numbers_of


class Range(NamedTuple):
    """The range of one size in a bucket. name: of the size, in the model. symbol: a Python identifier for it."""

    name: str
    symbol: str
    least: int
    most: int


@partial(jax.tree_util.register_dataclass, data_fields=["values", "sizes"], meta_fields=["ranges"])
@dataclass(frozen=True)
class Rounded:
    """Inputs that are padded to the largest sizes of a bucket.

    values: the inputs by name. sizes: symbol → its true size.
    """

    values: Mapping[str, Any]
    sizes: Mapping[str, Any]
    ranges: tuple[Range, ...]


class _Sizes(NamedTuple):
    """A static result that was computed from sizes."""

    numbers: Any


def bucket_of(graph: Graph, inputs: Mapping[str, Any], multiples: Mapping[str, int]) -> tuple[Range, ...]:
    """Returns the ranges of the sizes of inputs that are rounded up; () if there are none, or if one of them is 0.

    inputs: the result of `InputBinder.bind_inputs`. multiples: the name of a size → the size is rounded up to a
    multiple of this number.

    Raises UnsupportedError for a static input of such a size, ShapeError if one has different values in two inputs.
    """
    sizes = dict[str, list[tuple[str, int]]]()
    for value, axis, name in _axes(graph, inputs, multiples):
        x = inputs[value.name]
        if isinstance(x, StaticValue):
            why = "it holds strings" if value.dtype == object else value.static
            raise UnsupportedError(
                f"buckets: '{name}' is a size of input '{value.name}', which must be known while tracing\n"
                f"  needed  {why}\n"
                f"  hint    load the model without buckets for '{name}'"
            )
        sizes.setdefault(name, []).append((value.name, x.shape[axis]))
    if not all(size for pairs in sizes.values() for _, size in pairs):
        return ()
    for name, ((first, expected), *pairs) in sizes.items():
        for other, size in pairs:
            if size != expected:
                raise ShapeError(
                    f"buckets: the size '{name}' is {expected} in input '{first}', but {size} in '{other}'\n"
                    f"  hint    give both the same size, or load the model without buckets for '{name}'"
                )
    symbols = identifiers(multiples)
    most = {name: -(-size // multiples[name]) * multiples[name] for name, ((_, size), *_) in sizes.items()}
    return tuple(Range(name, symbols[name], n - multiples[name] + 1, n) for name, n in most.items())


def run_in_buckets(
    graph: Graph, inputs: Mapping[str, Any], ranges: tuple[Range, ...], unserved: set[Any], run: Callable[..., Any]
) -> Any:
    """Returns the result of `run` for padded inputs. A bucket for which there is no program is halved.

    ranges: the result of `bucket_of`. unserved: gets the buckets without a program. run: the program of a bucket, which
    raises ShapeError or Undecided if there is none.
    """
    while True:
        room = _rounded(graph, inputs, ranges)
        leaves, tree = jax.tree.flatten(room)
        kind = graph, tree, tuple((x.shape, x.dtype) for x in leaves)
        if kind not in unserved:
            try:
                return run(room)
            except (ShapeError, Undecided) as error:
                if all(size.least == size.most for size in ranges):
                    raise
                served, reason = clean(_text(ranges)), clean(str(error).splitlines()[0])
                warnings.warn(f"buckets: no program serves {served}, so each half gets its own: {reason}", stacklevel=2)
                unserved.add(kind)
        ranges = tuple(_half(size, int(room.sizes[size.symbol])) for size in ranges)


def _half(bucket: Range, size: int) -> Range:
    """Returns the half of a bucket that contains a size."""
    middle = (bucket.least + bucket.most) // 2
    return bucket._replace(most=middle) if size <= middle else bucket._replace(least=middle + 1)


def _rounded(graph: Graph, inputs: Mapping[str, Any], ranges: tuple[Range, ...]) -> Rounded:
    """Returns the inputs padded with zeros to the largest sizes of these buckets."""
    by_name = {size.name: size for size in ranges}
    room, sizes = dict[str, list[int]](), dict[str, Any]()
    for value, axis, name in _axes(graph, inputs, by_name):
        bucket = by_name[name]
        room.setdefault(value.name, list(inputs[value.name].shape))[axis] = bucket.most
        sizes[bucket.symbol] = np.asarray(inputs[value.name].shape[axis], canonical(np.int64))
    values = {name: widened(x, room[name]) if name in room else x for name, x in inputs.items()}
    return Rounded(values, sizes, ranges)


def _text(ranges: Sequence[Range]) -> str:
    return " and ".join(f"'{size.name}' from {size.least} to {size.most}" for size in ranges)


def _axes(graph: Graph, inputs: Mapping[str, Any], names: Container[str]) -> Iterator[tuple[Value, int, str]]:
    """Yields the axes of inputs whose size has one of these names."""
    for value in graph.inputs:
        for axis, name in enumerate(value.shape or ()):
            if isinstance(name, str) and name in names and inputs.get(value.name) is not None:
                yield value, axis, name


def run_rounded(graph: Graph, params: Mapping[str, Any], inputs: Rounded, rng: Any) -> dict[str, Any]:
    """Computes the outputs of a graph by name, padded, for `run_in_buckets`; `jit` traces it.

    Raises UnsupportedError for an operation without a rule for such an axis, and for a size that grows as an input
    shrinks; SizeError and StaticError as an export does.
    """
    varying = [size for size in inputs.ranges if size.least < size.most]
    by_name = {size.name: size.symbol for size in inputs.ranges}
    ranges = {size.symbol: range(size.least, size.most + 1) for size in varying}
    limits = [f"{size.symbol} {sign}" for size in varying for sign in (f">= {size.least}", f"<= {size.most}")]
    symbols: dict[str, Any] = dict(zip(ranges, symbolic_shape(", ".join(ranges), constraints=limits), strict=True))
    for symbol in list(symbols.values())[:1]:
        bounded_by(symbol.scope, partial(_bounds, ranges=ranges))
    shapes: dict[str, Any] = {name: list(x.shape) for name, x in inputs.values.items() if hasattr(x, "shape")}
    for value, axis, name in _axes(graph, inputs.values, by_name):
        shapes[value.name][axis] = symbols.get(by_name[name], shapes[value.name][axis])

    def spec(path: Any, x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(tuple(shapes.get(path[0].key, x.shape)), x.dtype)

    def outputs(params: Any, values: Any, rng: Any) -> dict[str, Any]:
        results = run_graph_counted(graph, unwrap(values), params, rng, automatic=False)
        for name, y in zip(graph.output_names, results, strict=True):
            if isinstance(y, SplitSequence):  # the number of its arrays is not known for a rounded size
                raise y.problem(f"output '{name}'")
        return {name: jax.tree.map(_static, y) for name, y in zip(graph.output_names, results, strict=True)}

    arguments = dict(params), dict(inputs.values), rng
    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (arguments[0], arguments[2]))
    try:
        program, types = jax.make_jaxpr(outputs, return_shape=True)(
            specs[0], jax.tree_util.tree_map_with_path(spec, arguments[1]), specs[1]
        )
        check_growth(program, ranges)
        capacity = Capacity(inputs.sizes, {size.symbol: size.most for size in inputs.ranges}, {})
        run = run_in_blocks if may_run_in_blocks(program, capacity) else run_padded
        results = run(program, jax.tree.leaves(arguments), capacity)
    except (JaxopsError, Undecided) as error:
        if isinstance(error, SizeError):
            error.names = {size.symbol: size.name for size in inputs.ranges}
        if isinstance(error, StaticError):
            error.instead = "load the model without `buckets`"
        served = _text(inputs.ranges)
        error.add_note(f"in a program for {served}, as `buckets` asks for; without them each size gets its own program")
        raise
    leaves, tree = jax.tree.flatten(types)

    def result(array: Any, sizes: Sizes) -> Any:
        axes = symbolic_axes(sizes)
        return Counted(array, {axis: capacity.count(sizes[axis]) for axis in axes}) if axes else array

    return jax.tree.unflatten(tree, [result(x.array, y.shape) for x, y in zip(results, leaves, strict=True)])


def cropped(values: Any, inputs: Any) -> Any:
    """Crops the results of `run_rounded` to their true sizes; results for other inputs stay as they are."""
    if not isinstance(inputs, Rounded):
        return values

    def known(x: Any) -> Any:
        return StaticValue(np.asarray(x.numbers, np.int64)) if isinstance(x, _Sizes) else x

    return jax.tree.map(known, exact(values), is_leaf=lambda x: isinstance(x, _Sizes))


def _static(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return _Sizes(as_traced(value, np.dtype(np.int64))) if is_symbolic(value) else StaticValue(value)


def _bounds(size: Any, ranges: Mapping[str, range]) -> tuple[float, float] | None:
    numbers = numbers_of(size, ranges)
    return None if numbers is None else (int(numbers.min()), int(numbers.max()))
