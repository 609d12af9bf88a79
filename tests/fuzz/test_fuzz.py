"""A short run of the fuzzer, and what it must find when something is wrong. Long runs: `python tests/fuzz/run.py`."""

import argparse
import re
import sys
import time

import attack
import jax.numpy as jnp
import mutated_irs
import numpy as np
import pytest
import run
from attack import attacked
from differential import blame, check, statically
from graphs import build, info, node
from mutants import KINDS, mutant
from random_graphs import RandomGraph, Step, random_graph
from random_nodes import Case

from jaxops.onnx import registry
from jaxops.onnx.lenient import tolerant
from jaxops.static import Tracer

GRAPHS, PIECES = 24, 8
MUTANTS, CALLED = 1200, 60
IRS = 120  # of each kind


@pytest.fixture(scope="module")
def pool():
    return run.pool(0, 40)


@pytest.mark.parametrize("piece", range(PIECES))
def test_graphs(piece):
    for number in range(piece, GRAPHS, PIECES):
        graph = random_graph(0, number)
        assert not check(graph, ("op by op",) if number % 4 == 0 else ("x64 off",)), f"{number}: {graph.text}"


@pytest.mark.parametrize("kind", KINDS)
def test_mutants(kind, pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(MUTANTS // len(KINDS)):
        given = mutant(0, number, pool, kind)
        outcome = attacked(given.data, calls=number % (MUTANTS // CALLED) == 0)
        assert not outcome.wrong, f"{number}: {outcome.error!r}\n{given.steps}"


@pytest.mark.parametrize("kind", mutated_irs.KINDS)
def test_irs(kind):
    irs = mutated_irs.pool(0, 20)
    for number in range(IRS):
        given = mutated_irs.mutant(0, number, irs, kind)
        outcome = attacked(given.data, calls=number % 12 == 0)
        assert not outcome.wrong, f"{number}: {outcome.error!r}\n{given.steps}"


FOUND = {
    "constant_without_a_value": "constant: give exactly one of value, ",
    "crops_of_an_empty_image": "crop_and_resize: x of .* is empty along axis 0",
    "group_query_without_room": "`total_sequence_length` is 0; with a past of 0 rows and 2 new tokens it must be 2",
    "if_reads_from_its_branch": r"\(If\) reads '.*', which nothing defines",
}


def test_each_seed_is_listed():
    assert {path.stem for path in run.SEEDS.glob("*.onnx")} == set(FOUND)


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_is_refused(name):
    outcome = attacked((run.SEEDS / f"{name}.onnx").read_bytes(), calls=True)
    assert not outcome.wrong, repr(outcome.error)
    assert re.search(FOUND[name], str(outcome.error)), outcome.error


def one(op, *inputs, **attributes):
    """A graph of one node, with what onnxruntime would give where there is a known value for it: tanh."""
    case = Case(op, "", 18, list(inputs), attributes)
    names = [f"x{k}" for k in range(len(inputs))]
    model = build(
        node(op, names, ["y"], **attributes), inputs=[info(n, x.shape) for n, x in zip(names, inputs, strict=True)]
    )
    values = {**dict(zip(names, inputs, strict=True)), "y": np.tanh(inputs[0])}
    return RandomGraph(
        model, dict(zip(names, inputs, strict=True)), values, (Step(case, tuple(names), ("y",)),), {"": 18}, op
    )


@pytest.fixture
def tanh(monkeypatch):
    """Puts another function in the place of Tanh."""

    def put(fn):
        monkeypatch.setitem(registry._functions(""), "tanh", fn)
        forget()

    def forget():
        registry.find.cache_clear()
        tolerant.cache_clear()

    yield put
    monkeypatch.undo()
    forget()


def _differs_when(wrong):
    """tanh, but for something else where `wrong()` holds."""
    return lambda input: jnp.tanh(input) + (1 if wrong(input) else 0)


def _raises(input):
    raise KeyError("output")


X = np.array([0.5, -1, 2], np.float32)
WRONG = [
    (lambda x: x, "wrong", "Tanh"),
    (_raises, "exception", "KeyError"),
    (_differs_when(lambda x: isinstance(x, Tracer)), "compiled", "Tanh"),
    (_differs_when(lambda x: jnp.asarray(np.float64(1)).dtype == np.float32), "x64 off", "Tanh"),
    (_differs_when(lambda x: not isinstance(x, Tracer)), "compiled", "Tanh"),
]


@pytest.mark.parametrize(("fn", "what", "where"), WRONG)
def test_a_wrong_operator_is_found(fn, what, where, tanh):
    graph = one("Tanh", X)
    assert check(graph) == []
    tanh(fn)
    found = check(graph)
    assert found is not None
    assert [(f.what, f.where) for f in found] == [(what, where)]


def test_a_wrong_static_value_is_found():
    graph = one("Identity", X)
    found = statically(graph)  # which is no tanh
    assert [(f.what, f.where) for f in found] == [("static", "Identity")]
    graph.values["y"][:] = X
    assert statically(graph) == []


def test_a_raw_exception_is_found(tanh, tmp_path):
    data = one("Tanh", X).model.SerializeToString()
    assert attacked(data, calls=True).what == "ran"
    tanh(_raises)
    outcome = attacked(data, calls=True)
    assert (outcome.what, outcome.wrong) == ("exception", True)
    assert outcome.error is not None
    assert attack.fingerprint(outcome.error).startswith("KeyError at ")


def test_the_node_that_differs_is_blamed():
    graph = one("Tanh", X)
    assert blame(graph) == []
    graph.values["y"][1] = 7
    [found] = blame(graph)
    assert found is not None
    assert "Tanh opset 18 (float32[3]) {}" in found.text


# A child that is at case 3 when it ends, and at case 5 when it stops to go on.
CHILD = """
import json, os, struct, sys, time
given = json.loads(sys.argv[-1])
for number in range(given["start"], given["count"]):
    open(given["folder"] + "/at-0", "r+b").write(struct.pack("<q", number))
    if number == 3:
        os.abort()
    time.sleep(60 * (number == 5))
with open(given["folder"] + "/found-0", "a") as found:
    found.write(json.dumps({"graphs ran": 5}) + "\\n")
    found.write(json.dumps([7, "graphs", "wrong", "Tanh", "text", ["step"]]) + "\\n")
"""


def test_what_ends_or_stops_a_child_is_found(tmp_path, monkeypatch, capsys):
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    monkeypatch.setattr(run, "PATIENCE", 1)
    monkeypatch.setattr(run, "COMMAND", [sys.executable, str(child)])
    options = argparse.Namespace(
        what="graphs", seed=1, count=8, workers=1, kind=None, every=99, out=str(tmp_path / "out"), start=0, first=0
    )
    started = time.monotonic()
    counts = run.run(options, tmp_path)
    assert time.monotonic() - started < 20
    assert counts == {("graphs", "abort"): 1, ("graphs", "hang"): 1, ("graphs", "tried"): 7, ("graphs", "ran"): 5}
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "graphs-abort-abort-3.txt", "graphs-hang-hang-5.txt", "graphs-wrong-Tanh.txt", "numbers"
    }  # fmt: skip
    numbers = (tmp_path / "out" / "numbers").read_text().splitlines()
    assert numbers == ["3 graphs abort abort 3", "5 graphs hang hang 5", "7 graphs wrong Tanh"]
    assert "| graphs | 7 |" in capsys.readouterr().out
