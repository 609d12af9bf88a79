"""The schema of an operator at one version: inputs, outputs, attributes and types.

A front end makes a `Schema` for each version of an operator, in a subclass that knows how its format names types and
writes attributes. `jaxops.frontend.schema_operator` makes an operator of a schema and a function.
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

    kind: its type variable, or its type. types: the names of the permitted types; for a type, this name alone. option:
    whether it is required, optional, or variadic: the last one, which stands for at least `least` values. homogeneous:
    whether all its values have the same type. holds_none: whether None, an empty optional, is permitted. description:
    that of the standard.
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
        """True if `kind` is a type variable; False if it is a type."""
        return self.types != {self.kind}


@dataclass(frozen=True)
class Attribute:
    """An attribute. A node that omits an optional one has the default; None if there is none.

    kind: the format's name for the kind of its values, such as INT. several: whether it is a list. tensor: whether it
    is an array. words: the values of an enumerated attribute at this version; empty if the function's `Literal` has
    them. ignored: True if it does not affect the result, and the function does not take it. description: that of the
    standard.
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
    """An operator from version `since` on: its inputs, outputs and attributes.

    Names of types are only compared here; a subclass knows their meaning. doc: the documentation of the standard.
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
        """The names of all types that a value may represent, its own type first."""

    @abc.abstractmethod
    def listing(self, types: Iterable[str]) -> str:
        """The text that lists types in a message."""

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
        """True if Python lists are values of the type with this name."""
        return False

    def stated_types(self, attributes: Mapping[str, Any]) -> Iterator[np.dtype]:
        """The element types in the attributes of a node: those that an attribute names, and those of its values."""
        for value in attributes.values():
            if isinstance(value, np.dtype | np.ndarray):
                yield value if isinstance(value, np.dtype) else value.dtype


def formal_of(formals: Sequence[Formal], position: int) -> Formal:
    """The formal of the value at a position; the last formal also stands for all further values."""
    return formals[min(position, len(formals) - 1)]


def _counts(formals: Sequence[Formal]) -> tuple[int, int | None]:
    least = max((k for k, formal in enumerate(formals, 1) if formal.option == "single"), default=0)
    if formals and formals[-1].option == "variadic":
        return max(least, len(formals) - 1 + formals[-1].least), None
    return least, len(formals)
