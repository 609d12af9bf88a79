"""The function that does an operator at a version.

The schema says names, types, defaults and permitted element types. The function comes by name from the module of the
domain, or from an adapter in `jaxops.onnx.versions`: the newest one whose `since` is not above the model's opset.
"""

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.errors import ArgumentError, DTypeError, SignatureError, UnsupportedError, describe
from jaxops.frontend.signature_operator import RESERVED, SignatureOperator
from jaxops.onnx.output_types import output_types
from jaxops.onnx.schemas import (
    OPTIONAL,
    SINGLE,
    VARIADIC,
    allowed_types,
    assert_types,
    check_kind,
    default_value,
    element_type,
    find_schema,
    listing,
    type_name,
    type_names,
)
from jaxops.ops import microsoft, ml, preview, training
from jaxops.signature import ELEMENT_TYPE, marks

# Where the functions of a domain are.
DOMAINS: dict[str, ModuleType] = {
    "": ops,
    "ai.onnx.ml": ml,
    "ai.onnx.preview": preview,
    "ai.onnx.preview.training": training,
    "com.microsoft": microsoft,
}
_ADAPTERS: dict[tuple[str, str], dict[int, Callable[..., Any]]] = {}
# A hint about memory of opset 1, which says nothing about the result.
_DROPPED = {"consumed_inputs"}


