"""The operators of one opset as plain functions: `op = opset(9); op.Flatten(x, axis=1)`."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.attributes import integer
from jaxops.dtypes import converted, is_float
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, UnsupportedError
from jaxops.frontend.schema import Formal
from jaxops.graph.interpreter import run_node
from jaxops.graph.nodes import Node
from jaxops.onnx.bind import with_body
from jaxops.onnx.registry import Operator, find
from jaxops.onnx.schemas import is_standard, newest_opset, operators
from jaxops.static import as_array, known

_EMPTY = inspect.Parameter.empty


class Opset:
    """The operators of an opset, as attributes; `dir` lists them and `help` shows the standard's text."""

    def __init__(self, version: int) -> None:
        self.version = version

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return _function(name, self.version)
        except UnsupportedError as error:
            raise AttributeError(str(error)) from error

    def __dir__(self) -> Sequence[str]:
        return [*super().__dir__(), *_names(self.version)]

    def __repr__(self) -> str:
        return f"jaxops.onnx.opset({self.version})"


def opset(version: int) -> Opset:
    """The operators with exactly the semantics of ONNX opset `version`.

    Inputs are positional or named as in the standard, attributes are keywords. Python numbers take the element
    type of the other operands. An operator whose number of outputs is free takes `n_outputs`, a random one `rng`.
    Raises ArgumentError for an opset that the installed onnx does not know; the operators raise what the opset
    forbids: DTypeError, SignatureError, AxisError, ShapeError.

    >>> op = opset(9)
    >>> op.Flatten(np.zeros((2, 3, 4)), axis=2).shape
    (6, 4)
    """
    newest = newest_opset()
    if not isinstance(version, int | np.integer) or not 1 <= version <= newest:
        raise ArgumentError(f"opset {version!r}: the installed onnx knows opsets 1 to {newest}")
    return Opset(int(version))


@functools.cache
def _names(version: int) -> list[str]:
    """The operators that can be called: known to jaxops, and without subgraphs among their attributes."""
    names = []
    for name in operators(""):
        try:
            _function(name, version)
        except UnsupportedError:
            continue
        names.append(name)
    return names


@functools.cache
def _function(name: str, version: int) -> Callable[..., Any]:
    operator = find(name, "", version)
    schema = operator.schema
    if any(a.kind == "GRAPH" for a in schema.attributes.values()):
        raise UnsupportedError(f"{name}: an operator with subgraphs can only be called from a model")
    signature = _signature(operator)

    def call(*inputs: Any, rng: jax.Array | None = None, **named: Any) -> Any:
        n_outputs = named.pop("n_outputs", None)
        n_outputs = None if n_outputs is None else integer(operator.version, "n_outputs", n_outputs, least=0)
        if rng is not None and "rng" not in signature.parameters:
            raise SignatureError(f"{operator.version}: it has no random part, so it takes no `rng`")
        attributes = {k: v for k, v in named.items() if k not in inputs_by_name or k in schema.attributes}
        operands = _operands(operator, inputs, {k: v for k, v in named.items() if k not in attributes})
        checked = {k: _attribute(operator, k, v) for k, v in attributes.items() if v is not None}
        free = n_outputs is None and _variadic(schema.outputs)  # then there are as many as the function makes
        # All outputs of LSTM and its like are optional; a call asks for one of them at least.
        n_outputs = max(schema.output_counts[0], not free) if n_outputs is None else n_outputs
        operator.check_arity([x is not None for x in operands], n_outputs)
        attributes = operator.complete(checked)
        for position, x in enumerate(operands):
            if x is not None and operator.is_vector(position) and np.ndim(x) != 1:
                raise ShapeError(
                    f"{operator.version}: input {position} `{operator.formals[position]}` must be 1-D, but has "
                    f"{np.ndim(x)} axes"
                )
        names = tuple(
            "" if x is None else formal.name for formal, x in zip(_formals(operator, operands), operands, strict=True)
        )
        outputs = () if free else tuple(f"output {i}" for i in range(n_outputs))
        node = Node(operator, operator.version, names, outputs, attributes)
        results = tuple(run_node(with_body(node), operands, {}, rng))
        results = results if free else results[:n_outputs]
        return results if n_outputs > 1 or _variadic(schema.outputs) else results[0]

    inputs_by_name = {formal.name for formal in schema.inputs}
    call.__name__ = call.__qualname__ = name
    call.__doc__ = _text(schema.proto, version)
    call.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _variadic(formals: Sequence[Any]) -> bool:
    return bool(formals) and formals[-1].option == "variadic"


