"""An operator as the signature of its function says it: the contract that every front end reads."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, get_origin

from jaxops.errors import SignatureError
from jaxops.static import KEEPS_SIZES, OF_INPUTS, QUANTIZABLE, STATIC, VECTOR, Subgraph

if TYPE_CHECKING:
    from jaxops.graph.nodes import Graph, Node

# Parameters that are neither inputs nor attributes: what the node asks for and what the model was given.
RESERVED = {"n_outputs", "rng"}


def marks(annotation: Any) -> tuple[Any, ...]:
    """What `Annotated` carries, also inside a union with None."""
    found = tuple(getattr(annotation, "__metadata__", ()))
    for part in get_args(annotation):
        found += tuple(getattr(part, "__metadata__", ()))
    return found


def choices(annotation: Any) -> tuple[Any, ...]:
    """What a `Literal`, also inside a union with None, allows; empty for another annotation."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((get_args(part) for part in get_args(annotation) if get_origin(part) is Literal), ())


class SignatureOperator:
    """An operator whose function's positional parameters are its inputs, and the keyword ones its attributes.

    Their annotations carry the marks of `jaxops.static`. A front end adds what its format says beyond that.
    """

    def __init__(
        self, name: str, fn: Callable[..., Any] | None, formals: Sequence[str] | None = None, variadic: bool = False
    ) -> None:
        """name: as the file has it. fn: None for an operator that a graph defines. formals: the format's names of the
        inputs; else the parameters' own. variadic: the function takes the inputs from the last formal on as one list.
        """
        self.name, self.fn, self.variadic = name, fn, variadic
        if formals is not None:
            self.formals = formals

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.fn, self.formals, self.variadic)

    def with_function(self, fn: Callable[..., Any]) -> Self:
        """The same operator, done by another function of the same signature."""
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__, fn=fn)
        return found

    @property
    def label(self) -> str:
        """The operator in the context of an error."""
        return self.name

    @functools.cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the function."""
        return inspect.signature(self.fn, eval_str=True).parameters if self.fn else {}

    @functools.cached_property
    def _positional(self) -> Sequence[inspect.Parameter]:
        return [p for p in self.parameters.values() if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]

    @functools.cached_property
    def formals(self) -> Sequence[str]:
        """The names of its inputs; a last `*rest` stands for any number."""
        return tuple(p.name for p in self._positional)

    @functools.cached_property
    def _marks(self) -> Sequence[tuple[Any, ...]]:
        return [marks(p.annotation) for p in self._positional[: len(self.formals)]]

    def _marks_of(self, position: int) -> tuple[Any, ...]:
        return self._marks[min(position, len(self._marks) - 1)] if self._marks else ()

    def mark(self, position: int) -> str | None:
        """STATIC, SHAPE_ONLY or STATISTICS where the input at `position` is marked so; a variadic input shares one."""
        return next((m for m in OF_INPUTS if m in self._marks_of(position)), None)

    def is_vector(self, position: int) -> bool:
        """Whether the text says that the input at `position` is 1-D, where the function takes a single integer too."""
        return VECTOR in self._marks_of(position)

    def takes_dequantized(self, position: int) -> bool:
        """Whether the input at `position` may be a `Dequantized` array."""
        return QUANTIZABLE in self._marks_of(position)

    @property
    def keeps_sizes(self) -> bool:
        """Whether the first result has the sizes of the first input."""
        return KEEPS_SIZES in self._marks_of(0)

    @property
    def foldable(self) -> bool:
        """Whether the function computes static operands to a static result."""
        return getattr(self.fn, "foldable", False)

    @property
    def sized_by_data(self) -> bool:
        """Whether the size of the result depends on data; the function has a bounded form then, with `size`."""
        size = self.parameters.get("size")
        return size is not None and size.kind is size.KEYWORD_ONLY and STATIC in marks(size.annotation)

    @property
    def draws(self) -> bool:
        """Whether the function itself takes a random key; one with subgraphs takes it for them."""
        return "rng" in self.parameters and not self.subgraphs

    @functools.cached_property
    def subgraphs(self) -> Mapping[str, Subgraph]:
        """How operands and outputs pass through each graph among the attributes."""
        marked = {name: marks(p.annotation) for name, p in self.parameters.items()}
        return {name: m for name, carried in marked.items() for m in carried if isinstance(m, Subgraph)}

    def choices(self, name: str) -> tuple[Any, ...]:
        """What an enumerated attribute may be; empty for another attribute."""
        return choices(self.parameters[name].annotation)

    def check_node(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
        """Raises SignatureError for inputs or attributes of a node that the function does not take."""
        assert self.fn is not None
        signature, reserved = inspect.signature(self.fn), RESERVED & self.parameters.keys()
        try:
            signature.bind(*self._arguments(inputs), **attributes, **dict.fromkeys(reserved))
        except TypeError as error:
            raise SignatureError(
                f"{self.name}: {error}; the node has {len(inputs)} inputs and the attributes "
                f"{sorted(attributes) or 'none'}, the function is {self.name}{signature}"
            ) from error

    def _arguments(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs as the function takes them."""
        if not self.variadic:
            return inputs
        before = len(self.formals) - 1
        padded = [*inputs, *[None] * (before - len(inputs))]
        return [*padded[:before], padded[before:]]

    def results(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int | None, rng: Any) -> Any:
        """What the function returns for inputs (None for one left out) and attributes."""
        assert self.fn is not None
        context = {"n_outputs": n_outputs, "rng": rng}
        extra = {name: value for name, value in context.items() if name in self.parameters}
        return self.fn(*self._arguments(inputs), **attributes, **extra)

    def call(
        self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int | None, rng: Any
    ) -> Sequence[Any]:
        """The outputs for inputs (None for one left out) and attributes."""
        result = self.results(inputs, attributes, n_outputs=n_outputs, rng=rng)
        return result if isinstance(result, tuple) else (result,)

    def check(self, inputs: Sequence[Any]) -> None:
        """Nothing: the function says what it takes."""

    def check_results(self, values: Sequence[Any]) -> None:
        """Nothing: the function says what it makes."""

    def body(self, node: "Node", inputs: Sequence[Any]) -> "Graph | None":
        """None: the function, or the body of the node, does it."""
