"""Which function does which operator at which version, and what the standard says about that version.

Names, types, defaults and permitted element types come from `onnx.defs`. The function comes from `jaxops.ops` by
name, or from an adapter in `jaxops.onnx.versions`: the newest one whose `since` is not above the model's opset.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import jax
import numpy as np
import onnx
from onnx import defs, helper

from jaxops import ops
from jaxops.dtypes import canonical, is_string
from jaxops.errors import ArgumentError, DTypeError, SignatureError, UnsupportedError, describe
from jaxops.static import ELEMENT_TYPE, SHAPE_ONLY, STATIC

_ADAPTERS: dict[str, dict[int, Callable[..., Any]]] = {}
_SINGLE = defs.OpSchema.FormalParameterOption.Single
_VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
# A hint about memory of opset 1, which says nothing about the result.
_DROPPED = {"consumed_inputs"}
# Attributes that say the element type of the first output, in whichever operator they occur.
_TYPE_ATTRIBUTES = {"to", "dtype", "output_dtype", "output_datatype"}
_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
# Keyword parameters of an adapter that are no attributes: what the node asks for and what the model was given.
RESERVED = {"n_outputs", "rng", "run"}


def version(op_type: str, since: int, domain: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function for an operator from opset `since` on; its signature is that version's signature."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _ADAPTERS.setdefault(_key(op_type, domain), {})[since] = fn
        return fn

    return register


def _key(op_type: str, domain: str) -> str:
    return f"{domain}.{op_type}" if domain else op_type


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
    """The functions of `jaxops.ops` under their names without underscores, as ONNX's names in lower case."""
    from jaxops.onnx import versions  # the adapters import this module

    for module in pkgutil.iter_modules(versions.__path__):
        importlib.import_module(f"{versions.__name__}.{module.name}")
    return {name.replace("_", ""): getattr(ops, name) for name in ops.__all__}


