"""Runs calls of `model(…)` with specialized programs: operations on weights alone are computed once.

The program of `model.apply` is split into two parts. The first depends on parameters only: filters in another layout,
1/sqrt(variance + epsilon), concatenated weights of two products. It runs once, and its results replace the parameters
in the second part, which runs at each call. Operators do not depend on this; their named calls become kernels for this
machine in `compiler.passes.select_kernels`. Gradients use `apply`, which is not split.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
from jax.sharding import get_abstract_mesh

from jaxops.compiler import pipeline
from jaxops.compiler.run.prepare_weights import WeightProgram
from jaxops.compiler.run.segments import SegmentedProgram
from jaxops.compiler.run.specialized import CacheEntry, ProgramCache, compiled, jitted, program_name
from jaxops.garbage import garbage_later
from jaxops.kernels.target import Target, this_machine
from jaxops.lazy_array import arrays, type_of
from jaxops.memory import LIMIT, bounded_total
from jaxops.runtime.recently_used import RecentlyUsed
from jaxops.runtime.repeated_calls import CallCache, Executable, SignatureChanged

_read_settings = operator.attrgetter(
    *("jax_default_matmul_precision", "jax_enable_x64", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion"),
    *("jax_debug_nans", "jax_debug_infs"),
)


def settings_now() -> tuple[Any, ...]:
    """Returns the settings that determine how a function is traced and run, besides its arguments."""
    return (*_read_settings(jax.config), get_abstract_mesh(), pipeline.skipped())


class ReadsTracers(Exception):
    """Raised for a program that reads traced values besides its arguments, as an operator of the caller may."""


@dataclass(eq=False)
class SpecializedCalls:
    """The specialized programs of one model, one for each signature.

    compiled: the jitted function of (*static arguments, params, inputs, rng) that is specialized. stored: a cache for
    other processes, or None. programs: signature → program, for all parameters of the same types.
    """

    compiled: Any
    stored: ProgramCache | None = None
    programs: "RecentlyUsed[Any, _Program]" = field(default_factory=RecentlyUsed)

    def call(
        self, cache: CallCache, static: tuple[Any, ...], inputs: Any, rng: Any, leaves: list[Any], tree: Any
    ) -> tuple[Executable, Any]:
        """Returns the executable and the result of `compiled`. leaves, tree: of (inputs, rng), without tracers.

        Raises ReadsTracers.
        """
        signature = (static, tree, *[(x.shape, x.dtype) for x in leaves])
        executable = cache.executables.used(signature)
        if executable is not None:
            try:
                return executable, _result(executable, leaves)
            except SignatureChanged:
                cache.executables.pop(signature, None)
        with garbage_later():
            executable = cache.executables[signature] = self._executable(cache, static, inputs, rng, leaves, tree)
            return executable, _result(executable, leaves)

    def _executable(
        self, cache: CallCache, static: tuple[Any, ...], inputs: Any, rng: Any, leaves: list[Any], tree: Any
    ) -> Executable:
        """Returns the program for one signature."""
        params, settings = cache.params, settings_now()
        weights = [params[name] for name in sorted(params)]  # as JAX orders the leaves of a dictionary
        signature = static, tree, settings, *map(jax.typeof, leaves), *(jax.typeof(type_of(x)) for x in weights)
        program = self.programs.used(signature)
        if program is None:
            entry = None
            if self.stored is not None and rng is None:
                types = {name: str(jax.typeof(type_of(x))) for name, x in params.items()}
                entry = self.stored.entry(*static, inputs, types, settings, LIMIT.get())
            program = _loaded(entry, cache, weights) or self._specialized(cache, static, inputs, rng, leaves, entry)
            self.programs[signature] = program
        prepare, read, tree, run = program
        if isinstance(run, jax.stages.Compiled | SegmentedProgram):
            # A compiled program does not check settings, and segments would be compiled for other settings silently.
            unchecked = run

            def run(prepared: Any, weights: Any, leaves: Any) -> Any:
                if settings != settings_now():
                    raise SignatureChanged
                return unchecked(prepared, weights, leaves)

        prepared = prepare.cached(cache.prepared, weights)
        return Executable(run, prepared, tuple(arrays([weights[k] for k in read])), tree)

    def _specialized(
        self, cache: CallCache, static: tuple[Any, ...], inputs: Any, rng: Any, leaves: list[Any], entry: Any
    ) -> "_Program":
        """Traces, specializes and compiles the program for one signature. entry: of the cache for it, or None."""
        types = {name: type_of(x) for name, x in cache.params.items()}
        traced = self.compiled.trace(*static, types, inputs, rng)
        if len(traced.jaxpr.in_avals) > len(types) + len(leaves):  # JAX makes arguments of constants that it traces
            raise ReadsTracers
        target = this_machine(specialized=True, prepared=True, compiled_here=True)
        specialized = pipeline.specialize(traced.jaxpr, len(types), target)
        tree, signature = jax.tree.structure(traced.out_info), (settings_now(), list(map(jax.typeof, leaves)))

        def check(leaves: Sequence[Any]) -> None:
            if signature != (settings_now(), list(map(jax.typeof, leaves))):
                raise SignatureChanged

        name = program_name(static[0].name)
        # The name is a part of the key in JAX's own cache, where a program that the entry stores must not be found.
        run = jitted(specialized, name if entry is None else f"{name}_stored", check)
        bounded = functools.partial(_bounded, traced.jaxpr, target)
        store = None if entry is None else lambda lowered: entry.write(specialized, tree, lowered, bounded)
        weights = [cache.params[name] for name in sorted(cache.params)]
        run = compiled(specialized, run, store, bounded, cache.prepared, weights, leaves)
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


def _bounded(jaxpr: Any, target: Target, extent: int) -> None:
    """Raises TooLargeError if a call takes more memory than it may. Other platforms than a CPU say it themselves.

    extent: the bytes of its results, and of the values that it holds on the way.
    """
    if target.platform != "cpu" or extent <= target.max_bytes:
        return
    made = [(v.aval, str(equation.source_info.name_stack)) for equation in jaxpr.eqns for v in equation.outvars]
    largest = ""
    if made:
        type, node = max(made, key=lambda value: value[0].size * value[0].dtype.itemsize)
        largest = f", the largest {type.str_short()} of '{node}',"
    bounded_total(extent, f"the values that one call holds together{largest}", target.max_bytes)
