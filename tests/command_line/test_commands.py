"""`python -m jaxops`: what each command prints and writes."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.export
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser, save
from safetensors.flax import load_file

import jaxops.onnx
from jaxops.command_line import main
from jaxops.compiler import pipeline
from jaxops.onnx.catalogue import operators
from jaxops.onnx.origin import Origin


def test_run_prints_the_top_outputs_and_the_time(model, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    np.save(tmp_path / "k.npy", np.array([[1, 0, 0], [0, 0, 2]]))
    inputs = [f"--input=x={tmp_path / 'x.npy'}", f"--input=k={tmp_path / 'k.npy'}"]
    assert main(["run", str(model), *inputs, "--repeat=1", "--top=1"]) == 0
    printed = capsys.readouterr().out
    assert "total: float32[2]" in printed
    assert "17.0" in printed
    assert "7.0" not in printed.partition("first call")[0].replace("17.0", "")  # behind it are times
    assert "load" in printed
    assert "first call" in printed


def test_run_prints_the_arrays_of_a_sequence(tmp_path, capsys):
    path = tmp_path / "pieces.onnx"
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (float[7] x) => (seq(float[M]) s) { k = Constant<value_int = 3> () s = SplitToSequence (x, k) }"""
    save(parser.parse_model(text), path)
    np.save(tmp_path / "x.npy", np.arange(7, dtype=np.float32))
    arguments = ["run", str(path), f"--input=x={tmp_path / 'x.npy'}"]
    assert main([*arguments, "--top=3"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line[0] == "s"] == [
        "s: sequence(float32[M])",
        "s[0]: float32[3]",
        "s[1]: float32[3]",
        "s[2]: float32[1]",
    ]
    assert main([*arguments, "--top=1"]) == 0
    printed = capsys.readouterr().out
    assert "2.0" in printed
    assert "6.0" not in printed.partition("load")[0]  # behind it are times
    assert "… 2 more arrays" in printed


def test_run_keeps_no_programs_without_a_folder(model, monkeypatch):
    folders = []
    monkeypatch.setattr("jaxops.frontend.loading.keep_programs", folders.append)
    assert main(["run", str(model), "--cache=here"]) == 0
    assert main(["run", str(model), "--cache="]) == 0
    assert main(["run", str(model)]) == 0
    assert folders == ["here"]


def test_run_makes_inputs_up(model, capsys):
    assert main(["run", str(model), "--size=N=4", "--repeat=1", "--top=9"]) == 0
    assert capsys.readouterr().out.count("│") == 4 * 3


def test_show_prints_the_graph(model, capsys):
    assert main(["show", str(model)]) == 0
    printed = capsys.readouterr().out
    assert "in   x: float32[N, 3]" in printed
    assert "z = Add(x, y)" in printed


def test_show_picks_nodes(model, capsys):
    assert main(["show", str(model), "--grep=Cast|Reduce", "--head=1"]) == 0
    printed = capsys.readouterr().out
    assert "y = Cast(k, to=" in printed
    assert "Add" not in printed
    assert "… 1 more node" in printed


def test_summary_counts(model, capsys):
    assert main(["summary", str(model), "--size=N=5", "--depth=1", "--time"]) == 0
    printed = capsys.readouterr().out
    assert "float32[5, 3]" in printed
    assert "FLOPs" in printed
    assert " ms" in printed


def test_passes_has_a_row_a_pass(model, capsys):
    assert main(["passes", str(model), "--size=N=5"]) == 0
    title, _, *rows = (line for line in capsys.readouterr().out.splitlines() if line.strip("─ "))
    assert "sums.onnx: 1 program, " in title
    cells = {row.rsplit(None, 3)[0].strip(): row.split()[-3:] for row in rows}
    assert list(cells) == [entry.name for entry in pipeline.LIST]
    assert all(int(after) > 0 for _, after, _ in cells.values())
    assert float(cells["inline calls"][2]) >= 0
    assert cells["sink transposes"][2] == "–"  # a part of the last trace


def test_passes_that_see_no_program_are_told(model, capsys, monkeypatch):
    monkeypatch.setattr("jaxops.runtime.dispatch.is_long", lambda graph: True)
    assert main(["passes", str(model), "--size=N=5"]) == 1
    assert "sums.onnx' runs without a specialized program, so no pass has seen it" in capsys.readouterr().err


def test_plot_writes_a_picture(model, tmp_path, capsys):
    assert main(["plot", str(model), str(tmp_path / "sums.svg")]) == 0
    assert (tmp_path / "sums.svg").read_text().startswith("<svg")
    assert "wrote" in capsys.readouterr().out


def test_compare_agrees_or_says_where_not(model, capsys, monkeypatch):
    assert main(["compare", str(model), "--size=N=2"]) == 0
    assert "all 3 tensors agree (rtol 0.001, atol 1e-05)" in capsys.readouterr().out
    monkeypatch.setattr(Origin, "tensors", lambda *_: {"z": np.zeros((2, 3), np.float32)})
    assert main(["compare", str(model), "--size=N=2", "--rtol=1e-4"]) == 1
    assert "Add 'z' is the first node that differs (rtol 0.0001" in capsys.readouterr().out


def test_operators_are_listed(capsys):
    assert main(["operators"]) == 0
    printed = capsys.readouterr().out
    assert int(printed.split()[0]) > 300
    assert main(["operators", "--domain=ai.onnx", "--grep=reshape"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "Reshape" in line]
    assert row.split() == [
        "Reshape",
        "ai.onnx",
        "1,",
        "5,",
        "13,",
        "14,",
        "19,",
        "21,",
        "23,",
        "24,",
        "25",
        "shape",
        "yes",
    ]


@pytest.mark.parametrize(
    ("name", "domain", "differentiable"),
    [
        ("Conv", "ai.onnx", True),
        ("ArgMax", "ai.onnx", False),
        ("Shape", "ai.onnx", False),
        ("Dropout", "ai.onnx", True),
        ("Bernoulli", "ai.onnx", False),
        ("RandomNormalLike", "ai.onnx", False),
        ("Loop", "ai.onnx", True),
        ("SequenceAt", "ai.onnx", True),
        ("LabelEncoder", "ai.onnx.ml", False),
        ("FusedMatMul", "com.microsoft", True),
    ],
)
def test_what_can_be_differentiated(name, domain, differentiable):
    (row,) = [row for row in operators() if (row.name, row.domain) == (name, domain)]
    assert row.differentiable is differentiable


def test_a_later_deprecation_does_not_hide_an_operator():
    (row,) = [row for row in operators() if row.name == "Upsample"]
    assert row.versions == (1, 7, 9)
    assert row.static == ("scales",)


NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
DIGITS, SEVEN = str(NOTEBOOKS / "digits.onnx"), np.load(NOTEBOOKS / "seven.npy")


def test_export(tmp_path, capsys):
    file = tmp_path / "digits.jaxexport"
    assert main(["export", DIGITS, str(file), "--size", "batch=n <= 4", "--platform=cpu"]) == 0
    said = capsys.readouterr().out
    assert "for cpu:\n  in   image: float32[n, 1, 8, 8]\n  for  n <= 4\n" in said
    wrote = f"wrote{file}({file.stat().st_size:,}bytes)and{file}.safetensors("
    assert wrote in "".join(said.split())  # a terminal has lines
    exported = jax.export.deserialize(bytearray(file.read_bytes()))
    assert exported.platforms == ("cpu",)
    params = load_file(f"{file}.safetensors")
    assert exported.call(params, SEVEN).argmax() == 7
    with pytest.raises(ValueError, match=r"n <= 4|refining shapes"):  # as JAX says it
        exported.call(params, np.repeat(SEVEN, 5, 0))
    assert main(["export", DIGITS, str(file), "--size=batch=2"]) == 0
    assert jax.export.deserialize(bytearray(file.read_bytes())).in_avals[-1].shape == (2, 1, 8, 8)
    assert main(["export", DIGITS, str(file), "--size=bach=2"]) == 1
    assert "bach" in capsys.readouterr().err


def test_export_of_a_result_whose_size_depends_on_data(tmp_path, capsys):
    path, file = tmp_path / "nonzero.onnx", tmp_path / "nonzero.jaxexport"
    text = '<ir_version: 9, opset_import: ["": 18]> g (float[N] x) => (int64[1, K] at) { at = NonZero (x) }'
    save(parser.parse_model(text), path)
    assert main(["export", str(path), str(file)]) == 1
    assert "or load(path, bounds={'at': n}), which makes it n columns" in "".join(capsys.readouterr().err)
    assert main(["export", str(path), str(file), "--bound", "at=3"]) == 0
    exported = jax.export.deserialize(bytearray(file.read_bytes()))
    assert exported.call({}, np.float32([0, 5, 0, 7, 0])).tolist() == [[1, 3, -1]]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2fnuz"])
def test_export_of_types_that_the_file_of_parameters_lacks(tmp_path, capsys, name):
    """Its reader knows some of them by names that NumPy does not have."""
    dtype, path = np.dtype(name), tmp_path / "model.onnx"
    weights = np.arange(8).reshape(2, 4).astype(dtype)
    graph = parser.parse_graph(
        "g (float[b,2] x, float s) => (float[b,4] y) { f = DequantizeLinear(w, s) y = MatMul(x, f) }"
    )
    graph.initializer.append(numpy_helper.from_array(weights, "w"))
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    assert main(["export", str(path), str(tmp_path / "f")]) == 0
    assert f"w ({name} in uint8)" in capsys.readouterr().out.replace("\n", " ")
    params = {"w": np.asarray(load_file(tmp_path / "f.safetensors")["w"]).view(dtype)}
    np.testing.assert_array_equal(params["w"], weights)
    x = np.ones((3, 2), np.float32)
    exported = jax.export.deserialize(bytearray((tmp_path / "f").read_bytes()))
    np.testing.assert_array_equal(exported.call(params, x, np.float32(0.5))[0], [2, 3, 4, 5])


def test_export_of_strings(tmp_path, capsys):
    path = tmp_path / "labels.onnx"
    text = """<ir_version: 9, opset_import: ["": 18, "ai.onnx.ml": 3]>
    g (float[N,2] x) => (string[N] label, float[N,2] y) { i = ArgMax<axis = 1, keepdims = 0>(x) y = Neg(x)
        label = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1], values_strings = ["cat", "dog"]>(i) }"""
    save(parser.parse_model(text), path)
    assert main(["export", str(path), str(tmp_path / "f")]) == 0
    label, y = jax.export.deserialize((tmp_path / "f").read_bytes()).call({}, np.float32([[1, 2], [4, 3]]))
    assert np.asarray(label).tolist() == ["dog", "cat"]
    assert y.tolist() == [[-1, -2], [-4, -3]]


def test_export_of_a_model_that_draws_numbers(tmp_path, capsys):
    path = tmp_path / "noise.onnx"
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (float[N,2] x) => (float[N,2] y) { e = RandomNormalLike(x) y = Add(x, e) }"""
    save(parser.parse_model(text), path)
    assert main(["export", str(path), str(tmp_path / "f")]) == 0
    assert "  in   x: float32[N, 2]\n  in   rng: key<fry>[]\n" in capsys.readouterr().out


def test_to_python(tmp_path, monkeypatch, capsys):
    assert main(["to-python", DIGITS, str(tmp_path / "written_digits")]) == 0
    assert "__init__.py" in capsys.readouterr().out
    monkeypatch.syspath_prepend(tmp_path)
    written = importlib.import_module("written_digits")
    assert written.apply(written.load_params(), SEVEN).argmax() == 7


@pytest.mark.parametrize("command", ["show", "summary", "plot", "run", "compare", "export", "to-python"])
def test_weights_of_another_folder(command, tmp_path, capsys):
    proto = onnx.load(DIGITS)
    (tmp_path / "weights").mkdir()
    save(proto, tmp_path / "weights/net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    path = tmp_path / "net.onnx"
    (tmp_path / "weights/net.onnx").rename(path)
    rest = {"plot": ["net.svg"], "export": ["net.jaxexport"], "to-python": ["net"]}.get(command, [])
    arguments = [command, str(path), *(str(tmp_path / name) for name in rest)]
    assert main(arguments) == 1
    assert "give the folder that has it: load(…, external_data=folder)" in capsys.readouterr().err
    assert main([*arguments, "--external-data", str(tmp_path / "weights")]) == 0


def test_the_first_command_of_the_readme_reads_a_seven(capsys):
    assert main(["run", DIGITS, f"--input=image={NOTEBOOKS / 'seven.npy'}", "--top=1"]) == 0
    assert "0, 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", ["check", "show", "summary", "plot", "run", "compare", "export", "to-python", "operators"]
)
def test_each_command_explains_itself_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"example:\n  python -m jaxops {command}" in capsys.readouterr().out


def test_arguments_that_no_command_has_end_with_2(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["fly", "m.onnx"])
    assert stopped.value.code == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err


def test_check_lists_the_operators(model, tmp_path, capsys):
    assert main(["check", str(model)]) == 0
    assert "ReduceSum  ai.onnx  13       1      supported" in capsys.readouterr().out
    proto, path = onnx.load(model), tmp_path / "missing.onnx"
    proto.graph.node[0].op_type = "Cost"
    save(proto, path)
    assert main(["check", str(path)]) == 1
    assert "missing: not in opset 18; the standard has no such operator" in capsys.readouterr().out


def test_an_encoding_of_few_characters_is_enough(model):
    """That of a pipe on Windows, or in an old locale."""
    command = [sys.executable, "-m", "jaxops", "summary", str(model), "--size=N=2"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert b"sums \\xb7 opset" in done.stdout


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"jaxops {jaxops.__version__}, JAX {jax.__version__}\n"


def test_the_console_script_is_the_module():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="jaxops")
    assert script.load() is main


def test_it_is_a_module():
    done = subprocess.run([sys.executable, "-m", "jaxops", "--help"], capture_output=True, text=True, check=True)
    assert "run" in done.stdout
    assert "show" in done.stdout