def adapters() -> Mapping[str, Mapping[int, Callable[..., Any]]]:
    """All adapters: operator → since → function."""
    _functions()
    return _ADAPTERS


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator at one version. `fn` is None when only the standard's function body defines it."""

    schema: Any  # an OpSchema; the stubs of onnx lack half of its members
    fn: Callable[..., Any] | None

    @property
    def name(self) -> str:
        """The operator and its version, as in Reshape-14."""
        return f"{self.schema.name}-{self.schema.since_version}"

    @property
    def body(self) -> Any:
        """The FunctionProto by which the standard defines the operator, where it needs no types to say so."""
        if self.fn is not None or not self.schema.has_function:
            return None
        return self.schema.function_body

    @property
    def foldable(self) -> bool:
        """Whether the function computes static operands to a static result."""
        return _foldable(self.fn)

    @functools.cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the function."""
        return inspect.signature(self.fn).parameters if self.fn else {}

    @functools.cached_property
    def marks(self) -> tuple[str | None, ...]:
        """For each input of the schema: must it be static, are only its sizes looked at, or neither."""
        positional = [p for p in self.parameters.values() if p.kind is not p.KEYWORD_ONLY]
        marks = [next((m for m in (STATIC, SHAPE_ONLY) if m in _marks(p.annotation)), None) for p in positional]
        return tuple(marks)

    @functools.cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The schema's defaults of the attributes that have one."""
        attributes = self.schema.attributes.items()
        return {name: _default(a.default_value) for name, a in attributes if a.default_value.type}

    def mark(self, position: int) -> str | None:
        """The mark of the input at `position`; a variadic input shares one."""
        return self.marks[min(position, len(self.marks) - 1)] if self.marks else None

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a node, checked against the schema, with its defaults filled in."""
        schema = self.schema
        for name, value in given.items():
            if name not in schema.attributes:
                known = ", ".join(sorted(schema.attributes)) or "none"
                raise SignatureError(f"{self.name}: unknown attribute `{name}`; the version has: {known}")
            _check_attribute(self.name, schema.attributes[name], value)
            if name in _TYPE_ATTRIBUTES:
                self._check_asked_type(name, value)
            if name == "auto_pad" and value not in _AUTO_PADS:
                raise ArgumentError(f"{self.name}: `auto_pad` is {value!r}; it must be one of {', '.join(_AUTO_PADS)}")
        for name, attribute in schema.attributes.items():
            if attribute.required and name not in given:
                raise SignatureError(f"{self.name}: required attribute `{name}` is missing")
        found = {**self.defaults, **given}
        if self.fn is None:
            return found
        unread = [name for name in found if name not in self.parameters and name not in _DROPPED]
        for name in unread:
            raise UnsupportedError(f"{self.name}: jaxops does not implement the attribute `{name}`")
        return {name: self._converted(name, value) for name, value in found.items() if name not in _DROPPED}

    def _converted(self, name: str, value: Any) -> Any:
        """The standard's number or name of an element type as a dtype, where the function takes one."""
        if ELEMENT_TYPE not in _marks(self.parameters[name].annotation):
            return value
        number = onnx.TensorProto.DataType.Value(value) if isinstance(value, str) else value
        if number not in onnx.TensorProto.DataType.values() or not number:
            raise ArgumentError(f"{self.name}: `{name}` is {value!r}, which is no element type of the standard")
        return helper.tensor_dtype_to_np_dtype(number)

    def _check_asked_type(self, name: str, value: Any) -> None:
        """Raises for an attribute whose value is no element type, or not one that this version's result may have."""
        types = {number: text for text, number in onnx.TensorProto.DataType.items() if number}
        text = value if isinstance(value, str) else types.get(value, "")  # a name in opset 1, a number since
        if text not in types.values():
            if value == 0 and name == "output_dtype":
                return  # the type follows from the other inputs
            raise ArgumentError(f"{self.name}: `{name}` is {value!r}, which is no element type of the standard")
        formal, text = self.schema.outputs[0], text.lower()
        allowed = allowed_types(self.schema, formal.type_str)
        if not {f"tensor({text})", f"seq(tensor({text}))"} & allowed:
            raise DTypeError(
                f"{self.name}: output `{formal.name}` would be {text}, as `{name}` says; "
                f"this version gives {_listing(allowed)}"
            )

    def check_arity(self, present: Sequence[bool], n_outputs: int) -> None:
        """Raises SignatureError for a missing or surplus input, or for outputs the version does not have."""
        schema = self.schema
        names = [i.name for i in schema.inputs]
        for position, formal in enumerate(schema.inputs):
            if formal.option in (_OPTIONAL, _VARIADIC):
                continue
            if position >= len(present) or not present[position]:
                raise SignatureError(f"{self.name}: input {position} `{formal.name}` is missing; it has {names}")
        if not schema.min_input <= len(present) <= schema.max_input:
            raise SignatureError(
                f"{self.name}: {len(present)} inputs were given, but the version takes "
                f"{schema.min_input} to {schema.max_input}: {names}"
            )
        if not schema.min_output <= n_outputs <= schema.max_output:
            raise SignatureError(
                f"{self.name}: {n_outputs} outputs were asked for, but the version has "
                f"{schema.min_output} to {schema.max_output}"
            )

    def check_types(self, values: Sequence[Any]) -> None:
        """Raises DTypeError for an element type that this version does not list, or that differs from its kin."""
        bound: dict[str, tuple[str, frozenset[str]]] = {}
        formals = self.schema.inputs
        for position, value in enumerate(values):
            formal = formals[min(position, len(formals) - 1)]
            allowed = allowed_types(self.schema, formal.type_str)
            if value is None:
                # Left out, or an empty optional; but a function may have been called without it.
                if formal.option == _SINGLE and not any(t.startswith("optional") for t in allowed):
                    raise SignatureError(f"{self.name}: input {position} `{formal.name}` is missing")
                continue
            kinds = type_names(value)
            if not kinds & allowed:
                raise DTypeError(
                    f"{self.name}: input {position} `{formal.name}` is {describe(value)}; "
                    f"this version takes {_listing(allowed)}; convert with Cast"
                )
            if not formal.is_homogeneous or formal.type_str.endswith(")"):
                continue
            name, others = bound.setdefault(formal.type_str, (formal.name, kinds))
            if not kinds & others:
                raise DTypeError(
                    f"{self.name}: inputs `{name}` and `{formal.name}` must have one element type "
                    f"({formal.type_str}), got {sorted(others)[0]} and {sorted(kinds)[0]}"
                )

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any], **context: Any) -> tuple[Any, ...]:
        """Runs the function on inputs (None for one left out) and completed attributes."""
        assert self.fn is not None
        formals = self.schema.inputs
        arguments = list(inputs)
        if formals and formals[-1].option == _VARIADIC:
            arguments = [*arguments[: len(formals) - 1], arguments[len(formals) - 1 :]]
        extra = {name: value for name, value in context.items() if name in self.parameters}
        result = self.fn(*arguments, **attributes, **extra)
        results = result if isinstance(result, tuple) else (result,)
        self._check_results(results)
        return results

    def _check_results(self, values: Sequence[Any]) -> None:
        """Raises DTypeError for an element type that an attribute asked for and this version does not list."""
        formals = self.schema.outputs
        given = {formal.type_str for formal in self.schema.inputs}
        for formal, value in zip(formals, values, strict=False):
            if formal.type_str in given or formal.type_str.endswith(")") or not hasattr(value, "dtype"):
                continue
            allowed = allowed_types(self.schema, formal.type_str)
            if not type_names(value) & allowed:
                raise DTypeError(
                    f"{self.name}: output `{formal.name}` would be {describe(value)}; "
                    f"this version gives {_listing(allowed)}"
                )


