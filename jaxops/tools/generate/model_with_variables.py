"""A model whose caches are variables as a function whose caches are inputs and outputs."""

from collections.abc import Mapping
from typing import Any

from jaxops.tools.generate.step_of_rows import Decodable


class WithVariables:
    """A model as the pure function of its graph, in which each variable is an input and an output.

    caches: input → output for each variable.
    """

    def __init__(self, model: Decodable) -> None:
        self._model, self.graph, self.x64 = model, model.graph, model.x64
        self.inputs = *model.inputs, *model.graph.inputs[len(model.inputs) :]
        self.outputs = model.graph.outputs
        self.caches = {variable.before: variable.after for variable in model.graph.variables}

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the model."""
        return self._model.params

    def apply(self, params: Mapping[str, Any], /, *inputs: Any, **named: Any) -> Any:
        """The pure function."""
        return self._model.apply(params, *inputs, **named)
