"""The function that computes an operator at a version.

The schema has names, types, defaults and permitted element types. The function comes by name from the module of the
domain, or from an adapter in `jaxops.onnx.versions`: the newest one whose `since` is not above the model's opset.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from jaxops import ops
from jaxops.errors import UnsupportedError
from jaxops.frontend.custom_operators import CustomOperator
from jaxops.frontend.schema_operator import SchemaOperator
from jaxops.frontend.versions import Versions, by_type, newest
from jaxops.onnx.schemas import OnnxSchema, find_schema
from jaxops.ops import microsoft, ml, preview, training
from jaxops.ops.math.exponentials import erfc

# Domain → the module with its functions.
DOMAINS: dict[str, ModuleType] = {
    "": ops,
    "ai.onnx.ml": ml,
    "ai.onnx.preview": preview,
    "ai.onnx.preview.training": training,
    "com.microsoft": microsoft,
}
# Operators that the standard never had, but whose names say all: only `load` takes them. tf2onnx copies TensorFlow's
# Erfc into its files.
NOT_STANDARD = {("", "Erfc"): CustomOperator("Erfc", "", erfc)}
VERSIONS = Versions("jaxops.onnx.versions")
version, adapters = VERSIONS.version, VERSIONS.adapters


@functools.cache
def _functions(domain: str) -> dict[str, Callable[..., Any]]:
    return by_type(DOMAINS[domain]) if domain in DOMAINS else {}


def function(op_type: str, domain: str = "") -> Callable[..., Any] | None:
    """Returns the function with the newest meaning of an operator; None if there is none, or if adapters do all."""
    return _functions(domain).get(op_type.lower())


class Operator(SchemaOperator[OnnxSchema]):
    """An operator as a model of some opset means it. `fn` is None when only the standard's function body defines it."""

    def __init__(self, schema: OnnxSchema, fn: Callable[..., Any] | None, opset: int = 0) -> None:
        super().__init__(schema, fn, opset, function(schema.name, schema.domain))

    def __reduce__(self) -> Any:
        return _found_again, (type(self), self.schema.name, self.schema.domain, self.opset)

    @property
    def public_opset(self) -> tuple[str, int] | None:
        """The module and the number of the `opset` that has the operator as a function; None if there is none."""
        return None if self.schema.domain or self.subgraphs else ("jaxops.onnx", self.opset)

    @property
    def proto(self) -> Any:
        """The FunctionProto by which the standard defines the operator; None if it has none or one that needs types."""
        return self.schema.proto.function_body if self.fn is None and self.schema.proto.has_function else None


def _found_again(kind: type[Operator], op_type: str, domain: str, opset: int) -> Operator:
    operator = find(op_type, domain, opset)
    return operator if kind is Operator else kind(operator.schema, operator.fn, opset)


@functools.cache
def find(op_type: str, domain: str, opset: int) -> Operator:
    """Returns the operator at the newest version not above `opset`. Raises UnsupportedError if jaxops lacks it."""
    schema = find_schema(op_type, domain, opset)
    key = domain, op_type
    registered = adapters().get(key, {})
    # GroupNormalization-18 is deprecated too, but opsets 18 to 20 have no other; an adapter keeps such a version.
    if schema.deprecated and schema.since not in registered:
        raise UnsupportedError(f"{op_type}: deprecated since opset {schema.since}")
    fn = newest(registered, opset) if registered else function(op_type, domain)
    if fn is None and not (schema.proto.has_function or schema.proto.has_context_dependent_function):
        raise UnsupportedError(f"{op_type}: jaxops does not implement version {schema.since}")
    return Operator(schema, fn, opset)
