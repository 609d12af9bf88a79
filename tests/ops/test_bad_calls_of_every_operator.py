"""Whatever a caller gives an operator, it is taken or refused with an error of jaxops: no other exception gets out.

Each parameter of each operator gets a few of the values below, in a call that is good otherwise. `python FILE [NAME …]`
gives every one of them to every parameter (20 minutes), and lists what got out.
"""

import inspect
import pickle
import re
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import gradient_cases
import microsoft_gradient_cases  # noqa: F401 - adds its cases
import openvino_cases

import jaxops as jo
from jaxops import ops, signature_errors
from jaxops.errors import (
    ArgumentError,
    BoundsError,
    DTypeError,
    JaxopsError,
    ShapeError,
    SignatureError,
    StaticError,
)
from jaxops.onnx import registry
from jaxops.ops import openvino

F = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
GENERATOR, TRACED, TRACED_NUMBER = object(), object(), object()


class Odd:
    def __repr__(self) -> str:
        return "Odd()"


# What hardly any parameter allows.
STRANGE: dict[str, Any] = {
    "ragged list": [[1, 2], [3]],
    "ragged list of arrays": [np.ones(2), np.ones(3)],
    "structured": np.zeros(2, [("a", "i4")]),
    "datetime": np.zeros(2, "M8[s]"),
    "timedelta": np.zeros((2, 3), "m8[s]"),
    "long double": np.ones((2, 3), np.longdouble),
    "complex long double": np.ones(3, np.clongdouble),
    "masked": np.ma.masked_array(F, F > 3),
    "void": np.zeros(2, "V3"),
    "big-endian": F.astype(">f4"),
    "objects": np.array([Odd(), None], object),
    "floats as objects": np.array([1.5, 2.5], object),
    "None in an array": np.array(None),
    "text": "abc",
    "bytes": b"abc",
    "half a character": "\ud800",
    "None": None,
    "object": Odd(),
    "dictionary": {"a": 1},
    "set": {1, 2},
    "integer of 70 bits": 2**70,
    "list of numbers and text": [1, "a"],
    "list with None": [None, 1],
    "list of lists": [[[]]],
    "empty list": [],
    "generator": GENERATOR,
    "type": int,
    "type of numbers": np.float32,
    "element type": np.dtype(np.float32),
    "33 axes": np.ones((1,) * 33, np.float32),
    "strings of 33 axes": np.full((1,) * 33, "a b", object),
    "traced number in a list": [TRACED_NUMBER],
    "random key": jax.random.key(0),
    "shape": jax.ShapeDtypeStruct((2, 3), np.float32),
    "traced": TRACED,
    "traced number": TRACED_NUMBER,
    "JAX arrays in a list": [jnp.ones(2), jnp.ones(2)],
    "memory": memoryview(b"abc"),
    "float6": np.ones((2, 3), ml_dtypes.float6_e2m3fn),
}
# What some allow and others do not.
UNUSUAL: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "imaginary": 1j,
    "complex": np.ones((2, 3), np.complex64),
    "strings": np.array(["a", "b"], object),
    "bytes in an array": np.array([b"a"]),
    "int4": np.ones((2, 3), ml_dtypes.int4),
    "uint2": np.ones((2, 3), ml_dtypes.uint2),
    "float4": np.ones((2, 3), ml_dtypes.float4_e2m1fn),
    "traced int4": jnp.ones((2, 3), jnp.int4),
    "float8_e8m0": np.ones((2, 3), ml_dtypes.float8_e8m0fnu),
    "float8_e3m4": np.ones((2, 3), ml_dtypes.float8_e3m4),
    "booleans": np.ones((2, 3), bool),
    "uint64": np.full((2, 3), 2**63, np.uint64),
    "0-d": np.array(1, np.float32),
    "1-D": np.ones(3, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "5-D": np.ones((1, 1, 1, 2, 2), np.float32),
    "range": range(3),
    "True": True,
    "negative": -1,
    "70": 70,
    "1.5": 1.5,
    "array": F,
    "integers": np.array([1, 0]),
    "words": ["a", "b"],
    "negative numbers": [-1, -1],
    "fractions": [1.5, 2.0],
    "another word": "SAME_UPPER",
}
OPERATORS = {
    f"{domain}.{name}".lstrip("."): getattr(module, name)
    for domain, module in registry.DOMAINS.items()
    for name in module.__all__
} | {f"openvino.{name}": getattr(openvino, name) for name in openvino.__all__}
CASES = {
    registry.function(op_type.rpartition(".")[2], op_type.rpartition(".")[0]): cases[0]
    for op_type, cases in gradient_cases.CASES.items()
}
CALLS = {getattr(openvino, name): arguments for name, arguments in openvino_cases.CASES.items()}
# These call what they are given.
CALLED = {"body", "then_branch", "else_branch", "prob_mod", "score_mod"}


