"""The facts about an operator that a graph needs."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from jaxops.signature import Subgraph, Traits

if TYPE_CHECKING:
    from jaxops.graph.nodes import Graph, Node


class Operator(Protocol):
    """An operator; each front end has a class with this interface."""

    @property
    def name(self) -> str:
        """The usual name, such as Relu."""
        ...

    @property
    def label(self) -> str:
        """The name and the opset or version, such as `Relu, opset 18`."""
        ...

    @property
    def function(self) -> Callable[..., Any] | None:
        """The function that computes it, whose signature has the roles of the inputs; None if a graph defines it."""
        ...

    @property
    def traits(self) -> Traits:
        """Its kind, its precision in a model of narrower floats, whether integers may overflow, and whether it has a
        derivative."""
        ...

    @property
    def formals(self) -> Sequence[str]:
        """The names of its inputs; the last name also stands for any further inputs."""
        ...

    @property
    def foldable(self) -> bool:
        """True if NumPy computes the result when all operands are static."""
        ...

    @property
    def draws(self) -> bool:
        """True if it draws random numbers itself, apart from its subgraphs."""
        ...

    @property
    def sized_by_data(self) -> bool:
        """True if the size of its result depends on the values of its operands; if so, it has an attribute `size`."""
        ...

    @property
    def bounded(self) -> bool:
        """True if its result has a fixed size in place of one that depends on the values of its operands."""
        ...

    @property
    def keeps_sizes(self) -> bool:
        """True if its first result has the sizes of its first operand, for any other operands."""
        ...

    @property
    def subgraphs(self) -> Mapping[str, Subgraph]:
        """For each attribute that holds a graph, how the node's operands and outputs correspond to the graph's."""
        ...

    def mark(self, position: int) -> str | None:
        """The mark of the input at `position`; None for plain data.

        Marks: its value is static, only its sizes are read, it holds statistics, it has the sizes of the first result.
        """
        ...

    def sizes_result(self, position: int) -> bool:
        """True if the size of its result depends on the values of the input at `position`."""
        ...

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises an error for operands that the operator does not accept."""
        ...

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs; subgraphs are passed as functions among the attributes."""
        ...

    def check_results(self, values: Sequence[Any]) -> None:
        """Raises an error for outputs that the operator may not have."""
        ...

    def output_types(self, node: "Node", inputs: Sequence[np.dtype | None]) -> Sequence[np.dtype | None]:
        """The element type of each output of a node, given those of its inputs; None if it is unknown."""
        ...

    def body(self, node: "Node", inputs: Sequence[Any]) -> "Graph | None":
        """The graph that defines the operator for the types of these inputs; None if its function computes it."""
        ...


class WrappedOperator:
    """An operator that delegates to `inner` whatever a subclass does not define."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copies and printers ask for names of protocols
            raise AttributeError(name)
        return getattr(self.inner, name)

    def with_function(self, fn: Callable[..., Any]) -> Self:
        """The same operator, computed by another function of the same signature."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, inner=self.inner.with_function(fn))
        return copied