def version(op_type: str, since: int, domain: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function for an operator from opset `since` on; its signature is that version's signature."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _ADAPTERS.setdefault((domain, op_type), {})[since] = fn
        return fn

    return register


def newest(registered: Mapping[int, Callable[..., Any]], opset: int) -> Callable[..., Any] | None:
    """The adapter of the newest version not above an opset."""
    return registered.get(max((since for since in registered if since <= opset), default=0))


@functools.cache
def adapters() -> Mapping[tuple[str, str], Mapping[int, Callable[..., Any]]]:
    """All adapters: (domain, operator) → since → function."""
    from jaxops.onnx import versions  # they import this module

    for module in pkgutil.iter_modules(versions.__path__):
        importlib.import_module(f"{versions.__name__}.{module.name}")
    return _ADAPTERS


@functools.cache
def _functions(domain: str) -> dict[str, Callable[..., Any]]:
    """The functions of a domain under their names without underscores, as ONNX's names in lower case."""
    module = DOMAINS.get(domain)
    return {name.replace("_", ""): getattr(module, name) for name in module.__all__} if module else {}


def function(op_type: str, domain: str = "") -> Callable[..., Any] | None:
    """The function with the newest meaning of an operator; None where there is none, or adapters say it all."""
    return _functions(domain).get(op_type.lower())


class Operator(SignatureOperator):
    """An operator as a model of some opset means it. `fn` is None when only the standard's function body defines it."""

    def __init__(self, schema: Any, fn: Callable[..., Any] | None, opset: int = 0) -> None:
        """schema: an OpSchema; the stubs of onnx lack half of its members."""
        formals = tuple(formal.name for formal in schema.inputs)
        variadic = bool(formals) and schema.inputs[-1].option == VARIADIC
        super().__init__(schema.name, fn, formals, variadic, function(schema.name, schema.domain))
        self.schema, self.opset = schema, opset

    def __reduce__(self) -> Any:
        return _found_again, (type(self), self.schema.name, self.schema.domain, self.opset)

    @property
    def version(self) -> str:
        """The operator and its version, as in Reshape-14."""
        return f"{self.schema.name}-{self.schema.since_version}"

    @property
    def label(self) -> str:
        """The operator in the context of an error."""
        return f"{self.name}, opset {self.opset}"

    @property
    def proto(self) -> Any:
        """The FunctionProto by which the standard defines the operator, where it needs no types to say so."""
        return self.schema.function_body if self.fn is None and self.schema.has_function else None

    @functools.cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The schema's defaults of the attributes that have one."""
        attributes = self.schema.attributes.items()
        return {name: default_value(a.default_value) for name, a in attributes if a.default_value.type}

    @functools.cached_property
    def _needed(self) -> set[str]:
        """The attributes without which the function cannot be called."""
        needed = {name for name, p in self.parameters.items() if p.default is p.empty}
        return needed - RESERVED - set(self._inputs)

    def taken_types(self, formal: Any) -> frozenset[str]:
        """The types that this version permits for an input."""
        return allowed_types(self.schema, formal.type_str)

    def given_types(self, position: int) -> frozenset[str]:
        """The types that this version permits for an output."""
        return allowed_types(self.schema, self.schema.outputs[position].type_str)

    def complete(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a node, checked against schema and signature, with the defaults filled in."""
        schema = self.schema
        for name, value in attributes.items():
            if name not in schema.attributes:
                listed = ", ".join(sorted(schema.attributes)) or "none"
                near = difflib.get_close_matches(name, schema.attributes, 1)
                hint = f"did you mean `{near[0]}`? " if near else ""
                raise SignatureError(f"{self.version}: unknown attribute `{name}`; {hint}the version has: {listed}")
            check_kind(self.version, schema.attributes[name], value)
        for name, attribute in schema.attributes.items():
            if attribute.required and name not in attributes:
                raise SignatureError(f"{self.version}: required attribute `{name}` is missing")
        completed = {name: value for name, value in {**self.defaults, **attributes}.items() if name not in _DROPPED}
        if self.fn is None:  # a body takes them as they are
            return completed
        for name in completed:
            if name not in self.parameters:
                raise UnsupportedError(f"{self.version}: jaxops does not implement the attribute `{name}`")
        missing = self._needed - completed.keys()
        if missing:  # the schema calls it optional, its text does not
            raise SignatureError(f"{self.version}: attribute `{min(missing)}` is missing")
        return {name: self._converted(name, value) for name, value in completed.items()}

    def _converted(self, name: str, value: Any) -> Any:
        """An attribute as the function takes it, checked against what the signature says of it."""
        annotation, allowed = self.parameters[name].annotation, self.choices(name)
        if allowed and value not in allowed:
            raise ArgumentError(
                f"{self.version}: `{name}` is {value!r}; it must be one of {', '.join(map(repr, allowed))}"
            )
        return self._element_type(name, value) if ELEMENT_TYPE in marks(annotation) else value

    def _element_type(self, name: str, value: Any) -> np.dtype | None:
        """The element type that an attribute names; DTypeError for one that this version's result may not have."""
        if value == 0 and self.defaults.get(name) == 0:
            return None  # the type follows from the other inputs
        dtype = element_type(value)
        if dtype is None:
            raise ArgumentError(f"{self.version}: `{name}` is {value!r}, which is not an element type of the standard")
        formal = self.schema.outputs[0]
        allowed, text = self.given_types(0), type_name(np.empty(0, dtype))
        # A type that the inputs have as well is that of the result only when the signature gives no other.
        independent = formal.type_str not in {i.type_str for i in self.schema.inputs}
        if independent and not {text, f"seq({text})"} & allowed:
            raise DTypeError(
                f"{self.version}: output `{formal.name}` would be {listing([text])}, as `{name}` says; "
                f"this version gives {listing(allowed)}"
            )
        return dtype

    def check_arity(self, present: Sequence[bool], n_outputs: int) -> None:
        """Raises SignatureError for a missing or surplus input, or for outputs the version does not have."""
        schema = self.schema
        names = list(self.formals)
        for position, formal in enumerate(schema.inputs):
            if formal.option in (OPTIONAL, VARIADIC):
                continue
            if position >= len(present) or not present[position]:
                raise SignatureError(f"{self.version}: input {position} `{formal.name}` is missing; it has {names}")
        if not schema.min_input <= len(present) <= schema.max_input:
            raise SignatureError(
                f"{self.version}: {len(present)} inputs were given, but the version takes "
                f"{schema.min_input} to {schema.max_input}: {names}"
            )
        if not schema.min_output <= n_outputs <= schema.max_output:
            raise SignatureError(
                f"{self.version}: {n_outputs} outputs were asked for, but the version has "
                f"{schema.min_output} to {schema.max_output}"
            )

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises DTypeError for an element type that this version does not list, or that differs from its kin."""
        bound: dict[str, tuple[str, Any]] = {}
        formals = self.schema.inputs
        for position, value in enumerate(inputs):
            formal = formals[min(position, len(formals) - 1)]
            allowed = self.taken_types(formal)
            if value is None:
                # Left out, or an empty optional; but a function may have been called without it.
                if formal.option == SINGLE and not any(t.startswith("optional") for t in allowed):
                    raise SignatureError(f"{self.version}: input {position} `{formal.name}` is missing")
                continue
            if not type_names(value) & allowed:
                raise DTypeError(
                    f"{self.version}: input {position} `{formal.name}` is {describe(value)}; "
                    f"this version takes {listing(allowed)}; convert with Cast"
                )
            if not formal.is_homogeneous or formal.type_str.endswith(")"):
                continue
            name, other = bound.setdefault(formal.type_str, (formal.name, value))
            if other is not value and not type_names(value) & type_names(other):
                raise DTypeError(
                    f"{self.version}: inputs `{name}` and `{formal.name}` must have one element type "
                    f"({formal.type_str}), got {type_name(other)} and {type_name(value)}; convert "
                    "with Cast"
                )

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """Runs the function on inputs (None for one left out) and completed attributes."""
        results = super().call(inputs, attributes, n_outputs=n_outputs, rng=rng)
        assert_types(self.schema, inputs, results)
        return results

    def check_results(self, values: Sequence[Any]) -> None:
        """Raises DTypeError for an element type that an attribute asked for and this version does not list."""
        input_types = {formal.type_str for formal in self.schema.inputs}
        for position, (formal, value) in enumerate(zip(self.schema.outputs, values, strict=False)):
            if formal.type_str in input_types or formal.type_str.endswith(")") or not hasattr(value, "dtype"):
                continue
            allowed = self.given_types(position)
            if not type_names(value) & allowed:
                raise DTypeError(
                    f"{self.version}: output `{formal.name}` would be {describe(value)}; "
                    f"this version gives {listing(allowed)}"
                )

    def output_types(self, node: Any, inputs: Sequence[np.dtype | None]) -> list[np.dtype | None]:
        """The element types that the schema gives the outputs of a node."""
        return output_types(self.schema, node, inputs)


def _found_again(kind: type[Operator], op_type: str, domain: str, opset: int) -> Operator:
    operator = find(op_type, domain, opset)
    return operator if kind is Operator else kind(operator.schema, operator.fn, opset)


@functools.cache
def find(op_type: str, domain: str, opset: int) -> Operator:
    """The operator at the newest version not above `opset`. Raises UnsupportedError, which says why not."""
    schema = find_schema(op_type, domain, opset)
    key = domain, op_type
    registered = adapters().get(key, {})
    # GroupNormalization-18 is deprecated too, but opsets 18 to 20 have no other; an adapter keeps such a version.
    if schema.deprecated and schema.since_version not in registered:
        raise UnsupportedError(f"{op_type}: deprecated since opset {schema.since_version}")
    fn = newest(registered, opset) if registered else function(op_type, domain)
    if fn is None and not (schema.has_function or schema.has_context_dependent_function):
        raise UnsupportedError(f"{op_type}: jaxops does not implement version {schema.since_version}")
    return Operator(schema, fn, opset)
