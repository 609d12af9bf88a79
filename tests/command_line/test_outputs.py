"""`run --output`: what `numpy.load` reads again, and which outputs are refused."""

import zipfile

import numpy as np
import pytest
from onnx import parser, save

import jaxops.onnx
from jaxops.command_line import main

X = np.linspace(0, 2, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a graph on X in a folder of its own; returns the exit code, what was printed, and the errors."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)

    def run(proto, output):
        save(proto, "model.onnx")
        code = main(["run", "model.onnx", "--input=x=x.npy", "--repeat=1", f"--output={output}"])
        return code, *capsys.readouterr()

    return run


def proto_of(graph):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": 23, "ai.onnx.ml": 3]>\n{graph}')


def two(name="a"):
    """A model of two outputs: `name`, which is -x, and `b`, which is x as booleans."""
    proto = proto_of("g (float[2,3] x) => (float[2,3] a, bool[2,3] b) { a = Neg(x) b = Cast<to = 9>(x) }")
    proto.graph.node[0].output[0] = proto.graph.output[0].name = name
    return proto


ODD = ["file", "args", "a/b", "../up", "/root", "naïve ✓", 'q"*?<>|:', "a\\b", "x.npz", " ", ".", "a.npy.b"]


@pytest.mark.parametrize("name", ODD)
def test_an_output_is_read_under_its_name(run, name, tmp_path):
    code, printed, _ = run(two(name), "out.npz")
    assert code == 0
    assert printed.endswith(f"wrote out.npz ({(tmp_path / 'out.npz').stat().st_size:,} bytes)\n")
    with np.load("out.npz") as outputs:
        assert outputs.files == [name, "b"]
        np.testing.assert_array_equal(outputs[name], -X, strict=True)
        np.testing.assert_array_equal(outputs["b"], X != 0, strict=True)


def test_a_single_output_may_be_an_npy_file(run):
    assert run(proto_of("g (float[2,3] x) => (float s) { s = ReduceSum<keepdims = 0>(x) }"), "out.npy")[0] == 0
    np.testing.assert_allclose(np.load("out.npy"), X.sum(), strict=True)


def test_a_file_is_replaced_by_an_equal_one(run, tmp_path):
    (tmp_path / "out.npz").write_bytes(b"longer than what replaces it" * 1000)
    run(two(), "out.npz")
    first = (tmp_path / "out.npz").read_bytes()
    run(two(), "out.npz")
    assert (tmp_path / "out.npz").read_bytes() == first
    with zipfile.ZipFile("out.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}  # not the time of the call
    with np.load("out.npz") as outputs:
        assert outputs.files == ["a", "b"]


@pytest.mark.parametrize(
    ("number", "name", "bits"),
    [(16, "bfloat16", "uint16"), (17, "float8_e4m3fn", "uint8"), (23, "float4_e2m1fn", "uint8"), (22, "int4", "uint8")],
)
def test_types_that_numpy_lacks_are_integers_of_their_bits(run, number, name, bits):
    proto = two()
    proto.graph.node[1].attribute[0].i = proto.graph.output[1].type.tensor_type.elem_type = number
    code, printed, _ = run(proto, "out.npz")
    assert code == 0
    assert f"to be read by NumPy's view(…): b ({name} in {bits})" in printed.replace("\n", " ")
    with np.load("out.npz") as outputs:
        assert outputs["b"].dtype == bits
        np.testing.assert_array_equal(outputs["b"].view(name), X.astype(name), strict=True)
        np.testing.assert_array_equal(outputs["a"], -X, strict=True)


LABELS = """g (float[2,3] x) => (string[2] label) {
    i = ArgMax<axis = 1, keepdims = 0>(x)
    label = ai.onnx.ml.LabelEncoder<keys_int64s = [2], values_strings = ["ünïcode ✓"], default_string = "">(i) }"""


def test_strings_are_text_and_need_no_pickle(run):
    for file in ("out.npz", "out.npy"):
        assert run(proto_of(LABELS), file)[0] == 0
        label = np.load(file) if file == "out.npy" else np.load(file)["label"]
        np.testing.assert_array_equal(label, np.array(["ünïcode ✓"] * 2), strict=True)


def test_strings_that_text_does_not_hold(run, tmp_path):
    proto = proto_of("""g (float[2,3] x) => (string[2] s)
        { i = ArgMax<axis = 1, keepdims = 0>(x) t = Constant<value_strings = ["", "", ""]>() s = Gather(t, i) }""")
    proto.graph.node[1].attribute[0].strings[2] = b"cut\0"
    code, printed, error = run(proto, "out.npz")
    assert (code, error) == (
        1,
        "jaxops: --output: the strings of output 's' cannot be written: one ends in a NUL, which NumPy drops\n",
    )
    assert "'cut\\x00'" in printed
    assert not (tmp_path / "out.npz").exists()


SEQUENCE = "g (float[2,3] x) => (float[2,3] y, seq(float[2,3]) s) { y = Neg(x) s = SequenceConstruct(x, y) }"
OPTIONAL = "g (float[2,3] x) => (optional(float[2,3]) o) { o = Optional(x) }"
MAPS = """g (float[2,3] x) => (seq(map(int64, float)) m)
    { m = ai.onnx.ml.ZipMap<classlabels_int64s = [0, 1, 2]>(x) }"""


@pytest.mark.parametrize(
    ("graph", "output", "kind"),
    [(SEQUENCE, "s", "sequence"), (OPTIONAL, "o", "optional"), (MAPS, "m", "sequence")],
    ids=["sequence", "optional", "maps"],
)
def test_an_output_that_is_no_array_is_named_before_the_model_runs(run, graph, output, kind, monkeypatch):
    monkeypatch.setattr("jaxops.model.Model.__call__", None)
    code, _, error = run(proto_of(graph), "out.npz")
    assert code == 1
    assert f"--output: output '{output}' is not an array but of the kind {kind}; a .npz or .npy file holds" in error


def test_an_undeclared_sequence_is_named(run, tmp_path):
    proto = proto_of(SEQUENCE)
    for value in proto.graph.output:
        value.ClearField("type")
    code, _, error = run(proto, "out.npz")
    assert code == 1
    assert "--output: output 's' is not an array but of the kind list; a .npz or .npy file" in error
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("out.txt", "--output out.txt: outputs are written as .npz or .npy, not .txt"),
        ("out", "--output out: outputs are written as .npz or .npy, not without an ending"),
        ("absent/out.npz", "absent/out.npz: there is no folder 'absent' to write to"),
    ],
)
def test_a_wrong_path_is_told_before_the_model_is_loaded(run, output, text, monkeypatch):
    monkeypatch.setattr(jaxops.onnx, "load", None)
    assert run(two(), output) == (1, "", f"jaxops: {text}\n")


def test_several_outputs_do_not_fit_into_an_npy_file(run):
    code, _, error = run(two(), "out.npy")
    assert code == 1
    assert "--output out.npy: a .npy file holds one array; write the outputs ['a', 'b'] to a .npz file" in error


@pytest.mark.parametrize(("name", "named"), [("b.npy", "b"), ("a\0c", "a\0c")])
def test_names_that_numpy_would_not_find(run, name, named):
    code, _, error = run(two(name), "out.npz")
    assert code == 1
    assert f"--output out.npz: a .npz file cannot hold an output of the name {named!r}" in error


def test_a_failed_write_is_a_message(run, tmp_path):
    (tmp_path / "out.npz").mkdir()
    code, printed, error = run(two(), "out.npz")
    assert code == 1
    assert "first call" in printed
    assert error.startswith("jaxops: ")
    assert "out.npz" in error
    assert "Is a directory" in error
