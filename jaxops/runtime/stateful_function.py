"""A model with variables: a function from parameters, state and inputs to the next state and outputs."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.dtypes import as_traced, canonical
from jaxops.errors import ModelError, SignatureError, UnsupportedError
from jaxops.graph.nodes import Graph, Tensor, Value, Variable
from jaxops.runtime.arguments import Given, named_outputs
from jaxops.runtime.compiled_pieces import GraphRunner
from jaxops.runtime.model_function import ModelFunction
from jaxops.runtime.parameter_values import GivenWeights, Weights
from jaxops.runtime.training_function import TrainingFunction
from jaxops.runtime.x64 import under_its_x64
from jaxops.signature_errors import explained


class StatefulFunction(ModelFunction):
    """A graph with variables as a function. inputs: the variables' inputs come last.

    Called with `state`, a dictionary of all variables by name, it returns (state, outputs). Called with a value for the
    input of each variable, as `jax.export` does, it returns all outputs of the graph, the next values included.
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
        super().__init__(graph, inputs, defaults, tensors, runner, x64)
        count = len(graph.variables)
        self._variables, self._outputs = graph.variables, graph.outputs[: len(graph.outputs) - count]
        self._formals, befores = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
        self.state: dict[str, Value] = {
            variable.name: dataclasses.replace(value, name=variable.name)
            for variable, value in zip(graph.variables, befores, strict=True)
        }
        # Computes the first values; variables that a first value does not depend on need not be passed.
        self._first = ModelFunction(graph, self._formals, (*defaults, *befores), tensors, runner, x64)

    def apply(self, params: Mapping[str, Any], given: Given) -> Any:
        """Returns (state, outputs) for any parameters."""
        return self._stepped(super().apply, params, given)

    def call(self, weights: Weights | GivenWeights, given: Given) -> Any:
        """Returns (state, outputs) for parameters that stay the same in the next calls."""
        return self._stepped(super().call, weights, given)

    def _stepped(self, run: Callable[[Any, Given], Any], weights: Any, given: Given) -> Any:
        inputs, named, has_state = self._with_state(given.inputs, given.named)
        if not has_state:
            return run(weights, Given(inputs, named, given.rng, given.outputs))
        outputs = None if given.outputs is None else [*given.outputs, *(v.after for v in self._variables)]
        return self._split(run(weights, Given(inputs, named, given.rng, outputs)), given.outputs)

    def bind_inputs(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs by name, checked. The variables may be passed as `state`."""
        if len(inputs) <= len(self._formals):
            inputs, named, _ = self._with_state(inputs, named)
        return super().bind_inputs(inputs, named)

    def init(self, params: Mapping[str, Any], inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the state before the first step."""
        state: dict[str, Any] = {}
        values = {variable.before: variable for variable in self._variables}
        while values:
            ready = [variable for variable in values.values() if self._needs(variable).isdisjoint(values)]
            known = {variable.before: state[variable.name] for variable in self._variables if variable.name in state}
            initials = [variable.initial for variable in ready if variable.initial]
            results = self._first.apply(params, Given(inputs, {**named, **known}, None, initials)) if initials else ()
            computed = iter(results if len(initials) > 1 else (results,))
            for variable in ready:
                state[variable.name] = (
                    self._typed(variable, next(computed)) if variable.initial else self._zeros(variable)
                )
                del values[variable.before]
        return {variable.name: state[variable.name] for variable in self._variables}

    def _needs(self, variable: Variable) -> set[str]:
        """Returns the names that the first value of a variable depends on."""
        if not variable.initial:
            return set()
        return {variable.initial}.union(*(node.uses() for node in self.part([variable.initial]).nodes))

    def _typed(self, variable: Variable, value: Any) -> Any:
        formal, array = self.state[variable.name], as_traced(value)
        if formal.dtype is None or array.dtype == canonical(formal.dtype):
            return array
        raise ModelError(
            f"init: the model declares the variable {formal}, but computes its first value as {array.dtype.name}"
        )

    def _zeros(self, variable: Variable) -> Any:
        formal = self.state[variable.name]
        sizes = [size if isinstance(size, int) else 0 for size in formal.shape or ()]
        return as_traced(np.zeros(sizes, canonical(formal.dtype)))

    def _with_state(
        self, inputs: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any], bool]:
        """Returns the inputs together with those of the variables, and whether these were passed as `state`."""
        if "state" not in named:
            by_name = {**(inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping) else {}), **named}
            if all(variable.before in by_name for variable in self._variables):
                return inputs, named, False
            raise SignatureError(
                f"the model has a state, {', '.join(map(str, self.state.values()))}\n"
                "  hint    state = model.init(params, *inputs); state, outputs = model.step(params, state, *inputs), "
                "or model(*inputs, state=state)"
            )
        state = named["state"]
        named = {name: value for name, value in named.items() if name != "state"}
        if not isinstance(state, Mapping):
            raise SignatureError(f"state: give a dictionary as `model.init` returns it, not {type(state).__name__}")
        for name in (*state, *self.state):
            if name not in state or name not in self.state:
                problem = "missing" if name in self.state else "unknown"
                raise SignatureError(
                    f"state: variable '{name}' is {problem}; the variables are {list(self.state)}\n"
                    "  hint    give the state that model.init(params, *inputs) or the step before returned"
                )
        befores = {variable.before: state[variable.name] for variable in self._variables}
        if not named and len(inputs) == len(self._formals) and not any(isinstance(x, Mapping) for x in inputs):
            return (*inputs, *befores.values()), named, True
        return inputs, {**named, **befores}, True

    def _split(self, results: Any, outputs: Any) -> tuple[dict[str, Any], Any]:
        names = [value.name for value in self._outputs] if outputs is None else outputs
        count = len(names)
        state = dict(zip(self.state, results[count:], strict=True))
        return state, results[0] if count == 1 else named_outputs(tuple(names))(*results[:count])


