"""The contract of each operator at each version: schemas, opsets, element types.

`onnx.defs` has them for the standard, `jaxops.onnx.microsoft_schemas` for com.microsoft, both as `OpSchema` objects.
No other file knows these objects, or the standard's names of types, such as `tensor(float)`.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import onnx
from onnx import defs, helper

from jaxops.dtypes import canonical, is_string
from jaxops.errors import ArgumentError, UnsupportedError, near
from jaxops.frontend.schema import Attribute, Formal, Option, Schema
from jaxops.lazy_sequences import GrowingSequence, SplitSequence
from jaxops.onnx import microsoft_schemas
from jaxops.static import FromSizes


@functools.cache
def _history(op_type: str, domain: str) -> dict[int, Any]:
    """Returns version → schema in ascending order; asks for one at a time, since asking for all of them is slow."""
    if domain == microsoft_schemas.DOMAIN:
        return {schema.since_version: schema for schema in microsoft_schemas.schemas() if schema.name == op_type}
    schemas: list[Any] = []
    version = newest_opset(domain) if defs.has(op_type, domain) else 0
    while defs.has(op_type, version, domain):
        schemas.append(defs.get_schema(op_type, version, domain))
        version = schemas[-1].since_version - 1
    return {schema.since_version: schema for schema in reversed(schemas)}


def _all_schemas() -> list[Any]:
    return [*defs.get_all_schemas_with_history(), *microsoft_schemas.schemas()]


def operators(domain: str) -> list[str]:
    """Returns the names of the operators that a domain has or had in any version."""
    return sorted({schema.name for schema in _all_schemas() if schema.domain == domain})


def versions(op_type: str, domain: str) -> tuple[int, ...]:
    """Returns the versions in which the signature or the text of an operator changed."""
    return tuple(_history(op_type, domain))


@functools.cache
def newest_opset(domain: str = "") -> int:
    """The newest opset of a domain that the installed onnx knows; 0 for a domain without schemas."""
    if domain == "":
        return defs.onnx_opset_version()
    if domain == defs.ONNX_ML_DOMAIN:
        return defs.onnx_ml_opset_version()
    return max((schema.since_version for schema in _all_schemas() if schema.domain == domain), default=0)


def find_schema(op_type: str, domain: str, opset: int) -> "OnnxSchema":
    """The schema of the newest version not above `opset`. Raises UnsupportedError with the reason if there is none."""
    newest = newest_opset(domain)
    if not newest:
        domains = sorted({schema.domain or "ai.onnx" for schema in _all_schemas() if schema.name == op_type})
        namesake = f"; an operator of that name is in {' and '.join(domains)}" if domains else ""
        raise UnsupportedError(f"{op_type}: jaxops knows no operators of domain '{domain}'{namesake}")
    where = f"opset {opset}" + (f" of {domain}" if domain else "")
    if opset > newest:
        raise UnsupportedError(f"{where}: the installed onnx knows opsets up to {newest}; a newer onnx may help")
    since_versions = versions(op_type, domain)
    if not since_versions:
        similar = near(op_type, operators(domain))
        raise UnsupportedError(f"{op_type}: not in {where}; the standard has no such operator{similar}")
    if opset < since_versions[0]:
        raise UnsupportedError(f"{op_type}: not in {where}; it begins with opset {since_versions[0]}")
    return schema_of(_history(op_type, domain)[max(since for since in since_versions if since <= opset)])


@functools.cache
def later_schemas(schema: "OnnxSchema") -> tuple["OnnxSchema", ...]:
    """Returns the schemas of the later versions of an operator."""
    history = _history(schema.name, schema.domain).items()
    return tuple(schema_of(later) for since, later in history if since > schema.since and not later.deprecated)


@functools.cache
def _tensor_names() -> dict[str, str]:
    """NumPy's name of an element type → the standard's."""
    names = {"object": "string"}
    for name, number in onnx.TensorProto.DataType.items():
        if name not in ("UNDEFINED", "STRING"):
            text = name.lower()
            names[helper.tensor_dtype_to_np_dtype(number).name] = text
    return names


_WIDE = {"int32": "int64", "uint32": "uint64", "float": "double", "complex64": "complex128"}


@functools.cache
def _tensor_name(dtype: Any) -> str:
    """Returns the standard's name for a tensor of an element type, or NumPy's name if no operator takes that type."""
    return f"tensor({_tensor_names().get(dtype.name, dtype.name)})"


def _type_names(value: Any) -> tuple[str, ...]:
    """Returns all type names that fit a value, the name of its own type first.

    While x64 is off, a JAX array of a 32-bit type has two names, since it may stand for the 64-bit type. Symbolic sizes
    fit all integer types of 32 and 64 bits. An empty list may be a sequence of anything.
    """
    if type(value) is np.ndarray and value.dtype.kind in "biuf":  # asked for each node that NumPy computes
        return (_tensor_name(value.dtype),)
    if isinstance(value, dict):
        return _map_names(value)
    if isinstance(value, SplitSequence | GrowingSequence):
        value = [value.data] if isinstance(value, SplitSequence) else value.before
    if isinstance(value, list | tuple):
        inner = _type_names(value[0]) if value else (f"tensor({t})" for t in _tensor_names().values())
        return tuple(f"seq({t})" for t in inner)
    if isinstance(value, np.ndarray) and value.dtype.kind in "USTO":
        integers = ("int64", "int32", "uint32", "uint64") if value.dtype == object else ("int64",)
        return ("tensor(string)",) if is_string(value) else tuple(f"tensor({t})" for t in integers)
    name = _tensor_name(value.dtype)
    wide = _WIDE.get(name[7:-1])
    if isinstance(value, jax.Array | FromSizes) and wide and canonical(np.int64) != np.int64:
        return name, f"tensor({wide})"
    return (name,)


_PYTHON = {float: ("float", "double"), int: ("int64",), str: ("string",)}


def _map_names(value: dict[Any, Any]) -> tuple[str, ...]:
    """Returns all type names that fit a dictionary; an empty dictionary may be a map of anything."""
    item = next(iter(value.values()), None)
    if item is None:
        kinds = [kind for names in _PYTHON.values() for kind in names]
        return tuple(f"map({key}, {kind})" for key in ("int64", "string") for kind in kinds)
    kinds = _PYTHON.get(type(item)) or [name[7:-1] for name in _type_names(item)]
    return tuple(f"map({'string' if isinstance(next(iter(value)), str) else 'int64'}, {kind})" for kind in kinds)


def element_type(value: Any) -> np.dtype | None:
    """The element type that an attribute names: a number of TensorProto.DataType, or a word in opset 1."""
    numbers = {name: number for name, number in onnx.TensorProto.DataType.items() if number}
    number = numbers.get(value, 0) if isinstance(value, str) else value
    if number not in numbers.values():
        return None
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(number))
    except KeyError:  # a type of a newer standard, without one in NumPy
        return None


def _default_value(proto: onnx.AttributeProto) -> Any:
    """The default of an attribute, as the schema has it."""
    value = helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    if proto.type == proto.STRINGS:
        return tuple(item.decode() for item in value)
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


_KINDS: dict[str, tuple[type, ...]] = {
    "INT": (int, np.integer),
    "FLOAT": (float, int, np.floating, np.integer),
    "STRING": (str,),
    "TENSOR": (np.ndarray, np.generic),
    "SPARSE_TENSOR": (np.ndarray, np.generic),
}


# An attribute of opset 1 that is a hint about memory and does not change the result.
_IGNORED = {"consumed_inputs"}
# Attributes of ai.onnx.ml that list the values of the result, and the element type of these.
_LISTS = {
    **dict.fromkeys(("classlabels_ints", "classlabels_int64s", "values_int64s"), np.dtype(np.int64)),
    **dict.fromkeys(("classlabels_strings", "values_strings"), np.dtype(object)),
    "values_floats": np.dtype(np.float32),
}


@dataclass(frozen=True, eq=False)
class OnnxSchema(Schema):
    """The contract of an operator of ONNX. proto: the OpSchema, untyped since onnx's stubs lack half of its members."""

    cast = "Cast"

    domain: str
    deprecated: bool
    proto: Any

    def type_names(self, value: Any) -> tuple[str, ...]:
        """See `_type_names`."""
        return _type_names(value)

    def listing(self, types: Iterable[str]) -> str:
        """Returns types as a message shows them."""
        return ", ".join(sorted(t.removeprefix("tensor(").removesuffix(")") for t in types))

    def element_types(self, types: Iterable[str]) -> frozenset[np.dtype]:
        """The element types of tensors, and of those inside sequences, optionals and maps."""
        return _element_types(frozenset(types))

    def element_type(self, value: Any) -> np.dtype | None:
        """See `element_type`."""
        return element_type(value)

    def check_kind(self, attribute: Attribute, value: Any) -> None:
        """Raises ArgumentError for a value that is not of the kind that the schema gives an attribute."""
        kind = attribute.kind

        def problem(needed: str) -> ArgumentError:
            shown = "a graph" if hasattr(value, "nodes") else repr(value)  # the text of a graph may have any length
            subject = f"{self.name}-{self.since}: attribute `{attribute.name}`"
            return ArgumentError(f"{subject} is {shown}; it must be {needed}")

        if kind == "GRAPH" and not hasattr(value, "nodes"):
            raise problem(f"of type {kind}")
        expected = _KINDS.get(kind.removesuffix("S"), (object,))
        items = value if kind.endswith("S") else (value,)
        if kind.endswith("S") and (isinstance(value, str) or not isinstance(value, Sequence | np.ndarray)):
            raise problem(f"a sequence ({kind})")
        if not all(issubclass(python_type, expected) for python_type in set(map(type, items))):
            raise problem(f"of type {kind}")

    def is_list(self, type_name: str) -> bool:
        """True for a sequence, and for an optional, which may hold one."""
        return type_name.startswith(("seq", "optional"))

    def stated_types(self, attributes: Mapping[str, Any]) -> Iterator[np.dtype]:
        """Yields the element types that attributes state, those of values before those of keys."""
        for name in sorted(attributes, key=lambda name: not name.startswith("values")):
            yield from super().stated_types({name: attributes[name]})
            if name in _LISTS and attributes[name]:
                yield _LISTS[name]


