"""THE LIST: the ways in which a call of a model may run, from the first to the last; the first that applies runs.

A call like an earlier one is found first, by the arguments as the caller passed them. For all other ways, one value,
which nobody changes, describes the call after its arguments were checked. Some ways change the call, which then goes on
with the list: under another setting, as the inside of one operation, with fewer nodes, or with larger inputs. The
others run it.

The logger "jaxops" says at the level DEBUG which ways a call takes, and why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax.sharding import get_abstract_mesh

from jaxops.compiler.part_of_program import as_one_operation, keeping_few_scores, may_be_one_operation
from jaxops.errors import TooLargeError
from jaxops.graph.interpreter import check_called, is_long, unwrap
from jaxops.graph.nodes import Graph
from jaxops.jax_internals import JaxRuntimeError, is_out_of_memory
from jaxops.lazy_array import named_arrays
from jaxops.memory import LIMIT
from jaxops.number_checks import checks_numbers
from jaxops.progress import explain, progress
from jaxops.runtime.arguments import Given, to_outputs
from jaxops.runtime.auto_axes import any_on_mesh, under_auto_axes
from jaxops.runtime.buckets import Range, Rounded, bucket_of, run_in_buckets
from jaxops.runtime.compiled_pieces import GraphRunner
from jaxops.runtime.counted_sizes import run_graph_counted
from jaxops.runtime.placed_params import placed
from jaxops.runtime.repeated_calls import CallCache
from jaxops.runtime.specialized_calls import ReadsTracers
from jaxops.runtime.x64 import in_64_bits, is_on, x64_on
from jaxops.static import UNKNOWN, StaticValue, Tracer, is_concrete, once, tracing


@dataclass(eq=False)  # a frozen one takes three times as long to make
class Call:
    """A call whose arguments are checked.

    runner: runs the graphs of the model. graph: computes the outputs that the call asks for. weights: the parameters by
    name. inputs: the result of `InputBinder.bind_inputs`, or `Rounded`. rng: a key, or None. x64: whether the model
    runs with 64-bit types. given: the arguments as the caller passed them; None for a call inside of another program.
    cache: what earlier calls computed for the weights; None if later calls may have other weights. outer: the weights,
    inputs and key outside of the program that the call is inside of; None if it is inside of none.
    """

    runner: GraphRunner
    graph: Graph
    weights: Mapping[str, Any]
    inputs: Any
    rng: Any
    x64: bool
    given: Given | None = None
    cache: CallCache | None = None
    outer: tuple[Any, Any, Any] | None = None

    @once
    def leaves(self) -> tuple[list[Any], Any]:
        """The leaves of the inputs and the key, and their tree."""
        return jax.tree.flatten((self.inputs, self.rng))

    @once
    def is_known(self) -> bool:
        """True if no argument is traced."""
        weights = self.cache.concrete if self.cache else all(map(is_concrete, self.weights.values()))
        return weights and all(type(x) is np.ndarray or is_concrete(x) for x in self.leaves[0])

    @once
    def is_traced(self) -> bool:
        """True if JAX traces the call."""
        return tracing()

    @property
    def is_mapped(self) -> bool:
        """True if `grad` or `vmap` traces an argument."""
        return not self.is_known and any(isinstance(x, Tracer) for x in (*self.weights.values(), *self.leaves[0]))

    @property
    def on_mesh(self) -> bool:
        """True if a mesh is set, or an argument is on a mesh."""
        if get_abstract_mesh().axis_names or any_on_mesh(self.leaves[0]):
            return True
        return self.cache.on_mesh if self.cache else any_on_mesh(self.weights.values())

    @once
    def divided(self) -> tuple[Graph, Mapping[str, Any]]:
        """The part of the graph that a program computes, and its inputs."""
        return self.runner.host_parts.divide(self.graph, self.inputs)

    @once
    def bucket(self) -> tuple[Range, ...]:
        """The ranges of the sizes that `buckets` rounds up; () if it rounds none."""
        if isinstance(self.inputs, Rounded) or not self.is_known or self.on_mesh:
            return ()
        return bucket_of(self.graph, self.inputs, self.runner.buckets)

    @property
    def arguments(self) -> tuple[Any, Any, Any]:
        """The weights, the inputs and the key."""
        return self.weights, self.inputs, self.rng

    @property
    def static(self) -> tuple[Graph, int, int, bool]:
        """The static arguments of `GraphRunner.compiled`. Tracers have no values, so a call with some is one piece."""
        return self.graph, 0, len(self.graph.nodes), not self.is_mapped

    def outputs(self, results: Sequence[Any]) -> Sequence[Any]:
        """Returns results in the types that the caller gets."""
        return to_outputs(results, self.graph.outputs, self.arguments if self.outer is None else self.outer)


class Way(NamedTuple):
    """A row of the list.

    applies: call → whether the way applies. run: call → outputs. when: the condition in words. why: the reason for the
    place in the list.
    """

    name: str
    applies: Callable[..., bool]
    run: Callable[..., Any]
    when: str
    why: str


def repeated(model: str, x64: bool, cache: CallCache, given: Given) -> Any:
    """Returns the result of a call like an earlier one; None for any other call.

    model: its name. x64: whether it runs with 64-bit types. cache: of its parameters.
    """
    with x64_on(x64 and not is_on()):
        result = REPEATED.run(cache, given) if REPEATED.applies(given) else None
    if result is not None:
        explain(model, REPEATED.name, REPEATED.when)
    return result


def run(call: Call) -> Sequence[Any]:
    """Returns the outputs of a call, in the types that the caller gets, by the first way that applies."""
    for name, applies, way, when, _ in WAYS:
        if applies(call):
            explain(call.graph.name, name, when)
            return way(call)
    raise AssertionError("the last way applies to any call")


def _under_settings(way: Callable[[Call], Sequence[Any]]) -> Callable[[Call], Sequence[Any]]:
    """Returns a way that runs a call under the settings of its model."""

    def run(call: Call) -> Sequence[Any]:
        check_called(call.graph)
        precision, before = call.runner.precision, LIMIT.set(call.runner.max_bytes)
        try:
            with progress(f"compiling {call.graph.name or 'a model'}", begun=False):
                if precision is None:
                    return way(call)
                with jax.default_matmul_precision(precision):
                    return way(call)
        except JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            # Each result fits into memory, but not all of them together.
            raise TooLargeError(f"'{call.graph.name}': its results do not fit in memory together: {error}") from error
        finally:
            LIMIT.reset(before)

    return run


def _repeats(given: Given) -> bool:
    return given.outputs is None and not (given.inputs and given.named)


def _in_64_bits(call: Call) -> Sequence[Any]:
    """Runs the call with x64 on; JAX may transform it with x64 off."""
    return in_64_bits(_inside(call, call.given), *call.arguments)


def _is_part(call: Call) -> bool:
    if call.given is None or not call.is_traced or is_long(call.graph):
        return False
    return may_be_one_operation(call.arguments) and not call.on_mesh


def _as_operation(call: Call) -> Sequence[Any]:
    """Makes the call one operation of a user's program, which JAX optimizes when it lowers it."""
    return as_one_operation(_inside(call, None), *call.arguments)


