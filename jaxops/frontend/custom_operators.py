"""Operators that a caller passes to `load`: only their Python signature is known."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, SignatureError
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.lazy_sequences import GrowingSequence


class CustomOperator(SignatureOperator):
    """An operator that a caller passes to `load`."""

    def __init__(self, name: str, domain: str, fn: Callable[..., Any]) -> None:
        super().__init__(name, fn)
        self.domain = domain
        self.draws = "rng" in self.parameters  # even if it has subgraphs

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.domain, self.fn)

    @property
    def label(self) -> str:
        """The operator in the context of an error."""
        return f"{self.name}{f', of {self.domain}' if self.domain else ''}, as given to load"

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs of the function, which returns several as a tuple or list. Numbers become JAX arrays.

        Raises SignatureError for an output that is not an array, nor a sequence or map of arrays.
        """
        result = self.results(inputs, attributes, n_outputs=n_outputs, rng=rng)
        outputs = result if isinstance(result, tuple | list) else (result,)
        return [
            jax.tree.map(functools.partial(self._array, k), value, is_leaf=_is_iterator)
            for k, value in enumerate(outputs)
        ]

    def _array(self, position: int, value: Any) -> Any:
        if isinstance(value, bool | int | float | complex):
            return as_traced(np.asarray(value))
        is_array = hasattr(value, "dtype") or isinstance(value, GrowingSequence)
        if not is_array or isinstance(value, jax.ShapeDtypeStruct):
            raise SignatureError(
                f"{self.name}: output {position} of the function given to load is {value!r:.80}; it must be an array, "
                "a list or a dictionary of arrays, or None"
            )
        return value


def _is_iterator(value: Any) -> bool:
    """Returns True for an iterator, which JAX may accept as a sequence."""
    return isinstance(value, Iterator)


def custom_operators(functions: Mapping[tuple[str, str], Callable[..., Any]]) -> dict[tuple[str, str], CustomOperator]:
    """The operators by (domain, name). Raises ArgumentError for another key, and for a value that is not callable."""
    operators = {}
    for key, fn in functions.items():
        if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(part, str) for part in key)):
            raise ArgumentError(f"`operators`: the key {key!r} must be (domain, name), such as ('my.domain', 'MyOp')")
        if not callable(fn):
            raise ArgumentError(f"`operators`: {key!r} is {fn!r:.80}; it must be a function of the inputs")
        domain, name = key
        operators[key] = CustomOperator(name, domain, fn)
    return operators
