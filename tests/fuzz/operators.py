"""Makers of nodes for the fuzzer: those of `random_nodes`, the calls of `gradient_cases`, and those that are neither.

`drawn` gives a node of any of them at an opset. Calls of `gradient_cases` keep their sizes, with other floats.
"""

import importlib
from collections.abc import Callable
from typing import Any

import gradient_cases
import microsoft_gradient_cases  # noqa: F401 - adds its cases
import numpy as np
import random_nodes
from random_nodes import ALL, FLOATS, MAKERS, REAL, WHOLE, Case, Made, data, node, one, shape, some

for _name in ("random_attention", "random_layers", "random_tables"):
    importlib.import_module(_name)  # its makers register themselves

_Maker = tuple[Callable[[Any, Any], Made], tuple[Any, ...]]
# Operators without a maker that move data of any type.
_MOVING = {"Reshape", "Squeeze", "Unsqueeze", "Concat", "Split", "Expand", "Identity", "Cast", "CastLike", "Where"}
_MOVING |= {"Scatter", "CenterCropPad"}
# Numbers drawn anew would leave what these take.
_FIXED = {"com.microsoft.CropAndResize", "com.microsoft.MatMulNBits", "com.microsoft.MatMulBnb4"}
OWN: dict[str, _Maker] = {}


def _from_cases(name: str) -> _Maker:
    cases = [c for c in gradient_cases.CASES[name] if c.opset is None] or gradient_cases.CASES[name]

    def make(rng: Any, dtype: Any) -> Made:
        found = cases[rng.integers(len(cases))]

        def again(x: Any) -> Any:
            if isinstance(x, list):
                return [again(item) for item in x]
            if not isinstance(x, np.ndarray) or x.dtype != np.float64:
                return x
            x = x.astype(dtype if np.dtype(dtype).kind == "f" else np.float32)
            if name in _FIXED:
                return x
            x = rng.permutation(x.ravel()).reshape(x.shape)
            return x if np.dtype(dtype).kind == "f" else data(rng, dtype, x.shape)

        return [again(x) for x in found.inputs], dict(found.attributes), found.outputs

    types = (*ALL, np.float32) if name in _MOVING else (np.float32, np.float32, np.float64, np.float16)
    return make, types


def own(names: str, types: tuple[Any, ...] = FLOATS) -> Any:
    """Registers a maker, as `random_nodes.maker`."""

    def register(fn: Any) -> Any:
        OWN.update(dict.fromkeys(names.split(), (fn, types)))
        return fn

    return register


@own("Shape Size NonZero", ALL)
def looked_at(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng))], {}


@own("Not", (np.bool_,))
@own("BitwiseNot", WHOLE)
def inverted(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng))], {}


@own("Compress", ALL)
def compress(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, empty=False)
    at = random_nodes.axis(rng, len(sizes))
    return [data(rng, dtype, sizes), data(rng, np.bool_, rng.integers(0, sizes[at] + 1))], {"axis": at}


@own("ConstantOfShape", (np.int64,))
def constant_of_shape(rng: Any, dtype: Any) -> Made:
    return [np.array(shape(rng, 1), dtype)], {}


@own("EyeLike", REAL)
def eye_like(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng, 2, 2))], some(rng, k=int(rng.integers(-6, 7)), dtype=one(rng, 1, 6, 7, 11))


@own("Range", (np.float32, np.float64, np.int16, np.int32, np.int64))
def ranged(rng: Any, dtype: Any) -> Made:
    return [np.array(v, dtype) for v in (*rng.integers(-5, 6, 2), one(rng, 1, 2, -1))], {}


@own("ConvInteger", (np.uint8, np.int8))
def conv_integer(rng: Any, dtype: Any) -> Made:
    x, w = data(rng, dtype, (1, 2, 5, 4)), data(rng, dtype, (3, 2, 2, 3))
    return [x, w, data(rng, dtype, ()), one(rng, None, data(rng, dtype, ()))], some(rng, pads=[1, 0, 0, 1])


@own("QLinearConv", (np.uint8, np.int8))
def quantized_conv(rng: Any, dtype: Any) -> Made:
    scales = [np.asarray(rng.uniform(0.1, 1), np.float32) for _ in range(3)]
    x, w = data(rng, dtype, (1, 2, 5, 4)), data(rng, dtype, (3, 2, 2, 3))
    zero, none, last = data(rng, dtype, ()), np.zeros((), dtype), data(rng, dtype, ())
    return [x, scales[0], zero, w, scales[1], none, scales[2], last], some(rng, pads=[1, 0, 0, 1])


@own("com.microsoft.QLinearAdd com.microsoft.QLinearMul", (np.uint8, np.int8))
def quantized_pair(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, empty=False)
    found: list[Any] = []
    for each in (sizes, random_nodes.broadcastable(rng, sizes)):
        found += [data(rng, dtype, each), np.float32(rng.uniform(0.1, 1)), data(rng, dtype, ())]
    return [*found, np.float32(rng.uniform(0.5, 2)), data(rng, dtype, ())], {}


@own("com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSigmoid", (np.uint8, np.int8))
def quantized_one(rng: Any, dtype: Any) -> Made:
    x = data(rng, dtype, shape(rng, 1, empty=False))
    scales = [np.float32(rng.uniform(0.1, 1)) for _ in range(2)]
    return [x, scales[0], data(rng, dtype, ()), scales[1], data(rng, dtype, ())], some(rng, alpha=0.25)


@own("com.microsoft.QLinearGlobalAveragePool", (np.uint8, np.int8))
def quantized_pool(rng: Any, dtype: Any) -> Made:
    return [
        data(rng, dtype, (2, 3, 4, 2)), np.float32(0.5), data(rng, dtype, ()), np.float32(0.3), data(rng, dtype, ())
    ], {}  # fmt: skip


@own("com.microsoft.Unique", (np.float32,))
def distinct(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng, 1, 1, empty=False)).round()], {}, 3


@own("StringConcat", (np.float32,))
def strings(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng)
    return [words(rng, sizes), words(rng, random_nodes.broadcastable(rng, sizes))], {}


@own("RegexFullMatch", (np.float32,))
def matched(rng: Any, dtype: Any) -> Made:
    return [words(rng, shape(rng))], {"pattern": one(rng, "a.*", "[a-z ]+", "", "é?")}


@own("StringNormalizer", (np.float32,))
def normalized(rng: Any, dtype: Any) -> Made:
    how = some(rng, case_change_action=one(rng, "LOWER", "UPPER", "NONE"), is_case_sensitive=one(rng, 0, 1))
    return [words(rng, shape(rng, 1, 1, empty=False))], how | some(rng, stopwords=["ab", "a"])


@own("StringSplit", (np.float32,))
def split(rng: Any, dtype: Any) -> Made:
    return [words(rng, shape(rng))], some(rng, delimiter=one(rng, " ", ",", "ab"), maxsplit=int(rng.integers(0, 3))), 2


def words(rng: Any, sizes: Any) -> np.ndarray:
    return np.array(rng.choice(["a", "ab", "", "A b", "a,b,,c", " é "], sizes), object).reshape(sizes)


OPERATORS: dict[str, _Maker] = {
    **{name: _from_cases(name) for name in gradient_cases.CASES if not name.startswith("ai.onnx.preview")},
    **OWN,
    **MAKERS,
}
NAMES = tuple(sorted(OPERATORS))


def drawn(rng: Any, name: str, opset: int | None = None) -> Case:
    """A node of an operator. Raises LookupError where the opset has no such node."""
    return node(rng, name, *OPERATORS[name], opset)
