"""Random graphs of valid nodes, each with the value that onnxruntime gives every tensor, node by node.

NumPy's generators draw, not hypothesis: a graph has a number, so that 50,000 are made in any order by any process, and
a finding is made again from two integers. What hypothesis would shrink, `differential` finds: the node that differs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper
from operators import NAMES, drawn
from outlined import outlined
from peer import run_node
from random_nodes import Case, one

OPSETS = (*range(7, 25), *range(11, 25), 21, 22, 23, 24, 24)
ML = (1, 2, 3, 4, 4, 4, 5)
SEVERAL = 9
# Integers at position 0 that mean sizes or places.
_MEANT = {"ConstantOfShape", "Range", "HannWindow", "HammingWindow", "BlackmanWindow", "OneHot", "TopK"}
_MEANT |= {"com.microsoft.EmbedLayerNormalization", "com.microsoft.WordConvEmbedding", "com.microsoft.NGramRepeatBlock"}
_MEANT |= {"com.microsoft.RelativePositionBias", "com.microsoft.MaxpoolWithMask", "com.microsoft.RemovePadding"}
_MEANT |= {"MelWeightMatrix", "com.microsoft.Range"}
# Operators whose second operand may be any number, too.
_ANY = {"Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean", "MatMul", "Conv", "Gemm", "Concat", "Where", "PRelu"}
_ANY |= {"Equal", "Greater", "Less"}
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-30, 3e38, -65504.0)
# onnxruntime ends the process on an integer divided by zero, and on the least one divided by -1.
_DIVIDING = {"Div", "Mod"}


class Step(NamedTuple):
    """A node and the names of what it reads and makes."""

    case: Case
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class RandomGraph(NamedTuple):
    """values: of the tensors that onnxruntime computed; a sequence is a list.

    steps: the nodes before any of them was put into a body.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    values: dict[str, Any]
    steps: tuple[Step, ...]
    opsets: dict[str, int]
    text: str


