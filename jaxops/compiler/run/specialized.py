"""A specialized program is two pure functions: one prepares the weights, one runs at each call. Compiles them."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from jaxops.compiler.run.prepare_weights import WeightProgram
from jaxops.compiler.run.segments import SegmentedProgram
from jaxops.host import trim_heap
from jaxops.lazy_array import arrays, type_of
from jaxops.progress import step


@dataclass(frozen=True)
class Specialized:
    """A program in two parts, both pure.

    prepare: computes the prepared values from all weights. run: computes a list of outputs from the prepared values,
    the weights that it still reads, and the inputs. read: the positions of the weights that `run` reads. options: those
    of XLA's compiler for `run`.
    """

    prepare: WeightProgram
    read: tuple[int, ...]
    run: Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
    options: dict[str, Any] | None = None


class CacheEntry(Protocol):
    """An entry of the cache: reads and writes one compiled program."""

    def read(self) -> tuple[WeightProgram, tuple[int, ...], Any, Callable[[], Any]] | None:
        """Returns `prepare`, `read`, the tree of the results, and a function; None where the entry is empty.

        The function waits until the compiled program is loaded, and returns it, or None where it cannot be loaded.
        """
        ...

    def write(self, specialized: Specialized, tree: Any, lowered: Any) -> Any:
        """Compiles a program and writes it; returns the compiled program, or None where it cannot be written."""
        ...


class ProgramCache(Protocol):
    """A cache of compiled programs that other processes can read."""

    def entry(self, *parts: Any) -> CacheEntry | None:
        """Returns the entry for the key that `parts` and this machine's settings make; None where there can be none."""


def program_name(model: str) -> str:
    """Returns the name of a model's program, as profilers and compiled texts show it.

    >>> program_name("Net/encoder:0")
    'Net_encoder_0'
    """
    return re.sub(r"[^0-9A-Za-z_]", "_", model)[:100] or "model"


def jitted(specialized: Specialized, name: str, check: Callable[[Sequence[Any]], None]) -> Any:
    """Returns `run`, jitted; if it has segments, each of them is jitted.

    name: of the program; it is a part of the key in JAX's cache. check: raises an error if a program without segments
    is traced for inputs of other types.
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
    """Compiles `run`, so that its first call does not; returns the compiled program if it was stored, or else `run`.

    While XLA compiles a segment, the next one is lowered, and weights are read and prepared. run: jitted. store:
    compiles a lowered program and writes it to a file, or returns None where it cannot; None without a cache. cache:
    expression → prepared value.
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
