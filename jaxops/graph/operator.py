"""What a graph needs to know of an operator."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jaxops.signature import Subgraph

if TYPE_CHECKING:
    from jaxops.graph.nodes import Graph, Node


class Operator(Protocol):
    """An operator, as each front end brings its own."""

    @property
    def name(self) -> str:
        """What people call it, such as Relu."""
        ...

    @property
    def label(self) -> str:
        """The name and where it comes from, such as `Relu, opset 18`."""
        ...

    @property
    def function(self) -> Callable[..., Any] | None:
        """The function that has its meaning, whose signature and traits say what it is; None where a graph has it."""
        ...

    @property
    def formals(self) -> Sequence[str]:
        """The names of its inputs; where there may be more inputs, the last name stands for them."""
        ...

    @property
    def foldable(self) -> bool:
        """Whether static operands make a static result, at once."""
        ...

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers itself, beside what its subgraphs draw."""
        ...

    @property
    def sized_by_data(self) -> bool:
        """Whether the size of its result depends on the values of its operands."""
        ...

    @property
    def keeps_sizes(self) -> bool:
        """Whether its first result has the sizes of its first operand, whatever the other operands are."""
        ...

    @property
    def subgraphs(self) -> Mapping[str, Subgraph]:
        """How operands and outputs pass through the graphs among its attributes."""
        ...

    def mark(self, position: int) -> str | None:
        """What the input at `position` is: static, only its sizes looked at, statistics, of the sizes of the first
        result, or just data (None)."""
        ...

    def takes_dequantized(self, position: int) -> bool:
        """Whether the input at `position` may be a `Dequantized` array."""
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
