"""The files of a package that `Model.to_python` writes: what it does not overwrite, and types that no file has."""

import importlib.util
import os

import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import jaxops.onnx
from jaxops.command_line import main
from jaxops.errors import ExistsError

F = np.float32


def imported(folder):
    spec = importlib.util.spec_from_file_location(folder.name, folder / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_of(body, *constants, **options):
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{body}')
    proto.graph.initializer.extend(constants)
    return jaxops.onnx.load(proto, **options)


@pytest.fixture
def model():
    """A model with parameters, whose package has constants, too."""
    table = np.random.default_rng(0).integers(0, 9, (3, 40))
    return model_of(
        "m (float[3,40] x, int64[3,40] i) => (float[3,40] y, int64[3,40] j) { y = Mul(x, w) j = Add(i, t) }",
        numpy_helper.from_array(np.linspace(0, 1, 120, dtype=F).reshape(3, 40), "w"),
        numpy_helper.from_array(table, "t"),
    )


@pytest.fixture
def smaller():
    """Another one without constants."""
    return model_of("m (float[N] x) => (float[N] y) { y = Neg(x) }")


FILES = ["__init__.py", "params.safetensors", "constants.npz"]


def test_a_package_is_replaced_as_it_was_written(model, smaller, tmp_path):
    folder = tmp_path / "net"
    model.to_python(folder)
    assert all((folder / name).exists() for name in FILES)
    imported(folder)  # leaves a cache of Python's behind
    (folder / "train.py").write_text("mine")
    smaller.to_python(folder)
    assert imported(folder).apply({}, np.ones(2, F)).tolist() == [-1, -1]
    assert not (folder / "constants.npz").exists()
    assert (folder / "train.py").read_text() == "mine"


def test_an_empty_folder_is_taken(smaller, tmp_path):
    smaller.to_python(tmp_path)
    assert (tmp_path / "__init__.py").exists()


@pytest.mark.parametrize("name", FILES)
def test_an_edited_file_is_kept(model, smaller, tmp_path, name):
    folder = tmp_path / "net"
    model.to_python(folder)
    with (folder / name).open("ab") as file:
        file.write(b"# mine")
    before = (folder / name).read_bytes()
    with pytest.raises(
        ExistsError, match=rf"'.*net' was edited since it was written: {name}\n.*overwrite=True"
    ) as info:
        smaller.to_python(folder)
    assert isinstance(info.value, FileExistsError)
    assert (folder / name).read_bytes() == before
    smaller.to_python(folder, overwrite=True)
    assert imported(folder).apply({}, np.ones(2, F)).tolist() == [-1, -1]
    smaller.to_python(folder)  # is as it was written again


def test_what_was_not_written_by_it_is_kept(smaller, tmp_path):
    (tmp_path / "__init__.py").write_text("mine")
    with pytest.raises(ExistsError, match=r"was not written by to_python\n.*overwrite=True \(--overwrite"):
        smaller.to_python(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(ExistsError, match="was not written by to_python"):
        smaller.to_python(tmp_path / "other")
    with pytest.raises(ExistsError, match=r"__init__.py' is a file; give a folder"):
        smaller.to_python(tmp_path / "__init__.py")
    assert (tmp_path / "__init__.py").read_text() == "mine"


def test_an_error_leaves_the_folder_as_it_was(model, tmp_path):
    folder = tmp_path / "net"
    model.to_python(folder)
    before = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    text = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]> m (float[N] x) => (float[N] y) { y = my.F(x) }'
    own = jaxops.onnx.load(parser.parse_model(text), operators={("my", "F"): lambda x: x})
    with pytest.raises(NotImplementedError):
        own.to_python(folder)
    assert {name: (folder / name).read_bytes() for name in os.listdir(folder)} == before


def test_the_command_line_asks_before_it_overwrites(smaller, tmp_path, capsys):
    smaller.save(tmp_path / "m.onnx")
    command = ["to-python", str(tmp_path / "m.onnx"), str(tmp_path / "net")]
    assert main(command) == 0
    assert "sha256" not in capsys.readouterr().out
    (tmp_path / "net" / "__init__.py").write_text("mine")
    assert main(command) == 1
    assert "was edited since it was written: __init__.py" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    assert "def apply" in (tmp_path / "net" / "__init__.py").read_text()


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2fnuz"])
@pytest.mark.parametrize("size", [20, 2000])  # a constant and a parameter
def test_weights_of_types_that_files_lack(tmp_path, dtype, size):
    kind = np.dtype(getattr(jnp, dtype))
    weights = (np.arange(size) % 7).astype(F).astype(kind)
    model = model_of(
        f"m (float[N,{size}] x) => (float[N,{size}] y) "
        "{ s = Constant<value = float {0.1}>() q = DequantizeLinear(w, s) y = Mul(x, q) }",
        numpy_helper.from_array(weights, "w"),
    )
    model.to_python(tmp_path / "net")
    package, x = imported(tmp_path / "net"), np.ones((1, size), F)
    params = package.load_params()
    assert {name: w.dtype for name, w in params.items()} == dict.fromkeys(model.params, kind)
    np.testing.assert_array_equal(package.apply(params, x), model.apply(model.params, x))
    np.testing.assert_allclose(package.apply(params, x)[0], np.arange(size) % 7 * F(0.1), rtol=1e-6)


def test_static_values_of_types_that_files_lack(tmp_path):
    table = np.arange(20)[::-1].astype(jnp.bfloat16)
    model = model_of(
        "m (bfloat16[20] x) => (bfloat16[20] y) { y = Add(x, t) }", numpy_helper.from_array(table, "t"), static=["t"]
    )
    model.to_python(tmp_path / "net")
    found = imported(tmp_path / "net")
    y = found.apply(found.load_params(), np.ones(20, jnp.bfloat16))
    assert y.dtype == jnp.bfloat16
    assert np.asarray(y, F).tolist() == list(range(20, 0, -1))


def test_many_strings_are_written_in_place(tmp_path):
    words = [f'w{i}"\\' for i in range(20)]
    tensor = helper.make_tensor("t", TensorProto.STRING, [4, 5], [word.encode() for word in words])
    model = model_of("m (string[4,5] x) => (string[8,5] y) { y = Concat<axis = 0>(x, t) }", tensor)
    model.to_python(tmp_path / "net")
    x = np.full((4, 5), "a", object)
    assert imported(tmp_path / "net").apply({}, x)[4:].ravel().tolist() == words