def good_call(fn: Any) -> dict[str, Any]:
    """Arguments of a call: those of a table, else what the annotations suggest, which may be refused."""
    parameters = inspect.signature(fn).parameters
    if fn in CALLS:
        return CALLS[fn]
    case = CASES.get(fn)
    if case is not None:
        inputs = [x.astype(np.float32) if getattr(x, "dtype", None) == np.float64 else x for x in case.inputs]
        names = [p.name for p in parameters.values() if p.kind is not p.KEYWORD_ONLY]
        found = dict(zip(names, inputs, strict=False))
        if "Sequence" in str(parameters[names[-1]].annotation):
            found[names[-1]] = list(inputs[len(names) - 1 :])
        return {**found, **{k: v for k, v in case.attributes.items() if k in parameters}}
    return {p.name: suggested(p) for p in parameters.values() if p.default is p.empty}


def suggested(parameter: inspect.Parameter) -> Any:
    annotation = str(parameter.annotation)
    if "Literal" in annotation:
        return get_args(parameter.annotation)[0]
    kinds = {"Sequence[str]": ("a", "b"), "Sequence[float]": (1.0, 1.0), "Sequence[int]": (1, 1), "Sequence": [F, F]}
    kinds |= {"'int'": 1, "'float'": 1.0, "'str'": "a", "Callable": len, "element type": np.float32}
    return next((value for kind, value in kinds.items() if kind in annotation), F)


def escaped(fn: Any, arguments: dict[str, Any]) -> Exception | None:
    """The exception of a call that is none of jaxops."""
    values = {k: iter(range(3)) if v is GENERATOR else v for k, v in arguments.items()}
    listed = {k for k, v in values.items() if isinstance(v, list) and v and v[0] is TRACED_NUMBER}
    numbers = listed | {k for k, v in values.items() if v is TRACED_NUMBER}
    traced = dict.fromkeys(numbers, np.int32(1)) | {k: F for k, v in values.items() if v is TRACED}

    def call(traced: dict[str, Any]) -> None:
        fn(**{**values, **{k: [v] if k in listed else v for k, v in traced.items()}})

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            jax.eval_shape(call, traced) if traced else call({})
    except (JaxopsError, ModuleNotFoundError):
        return None
    except Exception as error:
        return error
    return None


def trials(name: str, step: int) -> list[tuple[str, str, Any]]:
    """(parameter, label, value) for each value to try; of those in the tables each `step`-th."""
    fn = OPERATORS[name]
    values = [*STRANGE.items(), *(UNUSUAL.items() if step == 1 else ())]
    found = []
    for parameter in inspect.signature(fn).parameters:
        start = zlib.crc32(f"{name} {parameter}".encode()) % step
        found += [
            (parameter, *item) for item in values[start::step] if parameter not in CALLED or not callable(item[1])
        ]
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_only_errors_of_jaxops_get_out(name):
    fn = OPERATORS[name]
    good = good_call(fn)
    for parameter, label, value in trials(name, 35):
        error = escaped(fn, {**good, parameter: value})
        assert error is None, f"{parameter}={label}: {error!r}"


def test_another_error_would_be_seen():
    def bad(x: Any) -> None:
        raise ValueError("raw")

    assert isinstance(escaped(bad, {"x": 1}), ValueError)
    assert isinstance(escaped(lambda x: float(x), {"x": TRACED_NUMBER}), TypeError)


