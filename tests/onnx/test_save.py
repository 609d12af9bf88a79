"""`Model.save`: the original file with other weights, for onnxruntime and for jaxops."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import jaxops.onnx
from jaxops.errors import DTypeError, ShapeError, SignatureError, UnsupportedError
from jaxops.onnx import save as saving

MODELS = Path(__file__).parents[1] / "models"
NAMES = sorted(path.name.removesuffix(".onnx") for path in MODELS.glob("*.onnx"))
F = np.float32
X = np.linspace(-1, 2, 12, dtype=F).reshape(3, 4)


def inputs_of(name):
    values = np.load(MODELS / f"{name.split('.')[0]}.npz")
    return {key[3:]: values[key] for key in values if key.startswith("in:")}


def tuned(model):
    """Other weights: each differs from the model's and from the others'."""
    return {name: w * 1.5 + k / 64 for k, (name, w) in enumerate(model.params.items())}


def runtime(path, inputs):
    return onnxruntime.InferenceSession(path).run(None, inputs)


def agree(path, expected, inputs, atol=1e-5):
    """Asserts that a file is valid, and that onnxruntime and jaxops compute `expected` from it."""
    onnx.checker.check_model(path)
    expected = expected if isinstance(expected, tuple) else (expected,)
    again = jaxops.onnx.load(path)(**inputs)
    for got in (runtime(path, inputs), again if isinstance(again, tuple) else (again,)):
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_of_a_file_are_those_that_were_saved(tmp_path, name):
    model = jaxops.onnx.load(MODELS / f"{name}.onnx")
    params = tuned(model)
    model.save(tmp_path / "tuned.onnx", params)
    onnx.checker.check_model(tmp_path / "tuned.onnx")
    again = jaxops.onnx.load(tmp_path / "tuned.onnx").params
    assert again.keys() == params.keys()
    assert all(np.array_equal(again[key], params[key]) for key in params)
    assert [node.name for node in jaxops.onnx.load(tmp_path / "tuned.onnx").graph.nodes] == [
        node.name for node in model.graph.nodes
    ]


@pytest.mark.parametrize("name", ["bert.dynamo", "gpt2.script", "resnet.dynamo"])
def test_onnxruntime_agrees(tmp_path, name):
    model, inputs = jaxops.onnx.load(MODELS / f"{name}.onnx"), inputs_of(name)
    params = {key: w * 1.1 for key, w in model.params.items()}
    model.save(tmp_path / "tuned.onnx", params)
    found, before = (runtime(path, inputs)[0] for path in (tmp_path / "tuned.onnx", MODELS / f"{name}.onnx"))
    values = model.apply(params, *inputs.values())
    np.testing.assert_allclose(found, values[0] if isinstance(values, tuple) else values, rtol=1e-4, atol=1e-5)
    assert np.abs(found - before).max() > 1e-3


def test_without_params_the_file_means_the_same(tmp_path):
    model = jaxops.onnx.load(MODELS / "resnet.script.onnx")
    model.save(tmp_path / "again.onnx")
    before, after = (onnx.load(path) for path in (MODELS / "resnet.script.onnx", tmp_path / "again.onnx"))
    for one, other in zip(before.graph.initializer, after.graph.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(one), numpy_helper.to_array(other))
    assert before.graph.node == after.graph.node


PLACES = {
    "constant": (
        "m (float[N,4] x) => (float[N,4] y) { w = Constant<value = float[4] {1., 2., 3., 4.}>() y = Mul(x, w) }"
    ),
    "computed": (
        "m (float[N,4] x) => (float[N,4] y) { s = Constant<value_ints = [4]>() "
        "w = ConstantOfShape<value = float[1] {2.}>(s) y = Mul(x, w) }"
    ),
    "one of two": (
        "m (float[N,4] x) => (float[N,4] y) { w = Constant<value = float[5] {1., 2., 3., 4., 5.}>() "
        "l = Constant<value_ints = [4, 1]>() a, b = Split(w, l) c = Mul(x, a) y = Add(c, b) }"
    ),
    "branch": (
        "m (float[N,4] x) => (float[N,4] y) { c = Constant<value = bool {1}>() y = If<then_branch = t () => "
        "(float[N,4] a) { w = Constant<value = float[4] {1., 2., 3., 4.}>() a = Mul(x, w) }, "
        "else_branch = e () => (float[N,4] a) { a = Neg(x) }>(c) }"
    ),
    "function": (
        "m (float[N,4] x) => (float[N,4] y) { a = my.Scale(x) y = my.Scale(a) }\n"
        '<domain: "my", opset_import: ["" : 17]> Scale (x) => (y) '
        "{ w = Constant<value = float[4] {1., 2., 3., 4.}>() y = Mul(x, w) }"
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_weight_goes_back_to_its_place(tmp_path, place):
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "my" : 1]>\n{PLACES[place]}')
    model = jaxops.onnx.load(proto)
    params = tuned(model)
    assert params
    model.save(tmp_path / "tuned.onnx", params)
    expected = model.apply(params, X)
    assert np.abs(expected - model(X)).max() > 0.1
    agree(tmp_path / "tuned.onnx", expected, {"x": X})


def test_one_constant_of_two_calls_has_one_value(tmp_path):
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>\n'
        "m (float[N,4] x) => (float[N,4] y) { a = my.Scale<k = 1>(x) y = my.Scale<k = 0>(a) }\n"
        '<domain: "my", opset_import: ["" : 17]> Scale <k> (x) => (y) '
        "{ w = Constant<value = float[4] {1., 2., 3., 4.}>() c = Constant<value_int: int = @k>() d = Mul(x, w) "
        "e = Cast<to = 1>(c) y = Add(d, e) }"
    )
    model = jaxops.onnx.load(parser.parse_model(text))
    assert set(model.params) == {"w", "Scale/w"}
    model.save(tmp_path / "same.onnx", {name: w * 2 for name, w in model.params.items()})
    agree(tmp_path / "same.onnx", model.apply({name: w * 2 for name, w in model.params.items()}, X), {"x": X})
    with pytest.raises(UnsupportedError, match="'Scale/w' and 'w' are one constant of the function 'Scale'"):
        model.save(tmp_path / "not.onnx", tuned(model))
    assert not (tmp_path / "not.onnx").exists()


def external_model(folder):
    """A file whose weight, and a table that is none, are in another file."""
    weight = np.arange(1024 * 4, dtype=F).reshape(4, 1024) / 4096
    rows = np.arange(3, dtype=np.int64)[::-1].copy()
    tensors = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(rows, "rows")]
    nodes = [helper.make_node("Gather", ["x", "rows"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    info = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 1024]),
    ]
    graph = helper.make_graph(nodes, "m", info[:1], info[1:], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, folder / "m.onnx", save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    return folder / "m.onnx"


def test_external_data_stay_beside_the_file(tmp_path):
    model = jaxops.onnx.load(external_model(tmp_path))
    params = tuned(model)
    model.save(tmp_path / "tuned.onnx", params)
    expected = model.apply(params, X)
    (tmp_path / "m.onnx.data").unlink()
    agree(tmp_path / "tuned.onnx", expected, {"x": X})
    [data] = data_of(tmp_path / "tuned.onnx")
    assert data.stat().st_size >= params["w"].nbytes
    assert (tmp_path / "tuned.onnx").stat().st_size < 1024


def data_of(path):
    """The data files that `save` wrote for a model, now or earlier."""
    return sorted(path.parent.glob(f"{path.name}.{'[0-9a-f]' * 32}.data"))


def test_a_model_may_be_saved_over_itself(tmp_path):
    path = external_model(tmp_path)
    model = jaxops.onnx.load(path)
    params = tuned(model)
    expected = model.apply(params, X)
    model.save(path, params)
    agree(path, expected, {"x": X})
    assert len(data_of(path)) == 1
    assert (tmp_path / "m.onnx.data").exists()  # not a name of `save`
    model.save(path, params)  # read again, and written under the same names
    agree(path, expected, {"x": X})
    again, other = jaxops.onnx.load(path), {name: 2 * w for name, w in params.items()}
    expected, own = again.apply(other, X), again(X)
    unread = jaxops.onnx.load(path)
    unread.save(path, other)
    agree(path, expected, {"x": X})
    assert len(data_of(path)) == 1
    np.testing.assert_array_equal(unread(X), own)  # its own weights are still the ones that it was loaded with


def test_data_of_other_models_stay(tmp_path):
    """Only the data that the replaced file names, under a name of `save`, are removed."""
    path = external_model(tmp_path)
    model = jaxops.onnx.load(path)
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    model.save(first)
    model.save(second)
    [old] = data_of(first)
    not_named = tmp_path / f"a.onnx.{'0' * 32}.data"
    not_named.write_bytes(b"mine")
    model.save(first, tuned(model))
    assert not old.exists()
    assert len(data_of(second)) == 1
    assert not_named.exists()
    assert (tmp_path / "m.onnx.data").exists()
    model.save(first, tuned(model))
    assert len(data_of(first)) == 2
    first.write_text("not a model")
    model.save(first)
    assert len(data_of(first)) == 3  # the file that was replaced names none


@pytest.mark.parametrize("renamed", [0, 1])
def test_a_crash_between_two_steps_leaves_the_old_model(tmp_path, monkeypatch, renamed):
    """The old model still reads its old data, whichever step was the last."""
    path = tmp_path / "tuned.onnx"
    model = jaxops.onnx.load(external_model(tmp_path))
    params = tuned(model)
    model.save(path, params)
    expected, count = model.apply(params, X), iter(range(3))
    plain = Path.replace

    def crash(file, goal):
        if next(count) == renamed:
            raise KeyboardInterrupt
        return plain(file, goal)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            model.save(path)
    agree(path, expected, {"x": X})
    model.save(path)
    agree(path, model(X), {"x": X})


def test_links_are_followed_and_permissions_stay(tmp_path):
    path = external_model(tmp_path)
    model, store = jaxops.onnx.load(path), tmp_path / "store"
    store.mkdir()
    link = tmp_path / "link.onnx"
    link.symlink_to("store/tuned.onnx")
    for _ in range(2):
        model.save(link, tuned(model))
        assert link.is_symlink()
        assert min(p.name for p in store.iterdir()) == "tuned.onnx"
        assert len(data_of(store / "tuned.onnx")) == 1
        agree(store / "tuned.onnx", model.apply(tuned(model), X), {"x": X})
        np.testing.assert_array_equal(jaxops.onnx.load(link)(X), jaxops.onnx.load(store / "tuned.onnx")(X))
        (store / "tuned.onnx").chmod(0o600)
    assert (store / "tuned.onnx").stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_what_protobuf_cannot_hold_goes_beside(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "LARGEST", 1000)
    shutil.copy(MODELS / "resnet.script.onnx", tmp_path / "m.onnx")
    model, inputs = jaxops.onnx.load(tmp_path / "m.onnx"), inputs_of("resnet")
    model.save(tmp_path / "tuned.onnx")
    assert len(data_of(tmp_path / "tuned.onnx")) == 1
    np.testing.assert_allclose(runtime(tmp_path / "tuned.onnx", inputs)[0], model(**inputs), rtol=1e-4, atol=1e-5)


def test_types_of_the_file_are_kept(tmp_path):
    text = "m (double[4] x, bfloat16[4] v) => (double[4] y, bfloat16[4] u) { y = Mul(x, w) u = Mul(v, b) }"
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    proto.graph.initializer.append(numpy_helper.from_array(np.arange(4.0), "w"))
    proto.graph.initializer.append(helper.make_tensor("b", TensorProto.BFLOAT16, [4], [1, 2, 3, 4]))
    model = jaxops.onnx.load(proto)
    model.save(tmp_path / "tuned.onnx", {name: np.asarray(w) * 2 for name, w in model.params.items()})
    found = {t.name: t for t in onnx.load(tmp_path / "tuned.onnx").graph.initializer}
    assert found["w"].data_type == TensorProto.DOUBLE
    assert found["b"].data_type == TensorProto.BFLOAT16
    np.testing.assert_array_equal(numpy_helper.to_array(found["w"]), np.arange(4.0) * 2)
    np.testing.assert_array_equal(numpy_helper.to_array(found["b"]).astype(F), [2, 4, 6, 8])


def test_errors(tmp_path):
    model = jaxops.onnx.load(MODELS / "resnet.script.onnx")
    name, weight = next(iter(model.params.items()))
    for value, kind, text in (
        (weight[:1], ShapeError, f"save: '{name}' has shape .* but the model has"),
        (weight.astype(np.float16), DTypeError, rf"save: '{name}' is float16, but the model has float32\n.*astype"),
    ):
        with pytest.raises(kind, match=text):
            model.save(tmp_path / "m.onnx", {**model.params, name: value})
    with pytest.raises(SignatureError, match=r"params: .* is missing"):
        model.save(tmp_path / "m.onnx", {})
    bare = jaxops.model.Model(model.graph, opsets={}, description="")
    with pytest.raises(UnsupportedError, match="the model was not loaded from a file"):
        bare.save(tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_after_astype_the_file_has_its_own_types_and_the_weights_their_rounded_values(tmp_path, dtype):
    model = jaxops.onnx.load(MODELS / "bert.script.onnx")
    narrow = model.astype(dtype)
    params = {name: value * 2 for name, value in narrow.params.items()}
    narrow.save(tmp_path / "m.onnx", params)
    onnx.checker.check_model(tmp_path / "m.onnx")
    again = jaxops.onnx.load(tmp_path / "m.onnx")
    assert again.params.keys() == params.keys()
    for name, value in again.params.items():
        assert value.dtype == model.params[name].dtype
        np.testing.assert_array_equal(value, np.asarray(params[name], np.float32))
