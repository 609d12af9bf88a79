"""Operators that the caller of `load` brings: their signature is all that is known of them."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, SignatureError
from jaxops.frontend.signature_operator import RESERVED, marks
from jaxops.lazy_sequences import GrowingSequence
from jaxops.static import KEEPS_SIZES, OF_INPUTS, Subgraph

if TYPE_CHECKING:
    from jaxops.graph.nodes import Graph, Node


@dataclass(frozen=True, eq=False)
class OwnOperator:
    """An operator of the caller's: inputs are its positional parameters, attributes its keyword ones."""

    name: str
    domain: str
    fn: Callable[..., Any]
    sized_by_data = False

    @property
    def label(self) -> str:
        """The operator in the context of an error."""
        return f"{self.name}, of {self.domain or 'ai.onnx'}, as given to load"

    @functools.cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the function."""
        return inspect.signature(self.fn, eval_str=True).parameters

    @functools.cached_property
    def _positional(self) -> Sequence[inspect.Parameter]:
        return [p for p in self.parameters.values() if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]

    @property
    def formals(self) -> Sequence[str]:
        """The names of its inputs; a last `*rest` stands for any number."""
        return [p.name for p in self._positional]

    @property
    def foldable(self) -> bool:
        """Whether it is marked to compute static operands to a static result."""
        return getattr(self.fn, "foldable", False)

    @property
    def draws(self) -> bool:
        """Whether it takes a random key."""
        return "rng" in self.parameters

    @property
    def keeps_sizes(self) -> bool:
        """Whether the first parameter is marked so."""
        return bool(self._positional) and KEEPS_SIZES in marks(self._positional[0].annotation)

    @functools.cached_property
    def subgraphs(self) -> Mapping[str, Subgraph]:
        """How operands and outputs pass through the graphs among its attributes."""
        found = {name: m for name, p in self.parameters.items() for m in marks(p.annotation)}
        return {name: m for name, m in found.items() if isinstance(m, Subgraph)}

    def mark(self, position: int) -> str | None:
        """The mark of the parameter for the input at `position`."""
        found = marks(self._positional[min(position, len(self._positional) - 1)].annotation)
        return next((m for m in OF_INPUTS if m in found), None)

    def takes_dequantized(self, position: int) -> bool:
        """Never: the function gets arrays."""
        return False

    def fit(self, node: "Node", attributes: Mapping[str, Any]) -> None:
        """Raises SignatureError for a node whose inputs or attributes the function does not take."""
        extra = {name: None for name in RESERVED if name in self.parameters}
        try:
            inspect.signature(self.fn).bind(*node.inputs, **attributes, **extra)
        except TypeError as error:
            raise SignatureError(
                f"{self.name}: {error}; the node has {len(node.inputs)} inputs and the attributes "
                f"{sorted(attributes) or 'none'}, the function is {self.name}{inspect.signature(self.fn)}"
            ) from error

    def check(self, inputs: Sequence[Any]) -> None:
        """Nothing: the function says what it takes."""

    def check_results(self, values: Sequence[Any]) -> None:
        """Nothing: it may make what it likes."""

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs of the function: several come as a tuple or list. Numbers become arrays, as JAX makes them.

        Raises SignatureError for what is no array, sequence or map of arrays.
        """
        context = {"n_outputs": n_outputs, "rng": rng}
        extra = {name: value for name, value in context.items() if name in self.parameters}
        found = self.fn(*inputs, **attributes, **extra)
        outputs = found if isinstance(found, tuple | list) else (found,)
        return [
            jax.tree.map(functools.partial(self._array, k), value, is_leaf=_is_iterator)
            for k, value in enumerate(outputs)
        ]

    def _array(self, position: int, value: Any) -> Any:
        if isinstance(value, bool | int | float | complex):
            return as_traced(np.asarray(value))
        known = hasattr(value, "dtype") or isinstance(value, GrowingSequence)
        if not known or isinstance(value, jax.ShapeDtypeStruct):
            raise SignatureError(
                f"{self.name}: output {position} of the function given to load is {value!r:.80}; it must be an array, "
                "a list or a dictionary of arrays, or None"
            )
        return value

    def body(self, node: "Node", inputs: Sequence[Any]) -> "Graph | None":
        """None: the function does it."""


def _is_iterator(value: Any) -> bool:
    """Whether it is what JAX would take for a sequence for now."""
    return isinstance(value, Iterator)


def own_operators(given: Mapping[tuple[str, str], Callable[..., Any]]) -> dict[tuple[str, str], OwnOperator]:
    """The operators by (domain, name). Raises ArgumentError for another key, or what cannot be called."""
    found = {}
    for key, fn in given.items():
        if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(part, str) for part in key)):
            raise ArgumentError(f"`operators`: the key {key!r} must be (domain, name), such as ('my.domain', 'MyOp')")
        if not callable(fn):
            raise ArgumentError(f"`operators`: {key!r} is {fn!r:.80}; it must be a function of the inputs")
        domain, name = key
        domain = "" if domain == "ai.onnx" else domain
        found[domain, name] = OwnOperator(name, domain, fn)
    return found
