"""Cuts weights whose products are cut: one that makes queries, keys and values becomes three, with a product each.

A slice of a product is the product with a slice of the weight. So the features that a weight makes are followed to the
slices that cut them, through operations that compute each feature by itself; these then run once for each part. A
weight stays as it is if anything reads all of its features together.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from jaxops.compiler.axis_rules import SIZES, Axis, independent_axes, keeps_parameters, with_size
from jaxops.compiler.ir import Constant, Operand, Operation, Program, evaluate, interpret
from jaxops.compiler.primitives import called_jaxpr
from jaxops.static import Sizes


class Part(NamedTuple):
    """Features of a weight from `start` to `stop`. heads: how many the program makes of them; 0 if unknown."""

    start: int
    stop: int
    heads: int


def cut_weights(closed: Any, weights: int, axes: Mapping[int, int]) -> tuple[Any, dict[int, tuple[Part, ...]]]:
    """Returns a closed jaxpr that has parts of some weights as inputs in their place, and the parts by input.

    weights: the number of weights, which are the first inputs. axes: number of a weight that may be cut → the axis of
    the features that it makes. Weights whose features meet, such as one in 4 bits, its scales and a bias, are cut at
    the same features; vectors are cut with a matrix only.
    """
    follower = _Follower(closed, weights, axes)
    program, parts = follower.program, follower.parts()
    if not parts:
        return closed, {}

    bounds = {number: (0, *(part.stop for part in found)) for number, found in parts.items()}

    def emit(operation: Operation, operands: Sequence[Any], _: Any = None, /) -> Sequence[Any]:
        weight, on_parts = follower.on_parts.get(operation, (None, None))
        if on_parts is not None and weight in parts:
            return on_parts(operands, bounds[weight])
        return operation.emit(list(map(_joined, operands)))

    def run(*arguments: Any) -> list[Any]:
        given, values = iter(arguments), dict[Any, Any]()
        for number in program.inputs:
            if number in parts:
                values[number] = _Parts(tuple(next(given) for _ in parts[number]), axes[number], bounds[number], 1)
            else:
                values[number] = next(given)
        return list(map(_joined, evaluate(program.operations, values, program.outputs, emit)))

    types = []
    for number in program.inputs:
        type = program.types[number]
        shapes = [with_size(type.shape, axes[number], p.stop - p.start) for p in parts.get(number, ())] or [type.shape]
        types += [jax.ShapeDtypeStruct(shape, type.dtype) for shape in shapes]
    return jax.make_jaxpr(run)(*types), parts


def part_of(weight: Any, axis: int, start: int, stop: int) -> Any:
    """Returns the entries of a weight from `start` to `stop` of an axis."""
    return lax.slice_in_dim(weight, start, stop, axis=axis)


class _Features(NamedTuple):
    """The features of a weight that a value has, in the order of the weight.

    weight: its number. axis: of the value. start, stop: the features. unit: the number of features in an entry of the
    axis. heads: the number of heads in an entry; 0 if unknown.
    """

    weight: int
    axis: int
    start: int
    stop: int
    unit: int = 1
    heads: int = 0


class _Parts(NamedTuple):
    """A value in parts along an axis. bounds: the features at which they begin and end. unit: as in `_Features`."""

    arrays: tuple[Any, ...]
    axis: int
    bounds: tuple[int, ...]
    unit: int


class _Follower:
    """Follows the features of weights through a program.

    program: has the operations of calls that read features in place of these calls. on_parts: for the operations that
    compute each part by itself, a weight, and the function of (operands, bounds of the weight's parts) that does.
    """

    def __init__(self, closed: Any, weights: int, axes: Mapping[int, int]) -> None:
        self._types: list[Any] = [v.aval for v in closed.jaxpr.invars]
        self._operations: list[Operation] = []
        self._producers: dict[Operand, int] = {}  # of values made of constants → the position of the operation
        self._sizes = {number: self._types[number].shape[axis] for number, axis in axes.items()}
        self._features: dict[Operand, _Features] = {k: _Features(k, axes[k], 0, n) for k, n in self._sizes.items()}
        self._like = {number: number for number in axes}  # a weight → one that is cut at the same features
        self._cuts: list[_Features] = []
        self._units: list[tuple[int, int]] = []  # (weight, a divisor of all features at which it is cut)
        self._whole: set[int] = set()  # weights whose features are read together
        self._of_weights: set[Operand] = set(range(weights))  # values that no input of a call changes
        self._constants: dict[Operand, Any] = {}
        self.on_parts: dict[Operation, tuple[int, Callable[[Sequence[Any], Sequence[int]], Sequence[Any]]]] = {}
        inputs = tuple(range(len(self._types)))
        outputs = self._walked(closed, inputs, "")
        self._read_together(outputs)
        self.program = Program(tuple(self._operations), tuple(self._types), inputs, tuple(outputs))

    def parts(self) -> dict[int, tuple[Part, ...]]:
        """Returns the parts of the weights that are cut."""
        cuts, divisors, found = defaultdict[int, list[_Features]](list), defaultdict[int, set[int]](set), {}
        for cut in self._cuts:
            cuts[self._root(cut.weight)].append(cut)
        for weight, divisor in self._units:
            divisors[self._root(weight)].add(divisor)
        whole = set(map(self._root, self._whole))
        matrices = {self._root(number) for number in self._sizes if len(self._types[number].shape) > 1}
        for number, size in self._sizes.items():
            root = self._root(number)
            bounds = sorted({0, size, *(cut.start for cut in cuts[root]), *(cut.stop for cut in cuts[root])})
            uneven = any(bound % divisor for bound in bounds for divisor in divisors[root])
            if root in matrices and root not in whole and len(bounds) > 2 and not uneven:
                heads = {(cut.start, cut.stop): cut.heads for cut in sorted(cuts[root], key=lambda cut: cut.heads)}
                found[number] = tuple(Part(*pair, heads.get(pair, 0)) for pair in itertools.pairwise(bounds))
        return found

    def _root(self, weight: int) -> int:
        while self._like[weight] != weight:
            weight = self._like[weight]
        return weight

    def _read_together(self, values: Sequence[Operand]) -> None:
        """Notes the weights of which a value has all features; parts that were cut before may be read in any way."""
        read = [self._features[v] for v in values if v in self._features]
        self._whole.update(f.weight for f in read if not self._is_part(f))

    def _is_part(self, features: _Features) -> bool:
        return features.stop - features.start < self._sizes[features.weight]

    def _walked(self, jaxpr: Any, inputs: Sequence[Operand], scope: str) -> list[Operand]:
        def add(equation: Any, operands: Sequence[Operand]) -> Sequence[Operand]:
            path = "/".join(filter(None, (scope, str(equation.source_info.name_stack))))
            has_features = any(v in self._features for v in operands)
            if has_features and (inner := called_jaxpr(equation, transformable=True)) is not None:
                return self._walked(inner, operands, path)
            results = tuple(range(len(self._types), len(self._types) + len(equation.outvars)))
            self._types.extend(v.aval for v in equation.outvars)
            operation = Operation(equation, tuple(operands), results, path)
            self._operations.append(operation)
            if all(v in self._of_weights or isinstance(v, Constant) for v in operands) and not equation.effects:
                self._of_weights.update(results)
            if all(isinstance(v, Constant) or v in self._producers for v in operands):
                self._producers.update(dict.fromkeys(results, len(self._operations) - 1))
            if operation.name == "broadcast_in_dim" and isinstance(operands[0], Constant):
                self._constants[results[0]] = operands[0].value
            if has_features and not self._follow(operation):
                self._read_together(operands)
            return results

        return interpret(jaxpr, inputs, add, lambda value, _: Constant(value))

    def _follow(self, operation: Operation) -> bool:
        """Notes the features of the results of an operation; returns False if it reads features together."""
        if not operation.results:
            return False
        name, params = operation.name, operation.params
        features = self._features.get(operation.operands[0])
        if name == "sharding_constraint" and features is not None:
            # It says where all features are together; the parts of the weight say where each of them is.
            self._features[operation.results[0]] = features
            self.on_parts[operation] = features.weight, lambda operands, _: [operands[0]]
            return True
        if name == "split" and features is not None and params["axis"] == features.axis:
            ends = np.cumsum((0, *params["sizes"])).tolist()
            return self._cut(operation, features, list(itertools.pairwise(ends)))
        if name == "slice" and features is not None:
            sizes = list(self._shape(operation.operands[0]))
            start, stop = (params[key][features.axis] for key in ("start_indices", "limit_indices"))
            if (start, stop) != (0, sizes[features.axis]):
                sizes[features.axis] = stop - start
                if set(params["strides"] or (1,)) != {1} or self._shape(operation.results[0]) != tuple(sizes):
                    return False
                return self._cut(operation, features, [(start, stop)])
        if name == "gather" and features is not None:
            return self._look_up(operation, features)
        if self._each(operation):
            return True
        return name == "reshape" and features is not None and self._reshape(operation, features)

    def _shape(self, operand: Operand) -> Sizes:
        return np.shape(operand.value) if isinstance(operand, Constant) else self._types[operand].shape

    def _extent(self, features: _Features) -> tuple[int, ...]:
        return features.start, features.stop, features.unit, self._sizes[features.weight]

    def _cut(self, operation: Operation, features: _Features, entries: Sequence[tuple[int, int]]) -> bool:
        """Notes that each result has the features of the entries (start, stop) of an axis."""
        found = []
        for result, (start, stop) in zip(operation.results, entries, strict=True):
            first, last = (features.start + features.unit * entry for entry in (start, stop))
            heads = 0 if features.unit == 1 else (features.heads or 1) * (stop - start)
            found.append(features._replace(start=first, stop=last, heads=heads))
            self._features[result] = found[-1]._replace(heads=features.heads)
        self._cuts += found
        between = [(f.start, f.stop) for f in found]
        self.on_parts[operation] = (
            features.weight,
            lambda operands, _: [_between(operands[0], *each) for each in between],
        )
        return True

    def _look_up(self, operation: Operation, features: _Features) -> bool:
        """Follows a gather that takes one entry of an axis, which a constant says."""
        numbers, axis = operation.params["dimension_numbers"], features.axis
        index = self._constants.get(operation.operands[1])
        shape = self._shape(operation.operands[0])
        sizes = tuple(1 if k == axis else size for k, size in enumerate(shape))
        is_entry = numbers.start_index_map == numbers.collapsed_slice_dims == (axis,)
        if not is_entry or index is None or np.ndim(index) or tuple(operation.params["slice_sizes"]) != sizes:
            return False
        entry = int(index)
        if len(numbers.offset_dims) != len(shape) - 1 or not 0 <= entry < shape[axis]:
            return False
        first = features.start + features.unit * entry
        found = features._replace(start=first, stop=first + features.unit, heads=features.heads or 1)
        self._cuts.append(found)

        def on_parts(operands: Sequence[Any], bounds: Sequence[int]) -> Sequence[Any]:
            return [lax.squeeze(_between(operands[0], found.start, found.stop), (axis,))]

        self.on_parts[operation] = features.weight, on_parts
        return True

    def _each(self, operation: Operation) -> bool:
        """Follows an operation that computes each feature by itself."""
        operands = operation.operands
        read = {k: self._features[v] for k, v in enumerate(operands) if v in self._features}
        first, *others = read.values()
        if not keeps_parameters(operation.equation) or len({self._extent(f) for f in read.values()}) > 1:
            return False
        sizes = list(map(self._shape, operands))
        result = self._shape(operation.results[0])
        axes = independent_axes(operation.name, operation.params, sizes, result)
        cut = next((a for a in axes if all(a.operands[k] == f.axis for k, f in read.items())), None)
        if cut is None:
            return False
        rest = [v for k, v in enumerate(operands) if k not in read and cut.operands[k] is not None]
        if any(isinstance(v, int) and v not in self._of_weights for v in rest):
            return False  # a slice of it would be work of each call
        for other in others:
            self._like[self._root(other.weight)] = self._root(first.weight)
        if operation.name == "reshape" and self._is_part(first) and cut.result and result[cut.result - 1] == 1:
            self._cuts.append(first._replace(heads=1))  # an axis of heads, of which there is one
        heads = max(f.heads for f in read.values())
        self._features |= dict.fromkeys(operation.results, first._replace(axis=cut.result, heads=heads))
        self.on_parts[operation] = first.weight, lambda operands, _: _on_each_part(operation, operands, cut)
        if not self._is_part(first):
            for k, (v, axis) in enumerate(zip(operands, cut.operands, strict=True)):
                if k not in read and axis is not None:
                    self._cut_constant(v, axis, first)
        return True

    def _cut_constant(self, value: Operand, axis: int, features: _Features) -> None:
        """Computes a value that is made of constants in the parts of features, which it meets along an axis."""
        position = self._producers.get(value)
        if position is None:
            return
        operation = self._operations[position]
        sizes = list(map(self._shape, operation.operands))
        axes = independent_axes(operation.name, operation.params, sizes, self._shape(value))
        cut = next((each for each in axes if each.result == axis), None)
        if cut is None or operation in self.on_parts or not keeps_parameters(operation.equation):
            return
        unit = features.unit

        def on_parts(operands: Sequence[Any], bounds: Sequence[int]) -> Sequence[Any]:
            return _on_each_part(operation, operands, cut, bounds, unit)

        self.on_parts[operation] = features.weight, on_parts
        for v, k in zip(operation.operands, cut.operands, strict=True):
            if k is not None:
                self._cut_constant(v, k, features)

    def _reshape(self, operation: Operation, features: _Features) -> bool:
        """Follows a reshape that divides the axis of the features: by parts, by heads, or both."""
        before, after = self._shape(operation.operands[0]), operation.params["new_sizes"]
        leading, size = math.prod(before[: features.axis]), before[features.axis]
        axis = next((k for k, d in enumerate(after) if d != 1 and math.prod(after[:k]) == leading), None)
        if axis is None or 0 in before or operation.params["dimensions"] is not None:
            return False
        end = next((k for k in range(axis, len(after)) if math.prod(after[axis : k + 1]) == size), None)
        if end is None:
            return False
        unit = features.unit * (size // after[axis])
        if self._is_part(features):
            self._cuts.append(features._replace(heads=after[axis]))
            return False  # a part of its own, which is read as any value
        self._units.append((features.weight, unit))
        heads = after[axis + 1] if end > axis + 1 else 0
        self._features[operation.results[0]] = features._replace(axis=axis, unit=unit, heads=heads)

        def on_parts(operands: Sequence[Any], _: Sequence[int]) -> Sequence[Any]:
            (x,) = operands
            widths = [(stop - start) // unit for start, stop in itertools.pairwise(x.bounds)]
            arrays = [lax.reshape(a, with_size(after, axis, n)) for a, n in zip(x.arrays, widths, strict=True)]
            return [_Parts(tuple(arrays), axis, x.bounds, unit)]

        self.on_parts[operation] = features.weight, on_parts
        return True


def _on_each_part(
    operation: Operation, operands: Sequence[Any], cut: Axis, bounds: Sequence[int] = (), unit: int = 1
) -> Sequence[Any]:
    """Computes an operation on each part of its operands.

    cut: the axis of the features. bounds, unit: of the parts; by default, as those of an operand.
    """
    if not bounds:
        like = next((x for x in operands if isinstance(x, _Parts)), None)
        if like is None:  # the operands have one part alone
            return operation.emit(operands)
        bounds, unit = like.bounds, like.unit
    results = []
    for k, ends in enumerate(itertools.pairwise((feature - bounds[0]) // unit for feature in bounds)):
        sliced = [_sliced(x, k, axis, ends, bounds) for x, axis in zip(operands, cut.operands, strict=True)]
        params = dict(operation.params)
        if key := SIZES.get(operation.name):
            params[key] = with_size(params[key], cut.result, ends[1] - ends[0])
        results.append(operation.emit(sliced, params))
    return [_Parts(arrays, cut.result, tuple(bounds), unit) for arrays in zip(*results, strict=True)]


def _sliced(x: Any, number: int, axis: int | None, ends: tuple[int, int], bounds: Sequence[int]) -> Any:
    """Returns a part of an operand. ends: its entries."""
    if isinstance(x, _Parts) and x.axis == axis and x.bounds == tuple(bounds):
        return x.arrays[number]
    x = _joined(x)
    if axis is None:
        return x
    if isinstance(x, np.ndarray):  # stays a constant
        return x[(slice(None),) * axis + (slice(*ends),)]
    return lax.slice_in_dim(x, *ends, axis=axis)


def _between(x: Any, start: int, stop: int) -> Any:
    """Returns the parts of a value between two features; one part alone is an array."""
    if not isinstance(x, _Parts):
        return x
    first, last = x.bounds.index(start), x.bounds.index(stop)
    arrays = x.arrays[first:last]
    return arrays[0] if len(arrays) == 1 else x._replace(arrays=arrays, bounds=x.bounds[first : last + 1])


def _joined(x: Any) -> Any:
    return lax.concatenate(x.arrays, x.axis) if isinstance(x, _Parts) else x
