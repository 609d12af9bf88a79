"""What depends on the weights alone, computed once (the sixth idea of the design).

A call of `model(…)` runs the program of `model.apply` in two parts. The first needs nothing but parameters: filters
in another layout, 1/sqrt(variance + epsilon), weights of two products side by side. It runs once, and its results take
the place of the parameters in the second, which runs at each call. Operators know only that they may ask for any
layout of their weights (`static.PREPARED`), and gradients, which follow `apply`, see the whole.
"""

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

import jax
import numpy as np
from jax.sharding import get_abstract_mesh

from jaxops.compiler.ir import evaluate, opened_program
from jaxops.compiler.partition import repeated_layers
from jaxops.compiler.partition.weight_only import Division
from jaxops.compiler.passes import block_attention, lazy_moves, sink_barriers
from jaxops.compiler.passes.concat_in_place import grown
from jaxops.compiler.passes.defer_elementwise import concatenated_first
from jaxops.compiler.passes.keep_order import in_order
from jaxops.compiler.passes.lift_scalars import numbers_as_arguments
from jaxops.compiler.run.prepare_weights import Preparation, preparation
from jaxops.compiler.run.segments import Chain, chained
from jaxops.compiler.xla_options import compiler_options
from jaxops.dtypes import as_canonical, canonical
from jaxops.errors import OutOfRangeError
from jaxops.garbage import garbage_later, give_back
from jaxops.graph.nodes import Graph, Value
from jaxops.lazy_array import Unread, arrays, is_the_same, named_arrays, type_of
from jaxops.memory import LIMIT
from jaxops.opaque import Deferred
from jaxops.runtime.arguments import named_outputs
from jaxops.runtime.auto_axes import is_on_mesh
from jaxops.static import JaxRuntimeError, is_concrete, tracing

