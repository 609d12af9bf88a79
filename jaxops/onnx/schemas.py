"""The contract of each operator at each version: schemas, opsets, element types.

`onnx.defs` says it for the standard, `jaxops.onnx.microsoft_schemas` for com.microsoft; both in `OpSchema` objects.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import chex
import jax
import numpy as np
import onnx
from onnx import defs, helper

from jaxops.dtypes import canonical, is_string
from jaxops.errors import ArgumentError, UnsupportedError, near
from jaxops.lazy_sequences import GrowingSequence, SplitSequence
from jaxops.onnx import microsoft_schemas
from jaxops.static import FromSizes, Tracer

SINGLE = defs.OpSchema.FormalParameterOption.Single
VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
OPTIONAL = defs.OpSchema.FormalParameterOption.Optional


@functools.cache
def _history(op_type: str, domain: str) -> dict[int, Any]:
    """version → schema, in ascending order; one by one, as all schemas of the standard take 20 ms."""
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
    """The operators of a domain, at whichever version."""
    return sorted({schema.name for schema in _all_schemas() if schema.domain == domain})


def versions(op_type: str, domain: str) -> tuple[int, ...]:
    """The versions at which the signature or the text of an operator changed."""
    return tuple(_history(op_type, domain))


@functools.cache
def newest_opset(domain: str = "") -> int:
    """The newest opset of a domain that the installed onnx knows; 0 for a domain without schemas."""
    if domain == "":
        return defs.onnx_opset_version()
    if domain == defs.ONNX_ML_DOMAIN:
        return defs.onnx_ml_opset_version()
    return max((schema.since_version for schema in _all_schemas() if schema.domain == domain), default=0)


def find_schema(op_type: str, domain: str, opset: int) -> Any:
    """The schema of the newest version not above `opset`. Raises UnsupportedError, which says why there is none."""
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
    return _history(op_type, domain)[max(since for since in since_versions if since <= opset)]


@functools.cache
def later_schemas(schema: Any) -> tuple[Any, ...]:
    """The schemas of the later versions of an operator."""
    history = _history(schema.name, schema.domain).items()
    return tuple(later for since, later in history if since > schema.since_version and not later.deprecated)


@functools.cache
def _constraints(schema: Any) -> dict[str, frozenset[str]]:
    permitted = {}
    for constraint in schema.type_constraints:
        allowed = frozenset(constraint.allowed_type_strs)
        # What an optional holds is given as it is, so a version that takes the optional takes that too. A sparse tensor
        # is dense once it is read.
        contents = {t[9:-1] for t in allowed if t.startswith("optional(")}
        dense = {t.removeprefix("sparse_") for t in allowed if t.startswith("sparse_")}
        permitted[constraint.type_param_str] = allowed | contents | dense
    return permitted


def allowed_types(schema: Any, type_str: str) -> frozenset[str]:
    """The types that a version permits where its text has `type_str`, a variable or a type."""
    return _constraints(schema).get(type_str) or frozenset([type_str])


def listing(types: Iterable[str]) -> str:
    """Types in a message."""
    return ", ".join(sorted(t.removeprefix("tensor(").removesuffix(")") for t in types))


@functools.cache
def _tensor_names() -> dict[str, str]:
    """NumPy's name of an element type → the standard's."""
    names = {"object": "string"}
    for name, number in onnx.TensorProto.DataType.items():
        if name not in ("UNDEFINED", "STRING"):
            text = name.lower()
            names[helper.tensor_dtype_to_np_dtype(number).name] = text
    return names


def is_standard(dtype: Any) -> bool:
    """Returns True for an element type of the standard; of NumPy's types of strings it has `object`."""
    return dtype.name in _tensor_names()


_WIDE = {"int32": "int64", "uint32": "uint64", "float": "double", "complex64": "complex128"}


def type_name(value: Any) -> str:
    """The standard's name for the type of a value; an empty sequence has none."""
    if isinstance(value, SplitSequence):
        value = [value.data]
    if isinstance(value, list | tuple):
        return f"seq({type_name(value[0])})" if value else "seq(tensor)"
    if isinstance(value, np.ndarray) and value.dtype.kind in "USTO":
        return "tensor(string)" if is_string(value) else "tensor(int64)"
    return _tensor_name(value.dtype)


