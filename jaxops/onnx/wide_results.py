"""Whether a model needs x64: whether arithmetic on traced values gives 64-bit numbers that 32 bits may not hold.

It is decided once, at load, from types alone, as jaxops infers them: `onnx.shape_inference` does not know operators of
other domains, and would have to copy the model. Indices, token ids and sizes are 64-bit integers in almost every model.
They are looked up, compared and moved, and the border refuses one that does not fit; so these models run as JAX is
set. Arithmetic on sizes is static, and NumPy has 64 bits for it. A float64 always needs its bits.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.dtypes import is_float
from jaxops.graph.cuts import result_is_static
from jaxops.graph.nodes import Graph, Node, Tensor
from jaxops.onnx.element_types import output_types

# Operators whose integer result may exceed 32 bits where their operands do not. Not among them are those that move,
# choose or compare elements, combine bits, give indices or counts of elements, or divide with remainder.
_GROWING = {
    "Abs", "Add", "BitShift", "BitwiseNot", "CastMap", "Col2Im", "CumProd", "CumSum", "Det", "Div", "Einsum", "Gemm",
    "GridSample", "MatMul", "Mean", "Mul", "NGramHashMapping", "Neg", "PRelu", "Pow", "Range", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Resize", "Shrink",
    "SparseToDenseMatMul", "Sub", "Sum", "Upsample", "VarlenNGramHashMapping",
}  # fmt: skip
# Likewise where they add or multiply what meets at one place.
_SCATTERING = {"ScatterElements", "ScatterND"}
# They look at all bits of an operand, also at those that are zero.
_HASHING = {"MurmurHash3"}
_CASTS = {"Cast", "CastLike"}
# Attributes with the numbers that operators of ai.onnx.ml choose among.
_CHOSEN = (
    "classlabels_ints",
    "classlabels_int64s",
    "values_int64s",
    "values_tensor",
    "default_int64",
    "default_tensor",
)
# (element type, whether the value is static); each None where that is open.
_Fact = tuple[np.dtype | None, bool | None]
_OPEN: _Fact = (None, None)


def needs_x64(graph: Graph, params: Mapping[str, Tensor], static: Mapping[str, bool]) -> bool:
    """Whether the values of a prepared graph need 64 bits.

    params: the parameters by name. static: for each input, whether it must be known while tracing.
    """
    inputs = {value.name: (value.dtype, static[value.name]) for value in graph.inputs}
    walk = _Walk(params)
    walk.graph(graph, inputs, {})
    return walk.found


class _Walk:
    def __init__(self, params: Mapping[str, Tensor]) -> None:
        self.found = False
        self._params = params
        self._walked: dict[Any, list[_Fact]] = {}

    def graph(self, graph: Graph, given: Mapping[str, _Fact], outer: Mapping[str, _Fact]) -> list[_Fact]:
        """The outputs. given: what is known of the inputs. outer: of what the graph captures."""
        captured = {name: outer[name] for name in graph.captures if name in outer} if outer else {}
        key = graph, tuple(sorted(given.items(), key=str)), tuple(sorted(captured.items(), key=str))
        if key not in self._walked:
            self._walked[key] = self._once(graph, given, captured)
        return self._walked[key]

    def _once(self, graph: Graph, given: Mapping[str, _Fact], captured: dict[str, _Fact]) -> list[_Fact]:
        facts = captured
        facts |= {name: (value.dtype, True) for name, value in graph.static.items()}
        facts |= {name: (self._params[param].dtype, False) for name, param in graph.params.items()}
        for value in graph.inputs:
            dtype, static = given.get(value.name, _OPEN)
            facts[value.name] = self._seen((value.dtype or dtype, static))
        for node in graph.nodes:
            inputs = [facts.get(name, _OPEN) if name else (None, True) for name in node.inputs]
            outputs = self._outputs(node, inputs, facts)
            facts |= {name: fact for name, fact in zip(node.outputs, outputs, strict=False) if name}
            if self.found:
                break
        return [facts.get(value.name, _OPEN) for value in graph.outputs]

    def _seen(self, fact: _Fact, grows: bool = False) -> _Fact:
        dtype, static = fact
        if dtype is not None and not static and dtype.itemsize >= 8:
            floats = dtype in (np.float64, np.complex128)
            self.found = self.found or floats or (grows and dtype.kind in "iu")
        return fact

    def _outputs(self, node: Node, inputs: Sequence[_Fact], facts: Mapping[str, _Fact]) -> list[_Fact]:
        if node.body is not None:
            given = {value.name: fact for value, fact in zip(node.body.inputs, inputs, strict=False)}
            return self.graph(node.body, given, {})
        if node.subgraphs:
            return self._of_subgraphs(node, inputs, facts)
        static = result_is_static(node, [fact[1] for fact in inputs])
        types = [fact[0] for fact in inputs]
        for fact in inputs if node.operator.name in _HASHING else ():
            self._seen(fact, grows=True)
        grows = _grows(node, types)
        return [self._seen((dtype, static), grows) for dtype in output_types(node, types)]

    def _of_subgraphs(self, node: Node, inputs: Sequence[_Fact], facts: Mapping[str, _Fact]) -> list[_Fact]:
        """The outputs of an If, a Loop, a Scan: traced, unless it can be decided while tracing."""
        found: list[_Fact] = []
        for name, graph in node.subgraphs.items():
            flow = node.operator.subgraphs[name]
            entering = [] if flow.first is None else inputs[flow.first :]
            given = {value.name: (fact[0], None) for value, fact in zip(graph.inputs, entering, strict=False)}
            found = [(dtype, None) for dtype, _ in self.graph(graph, given, facts)[flow.own :]]
        return [self._seen(fact) for fact in found]


def _grows(node: Node, types: Sequence[np.dtype | None]) -> bool:
    """Whether integers of the result may exceed 32 bits, although no operand does."""
    name = node.operator.name
    if name in _CASTS:
        source = types[0]
        # An integer of 64 bits that fits 32 stays so, as do float16 and all that is narrower.
        return source is None or source.name in ("uint32", "bfloat16") or (is_float(source) and source.itemsize > 2)
    if name in _SCATTERING:
        return node.attributes.get("reduction", "none") in ("add", "mul")
    return name in _GROWING or any(map(_exceeds, map(node.attributes.get, _CHOSEN)))


def _exceeds(numbers: Any) -> bool:
    """Whether these are integers of which one does not fit 32 bits."""
    found = np.asarray(numbers)
    return found.dtype.kind in "iu" and found.size > 0 and not (found.min() >= -(2**31) and found.max() < 2**31)
