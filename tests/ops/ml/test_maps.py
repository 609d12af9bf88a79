"""Operators on dictionaries, directly and in models."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from ml_peer import model, runtime
from onnx import TensorProto, helper

import jaxops.onnx
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError
from jaxops.ml import cast_map, dict_vectorizer, zip_map
from jaxops.opaque import ZippedMaps

X = np.random.default_rng(30).normal(size=(4, 3)).astype(np.float32)


def map_model(op, key, value, **attributes):
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))
    node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    out = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", kind)], out)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def in_models(value, op, key, kind, **attributes):
    """The output of a model, compiled, operator by operator, and onnxruntime's."""
    proto = map_model(op, key, kind, **attributes)
    loaded = jaxops.onnx.load(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return loaded(value), loaded.apply({}, value), session.run(None, {"x": value})[0]


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [7, 2**40, -1]}, {"classlabels_strings": ["a", "b", "c"]}])
def test_zip_map(labels):
    for x in (X, X[0]):
        (theirs,) = runtime("ZipMap", x, **labels)
        assert zip_map(x, **labels) == zip_map(jnp.asarray(x), **labels) == theirs
        maps = jax.jit(lambda x: zip_map(x, **labels))(x)
        assert isinstance(maps, ZippedMaps)
        assert maps.value == theirs
    loaded = jaxops.onnx.load(model("ZipMap", X, **labels))
    assert loaded(X) == loaded.apply({}, X) == runtime("ZipMap", X, **labels)[0]
    assert jax.jit(loaded)(X).value == loaded(X)
    assert jax.jit(loaded)(X).array.tolist() == X.tolist()


def test_dict_vectorizer():
    words = {"string_vocabulary": ["a", "c", "b", "z"]}
    found = in_models({"c": 8.0, "a": 4.0}, "DictVectorizer", TensorProto.STRING, TensorProto.FLOAT, **words)
    assert found[2][0].tolist() == [4, 8, 0, 0]
    for one in found[:2]:
        assert one.dtype == np.float32
        assert one.tolist() == [4, 8, 0, 0]  # one axis, as the standard says; onnxruntime has two
    proto = map_model("DictVectorizer", TensorProto.STRING, TensorProto.INT64, **words)
    assert jaxops.onnx.load(proto)({"b": 3, "a": 5}).tolist() == [5, 0, 3, 0]
    assert dict_vectorizer({2: "x"}, int64_vocabulary=[1, 2]).tolist() == ["", "x"]
    loaded = jaxops.onnx.load(
        map_model("DictVectorizer", TensorProto.INT64, TensorProto.STRING, int64_vocabulary=[1, 2])
    )
    assert loaded({2: "x"}).tolist() == loaded.apply({}, {2: "x"}).tolist() == ["", "x"]
    assert dict_vectorizer({"a": np.float64(0.1)}, **words)[0] == 0.1
    assert dict_vectorizer({}, **words).tolist() == [0] * 4
    gradient = jax.grad(lambda v: (dict_vectorizer({"c": v, "b": 1.0}, **words) ** 2).sum())(3.0)
    assert gradient == 6


@pytest.mark.parametrize("to", ["TO_FLOAT", "TO_INT64", "TO_STRING"])
@pytest.mark.parametrize(("form", "size"), [("DENSE", 1), ("SPARSE", 5)])
def test_cast_map(form, size, to):
    given = {"cast_to": to, "map_form": form, "max_map": size}
    x = {3: 4.75, 1: -8.5}
    proto = map_model("CastMap", TensorProto.INT64, TensorProto.FLOAT, **given)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    found = cast_map(x, **given)
    assert found.dtype == theirs.dtype
    assert found.tolist() == theirs.tolist()
    if to == "TO_STRING":
        assert jaxops.onnx.load(proto)(x).tolist() == theirs.tolist()
        assert cast_map({1: "a"}, **given).tolist()[0][-4 % size] == "a" if form == "SPARSE" else [["a"]]
    else:
        assert jaxops.onnx.load(proto)(x).tolist() == theirs.tolist()
        assert cast_map({3: "4", 1: "-8"}, **given).tolist() == np.trunc(theirs).tolist()


WORDS = {"string_vocabulary": ["a"]}
LOADED = jaxops.onnx.load(map_model("DictVectorizer", TensorProto.STRING, TensorProto.FLOAT, **WORDS))
INTEGERS = jaxops.onnx.load(map_model("CastMap", TensorProto.STRING, TensorProto.FLOAT))
ERRORS = [
    (lambda: zip_map(X), SignatureError, "classlabels_strings are both missing"),
    (lambda: zip_map(X, classlabels_int64s=[1]), ShapeError, "has 3 columns, but there are 1 labels"),
    (lambda: dict_vectorizer({"q": 1.0}, **WORDS), ArgumentError, "the key 'q' is not in the vocabulary"),
    (lambda: dict_vectorizer({"a": 1.0}), SignatureError, "string_vocabulary are both missing"),
    (
        lambda: dict_vectorizer({1: 1.0, 2: "x"}, int64_vocabulary=[1, 2]),
        DTypeError,
        "must have one type, got float32, string",
    ),
    (lambda: cast_map({5: 1.0}, map_form="SPARSE", max_map=5), ArgumentError, r"the key 5 is outside of \[0, 5\)"),
    (lambda: cast_map({5: "x"}), ArgumentError, "could not convert string to float: 'x'"),
    (lambda: LOADED(np.ones(3)), ArgumentError, "but the model expects a dictionary"),
    (lambda: LOADED({"a": "x"}), ArgumentError, "but the model expects x: float32"),
    (lambda: INTEGERS({"a": 1.0}), DTypeError, "CastMap-1: input 0 `X` is .* this version takes map"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
