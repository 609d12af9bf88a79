"""A model without weights: a function of parameters, inputs and a random key."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.errors import BOTH_BRANCHES, ShapeError, SignatureError, UnboundedError, describe
from jaxops.graph.data_dependence import inputs_that_size
from jaxops.graph.interpreter import is_long
from jaxops.graph.liveness import Parts
from jaxops.graph.nodes import Graph, Tensor, Value
from jaxops.lazy_array import type_of
from jaxops.memory import max_bytes
from jaxops.progress import progress
from jaxops.runtime.arguments import Given, InputBinder, packer
from jaxops.runtime.compiled_pieces import GraphRunner
from jaxops.runtime.dispatch import Call, repeated, run
from jaxops.runtime.parameter_values import GivenWeights, Weights, matched
from jaxops.runtime.specialized_pair import Functions, Pair, SpecializedModel, specialize
from jaxops.runtime.x64 import is_on, x64_on
from jaxops.shown_text import clean
from jaxops.signature_errors import check_key, errors_of
from jaxops.static import Tracer, tracing

# A call in a user's `jit` warns if it makes more than this many bytes of weights constants of the program.
_MOST_CONSTANTS = 8 << 20


class ModelFunction:
    """A graph as a function of (params, *inputs).

    inputs: in order. defaults: inputs with a default value, which can be passed by name only. tensors: the parameters.
    runner: runs the graph. x64: True if it runs with x64 on, whatever the caller's setting.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Value],
        defaults: Sequence[Value],
        tensors: Mapping[str, Tensor],
        runner: GraphRunner,
        x64: bool,
    ) -> None:
        self._binder, self._tensors, self.runner, self.x64 = InputBinder(inputs, defaults), tensors, runner, x64
        self._graph, self._parts, self._warned = graph, Parts(graph), False

    def part(self, outputs: Sequence[str] | None = None) -> Graph:
        """Returns the part of the graph that computes these tensors; by default, the outputs."""
        return self._parts.with_outputs(outputs)

    def bind_inputs(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs by name, checked."""
        with x64_on(self.x64 and not is_on()):
            return self._binder.bind_inputs(inputs, named)

    def apply(self, params: Mapping[str, Any], given: Given) -> Any:
        """Returns the outputs for any parameters."""
        has_inputs = given.inputs or given.named
        if not isinstance(params, Mapping) or not (has_inputs or self._binder.names.isdisjoint(params)):
            raise SignatureError(
                f"apply: params is {describe(params)[:80]}; give a dictionary like model.params before the inputs: "
                "model.apply(model.params, …), or call model(…)"
            )
        values = self.bind_inputs(given.inputs, given.named)
        with x64_on(self.x64 and not is_on()):
            weights = matched(params, self._tensors, values)
        return self._run(weights, values, given.rng, given.outputs, given)

    def call(self, weights: Weights | GivenWeights, given: Given) -> Any:
        """Returns the outputs for parameters that stay the same in later calls."""
        cache = weights.for_calls(self.x64)
        result = repeated(self._graph.name, self.x64, cache, given)
        if result is not None:
            return result
        if not self._warned and tracing():
            self._warn_of_constants(cache.params)
        values = self.bind_inputs(given.inputs, given.named)
        return self._run(cache.params, values, given.rng, given.outputs, given, cache)

    def _warn_of_constants(self, weights: Mapping[str, Any]) -> None:
        """Warns once if many weights become constants of a program that is being traced."""
        types = [type_of(x) for x in weights.values() if not isinstance(x, Tracer)]
        size = sum(math.prod(x.shape) * x.dtype.itemsize for x in types)
        if size > _MOST_CONSTANTS:
            self._warned = True
            warnings.warn(
                f"model(…) makes {size >> 20} MiB of weights constants of the program that is traced, which makes it "
                "slow to compile; give the model as an argument: jax.jit(lambda model, x: model(x))(model, x), or its "
                "parameters: model.apply(params, x)",
                stacklevel=4,  # the caller of the model
            )

    def specialize(self, given: Given, transformable: bool) -> Pair:
        """Returns a pair of functions for the types of these inputs."""
        specialized = SpecializedModel(self._specialized, given, transformable)
        return Pair(specialized.prepare, specialized.run)

    def _specialized(self, given: Given, transformable: bool) -> Functions:
        def traced(weights: Mapping[str, Any], values: Mapping[str, Any], rng: Any) -> Any:
            return self._run(weights, values, rng, given.outputs)

        graph = self.part(given.outputs)
        with max_bytes(self.runner.max_bytes), progress(f"specializing {graph.name or 'a model'}"):
            facts = self.x64, transformable, is_long(graph), self.runner.places_of_parts
            return specialize(traced, self._binder, self._tensors, given, *facts)

    def tensors(
        self, names: Sequence[str], values: Mapping[str, Any], params: Mapping[str, Any], rng: jax.Array | None = None
    ) -> dict[str, Any]:
        """Returns tensors of the graph by name. values: the result of `bind_inputs`."""
        if not names:
            return {}
        graph = self.part(list(names))
        rng = jax.random.key(0) if graph.draws and rng is None else rng
        results = run(Call(self.runner, graph, params, values, rng, self.x64))
        return dict(zip(names, results, strict=True))

    def _run(self, weights: Any, values: Any, rng: Any, outputs: Any, *facts: Any) -> Any:
        """Runs the graph. weights, values: checked parameters and inputs. facts: the last fields of `Call`."""
        if rng is not None:
            with errors_of("apply"):
                check_key(rng)
        graph = self.part(outputs)
        call = Call(self.runner, graph, weights, values, rng, self.x64, *facts)
        try:
            results = run(call)
            return (
                dict(zip(graph.output_names, results, strict=True))
                if outputs == "*"
                else packer(graph.outputs)(results)
            )
        except UnboundedError as error:
            deciding = inputs_that_size(graph, error.node)
            error.inputs = deciding if len(deciding) < len(graph.inputs) else []
            raise
        except (ShapeError, SignatureError) as error:
            deciding, notes = self._binder.deciding, getattr(error, "__notes__", [])
            if deciding and BOTH_BRANCHES in notes:
                name = deciding[0]
                is_flag = any(v.name == name and v.dtype == np.bool_ for v in graph.inputs)
                values = f"values={{{name!r}: True}}), or False," if is_flag else f"values={{{name!r}: value}})"
                named = f"input '{name}' may decide it: load(path, {values} loads one branch; or give a NumPy value"
                notes[notes.index(BOTH_BRANCHES)] = f"{BOTH_BRANCHES.partition(';')[0]}; {clean(named)}"
            raise
