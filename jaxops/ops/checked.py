"""The check that a result has the sizes that were resolved, where symbolic ones may come out in another form."""

from jaxops.shapes.arithmetic import all_agree
from jaxops.static import Sizes


def check_sizes(op: str, found: Sizes, expected: Sizes) -> None:
    """Asserts that sizes are equal; raises SizeError where that depends on the value of a symbolic one."""
    if found != expected:
        problem = f"{op}: the result has the sizes {found}, expected {expected}"
        assert all_agree(problem, found, expected), problem
