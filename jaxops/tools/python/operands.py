"""Placeholders for the values that a call of an operator takes, and their abstract evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops import ops
from jaxops.dtypes import canonical
from jaxops.errors import JaxopsError, UnsupportedError
from jaxops.shown_text import clean
from jaxops.static import Undecided
from jaxops.tools.python.expressions import Expression, Ref, call
from jaxops.tools.python.literals import literal, written_sizes

# The exceptions of an abstract evaluation with operands that are not known well enough.
FAILURES = (JaxopsError, Undecided, TypeError, ValueError, NotImplementedError, ArithmeticError)


# A random key, as an abstract value.
KEY = jax.eval_shape(lambda: jax.random.key(0))


@dataclass(frozen=True, eq=False)
class Operand:
    """A placeholder for a value: its expression, and its shape and type if they are known.

    static: whether it is a NumPy array when the package runs, so that operators read its value.
    """

    expression: Expression
    fact: Any = None
    static: bool = False

    @property
    def traceable(self) -> bool:
        """True if an array of this shape and type can replace it while an operator is traced."""
        return self.fact is not None and not self.static

    @property
    def shape(self) -> Any:
        """The sizes. Raises UnsupportedError if they are unknown."""
        if self.fact is None:
            name = clean(self.expression.name[1:]) if isinstance(self.expression, Ref) else "an operand"
            raise UnsupportedError(
                f"to_python: the sizes of {name} decide about a node, and are not known here\n"
                "  hint    declare the shapes of the model's inputs"
            )
        return self.fact.shape

    @property
    def ndim(self) -> int | None:
        """The number of axes; None if it is unknown."""
        return None if self.fact is None else len(self.fact.shape)

    @property
    def dtype(self) -> Any:
        """The element type; None if it is unknown."""
        return None if self.fact is None else self.fact.dtype

    def reshape(self, *shape: Any) -> "Operand":
        """Records a call of the method of arrays."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        written = call("jo.reshape", [self.expression, written_sizes(np.array(sizes, object))])
        return Operand(written, self._of(lambda x: ops.reshape(x, sizes)))

    def astype(self, dtype: Any) -> "Operand":
        """Records a call of the method of arrays, unless the operand has the type already."""
        if self.fact is not None and canonical(dtype) == self.fact.dtype:
            return self
        written = call("jo.cast", [self.expression, literal(np.dtype(dtype))], ["", "to"])
        return Operand(written, self._of(lambda x: ops.cast(x, to=np.dtype(dtype))))

    def _of(self, fn: Callable[..., Any]) -> Any:
        return abstract(fn, [self.fact]) if self.traceable else None


@dataclass(frozen=True, eq=False)
class Nested:
    """A function as an argument: the body of a branch or a loop."""

    name: str


def abstract(fn: Callable[..., Any], traced: Sequence[Any], failed: Callable[[Exception], None] | None = None) -> Any:
    """The results of a function for operands of these shapes and types; None if they cannot be determined.

    failed: called with the error if they cannot be determined.
    """
    returned: list[Any] = []

    def run(*xs: Any) -> Any:
        result = fn(*xs)
        returned.append(result)
        results = result if isinstance(result, tuple) else (result,)
        return [y if isinstance(y, jax.Array) else None for y in results]

    try:
        shapes = jax.eval_shape(run, *traced)
    except FAILURES as error:
        if failed is not None:
            failed(error)
        return None
    (result,) = returned
    results = result if isinstance(result, tuple) else (result,)
    facts = tuple(
        shape if shape is not None else y if isinstance(y, np.ndarray) else None
        for shape, y in zip(shapes, results, strict=True)
    )
    return facts if isinstance(result, tuple) else facts[0]
