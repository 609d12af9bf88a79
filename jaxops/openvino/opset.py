"""The operations of one opset as plain functions: `op = opset(8); op.Gather(data, indices, 1, batch_dims=1)`."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxops.errors import ArgumentError, BoundsError
from jaxops.frontend.opset import Opset
from jaxops.openvino.registry import Operator, find
from jaxops.openvino.schemas import newest_opset, operations
from jaxops.static import is_static, is_symbolic

# Inputs that must not be negative in early versions. `load` takes them from files with their later meaning: negative
# pads crop, and negative indices count from the end.
_CROPS = ArgumentError, "it crops from version 12 on"
_FROM_END = BoundsError, "indices count from the end from version 8 on"
_NOT_NEGATIVE = {
    ("Pad", 1): dict.fromkeys((1, 2), _CROPS),
    ("Gather", 1): {1: _FROM_END},
    ("Gather", 7): {1: _FROM_END},
}


class StrictOperator(Operator):
    """An operation with exactly the rules of its version, for callers."""

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises ArgumentError, or BoundsError for an index, if a number is negative and the version forbids that."""
        super().check(inputs)
        for position, (kind, later) in _NOT_NEGATIVE.get((self.name, self.schema.since), {}).items():
            values = inputs[position]
            if is_static(values) and not is_symbolic(values) and (values < 0).any():
                raise kind(
                    f"{self.version}: input {position} `{self.formals[position]}` holds {values.min()}; this version "
                    f"takes no negative numbers ({later})"
                )


class OpenVinoOpset(Opset):
    """The operations that an opset of OpenVINO lists."""

    def _find(self, name: str) -> Operator:
        operator = find(name, self.version)
        return StrictOperator(operator.schema, operator.fn, self.version)

    def _listed(self) -> Sequence[str]:
        return operations(self.version)

    def __repr__(self) -> str:
        return f"jaxops.openvino.opset({self.version})"


def opset(version: int) -> Opset:
    """Returns the operations with exactly the semantics that opset `version` of OpenVINO lists.

    Inputs are given by position or by name, attributes by keyword, with _ for - in their names. Python numbers take the
    element type of the other operands. An opset does not list all operations of the opsets before it: for an operation
    that it does not list, an AttributeError names the newest opset that does.
    Raises ArgumentError for an opset that OpenVINO does not have. The operations raise what the opset forbids:
    DTypeError, SignatureError, AxisError, ShapeError, ArgumentError, BoundsError.

    >>> op = opset(8)
    >>> op.Gather(np.arange(6).reshape(2, 3), [0, 2], 1).tolist()
    [[0, 2], [3, 5]]
    """
    newest = newest_opset()
    if not isinstance(version, int | np.integer) or not 1 <= version <= newest:
        raise ArgumentError(f"opset {version!r}: OpenVINO has opsets 1 to {newest}")
    return _opset(int(version))


@functools.cache
def _opset(version: int) -> Opset:
    return OpenVinoOpset(version)  # one object per version, which keeps its functions and their list
