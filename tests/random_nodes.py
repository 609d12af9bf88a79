"""Random single nodes: for each operator a function from a generator of numbers to operands and attributes.

A function makes what the newest version takes. `case` chooses opset and element type, and puts what was an attribute in
that opset into the attributes.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, defs, numpy_helper

from jaxops.onnx import microsoft_schemas

NEWEST = 24
# Before these opsets the text allows less than what is made here.
OLDEST = {"QuantizeLinear": 13, "DequantizeLinear": 13}
FLOATS = (np.float32, np.float32, np.float64, np.float16)
WHOLE = (np.int32, np.int64, np.uint8, np.int8, np.uint32, np.int16)
REAL, ALL = FLOATS + WHOLE, (*FLOATS, *WHOLE, np.bool_)


# Tolerances, relative to the largest number of an output.
CLOSE = {"float64": 1e-6, "float32": 2e-4, "float16": 1e-2}


class Case(NamedTuple):
    """One node; `inputs` holds None for those left out."""

    op: str
    domain: str
    opset: int
    inputs: list[Any]
    attributes: dict[str, Any]
    n_outputs: int = 1

    def __str__(self) -> str:
        inputs = ", ".join(map(_said, self.inputs))
        return f"{self.domain}{self.op} opset {self.opset} ({inputs}) {self.attributes}"


def _said(x: Any) -> str:
    if isinstance(x, list):
        return f"[{', '.join(map(_said, x))}]"
    return "-" if x is None else f"{x.dtype}{list(x.shape)}"


Made = tuple[list[Any], dict[str, Any]] | tuple[list[Any], dict[str, Any], int]
MAKERS: dict[str, tuple[Callable[[Any, Any], Made], tuple[Any, ...]]] = {}


def maker(names: str, types: tuple[Any, ...] = FLOATS) -> Any:
    """Registers a function of (generator, element type) for the operators of these names."""

    def register(fn: Any) -> Any:
        for name in names.split():
            MAKERS[name] = (fn, types)
        return fn

    return register


def shape(rng: Any, low: int = 0, high: int = 4, empty: bool = True) -> tuple[int, ...]:
    sizes = rng.choice([1, 2, 3, 5], rng.integers(low, high + 1))
    if empty and sizes.size and rng.uniform() < 0.05:
        sizes[0] = 0
    return tuple(map(int, sizes))


def data(rng: Any, dtype: Any, sizes: Any) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, sizes).astype(bool)
    if kind in "iu":
        return rng.integers(0 if kind == "u" else -9, 10, sizes).astype(dtype)
    return (rng.normal(size=sizes) * rng.choice([1, 1, 3])).astype(dtype)


def one(rng: Any, *values: Any) -> Any:
    return values[rng.integers(len(values))]


def some(rng: Any, **named: Any) -> dict[str, Any]:
    """A few of these attributes; the others keep their defaults."""
    return {name: value for name, value in named.items() if rng.uniform() < 0.6}


def broadcastable(rng: Any, sizes: tuple[int, ...]) -> tuple[int, ...]:
    kept = tuple(1 if rng.uniform() < 0.3 else d for d in sizes)
    return kept[rng.integers(0, len(kept) + 1) :] if rng.uniform() < 0.4 else kept


def axis(rng: Any, rank: int) -> int:
    return int(rng.integers(-rank, rank))


@maker("Abs Neg Sign Relu", REAL)
@maker("Floor Ceil Round Sqrt Exp Log Erf Sigmoid Tanh Softplus Softsign Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh")
@maker("Acosh Atanh Reciprocal Mish HardSwish IsNaN IsInf")
def unary(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng))], {}


@maker("Elu Selu Celu LeakyRelu ThresholdedRelu HardSigmoid Shrink Gelu Swish")
def unary_with_numbers(rng: Any, dtype: Any) -> Made:
    positive = {name: float(np.float32(rng.uniform(0.2, 2))) for name in ("alpha", "beta", "gamma", "lambd", "bias")}
    return [data(rng, dtype, shape(rng))], some(rng, **positive)


@maker("Add Sub Mul Div Pow Mod Equal Greater Less GreaterOrEqual LessOrEqual PRelu", (*FLOATS, np.int32, np.int64))
@maker("And Or Xor", (np.bool_,))
@maker("BitwiseAnd BitwiseOr BitwiseXor", WHOLE)
def binary(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng)
    b = data(rng, dtype, broadcastable(rng, sizes))
    if np.dtype(dtype).kind in "iu":
        b = np.maximum(abs(b), 1)
    return [data(rng, dtype, sizes), b], {}


@maker("Max Min Sum Mean")
def variadic(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, empty=False)
    return [
        data(rng, dtype, sizes),
        *(data(rng, dtype, broadcastable(rng, sizes)) for _ in range(rng.integers(0, 3))),
    ], {}


@maker("BitShift", (np.uint8, np.uint16, np.uint32, np.uint64))
def bit_shift(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng)
    return [data(rng, dtype, sizes), rng.integers(0, 8, sizes).astype(dtype)], {"direction": one(rng, "LEFT", "RIGHT")}


@maker("ReduceLogSumExp")  # onnxruntime rounds each step down where these are integers
@maker(
    "ReduceMean ReduceSum ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceSumSquare",
    (*FLOATS, np.int32),
)
@maker("ReduceMax ReduceMin", (*FLOATS, np.int32, np.int64))
def reduction(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, empty=False)
    x = abs(data(rng, dtype, sizes)) + np.asarray(1, dtype)
    axes = rng.permutation(len(sizes))[: rng.integers(0, len(sizes) + 1)].astype(np.int64)
    return [x, axes if axes.size else None], some(rng, keepdims=one(rng, 0, 1))


@maker("ArgMax ArgMin", REAL)
def arg_extremum(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, empty=False)
    return [data(rng, dtype, sizes)], some(
        rng, axis=axis(rng, len(sizes)), keepdims=one(rng, 0, 1), select_last_index=1
    )


@maker("Softmax LogSoftmax Hardmax")
def softmax(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, empty=False)
    return [data(rng, dtype, sizes)], some(rng, axis=axis(rng, len(sizes)))


@maker("TopK", (np.float32, np.float64, np.int32, np.int64))
def top_k(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, empty=False)
    at = axis(rng, len(sizes))
    k = np.array([rng.integers(0, sizes[at] + 1)])
    return [data(rng, dtype, sizes).round(), k], {"axis": at} | some(rng, largest=one(rng, 0, 1)), 2


@maker("CumSum", (np.float32, np.float64, np.int32, np.int64))
def cumulative(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1)
    flags = some(rng, exclusive=one(rng, 0, 1), reverse=one(rng, 0, 1))
    return [data(rng, dtype, sizes), np.array(axis(rng, len(sizes)))], flags


@maker("Gather", ALL)
def gather(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, empty=False)
    at = axis(rng, len(sizes))
    return [data(rng, dtype, sizes), rng.integers(-sizes[at], sizes[at], shape(rng, 0, 2))], {"axis": at}


@maker("GatherElements ScatterElements", (np.float32, np.int32, np.int64, np.float64))
def elements(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, 3, empty=False)
    at = axis(rng, len(sizes))
    return [data(rng, dtype, sizes), np.argsort(rng.uniform(size=sizes), at), data(rng, dtype, sizes)], {"axis": at}


@maker("GatherND ScatterND", (np.float32, np.int32, np.int64, np.float64))
def tuples(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, 3, empty=False)
    count = int(rng.integers(1, len(sizes) + 1))
    places = np.stack(np.unravel_index(rng.permutation(int(np.prod(sizes[:count]))), sizes[:count]), -1)
    return [data(rng, dtype, sizes), places, data(rng, dtype, (len(places), *sizes[count:]))], {}


@maker("Slice", ALL)
def slices(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1)
    axes = rng.permutation(len(sizes))[: rng.integers(1, len(sizes) + 1)]
    starts, ends = rng.integers(-6, 7, (2, len(axes)))
    return [data(rng, dtype, sizes), starts, ends, axes, rng.choice([1, 2, -1, -2], len(axes))], {}


@maker("Pad", (np.float32, np.float64, np.int32, np.int64))
def pad(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, empty=False)
    pads = np.concatenate([[rng.integers(0, d) for d in sizes] for _ in range(2)])
    mode = one(rng, "constant", "reflect", "edge")
    return [data(rng, dtype, sizes), pads, data(rng, dtype, ()) if mode == "constant" else None], {"mode": mode}


@maker("Transpose Flatten", ALL)
def whole(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng, 1))], {}


@maker("Tile", REAL)
def tile(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1)
    return [data(rng, dtype, sizes), rng.integers(0, 3, len(sizes))], {}


@maker("Where", REAL)
def where(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng)
    return [
        data(rng, np.bool_, broadcastable(rng, sizes)),
        *(data(rng, dtype, broadcastable(rng, sizes)) for _ in "ab"),
    ], {}


@maker("Unique", (np.float32, np.int64, np.float64, np.int8))
def unique(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, 3, empty=False)
    return [data(rng, dtype, sizes).round()], some(rng, axis=axis(rng, len(sizes)), sorted=one(rng, 0, 1)), 4


@maker("Trilu", REAL)
def trilu(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 2)
    return [data(rng, dtype, sizes), np.array(rng.integers(-3, 4)) if rng.uniform() < 0.5 else None], some(rng, upper=0)


@maker("MatMul", (*FLOATS, np.int32, np.int64))
def matmul(rng: Any, dtype: Any) -> Made:
    batch, (m, k, n) = shape(rng, 0, 2), rng.integers(1, 6, 3)
    return [data(rng, dtype, (*batch, m, k)), data(rng, dtype, (*broadcastable(rng, batch), k, n))], {}


@maker("Gemm")
def gemm(rng: Any, dtype: Any) -> Made:
    m, k, n = rng.integers(1, 6, 3)
    across = some(rng, transA=one(rng, 0, 1), transB=one(rng, 0, 1), alpha=0.5, beta=2.0)
    a = data(rng, dtype, (k, m) if across.get("transA") else (m, k))
    b = data(rng, dtype, (n, k) if across.get("transB") else (k, n))
    return [a, b, one(rng, None, data(rng, dtype, (n,)), data(rng, dtype, (m, 1)))], across


def case(seed: int, number: int, only: tuple[str, ...] = ()) -> Case:
    """The node of this number; the operators take turns."""
    for module in ("random_attention", "random_layers", "random_tables"):
        importlib.import_module(module)  # its makers register themselves

    rng = np.random.default_rng([seed, number])
    names = only or tuple(sorted(MAKERS))
    name = names[number % len(names)]
    return node(rng, name, *MAKERS[name])


def node(rng: Any, name: str, fn: Callable[..., Made], types: tuple[Any, ...], given: int | None = None) -> Case:
    """A node of this operator, by its maker. given: the opset of its domain, where it is not drawn.

    Raises LookupError where that opset has no such operator, or none of types that are made here.
    """
    domain, _, op = name.rpartition(".")
    history = _history(op, domain)
    newest = max(history, key=lambda s: s.since_version)
    versions = sorted(
        {max(s.since_version, 1 if domain else OLDEST.get(op, 7)) for s in history if s.since_version <= NEWEST}
    )
    opset = int(one(rng, *versions, versions[-1] if domain else NEWEST)) if given is None else given
    if opset < versions[0]:
        raise LookupError(f"{name} has no opset {opset}")
    schema = max((s for s in history if s.since_version <= opset), key=lambda s: s.since_version)
    if given is not None and schema.deprecated:
        raise LookupError(f"{name} is deprecated in opset {opset}")
    allowed = [t for t in types if _name(t) in schema.inputs[0].types]
    if not allowed and given is not None and schema is not newest:
        raise LookupError(f"{name} of opset {opset} takes none of the types that are made here")
    if not allowed:
        opset, schema, allowed = given or newest.since_version, newest, list(types)
    dtype = one(rng, *allowed)
    inputs, attributes, *more = fn(rng, dtype, op) if op in ("RNN", "GRU", "LSTM") else fn(rng, dtype)
    variadic = schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    for formal, value in list(zip(newest.inputs, inputs, strict=False))[schema.max_input :] if not variadic else ():
        if value is not None and formal.name in schema.attributes:
            attributes[formal.name] = value.tolist()
    inputs = [
        x if x is None or isinstance(x, list) else np.asarray(x)
        for x in (inputs if variadic else inputs[: schema.max_input])
    ]
    while inputs and inputs[-1] is None:
        inputs.pop()
    attributes = {k: v for k, v in attributes.items() if k in schema.attributes}
    return Case(op, domain, opset, inputs, attributes, min(*more, schema.max_output) if more else 1)


def decoded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as operators take them: tensors as arrays."""
    return {k: numpy_helper.to_array(v) if isinstance(v, TensorProto) else v for k, v in attributes.items()}


