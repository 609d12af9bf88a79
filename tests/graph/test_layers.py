"""A program of equal layers is cut into parts, of which equal ones are compiled once."""

import itertools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import info, node
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from onnx import helper, numpy_helper

import jaxops.onnx
from jaxops.graph import layers, prepared
from jaxops.graph.numbers import numbers_as_arguments
from jaxops.graph.on_host import NUMBER
from jaxops.graph.program import opened_program

RNG = np.random.default_rng(0)
SIZE = 16
X = RNG.standard_normal((SIZE, SIZE), np.float32)
W = list(RNG.standard_normal((16, SIZE, SIZE), np.float32) / 4)


@pytest.fixture(autouse=True)
def _however_short(monkeypatch):
    monkeypatch.setattr(layers, "_LEAST_WORK", 1)
    monkeypatch.setattr(layers, "_WORTH", 0)
    monkeypatch.setattr(layers, "_HALVED", 0)


def parts(fn, *given):
    program = opened_program(jax.make_jaxpr(fn)(*given), "cpu")
    found = layers.parts(program.operations, program.types, program.outputs)
    if found:
        assert list(itertools.chain(*(part.operations for part in found))) == list(program.operations)
    return found


def stack(count, layer=lambda x, w: lax.max(lax.dot(x, w), 0.0) + x, end=lambda x: lax.exp(lax.neg(x))):
    """Layers between a beginning and an end of their own."""

    def fn(w, x):
        x = lax.mul(lax.sin(x), np.float32(0.5))
        for k in range(count):
            x = layer(x, w[k])
        return end(x)

    return fn


@pytest.mark.parametrize(
    ("count", "layers_of_parts"), [(3, [1, 1, 1]), (6, [2, 2, 2]), (11, [3, 3, 3]), (12, [3, 3, 3, 3])]
)
def test_equal_layers(count, layers_of_parts):
    """As many as divide into few equal parts; what is left joins what is before or behind."""
    found = parts(stack(count), W, X)
    one = len(opened_program(jax.make_jaxpr(stack(1))(W, X), "cpu").operations)
    size = len(opened_program(jax.make_jaxpr(stack(2))(W, X), "cpu").operations) - one
    equal = [part for part in found if sum(part.form == other.form for other in found) > 1]
    assert [len(part.operations) / size for part in equal] == layers_of_parts
    assert all(len(part.results) == 1 for part in equal)


def test_parts_begin_where_the_least_is_between_them():
    """Not within a layer, where its wide middle would cross."""

    def layer(x, w):
        wide = lax.dot(x, lax.concatenate([w] * 4, 1))
        return lax.dot(lax.tanh(wide), lax.concatenate([w] * 4, 0)) + x

    found = parts(stack(8, layer), W, X)
    assert len({part.form for part in found}) == 3
    crossing = [v for part in found for o in part.operations for v in o.results if v in part.results]
    sizes = {v: o.equation.outvars[0].aval.size for part in found for o in part.operations for v in o.results}
    assert {sizes[v] for v in crossing} == {X.size}


@pytest.mark.parametrize(
    "fn",
    [
        stack(1),
        stack(12, end=lambda x: (jax.debug.print("{}", x[0, 0]), lax.exp(x))[1]),  # effects keep their order
        lambda w, x: (stack(12)(w, x), x),  # an input is an output, too
        lambda w, x: (stack(12)(w, x), np.float32(1.0)),
        # Layers that differ: in a number, in what follows, in what they read.
        lambda w, x: [x := lax.dot(x, w[k]) * np.float32(k + 0.5) for k in range(12)][-1],
        lambda w, x: [x := (lax.sin if k in (0, 3, 5, 6) else lax.cos)(lax.dot(x, w[k])) for k in range(7)][-1],
    ],
    ids=["one", "effects", "input", "constant", "numbers", "kinds"],
)
def test_what_is_not_cut(fn):
    assert not parts(fn, W, X)


def test_numbers_as_arguments_make_layers_equal():
    """What gives them is no operation of JAX: it has no equation."""

    def fn(w, x):
        for k in range(12):
            x = lax.dot(x, w[k]) * np.float32(k + 0.5)
        return x

    program = numbers_as_arguments(opened_program(jax.make_jaxpr(fn)(W, X), "cpu"))
    assert any(operation.name == NUMBER for operation in program.operations)
    found = layers.parts(program.operations, program.types, program.outputs)
    assert max(sum(part.form == other.form for other in found) for part in found) == 4


def test_a_short_program_is_not_cut(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)  # which the least work is divided by
    monkeypatch.setattr(layers, "_LEAST_WORK", 12 * SIZE**3 / 2 / 3)  # as much as one of two parts has
    assert len(parts(stack(12), W, X)) == 4  # two of six layers, and both ends
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert not parts(stack(12), W, X)


