"""A model that trains: a function from parameters and inputs to outputs and the next running statistics."""

from typing import Any

from jaxops.errors import UnsupportedError
from jaxops.graph.nodes import Graph
from jaxops.meshes import moved_to
from jaxops.runtime.arguments import named_outputs
from jaxops.runtime.model_function import ModelFunction


class TrainingFunction(ModelFunction):
    """A graph with `statistics` as a function that returns (outputs, statistics by the name of the parameter)."""

    def _run(self, weights: Any, values: Any, rng: Any, outputs: Any, *facts: Any) -> Any:
        graph = self._graph
        statistics = {graph.params[name]: tensor for name, tensor in graph.statistics or ()}
        if outputs == "*":
            tensors = super()._run(weights, values, rng, outputs, *facts)
            return tensors, self._in_place({name: tensors[tensor] for name, tensor in statistics.items()})
        chosen = graph.output_names if outputs is None else tuple(outputs)
        names = [*chosen, *statistics.values()]
        if facts:  # a later call is like this one only if it asks for the same tensors
            given, *cache = facts
            facts = (given._replace(outputs=names), *cache)
        results = super()._run(weights, values, rng, names, *facts)
        results = results if len(names) > 1 else (results,)
        count = len(chosen)
        first = results[0] if count == 1 else named_outputs(chosen)(*results[:count])
        return first, self._in_place(dict(zip(statistics, results[count:], strict=True)))

    def _in_place(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Returns the statistics where a mesh has the parameters that they replace."""
        places = self.runner.places
        return {name: moved_to(places[name][0], x) if name in places else x for name, x in statistics.items()}


def check_infers(caller: str, graph: Graph) -> None:
    """Raises UnsupportedError for a graph that trains, if `caller` needs one that returns its outputs alone."""
    if graph.statistics is not None:
        raise UnsupportedError(
            f"{caller}: the model was loaded with training=True; save it with `model.save(path, params)`, and load "
            "that file without this option"
        )
