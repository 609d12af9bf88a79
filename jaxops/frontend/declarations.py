"""Checks the declarations of a graph: each name is used once, and inputs have the types of their initializers."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from jaxops.errors import ModelError
from jaxops.graph.nodes import Tensor, Value
from jaxops.runtime.arguments import unlike


def check_names(noun: str, names: Iterable[str], where: str = "the graph") -> None:
    """Raises ModelError for a name that is empty or occurs twice."""
    names = list(names)
    if "" in names:
        raise ModelError(f"{noun} {names.index('')} of {where} has no name")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ModelError(f"{where} has two of {noun} '{min(twice)}'")


def check_declared(inputs: Sequence[Value], initializers: Mapping[str, Tensor]) -> None:
    """Raises ModelError for an input whose declared type differs from its initializer's; warns if a symbolic size would
    have two values."""
    sizes: dict[str, tuple[str, int]] = {}
    for value in inputs:
        tensor = initializers.get(value.name)
        if tensor is None:
            continue
        shape = tensor.shape if value.shape is None else value.shape
        fits = len(shape) == len(tensor.shape) and value.dtype in (None, tensor.dtype) and value.kind == "tensor"
        if not fits or any(isinstance(a, int) and a != b for a, b in zip(shape, tensor.shape, strict=True)):
            initial = Value(value.name, tensor.dtype, tensor.shape)
            raise ModelError(f"the input {value} has an initializer of another type or shape: {initial}")
        for symbol, size in zip(shape, tensor.shape, strict=True):
            if isinstance(symbol, str) and sizes.setdefault(symbol, (value.name, size))[1] != size:
                other, first = sizes[symbol]
                warnings.warn(unlike(symbol, (other, first), (value.name, size)), stacklevel=2)
