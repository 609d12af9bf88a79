"""Cost grows with the size of a model and no faster: counted here, measured by `tests/benchmarks/linear.py`."""

import gc
import tracemalloc
import weakref
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, function, info, node, tensor
from onnx import helper

import jaxops as jo
from jaxops.errors import StaticError
from jaxops.graph import interpreter
from jaxops.graph.static_analysis import StaticInputs
from jaxops.onnx import bind, load
from jaxops.onnx.read import read

X = np.ones((1, 3), np.float32)


def chain(n, op="Add"):
    names = ["x", *(f"v{i}" for i in range(1, n)), "y"]
    return build(*(node(op, [a, a], [b]) for a, b in pairwise(names)))


def shape_arithmetic(n):
    """n nodes between an input and the shape that it is."""
    names = ["k", *(f"v{i}" for i in range(n))]
    nodes = [node("Identity", [a], [b]) for a, b in pairwise(names)]
    inputs = [info("x", ["N", 3]), info("k", [2], 7)]
    return build(*nodes, node("Reshape", ["x", names[-1]], ["y"]), inputs=inputs)


def walked(n):
    graph = bind.bind(read(shape_arithmetic(n)))
    gc.collect()
    tracemalloc.start()
    found = StaticInputs().walk(graph)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(found) == n + 1
    return used, found


def test_the_walk_over_static_inputs_takes_memory_for_each_node_and_not_for_each_path():
    (small, _), (large, found) = walked(500), walked(5000)
    assert large < 20 * small
    assert large < 10e6
    text = str(found["k"])
    assert text.startswith("Identity 'v0' → Identity 'v1' → ")
    assert " → … 4985 more … → " in text
    assert text.endswith("→ Identity 'v4999' → Reshape 'y' `shape`")


def test_a_long_path_is_short_in_a_message():
    with pytest.raises(StaticError) as raised:
        jax.jit(load(shape_arithmetic(2000)))(X, jnp.array([3, 1]))
    assert len(str(raised.value)) < 1000


def test_only_nodes_that_draw_get_a_key():
    drawing = [node("Dropout", ["y", "r", "t"], ["z"])]
    proto = chain(50)
    proto.graph.node.extend(drawing)
    proto.graph.output[0].name = "z"
    proto.graph.initializer.extend([tensor(np.float32(0.5), "r"), tensor(np.bool_(True), "t")])
    model = load(proto)
    text = str(jax.make_jaxpr(lambda x, key: model.apply(model.params, x, rng=key))(X, jax.random.key(0)))
    assert text.count("random_fold_in") == 1


def test_an_eager_run_lets_go_of_what_no_later_node_reads(monkeypatch):
    model, alive, most = load(chain(40)), [], []
    step = interpreter.run_node

    def counted(*args):
        outputs = step(*args)
        alive.append(weakref.ref(outputs[0]))
        most.append(sum(ref() is not None for ref in alive))
        return outputs

    monkeypatch.setattr(interpreter, "run_node", counted)
    with jax.disable_jit():
        np.testing.assert_array_equal(model(X), X * 2.0**40)
    assert len(most) == 40
    assert max(most) <= 3


@pytest.mark.parametrize("condition", [True, None])
def test_the_innermost_body_of_nested_loops_is_traced_once(condition):
    calls = []

    def body(level):
        def run(number, keep, state):
            if level == 0:
                calls.append(number)
                return keep, jo.add(state, np.float32(1))
            return keep, *jo.loop(2, condition, [state], body(level - 1))

        return run

    found = jax.jit(lambda x: jo.loop(2, condition, [x], body(7))[0])(jnp.ones(3))
    np.testing.assert_array_equal(found, np.full(3, 257))
    assert len(calls) == 1


def test_nested_loops_with_a_static_state_are_tried_once_at_each_level():
    calls = []

    def body(level, x):
        def run(number, keep, state):
            if level == 0:
                calls.append(number)
                return keep, jo.add(state, x)
            return keep, *jo.loop(2, True, [state], body(level - 1, x))

        return run

    found = jax.jit(lambda x: jo.loop(2, True, [np.float32(0)], body(7, x))[0])(jnp.float32(1))
    assert found == 256
    assert len(calls) <= 10


def twice(n):
    """n functions, each of which calls the one before it twice."""
    made = [function("F0", ["a"], node("Relu", ["a"], ["b"]))]
    for i in range(1, n):
        calls = [node(f"F{i - 1}", [a], [b], domain="loc") for a, b in (("a", "m"), ("m", "b"))]
        made.append(function(f"F{i}", ["a"], *calls))
    return build(node(f"F{n - 1}", ["x"], ["y"], domain="loc"), opsets=(("", 18), ("loc", 1)), functions=made)


def test_functions_that_call_each_other_are_bound_once(monkeypatch):
    bound, function_of = [], bind._Binder.function

    def counted(self, *args):
        bound.append(args)
        return function_of(self, *args)

    monkeypatch.setattr(bind._Binder, "function", counted)
    load(twice(31))
    assert len(bound) == 31
    np.testing.assert_array_equal(load(twice(5))(X), X)


def test_functions_called_with_other_attributes_are_bound_for_each():
    body = node("Softmax", ["a"], ["b"])
    body.attribute.add(name="axis", ref_attr_name="k", type=2)
    calls = [node("F", [a], [b], domain="loc", k=k) for a, b, k in (("x", "m", 0), ("m", "n", 1), ("n", "y", 0))]
    opsets = (("", 18), ("loc", 1))
    model = load(build(*calls, opsets=opsets, functions=[function("F", ["a"], body, attributes=["k"])]))
    bodies = [n.body for n in model.graph.nodes]
    assert bodies[0] is bodies[2] is not bodies[1]
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    expected = jax.nn.softmax(jax.nn.softmax(jax.nn.softmax(x, 0), 1), 0)
    np.testing.assert_allclose(model(x), expected, rtol=1e-6)


def test_a_subgraph_finds_values_of_graphs_around_it_that_it_does_not_copy(monkeypatch):
    made, run = [], interpreter.run_graph

    def counted(graph, given, params, rng, outer=None):
        made.append((len(given), outer.maps if outer else ()))
        return run(graph, given, params, rng, outer)

    monkeypatch.setattr(interpreter, "run_graph", counted)
    inner = helper.make_graph([node("Add", ["v9", "x"], ["r"])], "inner", [], [info("r", None)])
    middle = helper.make_graph(
        [node("If", ["c"], ["q"], then_branch=inner, else_branch=inner)], "m", [], [info("q", None)]
    )
    proto = chain(10)
    proto.graph.output[0].name = "z"
    proto.graph.node.append(node("If", ["c"], ["z"], then_branch=middle, else_branch=middle))
    proto.graph.initializer.append(tensor(np.bool_(True), "c"))
    model = load(proto)
    np.testing.assert_array_equal(model.apply(model.params, X), X * 513)
    assert [given for given, _ in made] == [0, 0]
    assert made[1][1][-1] is made[0][1][-1]