def _inside(
    call: Call, given: Given | None, way: Callable[[Call], Sequence[Any]] | None = None
) -> Callable[..., Sequence[Any]]:
    """Returns a call as a function of its arguments, which JAX may trace. way: in which it runs; None for the first one
    that applies."""

    def inside(weights: Any, inputs: Any, rng: Any) -> Sequence[Any]:
        cache = call.cache if call.cache and call.cache.has(weights) else None
        outer = call.arguments if call.outer is None else call.outer
        inner = replace(call, weights=weights, inputs=inputs, rng=rng, given=given, cache=cache, outer=outer)
        return (way or run)(inner)

    return inside


def _has_host_part(call: Call) -> bool:
    # `Model.x64` counts on it that the host computes nothing for other outputs.
    if call.given is None or call.given.outputs is not None or call.is_traced:
        return False
    return StaticValue in map(type, call.inputs.values()) and call.divided[0] is not call.graph


def _after_host(call: Call) -> Sequence[Any]:
    """Computes with NumPy what the program needs of static inputs; it serves all that give the same values."""
    graph, inputs = call.divided
    return run(replace(call, graph=graph, inputs=inputs, given=None))


def _looks_at_nodes() -> bool:
    return cast(Any, jax.config).jax_disable_jit or checks_numbers()


def _is_traced(call: Call) -> bool:
    return _looks_at_nodes() or call.is_traced


def _may_be_differentiated(call: Call) -> bool:
    return call.given is not None and call.is_mapped and not (call.on_mesh or is_long(call.graph) or _looks_at_nodes())


