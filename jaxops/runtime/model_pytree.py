"""The static part of a model as a pytree, whose leaves are `Model.params`.

Two loads of one file have equal structures. Structures are equal if what decides the program is: the graphs, and
options of `load` such as `precision`, `sizes`, `bounds` and `operators`. Parameters do not count, nor does where they
are (`sharding`), nor the limit of memory (`max_bytes`).
"""

import copy
import dataclasses
import functools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.tree_util import GetAttrKey

from jaxops.compiler.fingerprint import digest, fingerprint
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.runtime.parameter_values import GivenWeights

# The length of a fact in a message.
_SHOWN = 10


def graph_texts(content: Callable[[Any], bytes]) -> Callable[[Any], str]:
    """Returns a function that returns the text of a value: that of its fields for nodes and graphs, or else a digest.

    content: the bytes of a value, for the digest. The function is for values of one model, which it distinguishes by
    identity.
    """
    digests: dict[int, str] = {}

    def of(x: Any) -> str:
        if dataclasses.is_dataclass(x) and type(x).__module__ == Graph.__module__:
            return f"{type(x).__name__}{fingerprint([getattr(x, field.name) for field in dataclasses.fields(x)], of)}"
        if id(x) not in digests:
            digests[id(x)] = digest(content(x))
        return digests[id(x)]

    return of


def _content(x: Any) -> bytes:
    """Returns the bytes of a value. A custom operator's function is compared by identity, since another function may
    have the same name (in a notebook, say)."""
    if not _is_ours(x):
        return f"{type(x).__name__} of function {id(x.function)}".encode()
    return pickle.dumps(x)


def _own_operators(graph: Graph, seen: set[Graph]) -> Iterator[Any]:
    """Yields the operators of a caller that nodes have, in subgraphs and functions too."""
    seen.add(graph)
    for node in graph.nodes:
        if not _is_ours(node.operator):
            yield node.operator
        for inner in node.nested:
            if inner not in seen:
                yield from _own_operators(inner, seen)


def _is_ours(x: Any) -> bool:
    module = getattr(getattr(x, "function", None), "__module__", "jaxops")
    return module.partition(".")[0] == "jaxops"


class ModelStructure:
    """A model without parameters. Structures that compute the same function are equal."""

    def __init__(self, model: Any, facts: Mapping[str, Any]) -> None:
        """facts: by a name for messages, everything that determines the model's program."""
        self._model = again(model)
        # Without parameters: programs that JAX compiles for a structure keep the structure in memory.
        self._model._weights = GivenWeights(model._tensors, None)
        graph = model.graph
        bounded, own = [node for node in graph.nodes if node.bounded], list(_own_operators(graph, set()))
        self._facts = {**facts, "bounds": bounded or None, "operators": own or None, "nodes": graph}

    @functools.cached_property
    def _texts(self) -> dict[str, str]:
        """A text for each fact: short ones as they are, long ones as a digest."""
        of = graph_texts(_content)
        texts = {name: fingerprint(fact, of) for name, fact in self._facts.items()}
        return {name: text if len(text) <= _SHOWN else digest(text.encode()) for name, text in texts.items()}

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ModelStructure) and self._texts == other._texts)

    def __hash__(self) -> int:
        return hash(tuple(self._texts.items()))

    def __repr__(self) -> str:
        """The model and each fact: JAX prints this for two structures that differ."""
        return f"{self._model!r} with {', '.join(f'{name} {text[:_SHOWN]}' for name, text in self._texts.items())}"

    def with_params(self, params: Mapping[str, Any]) -> Any:
        """Returns the model with these parameters."""
        model = again(self._model)
        model._weights = GivenWeights(model._tensors, params)
        model._structure = self
        return model


def again(model: Any) -> Any:
    """Returns a shallow copy of a model, without the programs that were compiled for it. Unlike `copy.copy`, it does
    not read the parameters."""
    found = object.__new__(type(model))
    found.__dict__.update({name: value for name, value in model.__dict__.items() if name != "programs"})
    return found


def with_tensors_given(model: Any, nodes: Sequence[Node], values: Sequence[Value]) -> Any:
    """Returns a model without some nodes of its graph, whose results are inputs, to be given by name."""
    found = again(model)
    found.__dict__.pop("_structure", None)
    left = tuple(node for node in model.graph.nodes if node not in nodes)
    found.graph = dataclasses.replace(model.graph, nodes=left, inputs=(*model.graph.inputs, *values))
    found._declare((*model._formals, *values), model.graph.outputs)
    found._function = found._function_by(copy.copy(model._function.runner))
    return found


def register_model(kind: type) -> None:
    """Makes a class of models a pytree."""
    jax.tree_util.register_pytree_with_keys(
        kind,
        lambda model: (((GetAttrKey("params"), model.params),), model._structure),
        lambda structure, children: structure.with_params(*children),
        lambda model: ((model.params,), model._structure),
    )
