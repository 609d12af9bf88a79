"""Files that hold tensors: what may lie there, and what happens when they change between loading and reading."""

import os
import threading
from pathlib import Path

import jax
import numpy as np
import pytest
from graphs import build, node, tensor
from onnx import ModelProto, TensorProto, helper, numpy_helper

from jaxops.errors import DTypeError, ModelError, PathError, SignatureError
from jaxops.onnx import load, read

X = np.ones((2, 3), np.float32)
W = np.float32([1, 2, 3])


def outside(values, name, location):
    """A tensor whose data is in a file."""
    found = TensorProto(name=name, data_type=numpy_helper.from_array(values).data_type, dims=values.shape)
    found.data_location = TensorProto.EXTERNAL
    found.external_data.add(key="location", value=location)
    return found


def saved(folder: Path, location="w.bin", values=W):
    """A model in a folder, which adds `w` of a file beside it to its input."""
    folder.mkdir(exist_ok=True)
    (folder / location).parent.mkdir(exist_ok=True)
    (folder / location).write_bytes(values.tobytes())
    proto = build(node("Add", ["x", "w"], ["y"]), initializers=[outside(values, "w", location)])
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


def sparse_model(as_constant):
    """A model whose sparse tensor (0, 7, 9) has both its values and its indices in files."""
    values, indices = outside(np.float32([7, 9]), "w", "values.bin"), outside(np.int64([1, 2]), "", "indices.bin")
    found = helper.make_sparse_tensor(values, indices, [3])
    if as_constant:
        return build(node("Constant", [], ["w"], sparse_value=found), node("Add", ["x", "w"], ["y"]))
    return build(node("Add", ["x", "w"], ["y"]), sparse=[found])


@pytest.mark.parametrize("as_constant", [False, True], ids=["initializer", "Constant"])
def test_sparse_tensors_are_read_from_the_folder_of_the_model_alone(tmp_path, monkeypatch, as_constant):
    proto = sparse_model(as_constant)
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder, values in ((home, [7, 9]), (elsewhere, [5, 5])):
        folder.mkdir()
        (folder / "values.bin").write_bytes(np.float32(values).tobytes())
        (folder / "indices.bin").write_bytes(np.int64([1, 2]).tobytes())
    (home / "m.onnx").write_bytes(proto.SerializeToString())
    monkeypatch.chdir(elsewhere)
    assert load(home / "m.onnx")(X).tolist() == [[1, 8, 10]] * 2
    for given in (proto, proto.SerializeToString()):
        with pytest.raises(ModelError, match=r"external data 'values\.bin' needs the model's folder"):
            load(given)
    (home / "indices.bin").unlink()
    with pytest.raises(ModelError, match=r"external data 'indices\.bin' is missing"):
        load(home / "m.onnx")


def swapped_for_a_link(path, secret):
    path.unlink()
    path.symlink_to(secret)


def swapped_for_a_pipe(path, secret):
    path.unlink()
    os.mkfifo(path)


def swapped_for_a_directory(path, secret):
    path.unlink()
    path.mkdir()


def swapped_for_more(path, secret):
    path.write_bytes(bytes(16))


def swapped_for_less(path, secret):
    path.write_bytes(bytes(8))


def gone(path, secret):
    path.unlink()


def in_a_linked_folder(path, secret):
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(secret.parent)


SWAPS = [
    (swapped_for_a_link, "has become a link, which is not followed"),
    (swapped_for_a_pipe, "is not a regular file"),
    (swapped_for_a_directory, "is not a regular file"),
    (swapped_for_more, "its data is damaged: '.*' has 16 bytes, but had 12 when the model was loaded"),
    (swapped_for_less, "its data is damaged: '.*' has 8 bytes, but had 12"),
    (gone, "its file cannot be opened: .*No such file"),
    (in_a_linked_folder, "has become a link, which is not followed"),
]


