"""What a newcomer gets wrong in the first minutes: each message says what to write."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

import jaxops
import jaxops as jo
import jaxops.openvino
from jaxops.errors import (
    ArgumentError,
    DTypeError,
    ModelError,
    OutOfRangeError,
    PathError,
    ShapeError,
    SignatureError,
    StaticError,
)
from jaxops.onnx import load, opset

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
X = np.ones((2, 3), np.float32)
PRODUCT = load(
    model("main (float[N,3] x) => (float[N,3] y) { y = MatMul(x, w) }", initializers={"w": np.eye(3, dtype="f4")})
)
MASKED = load(model("main (float[N] x, int64[N] mask) => (float[N] y) { m = Cast<to = 1>(mask) y = Mul(x, m) }"))
BYTES = load(
    model(
        "main (float[N,3] x) => (float[N,2000] y) { q, s, z = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, z) "
        "f = Cast<to = 1>(i) g = Mul(f, s) y = Mul(g, c) }",
        initializers={"w": np.ones((3, 2000), np.int8), "c": np.ones(2000, np.float32)},
    )
)
HALF = load(model("main (bfloat16[N] x) => (bfloat16[N] y) { y = Add(x, x) }"))


@pytest.mark.parametrize("name", ["jaxprs", "onnx", "openvino", "sharding"])
def test_a_module_is_imported_at_its_first_use(name):
    code = f"import sys, jaxops as jo; before = 'jaxops.{name}' in sys.modules; print(before, jo.{name}.__name__)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", f"jaxops.{name}"]


def test_without_onnx_the_operators_work_and_the_front_end_says_what_to_install():
    code = (
        "import pydoc, sys; sys.modules['onnx'] = None; import jaxops as jo; print(jo.relu(-1.0))\n"
        "assert 'sharding' in dir(jo) and 'onnx' not in dir(jo) and pydoc.render_doc(jo)\n"
        "try:\n    jo.onnx\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split("\n")[1].startswith("jaxops.onnx needs the onnx package; install the extra")


@pytest.mark.parametrize(
    ("owner", "name", "match"),
    [
        (jo, "Relu", "module 'jaxops' has no attribute 'Relu'; similar: 'relu'$"),
        (jo, "LSTM", "similar: 'lstm'$"),
        (jo, "GlobalAveragePool", "similar: 'global_average_pool'$"),
        (jo, "flaten", "module 'jaxops' has no attribute 'flaten'; similar: 'flatten'"),
        (jo, "xyzzy", "module 'jaxops' has no attribute 'xyzzy'$"),
        (opset(17), "Flaten", "Flaten: not in opset 17; the standard has no such operator; similar: 'Flatten'"),
        (opset(17), "batch_normalization", "no such operator; similar: 'BatchNormalization'$"),
        (opset(17), "Gelu", "Gelu: not in opset 17; it begins with opset 20$"),
    ],
)
def test_a_misspelt_operator(owner, name, match):
    assert not hasattr(owner, name)
    with pytest.raises(AttributeError, match=match):
        getattr(owner, name)


BEFORE = r"give a dictionary like model.params before the inputs: model.apply\(model.params, …\), or call model\(…\)"
WRONG = [
    (lambda: PRODUCT.apply(X), SignatureError, rf"apply: params is float32\[2,3\].*\n.*; {BEFORE}"),
    (lambda: PRODUCT.apply(jnp.ones((2, 3))), SignatureError, rf"apply: params is float32\[2,3\]; {BEFORE}"),
    (lambda: PRODUCT.apply({"x": X}), SignatureError, rf"(?s)apply: params is {{'x': array.*; {BEFORE}"),
    (lambda: HALF(X[0]), DTypeError, r"give it as bfloat16: x.astype\(jnp.bfloat16\)"),
    (lambda: PRODUCT(X.astype(np.float64)), DTypeError, r"give it as float32: x.astype\(np.float32\)"),
    (
        lambda: MASKED(X[0], np.bool_([True, False, True])),
        DTypeError,
        r"input 'mask' is bool\[3\].*\n.*give it as int64, 1 where the mask is True: x.astype\(np.int64\)",
    ),
    (
        lambda: opset(17).Add(X, np.float64(2)),
        DTypeError,
        r"got tensor\(float\) and tensor\(double\); convert with Cast",
    ),
    (lambda: jo.add(X, np.float64(2)), DTypeError, "got float32, float64; convert with jaxops.cast"),
]


@pytest.mark.parametrize(("use", "error", "match"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_a_wrong_argument(use, error, match):
    with pytest.raises(error, match=match):
        use()


IMAGES = load(model("main (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }"))
LAST = load(model("main (float[N,H,W,3] x) => (float[N,H,W,3] y) { y = Relu(x) }"))
PICTURE = np.ones((3, 4, 5), np.float32)


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (lambda: IMAGES(PICTURE), r"add the batch axis, also under jax.vmap: x\[None\]"),
        (lambda: jax.vmap(IMAGES)(PICTURE[None]), r"add the batch axis, also under jax.vmap: x\[None\]"),
        (lambda: IMAGES(PICTURE.transpose(1, 2, 0)[None]), r"transpose it: x.transpose\(0, 3, 1, 2\)"),
        (lambda: LAST(PICTURE[None]), r"transpose it: x.transpose\(0, 2, 3, 1\)"),
    ],
)
def test_a_shape_that_fits_otherwise(use, hint):
    with pytest.raises(ShapeError, match=rf"(?s)input 'x' has shape .*, but the model expects .*  hint    {hint}"):
        use()
    with pytest.raises(ShapeError, match=r"but the model expects [^\n]*$"):
        IMAGES(PICTURE[None, :2])
    for x, fits in ((PICTURE[None], IMAGES), (PICTURE[None].transpose(0, 2, 3, 1), LAST)):
        assert fits(x).shape == x.shape


FILES = [
    (load, "model.xml", "jaxops.openvino.load reads OpenVINO IRs"),
    (load, "model.pt", r"export the PyTorch module: load\(torch.onnx.export\(module, \(x,\), dynamo=True\)\)"),
    (jaxops.openvino.load, "model.onnx", "jaxops.onnx.load reads ONNX files"),
]


@pytest.mark.parametrize(("read", "name", "hint"), FILES, ids=[name for _, name, _ in FILES])
def test_a_file_of_another_format(read, name, hint, tmp_path):
    (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(ModelError, match=f"(?s)not .*hint    {hint}"):
        read(tmp_path / name)
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(ModelError) as raised:
        read(tmp_path / "other")
    assert "hint" not in str(raised.value)


def test_nested_parameters_say_how_to_flatten_them():
    digits, image = load(NOTEBOOKS / "digits.onnx"), np.load(NOTEBOOKS / "seven.npy")
    nested = digits.nest(digits.params)
    with pytest.raises(SignatureError, match=r"params: 'hidden.weight' is missing.*\n.*model.flatten makes nested"):
        digits.apply(nested, image)
    assert digits.apply(digits.flatten(nested), image).argmax() == 7


def test_a_model_is_not_saved_in_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(PathError, match=r"save: there is no folder '.*missing'; make it first"):
        PRODUCT.save(tmp_path / "missing/model.onnx")
    PRODUCT.save(tmp_path / "model.onnx")
    assert load(tmp_path / "model.onnx").params["w"].shape == (3, 3)


def test_an_unknown_output_says_where_the_names_are():
    with pytest.raises(
        SignatureError, match=r"the model has no tensor 'probabilities'; model.show\(\) lists the tensors"
    ):
        PRODUCT(X, outputs=["probabilities"])
    assert "y = MatMul(x, w)" in PRODUCT.show()


def test_a_traced_shape_can_be_fixed():
    proto = model("main (float[N] x, int64[K] s) => (float[M] y) { y = Reshape(x, s) }")
    reshaped = load(proto)
    with pytest.raises(StaticError, match=r"(?s)input 's' must be known while tracing.*values={'s': value}\)"):
        jax.jit(reshaped.apply)({}, jnp.ones(6), jnp.array([2, 3]))
    assert jax.jit(load(proto, values={"s": [2, 3]}).apply)({}, jnp.ones(6)).shape == (2, 3)


def test_a_state_that_lacks_a_variable():
    sums = jaxops.openvino.load(NOTEBOOKS / "running_sum.xml")
    with pytest.raises(
        SignatureError, match=r"variable 'total' is missing.*\n.*that model.init\(params, \*inputs\) or"
    ):
        sums.step(sums.params, {}, np.float32([1, 2]))
    state = sums.init(sums.params, np.float32([1, 2]))
    assert sums.step(sums.params, state, np.float32([1, 2]))[1].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("length", "kind", "match"),
    [
        ("a", DTypeError, "decoder: `length` must be integers, got str"),
        (0, ArgumentError, "decoder: `length` is 0; it must be at least 1"),
    ],
)
def test_the_length_of_a_decoder_is_a_number_of_tokens(length, kind, match):
    with pytest.raises(kind, match=match):
        jaxops.onnx.decoder(load(NOTEBOOKS / "verses.onnx"), length=length)


def test_python_numbers_take_the_type_of_the_other_operand():
    assert jo.add(X, 2.0).dtype == opset(17).Add(X, 2.0).dtype == np.float32
    assert PRODUCT(X.tolist()).dtype == np.float32


def test_a_large_input_is_named():
    with pytest.raises(OutOfRangeError, match="the int64 value 1099511627776 does not fit int32") as raised:
        MASKED(X[0], np.int64([2**40, 1, 1]))
    assert raised.value.__notes__ == ["in input 'mask'"]


def test_trainable_says_which_parameters_have_gradients():
    with pytest.raises(TypeError, match="grad requires real- or complex-valued inputs"):
        jax.grad(lambda params: BYTES.apply(params, X).sum())(BYTES.params)
    trained = {name: value for name, value in BYTES.params.items() if BYTES.trainable[name]}
    gradient = jax.grad(lambda trained: BYTES.apply({**BYTES.params, **trained}, X).sum())(trained)
    assert list(gradient) == ["c"]
    np.testing.assert_allclose(gradient["c"], np.full(2000, 6), rtol=0.01)


def test_a_list_of_dictionaries_from_jit_behaves_as_one():
    def maps(x):
        return jo.ml.zip_map(x, classlabels_strings=["a", "b", "c"])

    x = jnp.float32([[1, 2, 3], [4, 5, 6]])
    expected = [{"a": 1, "b": 2, "c": 3}, {"a": 4, "b": 5, "c": 6}]
    result = jax.jit(maps)(x)
    assert result == expected == list(result)
    assert (result[1], result[-2], result[1:]) == (expected[1], expected[0], expected[1:])
    assert len(result) == 2
    assert result != expected[:1]
    assert type(result[0]["a"]) is float
    with pytest.raises(IndexError):
        result[2]
    with pytest.raises(TypeError, match="unhashable"):
        hash(result)

    @jax.jit
    def inside(x):
        zipped = maps(x)
        assert len(zipped) == 2
        assert zipped == zipped
        assert zipped != maps(x)
        with pytest.raises(IndexError):
            zipped[2]
        return zipped[0]["b"] + zipped[-1]["c"], [row["a"] for row in zipped], zipped[1:]

    total, firsts, last = inside(x)
    assert (total, firsts, last) == (8, [1, 4], expected[1:])


FAILING = """
import sys, traceback, jax, jaxops as jo, jax.numpy as jnp

def user(x):
    return jo.reshape(x, (4, 2))

try:
    jax.jit(user)(jnp.ones(3))
except jo.JaxopsError as error:
    print(*(frame.name for frame in traceback.extract_tb(error.__traceback__) if 'jaxops' in frame.filename))
    print(*(frame.name for frame in traceback.extract_tb(error.__traceback__)))
"""


@pytest.mark.parametrize("filtering", ["remove_frames", "off"])
def test_tracebacks_show_the_lines_of_the_user(filtering):
    environment = {**os.environ, "JAX_TRACEBACK_FILTERING": filtering}
    process = subprocess.run(
        [sys.executable, "-c", FAILING], capture_output=True, text=True, check=True, env=environment
    )
    ours, names = process.stdout.splitlines()
    assert ("reshape" in ours) == (filtering == "off")
    assert "user" in names


def test_source_info_shows_the_line_of_the_user():
    closed = jax.make_jaxpr(lambda x: jo.flatten(x, axis=1))(jnp.ones((2, 3, 4)))
    text = closed.pretty_print(source_info=True)
    assert os.path.basename(__file__) in text
    assert os.path.dirname(jaxops.__file__) + os.sep not in text