X = jnp.asarray(F)
NAMED = [
    (lambda: jo.gemm(F, F.T, alpha="a"), ArgumentError, "gemm: `alpha` is 'a'; it must be a number"),
    (lambda: jo.gemm(F, F.T, alpha=None), SignatureError, "gemm: `alpha` is None, but the operator needs it"),
    (lambda: jo.gemm(F, F.T, alpha=10**400), ArgumentError, "gemm: `alpha` is 1000.*…; it must be a number"),
    (lambda: jo.gemm(F, F.T, transA="a"), DTypeError, "gemm: `transA` must be integers, got str"),
    (lambda: jax.jit(lambda a: jo.gemm(F, F.T, beta=a))(1.0), StaticError, "gemm: `beta` must be known while tracing"),
    (
        lambda: jo.abs([[1, 2], [3]]),
        ArgumentError,
        r"an operand is \[\[1, 2\], \[3\]\], which is not an array of numbers",
    ),
    (lambda: jo.gemm(F.astype(np.longdouble), F.T.astype(np.longdouble)), DTypeError, "`a` has elements of type"),
    (lambda: jo.floor(np.zeros(2, "M8[s]")), DTypeError, "floor: operands must be floating-point, got datetime64"),
    (lambda: jo.relu(np.zeros(2, [("a", "i4")])), DTypeError, "relu: `x` has elements of type|relu: operands must be"),
    (lambda: jo.gemm(F.astype(">f4"), F.T), DTypeError, "gemm: `a` has the byte order of another machine"),
    (lambda: jo.relu(np.ma.masked_array(F, F > 3)), ArgumentError, "masked elements have no value; give them one with"),
    (lambda: jo.gemm(jax.random.key(0), F), DTypeError, "gemm: `a` holds key<fry>, which are not numbers"),
    (lambda: jo.batch_normalization(X, X[0], X[0], X[0], np.array([Odd()])), DTypeError, "strings stay static"),
    (lambda: jo.leaky_relu(X, alpha=np.array(1.0)), ArgumentError, "must be a number of Python\n  hint    give float"),
    (lambda: jo.concat([X, [[1], [2, 3]]], axis=0), ArgumentError, "which is not an array of numbers or strings"),
    (lambda: jo.leaky_relu(X, alpha=np.float32), ArgumentError, "`alpha` is <class 'numpy.float32'>; it must be a num"),
    (
        lambda: jo.random_normal(shape=(2,), seed=np.float32),
        ArgumentError,
        "`seed` is <class 'numpy.float32'>; it must",
    ),
    (
        lambda: jo.random_uniform(shape=(2,), seed=1, low=np.int8),
        ArgumentError,
        "`low` is <class 'numpy.int8'>; it mus",
    ),
    (
        lambda: jo.dropout(X, np.float32, True, seed=0),
        ArgumentError,
        "dropout: `ratio` is <class .*; it must be a value",
    ),
    (lambda: jo.less(np.array(["a"]), 3), DTypeError, "less: operands must have one element type, got string, int64"),
    (lambda: jo.greater(3, np.array(["a"], object)), DTypeError, "greater: operands must have one element type, got"),
    (
        lambda: jo.string_split(np.full((1,) * 33, "a b", object)),
        ShapeError,
        "string_split: an operand has 33 axes, of which NumPy takes 32 here; reshape it",
    ),
    (
        lambda: jax.jit(lambda a: jo.reduce_sum(F, [a]))(0),
        StaticError,
        "reduce_sum: `axes` must be known while tracing, but it is traced",
    ),
    (
        lambda: jax.jit(lambda a: jo.string_split([a]))(0),
        ArgumentError,
        r"string_split: `x` is a sequence of 1 array; it must be one array\n  hint    put JAX arrays together with jnp",
    ),
    (lambda: jo.loop(2, None, [X], lambda i, c, x: (F, x)), DTypeError, "the condition that body returns must be one"),
    (lambda: jo.microsoft.is_all_finite([None]), SignatureError, "is_all_finite: an operand is missing"),
    (
        lambda: np.asarray(jo.ml.array_feature_extractor(np.array(["a"], object), jnp.array([1]))),
        BoundsError,
        "strings: an index that chooses one of 1 string is out of range",
    ),
    (lambda: jo.bernoulli(F / 9, rng=3), ArgumentError, r"bernoulli: `rng` is 3; it must be one random key, such as"),
    (lambda: jo.if_(np.array(True), 3, len), ArgumentError, "if_: `then_branch` is 3; it must be a function"),
    (lambda: jo.ml.dict_vectorizer(3, int64_vocabulary=[1]), ArgumentError, "`x` is 3; it must be a dictionary"),
    (lambda: jo.constant(value_ints=[2**70]), ArgumentError, "`value_ints` is 1180591.*; it must be an integer of 64"),
    (lambda: jo.cast(F, to="nosuch"), DTypeError, "cast: `to` is 'nosuch'; it must be an element type"),
    (lambda: jo.nonzero(X, size=-1), ArgumentError, "nonzero: `size` is -1; it must be at least 0"),
    (lambda: jo.softmax(np.ones(2, ml_dtypes.float6_e2m3fn)), DTypeError, "JAX has no arrays of float6_e2m3fn"),
    (lambda: jo.gru(X[None], X[None], X[None], hidden_size=1, activations=3), ArgumentError, "it must be a list"),
    (lambda: jo.string_split(np.array(["a", None], object)), DTypeError, "string_split: `x` must be strings"),
    (lambda: jo.tensor_scatter(X[None], X), ShapeError, "`update` has 2 axes, but `past_cache` has 3"),
    (lambda: jo.microsoft.image_scaler(X[None, None], bias=[None, 1]), ArgumentError, r"`bias\[0\]` is None"),
    (
        lambda: jo.microsoft.attention(X[None], X.T @ X, X[0], 70, num_heads=1),
        ShapeError,
        r"`mask_index` of \(\) must be",
    ),
    (lambda: jo.microsoft.multi_head_attention(X[None], F[0, 0], num_heads=1), ShapeError, "keys of the same B"),
    (lambda: jo.microsoft.remove_padding(X[None], ["a"]), DTypeError, "`sequence_token_count` must be integers"),
    (lambda: jo.microsoft.restore_padding(X[None], [[0]]), ShapeError, r"`input` of \(1, 2, 3\) must be \(T, D\)"),
    (
        lambda: jo.tensor_scatter(X[None], X[None], [0, 0]),
        ShapeError,
        "`write_indices` has 2 entries, but the batch has",
    ),
]


