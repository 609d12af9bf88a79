"""That each tuned constant is found, that a program which it changes is told, and that nothing stays changed."""

import numpy as np
import pytest
import thresholds
from examples import machine
from graphs import build, info, node, tensor
from onnx import save
from thresholds import differing, replaced, tuned, variants

from jaxops.kernels.matmul import dot
from jaxops.kernels.tuned import Tuned

ROWS, FILTERS = "jaxops.kernels.matmul.dot._TURNED_ROWS", "jaxops.kernels.convolution.winograd._FILTERS"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A product of 60 rows, which half the number of rows would leave as it is."""
    path = tmp_path_factory.mktemp("thresholds") / "m.onnx"
    weights = tensor(np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32), "w")
    save(build(node("Gemm", ["x", "w"], ["y"], transB=1), inputs=[info("x", [60, 16])], initializers=[weights]), path)
    return str(path)


def test_marks_are_found_by_name():
    found = tuned()
    assert found[ROWS] == (dot._TURNED_ROWS, found[ROWS][1])
    assert all(value > 0 and isinstance(mark, Tuned) and mark.processor and mark.date for value, mark in found.values())


def test_a_constant_that_changes_the_program_is_told(path):
    x = np.ones((60, 16), np.float32)
    assert list(differing(path, {"x": x}, variants([ROWS, FILTERS]))) == [f"{ROWS} = 50"]


def test_a_constant_has_its_value_again(path):
    before = dot._TURNED_ROWS
    with replaced(ROWS, 1):
        assert dot._TURNED_ROWS == 1
    assert dot._TURNED_ROWS is before


def test_what_should_move_and_what_nothing_read(capsys):
    marks = {"a.B": (2, Tuned("P", "2026-01-02")), "a.C": (2, Tuned("P", "2026-01-02"))}
    thresholds.show({"a.B = 1": {"m": 0.9, "n": 1.2}, "a.B = 4": {"m": 1.0}}, marks)
    printed = capsys.readouterr().out
    assert "m 0.90, n 1.20" in printed
    assert "2026-01-02, P" in printed
    assert printed.endswith("would move: a.B = 1\nchanged no program: a.C\n")


def test_a_run_measures_what_differs(path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["thresholds.py", path, "--only", "_TURNED_ROWS", "--rounds", "1"])
    thresholds.main()
    printed = capsys.readouterr().out
    assert "_TURNED_ROWS = 50" in printed
    assert "changed no program: none" in printed


def test_a_table_names_the_processor(tmp_path):
    description = tmp_path / "cpuinfo"
    description.write_text("processor : 0\nmodel name : A Processor 7\nflags : fpu avx2 amx_bf16 avx512_vnni\n")
    assert machine(description).startswith("A Processor 7, ")
    assert "(avx2 avx512_vnni amx_bf16), JAX " in machine(description)
    assert machine(tmp_path / "none").startswith("a processor, ")