_read_settings = operator.attrgetter(
    *("jax_default_matmul_precision", "jax_enable_x64", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion"),
    *("jax_debug_nans", "jax_debug_infs"),
)


def _settings() -> tuple[Any, ...]:
    """What decides how a function is traced and run, besides its arguments."""
    return (*_read_settings(jax.config), get_abstract_mesh())


class _NotForThese(Exception):
    """A program is traced again, for types or under settings for which it was not divided."""


@dataclass(frozen=True)
class Divided:
    """A program in two parts. run: the second, of (what is prepared, the parameters that it reads, inputs).

    read: the numbers of these parameters, in the order of their names. tree: of the results.
    """

    preparation: Preparation
    read: tuple[int, ...]
    tree: Any
    run: Any


class Place(Protocol):
    """Where a file keeps a divided program, or may."""

    def read(self) -> tuple[Preparation, Sequence[int], Callable[[], Divided | None]] | None:
        """How weights are prepared, the numbers of those that the program reads, and what gives it, neither traced nor
        compiled, or None if that fails.

        None where there is nothing.
        """

    def write(self, divided: Divided, lowered: Any) -> Divided:
        """The same, compiled and kept, where a file can keep it. lowered: what it runs."""
        ...


class Programs(Protocol):
    """What keeps programs for other processes."""

    def place(self, *of: Any) -> Place | None:
        """The place of the program that all this, and this process, makes; None where none can be kept."""


@dataclass(frozen=True)
class _Part:
    """What runs at each call: `run(prepared, the parameters that it still reads, inputs)`. tree: of its results."""

    run: Any
    prepared: tuple[Any, ...]
    weights: tuple[Any, ...]
    tree: Any


class _Again(NamedTuple):
    """A part, and all that a call like an earlier one needs beside it.

    order: for each leaf, the place of its input. narrowed: those of 64 bits that enter as 32. places: of the outputs
    among the results, or a `Deferred` of the place. made: the namedtuple of several outputs.
    """

    part: _Part
    order: tuple[int, ...]
    narrowed: tuple[int, ...]
    places: tuple[int | Deferred, ...]
    made: Any


@dataclass(eq=False)
class Own:
    """What is made of the parameters that a model has. A caller who replaces some gets another.

    latest: signature → the part that ran last, which raises `_NotForThese` where another one must. parts: all, by types
    and settings, None on a mesh. prepared: expression → its value. again: types of the inputs, as they were given →
    what such a call needs.
    """

    params: dict[str, Any]
    concrete: bool
    latest: dict[Any, _Part] = field(default_factory=dict)
    parts: dict[Any, _Part | None] = field(default_factory=dict)
    prepared: dict[str, Any] = field(default_factory=dict)
    again: dict[Any, _Again] = field(default_factory=dict)

    def has(self, params: Mapping[str, Any]) -> bool:
        """Whether these are the parameters, of which some may have been read meanwhile."""
        if len(params) != len(self.params):
            return False
        if all(map(operator.is_, params.values(), self.params.values())):
            return True
        if not all(map(is_the_same, params.values(), self.params.values())):
            return False
        self.params = dict(params)
        return True

    def remember(
        self, part: _Part, graph: Graph, inputs: Sequence[Any], given: Mapping[str, Any], outputs: Sequence[Any]
    ) -> None:
        """Notes a call whose inputs entered as they were given, or with fewer bits, and whose outputs leave as they
        are."""
        entered = list(given.values())
        if not inputs or len(inputs) != len(entered) or not all(map(_is_array, inputs)):
            return
        changed = [k for k, (x, y) in enumerate(zip(inputs, entered, strict=True)) if x is not y]
        if not all(_is_narrowed(inputs[k], entered[k]) for k in changed):
            return
        places = jax.tree.unflatten(part.tree, range(part.tree.num_leaves))[1]
        found = tuple(places.get(name) for name in graph.output_names)
        if all(isinstance(k, int | Deferred) for k in found) and all(map(_is_declared, graph.outputs, outputs)):
            names, order = tuple(v.name for v in graph.outputs), [list(given).index(name) for name in sorted(given)]
            made = named_outputs(names) if len(names) > 1 else None
            self.again[tuple(map(_kind, inputs))] = _Again(part, tuple(order), tuple(changed), found, made)


@dataclass(eq=False)
class Prepared:
    """The programs of one model whose weights are prepared, one for each signature, and these weights.

    compiled: the jitted function of (*what is static, params, given, rng) that they are made of. plain: the one for
    meshes. programs: what keeps them for other processes, if anything does.
    """

    compiled: Any
    plain: Any
    programs: Programs | None = None
    _own: Own = field(default_factory=lambda: Own({}, True))

    def own(self, params: Mapping[str, Any]) -> Own:
        """What is made of these parameters."""
        if not self._own.has(params):
            concrete = all(isinstance(x, Unread) or is_concrete(x) for x in params.values())
            self._own = Own(dict(params), concrete)
        return self._own

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
        if not own.has(params):
            return None
        part, order, narrowed, places, made = found
        try:
            given = [as_canonical(inputs[k]) if k in narrowed else inputs[k] for k in order]
            results = part.run(part.prepared, part.weights, given)
        except OutOfRangeError:  # told with the name of the input
            return None
        except (_NotForThese, JaxRuntimeError):
            own.again.clear()
            return None
        left = [results[k] if isinstance(k, int) else k.value_of(results[k.array]) for k in places]
        return left[0] if made is None else made(*left)

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
        with garbage_later():
            key = static, tree, *map(jax.typeof, leaves), _settings()
            if key not in own.parts:
                own.parts[key] = self._part(own, static, given, rng, leaves)
            part = own.parts[key]
            if part is None:
                return None, self.plain(*static, named_arrays(own.params), given, rng)
            own.latest[signature] = part
            return part, jax.tree.unflatten(part.tree, part.run(part.prepared, part.weights, leaves))

    @property
    def values(self) -> list[jax.Array]:
        """What was prepared for all calls so far."""
        return list(self._own.prepared.values())

    def __str__(self) -> str:
        size = sum(x.nbytes for x in self.values)
        return f"{len(self.values)} values of {size:,} bytes, computed once from parameters"

    def _part(self, own: Own, static: tuple[Any, ...], given: Any, rng: Any, leaves: list[Any]) -> _Part | None:
        """The program for one signature; None on a mesh."""
        params, settings = own.params, _settings()
        if is_on_mesh((params, given)):
            return None
        weights = [params[name] for name in sorted(params)]
        place = None
        if self.programs is not None and rng is None:
            types = {name: str(jax.typeof(type_of(x))) for name, x in params.items()}
            place = self.programs.place(*static, given, types, settings, LIMIT.get())
        divided = None if place is None else _loaded(place, own, weights)
        if divided is None:
            divided = self._divided(own, static, given, rng, "run" if place is None else "kept")
            divided = _compiled(divided, place, own, weights, leaves)
        values = divided.preparation.computed(own.prepared, weights)
        read, run = tuple(arrays([weights[v] for v in divided.read])), divided.run
        if isinstance(run, jax.stages.Compiled | Chain):
            # A compiled program takes what has its types, and asks nothing else; a chain is compiled anew for others.
            def run(values: Any, weights: Any, leaves: Any) -> Any:
                if settings != _settings():
                    raise _NotForThese
                return divided.run(values, weights, leaves)

        return _Part(run, values, read, divided.tree)

    def _divided(self, own: Own, static: tuple[Any, ...], given: Any, rng: Any, name: str) -> Divided:
        """name: of the program, which is a part of its key in JAX's own cache."""
        types = {name: type_of(x) for name, x in own.params.items()}
        traced = self.compiled.trace(*static, types, given, rng)
        program = sink_barriers.kept_late(in_order(opened_program(traced.jaxpr, jax.default_backend())))
        is_cpu = jax.default_backend() == "cpu"
        program = numbers_as_arguments(grown(concatenated_first(program)) if is_cpu else program)
        names = dict(enumerate(sorted(own.params)))  # the leaves of a dictionary come in the order of its keys
        found = Division(program, names)
        shapes = {v: getattr(type, "shape", ()) for v, type in enumerate(program.types)}
        inputs = *found.prepared, *found.read, *range(len(names), program.inputs)
        parts = repeated_layers.cut(found.rest, program.types, program.outputs) if is_cpu else []
        options = compiler_options(found.rest)

        def jitted(run: Any) -> Any:
            run.__name__ = name
            return jax.jit(run, compiler_options=options)

        if parts:
            whole = chained(parts, inputs, program.outputs, shapes, jitted)
        else:
            rest = block_attention.looped(found.rest, shapes, program.outputs) if is_cpu else found.rest

            def every(*given: Any) -> list[Any]:
                known = dict(zip(inputs, itertools.chain(*given), strict=True))
                return [lazy_moves.settled(y) for y in evaluate(rest, known, program.outputs, block_attention.bind)]

            whole = every

        made_for = _settings(), list(map(jax.typeof, jax.tree.leaves((given, rng))))

        def run(values: Any, weights: Any, leaves: Any) -> list[Any]:
            if made_for != (_settings(), list(map(jax.typeof, leaves))):
                raise _NotForThese
            return whole(values, weights, leaves)

        return Divided(
            preparation(program, found, names, [own.params[name] for name in names.values()]),
            tuple(found.read),
            jax.tree.structure(traced.out_info),
            whole if parts else jitted(run),
        )


def _loaded(place: Place, own: Own, weights: Sequence[Any]) -> Divided | None:
    """What a file keeps. Weights are read and prepared while it is loaded."""
    found = place.read()
    if found is None:
        return None
    preparation, read, loaded = found
    arrays([weights[v] for v in read])
    preparation.computed(own.prepared, weights)
    return loaded()


def _compiled(
    divided: Divided, place: Place | None, own: Own, weights: Sequence[Any], leaves: Sequence[Any]
) -> Divided:
    """The program, so that its first call finds it compiled. While XLA compiles a part, the next one is lowered, and
    weights are read and prepared."""
    given = divided.preparation.types, tuple(type_of(weights[v]) for v in divided.read), leaves

    def freed(compile: Callable[..., Any], *given: Any) -> Any:
        found = compile(*given)
        give_back()
        return found

    compiled: dict[int, Any] = {}
    with ThreadPoolExecutor(divided.run.at_once if isinstance(divided.run, Chain) else 1) as executor:
        if place is not None:
            compiled[0] = executor.submit(freed, place.write, divided, divided.run.lower(*given))
        elif isinstance(divided.run, Chain):
            for k, part in divided.run.lowered(*given):
                if k not in compiled:
                    compiled[k] = executor.submit(freed, part.compile)
        else:
            compiled[0] = executor.submit(freed, divided.run.lower(*given).compile)
        arrays([weights[v] for v in divided.read])
        divided.preparation.computed(own.prepared, weights)
    found = [future.result() for future in compiled.values()]
    return divided if place is None else found[0]


def _kind(x: Any) -> tuple[Any, ...]:
    return type(x), x.shape, x.dtype


def _is_array(x: Any) -> bool:
    return is_concrete(x) or type(x) is np.ndarray


def _is_narrowed(x: Any, entered: Any) -> bool:
    """Whether an input became what `as_canonical` makes of it."""
    return type(x) is type(entered) is np.ndarray and entered.dtype == canonical(x.dtype) != x.dtype


def _is_declared(formal: Value, y: Any) -> bool:
    if isinstance(y, Deferred):
        return formal.kind != "tensor" or formal.dtype in (None, getattr(y, "dtype", None))
    return is_concrete(y) and (formal.dtype is None or y.dtype in (formal.dtype, canonical(formal.dtype)))