class Builder:
    """A graph in the making."""

    def __init__(self, rng: Any, opset: int) -> None:
        self.rng, self.opsets = rng, {"": opset, "ai.onnx.ml": int(one(rng, *ML)), "com.microsoft": 1}
        self.nodes: list[onnx.NodeProto] = []
        self.steps: list[Step] = []
        self.values: dict[str, Any] = {}
        self.feeds: dict[str, np.ndarray] = {}
        self.initializers: dict[str, np.ndarray] = {}
        self.made: list[str] = []
        self.read: set[str] = set()

    def name(self, stem: str) -> str:
        return f"{stem}{len(self.values) + len(self.nodes)}"

    def fresh(self, x: np.ndarray) -> str:
        """A new operand: an input, an initializer or a Constant."""
        meant = (x.dtype.kind in "iu" and x.ndim <= 1) or x.dtype.kind == "b"
        how = self.rng.uniform()
        name = self.name("x")
        if how < (0.1 if meant else 0.5) or x.dtype.kind == "O":
            self.feeds[name] = x
        elif how < 0.85:
            self.initializers[name] = x
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(x)))
        self.values[name] = x
        return name

    def add(self, case: Case, inputs: Sequence[str]) -> list[str]:
        """Adds a node; its outputs have values where onnxruntime has all its inputs and runs it."""
        start = len(self.values) + len(self.nodes)
        outputs = [f"y{start}_{k}" for k in range(case.n_outputs)]
        self.nodes.append(helper.make_node(case.op, inputs, outputs, domain=case.domain, **case.attributes))
        self.steps.append(Step(case, tuple(inputs), tuple(outputs)))
        self.read.update(inputs)
        known = all(name in self.values for name in inputs if name)
        if known and (found := their(case, [self.values[n] if n else None for n in inputs], self.opsets)) is not None:
            self.values.update(zip(outputs, found, strict=True))
        self.made += outputs
        return outputs

    def plain(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.add(Case(op, "", self.opsets[""], [], attributes), inputs)[0]

    def connected(self, x: np.ndarray) -> str | None:
        """The name of a tensor of the type and shape of x that earlier nodes made; None where none will do."""
        names = [n for n in self.made if n in self.values and _usable(self.values[n], x)]
        exact = [n for n in names if (self.values[n].shape, self.values[n].dtype) == (x.shape, x.dtype)]
        if exact and self.rng.uniform() < 0.8:
            return one(self.rng, *exact)
        if not names:
            return None
        name = one(self.rng, *names)
        if self.values[name].dtype.kind == "f" and np.abs(self.values[name]).max(initial=0) > 30:
            name = self.plain("Tanh", name)
        if name in self.values and self.values[name].dtype != x.dtype:
            name = self.plain("Cast", name, to=int(helper.np_dtype_to_tensor_dtype(x.dtype)))
        if name in self.values and self.values[name].shape != x.shape:
            name = self._reshaped(name, x.shape)
        return name if name in self.values and self.values[name].shape == x.shape else None

    def _reshaped(self, name: str, sizes: tuple[int, ...]) -> str:
        have, want = self.values[name].size, int(np.prod(sizes))
        name = self.plain("Reshape", name, self.fresh(np.array([-1])))
        if have < want:
            name = self.plain("Concat", *[name] * -(-want // have), axis=0)
        if have != want:
            ends = [self.fresh(np.array([v])) for v in (0, want, 0)]
            name = self.plain("Slice", name, *ends) if name in self.values else name
        return self.plain("Reshape", name, self.fresh(np.array(sizes, np.int64)))

    def draw(self, names: Sequence[str]) -> None:
        """Adds a random node, one of these operators, on operands that are new or made before."""
        name = one(self.rng, *names)
        try:
            case = drawn(self.rng, name, self.opsets[name.rpartition(".")[0]])
        except LookupError:
            return
        inputs = []
        for place, x in enumerate(case.inputs):
            if isinstance(x, list):
                inputs.append(self.plain("SequenceConstruct", *map(self.fresh, x)))
                continue
            if x is None:
                inputs.append("")
                continue
            free = (place == 0 and name not in _MEANT) or (place == 1 and case.op in _ANY)
            free = free and x.dtype.kind in "fiu" and not (case.op in _DIVIDING and x.dtype.kind in "iu")
            reached = self.connected(x) if free and self.rng.uniform() < 0.75 else None
            inputs.append(reached or self.fresh(self._special(x) if free else x))
        self.add(case, inputs)

    def _special(self, x: np.ndarray) -> np.ndarray:
        """x, at times with numbers that are seldom."""
        if not x.size or self.rng.uniform() > 0.1 or x.dtype.isbuiltin != 1:
            return x
        x = x.copy()
        place = int(self.rng.integers(x.size))
        if x.dtype.kind == "f":
            with np.errstate(all="ignore"):
                x.flat[place] = np.array(one(self.rng, *_SPECIAL)).astype(x.dtype)
        else:
            x.flat[place] = one(self.rng, np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
        return x


def their(case: Case, inputs: Sequence[Any], opsets: Mapping[str, int]) -> list[Any] | None:
    """What onnxruntime computes; None where it refuses the node, or gives what is neither tensor nor sequence."""
    if case.op in _DIVIDING and inputs[1] is not None and inputs[1].dtype.kind in "iu" and (inputs[1] == 0).any():
        return None
    used = {"": opsets[""]} | ({case.domain: opsets[case.domain]} if case.domain else {})
    try:
        found = run_node(case.op, inputs, (True,) * case.n_outputs, case.attributes, used, case.domain)
    except Exception:  # whatever it raises: it has no such node
        return None
    return found if all(isinstance(y, np.ndarray | list) for y in found) else None


def _usable(value: Any, x: np.ndarray) -> bool:
    """Whether a tensor can stand in for x."""
    if isinstance(value, list) or value.dtype.kind not in "fiub" or value.dtype.isbuiltin != 1:
        return False
    if value.size == 0 or x.size == 0:
        return False
    if value.dtype.kind == "f":
        wide = value.astype(np.float64)
        if not np.isfinite(wide).all():
            return False
        return x.dtype.kind == "f" or bool(np.abs(wide).max() < 100 and (wide >= 0).all())
    return x.dtype.kind == "f" or value.dtype == x.dtype


def random_graph(seed: int, number: int, most: int | None = None, names: Sequence[str] = NAMES) -> RandomGraph:
    """The graph of this number, of up to `most` random nodes, of these operators, and those that connect them.

    most: mostly 3, which tries many nodes in little time; each fourth graph has up to SEVERAL.
    """
    most = most or (3 if number % 4 else SEVERAL)
    rng = np.random.default_rng([seed, number, 77])
    builder = Builder(rng, int(one(rng, *OPSETS)))
    for _ in range(int(rng.integers(1, most + 1))):
        builder.draw(names)
    if not builder.steps:
        builder.plain("Identity", builder.fresh(np.ones(2, np.float32)))
    outputs = [n for n in builder.made if n not in builder.read or rng.uniform() < 0.1]
    nodes, functions, how = outlined(rng, builder.nodes, outputs, builder.values, builder.opsets)
    infos = [
        helper.make_tensor_value_info(
            n, onnx.TensorProto.STRING if x.dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        for n, x in builder.feeds.items()
    ]
    tensors = [numpy_helper.from_array(x, n) for n, x in builder.initializers.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info(n) for n in outputs], tensors)
    imports = dict(builder.opsets) | ({"fuzz": 1} if functions else {})
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*item) for item in imports.items()],
        functions=functions,
        ir_version=10,
    )
    text = f"opset {builder.opsets['']}: {' '.join(s.case.op for s in builder.steps)}{how}"
    return RandomGraph(model, builder.feeds, builder.values, tuple(builder.steps), builder.opsets, text)
