"""The facts about an operator that a graph needs."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from jaxops.signature import Subgraph, Traits

if TYPE_CHECKING:
    from jaxops.graph.nodes import Graph, Node


class Operator(Protocol):
    """An operator, as each front end brings its own."""

    @property
    def name(self) -> str:
        """The usual name, such as Relu."""
        ...

    @property
    def label(self) -> str:
        """The name and where it comes from, such as `Relu, opset 18`."""
        ...

    @property
    def function(self) -> Callable[..., Any] | None:
        """The function with its meaning, whose signature says the roles of the inputs; None if a graph defines it."""
        ...

    @property
    def traits(self) -> Traits:
        """Its kind, its precision in a narrower model, whether integers grow, and whether it has a derivative."""
        ...

    @property
    def formals(self) -> Sequence[str]:
        """The names of its inputs; where there may be more inputs, the last name stands for them."""
        ...

    @property
    def foldable(self) -> bool:
        """True if static operands give a static result at once."""
        ...

    @property
    def draws(self) -> bool:
        """True if it draws random numbers itself, apart from its subgraphs."""
        ...

    @property
    def sized_by_data(self) -> bool:
        """True if the size of its result depends on the values of its operands; it has an attribute `size` then."""
        ...

    @property
    def bounded(self) -> bool:
        """True if its result has a fixed size where it depends on the values of its operands."""
        ...

    @property
    def keeps_sizes(self) -> bool:
        """True if its first result has the sizes of its first operand, for any other operands."""
        ...

    @property
    def subgraphs(self) -> Mapping[str, Subgraph]:
        """For each attribute that holds a graph, the way of operands and outputs through it."""
        ...

    def mark(self, position: int) -> str | None:
        """The mark of the input at `position`: static, only its sizes read, statistics, of the sizes of the first
        result, or None for plain data.
        """
        ...

    def sizes_result(self, position: int) -> bool:
        """True if the size of its result depends on the values of the input at `position`."""
        ...

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises for operands that it does not take."""
        ...

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs; subgraphs come as callables among the attributes."""
        ...

    def check_results(self, values: Sequence[Any]) -> None:
        """Raises for outputs that it may not make."""
        ...

    def output_types(self, node: "Node", inputs: Sequence[np.dtype | None]) -> Sequence[np.dtype | None]:
        """The element type of each output of a node, for those of its inputs; None where that is open."""
        ...

    def body(self, node: "Node", inputs: Sequence[Any]) -> "Graph | None":
        """The graph that defines it, where that depends on the types of the inputs; else None."""
        ...


class WrappedOperator:
    """An operator that is `inner` in all that a subclass does not say."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of protocols, which copies and printers ask for
            raise AttributeError(name)
        return getattr(self.inner, name)

    def with_function(self, fn: Callable[..., Any]) -> Self:
        """The same operator, done by another function of the same signature."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, inner=self.inner.with_function(fn))
        return copied
