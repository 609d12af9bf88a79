"""Random models whose inputs differ in size from call to call: nodes are added one by one, and computed at all sizes.

ONNX's reference evaluator computes each node when it is added, for each sample of the inputs. So the sizes of all
values are known, nodes that do not apply are left out, and the expected values are made by the way. Numbers stay small
and whole, so results are equal but for rounding in those marked as rough.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from random_sized_combinations import MOTIFS
from random_sized_steps import NoStep

OPSET = 18
_MOST_ELEMENTS, _LARGEST_NUMBER = 4096, 1e4


class RandomModel:
    """A graph that grows. samples: name → its value for each call. rough: names of values that are rounded."""

    def __init__(self, seed: int, inputs: dict[str, Sequence[Any]], declared: dict[str, Sequence[Any]]) -> None:
        """inputs: name → its value for each call. declared: name → its sizes in the file."""
        self.rng = np.random.default_rng(seed)
        self.samples: dict[str, list[Any]] = {name: list(map(np.asarray, values)) for name, values in inputs.items()}
        self.inputs, self.declared = tuple(inputs), declared
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}
        self.pool: list[str] = []
        self.rough: set[str] = set()

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Adds an initializer."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        self.samples[name] = [self.constants[name]] * self.calls
        return name

    @property
    def calls(self) -> int:
        """The number of samples."""
        return len(self.samples[self.inputs[0]])

    def add(self, op: str, *inputs: str, count: int = 1, named: str = "", **attributes: Any) -> Any:
        """Adds a node and returns the name of its output, `named` or a new one, or of its `count` outputs.

        Raises NoStep if it does not apply to all samples, or if its results are too large, or not finite.
        """
        names = [named or f"v{len(self.nodes)}_{k}" for k in range(count)]
        node = helper.make_node(op, inputs, names, name=f"{op}_{len(self.nodes)}", **attributes)
        evaluator = ReferenceEvaluator(node, opsets={"": OPSET})
        used = [name for name in inputs if name]
        results = []
        for k in range(self.calls):
            operands = {name: self.samples[name][k] for name in used}
            try:
                with np.errstate(all="ignore"):
                    found = OWN[op](*operands.values(), **attributes) if op in OWN else evaluator.run(None, operands)
            except Exception as error:
                raise NoStep from error
            if op == "ReduceSumSquare":  # NumPy sums int32 as int64, and the evaluator leaves it at that
                found = [found[0].astype(operands[inputs[0]].dtype)]
            results.append([np.asarray(y) for y in found])
        for values in zip(*results, strict=True):
            if any(not any(sizes) for sizes in zip(*(y.shape for y in values), strict=True)):
                raise NoStep  # empty in every call
            for y in values:
                if y.size > _MOST_ELEMENTS or y.ndim > 4 or not _is_small(y):
                    raise NoStep
        self.nodes.append(node)
        self.samples.update((name, [found[k] for found in results]) for k, name in enumerate(names))
        return names[0] if count == 1 else names

    def shapes(self, name: str) -> list[tuple[int, ...]]:
        """Returns the shape of a value for each call."""
        return [x.shape for x in self.samples[name]]

    def varying(self, name: str) -> list[int]:
        """Returns the axes whose size differs from call to call."""
        shapes = self.shapes(name)
        return [axis for axis in range(len(shapes[0])) if len({shape[axis] for shape in shapes}) > 1]

    def grow(self, steps: int) -> None:
        """Adds so many random steps, each of a node or a few, or fewer if few apply."""
        for _ in range(4 * steps):
            if steps <= 0:
                return
            before = len(self.nodes)
            rough, motif = MOTIFS[self.rng.integers(len(MOTIFS))]
            try:
                name = motif(self)
            except NoStep:
                for node in self.nodes[before:]:
                    for output in node.output:
                        del self.samples[output]
                del self.nodes[before:]
                continue
            if rough:
                self.rough.add(name)
            else:
                self.pool.append(name)
            steps -= 1

    def results(self) -> list[str]:
        """Returns the names of the values that nodes made."""
        return [name for name in dict.fromkeys([*self.pool, *sorted(self.rough)]) if name not in self.inputs]

    def results_of_fixed_size(self) -> list[str]:
        """Returns such names, with sums along the axes whose size differs."""
        found = list[str]()
        for name in self.results():
            with suppress(NoStep):
                axes = self.varying(name)
                found.append(self.add("ReduceSum", name, self.constant(axes), keepdims=0) if axes else name)
                self.rough |= {found[-1]} if name in self.rough else set()
        return found

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """Returns the model with these outputs."""
        return helper.make_model(
            helper.make_graph(
                self.nodes,
                "random",
                [self._info(name, self.declared[name]) for name in self.inputs],
                [self._info(name, self.declared.get(name, [None] * len(self.shapes(name)[0]))) for name in outputs],
                [numpy_helper.from_array(x, name) for name, x in self.constants.items()],
            ),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=10,
        )

    def _info(self, name: str, sizes: Sequence[Any]) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(self.samples[name][0].dtype)
        return helper.make_tensor_value_info(name, kind, list(sizes))


def _is_small(y: Any) -> bool:
    return y.size == 0 or bool(np.isfinite(y).all() and np.abs(y.astype(np.float64)).max() <= _LARGEST_NUMBER)


def wrong(got: Any, want: Any, is_rough: bool) -> str:
    """Returns how a result differs from the expected one; empty if it does not."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    tolerance = 2e-3 if is_rough else 1e-5
    got, want = (x.astype(np.float64) for x in (got, want))
    return "" if np.allclose(got, want, tolerance, tolerance) else f"{got.reshape(-1)[:8]}, not {want.reshape(-1)[:8]}"


def _top_k(x: Any, k: Any, *, axis: int = -1, largest: int = 1) -> tuple[Any, Any]:
    """Computes TopK with the first of equal elements first, as ONNX's text says."""
    if not 0 < k.item() <= x.shape[axis]:
        raise ValueError(k)
    order = np.argsort(-x if largest else x, axis=axis, kind="stable")
    at = np.take(order, np.arange(k.item()), axis=axis)
    return np.take_along_axis(x, at, axis), at


# What the evaluator leaves to chance.
OWN = {"TopK": _top_k}
