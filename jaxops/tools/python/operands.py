"""Placeholders for values, on which adapters of operators run while their calls are written down."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops import ops
from jaxops.dtypes import canonical
from jaxops.errors import JaxopsError
from jaxops.tools.python.expressions import Expression, Ref, call, sequence
from jaxops.tools.python.literals import literal

# What an abstract evaluation of an operator may raise where its operands are not known well enough.
FAILURES = (JaxopsError, TypeError, ValueError, NotImplementedError, ArithmeticError)


# A random key, as an abstract value.
KEY = jax.eval_shape(lambda: jax.random.key(0))


class _Unknown:
    """An attribute of an operand that nothing is known of; equal to itself, and no number."""


_UNKNOWN = _Unknown()


@dataclass(frozen=True, eq=False)
class Operand:
    """A placeholder for a value: how it is written, and its shape and type where they are known."""

    expression: Expression
    fact: Any = None

    @property
    def shape(self) -> Any:
        """The sizes."""
        return _UNKNOWN if self.fact is None else self.fact.shape

    @property
    def ndim(self) -> Any:
        """The number of axes."""
        return _UNKNOWN if self.fact is None else len(self.fact.shape)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return _UNKNOWN if self.fact is None else math.prod(self.fact.shape)

    @property
    def dtype(self) -> Any:
        """The element type."""
        return _UNKNOWN if self.fact is None else self.fact.dtype

    def reshape(self, *shape: Any) -> "Operand":
        """As of an array."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        written = call("jo.reshape", [self.expression, sequence("()", [str(size) for size in sizes])])
        return Operand(written, _of(lambda x: ops.reshape(x, sizes), self.fact))

    def astype(self, dtype: Any) -> "Operand":
        """As of an array; nothing where it has the type already."""
        if self.fact is not None and canonical(dtype) == self.fact.dtype:
            return self
        written = call("jo.cast", [self.expression, literal(np.dtype(dtype))], ["", "to"])
        return Operand(written, _of(lambda x: ops.cast(x, to=np.dtype(dtype)), self.fact))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("an operand is no array yet")


@dataclass(frozen=True, eq=False)
class Results(Operand):
    """What a call gives of which nothing is known: one value, until an adapter takes it apart."""

    step: Any = None

    def __getitem__(self, index: Any) -> Any:
        count = index.stop if isinstance(index, slice) else index + 1
        first = self.step.targets[0].rpartition(".")[0]
        self.step.targets = [f"{first}.{k}" for k in range(count)]
        self.step.unpacks = self.step.rest = True
        found = tuple(Operand(Ref(target)) for target in self.step.targets)
        return found[index]


@dataclass(frozen=True, eq=False)
class Nested:
    """A function among the arguments: the body of a branch or a loop."""

    name: str


def _of(fn: Callable[..., Any], fact: Any) -> Any:
    return None if fact is None else abstract(fn, [fact])


def abstract(fn: Callable[..., Any], traced: Sequence[Any]) -> Any:
    """What a function gives for operands of these shapes and types; None where it cannot be told."""
    kept: list[Any] = []

    def run(*xs: Any) -> Any:
        result = fn(*xs)
        kept.append(result)
        results = result if isinstance(result, tuple) else (result,)
        return [y if isinstance(y, jax.Array) else None for y in results]

    try:
        shapes = jax.eval_shape(run, *traced)
    except FAILURES:
        return None
    (result,) = kept
    results = result if isinstance(result, tuple) else (result,)
    found = tuple(
        shape if shape is not None else y if isinstance(y, np.ndarray) else None
        for shape, y in zip(shapes, results, strict=True)
    )
    return found if isinstance(result, tuple) else found[0]
