"""Python looks for garbage behind a start, a start gives memory back, and weights need no such look to be let go."""

import gc
import weakref

import jax
import numpy as np
import pytest
from graphs import info, node
from onnx import helper, numpy_helper

import jaxops.onnx
from jaxops.garbage import garbage_later

W = np.ones((8, 8), np.float32)
X = np.ones((2, 8), np.float32)


@pytest.fixture
def enabled():
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


@pytest.fixture
def disabled(enabled):
    gc.disable()


def product():
    nodes, weights = [node("MatMul", ["x", "w"], ["y"])], [numpy_helper.from_array(W, "w")]
    graph = helper.make_graph(nodes, "g", [info("x", [2, 8])], [info("y", [2, 8])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("frozen", [False, True])
def test_what_stays_is_not_looked_through_again(enabled, frozen):
    """It counts as old, unless others have frozen something: thawing is theirs to do."""
    gc.collect()
    if frozen:
        gc.freeze()
    try:
        before = gc.get_freeze_count()
        with garbage_later():
            assert not gc.isenabled()
            made = [[k] for k in range(5000)]
        assert gc.isenabled()
        young = {id(x) for generation in (0, 1) for x in gc.get_objects(generation)}
        assert sum(id(x) in young for x in made) == (5000 if frozen else 0)
        assert gc.get_freeze_count() == before
    finally:
        gc.unfreeze()


def test_garbage_is_found_later(enabled):
    class Ring:
        pass

    with garbage_later():
        ring = Ring()
        ring.ring = ring
        seen = weakref.ref(ring)
        del ring
    assert seen() is not None
    gc.collect()
    assert seen() is None


def test_what_is_disabled_stays_so(disabled):
    with garbage_later():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_no_garbage_is_looked_for_while_a_model_is_loaded(enabled, monkeypatch):
    seen = []
    monkeypatch.setattr("jaxops.onnx.loading.read", lambda found: seen.append(gc.isenabled()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        jaxops.onnx.load(product())
    assert seen == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("call", [lambda m: m(X), lambda m: m.apply(m.params, X), lambda m: jax.jit(m)(X)])
def test_weights_go_with_their_model(disabled, call):
    """They may be gigabytes, and Python looks for garbage when it has made many objects, however large."""
    model = jaxops.onnx.load(product())
    np.testing.assert_array_equal(call(model), X @ W)
    weights = weakref.ref(model.params["w"])
    assert weights() is not None
    del model
    assert weights() is None


def test_a_start_gives_memory_back(monkeypatch):
    given = []
    monkeypatch.setattr("jaxops.compiler.run.specialized.trim_heap", lambda: given.append(1))
    model = jaxops.onnx.load(product())
    model(X)
    assert given
    given.clear()
    model(X)
    assert not given


def test_an_interrupt_right_after_the_collector_stops(monkeypatch):
    def interrupted(disable=gc.disable):
        disable()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "disable", interrupted)
    with pytest.raises(KeyboardInterrupt), garbage_later():
        pass
    assert gc.isenabled()
