"""A program in segments that run one after the other, some of them equal."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax

from jaxops.compiler import ir
from jaxops.compiler.ir import Emit, Program
from jaxops.compiler.partition.repeated_layers import Segment
from jaxops.compiler.passes import lazy_moves
from jaxops.compiler.passes.sink_transposes import of_strong_type

# Lazy values are pytrees, so that they can pass from one segment to the next without a transpose.
jax.tree_util.register_dataclass(lazy_moves.LazyTranspose, ["array"], ["perm"])
jax.tree_util.register_dataclass(lazy_moves.LazyReshape, ["transposed"], ["shape"])
jax.tree_util.register_dataclass(lazy_moves.LazyBroadcast, ["array"], ["shape", "axes"])


@dataclass(frozen=True)
class SegmentCall:
    """The place of a segment in a program. run: the function that computes it, one for all equal segments.

    operands, results: the numbers of values. dead: the values that no later segment reads.
    """

    run: Any
    operands: tuple[int, ...]
    results: tuple[int, ...]
    dead: tuple[int, ...]


@dataclass(frozen=True)
class SegmentedProgram:
    """A function of lists of values. inputs, outputs: the numbers of these values.

    at_once: the number of segments that XLA compiles at once; each needs much memory.
    """

    segments: tuple[SegmentCall, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    at_once: int

    def __call__(self, *arguments: Iterable[Any]) -> list[Any]:
        values = dict(zip(self.inputs, (x for each in arguments for x in each), strict=True))
        for segment in self.segments:
            results = segment.run(*[values[v] for v in segment.operands])
            values.update(zip(segment.results, results, strict=True))
            for v in segment.dead:
                del values[v]
        return [lazy_moves.materialize(values[v]) for v in self.outputs]

    def lowered(self, *arguments: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Yields, for each segment, its number and the segment lowered for these types; equal segments share both."""
        values = dict(zip(self.inputs, (x for each in arguments for x in each), strict=True))
        different: dict[Any, tuple[int, Any]] = {}
        for segment in self.segments:
            operands = [values[v] for v in segment.operands]
            leaves, tree = jax.tree.flatten(operands)
            key = segment.run, tree, tuple((x.shape, x.dtype) for x in leaves)
            if key not in different:
                different[key] = len(different), segment.run.lower(*operands)
            yield different[key]
            values.update(zip(segment.results, different[key][1].out_info, strict=True))

    def lower(self, *arguments: Iterable[Any]) -> "LoweredSegments":
        """Lowers each segment for operands of these types; equal segments once."""
        numbers, parts = zip(*self.lowered(*arguments), strict=True)
        return LoweredSegments(self.with_runs(numbers), tuple(dict(zip(numbers, parts, strict=True)).values()))

    def jitted(self, jit: Callable[[Callable[..., Any]], Any]) -> "SegmentedProgram":
        """Returns the program with jitted functions; equal segments still share one function."""
        functions = {segment.run: jit(segment.run) for segment in self.segments}
        return self.with_runs([functions[segment.run] for segment in self.segments])

    def with_runs(self, runs: Sequence[Any]) -> "SegmentedProgram":
        """Returns the program with `runs` in place of the segments' functions."""
        segments = (dataclasses.replace(s, run=run) for s, run in zip(self.segments, runs, strict=True))
        return dataclasses.replace(self, segments=tuple(segments))


@dataclass(frozen=True)
class LoweredSegments:
    """A program whose segments are lowered. wiring: the program; each segment's `run` is its position in `parts`."""

    wiring: SegmentedProgram
    parts: tuple[Any, ...]

    def as_text(self) -> str:
        """Returns the text of all segments."""
        return "\n".join(part.as_text() for part in self.parts)

    def compile(self) -> list[Any]:
        """Compiles each different segment."""
        with ThreadPoolExecutor(self.wiring.at_once) as executor:
            return list(executor.map(lambda part: part.compile(), self.parts))

    def most_bytes(self, compiled: Sequence[Any]) -> int:
        """Returns the bytes that a call takes at most at once, besides its arguments. compiled: the parts."""
        held: dict[int, int] = {}
        most = 0
        for segment in self.wiring.segments:
            most = max(most, sum(held.values()) + bytes_of(compiled[segment.run]))
            results = zip(segment.results, self.parts[segment.run].out_info, strict=True)
            held |= {v: sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(y)) for v, y in results}
            for v in segment.dead:
                held.pop(v, None)
        return most


def bytes_of(compiled: Any) -> int:
    """Returns the bytes that a compiled program takes besides its arguments: its results and what it holds on the way.

    Returns 0 where the platform does not tell.
    """
    stats = compiled.memory_analysis()
    return 0 if stats is None else stats.temp_size_in_bytes + stats.output_size_in_bytes


def segmented(
    program: Program, segments: Sequence[Segment], programs: Mapping[Any, Program], emit: Emit, at_once: int
) -> SegmentedProgram:
    """Makes a call of each segment of a program.

    programs: form of segments → the program that runs. emit: computes the results of an operation.
    """
    functions: dict[Any, Any] = {}
    calls: list[SegmentCall] = []
    needed: set[Any] = set(program.outputs)
    *before, last = segments
    ends = all(segment.form != last.form for segment in before)
    for segment in reversed(segments):
        inputs, outputs = segment.program.inputs, segment.program.results
        if segment.form not in functions:
            functions[segment.form] = _function(programs[segment.form], emit, ends and segment is last)
        dead = {*inputs, *outputs} - needed
        calls.append(SegmentCall(functions[segment.form], inputs, outputs, tuple(sorted(dead))))
        needed.update(inputs)
    return SegmentedProgram(tuple(reversed(calls)), program.inputs, program.results, at_once)


def _function(program: Program, emit: Emit, ends: bool) -> Callable[..., Any]:
    """Returns the function of a segment. ends: whether its results must be arrays, not lazy values."""

    def run(*operands: Any) -> list[Any]:
        results = ir.run(program, operands, emit)
        # Results get strong types, since the `out_info` of a lowered segment does not report whether a type is weak.
        return jax.tree.map(of_strong_type, list(map(lazy_moves.materialize, results)) if ends else results)

    return run
