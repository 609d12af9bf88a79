"""THE LIST: what happens to a traced program before XLA compiles it, in this order.

1. `PASSES` make one program of another.
2. The program is split into what depends on the weights alone, which runs once, and the rest, which runs at each call.
3. On a CPU, the rest is split where equal layers repeat, so that each is compiled once.
4. `SEGMENT_PASSES` make one program of another, for each segment.
5. `RULES` lower each operation while the last `jax.jit` traces a segment. They are not passes, because lazy transposes
   cross into the loops of `block attention` and from one segment to the next, and because a pass would trace all
   operations once more.

A new pass is its file and a row here.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax

from jaxops.compiler.ir import Emit, Program, plain, run
from jaxops.compiler.partition.repeated_layers import Segment, at_once, split_at_repeated_layers
from jaxops.compiler.partition.weight_only import split_weight_only
from jaxops.compiler.passes.block_attention import block_attention, inlined
from jaxops.compiler.passes.concat_in_place import concat_in_place
from jaxops.compiler.passes.fold_transposes import fold_inner_transposes, fold_transposes
from jaxops.compiler.passes.inline_calls import inline_calls
from jaxops.compiler.passes.integer_products import integer_products
from jaxops.compiler.passes.keep_order import keep_order
from jaxops.compiler.passes.lazy_moves import materialize
from jaxops.compiler.passes.lift_scalars import lift_scalar_constants
from jaxops.compiler.passes.lift_tables import lift_tables
from jaxops.compiler.passes.select_kernels import select_kernels
from jaxops.compiler.passes.select_reductions import select_reductions
from jaxops.compiler.passes.sink_transposes import sink_transposes
from jaxops.compiler.run.prepare_weights import WeightProgram
from jaxops.compiler.run.segments import segmented
from jaxops.compiler.run.specialized import Specialized
from jaxops.compiler.verify import verify
from jaxops.compiler.xla_options import program_options
from jaxops.jax_internals import jaxpr_as_fun
from jaxops.kernels.target import Target


@dataclass(frozen=True)
class Entry:
    """A row of the list.

    platforms: where the entry runs; () for all. after: the rows that it must follow. why: the reason for this order.
    transformable: whether JAX can differentiate and map the result, with the derivatives of the plain program.
    """

    name: str
    function: Callable[..., Any]
    platforms: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    why: str = ""
    transformable: bool = True


CPU = ("cpu",)
# Program, Target → Program.
PASSES = (
    Entry("integer products", integer_products, CPU, (), "first: it looks for named calls", False),
    Entry("fold transposes", fold_transposes, CPU, ("integer products",), "these turn matrices themselves", False),
    Entry("select kernels", select_kernels, (), ("fold transposes",), "it asks how weights lie, and replaces calls"),
    Entry("inline calls", inline_calls, (), ("select kernels",), "no pass sees an operation inside a call"),
    Entry("fold inner transposes", fold_inner_transposes, CPU, ("inline calls",), "calls hide their products", False),
    Entry("keep order", keep_order, after=("inline calls",), why="before any operation moves: it compares neighbours"),
    Entry("concat in place", concat_in_place, CPU, ("keep order",), "it changes neighbours of operations"),
    Entry("lift scalar constants", lift_scalar_constants, (), ("concat in place",), "it lifts the starts of updates"),
    Entry("lift tables", lift_tables, (), ("inline calls",), "it finds no constant inside a call"),
)
SPLIT_WEIGHTS = Entry("split weights", split_weight_only, (), ("lift tables",), "it prepares the tables")
SPLIT_LAYERS = Entry("split layers", split_at_repeated_layers, CPU, ("split weights",), "the rest of layers is equal")
SEGMENT_PASSES = (Entry("block attention", block_attention, (), ("split layers",), "a loop hides layers and products"),)
# Emit, Operation, operands, parameters → results; each rule emits the operations for the next one.
RULES = (
    Entry("sink transposes", sink_transposes, after=("block attention",), why="transposes go into its loops"),
    Entry("select reductions", select_reductions, CPU, ("sink transposes",), "it asks which axes are last", False),
)
LIST = (*PASSES, SPLIT_WEIGHTS, SPLIT_LAYERS, *SEGMENT_PASSES, *RULES)


class Row(NamedTuple):
    """The work of one entry on one program: the operations of a call before and after it, and how long it took.

    seconds: None for a rule, since rules run as a part of the last trace.
    """

    name: str
    before: int
    after: int
    seconds: float | None


_skipped: ContextVar[frozenset[str]] = ContextVar("_skipped", default=frozenset())
_rows: ContextVar[list[Row] | None] = ContextVar("_rows", default=None)
# The entries that cannot be left out.
REQUIRED = {"inline calls", "split weights"}


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Leaves out entries of the list inside `with`: for tests, and to measure what an entry brings.

    Raises KeyError for a name that is not in the list, or that must run.
    """
    unknown = set(names) - {entry.name for entry in LIST if entry.name not in REQUIRED}
    if unknown:
        raise KeyError(f"no entry of the pipeline to leave out: {sorted(unknown)}")
    token = _skipped.set(_skipped.get() | set(names))
    try:
        yield
    finally:
        _skipped.reset(token)


def skipped() -> frozenset[str]:
    """Returns the names of the entries that are left out now."""
    return _skipped.get()


