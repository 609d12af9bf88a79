"""A row for each operation of OpenVINO that jaxops has."""

from jaxops.errors import UnsupportedError
from jaxops.frontend.catalogue import OperatorRow, operator_row
from jaxops.openvino.registry import find
from jaxops.openvino.schemas import classes


def operators() -> tuple[OperatorRow, ...]:
    """The operations that jaxops has, by name. Their versions are the opsets that introduced or changed them."""
    versions: dict[str, list[int]] = {}
    for name in classes():
        op_type, _, since = name.rpartition("-")
        if _has(op_type, int(since)):
            versions.setdefault(op_type, []).append(int(since))
    return tuple(
        operator_row(find(op_type, max(numbers)), "openvino", tuple(sorted(numbers)))
        for op_type, numbers in sorted(versions.items())
    )


def _has(op_type: str, opset: int) -> bool:
    try:
        find(op_type, opset)
    except UnsupportedError:
        return False
    return True
