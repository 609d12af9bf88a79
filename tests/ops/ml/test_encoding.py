"""LabelEncoder against a dictionary and against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax.export import export, symbolic_args_specs
from onnx import helper, numpy_helper

import jaxops
from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError, SignatureError, StaticError
from jaxops.ml import label_encoder
from jaxops.onnx import registry

NAN = float("nan")


def words(*items):
    return np.array(items, object)


def runtime(x, opset, **attributes):
    given = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attributes.items()}
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **given)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


I64, F32 = np.int64([[3, -1, 7], [2**40, 3, 0]]), np.float32([1.5, NAN, 0.0, -0.0, -2, np.inf])
X = {
    "strings": words(["a", "z"], ["", "ä"]),
    "int64s": I64,
    "floats": F32,
}
KEYS = {
    "strings": ["z", "a", "ä"],
    "int64s": [7, 3, 2**40],
    "floats": [NAN, 1.5, -0.0],
}
VALUES = {"strings": ["x", "y", "y"], "int64s": [5, 2**33, -1], "floats": [0.5, -0.0, NAN]}
DEFAULTS = {"strings": ("default_string", "none"), "int64s": ("default_int64", 9), "floats": ("default_float", 2.5)}


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", KEYS)
def test_against_onnxruntime(key, value, default):
    attributes = {f"keys_{key}": KEYS[key], f"values_{value}": VALUES[value]}
    attributes |= dict([DEFAULTS[value]]) if default else {}
    for x in (X[key], X[key].ravel()[1], X[key].ravel()[:0]):
        x = np.asarray(x, X[key].dtype)
        found = label_encoder(x, **attributes)
        assert isinstance(found, np.ndarray)
        theirs = runtime(x, 4, **attributes)
        assert found.shape == theirs.shape
        assert repr(found.tolist()) == repr(theirs.tolist())  # NaN and -0.0 too


@pytest.mark.parametrize(
    ("x", "keys", "values", "default"),
    [
        (np.int64([1, 2, 5]), np.int64([2, 1]), np.float64([0.25, 0.5]), np.float64([7])),
        (np.int64([1, 2, 5]), np.int64([2, 1]), words("two", "one"), words("many")),
        (np.float64([0.1, NAN, 2]), np.float64([NAN, 0.1]), words("nan", "tenth"), words("other")),
        (words("a", "b"), words("b"), np.int64([4]), np.int64([0])),
    ],
)
def test_tensors(x, keys, values, default):
    given = {"keys_tensor": keys, "values_tensor": values}
    same(label_encoder(x, **given, default_tensor=default), runtime(x, 4, **given, default_tensor=default))
    same(label_encoder(x, **given), runtime(x, 4, **given))


def test_tensors_of_types_that_onnxruntime_has_not():
    x, keys, values = np.int16([[1, 2]]), np.int16([2]), np.int32([20])
    same(label_encoder(x, keys_tensor=keys, values_tensor=values, default_int64=7), np.int32([[7, 20]]))
    same(label_encoder(x, keys_tensor=keys, values_tensor=values.astype(np.float16)), np.float16([[-0.0, 20]]))


def test_of_equal_keys_the_last_one_counts():
    """As the text of version 4 says; onnxruntime 1.31 takes the first."""
    for x in (np.int64([1, 2]), jnp.array([1, 2])):
        found = label_encoder(x, keys_int64s=[1, 2, 1], values_floats=[1.0, 2.0, 3.0])
        assert found.tolist() == [3, 2]
    assert label_encoder(
        np.float32([NAN, 0]), keys_floats=[NAN, 0, -0.0, NAN], values_int64s=[1, 2, 3, 4]
    ).tolist() == [
        4,
        3,
    ]


TRACED = [
    (I64.clip(max=2**31 - 1), {"keys_int64s": [7, 3, 2**40], "values_floats": [1.0, 2.0, 3.0]}),
    (F32, {"keys_floats": [NAN, 1.5, -0.0, -np.inf], "values_int64s": [5, 6, 7, 8], "default_int64": 0}),
    (F32, {"keys_floats": [3.0, 0.0, 1.5], "values_floats": [5.0, 6.0, 7.0]}),
    (F32, {"keys_floats": [], "values_floats": []}),
    (np.int16([4, 5]), {"keys_tensor": np.int16([5]), "values_tensor": np.array([True]), "default_int64": 0}),
]


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32])
def test_integers_that_lie_close(dtype, gaps):
    """They are found in a table, at both ends of their type, too; others keep the default."""
    limits = np.iinfo(dtype)
    every = [
        np.arange(int(limits.max) - 255, int(limits.max) + 1).astype(dtype),
        np.arange(int(limits.min), int(limits.min) + 256).astype(dtype),
    ]
    for keys in every:
        keys = np.random.default_rng(0).permutation(keys[:: 3 if gaps else 1])
        x = np.concatenate([*every, np.array([0, 1, 100], dtype)])
        for values in (np.arange(len(keys), dtype=np.float32), np.array([f"v{k}" for k in range(len(keys))], object)):
            given = {"keys_tensor": keys, "values_tensor": values}
            expected = label_encoder(x, **given).tolist()
            assert label_encoder(jnp.asarray(x), **given).tolist() == expected
            found = jax.jit(lambda x, given=given: label_encoder(x, **given))(x)
            assert np.asarray(found).tolist() == expected


def test_integers_far_apart_are_searched():
    given = {"keys_int64s": [-(2**30), 0, 5, 2**30], "values_int64s": [1, 2, 3, 4]}
    x = jnp.array([0, 5, 7, 2**30, -(2**30), -1], jnp.int32)
    assert jax.jit(lambda x: label_encoder(x, **given))(x).tolist() == [2, 3, -1, 4, 1, -1]
    close = {"keys_int64s": [2, 0, 5, 7], "values_int64s": [1, 2, 3, 4]}
    for attributes, searched in ((given, True), (close, False)):
        program = str(jax.make_jaxpr(lambda x, given=attributes: label_encoder(x, **given))(x))
        assert ("searchsorted" in program) == searched


@pytest.mark.grid
@pytest.mark.parametrize(("x", "attributes"), TRACED, ids=range(len(TRACED)))
def test_traced(x, attributes):
    expected = label_encoder(x, **attributes).tolist()

    def fn(x):
        return label_encoder(x, **attributes)

    traced = jnp.asarray(x)
    assert fn(traced).tolist() == expected
    assert isinstance(fn(traced), jax.Array)
    assert jax.jit(fn)(traced).tolist() == expected
    assert jax.jit(jax.vmap(fn))(traced).tolist() == expected
    spec = ["n, 3"] if x.ndim == 2 else ["n"]
    assert export(jax.jit(fn))(*symbolic_args_specs([traced], spec)).call(traced).tolist() == expected
    with jax.enable_x64(True):
        assert fn(jnp.asarray(x)).tolist() == expected


def test_keys_beyond_32_bits_match_nothing():
    given = {"keys_int64s": [2**32 + 1, 2**31 - 1], "values_int64s": [5, 6]}
    assert label_encoder(jnp.array([1, 2**31 - 1]), **given).tolist() == [-1, 6]
    given = {"keys_tensor": np.float64([1e300, 0.1, np.inf]), "values_tensor": np.int32([1, 2, 3])}
    assert label_encoder(jnp.array([jnp.inf, 0.1]), **given).tolist() == [3, 2]
    given["keys_tensor"] = given["keys_tensor"][:2]
    assert label_encoder(jnp.array([jnp.inf, 0.1]), **{**given, "values_tensor": np.int32([1, 2])}).tolist() == [-1, 2]
    with jax.enable_x64(True):
        assert label_encoder(jnp.array([1, 2**32 + 1]), keys_int64s=[2**32 + 1], values_int64s=[5]).tolist() == [-1, 5]


def test_strings_for_traced_elements():
    given = {"keys_int64s": [4, 5], "values_strings": ["four", "five"]}
    x = jnp.array([5, 6, 4])
    found = label_encoder(x, **given)
    assert isinstance(found, np.ndarray)
    chosen = jax.jit(lambda x: label_encoder(x, **given))(x)
    assert found.tolist() == np.asarray(chosen).tolist() == ["five", "_Unused", "four"]
    with pytest.raises(StaticError, match="cannot be used under jit"):
        jax.jit(lambda x: np.asarray(label_encoder(x, **given)))(x)


def test_symbolic_sizes_as_elements():
    def fn(x):
        return label_encoder(jaxops.shape(x), keys_int64s=[2, 3], values_int64s=[20, 30])

    made = export(jax.jit(fn))(*symbolic_args_specs([jnp.zeros((2, 5))], ["n, 5"]))
    assert made.call(jnp.zeros((2, 5))).tolist() == [20, -1]


def test_the_module_of_the_domain():
    assert jaxops.ml.label_encoder is label_encoder
    assert not hasattr(jaxops, "label_encoder")


def test_versions():
    def at(opset, x, **attributes):
        operator = registry.find("LabelEncoder", "ai.onnx.ml", opset)
        (found,) = operator.call([x], operator.complete(attributes), n_outputs=1, rng=None)
        same(found, runtime(x, opset, **attributes))
        return found

    classes = {"classes_strings": ("z", "a", "b")}
    assert at(1, words("a", "q"), **classes).tolist() == [1, -1]
    assert at(1, words("a", "q"), **classes, default_int64=9).tolist() == [1, 9]
    assert at(1, np.int64([[2, 0], [3, -1]]), **classes).tolist() == [["b", "z"], ["_Unused", "_Unused"]]
    assert at(1, np.int64([5]), **classes, default_string="?").tolist() == ["?"]
    assert at(1, words("z", "z"), classes_strings=("z", "z")).tolist() == [1, 1]
    assert at(2, words("a", "q"), keys_strings=("a",), values_floats=(2.0,)).tolist() == [2, 0]
    assert at(4, np.int64([1]), keys_tensor=np.int64([1]), values_int64s=(2,)).tolist() == [2]


KV = {"keys_int64s": [1], "values_int64s": [2]}
ONE = np.int64([1])
ERRORS = [
    (lambda: label_encoder(ONE, values_int64s=[1]), SignatureError, "keys_tensor, keys_strings, .* are all missing"),
    (
        lambda: label_encoder(ONE, **KV, values_floats=[1.0]),
        SignatureError,
        "values_int64s, values_floats exclude each",
    ),
    (lambda: label_encoder(ONE, keys_int64s=[1, 2], values_int64s=[2]), ShapeError, "2 keys and 1 value were given"),
    (
        lambda: label_encoder(ONE, keys_tensor=np.ones((1, 1)), values_int64s=[2]),
        ShapeError,
        "`keys_tensor` must be 1-D",
    ),
    (
        lambda: label_encoder(ONE.astype(np.int32), **KV),
        DTypeError,
        r"x is int32\[1\].*, but the keys are int64; .*cast",
    ),
    (lambda: label_encoder(words("a"), **KV), DTypeError, "but the keys are int64"),
    (lambda: label_encoder(ONE, keys_strings=["a"], values_int64s=[2]), DTypeError, "but the keys are strings"),
    (
        lambda: label_encoder(ONE, **KV, default_tensor=ONE.astype(float)),
        DTypeError,
        "`default_tensor` is float64.* int64",
    ),
    (
        lambda: label_encoder(ONE, **KV, default_tensor=np.zeros(2, int)),
        ShapeError,
        "`default_tensor` must be one element",
    ),
    (
        lambda: label_encoder(ONE, keys_int64s=[1], values_tensor=np.uint8([1])),
        ArgumentError,
        "the default is -1, but uint8 holds 0 to 255",
    ),
    (
        lambda: label_encoder(jnp.array([1]), keys_int64s=[1], values_int64s=[2**40]),
        OutOfRangeError,
        "does not fit int32",
    ),
    (lambda: label_encoder(ONE, keys_int64s=[0.5], values_int64s=[2]), DTypeError, "`keys_int64s` must be integers"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
