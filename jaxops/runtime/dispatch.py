"""THE LIST: the ways in which a call of a model may run, from the first to the last; the first that applies runs.

A call like an earlier one is looked for first, by the arguments as the caller passed them. For all other ways, one
frozen value describes the call after its arguments were checked. Some ways change the call, and it goes on with the
list: under another setting, as the inside of one operation, with fewer nodes, or with larger inputs. The others run it.

The logger "jaxops" says at the level DEBUG which ways a call takes, and why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import get_abstract_mesh

from jaxops.compiler.part_of_program import as_one_operation, may_be_one_operation
from jaxops.errors import TooLargeError
from jaxops.graph.interpreter import check_called, is_long, unwrap
from jaxops.graph.nodes import Graph
from jaxops.lazy_array import named_arrays
from jaxops.memory import LIMIT
from jaxops.progress import explain, progress
from jaxops.runtime.arguments import to_outputs
from jaxops.runtime.auto_axes import any_on_mesh, under_auto_axes
from jaxops.runtime.buckets import Rounded, has_buckets, run_in_buckets
from jaxops.runtime.compiled_pieces import GraphRunner
from jaxops.runtime.counted_sizes import run_graph_counted
from jaxops.runtime.repeated_calls import CallCache
from jaxops.runtime.x64 import in_64_bits, is_on, x64_on
from jaxops.static import UNKNOWN, JaxRuntimeError, StaticValue, Tracer, is_concrete, tracing


@dataclass(frozen=True, eq=False)
class Call:
    """A call whose arguments are checked.

    runner: runs the graphs of the model. graph: computes the outputs that the call asks for. weights: the parameters by
    name. inputs: the result of `InputBinder.bind_inputs`, or padded. rng: a key, or None. x64: whether the model runs
    with 64-bit types. cache: what earlier calls computed for the weights; None if later calls may have other weights.
    passed: the inputs in order as the caller passed them, if later calls may repeat this one; () if not. divisible:
    whether NumPy may compute a part of the graph on the host. within: the way, or the method, that runs the call as a
    part of its own program; "" for the call of a user.
    """

    runner: GraphRunner
    graph: Graph
    weights: Mapping[str, Any]
    inputs: Any
    rng: Any
    x64: bool
    cache: CallCache | None = None
    passed: Sequence[Any] = ()
    divisible: bool = False
    within: str = ""

    @property
    def arguments(self) -> tuple[Any, Any, Any]:
        """The weights, the inputs and the key."""
        return self.weights, self.inputs, self.rng

    @cached_property
    def flat(self) -> tuple[list[Any], Any]:
        """The leaves of the inputs and the key, and their tree."""
        return jax.tree.flatten((self.inputs, self.rng))

    @cached_property
    def concrete(self) -> bool:
        """Tells whether all arguments are known."""
        weights = self.cache.concrete if self.cache else all(map(is_concrete, self.weights.values()))
        return weights and all(type(x) is np.ndarray or is_concrete(x) for x in self.flat[0])

    @property
    def mapped(self) -> bool:
        """Tells whether `grad` or `vmap` traces an argument."""
        return not self.concrete and any(isinstance(x, Tracer) for x in (*self.weights.values(), *self.flat[0]))

    @property
    def on_mesh(self) -> bool:
        """Tells whether a mesh is set, or an argument is on a mesh."""
        if get_abstract_mesh().axis_names or any_on_mesh(self.flat[0]):
            return True
        return self.cache.on_mesh if self.cache else any_on_mesh(self.weights.values())

    @cached_property
    def divided(self) -> tuple[Graph, Mapping[str, Any]]:
        """The part of the graph that a program computes, and its inputs."""
        return self.runner.host_parts.divide(self.graph, self.inputs)

    @property
    def static(self) -> tuple[Graph, int, int, bool]:
        """The static arguments of `GraphRunner.compiled`. The values of tracers cannot be read, so a call with tracers
        is one piece."""
        return self.graph, 0, len(self.graph.nodes), not self.mapped

    def outputs(self, results: list[Any]) -> Sequence[Any]:
        """Returns results in the types that the caller gets; those of padded inputs as they are."""
        return results if isinstance(self.inputs, Rounded) else to_outputs(results, self.graph.outputs, self.arguments)


@dataclass(frozen=True)
class Way:
    """A row of the list.

    applies: call → whether the way applies; when: the same in words. why: the reason for the place in the list. run:
    call → outputs.
    """

    name: str
    when: str
    why: str
    applies: Callable[..., bool]
    run: Callable[..., Any]


def repeated(
    graph: Graph, x64: bool, cache: CallCache, inputs: Sequence[Any], named: Any, rng: Any, outputs: Any
) -> Any:
    """Returns the result of a call like an earlier one; None for any other call.

    x64: whether the model runs with 64-bit types. cache: of its parameters. The arguments after it are the caller's.
    """
    if not REPEATED.applies(named, rng, outputs):
        return None
    with x64_on(x64 and not is_on()):
        result = REPEATED.run(cache, inputs)
    if result is not None:
        explain(graph.name, REPEATED.name, REPEATED.when)
    return result


def run(call: Call) -> Sequence[Any]:
    """Returns the outputs of a call, in the types that the caller gets, under the settings of its model."""
    check_called(call.graph)
    precision, before = call.runner.precision, LIMIT.set(call.runner.max_bytes)
    try:
        with progress(f"compiling {call.graph.name or 'a model'}", begun=False):
            if precision is None:
                return _first(call)
            with jax.default_matmul_precision(precision):
                return _first(call)
    except JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        # Each result fits into memory, but not all of them together.
        raise TooLargeError(f"'{call.graph.name}': its results do not fit in memory together: {error}") from error
    finally:
        LIMIT.reset(before)


def _first(call: Call) -> Sequence[Any]:
    """Runs a call by the first way that applies."""
    for way in WAYS:
        if way.applies(call):
            explain(call.graph.name, way.name, way.when)
            return way.run(call)
    raise AssertionError("the last way applies to every call")


def _inside(call: Call, way: str) -> Callable[[Any, Any, Any], Sequence[Any]]:
    """Returns a call as a function of its arguments, for a way that runs it as a part of its own program."""

    def inside(weights: Any, inputs: Any, rng: Any) -> Sequence[Any]:
        cache = call.cache if call.cache and call.cache.has(weights) else None
        return run(replace(call, weights=weights, inputs=inputs, rng=rng, cache=cache, within=way))

    return inside


def _in_64_bits(call: Call) -> Sequence[Any]:
    return in_64_bits(_inside(call, "in 64 bits"), *call.arguments)


def _is_part_of_program(call: Call) -> bool:
    may = not (call.within or call.concrete) and may_be_one_operation(call.arguments)
    return may and not (is_long(call.graph) or call.on_mesh)


def _as_one_operation(call: Call) -> Sequence[Any]:
    return as_one_operation(_inside(call, "one operation"), *call.arguments)


def _has_host_part(call: Call) -> bool:
    has_static = call.divisible and any(type(x) is StaticValue for x in call.inputs.values())
    return has_static and not tracing() and call.divided[0] is not call.graph


def _after_host_part(call: Call) -> Sequence[Any]:
    graph, inputs = call.divided
    return _first(replace(call, graph=graph, inputs=inputs, divisible=False))


def _is_traced(call: Call) -> bool:
    return cast(Any, jax.config).jax_disable_jit or tracing()


def _node_by_node(call: Call) -> Sequence[Any]:
    arguments = call.graph, unwrap(call.inputs), named_arrays(call.weights), call.rng
    with jax.disable_jit(False):  # `jit` inside of operators stays
        return call.outputs(under_auto_axes(run_graph_counted, *arguments, like=call.inputs))


def _has_buckets(call: Call) -> bool:
    if not (call.runner.buckets and call.concrete) or isinstance(call.inputs, Rounded) or call.on_mesh:
        return False
    return has_buckets(call.graph, call.inputs, call.runner.buckets)


def _in_buckets(call: Call) -> Sequence[Any]:
    def padded(inputs: Rounded) -> Sequence[Any]:
        return _first(replace(call, inputs=inputs, passed=(), divisible=False))

    return call.outputs(run_in_buckets(call.graph, call.inputs, call.runner.buckets, call.runner.unserved, padded))


def _may_prepare(call: Call) -> bool:
    return call.cache is not None and call.concrete and not call.on_mesh


def _specialized(call: Call) -> Sequence[Any]:
    assert call.cache is not None
    executable, first = call.runner.specialized.call(call.cache, call.static, call.inputs, call.rng, *call.flat)
    results = call.runner.outputs(call.graph, first, call.inputs, call.weights, call.rng)
    is_complete, precision = first[0].value == len(call.graph.nodes), call.runner.precision
    if is_complete and call.passed and call.rng is None and precision is None:
        call.cache.remember(executable, call.graph, call.passed, call.inputs, results)
    return call.outputs(results)


def _compiled(call: Call) -> Sequence[Any]:
    weights = named_arrays(call.weights)
    try:
        first = call.runner.compiled(*call.static, weights, call.inputs, call.rng)
    except UNKNOWN:
        if not call.mapped:
            raise
        # Running the nodes one by one succeeds if the value that must be known is concrete: sizes, say, under
        # `jax.grad` by the weights.
        explain(call.graph.name, "node by node", "a value must be known, while other arguments are traced")
        return _node_by_node(call)
    return call.outputs(call.runner.outputs(call.graph, first, call.inputs, weights, call.rng))


REPEATED = Way(
    "repeated",
    "an earlier call had the same parameters and types of inputs",
    "first: checking the inputs takes longer than a small program. It is the only way that sees unchecked arguments",
    lambda named, rng, outputs: rng is None and outputs is None and not named,
    CallCache.call_again,
)
WAYS = (
    Way(
        "in 64 bits",
        "the model needs 64-bit types, and x64 is off",
        "the ways after it see the types under the setting that they run with",
        lambda call: call.x64 and not is_on(),
        _in_64_bits,
    ),
    Way(
        "one operation",
        "`jit` alone traces all arguments",
        "before the nodes are traced, which happens inside of the operation; JAX lowers it after its transformations",
        _is_part_of_program,
        _as_one_operation,
    ),
    Way(
        "host part",
        "static inputs set sizes, which NumPy computes",
        "the ways after it see a program that serves all values of these inputs that set the same sizes",
        _has_host_part,
        _after_host_part,
    ),
    Way(
        "node by node",
        "a transformation of JAX traces the call, or `jit` is disabled",
        "the ways after it compile programs",
        _is_traced,
        _node_by_node,
    ),
    Way(
        "in buckets",
        "`buckets` of `load` rounds up sizes of the inputs",
        "the ways after it see the rounded sizes, so that they compile one program for a bucket",
        _has_buckets,
        _in_buckets,
    ),
    Way(
        "in sections",
        "the graph is too long for one function of XLA",
        "before programs are specialized, which would inline the functions",
        lambda call: is_long(call.graph),
        _compiled,
    ),
    Way(
        "specialized",
        "the parameters stay the same in later calls",
        "it needs known arguments on one device; all other calls are compiled as they are",
        _may_prepare,
        _specialized,
    ),
    Way(
        "compiled",
        "the parameters may be others in the next call, or arguments are mapped, differentiated or on a mesh",
        "last: it runs every call",
        lambda call: True,
        _compiled,
    ),
)
# All ways, from the first to the last.
LIST = (REPEATED, *WAYS)
