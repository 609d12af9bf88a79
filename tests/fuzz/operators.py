"""Makers of nodes for the fuzzer: those of `random_nodes`, the calls of `gradient_cases`, and those that are neither.

`drawn` gives a node of any of them at an opset. Calls of `gradient_cases` keep their sizes, with other floats.
Without a maker: what onnxruntime has no kernel of on a CPU, maps, images, random numbers, and nodes with a body but for
those that `outlined` makes.
"""

import importlib
from typing import Any

import gradient_cases
import microsoft_gradient_cases  # noqa: F401 - adds its cases
import numpy as np
import quantized_operators  # noqa: F401 - its makers register themselves
import random_nodes
from makers import OWN, Maker, own
from random_nodes import ALL, MAKERS, REAL, WHOLE, Case, Made, data, node, one, shape, some

for _name in ("random_attention", "random_layers", "random_tables"):
    importlib.import_module(_name)  # its makers register themselves

# Operators without a maker that move data of any type.
_MOVING = {"Reshape", "Squeeze", "Unsqueeze", "Concat", "Split", "Expand", "Identity", "Cast", "CastLike", "Where"}
_MOVING |= {"Scatter", "CenterCropPad"}
# Numbers drawn anew would leave what these take.
_FIXED = {"com.microsoft.CropAndResize", "com.microsoft.MatMulNBits", "com.microsoft.MatMulBnb4"}


def _from_cases(name: str) -> Maker:
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


@own("Range com.microsoft.Range", (np.float32, np.float64, np.int16, np.int32, np.int64))
def ranged(rng: Any, dtype: Any) -> Made:
    return [np.array(v, dtype) for v in (*rng.integers(-5, 6, 2), one(rng, 1, 2, -1))], {}


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


@own("com.microsoft.Tokenizer", (np.float32,))
def tokens(rng: Any, dtype: Any) -> Made:
    how = {"mark": int(rng.integers(2)), "pad_value": "#", "mincharnum": int(rng.integers(1, 3))}
    cut = one(rng, {"separators": one(rng, [" "], [",", "b"])}, {"tokenexp": one(rng, "[a-z]+", ".")})
    return [words(rng, one(rng, (3,), (2, 3)))], how | cut


@own("com.microsoft.MurmurHash3", (np.float32, np.float64, np.int32, np.int64, np.uint32))
def hashed(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng))], some(rng, seed=7, positive=one(rng, 0, 1))


@own("com.microsoft.DynamicTimeWarping", (np.float32,))
def warped(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, one(rng, (3, 5), (1, 5, 4)))], {}


@own("SequenceLength", (np.float32,))
def length(rng: Any, dtype: Any) -> Made:
    return [[data(rng, dtype, shape(rng)) for _ in range(int(rng.integers(1, 4)))]], {}


@own("OptionalHasElement", ALL)
def has_element(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng))], {}


@own("MelWeightMatrix", (np.int64,))
def mel(rng: Any, dtype: Any) -> Made:
    given = [np.array(v, dtype) for v in (rng.integers(2, 9), 64, 8192)]
    return [*given, np.float32(rng.uniform(0, 100)), np.float32(rng.uniform(1000, 4000))], {}


def words(rng: Any, sizes: Any) -> np.ndarray:
    return np.array(rng.choice(["a", "ab", "", "A b", "a,b,,c", " é "], sizes), object).reshape(sizes)


OPERATORS: dict[str, Maker] = {
    **{name: _from_cases(name) for name in gradient_cases.CASES if not name.startswith("ai.onnx.preview")},
    **OWN,
    **MAKERS,
}
NAMES = tuple(sorted(OPERATORS))


def drawn(rng: Any, name: str, opset: int | None = None) -> Case:
    """A node of an operator. Raises LookupError where the opset has no such node."""
    return node(rng, name, *OPERATORS[name], opset)
