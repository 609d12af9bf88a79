"""Sizes for inputs that are made up: `summary`, `plot` and `run` without inputs find the smallest that fit."""

import numpy as np
import pytest
from onnx import numpy_helper, parser

import jaxops.onnx
from jaxops.command_line import main
from jaxops.errors import ArgumentError, StaticError

F = np.float32


def proto_of(body, opset=18, **constants):
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{body}')
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    return proto


WINDOW = proto_of(
    "m (float[N,1,H,W] x) => (float[N,2,P,Q] y) { a = Conv(x, w) y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>"
    "(a) }",
    w=np.ones((2, 1, 5, 3), F),
)
# As a detector: down twice, up again, and both side by side.
PYRAMID = proto_of(
    "m (float[N,1,H,W] x) => (float[N,2,P,Q] y) { a = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) "
    "b = Resize(a, , s) y = Concat<axis = 1>(x, b) }",
    s=np.array([1, 1, 2, 2], F),
)
CACHE = proto_of(
    "m (float[B,S,4] x, float[B,T] mask, float[B,P,4] past) => (float[B,S,4] y, float[B,R,4] present) "
    "{ present = Concat<axis = 1>(past, x) t = Transpose<perm = [0, 2, 1]>(present) a = MatMul(x, t) "
    "one = Constant<value_ints = [1]>() m = Unsqueeze(mask, one) b = MatMul(m, present) c = MatMul(a, present) "
    "y = Add(b, c) }"
)
TABLE = proto_of(
    "m (int64[B,S] ids) => (float[B,S,4] y) { n = Shape<start = 1, end = 2>(ids) z = Constant<value_ints = [0]>() "
    "p = Slice(table, z, n, z) e = Gather(words, ids) y = Add(e, p) }",
    table=np.ones((6, 4), F),
    words=np.ones((9, 4), F),
)
HALVES = proto_of("m (float[N,6] x) => (float[P,Q] y) { k = Constant<value_ints = [4, -1]>() y = Reshape(x, k) }")
NAMED = proto_of(
    "m (float[B,past] a, float[B,new] b, float[B,T] c) => (float[B,U] y) { d = Concat<axis = 1>(a, b) y = Add(c, d) }"
)
NAMED.graph.input[2].type.tensor_type.shape.dim[1].dim_param = "past + new"
FREE = proto_of(
    "m (float[A,B] x) => (float[P,Q] y) { a = Unsqueeze(x, z) y = Conv(a, w) }",
    w=np.ones((1, 1, 7), F),
    z=np.array([0]),
)
for size in FREE.graph.input[0].type.tensor_type.shape.dim:
    size.ClearField("dim_param")
CROPPED = proto_of("m (float[N,T] x) => (float[N,P] y) { y = Pad(x, p) }", p=np.array([0, -3, 0, -4]))

# name → (model, the last output of the summary)
CASES = {
    "a window": (WINDOW, "float32[1, 2, 1, 1]"),
    "multiples": (PYRAMID, "float32[1, 2, 2, 2]"),
    "a cache": (CACHE, "float32[1, 1, 4]"),
    "a table": (TABLE, "float32[1, 1, 4]"),
    "a divisor": (HALVES, "float32[4, 3]"),
    "a declared sum": (NAMED, "float32[1, 2]"),
    "sizes without a name": (FREE, "float32[1, 1, 1]"),
    "a cropped axis": (CROPPED, "float32[1, 1]"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_smallest_sizes_that_fit(name):
    proto, output = CASES[name]
    model = jaxops.onnx.load(proto)
    assert model.summary().rows[0].output == output
    model.plot()  # follows names, or finds numbers


def test_what_is_given_stays():
    model = jaxops.onnx.load(PYRAMID)
    assert model.summary(sizes={"N": 3, "W": 8}).rows[0].output == "float32[3, 2, 2, 8]"
    assert model.summary(sizes={"N": 3, "W": 8, "H": 4}).rows[0].output == "float32[3, 2, 4, 8]"
    assert jaxops.onnx.load(CACHE).summary(sizes={"P": 6}).rows[0].output == "float32[1, 1, 4]"
    with pytest.raises(ValueError, match="concat: operand 1 of"):
        model.summary(sizes={"N": 1, "W": 7, "H": 4})


def test_an_output_may_be_empty_whatever_comes_in():
    body = "m (float[N] x) => (float[P] y) { z = Constant<value_ints = [0]>() y = Slice(x, z, z) }"
    assert jaxops.onnx.load(proto_of(body)).summary().rows[0].output == "float32[0]"


def test_it_says_which_to_give():
    body = "m (float[N,M] x) => (float[6] y, float[5] z) { y = Reshape(x, a) z = Reshape(x, b) }"
    model = jaxops.onnx.load(proto_of(body, a=np.array([6]), b=np.array([5])))
    with pytest.raises(ArgumentError, match=r"summary: none of the sizes .*\n.*'N': 1.*reshape.*\n.*sizes={'N': 128"):
        model.summary()
    static = jaxops.onnx.load(proto_of("m (float[N] x, int64[K] s) => (float[P] y) { y = Reshape(x, s) }"))
    with pytest.raises(StaticError, match="summary: give example inputs: 's' must be known"):
        static.summary()
    with pytest.raises(ArgumentError, match="plot: the model has no size 'Z'; its sizes are: N, H, W"):
        jaxops.onnx.load(WINDOW).plot(sizes={"Z": 2})
    for number in (-1, 2.5, "b", True):
        with pytest.raises(ArgumentError, match=rf"sizes: 'N' is {number!r}; it must be an integer of at least 0"):
            model.summary(sizes={"N": number})


def test_a_size_may_be_a_number_of_numpy():
    model = jaxops.onnx.load(WINDOW, sizes={"N": np.int64(3)})
    assert model.inputs[0].shape[0] == 3
    assert "float32[3" in str(model.summary())
    assert "float32[3" in str(jaxops.onnx.load(WINDOW).summary(sizes={"N": np.int64(3)}))


def test_commands_make_up_inputs_that_fit(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("jaxops.frontend.loading.keep_programs", lambda folder: None)  # the folder is that of a process
    for name, proto in {"pyramid": PYRAMID, "cache": CACHE}.items():
        (tmp_path / f"{name}.onnx").write_bytes(proto.SerializeToString())
    options = ["--repeat=1", f"--cache={tmp_path}"]
    assert main(["run", str(tmp_path / "pyramid.onnx"), *options]) == 0
    assert main(["run", str(tmp_path / "pyramid.onnx"), *options, "--size=W=6"]) == 0
    assert main(["summary", str(tmp_path / "cache.onnx")]) == 0
    capsys.readouterr()
    np.save(tmp_path / "past.npy", np.ones((2, 5, 4), F))
    assert main(["run", str(tmp_path / "cache.onnx"), *options, f"--input=past={tmp_path / 'past.npy'}"]) == 0
    assert main(["run", str(tmp_path / "cache.onnx"), *options, "--size=Z=6"]) == 1
    assert "--size: the model has no size 'Z'; its sizes are: B, S, T, P" in capsys.readouterr().err
