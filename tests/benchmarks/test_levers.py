"""That each lever is switched off where it is, and that a wrong answer or a stale name is told."""

import levers
import numpy as np
import pytest
from graphs import build, info, node, tensor
from levers import ALL, LEVERS, PASSES, STARTS, alone, compared, names, starts, switched_off, without
from onnx import save

from jaxops.compiler import pipeline


def quantized(name):
    """A value, quantized and dequantized; the name of what comes out ends in Q."""
    return [
        node("QuantizeLinear", [name, "scale", "zero"], [f"{name}q"]),
        node("DequantizeLinear", [f"{name}q", "scale", "zero"], [f"{name}Q"]),
    ]


Q = "scale", "zero"
# Whatever a lever is about: convolutions with weights to prepare, of floats and of integers, products, maxima.
NODES = [
    *quantized("x"),
    node("DequantizeLinear", ["wc", "scale", "zero"], ["wcQ"]),
    node("Conv", ["xQ", "wcQ"], ["z"], pads=[1, 1, 1, 1]),
    node("QLinearConv", ["xq", *Q, "wc", *Q, *Q], ["rq"], pads=[1, 1, 1, 1]),
    node("QLinearAdd", ["rq", *Q, "xq", *Q, *Q], ["sq"], domain="com.microsoft"),
    node("DequantizeLinear", ["sq", *Q], ["sQ"]),
    node("Add", ["z", "sQ"], ["s"]),
    node("Conv", ["s", "w3"], ["a"], pads=[1, 1, 1, 1]),
    node("Conv", ["a", "w2"], ["a2"], group=4, pads=[1, 1, 1, 1]),
    node("Conv", ["a2", "w1"], ["b"]),
    node("GlobalAveragePool", ["b"], ["c"]),
    node("Flatten", ["c"], ["d"]),
    *quantized("d"),
    node("DequantizeLinear", ["wm", "scale", "zero"], ["wmQ"]),
    node("MatMul", ["dQ", "wmQ"], ["m"]),
    node("MatMul", ["m", "w"], ["e"]),
    node("Gemm", ["e", "wn"], ["f"], transB=1),
    node("Gelu", ["f"], ["g"], domain="com.microsoft"),
    node("ReduceMax", ["g"], ["y"]),
]
RNG = np.random.default_rng(0)
SIZES = {"w3": (4, 6, 3, 3), "w2": (4, 1, 3, 3), "w1": (6, 4, 1, 1), "w": (6, 7), "wn": (4, 7)}
INTEGERS = {"wc": (6, 6, 3, 3), "wm": (6, 6), "zero": ()}
WEIGHTS = [tensor(RNG.normal(size=size).astype(np.float32), name) for name, size in SIZES.items()]
WEIGHTS += [tensor(RNG.integers(-9, 9, size, np.int8), name) for name, size in INTEGERS.items()]
WEIGHTS += [tensor(np.float32(0.05), "scale")]
X = RNG.normal(size=(2, 6, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("levers") / "m.onnx"
    save(build(*NODES, inputs=[info("x", [2, 6, 8, 8])], initializers=WEIGHTS), path)
    return str(path)


def test_each_lever_is_measured_and_replaces_what_runs(path, monkeypatch):
    reached = set()

    def noted(lever, name, replacement):
        def run(*args):
            reached.add((lever, name))
            return replacement(*args)

        return run

    noting = {lever: {name: noted(lever, name, f) for name, f in made.items()} for lever, made in LEVERS.items()}
    monkeypatch.setattr(levers, "LEVERS", noting)
    found = compared(path, {"x": X}, rounds=2, variants=switched_off(names()))
    assert list(found) == [ALL, *names()]
    assert all(value > 0 for value in found.values())
    assert reached == {(lever, name) for lever, made in LEVERS.items() for name in made}


def test_a_lever_is_on_again_behind_its_context():
    from jaxops.kernels.matmul import dot

    on = dot._reads_columns
    with without("weights as columns"):
        assert dot._reads_columns is not on
    assert dot._reads_columns is on


def test_each_pass_is_a_lever():
    for name in PASSES:
        with without(name):
            assert pipeline.skipped() == {name}
    assert not pipeline.skipped()


def test_a_lever_that_changes_the_answer_is_told(path, monkeypatch):
    def wrong(*_):
        return lambda x, w, windows, group: x[:, :1] * w[:, 0, :1, :1].reshape(1, -1, 1, 1)

    monkeypatch.setattr(levers, "LEVERS", {"wrong": {"jaxops.kernels.convolution.convolve.cpu_form": wrong}})
    with pytest.raises(SystemExit, match=r"wrong: the outputs differ by \d"):
        compared(path, {"x": X}, rounds=1, variants=switched_off(["wrong"]))


def test_a_name_that_is_gone_is_told(monkeypatch):
    monkeypatch.setattr(levers, "LEVERS", {"old": {"jaxops.kernels.matmul.dot.gone": None}})
    with pytest.raises(AttributeError, match="gone"), without("old"):
        pass


def test_a_start_without_a_lever_is_compared_with_one_with_all():
    seconds = dict(zip((ALL, *STARTS), range(2, 9), strict=False))
    seen = []
    found = starts(lambda lever: seen.append(lever) or seconds[lever], 2, STARTS)
    assert found == {f"start: {lever}": seconds[lever] / 2 for lever in STARTS}
    assert seen == [ALL, *STARTS] * 2
    assert set(STARTS) <= set(names())


def test_a_start_is_that_of_a_process(path, tmp_path):
    np.savez(tmp_path / "inputs.npz", x=X)
    assert 0 < alone("--start", path, tmp_path / "inputs.npz", STARTS[0]) < 60
