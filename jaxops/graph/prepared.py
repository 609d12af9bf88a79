"""What depends on the weights alone, computed once (the sixth idea of the design).

A call of `model(…)` runs the program of `model.apply` in two parts. The first needs nothing but parameters: filters
in another layout, 1/sqrt(variance + epsilon), weights of two products side by side. It runs once, and its results take
the place of the parameters in the second, which runs at each call. Operators know only that they may ask for any
layout of their weights (`static.PREPARED`), and gradients, which follow `apply`, see the whole.
"""

import contextlib
import gc
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax.sharding import get_abstract_mesh

from jaxops.dtypes import canonical
from jaxops.graph import kept, layout, loops, on_host
from jaxops.graph.border import named_outputs
from jaxops.graph.mesh import is_on_mesh
from jaxops.graph.nodes import Graph, Value
from jaxops.graph.program import Known, Operation, Program, evaluate, needed, opened_program
from jaxops.memory import LIMIT
from jaxops.static import JaxRuntimeError, is_concrete, tracing

# The most that a prepared value may hold, for each byte of the parameters that it is made of.
_MOST_BYTES = 1.5
# What is no larger than this is kept anyway: a table of relative positions, made of a few numbers.
_SMALL = 1 << 20
# Dequantized weights of four bits hold eight times as much. All that grows so may take this part of what a result may
# take. Llama of 110 M with 4-bit weights: 0.4 of the time, and the memory that each call would take anew.
_GROWN = 1 / 4
# What costs nothing, or is part of the operation that reads it.
_FREE = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "stop_gradient", "optimization_barrier"}
_SETTINGS = "jax_default_matmul_precision", "jax_enable_x64", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion"


def compiler_options() -> dict[str, Any] | None:
    """What `jax.jit` tells XLA, for programs of our own.

    On a CPU XLA gives convolutions and reductions to a library that runs one example on one core, and whose maximum
    loses NaNs. Products stay there: it is the fastest for them. ResNet-50: 183 → 159 ms of processor time.

    XLA has oneDNN on board, too (`xla_cpu_experimental_onednn_custom_call`; in jaxlib 0.10 only by the name of the
    call). It takes half of the time for 8-bit integers, but ends the process where XLA has more threads than oneDNN
    counts, waits forever for some dilated convolutions, and no program with it can be written into the cache.
    """
    if jax.default_backend() != "cpu":
        return None
    return {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}


def _settings() -> tuple[Any, ...]:
    """What decides how a function is traced, besides its arguments."""
    return (*(getattr(jax.config, name) for name in _SETTINGS), get_abstract_mesh())


