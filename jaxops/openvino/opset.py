"""The operations of one opset as plain functions: `op = opset(8); op.Gather(data, indices, 1, batch_dims=1)`."""

import functools
from collections.abc import Sequence

import numpy as np

from jaxops.errors import ArgumentError
from jaxops.frontend.opset import Opset
from jaxops.openvino.registry import Operator, find
from jaxops.openvino.schemas import newest_opset, operations


class OpenVinoOpset(Opset):
    """The operations that an opset of OpenVINO lists."""

    def _find(self, name: str) -> Operator:
        return find(name, self.version)

    def _listed(self) -> Sequence[str]:
        return operations(self.version)

    def __repr__(self) -> str:
        return f"jaxops.openvino.opset({self.version})"


def opset(version: int) -> Opset:
    """The operations with exactly the semantics that opset `version` of OpenVINO lists.

    Inputs are positional or named, attributes are keywords, with _ for - in their names. Python numbers take the
    element type of the other operands. An opset does not list all that came before it: an operation that it does not
    have is an AttributeError, which names the newest opset that has it.
    Raises ArgumentError for an opset that there is not; the operations raise what the opset forbids: DTypeError,
    SignatureError, AxisError, ShapeError.

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
    return OpenVinoOpset(version)  # keeps its functions and their list
