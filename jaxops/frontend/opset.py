"""The operators of one opset as plain functions, over the schemas of any front end."""

import abc
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.attributes import integer
from jaxops.dtypes import converted, is_float
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, UnsupportedError, amount
from jaxops.frontend.schema import Formal, Schema, formal_of
from jaxops.frontend.schema_operator import SchemaOperator
from jaxops.graph.interpreter import run_node
from jaxops.graph.nodes import Node
from jaxops.signature_errors import errors_of
from jaxops.static import as_array, known

_EMPTY = inspect.Parameter.empty


class Opset(abc.ABC):
    """The operators of an opset as attributes; `dir` lists them, and `help(op.Relu)` describes one.

    Inputs are given by position or by the name that the opset has for them, attributes by keyword.

    >>> import jaxops.onnx
    >>> op = jaxops.onnx.opset(17)
    >>> "LayerNormalization" in dir(op), op.Relu([-1.0, 2.0]).tolist()
    (True, [0.0, 2.0])
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self._called: dict[str, Callable[..., Any]] = {}

    def __reduce__(self) -> Any:
        return type(self), (self.version,)

    @abc.abstractmethod
    def _find(self, name: str) -> SchemaOperator[Any]:
        """The operator of a name. Raises UnsupportedError with the reason if there is none."""

    @abc.abstractmethod
    def _listed(self) -> Sequence[str]:
        """The names of operators that the opset may have."""

    def _bound(self, node: Node) -> Node:
        """A node of an operator; if no function computes the operator, with the graph that defines it."""
        return node

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._function(name)
        except UnsupportedError as error:
            raise AttributeError(str(error)) from error

    @functools.cached_property
    def _names(self) -> Sequence[str]:
        """The operators that can be called: those that jaxops has, without subgraphs among their attributes."""
        return [name for name in self._listed() if hasattr(self, name)]

    def __dir__(self) -> Sequence[str]:
        return [*super().__dir__(), *self._names]

    def _function(self, name: str) -> Callable[..., Any]:
        if name not in self._called:
            operator = self._find(name)
            if operator.subgraphs:
                raise UnsupportedError(f"{name}: an operator with subgraphs can only be called from a model")
            self._called[name] = _function(name, operator, self._bound)
        return self._called[name]


def _function(name: str, operator: SchemaOperator[Any], bound: Callable[[Node], Node]) -> Callable[..., Any]:
    schema: Schema = operator.schema
    signature = _signature(operator)

    def call(*inputs: Any, rng: jax.Array | None = None, **named: Any) -> Any:
        n_outputs = named.pop("n_outputs", None)
        with errors_of(operator.version):
            n_outputs = None if n_outputs is None else integer("n_outputs", n_outputs, least=0)
        if rng is not None and "rng" not in signature.parameters:
            raise SignatureError(f"{operator.version}: the operator draws no random numbers; leave out `rng`")
        attributes = {k: v for k, v in named.items() if k not in inputs_by_name or k in schema.attributes}
        operands = _operands(operator, inputs, {k: v for k, v in named.items() if k not in attributes})
        checked = {k: _attribute(operator, k, v) for k, v in attributes.items() if v is not None}
        free = n_outputs is None and _variadic(schema.outputs)  # if so, the function determines the number
        # All outputs of LSTM, GRU and RNN are optional; a call asks for at least one of them.
        n_outputs = max(schema.output_counts[0], not free) if n_outputs is None else n_outputs
        operator.check_arity([x is not None for x in operands], n_outputs)
        attributes = operator.complete(checked)
        for position, x in enumerate(operands):
            if x is not None and operator.is_vector(position) and np.ndim(x) != 1:
                raise ShapeError(
                    f"{operator.version}: input {position} `{operator.formals[position]}` must be 1-D, but has "
                    f"{amount(np.ndim(x), 'axis', 'axes')}"
                )
        names = tuple(
            "" if x is None else formal.name for formal, x in zip(_formals(operator, operands), operands, strict=True)
        )
        outputs = () if free else tuple(f"output {i}" for i in range(n_outputs))
        node = bound(Node(operator, operator.version, names, outputs, attributes))
        results = tuple(run_node(node, operands, {}, rng))
        results = results if free else results[:n_outputs]
        return results if n_outputs > 1 or _variadic(schema.outputs) else results[0]

    inputs_by_name = {formal.name for formal in schema.inputs}
    call.__name__ = call.__qualname__ = name
    call.__doc__ = _text(schema, operator.opset)
    call.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _variadic(formals: Sequence[Formal]) -> bool:
    return bool(formals) and formals[-1].option == "variadic"


def _signature(operator: SchemaOperator[Any]) -> inspect.Signature:
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


def _operands(operator: SchemaOperator[Any], inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The inputs in the order of the schema, with None for an omitted one, and arrays for Python numbers."""
    schema = operator.schema
    formals, operands = schema.inputs, list(inputs)
    if _variadic(formals) and formals[-1].name in named:
        raise SignatureError(
            f"{operator.version}: `{formals[-1].name}` stands for any number of inputs; give them by position"
        )
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
        listed = x is not None and not hasattr(x, "dtype") and _is_sequence(schema, formal, x)
        if listed and not (isinstance(x, list | tuple) and all(hasattr(item, "dtype") for item in x)):
            raise SignatureError(f"{subject} is {x!r:.80}; it must be a list of arrays")
    # Type variable → element type, according to the arrays. Types that do not match raise an error later.
    typed = [(f.kind, x) for f, x in pairs if hasattr(x, "dtype")]
    bound = {kind: x.dtype for kind, x in typed if schema.element_types(schema.type_names(x)[:1])}
    return [
        x if x is None or hasattr(x, "dtype") or _is_sequence(schema, f, x)
        else _array(f"{operator.version}: input `{f.name}`", x, bound.get(f.kind))
        for f, x in pairs
    ]  # fmt: skip


