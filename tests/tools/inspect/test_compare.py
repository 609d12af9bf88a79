"""Comparing with onnxruntime: agreement on real models, and the first node when an operator is wrong."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from graphs import build, info, node, tensor
from onnx import save

from jaxops.errors import UnsupportedError
from jaxops.graph.nodes import Graph
from jaxops.model import Model
from jaxops.onnx import load, registry
from jaxops.tools.inspect.compare import compare

MODELS = Path(__file__).resolve().parents[2] / "models"
X = np.float32([[1, -2, 3], [4, 5, -6]])
THREE = build(
    node("Relu", ["x"], ["h"], node_name="first"),
    node("Sigmoid", ["h"], ["i"], node_name="second"),
    node("Mul", ["i", "w"], ["y"], node_name="third"),
    initializers=[tensor(np.float32([1, 2, 3]), "w")],
)


@pytest.mark.parametrize("name", ["vit.script", "resnet.dynamo"])
def test_real_models_agree(name):
    with np.load(MODELS / f"{name.split('.')[0]}.npz") as found:
        given = [found[key] for key in found.files if key.startswith("in:")]
    loaded = load(MODELS / f"{name}.onnx")
    report = loaded.compare(*given)
    assert report.agrees, str(report)
    assert report.first is None
    assert len(report.rows) == sum(len(n.outputs) for n in loaded.graph.nodes)
    assert f"all {len(report.rows)} tensors agree" in str(report)


def test_a_wrong_operator_is_found(monkeypatch):
    right = registry.Operator.call

    def wrong(self, *given, **options):
        found = right(self, *given, **options)
        return tuple(y + np.float32(0.1) for y in found) if self.name == "Sigmoid" else found

    monkeypatch.setattr(registry.Operator, "call", wrong)
    report = load(THREE).compare(X)
    assert report.first is not None
    assert (report.first.operator, report.first.node, report.first.output) == ("Sigmoid", "second", "i")
    assert [row.agrees for row in report.rows] == [True, False, False]
    assert report.first.absolute == pytest.approx(0.1, rel=1e-3)
    assert not report.agrees
    text = str(report)
    assert "Sigmoid 'second' is the first node that differs (rtol 0.001, atol 1e-05); 2 of 3 tensors do" in text
    assert "→" in text


def test_tolerances():
    assert load(THREE).compare(X, rtol=0, atol=1e-5).agrees


def report(ours, theirs, **options):
    graph = load(build(node("Relu", ["x"], ["y"], node_name="only"))).graph
    return compare(graph, {"y": ours}, {"y": theirs}, **options)


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("ours", "theirs", "agrees", "note"),
    [
        ([1.0, NAN], [1.0, NAN], True, ""),
        ([1.0, NAN], [1.0, 2.0], False, "NaN in one of them at 1 of 2 places"),
        ([INF, -INF], [INF, -INF], True, ""),
        ([INF, 1.0], [-INF, 1.0], False, ""),
        ([INF], [1.0], False, ""),
        ([1.0], [INF], False, ""),
        ([1.0, 2.0], [1.0, 2.001], True, ""),
        ([1.0, 2.0], [1.0, 2.1], False, ""),
        ([[1.0, 2.0]], [1.0, 2.0], False, "shape (1, 2), expected (2,)"),
        (np.array(["a"], object), np.array(["a"], object), True, ""),
        (np.array(["a"], object), np.array(["b"], object), False, "strings differ"),
        (np.int32([3]), np.int64([3]), True, ""),
        (np.array([True]), np.array([False]), False, ""),
        (np.zeros(0), np.zeros(0), True, ""),
        (np.complex64([1j]), np.complex64([1j]), True, ""),
        ([np.ones(2), np.ones(3)], [np.ones(2), np.ones(3)], True, ""),
        ([np.ones(2)], [np.ones(2), np.ones(3)], False, "shape (2,), expected [(2,), (3,)]"),
    ],
)
def test_what_agrees(ours, theirs, agrees, note):
    values = [x if isinstance(x, list) and isinstance(x[0], np.ndarray) else np.asarray(x) for x in (ours, theirs)]
    (row,) = report(*values).rows
    assert (row.agrees, row.note) == (agrees, note)


def test_differences():
    (row,) = report(np.float32([1, 4]), np.float32([1, 5])).rows
    assert (row.absolute, row.relative) == (1.0, pytest.approx(0.2))


def test_what_comes_after_random_numbers_is_left_out():
    loaded = load(
        build(
            node("RandomNormalLike", ["x"], ["r"], node_name="draw"),
            node("Add", ["x", "r"], ["y"], node_name="sum"),
        )
    )
    found = loaded.compare(X)
    assert [row.note for row in found.rows] == ["random", "random"]
    assert found.agrees


def test_a_key_is_taken():
    loaded = load(build(node("RandomNormalLike", ["x"], ["r"]), node("Sub", ["r", "r"], ["y"])))
    assert loaded.compare(X, rng=jax.random.key(1)).agrees


@pytest.mark.parametrize("name", ["vit.script", "resnet.dynamo"])
@pytest.mark.parametrize("names", ["file", "module"])
def test_both_compute_with_the_parameters_of_the_model(name, names):
    with np.load(MODELS / f"{name.split('.')[0]}.npz") as found:
        given = [found[key] for key in found.files if key.startswith("in:")]
    loaded = load(MODELS / f"{name}.onnx", names=names)
    tuned = loaded.with_params({key: 1.5 * x for key, x in loaded.params.items()})
    assert not np.allclose(tuned(*given)[0], loaded(*given)[0], atol=1e-2)
    report = tuned.compare(*given)
    assert report.agrees, str(report)


def test_onnxruntime_rounds_operands_of_weights_in_4_bits():
    random = np.random.default_rng(0)
    sizes = {"K": 64, "N": 32, "bits": 4, "block_size": 32, "accuracy_level": 4}
    weights = [
        tensor(random.integers(0, 256, (32, 2, 16), dtype=np.uint8), "b"),
        tensor(random.normal(size=64).astype(np.float32), "scales"),
    ]
    product = node("MatMulNBits", ["x", "b", "scales"], ["y"], domain="com.microsoft", **sizes)
    x = random.normal(size=(3, 64)).astype(np.float32)
    opsets = [("", 21), ("com.microsoft", 1)]
    file = build(
        product, inputs=[info("x", [3, 64])], outputs=[info("y", [3, 32])], initializers=weights, opsets=opsets
    )
    report = load(file).compare(x)
    assert report.first is not None
    assert report.first.note == "onnxruntime rounds the operand to 8 bits here (accuracy_level 4)"


def test_a_model_of_sizes_that_depend_on_data():
    loaded = load(build(node("NonZero", ["x"], ["i"]), node("Cast", ["i"], ["y"], to=1)))
    assert loaded.compare(X).agrees


def test_integers_and_several_inputs():
    given = info("k", ["N", 3], 7)
    loaded = load(
        build(node("Cast", ["k"], ["f"], to=1), node("Add", ["x", "f"], ["y"]), inputs=(info("x", None), given))
    )
    assert loaded.compare(x=X, k=X.astype(np.int64)).agrees


def test_weights_in_other_files(tmp_path):
    large = build(node("Mul", ["x", "w"], ["y"]), initializers=[tensor(np.float32([[1, 2, 3]] * 2), "w")])
    save(large, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    assert load(tmp_path / "m.onnx").compare(X).agrees


def test_a_model_from_no_file():
    loaded = load(THREE)
    again = Model(loaded.graph, opsets=loaded.opsets, description="made by hand")
    with pytest.raises(UnsupportedError, match="compare: the model was not loaded from a file"):
        again.compare(X)


def test_without_onnxruntime_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModuleNotFoundError, match="compare needs the onnxruntime package: pip install onnxruntime"):
        load(THREE).compare(X)


def test_what_onnxruntime_refuses():
    proto = build(node("Mod", ["x", "x"], ["y"], fmod=0))
    with pytest.raises(UnsupportedError, match="onnxruntime does not run this model"):
        load(proto).compare(X)


def test_an_empty_graph():
    assert compare(Graph("g", (), (), (), {}), {}, {}).agrees
