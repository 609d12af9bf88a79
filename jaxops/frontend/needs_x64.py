"""Decides at load whether a model needs x64: whether a traced 64-bit value may not fit 32 bits.

A model needs x64 if it computes with traced 64-bit integers, if a constant beyond 32 bits is combined with a traced
value, or if a traced value is float64. This follows from the types that operators declare, and from constants.

Almost every model has 64-bit indices, token ids and sizes. They alone do not need x64: indices and token ids are only
looked up, compared and moved, and a call refuses an input that does not fit. Sizes are static, and NumPy computes with
them in 64 bits.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxops.dtypes import out_of_range, stand_in
from jaxops.graph.nodes import Graph, Node, Tensor
from jaxops.graph.static_analysis import result_is_static
from jaxops.memory import read_once
from jaxops.signature import ALL_BITS, LOWER_BOUND, SHAPE_ONLY, STATIC, UPPER_BOUND, operand_marks

# Attributes with the numbers from which operators of ai.onnx.ml choose.
_CHOSEN = (
    "classlabels_ints",
    "classlabels_int64s",
    "values_int64s",
    "values_tensor",
    "default_int64",
    "default_tensor",
)
# By the sign of a number beyond 32 bits: the operands where it does not act as "no limit", which 32 bits can express.
_NO_LIMIT = {-1: LOWER_BOUND, 1: UPPER_BOUND}
_ANY_SIGN = 2
_INTEGERS = (np.int64, np.uint64)


class _Fact(NamedTuple):
    """The known facts about a value. dtype, static: None if unknown.

    wide: 0 if all numbers fit the 32-bit type that replaces its own; otherwise the sign of those that may not fit, or
    _ANY_SIGN.
    """

    dtype: np.dtype | None = None
    static: bool | None = None
    wide: int = 0


_OPEN = _Fact()
_LEFT_OUT = _Fact(static=True)


def needs_x64(graph: Graph, params: Mapping[str, Tensor], static: Mapping[str, bool]) -> bool:
    """Returns True if values of a prepared graph need 64 bits.

    params: the parameters by name. static: for each input, whether it must be known while tracing.
    """
    inputs = {value.name: _Fact(value.dtype, static[value.name]) for value in graph.inputs}
    walk = _Walk(params)
    outputs = walk.graph(graph, inputs, {})
    return walk.found or any(fact.wide != 0 for fact in outputs)  # `jit` would convert these outputs to 32 bits


class _Walk:
    def __init__(self, params: Mapping[str, Tensor]) -> None:
        self.found = False
        self._params = params
        self._walked: dict[Any, list[_Fact]] = {}

    def graph(self, graph: Graph, inputs: Mapping[str, _Fact], outer: Mapping[str, _Fact]) -> list[_Fact]:
        """Returns facts about the outputs. inputs, outer: facts about the inputs and the captured values."""
        captured = {name: outer[name] for name in graph.captures if name in outer} if outer else {}
        key = graph, tuple(sorted(inputs.items(), key=str)), tuple(sorted(captured.items(), key=str))
        if key not in self._walked:
            self._walked[key] = self._once(graph, inputs, captured)
        return self._walked[key]

    def _once(self, graph: Graph, formal_facts: Mapping[str, _Fact], captured: dict[str, _Fact]) -> list[_Fact]:
        facts = captured
        facts |= {name: _Fact(value.dtype, True, _beyond(value)) for name, value in graph.static.items()}
        facts |= {name: self._seen(self._of_param(param)) for name, param in graph.params.items()}
        for value in graph.inputs:
            fact = formal_facts.get(value.name, _OPEN)
            facts[value.name] = self._seen(fact._replace(dtype=value.dtype or fact.dtype))
        for node in graph.nodes:
            inputs = [facts.get(name, _OPEN) if name else _LEFT_OUT for name in node.inputs]
            outputs = self._outputs(node, inputs, facts, graph.static)
            facts |= {name: fact for name, fact in zip(node.outputs, outputs, strict=False) if name}
            if self.found:
                break
        return [facts.get(value.name, _OPEN) for value in graph.outputs]

    def _of_param(self, name: str) -> _Fact:
        tensor = self._params[name]  # 64-bit integers are parameters only if a caller asks for that
        wide = _beyond(tensor.load()) if tensor.dtype in (np.int64, np.uint64) else 0
        return _Fact(tensor.dtype, False, wide)

    def _seen(self, fact: _Fact, grows: bool = False) -> _Fact:
        dtype = fact.dtype
        if not fact.static and dtype is not None and _has_64_bits(dtype):
            floats = dtype in (np.float64, np.complex128)
            self.found = self.found or floats or (grows and dtype.kind in "iu")
        self.found = self.found or (fact.wide != 0 and not fact.static)
        return fact

    def _outputs(
        self, node: Node, inputs: Sequence[_Fact], facts: Mapping[str, _Fact], static_values: Mapping[str, Any]
    ) -> list[_Fact]:
        """Returns facts about the outputs of a node. static_values: those of the graph."""
        if node.body is not None:
            formal_facts = {value.name: fact for value, fact in zip(node.body.inputs, inputs, strict=False)}
            return self.graph(node.body, formal_facts, {})
        if node.subgraphs:
            return self._of_subgraphs(node, inputs, facts)
        static = result_is_static(node, [fact.static for fact in inputs])
        types = [fact.dtype for fact in inputs]
        for k, fact in enumerate(inputs):
            if not fact.static and fact.dtype in _INTEGERS:
                self._seen(fact, ALL_BITS in operand_marks(node.operator.function, k))
        wide = any(_meets(node, k, fact) for k, fact in enumerate(inputs)) or _exceeds(node.attributes.get("value", ()))
        self.found = self.found or (wide and not static)
        sign = _ANY_SIGN if wide else 0
        results = node.operator.output_types(node, types)
        operands = [static_values.get(name, dtype) for name, dtype in zip(node.inputs, types, strict=True)]
        grows = _grows(node, operands, results[0])
        if grows:  # if no type is declared, the result is assumed to have the type of the operands
            integers = next((dtype for dtype in types if dtype in _INTEGERS), None)
            results = [dtype or integers for dtype in results]
        outputs = (_Fact(dtype, static, sign if _has_64_bits(dtype) else 0) for dtype in results)
        return [self._seen(fact, grows) for fact in outputs]

    def _of_subgraphs(self, node: Node, inputs: Sequence[_Fact], facts: Mapping[str, _Fact]) -> list[_Fact]:
        """Returns facts about the outputs of an If, a Loop or a Scan: traced, unless its conditions are static."""
        outputs: list[_Fact] = []
        for name, graph in node.subgraphs.items():
            flow = node.operator.subgraphs[name]
            entering = [] if flow.first is None else inputs[flow.first :]
            formal_facts = {v.name: fact._replace(static=None) for v, fact in zip(graph.inputs, entering, strict=False)}
            outputs = [fact._replace(static=None) for fact in self.graph(graph, formal_facts, facts)[flow.leading :]]
        return [self._seen(fact) for fact in outputs]


def _grows(node: Node, operands: Sequence[Any], result: np.dtype | None) -> bool:
    """Returns True if integers of the result may exceed 32 bits, although no operand does."""
    grows = node.operator.traits.grows
    if not isinstance(grows, bool):
        return grows(operands, result, node.attributes)
    return grows or any(map(_exceeds, map(node.attributes.get, _CHOSEN)))


def _exceeds(numbers: Any) -> bool:
    """Returns True if one of these integers does not fit 32 bits."""
    values = np.asarray(numbers)
    return values.dtype.kind in "iu" and _beyond(values) != 0


def _beyond(values: np.ndarray) -> int:
    """Returns the sign of a number that does not fit the 32-bit type which replaces its own; 0 if all fit."""
    # A broadcast view may be larger than the memory.
    value = out_of_range(read_once(values), stand_in(values.dtype))
    return 0 if value is None else 1 if value > 0 else -1


def _has_64_bits(dtype: np.dtype | None) -> bool:
    return dtype is None or (dtype.kind != "O" and dtype.itemsize >= 8)


def _meets(node: Node, position: int, fact: _Fact) -> bool:
    """Returns True if numbers of an input beyond 32 bits affect the result, so that the program needs 64 bits."""
    if not fact.wide or node.operator.mark(position) in (STATIC, SHAPE_ONLY):
        return False
    return _NO_LIMIT.get(fact.wide) not in operand_marks(node.operator.function, position)
