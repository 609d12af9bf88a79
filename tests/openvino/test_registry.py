"""That an adapter's operands have the roles that are read of the function whose meaning it has."""

import contextlib
import inspect

import pytest

from jaxops import ops
from jaxops.errors import UnsupportedError
from jaxops.openvino.registry import find
from jaxops.openvino.schemas import newest_opset, operations
from jaxops.signature import ROLES, Weight, marks, role
from jaxops.static import Array


def operators():
    """One operator for each version of an operation that has a function."""
    for number in range(1, newest_opset() + 1):
        for name in operations(number):
            with contextlib.suppress(UnsupportedError):
                yield find(name, number)


OPERATORS = {operator.version: operator for operator in operators()}


def misplaced_roles(adapter, function):
    """The operands of an adapter that have another role by its signature, if it says any, than by the function's."""
    parameters = inspect.signature(adapter, eval_str=True).parameters.values()
    operands = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    roles = {p.name: next((mark for mark in marks(p.annotation) if mark in ROLES), None) for p in operands}
    read = {name: role(function, position) for position, name in enumerate(roles)}
    return [name for name in roles if roles[name] != read[name]] if any(roles.values()) else []


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_operands_have_the_roles_that_are_read(operator):
    assert misplaced_roles(operator.fn, operator.function) == []


def test_a_role_at_a_wrong_position_is_caught():
    def cell(x, h, w: Weight[Array]): ...

    assert misplaced_roles(cell, ops.lstm) == ["h"]
