"""The element types of what a bound node makes, as its schema says them."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.graph.nodes import Node
from jaxops.onnx.schemas import allowed_types, element_type

# Attributes of ai.onnx.ml that list what the result is made of, and its element type.
_LISTS = {
    **dict.fromkeys(("classlabels_ints", "classlabels_int64s", "values_int64s"), np.dtype(np.int64)),
    **dict.fromkeys(("classlabels_strings", "values_strings"), np.dtype(object)),
    "values_floats": np.dtype(np.float32),
}


def output_types(schema: Any, node: Node, inputs: Sequence[np.dtype | None]) -> list[np.dtype | None]:
    """The element type of each output, of tensors in sequences too; None where the schema leaves it open.

    inputs: those of the inputs; None for what is left out or not known.
    """
    kinds, results = _kinds(schema)
    typed = [(kinds[min(i, len(kinds) - 1)], dtype) for i, dtype in enumerate(inputs) if dtype is not None]
    stated = list(_said(node.attributes))
    types = []
    for i in range(len(node.outputs)):
        kind, allowed = results[min(i, len(results) - 1)]
        same = next((dtype for other, dtype in typed if other == kind), None)
        if same is not None or len(allowed) == 1:
            types.append(next(iter(allowed)) if same is None else same)
        else:  # also an element of a sequence, a random number like x
            types.append(next((dtype for dtype in (*stated, *(d for _, d in typed)) if dtype in allowed), None))
    return types


def _said(attributes: Mapping[str, Any]) -> Iterator[np.dtype]:
    """The element types that attributes say, those of values before those of keys."""
    for name in sorted(attributes, key=lambda name: not name.startswith("values")):
        value = attributes[name]
        if isinstance(value, np.dtype | np.ndarray):
            yield value if isinstance(value, np.dtype) else value.dtype
        elif value and name in _LISTS:
            yield _LISTS[name]


@functools.cache
def _kinds(schema: Any) -> tuple[list[str], list[tuple[str, frozenset[np.dtype]]]]:
    """(the types of the inputs as the text has them, those of the outputs, each with the element types it permits)."""
    outputs = [formal.type_str for formal in schema.outputs]
    return [formal.type_str for formal in schema.inputs], [(kind, _element_types(schema, kind)) for kind in outputs]


def _element_types(schema: Any, kind: str) -> frozenset[np.dtype]:
    """The element types that a version permits where its text has `kind`, inside sequences, optionals and maps too."""
    names = {t.rstrip(")").rpartition("(")[2].rpartition(", ")[2] for t in allowed_types(schema, kind)}
    return frozenset(dtype for name in names if (dtype := element_type(name.upper())) is not None)