@functools.cache
def schema_of(proto: Any) -> OnnxSchema:
    """The contract that an OpSchema states."""
    permitted = {}
    for constraint in proto.type_constraints:
        allowed = frozenset(constraint.allowed_type_strs)
        # An optional is given as the value that it holds, so a version that takes an optional takes its value, too. A
        # sparse tensor becomes dense when it is read.
        contents = {t[9:-1] for t in allowed if t.startswith("optional(")}
        dense = {t.removeprefix("sparse_") for t in allowed if t.startswith("sparse_")}
        permitted[constraint.type_param_str] = allowed | contents | dense
    return OnnxSchema(
        name=proto.name,
        since=proto.since_version,
        inputs=tuple(_formal(formal, permitted) for formal in proto.inputs),
        outputs=tuple(_formal(formal, permitted) for formal in proto.outputs),
        attributes={name: _attribute(attribute) for name, attribute in proto.attributes.items()},
        doc=proto.doc or "",
        domain=proto.domain,
        deprecated=proto.deprecated,
        proto=proto,
    )


_OPTIONS: dict[str, Option] = {"Single": "single", "Optional": "optional", "Variadic": "variadic"}


def _formal(formal: Any, permitted: Mapping[str, frozenset[str]]) -> Formal:
    kind = formal.type_str
    types = permitted.get(kind) or frozenset([kind])
    return Formal(
        name=formal.name,
        kind=kind,
        types=types,
        option=_OPTIONS[formal.option.name],
        least=formal.min_arity,
        homogeneous=formal.is_homogeneous,
        holds_none=any(t.startswith("optional") for t in types),
        description=formal.description,
    )


def _attribute(attribute: Any) -> Attribute:
    default = _default_value(attribute.default_value) if attribute.default_value.type else None
    return Attribute(
        name=attribute.name,
        kind=(kind := attribute.type.name),
        several=kind.endswith("S"),
        tensor=kind.endswith("TENSOR"),
        description=attribute.description,
        required=attribute.required,
        default=default,
        ignored=attribute.name in _IGNORED,
    )


@functools.cache
def _element_types(types: frozenset[str]) -> frozenset[np.dtype]:
    names = {t.rstrip(")").rpartition("(")[2].rpartition(", ")[2] for t in types}
    return frozenset(dtype for name in names if (dtype := element_type(name.upper())) is not None)