@_under_settings
def _node_by_node(call: Call) -> Sequence[Any]:
    """Runs the operators one by one, as a part of the program that is traced."""
    if _may_be_differentiated(call):
        return keeping_few_scores(_inside(call, None, _node_by_node), *call.arguments)
    weights = placed(named_arrays(call.weights), call.runner.places)
    arguments = call.graph, unwrap(call.inputs), weights, call.rng
    with jax.disable_jit(False):  # `jit` inside of operators stays
        return call.outputs(under_auto_axes(run_graph_counted, *arguments, like=call.inputs))


def _has_bucket(call: Call) -> bool:
    return bool(call.runner.buckets and call.bucket)


def _in_bucket(call: Call) -> Sequence[Any]:
    """Pads the inputs, so that one program serves all sizes in a bucket."""

    def padded(inputs: Rounded) -> Sequence[Any]:
        return run(replace(call, inputs=inputs, given=None))

    return run_in_buckets(call.graph, call.inputs, call.bucket, call.runner.unserved, padded)


def _may_prepare(call: Call) -> bool:
    return call.cache is not None and call.is_known and not call.on_mesh


@_under_settings
def _specialized(call: Call) -> Sequence[Any]:
    """Runs a program that reads values which were computed from the parameters once; long graphs have none."""
    assert call.cache is not None
    try:
        executable, first = call.runner.specialized.call(call.cache, call.static, call.inputs, call.rng, *call.leaves)
    except ReadsTracers:
        explain(call.graph.name, "compiled", "an operator of the caller reads values that JAX traces")
        return _compiled(call)
    results = call.runner.outputs(call.graph, first, call.inputs, call.weights, call.rng)
    is_complete, precision = first[0].value == len(call.graph.nodes), call.runner.precision
    if is_complete and precision is None and call.given and REPEATED.applies(call.given):
        call.cache.remember(executable, call.graph, call.given, call.inputs, results)
    return call.outputs(results)


def _may_cut(call: Call) -> bool:
    return call.cache is not None and call.is_known and call.on_mesh and bool(call.runner.places_of_parts)


@_under_settings
def _in_pieces(call: Call) -> Sequence[Any]:
    """Runs a program in which a mesh splits each part of a weight."""
    assert call.cache is not None
    try:
        first = call.runner.in_pieces.call(call.cache, call.static, call.inputs, call.rng, *call.leaves)
    except ReadsTracers:
        explain(call.graph.name, "compiled", "an operator of the caller reads values that JAX traces")
        return _compiled(call)
    return call.outputs(call.runner.outputs(call.graph, first, call.inputs, call.weights, call.rng))


@_under_settings
def _compiled(call: Call) -> Sequence[Any]:
    """Runs a program as `jit` compiles it."""
    weights = named_arrays(call.weights)
    try:
        # Left out where it is False, as in specialized calls, whose trace then serves this one, too.
        few = {"few_scores": True} if _may_be_differentiated(call) else {}
        first = call.runner.compiled(*call.static, weights, call.inputs, call.rng, **few)
    except UNKNOWN:
        if not call.is_mapped:
            raise
        # Running the nodes one by one succeeds if the value that must be known is concrete: sizes, say, under
        # `jax.grad` by the weights.
        explain(call.graph.name, "node by node", "a value must be known, while other arguments are traced")
        return _node_by_node(call)
    return call.outputs(call.runner.outputs(call.graph, first, call.inputs, weights, call.rng))


REPEATED = Way("repeated", _repeats, CallCache.call_again, "an earlier call had such inputs", "checks take too long")
WAYS = (
    Way("in 64 bits", lambda call: call.x64 and not is_on(), _in_64_bits, "it needs x64, which is off", "types follow"),
    Way("one operation", _is_part, _as_operation, "`jit` traces all arguments", "the nodes are traced inside of it"),
    Way("host part", _has_host_part, _after_host, "static inputs set sizes", "only the rest of the nodes goes on"),
    Way(
        "node by node",
        _is_traced,
        _node_by_node,
        "JAX traces the call, `jit` is off, or JAX looks for NaNs",
        "the next compile programs",
    ),
    Way("in buckets", _has_bucket, _in_bucket, "`buckets` rounds sizes up", "larger inputs go on"),
    Way("in sections", lambda call: is_long(call.graph), _compiled, "the graph is long", "the next join the sections"),
    Way("specialized", _may_prepare, _specialized, "the parameters stay the same", "the next computes more each time"),
    Way("in pieces", _may_cut, _in_pieces, "a mesh splits parts of weights", "the next has a copy on each device"),
    Way("compiled", lambda _: True, _compiled, "parameters may change, or are traced or on a mesh", "it runs any call"),
)
# All ways, from the first to the last.
LIST = (REPEATED, *WAYS)
