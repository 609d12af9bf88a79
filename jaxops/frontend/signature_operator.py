"""An operator that is defined by the signature of its function; each front end extends it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from jaxops.errors import SignatureError, amount
from jaxops.signature import (
    KEEPS_SIZES,
    OF_INPUTS,
    SIZES_RESULT,
    STATIC,
    VECTOR,
    OutputFlag,
    Subgraph,
    choices,
    marks,
    traits,
)

if TYPE_CHECKING:
    from jaxops.graph.nodes import Graph, Node

# Parameters that are neither inputs nor attributes.
RESERVED = {"n_outputs", "rng"}


class SignatureOperator:
    """An operator whose inputs are the positional parameters of a function, and whose attributes are the keyword ones.

    Annotations of the parameters carry the marks of `jaxops.signature`. Front ends add checks of their format.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any] | None,
        formals: Sequence[str] | None = None,
        variadic: bool = False,
        function: Callable[..., Any] | None = None,
    ) -> None:
        """name: that in the file. fn: None for an operator that a graph defines. formals: the format's names of the
        inputs; by default, the names of the parameters. variadic: whether the function takes the inputs from the last
        formal on as one list. function: the function that `fn` adapts; its traits and roles of inputs are used.
        """
        self.name, self.fn, self.variadic, self.function = name, fn, variadic, function or fn
        self.parameters = inspect.signature(fn, eval_str=True).parameters if fn else {}
        positional = [p for p in self.parameters.values() if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
        self.formals = [p.name for p in positional] if formals is None else formals  # the last one may be `*rest`
        self._inputs = [p.name for p in positional[: len(self.formals)]]
        self._marks = {name: marks(p.annotation) for name, p in self.parameters.items()}
        carried = self._marks.items()
        # Attribute with a graph → how the node's operands and outputs correspond to the graph's.
        self.subgraphs = {name: mark for name, each in carried for mark in each if isinstance(mark, Subgraph)}
        self._flags = {name: mark.position for name, each in carried for mark in each if isinstance(mark, OutputFlag)}
        self.traits = traits(self.function)
        self.foldable = self.traits.foldable
        self.draws = "rng" in self.parameters and not self.subgraphs  # with subgraphs, the key is for these
        self.keeps_sizes = KEEPS_SIZES in self._marks_of(0)
        # A node that runs by itself asks for them at each call.
        self._input_marks = [next((m for m in OF_INPUTS if m in self._marks[name]), None) for name in self._inputs]

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.fn, self.formals, self.variadic, self.function)

    def with_function(self, fn: Callable[..., Any]) -> Self:
        """The same operator, computed by another function of the same signature."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, fn=fn)
        return copied

    @property
    def label(self) -> str:
        """The operator's name in the note of an error."""
        return self.name

    @property
    def public_opset(self) -> tuple[str, int] | None:
        """The module and the number of the `opset` that has the operator as a function: `("jaxops.onnx", 9)`.

        None if there is none.
        """
        return None

    @property
    def sized_by_data(self) -> bool:
        """True if the size of the result depends on data; if so, the function has a parameter `size` for a bound."""
        size = self.parameters.get("size")
        return size is not None and size.kind is size.KEYWORD_ONLY and STATIC in self._marks["size"]

    @property
    def bounded(self) -> bool:
        """False: see `jaxops.graph.bounds`."""
        return False

    def sizes_result(self, position: int) -> bool:
        """True if the size of the result depends on the values of the input at `position`."""
        is_marked = any(SIZES_RESULT in each for each in self._marks.values())
        return self.sized_by_data and (not is_marked or SIZES_RESULT in self._marks_of(position))

    def _marks_of(self, position: int) -> tuple[Any, ...]:
        """The marks of an input; a variadic input shares one parameter."""
        return self._marks[self._inputs[min(position, len(self._inputs) - 1)]] if self._inputs else ()

    def mark(self, position: int) -> str | None:
        """The mark of the input at `position`, such as STATIC, SHAPE_ONLY or STATISTICS; None if it has none."""
        return self._input_marks[min(position, len(self._input_marks) - 1)] if self._input_marks else None

    def is_vector(self, position: int) -> bool:
        """Returns True if the standard requires a 1-D input at `position`; the function also takes an integer."""
        return VECTOR in self._marks_of(position)

    def choices(self, name: str) -> tuple[Any, ...]:
        """The values of an enumerated attribute; empty for another attribute."""
        return choices(self.parameters[name].annotation)

    def check_node(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
        """Raises SignatureError for inputs or attributes of a node that the function does not have."""
        assert self.fn is not None
        signature, reserved = inspect.signature(self.fn), RESERVED & self.parameters.keys()
        try:
            signature.bind(*self._arguments(inputs), **attributes, **dict.fromkeys(reserved))
        except TypeError as error:
            raise SignatureError(
                f"{self.name}: {error}; the node has {amount(len(inputs), 'input')} and the attributes "
                f"{sorted(attributes) or 'none'}, the function is {self.name}{signature}"
            ) from error

    def _arguments(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Returns the inputs in the form that the function takes."""
        if not self.variadic:
            return inputs
        before = len(self.formals) - 1
        padded = [*inputs, *[None] * (before - len(inputs))]
        return [*padded[:before], padded[before:]]

    def exact(
        self, inputs: Sequence[Any], attributes: Mapping[str, Any], n_outputs: int
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The inputs and attributes in the form that the format asks for."""
        return inputs, attributes

    def results(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Any:
        """The result of the function for inputs (None for an omitted one) and attributes."""
        assert self.fn is not None
        extra: dict[str, Any] = {name: True for name, position in self._flags.items() if n_outputs > position}
        if "n_outputs" in self.parameters:
            extra["n_outputs"] = n_outputs
        if "rng" in self.parameters:
            extra["rng"] = rng
        return self.fn(*self._arguments(inputs), **extra, **attributes)

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs for inputs (None for an omitted one) and attributes."""
        result = self.results(inputs, attributes, n_outputs=n_outputs, rng=rng)
        return result if isinstance(result, tuple) else (result,)

    def check(self, inputs: Sequence[Any]) -> None:
        """Does nothing: the function checks its inputs."""

    def check_results(self, values: Sequence[Any]) -> None:
        """Does nothing: the function determines its results."""

    def output_types(self, node: "Node", inputs: Sequence[np.dtype | None]) -> list[np.dtype | None]:
        """None for each output: a signature does not determine element types."""
        return [None] * len(node.outputs)

    def body(self, node: "Node", inputs: Sequence[Any]) -> "Graph | None":
        """None: the function, or the body of the node, computes the operator."""