def _signature(operator: Operator) -> inspect.Signature:
    schema = operator.schema
    parameters = []
    for formal in schema.inputs:
        if formal.option == "variadic":
            parameters.append(inspect.Parameter(formal.name, inspect.Parameter.VAR_POSITIONAL))
        else:
            optional = formal.option == "optional"
            default = None if optional else _EMPTY
            parameters.append(inspect.Parameter(formal.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    defaults = schema.defaults
    input_names = {p.name for p in parameters}
    for name, attribute in schema.attributes.items():
        if name not in input_names:
            default = _EMPTY if attribute.required else defaults.get(name)
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    if schema.output_counts[0] != schema.output_counts[1]:
        parameters.append(inspect.Parameter("n_outputs", inspect.Parameter.KEYWORD_ONLY, default=None))
    if "rng" in operator.parameters:
        parameters.append(inspect.Parameter("rng", inspect.Parameter.KEYWORD_ONLY, default=None))
    return inspect.Signature(parameters)


def _operands(operator: Operator, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The inputs in the order of the schema, None for one left out, Python numbers as arrays."""
    formals = operator.schema.inputs
    operands = list(inputs)
    if _variadic(formals) and formals[-1].name in named:
        raise SignatureError(f"{operator.version}: give `{formals[-1].name}` by position, there may be many")
    if _variadic(formals) and len(operands) == len(formals) and isinstance(operands[-1], list | tuple):
        operands = [*operands[:-1], *operands[-1]]  # op.Concat([a, b]) means op.Concat(a, b)
    positions = {formal.name: i for i, formal in enumerate(formals)}
    for name, value in sorted(named.items(), key=lambda item: positions[item[0]]):
        position = positions[name]
        if position < len(operands):
            raise SignatureError(f"{operator.version}: input `{name}` was given twice, by position and by name")
        operands += [None] * (position - len(operands)) + [value]
    while operands and operands[-1] is None:
        operands.pop()
    pairs = list(zip(_formals(operator, operands), operands, strict=True))
    for k, (formal, x) in enumerate(pairs):
        subject = f"{operator.version}: input {k} `{formal.name}`"
        if isinstance(x, jax.Array) and not isinstance(x.dtype, np.dtype):
            raise DTypeError(f"{subject} holds {x.dtype.name}, which are not numbers")
        listed = x is not None and not hasattr(x, "dtype") and _is_sequence(formal, x)
        if listed and not (isinstance(x, list | tuple) and all(hasattr(item, "dtype") for item in x)):
            raise SignatureError(f"{subject} is {x!r:.80}; it must be a list of arrays")
    # Which element type a type variable has, as far as arrays say it. Other types are refused later.
    bound = {f.kind: x.dtype for f, x in pairs if hasattr(x, "dtype") and is_standard(x.dtype)}
    return [
        x if x is None or hasattr(x, "dtype") or _is_sequence(f, x)
        else _array(f"{operator.version}: input `{f.name}`", x, bound.get(f.kind))
        for f, x in pairs
    ]  # fmt: skip


def _formals(operator: Operator, operands: Sequence[Any]) -> list[Any]:
    """The formal of each operand; the last one stands for all that follow."""
    formals = operator.schema.inputs
    if len(operands) and not formals:
        raise SignatureError(f"{operator.version}: takes no inputs, but {len(operands)} were given")
    return [formals[min(i, len(formals) - 1)] for i in range(len(operands))]


def _is_sequence(formal: Formal, value: Any) -> bool:
    """Returns True if a list stands for a sequence of tensors: it must, or it may and holds arrays."""
    kinds = [t.startswith(("seq", "optional")) for t in formal.types]
    holds_arrays = isinstance(value, list | tuple) and any(hasattr(item, "dtype") for item in value)
    return all(kinds) or (any(kinds) and holds_arrays)


def _array(subject: str, value: Any, dtype: np.dtype | None) -> np.ndarray:
    """Python numbers as an array: of the type of their kin, else int64, float32, bool or string."""
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value)):
        raise SignatureError(f"{subject} holds JAX arrays in a list; stack them into one array first")
    values = as_array(value, subject)
    kind = values.dtype.kind
    if values.size == 0:
        return values.astype(np.int64 if dtype is None else dtype)
    if kind in "USTO":
        huge = [v for v in values.flat if isinstance(v, int) and not -(2**63) <= v < 2**64]
        if huge:
            raise ArgumentError(f"{subject} is {huge[0]}, which no type of the standard can hold")
        return values.astype(object)
    takes = dtype is not None and (
        kind == dtype.kind or (kind in "iu" and dtype.kind not in "OUST") or (kind == "f" and is_float(dtype))
    )
    if dtype is None or not takes:
        dtype = np.dtype({"f": np.float32, "i": np.int64, "u": np.uint64}.get(kind, values.dtype))
    return converted(subject, values, dtype)


def _attribute(operator: Operator, name: str, value: Any) -> Any:
    """An attribute as the front end has it: an array where the standard wants a tensor, a tuple for a list."""
    declared = operator.schema.attributes.get(name)
    kind = declared.kind if declared else ""
    if isinstance(value, jax.Array):
        value = known(operator.version, name, value)
    if kind.endswith("TENSOR"):
        if isinstance(value, np.ndarray | np.generic):
            return value
        return _array(f"{operator.version}: attribute `{name}`", value, None)
    if isinstance(value, np.ndarray):
        value = value.item() if value.size == 1 and not kind.endswith("S") else value.tolist()
    return tuple(value) if isinstance(value, list) else value


def _text(schema: Any, version: int) -> str:
    """The standard's text for this version, with its operands, attributes and types."""
    lines = [f"{schema.name}, version {schema.since_version} (opset {version})", "", inspect.cleandoc(schema.doc or "")]
    sections = {
        "Inputs": [(f"{i.name}: {i.type_str}", i.description) for i in schema.inputs],
        "Attributes": [(f"{n}: {a.type.name.lower()}", a.description) for n, a in schema.attributes.items()],
        "Outputs": [(f"{o.name}: {o.type_str}", o.description) for o in schema.outputs],
        "Types": [(c.type_param_str, ", ".join(sorted(c.allowed_type_strs))) for c in schema.type_constraints],
    }
    for title, rows in sections.items():
        if rows:
            lines += ["", title] + [f"  {head}\n      {' '.join(text.split())}" for head, text in rows]
    return "\n".join(lines)