@functools.cache
def _tensor_name(dtype: Any) -> str:
    """The standard's name for a tensor of an element type; one that no operator takes keeps its own name."""
    return f"tensor({_tensor_names().get(dtype.name, dtype.name)})"


def type_names(value: Any) -> frozenset[str]:
    """All names that fit the type of a value.

    A JAX array of a 32-bit type has two while x64 is off: it may stand for the 64-bit type. Symbolic sizes stay as they
    are when they are cast to an integer type of 32 or 64 bits. An empty list may be a sequence of anything.
    """
    if isinstance(value, dict):
        return _map_names(value)
    if isinstance(value, SplitSequence | GrowingSequence):
        value = [value.data] if isinstance(value, SplitSequence) else value.before
    if isinstance(value, list | tuple):
        inner = type_names(value[0]) if value else (f"tensor({t})" for t in _tensor_names().values())
        return frozenset(f"seq({t})" for t in inner)
    name = type_name(value)
    if name == "tensor(int64)" and value.dtype == object:
        return frozenset(f"tensor({t})" for t in ("int32", "int64", "uint32", "uint64"))
    wide = _WIDE.get(name[7:-1])
    if isinstance(value, jax.Array | FromSizes) and wide and canonical(np.int64) != np.int64:
        return frozenset([name, f"tensor({wide})"])
    return frozenset([name])


def assert_types(schema: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Asserts that each traced output has the type of the inputs with which it shares a type variable."""
    if not any(isinstance(value, Tracer) for value in outputs):
        return  # an eager call pays nothing
    types: dict[str, Any] = {}
    for formal, value in zip(schema.inputs, inputs, strict=False):
        shared = formal.is_homogeneous and isinstance(value, jax.Array | np.ndarray) and value.dtype.kind not in "OUST"
        if shared:
            types.setdefault(formal.type_str, canonical(value.dtype))
    for formal, value in zip(schema.outputs, outputs, strict=False):
        if formal.is_homogeneous and isinstance(value, Tracer) and formal.type_str in types:
            output = f"{schema.name}-{schema.since_version}, output {formal.name}"
            chex.assert_type(value, types[formal.type_str], custom_message=output)


_PYTHON = {float: ("float", "double"), int: ("int64",), str: ("string",)}


def _map_names(value: dict[Any, Any]) -> frozenset[str]:
    """All names that fit the type of a dictionary; an empty one may be a map of anything."""
    item = next(iter(value.values()), None)
    if item is None:
        kinds = [kind for names in _PYTHON.values() for kind in names]
        return frozenset(f"map({key}, {kind})" for key in ("int64", "string") for kind in kinds)
    kinds = _PYTHON.get(type(item)) or [name[7:-1] for name in type_names(item)]
    return frozenset(f"map({'string' if isinstance(next(iter(value)), str) else 'int64'}, {kind})" for kind in kinds)


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


def default_value(proto: onnx.AttributeProto) -> Any:
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


def check_kind(op: str, attribute: Any, value: Any) -> None:
    """Raises ArgumentError for a value that is not of the kind that the schema gives an attribute."""
    kind = attribute.type.name
    if kind == "GRAPH" and not hasattr(value, "nodes"):
        raise ArgumentError(f"{op}: attribute `{attribute.name}` is {value!r}; it must be of type {kind}")
    expected = _KINDS.get(kind.removesuffix("S"), (object,))
    items = value if kind.endswith("S") else (value,)
    if kind.endswith("S") and (isinstance(value, str) or not isinstance(value, Sequence | np.ndarray)):
        raise ArgumentError(f"{op}: attribute `{attribute.name}` is {value!r}; it must be a sequence ({kind})")
    if not all(issubclass(python_type, expected) for python_type in set(map(type, items))):
        raise ArgumentError(f"{op}: attribute `{attribute.name}` is {value!r}; it must be of type {kind}")
