"""Models of so many nodes that XLA is given their programs in sections, each a function that it does not inline."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, function, info, model, node, tensor

from jaxops.graph import interpreter
from jaxops.onnx import load

X = np.float32([[1, 0, 3], [0, 0, 6], [7, 8, 0]])
ROW = np.float32([1, 2, 3])
MARK = '{inlineable = "false"}'


@pytest.fixture
def short(monkeypatch):
    """Sections of three nodes, in models of more than twelve."""
    monkeypatch.setattr(interpreter, "_FUSED", 3)


def chain(first, last):
    return [node("Add", [f"v{k}", "row"], [f"v{k + 1}"]) for k in range(first, last)]


def graph(*nodes, functions=(), last="v20"):
    domains = (("", 18), ("loc", 1))
    given = {"inputs": [info("v0", [3, 3])], "outputs": [info(last, None)], "initializers": [tensor(ROW, "row")]}
    return build(*nodes, opsets=domains, functions=functions, **given)


def lowered(loaded):
    return jax.jit(loaded.apply).lower(dict(loaded.params), X).as_text()


def test_the_sections_are_functions_of_the_program(short):
    loaded = load(graph(*chain(0, 20)))
    np.testing.assert_array_equal(loaded(X), X + 20 * ROW)
    np.testing.assert_array_equal(jax.jit(loaded)(X), X + 20 * ROW)
    assert lowered(loaded).count(MARK) == 7


def test_a_short_model_is_one():
    assert MARK not in lowered(load(graph(*chain(0, 20))))


def test_bodies_of_functions(short):
    """A body may be a section, or have several."""
    bodies = [function("F", ["v2", "row"], *chain(2, 4), outputs=["v4"])]
    bodies.append(function("G", ["v4", "row"], *chain(4, 19), outputs=["v19"]))
    calls = [node("F", ["v2", "row"], ["v4"], domain="loc"), node("G", ["v4", "row"], ["v19"], domain="loc")]
    loaded = load(graph(*chain(0, 2), *calls, *chain(19, 20), functions=bodies))
    np.testing.assert_array_equal(loaded(X), X + 20 * ROW)
    np.testing.assert_array_equal(jax.jit(loaded)(X), X + 20 * ROW)
    assert lowered(loaded).count(MARK) == 9


def test_derivatives_and_batches(short):
    loaded = load(graph(*chain(0, 20)))
    np.testing.assert_array_equal(jax.grad(lambda x: loaded(x).sum())(X), np.ones((3, 3)))
    np.testing.assert_array_equal(jax.vmap(loaded)(jnp.stack([X, 2 * X]))[1], 2 * X + 20 * ROW)
    gradient = jax.jit(jax.grad(lambda p: loaded.apply(p, X).sum()))(dict(loaded.params))
    np.testing.assert_array_equal(gradient["row"], [60] * 3)


@pytest.mark.parametrize("cut", [0, 7, 19])
def test_sizes_and_static_values(cut, short):
    """A cut, at a number that depends on data, in each kind of section; sizes stay static across them."""
    before = "".join(f"v{k + 1} = Add(v{k}, row) " for k in range(cut))
    after = "".join(f"v{k + 1} = Add(v{k}, row) " for k in range(cut, 20))
    sizes = f"""n = Shape(v{cut}) p = NonZero(v{cut}) m = Shape(p) k = Gather(m, place) r = Range(none, k, step)
        a = Cast<to=1>(r) e = ReduceSum<keepdims=0>(a) """
    body = before + sizes + after + "f = Reshape(v20, n) y = Add(f, e)"
    given = {"row": ROW, "place": np.int64(1), "none": np.int64(0), "step": np.int64(1)}
    loaded = load(model(f"main (float[3,3] v0) => (float[3,3] y) {{ {body} }}", initializers=given))
    found = np.count_nonzero(X + cut * ROW)
    np.testing.assert_array_equal(loaded(X), X + 20 * ROW + found * (found - 1) / 2)


CHILD = """
import sys
import numpy as np
from onnx import helper
from jaxops.onnx import load

count = int(sys.argv[1])
nodes = [helper.make_node("Mul" if k % 2 else "Add", [f"v{k}", "c"], [f"v{k + 1}"]) for k in range(count)]
infos = [helper.make_tensor_value_info(name, 1, [3]) for name in ("v0", f"v{count}")]
graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [helper.make_tensor("c", 1, [3], [0.5] * 3)])
model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
print(model(np.ones(3, np.float32)).tolist())
"""


def test_a_chain_that_would_end_the_process():
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")}
    call = [sys.executable, "-c", CHILD, "26000"]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[0.5, 0.5, 0.5]\n"), done.stderr[-2000:]


@pytest.mark.parametrize(
    ("op", "expected"),
    [("Sum", lambda rows: rows.sum(0)), ("Max", np.maximum.reduce), ("Min", np.minimum.reduce), ("Mean", np.mean)],
)
def test_blocks_of_operands_are_functions_of_the_program(op, expected, monkeypatch):
    """XLA fuses the additions of one Sum, too: 4,000 operands took 40 s."""
    monkeypatch.setattr(interpreter, "_WIDE", 300)
    rows = np.arange(301 * 3, dtype=np.float32).reshape(301, 1, 3) % 17
    rows[7, 0, 1] = np.nan
    names = [f"w{k}" for k in range(300)]
    proto = build(
        node(op, ["x", *names], ["y"]),
        inputs=[info("x", [1, 3])],
        outputs=[info("y", None)],
        initializers=[tensor(row, name) for row, name in zip(rows[1:], names, strict=True)],
    )
    loaded = load(proto)
    with np.errstate(invalid="ignore"):
        whole = rows.mean(0) if op == "Mean" else expected(rows)
    np.testing.assert_allclose(loaded(rows[0]), whole, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(loaded)(rows[0]), whole, rtol=1e-6)
    program = jax.jit(loaded.apply).lower(dict(loaded.params), rows[0]).as_text()
    assert MARK in program
    assert max(text.count("stablehlo.") for text in program.split("func.func")) <= 140  # blocks of 128 operands
    slope = jax.grad(lambda x: loaded(x)[0, 0])(rows[0])
    assert np.isfinite(slope[0, 0])  # the other column has a NaN
    one = jax.vmap(loaded)(np.stack([rows[0], rows[0]]))
    np.testing.assert_allclose(one, [whole, whole], rtol=1e-6)
    monkeypatch.undo()
    assert interpreter.is_long(loaded.graph) is False


def test_a_concatenation_of_many_pieces_is_prepared_once():
    names = [f"w{k}" for k in range(interpreter._WIDE + 1)]
    proto = build(
        node("Concat", ["x", *names], ["y"], axis=0),
        inputs=[info("x", [1, 3])],
        outputs=[info("y", None)],
        initializers=[tensor(np.float32([[1, 2, 3]]), name) for name in names],
    )
    assert not interpreter.is_long(load(proto).graph)
