"""Paths of modules in names and metadata that no exporter writes: no path, at once, in little memory."""

import time
import tracemalloc

import numpy as np
import pytest
from graphs import build, info, node, tensor

from jaxops.frontend.module_paths import module_path, modules_of, scope_of
from jaxops.onnx import load

MANY = 100_000
LONG = ["." * MANY, "a." * MANY, "/" * MANY, "a/" * MANY, "a/a." * MANY]


@pytest.mark.parametrize("text", LONG, ids=[t[:4] for t in LONG])
def test_no_path_has_thousands_of_modules(text):
    model = build(
        node("Add", ["x", f"{text}w"], ["y"], node_name=f"{text}n"),
        inputs=[info("x", (2,))],
        initializers=[tensor(np.ones(2, np.float32), f"{text}w")],
    )
    tracemalloc.start()
    started = time.monotonic()
    loaded = load(model)
    [path] = loaded.paths.values()
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.monotonic() - started < 5
    assert used < 50 << 20
    assert "." not in path
    assert loaded.graph.nodes[0].scope == ""


def test_a_path_of_a_hundred_modules_is_one():
    path = ".".join("a" * 100)
    assert scope_of(f"/{'/'.join('a' * 100)}/MatMul", {}) == path
    assert scope_of(f"/{'/'.join('a' * 101)}/MatMul", {}) == ""
    assert module_path([f"{path}.a"]) == ""
    assert len(modules_of([f"{path[:-2]}.w"])) == 99
    assert modules_of([f"{path}.w.x"]) == set()


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "-" * 100_000 + "1", "{[]}", "{[]: 1}", "9" * 5000, "['\\N{nothing}']", "[1]", "['a'", "['a' 'b']"],
    ids=lambda text: text[:9],
)
def test_metadata_that_is_no_list_of_names(text):
    assert scope_of("/block/MatMul", {"pkg.torch.onnx.name_scopes": text}) == "block"


@pytest.mark.parametrize("text", ["['a', \"b\", 'c']", "('a', 'b', 'c',)", "[ 'a' , 'b','c' ]"])
def test_lists_of_names(text):
    assert scope_of("MatMul", {"pkg.torch.onnx.name_scopes": text}) == "b"


def test_a_module_that_was_not_called():
    """Its name is that of the only module which has the path."""
    modules = modules_of(["model.decoder.layers.0.norm.weight", "model.encoder.norm.weight", "head.norm.bias"])
    assert scope_of("/decoder/layers.0/attention/MatMul", {}, modules) == "model.decoder.layers.0.attention"
    assert scope_of("/decoder/layers/layers.0/MatMul", {}, modules) == "model.decoder.layers.0"
    assert scope_of("/head/norm/Add", {}, modules) == "head.norm"
    for path in ("decoder", "decoder.blocks.0", "norm.inner", "other.decoder.layers.0"):
        assert modules.whole(path) == path
    assert modules_of(["a.b.c.w", "d.b.c.w"]).whole("b.c") == "b.c"
