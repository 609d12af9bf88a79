"""An operator made of a schema (names, types, defaults) and the signature of a function (everything else)."""

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import chex
import jax
import numpy as np

from jaxops.dtypes import canonical
from jaxops.errors import ArgumentError, DTypeError, SignatureError, UnsupportedError, amount, describe
from jaxops.frontend.schema import Formal, Schema, formal_of
from jaxops.frontend.signature_operator import RESERVED, SignatureOperator
from jaxops.signature import ELEMENT_TYPE, marks
from jaxops.static import Tracer

S = TypeVar("S", bound=Schema)


class SchemaOperator(SignatureOperator, Generic[S]):
    """An operator with the meaning that it has in one opset.

    Its attributes are checked against the schema and completed, its operands against the types that the schema permits.
    `fn` is None for an operator that a graph defines.
    """

    def __init__(
        self, schema: S, fn: Callable[..., Any] | None, opset: int, function: Callable[..., Any] | None = None
    ) -> None:
        """function: the function that `fn` calls with this version's arguments: see `SignatureOperator`."""
        formals = tuple(formal.name for formal in schema.inputs)
        variadic = bool(formals) and schema.inputs[-1].option == "variadic"
        super().__init__(schema.name, fn, formals, variadic, function)
        self.schema, self.opset = schema, opset

    @property
    def version(self) -> str:
        """The operator and its version, as in Reshape-14."""
        return f"{self.schema.name}-{self.schema.since}"

    @property
    def label(self) -> str:
        """The operator's name in the note of an error."""
        return f"{self.name}, opset {self.opset}"

    @functools.cached_property
    def _needed(self) -> set[str]:
        """The attributes without which the function cannot be called."""
        needed = {name for name, p in self.parameters.items() if p.default is p.empty}
        return needed - RESERVED - set(self._inputs)

    def taken_types(self, formal: Formal) -> frozenset[str]:
        """The types that this version permits for an input."""
        return formal.types

    def given_types(self, position: int) -> frozenset[str]:
        """The types that this version permits for an output."""
        return self.schema.outputs[position].types

    def choices(self, name: str) -> tuple[Any, ...]:
        """The values of an enumerated attribute at this version; empty for another attribute."""
        return self.schema.attributes[name].words or super().choices(name)

    def complete(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a node, checked against schema and signature, with defaults for omitted ones."""
        known = self.schema.attributes
        for name, value in attributes.items():
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean `{near[0]}`? " if near else ""
                raise SignatureError(f"{self.version}: unknown attribute `{name}`; {hint}the version has: {listed}")
            self.schema.check_kind(known[name], value)
        for name, attribute in known.items():
            if attribute.required and name not in attributes:
                raise SignatureError(f"{self.version}: required attribute `{name}` is missing")
        stated = {**self.schema.defaults, **attributes}
        completed = {name: value for name, value in stated.items() if not known[name].ignored}
        if self.fn is None:  # a body takes the attributes unchanged
            return completed
        for name in completed:
            if name not in self.parameters:
                raise UnsupportedError(f"{self.version}: jaxops does not implement the attribute `{name}`")
        missing = self._needed - completed.keys()
        if missing:  # the schema marks it as optional, but its text requires it
            raise SignatureError(f"{self.version}: attribute `{min(missing)}` is missing")
        return {name: self._converted(name, value) for name, value in completed.items()}

    def _converted(self, name: str, value: Any) -> Any:
        """An attribute in the form that the function takes, checked against the signature."""
        annotation, allowed = self.parameters[name].annotation, self.choices(name)
        if allowed and value not in allowed:
            raise ArgumentError(
                f"{self.version}: `{name}` is {value!r}; it must be one of {', '.join(map(repr, allowed))}"
            )
        return self._element_type(name, value) if ELEMENT_TYPE in marks(annotation) else value

    def _element_type(self, name: str, value: Any) -> np.dtype | None:
        """The element type that an attribute names. Raises DTypeError if this version's result may not have it."""
        schema = self.schema
        if value == 0 and schema.defaults.get(name) == 0:
            return None  # the type follows from the other inputs
        dtype = schema.element_type(value)
        if dtype is None:
            raise ArgumentError(f"{self.version}: `{name}` is {value!r}, which is not an element type of the standard")
        formal, allowed = schema.outputs[0], self.given_types(0)
        # A type variable of the inputs gives the type of the result only if the signature has no other one.
        independent = formal.kind not in schema.input_kinds
        if independent and dtype not in schema.element_types(allowed):
            text = schema.listing(schema.type_names(np.empty(0, dtype))[:1])
            raise DTypeError(
                f"{self.version}: output `{formal.name}` would be {text}, as `{name}` says; "
                f"this version gives {schema.listing(allowed)}"
            )
        return dtype

    def check_arity(self, present: Sequence[bool], n_outputs: int) -> None:
        """Raises SignatureError for a missing or surplus input, or for outputs the version does not have."""
        names = list(self.formals)
        for position, formal in enumerate(self.schema.inputs):
            if formal.option != "single":
                continue
            if position >= len(present) or not present[position]:
                raise SignatureError(
                    f"{self.version}: input {position} `{formal.name}` is missing; the inputs are {names}"
                )
        if not _within(len(present), self.schema.input_counts):
            raise SignatureError(
                f"{self.version}: got {amount(len(present), 'input')}, but the version takes "
                f"{_range(self.schema.input_counts)}: {names}; its attributes are {list(self.schema.attributes)}"
            )
        if not _within(n_outputs, self.schema.output_counts):
            raise SignatureError(
                f"{self.version}: {amount(n_outputs, 'output')} asked for, but the version has "
                f"{_range(self.schema.output_counts)}"
            )

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises DTypeError for an element type that this version does not list, or that differs from another operand's
        where both must be equal."""
        schema = self.schema
        bound: dict[str, tuple[str, Any, Sequence[str]]] = {}
        for position, value in enumerate(inputs):
            formal = formal_of(schema.inputs, position)
            allowed = self.taken_types(formal)
            if value is None:
                # None is an omitted input or an empty optional. A required input is None in a function of the model
                # that was called without it.
                if formal.option == "single" and not formal.holds_none:
                    raise SignatureError(f"{self.version}: input {position} `{formal.name}` is missing")
                continue
            names = schema.type_names(value)
            if allowed.isdisjoint(names):
                raise DTypeError(
                    f"{self.version}: input {position} `{formal.name}` is {describe(value)}; "
                    f"this version takes {schema.listing(allowed)}; convert with {schema.cast}"
                )
            if not formal.homogeneous or not formal.is_variable:
                continue
            name, other, theirs = bound.setdefault(formal.kind, (formal.name, value, names))
            if other is not value and set(theirs).isdisjoint(names):
                raise DTypeError(
                    f"{self.version}: inputs `{name}` and `{formal.name}` must have one element type "
                    f"({formal.kind}), got {theirs[0]} and {names[0]}; convert "
                    f"with {schema.cast}"
                )

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """Runs the function on inputs (None for an omitted one) and completed attributes."""
        results = super().call(inputs, attributes, n_outputs=n_outputs, rng=rng)
        self._assert_types(inputs, results)
        return results

    def _assert_types(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Asserts that each traced output has the type of the inputs with which it shares a type variable."""
        if not any(isinstance(value, Tracer) for value in outputs):
            return  # eager calls skip the check
        types: dict[str, Any] = {}
        for formal, value in zip(self.schema.inputs, inputs, strict=False):
            is_numeric = isinstance(value, jax.Array | np.ndarray) and value.dtype.kind not in "OUST"
            if formal.homogeneous and is_numeric:
                types.setdefault(formal.kind, canonical(value.dtype))
        for formal, value in zip(self.schema.outputs, outputs, strict=False):
            if formal.homogeneous and isinstance(value, Tracer) and formal.kind in types:
                chex.assert_type(value, types[formal.kind], custom_message=f"{self.version}, output {formal.name}")

    def check_results(self, values: Sequence[Any]) -> None:
        """Raises DTypeError for an element type that an attribute asked for and this version does not list."""
        schema = self.schema
        for position, (formal, value) in enumerate(zip(schema.outputs, values, strict=False)):
            if formal.kind in schema.input_kinds or not formal.is_variable or not hasattr(value, "dtype"):
                continue
            allowed = self.given_types(position)
            if allowed.isdisjoint(schema.type_names(value)):
                raise DTypeError(
                    f"{self.version}: output `{formal.name}` would be {describe(value)}; "
                    f"this version gives {schema.listing(allowed)}"
                )

    def output_types(self, node: Any, inputs: Sequence[np.dtype | None]) -> list[np.dtype | None]:
        """The element types of a node's outputs according to the schema; for sequences, those of their tensors.

        inputs: those of the inputs; None for an omitted or unknown one. None if the schema does not determine it.
        """
        schema = self.schema
        typed = [(formal_of(schema.inputs, i).kind, dtype) for i, dtype in enumerate(inputs) if dtype is not None]
        stated = list(schema.stated_types(node.attributes))
        types = []
        for i in range(len(node.outputs)):
            formal = formal_of(schema.outputs, i)
            allowed = schema.element_types(formal.types)
            same = next((dtype for kind, dtype in typed if kind == formal.kind), None)
            if same is not None or len(allowed) == 1:
                types.append(next(iter(allowed)) if same is None else same)
            else:  # also an element of a sequence, a random number like x
                types.append(next((dtype for dtype in (*stated, *(d for _, d in typed)) if dtype in allowed), None))
        return types


def _within(count: int, counts: tuple[int, int | None]) -> bool:
    least, most = counts
    return least <= count and (most is None or count <= most)


def _range(counts: tuple[int, int | None]) -> str:
    least, most = counts
    return f"at least {least}" if most is None else f"{least} to {most}" if least < most else str(least)
