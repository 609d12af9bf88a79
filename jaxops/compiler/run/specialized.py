"""A specialized program: two pure functions, of the weights and of each call, and how they are compiled."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from jaxops.compiler.run.prepare_weights import WeightProgram
from jaxops.compiler.run.repeated_layers import SegmentedProgram
from jaxops.host import trim_heap
from jaxops.lazy_array import arrays, type_of
from jaxops.progress import step


@dataclass(frozen=True)
class Specialized:
    """A program in two parts, both pure.

    prepare: from all weights to the prepared values. run: from (prepared, the weights that it still reads, inputs) to a
    list of outputs. read: the positions of these weights. options: of XLA's compiler for `run`.
    """

    prepare: WeightProgram
    read: tuple[int, ...]
    run: Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
    options: dict[str, Any] | None = None


class CacheEntry(Protocol):
    """The place in a file of one compiled program."""

    def read(self) -> tuple[WeightProgram, tuple[int, ...], Any, Callable[[], Any]] | None:
        """Returns `prepare` and `read` of a program, the tree of its results, and a function that waits for what runs
        it, or gives None where that cannot be loaded; None where nothing is there.
        """
        ...

    def write(self, specialized: Specialized, tree: Any, lowered: Any) -> Any:
        """Compiles and keeps the program; returns what runs it, or None where a file cannot keep it."""
        ...


class ProgramCache(Protocol):
    """Keeps programs for other processes."""

    def entry(self, *parts: Any) -> CacheEntry | None:
        """Returns the entry of the program that all this, and this process, makes; None where it cannot be kept."""


def jitted(specialized: Specialized, name: str, check: Callable[[Sequence[Any]], None]) -> Any:
    """Returns `run`, jitted; each of its segments, where it has some.

    name: of the program, a part of its key in JAX's cache. check: raises while a program of one segment is traced for
    inputs that it is not made for.
    """

    def jit(fn: Callable[..., Any]) -> Any:
        fn.__name__ = name
        return jax.jit(fn, compiler_options=specialized.options)

    if isinstance(specialized.run, SegmentedProgram):
        return specialized.run.jitted(jit)

    def run(prepared: Any, weights: Any, inputs: Any) -> list[Any]:
        check(inputs)
        return specialized.run(prepared, weights, inputs)

    return jit(run)


def compiled(
    specialized: Specialized,
    run: Any,
    store: Callable[[Any], Any] | None,
    cache: dict[str, Any],
    weights: Sequence[Any],
    inputs: Sequence[Any],
) -> Any:
    """Compiles `run`, so that its first call finds it compiled; returns what runs it.

    While XLA compiles a segment, the next one is lowered, and weights are read and prepared. run: jitted. store:
    compiles and keeps what is lowered, where a file may keep it; None where none may. cache: of prepared values.
    """
    types = specialized.prepare.types, tuple(type_of(weights[k]) for k in specialized.read), inputs

    def freed(compile: Callable[..., Any], *lowered: Any) -> Any:
        result = compile(*lowered)
        trim_heap()
        return result

    futures: dict[int, Any] = {}
    with ThreadPoolExecutor(run.at_once if isinstance(run, SegmentedProgram) else 1) as executor:
        if store is not None:
            futures[0] = executor.submit(freed, store, run.lower(*types))
        elif isinstance(run, SegmentedProgram):
            for number, segment in run.lowered(*types):
                if number not in futures:
                    futures[number] = executor.submit(freed, segment.compile)
        else:
            futures[0] = executor.submit(freed, run.lower(*types).compile)
        arrays([weights[k] for k in specialized.read])
        specialized.prepare.cached(cache, weights)
        results = []
        for number, future in enumerate(futures.values(), 1):
            if len(futures) > 1:
                step(f"part {number} of {len(futures)}")
            results.append(future.result())
    return run if store is None or results[0] is None else results[0]