@contextlib.contextmanager
def _garbage_later() -> Iterator[None]:
    """Python looks for garbage behind it.

    A program is traced into very many objects, nearly all of which stay. To look through them again and again, and
    through all modules each time, takes 0.1 to 0.35 s: a third of ConvNeXt-T's start from the cache.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _NotForThese(Exception):
    """A program is traced again, for types or under settings for which it was not divided."""


@dataclass(frozen=True)
class _Part:
    """What runs at each call: `run(prepared, the parameters that it still reads, inputs)`. tree: of its results."""

    run: Any
    prepared: tuple[Any, ...]
    weights: tuple[Any, ...]
    tree: Any


class _Again(NamedTuple):
    """A part, and all that a call like an earlier one needs beside it.

    order: the places of the inputs among the leaves. places: those of the outputs among the results. made: the
    namedtuple of several outputs.
    """

    part: _Part
    order: tuple[int, ...]
    places: tuple[int, ...]
    made: Any


@dataclass(eq=False)
class Own:
    """What is made of the parameters that a model has. A caller who replaces some gets another.

    latest: signature → the part that ran last, which raises `_NotForThese` where another one must. parts: all, by types
    and settings, None where nothing can be prepared. prepared: number of an expression → its value. again: types of the
    inputs, as they were given → what such a call needs.
    """

    params: dict[str, Any]
    concrete: bool
    latest: dict[Any, _Part] = field(default_factory=dict)
    parts: dict[Any, _Part | None] = field(default_factory=dict)
    prepared: dict[int, Any] = field(default_factory=dict)
    again: dict[Any, _Again] = field(default_factory=dict)

    def remember(
        self, part: _Part, graph: Graph, inputs: Sequence[Any], given: Mapping[str, Any], outputs: Sequence[Any]
    ) -> None:
        """Notes a call whose inputs entered as they were given, and whose outputs leave as they are."""
        entered = list(given.values())
        plain = inputs and len(inputs) == len(entered) and all(map(operator.is_, inputs, entered))
        # Of 64 bits, it may be the numbers that decide.
        if not plain or not all(_is_array(x) and x.dtype.itemsize <= 4 for x in inputs):
            return
        places = jax.tree.unflatten(part.tree, range(part.tree.num_leaves))[1]
        found = tuple(places.get(name) for name in graph.output_names)
        if all(isinstance(k, int) for k in found) and all(map(_is_declared, graph.outputs, outputs)):
            names, order = tuple(v.name for v in graph.outputs), [list(given).index(name) for name in sorted(given)]
            made = named_outputs(names) if len(names) > 1 else None
            self.again[tuple(map(_kind, inputs))] = _Again(part, tuple(order), found, made)


@dataclass(eq=False)
class Prepared:
    """The programs of one model whose weights are prepared, one for each signature, and these weights.

    compiled: the jitted function of (*what is static, params, given, rng) that they are made of. plain: the one for
    models without parameters and for meshes.
    """

    compiled: Any
    plain: Any
    _own: Own = field(default_factory=lambda: Own({}, True))
    _numbers: dict[Any, int] = field(default_factory=dict)  # expression → its number

    def own(self, params: Mapping[str, Any]) -> Own:
        """What is made of these parameters."""
        own = self._own
        if len(params) != len(own.params) or not all(map(operator.is_, params.values(), own.params.values())):
            own = self._own = Own(dict(params), all(map(is_concrete, params.values())))
        return own

    def again(self, params: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
        """What a model gives for these inputs, by a program that is there; None where more must be looked at.

        Most calls are like one before. To enter and leave the model as others do takes longer than a small program.
        """
        own = self._own
        try:
            found = own.again.get(tuple(map(_kind, inputs)))
        except (AttributeError, TypeError):  # no arrays
            return None
        if found is None or cast(Any, jax.config).jax_disable_jit or tracing():
            return None
        if len(params) != len(own.params) or not all(map(operator.is_, params.values(), own.params.values())):
            return None
        part, order, places, made = found
        try:
            results = part.run(part.prepared, part.weights, [inputs[k] for k in order])
        except (_NotForThese, JaxRuntimeError):
            own.again.clear()
            return None
        return results[places[0]] if made is None else made(*[results[k] for k in places])

    def call(
        self, own: Own, static: tuple[Any, ...], given: Any, rng: Any, leaves: list[Any], tree: Any
    ) -> tuple[_Part | None, Any]:
        """What ran, and the result of `compiled`. leaves, tree: of (given, rng), JAX arrays that are not traced."""
        signature = (static, tree, *[(x.shape, x.dtype) for x in leaves])
        part = own.latest.get(signature)
        if part is not None:
            try:
                return part, jax.tree.unflatten(part.tree, part.run(part.prepared, part.weights, leaves))
            except _NotForThese:
                own.latest.pop(signature, None)
        with _garbage_later():
            key = static, tree, *map(jax.typeof, leaves), _settings()
            if key not in own.parts:
                own.parts[key] = self._part(own, static, given, rng)
            part = own.parts[key]
            if part is None:
                return None, self.plain(*static, own.params, given, rng)
            own.latest[signature] = part
            return part, jax.tree.unflatten(part.tree, part.run(part.prepared, part.weights, leaves))

    @property
    def values(self) -> list[jax.Array]:
        """What was prepared for all calls so far."""
        return list(self._own.prepared.values())

    def __str__(self) -> str:
        size = sum(x.nbytes for x in self.values)
        return f"{len(self.values)} values of {size:,} bytes, computed once from parameters"

    def _part(self, own: Own, static: tuple[Any, ...], given: Any, rng: Any) -> _Part | None:
        """The program for one signature; None where nothing can be prepared."""
        params = own.params
        if not params or is_on_mesh((params, given)):
            return None
        traced = self.compiled.trace(*static, params, given, rng)
        program = kept.kept_late(opened_program(traced.jaxpr, jax.default_backend()))
        weights = dict(enumerate(sorted(params)))  # the leaves of a dictionary come in the order of its keys
        found = _Division(program, weights)
        expressions = self._expressions(program, weights, found)
        missing = [v for v in found.prepared if expressions[v] not in own.prepared]
        if missing:
            own.prepared.update(
                self._computed(program, missing, [params[name] for name in weights.values()], expressions)
            )
        prepared = tuple(own.prepared[expressions[v]] for v in found.prepared)
        made_for = _settings(), list(map(jax.typeof, jax.tree.leaves((given, rng))))
        shapes = {v: getattr(type, "shape", ()) for v, type in enumerate(program.types)}
        rest = loops.looped(found.rest, shapes, program.outputs) if jax.default_backend() == "cpu" else found.rest

        def run(values: Any, weights: Any, leaves: Any) -> list[Any]:
            if made_for != (_settings(), list(map(jax.typeof, leaves))):
                raise _NotForThese
            known = dict(zip(found.prepared, values, strict=True))
            known |= dict(zip(found.read, weights, strict=True))
            known |= dict(zip(range(len(params), program.inputs), leaves, strict=True))
            return [layout.settled(y) for y in evaluate(rest, known, program.outputs, loops.bind)]

        return _Part(
            jax.jit(run, compiler_options=compiler_options()),
            prepared,
            tuple(params[weights[v]] for v in found.read),
            jax.tree.structure(traced.out_info),
        )

    def _computed(
        self, program: Program, missing: list[int], weights: list[Any], expressions: Mapping[int, int]
    ) -> dict[int, Any]:
        needs = needed(program.operations, missing)
        here = on_host.computed(program, needs, (v for v, x in enumerate(weights) if x.is_fully_addressable))

        def given(operations: Sequence[Operation]) -> dict[int, Any]:
            return {v: weights[v] for o in operations for v in o.operands if isinstance(v, int) and v < len(weights)}

        def by_numpy(operations: Sequence[Operation], wanted: Sequence[int]) -> list[Any]:
            arrays = {v: np.asarray(x) for v, x in given(operations).items()}
            found = evaluate(operations, arrays, wanted, on_host.bind)
            return [jax.device_put(np.array(x, order="C")) for x in found]

        def compiled(operations: Sequence[Operation], wanted: Sequence[int]) -> list[Any]:
            return jax.jit(lambda given: evaluate(operations, given, wanted))(given(operations))

        found: dict[int, Any] = {}
        for compute, numbers in (
            (by_numpy, [v for v in missing if v in here]),
            (compiled, [v for v in missing if v not in here]),
        ):
            if numbers:
                results = compute(needed(needs, numbers), numbers)
                found.update(zip((expressions[v] for v in numbers), results, strict=True))
        return found

    def _expressions(self, program: Program, weights: Mapping[int, str], found: "_Division") -> dict[int, int]:
        """For each value that depends on parameters alone, the number of its expression, the same in each program."""
        numbers = {v: self._number(("parameter", name)) for v, name in weights.items()}
        for operation in found.known:
            params = operation.equation.params
            operands = tuple(_constant(v) if isinstance(v, Known) else numbers[v] for v in operation.operands)
            made = tuple(map(str, (program.types[v] for v in operation.results)))
            key = operation.name, tuple(params.items()), operands, made
            number = self._number(key if _is_hashable(key) else (operation.name, str(params), operands, made))
            numbers.update((v, self._number((number, place))) for place, v in enumerate(operation.results))
        return numbers

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _kind(x: Any) -> tuple[Any, ...]:
    return type(x), x.shape, x.dtype


def _is_array(x: Any) -> bool:
    return is_concrete(x) or type(x) is np.ndarray


def _is_declared(formal: Value, y: Any) -> bool:
    return is_concrete(y) and (formal.dtype is None or y.dtype in (formal.dtype, canonical(formal.dtype)))


def _constant(operand: Known) -> Any:
    """A number by its value, 0.0 and -0.0 apart; an array is only equal to itself."""
    return operand if getattr(operand.value, "shape", ()) else repr(operand.value)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class _Division:
    """A program in two parts: what is prepared, and the rest.

    known: the operations that need nothing but parameters and constants. prepared: the values to keep. rest: the
    operations of each call. read: the parameters that they read.
    """

    def __init__(self, program: Program, weights: Mapping[int, str]) -> None:
        live = needed(program.operations, program.outputs)
        self._types = program.types
        self._roots: dict[int, frozenset[int]] = {v: frozenset([v]) for v in weights}
        self._costly: set[int] = set()
        self._room = _GROWN * LIMIT.get()
        self.known = [operation for operation in live if self._is_known(operation)]
        wanted = {v for v in program.outputs if not isinstance(v, Known)}
        known, prepared, rest = set(self.known), set(), []
        for operation in reversed(live):
            if operation in known:
                kept = wanted.intersection(operation.results)
                if all(map(self._is_worth_it, kept)):
                    prepared |= kept
                    continue
            rest.append(operation)
            wanted.update(v for v in operation.operands if not isinstance(v, Known))
        self.prepared = sorted(prepared)
        self.rest = rest[::-1]
        self.read = sorted(wanted.intersection(weights))

    def _is_known(self, operation: Operation) -> bool:
        """Whether an operation needs parameters and constants only; if so, what follows for its results."""
        operands = [v for v in operation.operands if not isinstance(v, Known)]
        if operation.equation.effects or not all(v in self._roots for v in operands):
            return False
        roots = frozenset[int]().union(*(self._roots[v] for v in operands))
        self._roots.update(dict.fromkeys(operation.results, roots))
        if operation.name not in _FREE:
            self._costly.update(operation.results)
        return True

    def _is_worth_it(self, value: int) -> bool:
        roots, size = self._roots[value], self._bytes(value)
        if not roots or value not in self._costly:
            return False
        if size > max(_SMALL, _MOST_BYTES * sum(map(self._bytes, roots))):
            if size > self._room:
                return False
            self._room -= size
        return True

    def _bytes(self, value: int) -> int:
        found = self._types[value]
        return math.prod(found.shape) * found.dtype.itemsize