def _listing(types: Iterable[str]) -> str:
    return ", ".join(sorted(t.removeprefix("tensor(").removesuffix(")") for t in types))


def _foldable(fn: Any) -> bool:
    return getattr(fn, "foldable", False)


def _marks(annotation: Any) -> set[Any]:
    """What `Annotated` carries, also inside a union with None."""
    found = set(getattr(annotation, "__metadata__", ()))
    for part in get_args(annotation):
        found |= set(getattr(part, "__metadata__", ()))
    return found


def _default(proto: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


_KINDS: dict[str, tuple[type, ...]] = {
    "INT": (int, np.integer),
    "FLOAT": (float, int, np.floating, np.integer),
    "STRING": (str,),
    "INTS": (int, np.integer),
    "FLOATS": (float, int, np.floating, np.integer),
    "STRINGS": (str,),
    "TENSOR": (np.ndarray, np.generic),
    "SPARSE_TENSOR": (np.ndarray, np.generic),
}


def _check_attribute(op: str, attribute: Any, value: Any) -> None:
    kind = attribute.type.name
    if kind == "GRAPH" and not hasattr(value, "nodes"):
        raise ArgumentError(f"{op}: attribute `{attribute.name}` is {value!r}; it must be of type {kind}")
    expected = _KINDS.get(kind, (object,))
    items = value if kind.endswith("S") else (value,)
    if kind.endswith("S") and (isinstance(value, str) or not isinstance(value, Sequence | np.ndarray)):
        raise ArgumentError(f"{op}: attribute `{attribute.name}` is {value!r}; it must be a sequence ({kind})")
    for item in items:
        if not isinstance(item, expected):
            raise ArgumentError(f"{op}: attribute `{attribute.name}` is {value!r}; it must be of type {kind}")


@functools.cache
def _constraints(key: tuple[str, str, int]) -> dict[str, frozenset[str]]:
    schema = defs.get_schema(key[0], key[2], key[1])
    found = {}
    for constraint in schema.type_constraints:
        allowed = frozenset(constraint.allowed_type_strs)
        # What an optional holds is given as it is, so a version that takes the optional takes that too.
        found[constraint.type_param_str] = allowed | {t[9:-1] for t in allowed if t.startswith("optional(")}
    return found


def allowed_types(schema: defs.OpSchema, type_str: str) -> frozenset[str]:
    """The types that a version permits where its text has `type_str`, a variable or a type."""
    constraints = _constraints((schema.name, schema.domain, schema.since_version))
    return constraints.get(type_str) or frozenset([type_str])


@functools.cache
def _tensor_names() -> dict[str, str]:
    """NumPy's name of an element type → the standard's."""
    found = {"object": "string"}
    for name, number in onnx.TensorProto.DataType.items():
        if name not in ("UNDEFINED", "STRING"):
            text = name.lower()
            found[helper.tensor_dtype_to_np_dtype(number).name] = text
    return found


def is_standard(dtype: Any) -> bool:
    """Whether the standard has this element type; of NumPy's types of strings it has `object`."""
    return dtype.name in _tensor_names()


_WIDE = {"int32": "int64", "uint32": "uint64", "float": "double", "complex64": "complex128"}


def type_names(value: Any) -> frozenset[str]:
    """The standard's names for the type of a value.

    A JAX array of a 32-bit type has two while x64 is off: it may stand for the 64-bit type.
    """
    if isinstance(value, list | tuple):
        inner = type_names(value[0]) if value else (f"tensor({t})" for t in _tensor_names().values())
        return frozenset(f"seq({t})" for t in inner)
    if isinstance(value, np.ndarray) and value.dtype.kind in "USTO":
        return frozenset(["tensor(string)" if is_string(value) else "tensor(int64)"])
    name = _tensor_names().get(value.dtype.name, value.dtype.name)  # a type that no operator takes keeps its own name
    if isinstance(value, jax.Array) and name in _WIDE and canonical(np.int64) != np.int64:
        return frozenset([f"tensor({name})", f"tensor({_WIDE[name]})"])
    return frozenset([f"tensor({name})"])


def newest_opset() -> int:
    """The newest opset that the installed onnx knows."""
    return defs.onnx_opset_version()


@functools.cache
def find(op_type: str, domain: str, opset: int) -> Operator:
    """The operator at the newest version not above `opset`. Raises UnsupportedError, which says why not."""
    domain = "" if domain == "ai.onnx" else domain
    functions = _functions()
    newest = newest_opset()
    if not domain and opset > newest:
        raise UnsupportedError(f"opset {opset}: the installed onnx knows opsets up to {newest}; a newer onnx may help")
    try:
        schema: Any = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        known = [
            s.since_version for s in defs.get_all_schemas_with_history() if (s.name, s.domain) == (op_type, domain)
        ]
        where = f"opset {opset}" + (f" of {domain}" if domain else "")
        what = f"it begins with opset {min(known)}" if known else "the standard has no such operator"
        raise UnsupportedError(f"{op_type}: not in {where}; {what}") from None
    # GroupNormalization-18 is deprecated too, but opsets 18 to 20 have no other; an adapter keeps such a version.
    if schema.deprecated and schema.since_version not in _ADAPTERS.get(_key(op_type, domain), {}):
        raise UnsupportedError(f"{op_type}: deprecated since opset {schema.since_version}")
    adapters = {since: fn for since, fn in _ADAPTERS.get(_key(op_type, domain), {}).items() if since <= opset}
    if adapters:
        fn = adapters[max(adapters)]
    elif _key(op_type, domain) in _ADAPTERS or domain:
        fn = None
    else:
        fn = functions.get(op_type.lower())
    if fn is None and not (schema.has_function or schema.has_context_dependent_function):
        raise UnsupportedError(f"{op_type}: jaxops does not implement version {schema.since_version}")
    return Operator(schema, fn)