@pytest.mark.parametrize(("swap", "text"), SWAPS, ids=[swap.__name__ for swap, _ in SWAPS])
def test_a_file_that_another_takes_the_place_of_after_loading(tmp_path, swap, text):
    """The model says so, and is as good as before once the file is back."""
    model = load(saved(tmp_path / "model", "data/w.bin"))
    path, secret = tmp_path / "model/data/w.bin", tmp_path / "secret/w.bin"
    secret.parent.mkdir()
    secret.write_bytes(np.float32([6, 6, 6]).tobytes())
    swap(path, secret)
    for use in (lambda: model.params, lambda: model(X), lambda: model.trainable):
        with pytest.raises(ModelError, match=f"tensor 'w' of shape .3,.: .*{text}"):
            use()
    if path.parent.is_symlink():
        path.parent.unlink()
        path.parent.mkdir()
    elif path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(W.tobytes())
    assert model(X).tolist() == (X + W).tolist()
    assert model.trainable == {"w": True}


@pytest.mark.parametrize(
    ("swap", "text"),
    [
        (swapped_for_a_pipe, "is not a regular file"),
        (swapped_for_a_directory, "is missing: there is no file"),
    ],
)
def test_what_is_no_file_of_its_own_is_refused_at_load(tmp_path, swap, text):
    path = saved(tmp_path / "model")
    (tmp_path / "secret").write_bytes(bytes(12))
    swap(path.parent / "w.bin", tmp_path / "secret")
    with pytest.raises(ModelError, match=f"tensor 'w': external data 'w.bin'.*{text}"):
        load(path)


def as_hugging_face_keeps_them(folder: Path, location="model.onnx_data"):
    """The cache of Hugging Face: model and data are links, each alone, to files that are named by their content."""
    plain = saved(folder / "plain", location)
    blobs, snapshot = folder / "models--a--b/blobs", folder / "models--a--b/snapshots/5f3c/onnx"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name, found, blob in (("model.onnx", plain, "1a"), (location, plain.parent / location, "2b")):
        found.rename(blobs / blob)
        (snapshot / name).parent.mkdir(exist_ok=True)
        (snapshot / name).symlink_to(os.path.relpath(blobs / blob, (snapshot / name).parent))
    return snapshot / "model.onnx"


@pytest.mark.parametrize("location", ["model.onnx_data", "data/model.onnx_data"])
def test_the_cache_of_hugging_face(tmp_path, monkeypatch, location):
    path = as_hugging_face_keeps_them(tmp_path, location)
    monkeypatch.chdir(path.parents[2])
    with path.open("rb") as file:
        models = [load(path), load(str(path.relative_to(path.parents[2]))), load(file)]
    # A path without links does not say where the data is.
    with pytest.raises(
        ModelError, match=rf"'{location}' is missing: there is no file '.*'; give the folder that has it"
    ):
        load(path.resolve())
    models.append(load(path.resolve(), external_data=path.parent))
    monkeypatch.chdir(tmp_path)
    for model in models:
        assert model(X).tolist() == (X + W).tolist()
        assert model.params["w"].tolist() == W.tolist()
        assert model.compare(X).agrees


def test_the_cache_of_hugging_face_stays_as_it_is_when_a_model_is_saved_over_it(tmp_path):
    path = as_hugging_face_keeps_them(tmp_path)
    before = {file.name: file.read_bytes() for file in path.resolve().parent.iterdir()}
    load(path).save(path, {"w": 2 * W})
    assert not path.is_symlink()
    assert load(path)(X).tolist() == (X + 2 * W).tolist()
    assert {file.name: file.read_bytes() for file in (tmp_path / "models--a--b/blobs").iterdir()} == before


def test_what_is_saved_without_change_comes_from_behind_the_links(tmp_path):
    path = as_hugging_face_keeps_them(tmp_path)
    values = np.arange(2048, dtype=np.int64)
    path.with_name("model.onnx_data").resolve().write_bytes(values.tobytes())
    proto = ModelProto.FromString(path.read_bytes())
    proto.graph.initializer[0].CopyFrom(outside(values, "w", "model.onnx_data"))
    proto.graph.initializer.append(tensor(np.int64([3]), "i"))
    proto.graph.node[0].CopyFrom(node("Gather", ["w", "i"], ["y"]))
    path.resolve().write_bytes(proto.SerializeToString())
    load(path).save(tmp_path / "again.onnx")
    assert load(tmp_path / "again.onnx")(X).tolist() == [3]


