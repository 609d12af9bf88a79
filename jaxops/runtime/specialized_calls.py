"""Runs calls of `model(…)` with specialized programs: operations on weights alone are computed once.

The program of `model.apply` is split into two parts. The first depends on parameters only: filters in another layout,
1/sqrt(variance + epsilon), concatenated weights of two products. It runs once, and its results replace the parameters
in the second part, which runs at each call. Operators do not depend on this; their named calls become kernels for this
machine in `compiler.passes.select_kernels`. Gradients use `apply`, which is not split.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax.sharding import get_abstract_mesh

from jaxops.compiler import pipeline
from jaxops.compiler.run.prepare_weights import WeightProgram
from jaxops.compiler.run.segments import SegmentedProgram
from jaxops.compiler.run.specialized import CacheEntry, ProgramCache, compiled, jitted
from jaxops.dtypes import as_canonical, canonical
from jaxops.errors import OutOfRangeError, amount
from jaxops.garbage import garbage_later
from jaxops.graph.nodes import Graph, Value
from jaxops.kernels.target import this_machine
from jaxops.lazy_array import Unread, arrays, is_the_same, named_arrays, type_of
from jaxops.memory import LIMIT
from jaxops.opaque import Deferred
from jaxops.runtime.arguments import named_outputs
from jaxops.runtime.auto_axes import is_on_mesh
from jaxops.runtime.recently_used import RecentlyUsed
from jaxops.static import JaxRuntimeError, is_concrete, tracing

_read_settings = operator.attrgetter(
    *("jax_default_matmul_precision", "jax_enable_x64", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion"),
    *("jax_debug_nans", "jax_debug_infs"),
)


_ABSENT = object()


def _settings() -> tuple[Any, ...]:
    """Returns the settings that determine how a function is traced and run, besides its arguments."""
    return (*_read_settings(jax.config), get_abstract_mesh(), pipeline.skipped())


class _SignatureChanged(Exception):
    """Raised by a program that is called with other types or settings than it was specialized for."""


@dataclass(frozen=True)
class Executable:
    """A program that runs at each call: `run(prepared, weights, leaves of the inputs)`.

    weights: the parameters that it reads besides the prepared values. tree: the structure of its results.
    """

    run: Any
    prepared: tuple[Any, ...]
    weights: tuple[Any, ...]
    tree: Any


class FastCall(NamedTuple):
    """An executable, and the facts that are needed to call it for inputs of the same types as before.

    order: for each leaf, the position of its input. narrowed: positions of 64-bit inputs that are converted to 32 bits.
    positions: of the outputs among the results, or a `Deferred` of the position. result_type: the namedtuple of several
    outputs; None for one output.
    """

    executable: Executable
    order: tuple[int, ...]
    narrowed: tuple[int, ...]
    positions: tuple[int | Deferred, ...]
    result_type: Any


@dataclass(eq=False)
class CallCache:
    """Everything that was computed for the parameters of a model. Other parameters get another cache.

    latest: signature → the executable that ran last; it raises `_SignatureChanged` if another one is needed.
    executables: types and settings → executable; None on a mesh. prepared: expression → its value. fast_calls: types of
    the inputs, as the caller passed them → fast call.
    """

    params: dict[str, Any]
    concrete: bool
    latest: RecentlyUsed[Any, Executable] = field(default_factory=RecentlyUsed)
    executables: RecentlyUsed[Any, Executable | None] = field(default_factory=RecentlyUsed)
    prepared: dict[str, Any] = field(default_factory=dict)
    fast_calls: RecentlyUsed[Any, FastCall] = field(default_factory=RecentlyUsed)

    def has(self, params: Mapping[str, Any]) -> bool:
        """Tells whether these are the parameters of the cache; some may have been read from the file since."""
        if len(params) != len(self.params):
            return False
        if all(map(operator.is_, params.values(), self.params.values())):
            return True
        if not all(map(is_the_same, params.values(), self.params.values())):
            return False
        self.params = dict(params)
        return True

    def remember(
        self,
        executable: Executable,
        graph: Graph,
        inputs: Sequence[Any],
        bound: Mapping[str, Any],
        outputs: Sequence[Any],
    ) -> None:
        """Adds a fast call, if inputs need no conversion but that to 32 bits, and outputs need none.

        inputs: as the caller passed them. bound: the inputs by name, after conversion.
        """
        entered = list(bound.values())
        if not inputs or len(inputs) != len(entered) or not all(map(_is_array, inputs)):
            return
        changed = [k for k, (x, y) in enumerate(zip(inputs, entered, strict=True)) if x is not y]
        if not all(_is_narrowed(inputs[k], entered[k]) for k in changed):
            return
        tree = executable.tree
        by_name = jax.tree.unflatten(tree, range(tree.num_leaves))[1]
        positions = tuple(by_name.get(name) for name in graph.output_names)
        if all(isinstance(k, int | Deferred) for k in positions) and all(map(_is_declared, graph.outputs, outputs)):
            names, order = tuple(v.name for v in graph.outputs), [list(bound).index(name) for name in sorted(bound)]
            result_type = named_outputs(names) if len(names) > 1 else None
            fast = FastCall(executable, tuple(order), tuple(changed), positions, result_type)
            self.fast_calls[tuple(map(_kind, inputs))] = fast


@dataclass(eq=False)
class SpecializedCalls:
    """The specialized programs of one model, one for each signature, and its prepared weights.

    compiled: the jitted function of (*static arguments, params, inputs, rng) that is specialized; on a mesh it runs as
    it is. specialized: signature → program, for all parameters of the same types. programs: a cache for other
    processes, or None.
    """

    compiled: Any
    specialized: "RecentlyUsed[Any, _Program]"
    programs: ProgramCache | None = None
    _cache: CallCache = field(default_factory=lambda: CallCache({}, True))

    def cache(self, params: Mapping[str, Any]) -> CallCache:
        """Returns the cache of these parameters."""
        if not self._cache.has(params):
            concrete = all(isinstance(x, Unread) or is_concrete(x) for x in params.values())
            self._cache = CallCache(dict(params), concrete)
        return self._cache

    def call_again(self, params: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
        """Returns the result of a fast call for these inputs; None if there is none.

        Checking inputs and outputs takes longer than a small program, and most calls have the types of an earlier one.
        """
        cache = self._cache
        try:
            fast = cache.fast_calls.used(tuple(map(_kind, inputs)))
        except (AttributeError, TypeError):  # inputs that are not arrays
            return None
        if fast is None or cast(Any, jax.config).jax_disable_jit or tracing():
            return None
        if not cache.has(params):
            return None
        executable, order, narrowed, positions, result_type = fast
        try:
            leaves = [as_canonical(inputs[k]) if k in narrowed else inputs[k] for k in order]
            results = executable.run(executable.prepared, executable.weights, leaves)
        except OutOfRangeError:  # the usual path raises it with the name of the input
            return None
        except (_SignatureChanged, JaxRuntimeError):
            cache.fast_calls.clear()
            return None
        outputs = [results[k] if isinstance(k, int) else k.value_of(results[k.array]) for k in positions]
        return outputs[0] if result_type is None else result_type(*outputs)

    def call(
        self, cache: CallCache, static: tuple[Any, ...], inputs: Any, rng: Any, leaves: list[Any], tree: Any
    ) -> tuple[Executable | None, Any]:
        """Returns the executable (None on a mesh) and the result of `compiled`. leaves, tree: of (inputs, rng), without
        tracers."""
        signature = (static, tree, *[(x.shape, x.dtype) for x in leaves])
        executable = cache.latest.used(signature)
        if executable is not None:
            try:
                return executable, _result(executable, leaves)
            except _SignatureChanged:
                cache.latest.pop(signature, None)
        with garbage_later():
            key = static, tree, *map(jax.typeof, leaves), _settings()
            executable = cache.executables.used(key, _ABSENT)
            if executable is _ABSENT:
                executable = self._executable(cache, key, static, inputs, rng, leaves)
                cache.executables[key] = executable
            if executable is None:
                return None, self.compiled(*static, named_arrays(cache.params), inputs, rng)
            cache.latest[signature] = executable
            return executable, _result(executable, leaves)

    @property
    def values(self) -> list[jax.Array]:
        """The values that were prepared so far."""
        return list(self._cache.prepared.values())

    def __str__(self) -> str:
        size = sum(x.nbytes for x in self.values)
        return f"{amount(len(self.values), 'value')} of {amount(size, 'byte')}, computed once from parameters"

    def _executable(
        self, cache: CallCache, key: Any, static: tuple[Any, ...], inputs: Any, rng: Any, leaves: list[Any]
    ) -> Executable | None:
        """Returns the program for one signature; None on a mesh."""
        params, settings = cache.params, _settings()
        if is_on_mesh((params, inputs)):
            return None
        weights = [params[name] for name in sorted(params)]  # as JAX orders the leaves of a dictionary
        signature = key, tuple(jax.typeof(type_of(x)) for x in weights)
        program = self.specialized.used(signature)
        if program is None:
            entry = None
            if self.programs is not None and rng is None:
                types = {name: str(jax.typeof(type_of(x))) for name, x in params.items()}
                entry = self.programs.entry(*static, inputs, types, settings, LIMIT.get())
            program = _loaded(entry, cache, weights) or self._specialized(cache, static, inputs, rng, leaves, entry)
            self.specialized[signature] = program
        prepare, read, tree, run = program
        if isinstance(run, jax.stages.Compiled | SegmentedProgram):
            # A compiled program does not check settings, and segments would be compiled for other settings silently.
            unchecked = run

            def run(prepared: Any, weights: Any, leaves: Any) -> Any:
                if settings != _settings():
                    raise _SignatureChanged
                return unchecked(prepared, weights, leaves)

        prepared = prepare.cached(cache.prepared, weights)
        return Executable(run, prepared, tuple(arrays([weights[k] for k in read])), tree)

    def _specialized(
        self,
        cache: CallCache,
        static: tuple[Any, ...],
        inputs: Any,
        rng: Any,
        leaves: Sequence[Any],
        entry: CacheEntry | None,
    ) -> "_Program":
        """Traces, specializes and compiles the program for one signature."""
        types = {name: type_of(x) for name, x in cache.params.items()}
        traced = self.compiled.trace(*static, types, inputs, rng)
        target = this_machine(specialized=True, prepared=True, compiled_here=True)
        specialized = pipeline.specialize(traced.jaxpr, len(types), target)
        tree, signature = jax.tree.structure(traced.out_info), (_settings(), list(map(jax.typeof, leaves)))

        def check(leaves: Sequence[Any]) -> None:
            if signature != (_settings(), list(map(jax.typeof, leaves))):
                raise _SignatureChanged

        # The name is a part of the key in JAX's own cache, where a program that the entry stores must not be found.
        run = jitted(specialized, "run" if entry is None else "stored", check)
        store = None if entry is None else lambda lowered: entry.write(specialized, tree, lowered)
        weights = [cache.params[name] for name in sorted(cache.params)]
        run = compiled(specialized, run, store, cache.prepared, weights, leaves)
        return _Program(specialized.prepare, specialized.read, tree, run)


class _Program(NamedTuple):
    """A specialized program, compiled. tree: of the results."""

    prepare: WeightProgram
    read: tuple[int, ...]
    tree: Any
    run: Any


def _loaded(entry: CacheEntry | None, cache: CallCache, weights: Sequence[Any]) -> _Program | None:
    """Returns the stored program; None if there is none. Weights are read and prepared while it is loaded."""
    if entry is None or (content := entry.read()) is None:
        return None
    prepare, read, tree, wait = content
    arrays([weights[k] for k in read])
    prepare.cached(cache.prepared, weights)
    run = wait()
    return None if run is None else _Program(prepare, read, tree, run)


def _result(executable: Executable, leaves: Sequence[Any]) -> Any:
    return jax.tree.unflatten(executable.tree, executable.run(executable.prepared, executable.weights, leaves))


def _kind(x: Any) -> tuple[Any, ...]:
    return type(x), x.shape, x.dtype


def _is_array(x: Any) -> bool:
    return is_concrete(x) or type(x) is np.ndarray


def _is_narrowed(x: Any, entered: Any) -> bool:
    """Tells whether an input was converted by `as_canonical`."""
    return type(x) is type(entered) is np.ndarray and entered.dtype == canonical(x.dtype) != x.dtype


def _is_declared(formal: Value, y: Any) -> bool:
    if isinstance(y, Deferred):
        return formal.kind != "tensor" or formal.dtype in (None, getattr(y, "dtype", None))
    return is_concrete(y) and (formal.dtype is None or y.dtype in (formal.dtype, canonical(formal.dtype)))
