"""The contract of an operator at one version, in the form that every front end gives it.

A front end makes a `Schema` for each version of an operator from a table of its own, in a subclass that knows how its
format names types and writes attributes. `jaxops.frontend.schema_operator` makes an operator of it and of a function.
"""

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

Option = Literal["single", "optional", "variadic"]


@dataclass(frozen=True)
class Formal:
    """An input or an output.

    kind: the type variable, or the type, that the text gives it. types: the names of the types that this permits: of a
    stated type, its own name alone. option: one that must be there, one that may be left out, or the last one, which
    stands for at least `least` values. homogeneous: whether all values of one kind have one type. holds_none: whether
    None, an empty optional, is a value of its types. description: what the text says of it.
    """

    name: str
    kind: str
    types: frozenset[str]
    option: Option = "single"
    least: int = 1
    homogeneous: bool = True
    holds_none: bool = False
    description: str = ""

    @property
    def is_variable(self) -> bool:
        """True if the text gives it a type variable; False for a type."""
        return self.types != {self.kind}


@dataclass(frozen=True)
class Attribute:
    """An attribute. A node that may leave it out has the default; None where the text has none.

    kind: the format's name for the kind of its values, such as INT. several: whether it is a list; tensor: whether it
    is an array. words: those that an enumerated attribute may have at this version; empty where the function's own
    `Literal` says it. ignored: it says nothing about the result, and the function does not take it. description: what
    the text says of it.
    """

    name: str
    kind: str
    required: bool = False
    default: Any = None
    words: tuple[Any, ...] = ()
    ignored: bool = False
    several: bool = False
    tensor: bool = False
    description: str = ""


@dataclass(frozen=True, eq=False)
class Schema(abc.ABC):
    """An operator from version `since` on: what it takes, what it makes, and its attributes.

    A subclass says how its format names types: names are opaque here, and only compared. doc: the format's text.
    """

    cast: ClassVar[str]  # the operator that a message recommends for another element type

    name: str
    since: int
    inputs: Sequence[Formal]
    outputs: Sequence[Formal]
    attributes: Mapping[str, Attribute]
    doc: str = field(default="", kw_only=True, repr=False)

    @cached_property
    def input_counts(self) -> tuple[int, int | None]:
        """The least and the largest number of inputs; None for any number."""
        return _counts(self.inputs)

    @cached_property
    def output_counts(self) -> tuple[int, int | None]:
        """The least and the largest number of outputs; None for any number."""
        return _counts(self.outputs)

    @cached_property
    def input_kinds(self) -> frozenset[str]:
        """The kinds of its inputs."""
        return frozenset(formal.kind for formal in self.inputs)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The defaults of the attributes that have one."""
        return {name: a.default for name, a in self.attributes.items() if a.default is not None}

    @abc.abstractmethod
    def type_names(self, value: Any) -> Sequence[str]:
        """The names of all types for which a value may stand, its own type first."""

    @abc.abstractmethod
    def listing(self, types: Iterable[str]) -> str:
        """Names of types as a message lists them."""

    @abc.abstractmethod
    def element_types(self, types: Iterable[str]) -> frozenset[np.dtype]:
        """The element types of named types, inside sequences and the like too."""

    @abc.abstractmethod
    def element_type(self, value: Any) -> np.dtype | None:
        """The element type that the value of an attribute names; None if it names none."""

    @abc.abstractmethod
    def check_kind(self, attribute: Attribute, value: Any) -> None:
        """Raises ArgumentError for a value that is not of the kind of the attribute."""

    def is_list(self, type_name: str) -> bool:
        """True for the name of a type of which Python lists are values."""
        return False

    def stated_types(self, attributes: Mapping[str, Any]) -> Iterator[np.dtype]:
        """The element types that the attributes of a node say: those named, and those of values."""
        for value in attributes.values():
            if isinstance(value, np.dtype | np.ndarray):
                yield value if isinstance(value, np.dtype) else value.dtype


def formal_of(formals: Sequence[Formal], position: int) -> Formal:
    """The formal of the value at a position; the last one stands for all that follow."""
    return formals[min(position, len(formals) - 1)]


def _counts(formals: Sequence[Formal]) -> tuple[int, int | None]:
    least = max((k for k, formal in enumerate(formals, 1) if formal.option == "single"), default=0)
    if formals and formals[-1].option == "variadic":
        return max(least, len(formals) - 1 + formals[-1].least), None
    return least, len(formals)