def test_a_link_to_a_model_alone(tmp_path):
    path = saved(tmp_path / "model")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/m.onnx").symlink_to(path)
    model = load(tmp_path / "links/m.onnx")
    assert model(X).tolist() == (X + W).tolist()
    assert model.compare(X).agrees
    # What lies beside the link comes first, as in onnxruntime.
    (tmp_path / "links/w.bin").write_bytes((2 * W).tobytes())
    assert load(tmp_path / "links/m.onnx")(X).tolist() == (X + 2 * W).tolist()


def test_a_file_with_several_names(tmp_path):
    """Package managers install files as hard links to those of their cache."""
    path = saved(tmp_path / "model")
    (tmp_path / "other name").hardlink_to(path.parent / "w.bin")
    (tmp_path / "another name").hardlink_to(path)
    model = load(path)
    assert model(X).tolist() == (X + W).tolist()
    assert model.compare(X).agrees


def test_data_in_a_given_folder(tmp_path):
    path = saved(tmp_path / "model")
    data = path.read_bytes()
    (tmp_path / "weights").mkdir()
    (path.parent / "w.bin").rename(tmp_path / "weights/w.bin")
    with path.open("rb") as file:
        for given in (path, str(path), data, ModelProto.FromString(data), file):
            model = load(given, external_data=tmp_path / "weights")
            assert model(X).tolist() == (X + W).tolist()
            assert model.compare(X).agrees
            model.save(tmp_path / "again.onnx")
            assert load(tmp_path / "again.onnx")(X).tolist() == (X + W).tolist()
    # No other folder is searched then.
    (tmp_path / "empty").mkdir()
    (path.parent / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(ModelError, match=r"'w\.bin' is missing: there is no file '.*empty/w\.bin'"):
        load(path, external_data=tmp_path / "empty")


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ("nowhere", PathError, "load: `external_data` '.*nowhere' is not a folder"),
        ("model/m.onnx", PathError, r"load: `external_data` '.*m\.onnx' is not a folder"),
        ("model/\0", PathError, "load: `external_data` '.*' cannot be looked up: .*null"),
        (3, SignatureError, "load: `external_data` is 3; it must be the path of a folder"),
        (b"model", SignatureError, "load: `external_data` is b'model'; it must be the path of a folder"),
    ],
)
def test_what_is_no_folder_of_external_data(tmp_path, given, error, text):
    path = saved(tmp_path / "model")
    with pytest.raises(error, match=text):
        load(path, external_data=f"{tmp_path}/{given}" if isinstance(given, str) else given)


@pytest.mark.parametrize("location", ["w.bin", "../../secret/w.bin", "folder/w.bin"])
def test_what_lies_outside_of_all_folders_is_refused(tmp_path, location):
    """The model's folder, that of the file behind its link, and a given one: a link or a path out of all of them."""
    path = as_hugging_face_keeps_them(tmp_path)
    proto = ModelProto.FromString(path.read_bytes())
    proto.graph.initializer[0].CopyFrom(outside(W, "w", location))
    path.resolve().write_bytes(proto.SerializeToString())
    secret, given = tmp_path / "secret/w.bin", tmp_path / "given"
    for folder in (secret.parent, given):
        folder.mkdir()
    secret.write_bytes(bytes(12))
    for folder in (path.parent, path.resolve().parent, given):
        (folder / "w.bin").symlink_to(secret)
        (folder / "folder").symlink_to(secret.parent)
    text = f"external data '{location}' lies outside the model's folder '.*' and '.*'; it is refused"
    for options in ({}, {"external_data": given}, {"external_data": path.parent}):
        with pytest.raises(ModelError, match=text):
            load(path, **options)
    with pytest.raises(ModelError, match=r"lies outside the model's folder '[^']*given'; it is refused"):
        load(proto, external_data=given)