def test_what_is_not_worth_it(monkeypatch):
    """Operations spared, times the multiplications of a part for each core."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = parts(stack(12), W, X)
    spared = 3 * len(found[1].operations)
    monkeypatch.setattr(layers, "_WORTH", spared * 3 * SIZE**3 / 2)
    assert parts(stack(12), W, X)
    monkeypatch.setattr(layers, "_WORTH", spared * 3 * SIZE**3 / 2 + 1)
    assert not parts(stack(12), W, X)


@pytest.mark.parametrize(("number", "period"), [(0.0, 1), (-0.0, 2), (1.0, 2)])
def test_zeros_of_either_sign_are_different_constants(number, period):
    def fn(w, x):
        for k in range(12):
            x = lax.dot(x, w[k]) + np.float32(number if k % 2 else 0.0)
        return x

    program = opened_program(jax.make_jaxpr(fn)(W, X), "cpu")
    _, _, found = layers._repeated(program.operations, layers._kinds(program.operations, program.types))
    assert found == period * len(program.operations) / 12


def network(count, kernel, outputs=()):
    """Convolutions, each with a sum and an activation, behind one of another size, and a mean of all places.

    outputs: of which layers, too.
    """
    nodes, weights = [node("Conv", ["x", "w"], ["h0"])], {"w": RNG.standard_normal((8, 3, 2, 2), np.float32)}
    for k in range(count):
        weights[f"w{k}"] = RNG.standard_normal((8, 8, kernel, kernel), np.float32) / (3 * kernel)
        weights[f"b{k}"] = RNG.standard_normal(8, np.float32)
        pads = {"pads": [kernel // 2] * 4}
        nodes += [
            node("Conv", [f"h{k}", f"w{k}", f"b{k}"], [f"c{k}"], **pads),
            node("Relu", [f"c{k}"], [f"r{k}"]),
            node("Add", [f"r{k}", f"h{k}"], [f"h{k + 1}"]),
        ]
    nodes.append(node("GlobalAveragePool", [f"h{count}"], ["y"]))
    named = [info(f"h{k}", None) for k in outputs] + [info("y", None)]
    tensors = [numpy_helper.from_array(x, name) for name, x in weights.items()]
    graph = helper.make_graph(nodes, "g", [info("x", ["n", 3, "s", "s"])], named, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture
def chains(monkeypatch):
    """The programs of several parts that were made."""
    found, plain = [], prepared.chained
    monkeypatch.setattr(prepared, "chained", lambda *of: found.append(plain(*of)) or found[-1])
    return found


def image(*sizes):
    return RNG.standard_normal(sizes, np.float32)


def close(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.optimized
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("outputs", [(), (3,), range(1, 9)], ids=["last", "middle", "all"])
def test_a_model_computes_what_its_function_does(kernel, outputs, chains):
    model = jaxops.onnx.load(network(8, kernel, outputs))
    x = image(2, 3, 24, 24)
    for _ in range(2):
        close(model(x), jax.jit(model.apply)(model.params, x))
    (chain,) = chains
    runs = [link.run for link in chain.links]
    assert len(set(runs)) < len(runs) <= 6


def test_layouts_cross_from_part_to_part(chains):
    """Data stay channels last: nothing but the input is transposed."""
    model = jaxops.onnx.load(network(8, 3))
    x = image(1, 3, 24, 24)
    model(x)
    (part,) = model._pieces.prepared._own.parts.values()
    lowered = chains[0].lower(part.prepared, part.weights, [x])
    _, *middle, _ = [lowered.parts[link.run].as_text() for link in lowered.wiring.links]
    assert len(middle) == 3
    assert len({*middle}) == 1
    assert "stablehlo.transpose" not in middle[0]
    assert "tensor<1x23x23x8xf32>" in middle[0]


@pytest.mark.optimized
def test_other_sizes_settings_and_types(chains):
    model = jaxops.onnx.load(network(8, 3))
    x = image(1, 3, 24, 24)
    wanted = jax.jit(model.apply)(model.params, x)
    close(model(x), wanted)
    close(model(jnp.asarray(x)), wanted)
    assert len(chains) == 1
    with jax.default_matmul_precision("highest"):
        close(model(x), wanted)
    assert len(chains) == 2
    close(model(x), wanted)
    jax.clear_caches()
    close(model(x), wanted)
    assert len(chains) == 2
    close(model(x[..., :20, :20]), jax.jit(model.apply)(model.params, x[..., :20, :20]))
    assert len(chains) == 3
    with jax.disable_jit():
        close(model(x), wanted)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_later_call_with_shards(kind, chains):
    model = jaxops.onnx.load(network(8, 3))
    x = image(2, 3, 24, 24)
    mesh = jax.make_mesh((2,), ("i",), axis_types=(kind,))
    shards = jax.device_put(x, NamedSharding(mesh, PartitionSpec("i")))
    close(model(shards), model(x))
    close(model(shards), model(x))


def test_equal_parts_are_compiled_once(chains):
    compiled = []

    def listen(event, seconds, **_):
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    model = jaxops.onnx.load(network(12, 3))
    x = image(1, 3, 24, 24)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        model(x)
        model(x)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(chains[0].links) == 5
    assert len(compiled) == 3


def test_values_are_let_go_when_nothing_reads_them(chains):
    model = jaxops.onnx.load(network(12, 3))
    model(image(1, 3, 24, 24))
    links = chains[0].links
    for link, following in itertools.pairwise(links):
        assert set(link.operands).isdisjoint(following.operands)
        assert set(link.operands) <= set(link.done)


FILTERS = RNG.standard_normal((12, 4, 4, 3, 3), np.float32) / 6


def convolutions(where, count=12):
    """Layers none of which equals another, some of them convolutions: where."""
    kinds = [lax.sin, lax.cos, lax.tanh, lax.exp, lax.neg, lax.abs]

    def fn(w, x):
        for k in range(count):
            x = kinds[k // 3 % 6](kinds[k % 3](x))
            x = lax.conv(x, w[k], (1, 1), "SAME") if k in where else lax.mul(x, np.float32(k + 0.5))
        return x

    return fn


@pytest.mark.parametrize(
    ("where", "cut"),
    [(range(12), True), ([5], True), ([0, 1, 2, 3, 9, 10, 11], False), ([], False)],
    ids=["each", "middle", "ends", "none"],
)
def test_a_network_of_convolutions_is_cut_in_two(where, cut):
    """Before one in the middle third."""
    x = np.ones((1, 4, 8, 8), np.float32)
    found = parts(convolutions(where), list(FILTERS), x)
    assert len(found) == 2 * cut
    if cut:
        assert found[1].operations[0].name == "conv_general_dilated"
        sizes = [len(part.operations) for part in found]
        assert max(sizes) <= 2 / 3 * sum(sizes)


def test_a_short_network_is_not_cut_in_two(monkeypatch):
    x = np.ones((1, 4, 8, 8), np.float32)
    fn = convolutions(range(12))
    size = len(opened_program(jax.make_jaxpr(fn)(list(FILTERS), x), "cpu").operations)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(layers, "_HALVED", size * 12 * (4 * 64 * 4 * 9) / 2)
    assert parts(fn, list(FILTERS), x)
    monkeypatch.setattr(layers, "_HALVED", size * 12 * (4 * 64 * 4 * 9) / 2 + 1)
    assert not parts(fn, list(FILTERS), x)


def unequal(count):
    """A model of convolutions of different sizes."""
    sizes = range(4, 4 + 2 * count, 2)
    tensors = [
        numpy_helper.from_array(RNG.standard_normal((b, a, 3, 3), np.float32) / 6, f"w{a}")
        for a, b in itertools.pairwise([3, *sizes])
    ]
    nodes, before = [], "x"
    for k, a in enumerate([3, *sizes[:-1]]):
        nodes += [node("Conv", [before, f"w{a}"], [f"c{k}"], pads=[1] * 4), node("Relu", [f"c{k}"], [f"h{k}"])]
        before = f"h{k}"
    graph = helper.make_graph(nodes, "g", [info("x", [1, 3, 40, 40])], [info(before, None)], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.optimized
def test_halves_compute_what_the_whole_does(chains):
    model = jaxops.onnx.load(unequal(8))
    x = image(1, 3, 40, 40)
    for _ in range(2):
        close(model(x), jax.jit(model.apply)(model.params, x))
    assert len(chains[0].links) == 2


def test_one_half_is_lowered_while_the_other_is_compiled(monkeypatch, chains):
    """And one is compiled at a time."""
    events = []
    began, second = threading.Event(), threading.Event()
    lower, compiled = jax.stages.Traced.lower, jax.stages.Lowered.compile

    def lowering(self, *of, **options):
        if events:
            events.append(began.wait(20))
        found = lower(self, *of, **options)
        events.append("lowered")
        if events.count("lowered") == 2:
            second.set()
        return found

    def compiling(self, *of, **options):
        events.append("begins")
        began.set()
        second.wait(20)
        found = compiled(self, *of, **options)
        events.append("ends")
        return found

    monkeypatch.setattr(jax.stages.Traced, "lower", lowering)
    monkeypatch.setattr(jax.stages.Lowered, "compile", compiling)
    jaxops.onnx.load(unequal(8))(image(1, 3, 40, 40))
    assert events == ["lowered", "begins", True, "lowered", "ends", "begins", "ends"]
