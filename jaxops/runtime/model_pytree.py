"""The static part of a model as a pytree, whose leaves are `Model.params`.

Two loads of one file have equal structures. Structures are equal if the graphs and the options of `load` are;
parameters do not count.
"""

import dataclasses
import functools
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.tree_util import GetAttrKey

from jaxops.compiler.fingerprint import digest, fingerprint
from jaxops.graph.nodes import Graph
from jaxops.runtime.parameter_values import GivenWeights


def graph_texts(content: Callable[[Any], bytes]) -> Callable[[Any], str]:
    """Returns a function that returns the text of a value: that of its fields for nodes and graphs, or else a digest.

    content: the bytes of a value, for the digest. The function is for values of one model, which it tells by identity.
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
    function = getattr(x, "function", None)
    if getattr(function, "__module__", "jaxops").partition(".")[0] != "jaxops":
        return f"{type(x).__name__} of function {id(function)}".encode()
    return pickle.dumps(x)


class ModelStructure:
    """A model without parameters. Structures that compute the same function are equal."""

    def __init__(self, model: Any, *facts: Any) -> None:
        """facts: everything that determines the model's program."""
        self._model = again(model)
        # Without parameters: programs that JAX compiles for a structure keep the structure in memory.
        self._model._weights = GivenWeights(model._tensors, None)
        runner = model._function.runner
        self._facts = *facts, runner.max_bytes, runner.precision

    @functools.cached_property
    def _text(self) -> str:
        return digest(fingerprint(self._facts, graph_texts(_content)).encode())

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ModelStructure) and self._text == other._text)

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return repr(self._model)

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


def register_model(kind: type) -> None:
    """Makes a class of models a pytree."""
    jax.tree_util.register_pytree_with_keys(
        kind,
        lambda model: (((GetAttrKey("params"), model.params),), model._structure),
        lambda structure, children: structure.with_params(*children),
        lambda model: ((model.params,), model._structure),
    )
