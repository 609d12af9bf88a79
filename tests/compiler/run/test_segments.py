"""A program in parts, which follow each other."""

import itertools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import info, node
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from onnx import helper, numpy_helper

import jaxops.onnx
from jaxops.compiler import pipeline
from jaxops.compiler.passes import lazy_moves
from jaxops.compiler.run.segments import SegmentedProgram
from jaxops.errors import TooLargeError

pytestmark = pytest.mark.usefixtures("cut_however_short")
RNG = np.random.default_rng(0)


def network(count, kernel, outputs=()):
    """Convolutions, each with a sum and an activation, behind one of another size, and a mean of all places.

    outputs: of which layers, too.
    """
    nodes, weights = [node("Conv", ["x", "w"], ["h0"])], {"w": RNG.standard_normal((8, 6, 2, 2), np.float32)}
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
    graph = helper.make_graph(nodes, "g", [info("x", ["n", 6, "s", "s"])], named, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture
def segmented(monkeypatch):
    """The programs of several parts that were made."""
    found, plain = [], SegmentedProgram.jitted
    monkeypatch.setattr(SegmentedProgram, "jitted", lambda *of: found.append(plain(*of)) or found[-1])
    return found


def image(*sizes):
    return RNG.standard_normal(sizes, np.float32)


def close(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def lowered_parts(network, segmented):
    """The programs of a model, lowered, in the order in which they run."""
    model, x = jaxops.onnx.load(network), image(1, 6, 24, 24)
    model(x)
    (part,) = model._weights.cache.executables.values()
    lowered = segmented[0].lower(part.prepared, part.weights, [x])
    return [lowered.parts[segment.run] for segment in lowered.wiring.segments]


@pytest.mark.optimized
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("outputs", [(), (3,), range(1, 9)], ids=["last", "middle", "all"])
def test_a_model_computes_what_its_function_does(kernel, outputs, segmented):
    model = jaxops.onnx.load(network(8, kernel, outputs))
    x = image(2, 6, 24, 24)
    for _ in range(2):
        close(model(x), jax.jit(model.apply)(model.params, x))
    (found,) = segmented
    runs = [segment.run for segment in found.segments]
    assert len(set(runs)) < len(runs) <= 6


def test_the_results_of_all_parts_are_counted_together():
    """No part takes more than 0.3 MiB, but each output stays until the end."""
    model, x = jaxops.onnx.load(network(8, 3, range(1, 9)), max_bytes=1 << 19), image(1, 6, 96, 96)
    with pytest.raises(TooLargeError, match=r"values that one call holds together, .* take 2 MiB, but .*512 KiB"):
        model(x)
    assert len(jaxops.onnx.load(network(8, 3, range(1, 9)), max_bytes=3 << 20)(x)) == 9


def test_the_parts_that_are_compiled_are_counted(caplog):
    model = jaxops.onnx.load(network(8, 3))
    caplog.set_level("INFO", logger="jaxops")
    model(image(1, 6, 24, 24))
    assert caplog.messages == ["compiling g", *(f"compiling g, part {k} of 3" for k in (1, 2, 3))]


def test_layouts_cross_from_part_to_part(segmented):
    """Data stay channels last: nothing but the input is transposed."""
    _, *middle, _ = [part.as_text() for part in lowered_parts(network(8, 3), segmented)]
    assert len(middle) == 3
    assert len({*middle}) == 1
    assert "stablehlo.transpose" not in middle[0]
    assert "tensor<1x23x23x8xf32>" in middle[0]


@pytest.mark.optimized
def test_other_sizes_settings_and_types(segmented):
    model = jaxops.onnx.load(network(8, 3))
    x = image(1, 6, 24, 24)
    wanted = jax.jit(model.apply)(model.params, x)
    close(model(x), wanted)
    close(model(jnp.asarray(x)), wanted)
    assert len(segmented) == 1
    with jax.default_matmul_precision("highest"):
        close(model(x), wanted)
    assert len(segmented) == 2
    close(model(x), wanted)
    jax.clear_caches()
    close(model(x), wanted)
    assert len(segmented) == 2
    close(model(x[..., :20, :20]), jax.jit(model.apply)(model.params, x[..., :20, :20]))
    assert len(segmented) == 3
    with jax.disable_jit():
        close(model(x), wanted)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_later_call_with_shards(kind, segmented):
    model = jaxops.onnx.load(network(8, 3))
    x = image(2, 6, 24, 24)
    mesh = jax.make_mesh((2,), ("i",), axis_types=(kind,))
    shards = jax.device_put(x, NamedSharding(mesh, PartitionSpec("i")))
    close(model(shards), model(x))
    close(model(shards), model(x))


def test_equal_parts_are_compiled_once(segmented):
    compiled = []

    def listen(event, seconds, **_):
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    model = jaxops.onnx.load(network(12, 3))
    x = image(1, 6, 24, 24)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        model(x)
        model(x)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(segmented[0].segments) == 5
    assert len(compiled) == 3


def test_results_of_the_last_part_are_arrays(segmented):
    """Or each call would run a program more, which makes arrays of them."""
    *_, last = lowered_parts(network(12, 3), segmented)
    (result,) = last.out_info
    assert not isinstance(result, lazy_moves.LazyTranspose | lazy_moves.LazyReshape | lazy_moves.LazyBroadcast)


def test_the_last_part_may_be_one_of_the_equal_ones(segmented):
    """It is compiled once for all of them."""
    weights = [numpy_helper.from_array(RNG.standard_normal((16, 16), np.float32) / 4, f"w{k}") for k in range(8)]
    nodes = [node("Tanh", ["x"], ["h0"])]
    for k in range(8):
        nodes += [node("MatMul", [f"h{k}", f"w{k}"], [f"p{k}"]), node("Add", [f"p{k}", f"h{k}"], [f"h{k + 1}"])]
    graph = helper.make_graph(nodes, "g", [info("x", [5, 16])], [info("h8", None)], weights)
    model = jaxops.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    x = image(5, 16)
    for _ in range(2):
        close(model(x), jax.jit(model.apply)(model.params, x))
    *_, one, last = [segment.run for segment in segmented[0].segments]
    assert one is last


def test_values_are_let_go_when_nothing_reads_them(segmented):
    model = jaxops.onnx.load(network(12, 3))
    model(image(1, 6, 24, 24))
    segments = segmented[0].segments
    for segment, following in itertools.pairwise(segments):
        assert set(segment.operands).isdisjoint(following.operands)
        assert set(segment.operands) <= set(segment.dead)


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
def test_halves_compute_what_the_whole_does(segmented):
    model = jaxops.onnx.load(unequal(8))
    x = image(1, 3, 40, 40)
    for _ in range(2):
        close(model(x), jax.jit(model.apply)(model.params, x))
    assert len(segmented[0].segments) == 2


def test_one_half_is_lowered_while_the_other_is_compiled(monkeypatch, segmented):
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


@pytest.mark.parametrize("count", [1, 2])
def test_as_many_parts_are_compiled_at_once_as_a_program_says(count, monkeypatch, segmented):
    """By a first call, and for a file. The first two wait for another one, or long enough to see that there is none."""
    plain = jax.stages.Lowered.compile

    def compiled(lowered, *given):
        begun.append(lowered)
        try:
            meeting.wait(10 if len(begun) <= 2 == count else 0.2)
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)
        return plain(lowered, *given)

    monkeypatch.setattr(pipeline, "at_once", lambda parts, target: count)
    model, x = jaxops.onnx.load(network(8, 3)), image(1, 6, 24, 24)
    with monkeypatch.context() as patched:
        patched.setattr(jax.stages.Lowered, "compile", compiled)
        meeting, begun, met = threading.Barrier(2), [], []
        model(x)
        assert met[:2] == [count == 2] * 2
        (part,) = model._weights.cache.executables.values()
        lowered = segmented[0].lower(part.prepared, part.weights, [x])
        meeting, begun, met = threading.Barrier(2), [], []
        lowered.compile()
        assert met[:2] == [count == 2] * 2