def difference(found: Any, expected: Any) -> str:
    """What is wrong, or nothing."""
    for i, (a, b) in enumerate(zip(found, expected, strict=False)):
        if a is None or b is None:
            continue
        if isinstance(b, list):
            text = difference(a, b) if len(a) == len(b) else f"{len(a)} items, not {len(b)}"
            if text:
                return f"output {i}, a sequence: {text}"
            continue
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"output {i} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        if a.dtype.kind != "f":
            same = np.array_equal(a, b)
        else:
            finite = np.abs(b[np.isfinite(b)].astype(np.float64))
            digits = CLOSE[a.dtype.name]
            scale = digits * max(finite.max(initial=0), 1e-2)
            same = np.allclose(a.astype(np.float64), b.astype(np.float64), digits, scale, equal_nan=True)
        if not same:
            return f"output {i} is {a.ravel()[:8]}, not {b.ravel()[:8]}"
    return ""


@functools.cache
def _history(op: str, domain: str) -> list[Any]:
    """The versions of an operator."""
    known = microsoft_schemas.schemas() if domain == "com.microsoft" else defs.get_all_schemas_with_history()
    return [schema for schema in known if (schema.name, schema.domain) == (op, domain)]


def _name(dtype: Any) -> str:
    return {"float32": "tensor(float)", "float64": "tensor(double)"}.get(
        np.dtype(dtype).name, f"tensor({np.dtype(dtype).name})"
    )
