"""The function that computes an operation at an opset.

It comes by name from `jaxops.ops` or `jaxops.ops.openvino`, or from an adapter in `jaxops.openvino.versions`: the
newest adapter that is not newer than the version of the operation in the opset.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from jaxops import ops
from jaxops.errors import UnsupportedError
from jaxops.frontend.schema_operator import SchemaOperator
from jaxops.frontend.versions import Versions, by_type, newest
from jaxops.openvino.schemas import OpenVinoSchema, find_schema
from jaxops.ops import openvino

VERSIONS = Versions("jaxops.openvino.versions")
adapters = VERSIONS.adapters
# Functions of `jaxops.ops` whose meaning an adapter has in another form: their traits, and the roles of their operands.
_COUNTERPARTS: dict[Callable[..., Any], Callable[..., Any]] = {}
# Operations that the graph itself carries out, without a function.
_OF_GRAPHS = {"Parameter", "Result", "Constant", "ReadValue", "Assign"}


def version(op_type: str, since: int, of: Callable[..., Any] | None = None) -> Callable[[Any], Any]:
    """Registers a function for an operation from opset `since` on. of: the function with the same meaning."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        if of is not None:
            _COUNTERPARTS[fn] = of
        return VERSIONS.version(op_type, since)(fn)

    return register


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
    return {**by_type(ops), **by_type(openvino)}


def function(op_type: str) -> Callable[..., Any] | None:
    """Returns the function with the name of an operation; None if there is none."""
    return _functions().get(op_type.lower())


class Operator(SchemaOperator[OpenVinoSchema]):
    """An operation as a model of some opset means it."""

    def __init__(self, schema: OpenVinoSchema, fn: Callable[..., Any] | None, opset: int) -> None:
        super().__init__(schema, fn, opset, _COUNTERPARTS.get(fn) if fn else None)

    def __reduce__(self) -> Any:
        return _again, (type(self), self.schema.name, self.opset)

    @property
    def public_opset(self) -> tuple[str, int] | None:
        """The module and the number of the `opset` that has the operation as a function; None if there is none."""
        return None if self.subgraphs else ("jaxops.openvino", self.opset)

    def flagged(self, position: int) -> bool:
        """Returns True if the function returns the output at a position only when asked for it."""
        return position in self._flags.values()


def _again(kind: type[Operator], op_type: str, opset: int) -> Operator:
    operator = find(op_type, opset)
    return kind(operator.schema, operator.fn, opset)


@functools.cache
def find(op_type: str, opset: int) -> Operator:
    """Returns the operation of a type in an opset. Raises UnsupportedError if jaxops does not have it."""
    schema = find_schema(op_type, opset)
    registered = adapters().get(("", schema.name), {})
    fn = newest(registered, schema.since) if registered else function(schema.name)
    if fn is not None and not registered:
        without = sorted(schema.attributes.keys() - inspect.signature(fn).parameters.keys())
        if without:  # a different operator with that name
            raise UnsupportedError(
                f"{schema.name}: jaxops does not implement `{without[0]}` of {schema.name}-{schema.since}"
            )
    if fn is None:
        graph_only = "; only a model has it" if schema.name in _OF_GRAPHS else ""
        raise UnsupportedError(f"{schema.name}: jaxops does not implement {schema.name}-{schema.since}{graph_only}")
    return Operator(schema, fn, opset)