class StateMethods:
    """The methods of a model for its state."""

    graph: Graph
    x64: bool
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    _formals: tuple[Value, ...]
    _defaults: tuple[Value, ...]
    _tensors: dict[str, Tensor]
    _function: ModelFunction

    def _declare(self, formals: tuple[Value, ...], outputs: tuple[Value, ...]) -> None:
        """Sets `inputs` and `outputs` of the model. formals, outputs: those of the graph, with the variables' ones."""
        count = len(self.graph.variables)
        self._formals = formals
        self.inputs, self.outputs = formals[: len(formals) - count], outputs[: len(outputs) - count]

    def _function_by(self, runner: GraphRunner) -> ModelFunction:
        if self.graph.statistics is not None:
            kind = TrainingFunction
        else:
            kind = StatefulFunction if self.graph.variables else ModelFunction
        return kind(self.graph, self._formals, self._defaults, self._tensors, runner, self.x64)

    @property
    def state(self) -> dict[str, Value]:
        """The variables of a model, name → type and sizes, in the order of the file; empty for a model without any.

        Such a model keeps values from call to call, as OpenVINO's ReadValue and Assign do.

        >>> import jaxops.openvino
        >>> print(jaxops.openvino.load("notebooks/running_sum.xml").state["total"])
        total: float32[2]
        """
        return dict(self._function.state) if isinstance(self._function, StatefulFunction) else {}

    @explained
    @under_its_x64
    def init(self, params: Mapping[str, Any], /, *inputs: Any, **named: Any) -> dict[str, Any]:
        """Returns the state before the first step, a dictionary with the keys of `model.state`.

        The model computes it from the parameters and the inputs of the first step. A variable without such a
        computation begins with zeros, and with size 0 on axes whose size is not fixed.

        Raises UnsupportedError for a model without variables, and what `apply` raises.

        >>> import numpy as np, jaxops.openvino
        >>> model = jaxops.openvino.load("notebooks/running_sum.xml")
        >>> model.init(model.params, np.float32([1, 2]))["total"].tolist()
        [0.0, 0.0]
        """
        return self._stateful("init").init(params, inputs, named)

    def step(self, params: Mapping[str, Any], state: Mapping[str, Any], /, *inputs: Any, **named: Any) -> Any:
        """Runs a model with variables as a pure function: returns (the state after this call, its outputs).

        state: from `init` or the step before. This is the order of `jax.lax.scan`, which takes a state whose sizes do
        not change. inputs, named: as in `apply`, with `rng` and `outputs`. `model(*inputs, state=state)` is the step
        with the model's own parameters.
        Raises UnsupportedError for a model without variables, SignatureError for a missing or unknown variable, and
        what `apply` raises.

        >>> import numpy as np, jaxops.openvino
        >>> model = jaxops.openvino.load("notebooks/running_sum.xml")
        >>> state, total = model.step(model.params, {"total": np.float32([3, 3])}, np.float32([1, 2]))
        >>> total.tolist()
        [4.0, 5.0]
        """
        rng, outputs = named.pop("rng", None), named.pop("outputs", None)
        return self._stateful("step").apply(params, Given(inputs, {**named, "state": state}, rng, outputs))

    def _stateful(self, caller: str) -> StatefulFunction:
        if not isinstance(self._function, StatefulFunction):
            raise UnsupportedError(
                f"{caller}: the model has no variables, so it has no state; call model(…) or model.apply(params, …)"
            )
        return self._function