def test_packed_types_are_read_with_the_same_checks(tmp_path):
    proto = build(node("DequantizeLinear", ["w", "s"], ["y"]), initializers=[tensor(np.float32(2), "s")])
    proto.opset_import[0].version = 21
    proto.graph.initializer.append(outside(np.zeros(4, jax.numpy.int4), "w", "w.bin"))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    (tmp_path / "w.bin").write_bytes(b"\x21\x43")
    tensors = read.read(tmp_path / "m.onnx").graph.initializers
    assert tensors["w"].load().tolist() == [1, 2, 3, 4]
    swapped_for_a_pipe(tmp_path / "w.bin", None)
    with pytest.raises(ModelError, match="is not a regular file"):
        tensors["w"].load()


def test_saving_reads_what_it_does_not_change_with_the_same_checks(tmp_path):
    values = np.arange(2048, dtype=np.int64)
    path = saved(tmp_path / "model", values=values)
    proto = ModelProto.FromString(path.read_bytes())
    proto.graph.node[0].CopyFrom(node("Gather", ["w", "i"], ["y"]))
    proto.graph.initializer.append(tensor(np.int64([3]), "i"))
    path.write_bytes(proto.SerializeToString())
    model = load(path)
    model.save(tmp_path / "again.onnx")
    assert load(tmp_path / "again.onnx")(X).tolist() == [3]
    swapped_for_a_link(path.parent / "w.bin", tmp_path / "again.onnx.data")
    with pytest.raises(ModelError, match="lies outside the model's folder"):
        model.save(tmp_path / "once_more.onnx")


def test_an_entry_of_external_data_that_is_no_utf_8(tmp_path):
    path = saved(tmp_path / "model")
    for word in (b"w.bin", b"location"):
        bad = path.parent / "bad.onnx"
        bad.write_bytes(path.read_bytes().replace(word, word[:-1] + b"\xff"))
        with pytest.raises(ModelError, match="is not UTF-8; the model is damaged"):
            load(bad)


def test_threads_that_ask_for_the_parameters_at_once(tmp_path):
    """Each tensor is read once, and all get the same arrays."""
    count = 40
    weights = [outside(W, f"w{k}", f"w{k}.bin") for k in range(count)]
    for k in range(count):
        (tmp_path / f"w{k}.bin").write_bytes((W + k).tobytes())
    proto = build(node("Sum", [f"w{k}" for k in range(count)], ["y"]), initializers=weights)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    for _ in range(3):
        model = load(tmp_path / "m.onnx")
        start, found, failed = threading.Barrier(4), [], []

        def use(model=model, start=start, found=found, failed=failed):
            start.wait()
            try:
                found.append((dict(model.params), dict(model.trainable), dict(model.paths)))
            except BaseException as error:  # it would be lost with the thread
                failed.append(error)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert len(found) == 4
        first = found[0]
        assert list(first[0]) == [f"w{k}" for k in range(count)]
        for params, trainable, paths in found:
            assert (trainable, paths) == first[1:]
            assert all(params[name] is first[0][name] for name in first[0])


def test_a_proto_may_be_changed_after_loading(tmp_path):
    proto = build(
        node("Add", ["x", "w"], ["h"]), node("Reshape", ["h", "s"], ["y"]),
        initializers=[tensor(W), tensor(np.int64([-1]), "s")],
    )  # fmt: skip
    model = load(proto)
    proto.graph.initializer[0].raw_data = bytes(12)
    proto.graph.node[0].op_type = "Mul"
    proto.graph.ClearField("output")
    assert model(X).tolist() == (X + W).ravel().tolist()
    model.save(tmp_path / "m.onnx")
    assert load(tmp_path / "m.onnx")(X).tolist() == (X + W).ravel().tolist()


def test_a_parameter_that_cannot_be_read_is_named():
    proto = build(node("Identity", ["w"], ["y"]))
    proto.graph.initializer.append(
        TensorProto(name="w", data_type=TensorProto.DataType.Value("FLOAT6E2M3"), dims=[4], raw_data=bytes(3))
    )
    for use in (lambda: load(proto).params, lambda: load(proto)(X)):
        with pytest.raises(DTypeError, match="JAX has no arrays of float6_e2m3fn") as raised:
            use()
        assert "in parameter 'w'" in raised.value.__notes__