@contextlib.contextmanager
def recorded() -> Iterator[list[Row]]:
    """Yields a list, to which each program that is specialized inside `with` appends a row for each entry."""
    rows: list[Row] = []
    token = _rows.set(rows)
    try:
        yield rows
    finally:
        _rows.reset(token)


def applies(entry: Entry, target: Target) -> bool:
    """Returns True if an entry runs for a target."""
    if entry.name in _skipped.get() or not (entry.transformable or target.specialized):
        return False
    return not entry.platforms or target.platform in entry.platforms


def apply(entries: Sequence[Entry], program: Program, target: Target) -> Program:
    """Runs the passes that apply to the target, in order."""
    for entry in entries:
        if applies(entry, target):
            program = _run(entry, program, target)
    return program


def lowering(target: Target, rules: Sequence[Entry] = RULES) -> Emit:
    """Returns the function that computes an operation with all rules that apply to a target."""
    emit: Emit = plain
    for rule in reversed(rules):
        if applies(rule, target):
            emit = functools.partial(rule.function, emit)
    return emit


def function_of(program: Program, emit: Emit) -> Callable[..., list[Any]]:
    """Returns a program as a function of lists of values. emit: computes one operation."""

    def function(*arguments: Iterable[Any]) -> list[Any]:
        return list(map(materialize, run(program, itertools.chain(*arguments), emit)))

    return function


def specialize(closed: Any, weights: int, target: Target) -> Specialized:
    """Makes two pure functions of a closed jaxpr: one of its weights, and one that runs at each call.

    weights: the number of weights, which are its first arguments. If the target is not specialized, JAX can
    transform both functions. A program is split into layers only if it is compiled here, not as a part of another one.
    """
    program = apply(PASSES, Program.of(closed), target)
    prepare, each_call, read = _run(SPLIT_WEIGHTS, program, weights, target, programs=lambda split: [split.run])
    _check(SPLIT_WEIGHTS, prepare)
    segments, emit = [], lowering(target)
    if target.compiled_here and applies(SPLIT_LAYERS, target):
        segments = _run(SPLIT_LAYERS, each_call, target, programs=lambda s: _different(s, each_call).values())
    programs = {k: apply(SEGMENT_PASSES, p, target) for k, p in _different(segments, each_call).items()}
    if (rows := _rows.get()) is not None:
        rows += _rule_rows(list(programs.values()), target)
    if segments:
        function = segmented(each_call, segments, programs, emit, at_once(segments, target))
    else:
        function = function_of(programs[None], emit)
    return Specialized(WeightProgram.of(prepare), read, function, program_options(target, each_call.operations))


def optimized(closed: Any, target: Target) -> Callable[..., list[Any]]:
    """Returns a closed jaxpr as an optimized function of all its arguments, without a part that is prepared once."""
    function = function_of(apply((*PASSES, *SEGMENT_PASSES), Program.of(closed), target).needed(), lowering(target))
    return lambda *arguments: function(arguments)


def transformable(jaxpr: Any, target: Target) -> Callable[..., list[Any]]:
    """Returns a jaxpr as a function of all its arguments that JAX can transform, and whose gradient keeps no scores of
    long attention. All else stays as it is."""
    function = function_of(apply(SEGMENT_PASSES, Program.of(jaxpr, inlined), target), plain)
    return lambda *arguments: function(arguments)


def unchanged(closed: Any, weights: int) -> Specialized:
    """Returns the two functions of `specialize` without optimization: one prepares nothing, one is the jaxpr."""
    fn = jaxpr_as_fun(closed)
    nothing = WeightProgram.of(Program((), tuple(closed.in_avals), tuple(range(weights)), ()))
    return Specialized(nothing, tuple(range(weights)), lambda _, read, inputs: fn(*read, *inputs))


def _different(segments: Sequence[Segment], program: Program) -> dict[Any, Program]:
    """Returns the different programs of segments by their form; the complete program by None if it is not split."""
    return {segment.form: segment.program for segment in segments} or {None: program}


def _run(
    entry: Entry,
    program: Program,
    *arguments: Any,
    programs: Callable[[Any], Iterable[Program]] = lambda after: [after],
) -> Any:
    """Runs an entry, records its row, and checks its result. programs: selects those that run at each call."""
    start = time.perf_counter()
    result = entry.function(program, *arguments)
    seconds, after = time.perf_counter() - start, list(programs(result))
    if (rows := _rows.get()) is not None:
        rows.append(Row(entry.name, len(program.operations), _size(after), seconds))
    _check(entry, *after)
    return result


def _check(entry: Entry, *programs: Program) -> None:
    if cast(Any, jax.config).jax_enable_checks:
        for program in programs:
            verify(program, entry.name)


def _rule_rows(programs: Sequence[Program], target: Target) -> Iterator[Row]:
    """Yields a row for each rule: the number of traced operations without it and with it, after the rules before it."""
    before = _size(programs)
    for k, rule in enumerate(RULES):
        if applies(rule, target):
            emit = lowering(target, RULES[: k + 1])
            after = sum(_traced_size(program, emit) for program in programs)
            yield Row(rule.name, before, after, None)
            before = after


def _traced_size(program: Program, emit: Emit) -> int:
    arguments = [jax.ShapeDtypeStruct(program.types[v].shape, program.types[v].dtype) for v in program.inputs]
    return len(jax.make_jaxpr(function_of(program, emit))(arguments).eqns)


def _size(programs: Iterable[Program]) -> int:
    return sum(len(program.operations) for program in programs)