def _formals(operator: SchemaOperator[Any], operands: Sequence[Any]) -> list[Formal]:
    """The formal of each operand; the last formal also stands for all further operands."""
    formals = operator.schema.inputs
    if len(operands) and not formals:
        raise SignatureError(f"{operator.version}: takes no inputs, but got {len(operands)}")
    return [formal_of(formals, i) for i in range(len(operands))]


def _is_sequence(schema: Schema, formal: Formal, value: Any) -> bool:
    """Returns True if a list means a sequence of tensors: if the schema has no other type, or if it holds arrays."""
    kinds = [schema.is_list(name) for name in formal.types]
    holds_arrays = isinstance(value, list | tuple) and any(hasattr(item, "dtype") for item in value)
    return all(kinds) or (any(kinds) and holds_arrays)


def _array(subject: str, value: Any, dtype: np.dtype | None) -> np.ndarray:
    """Python numbers as an array of the type of the other operands, or else int64, float32, bool or string."""
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


def _attribute(operator: SchemaOperator[Any], name: str, value: Any) -> Any:
    """An attribute in the form of the front end: an array if the schema has a tensor, a tuple for a list."""
    declared = operator.schema.attributes.get(name)
    if isinstance(value, jax.Array):
        with errors_of(operator.version):
            value = known(name, value)
    if declared and declared.tensor:
        if isinstance(value, np.ndarray | np.generic):
            return value
        return _array(f"{operator.version}: attribute `{name}`", value, None)
    if isinstance(value, np.ndarray):
        value = value.item() if value.size == 1 and not (declared and declared.several) else value.tolist()
    return tuple(value) if isinstance(value, list) else value


def _text(schema: Schema, version: int) -> str:
    """The documentation of an operator, with its operands, attributes and types."""
    formals = (*schema.inputs, *schema.outputs)
    variables = {formal.kind: ", ".join(sorted(formal.types)) for formal in formals if formal.is_variable}
    lines = [f"{schema.name}, version {schema.since} (opset {version})", "", inspect.cleandoc(schema.doc)]
    sections = {
        "Inputs": [(f"{i.name}: {i.kind}", i.description) for i in schema.inputs],
        "Attributes": [(f"{n}: {a.kind.lower()}", a.description) for n, a in schema.attributes.items()],
        "Outputs": [(f"{o.name}: {o.kind}", o.description) for o in schema.outputs],
        "Types": list(variables.items()),
    }
    for title, rows in sections.items():
        if rows:
            lines += ["", title] + [f"  {head}\n      {' '.join(text.split())}" for head, text in rows]
    return "\n".join(lines)