@pytest.mark.parametrize(("call", "error", "match"), NAMED)
def test_the_argument_is_named(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_an_error_with_another_reason_stays_what_it_is():
    def then() -> list[Any]:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        jo.if_(np.array(True), then, then)


def test_operators_stay_functions_with_their_own_names():
    assert pickle.loads(pickle.dumps(jo.gemm)) is jo.gemm is ops.gemm
    assert re.match(r"\(a: .*, b: .*alpha: float = 1.0", str(inspect.signature(jo.gemm)))
    assert jo.ml.scaler.__module__ == "jaxops.ops.ml.scaling"


def test_each_annotation_has_its_check():
    """An annotation that nothing checks would let every value through to where it fails."""
    free = {Any, type(None)}
    for name, fn in OPERATORS.items():
        for parameter in inspect.signature(fn).parameters.values():
            for part in signature_errors._parts(parameter.annotation):
                known = part in free or signature_errors._check_of(part) is not None
                assert known, f"{name}: {parameter}"


def main(names: list[str]) -> None:
    total = 0
    for name in names or OPERATORS:
        fn = OPERATORS[name]
        good = good_call(fn)
        for parameter, label, value in trials(name, 1):
            total += 1
            error = escaped(fn, {**good, parameter: value})
            if error is not None:
                print(f"{name} {parameter}={label}: {error!r:.200}", flush=True)
    print(f"{total} calls")


if __name__ == "__main__":
    main(sys.argv[1:])
