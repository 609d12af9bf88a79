"""`load(path, bounds={name: n})`: an input, or a node, whose value sets a size may be traced; there is room for n.

The expected values are those of `model(x)` without bounds, which is compiled for each size.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model
from lengths import MASKED

from jaxops.errors import ArgumentError, StaticError, UnsupportedError
from jaxops.onnx import load

RNG = np.random.default_rng(0)
# Each makes an array of the size that the input `n` sets, and reads it in a way that padding would change.
SIZED = {
    "range": "a = Range(none, n, one) f = Cast<to = 1>(a) y = ReduceMean<keepdims = 0>(f)",
    "filled": "s = Unsqueeze(n, zero) a = ConstantOfShape<value = float[1] {2}>(s) y = ReduceSum<keepdims = 0>(a)",
    "expanded": "s = Unsqueeze(n, zero) a = Expand(two, s) b = Concat<axis = 0>(a, x) y = ReduceProd<keepdims = 0>(b)",
    "sliced": "e = Unsqueeze(n, zero) a = Slice(x, zero, e, zero) y = ReduceMin<keepdims = 0>(a)",
    "rest": "e = Unsqueeze(n, zero) a = Slice(x, e, end, zero) y = ReduceLogSumExp<keepdims = 0>(a)",
    "tiled": "r = Unsqueeze(n, zero) a = Tile(x, r) b = Mul(a, a) y = ReduceL2<keepdims = 0>(b)",
    "twice": "m = Mul(n, n) a = Range(one, m, one) f = Cast<to = 1>(a) y = ReduceSum<keepdims = 0>(f)",
    "square": """s = Unsqueeze(n, zero) p = Concat<axis = 0>(s, s) a = ConstantOfShape<value = float[1] {2}>(p)
        b = MatMul(a, a) y = ReduceSum<keepdims = 0>(b)""",
    "halved": """f = Cast<to = 1>(n) h = Div(f, two) c = Ceil(h) k = Cast<to = 7>(c) a = Range(none, k, one)
        g = Cast<to = 1>(a) y = ReduceSum<keepdims = 0>(g)""",
    "best": "k = Unsqueeze(n, zero) v, i = TopK(x, k) y = ReduceSum<keepdims = 0>(v)",
    "number": """a = Range(none, n, one) f = Cast<to = 1>(n) m = ReduceMax<keepdims = 0>(a)
        g = Cast<to = 1>(m) y = Add(f, g)""",
}


def sized(name, start="int64 n) => (float y) {"):
    return model(
        f"""main (float[8] x, {start}
            none = Constant<value = int64 {{0}}>() one = Constant<value = int64 {{1}}>()
            zero = Constant<value_ints = [0]>() end = Constant<value_ints = [99]>()
            two = Constant<value = float {{2}}>()
            {SIZED[name]}
        }}"""
    )


@pytest.mark.parametrize("name", SIZED)
def test_what_reads_the_size_sees_no_padding(name):
    proto, x = sized(name), RNG.normal(size=8).astype(np.float32)
    run = jax.jit(load(proto, bounds={"n": 6}).apply)
    for n in (1, 3, 6):
        np.testing.assert_allclose(run({}, x, n), load(proto)(x, n), 2e-5)
    np.testing.assert_array_equal(run({}, x, 9), run({}, x, 6))  # a larger number counts as the bound


SUMMED = "float[1,3] d) => (float y) { total = ReduceSum<keepdims = 0>(d) n = Cast<to = 7>(total)"


@pytest.mark.parametrize("bound", ["n", "total"])
@pytest.mark.parametrize("name", SIZED)
def test_a_size_that_a_node_computes_from_data(name, bound):
    proto, x = sized(name, SUMMED), RNG.normal(size=8).astype(np.float32)
    net = load(proto, bounds={bound: 6})
    run = jax.jit(net.apply)
    assert not net.cuts
    for n in (1, 3, 6):
        durations = np.array([[n - 0.5, 0.25, 0.5]], np.float32)
        np.testing.assert_allclose(run(net.params, x, durations), load(proto)(x, durations), 2e-5)
        np.testing.assert_allclose(net(x, durations), run(net.params, x, durations), 2e-5)
    many = np.array([[[2, 0, 0]], [[1, 2, 3]]], np.float32)
    found = jax.vmap(lambda d: net.apply(net.params, x, d))(many)
    np.testing.assert_allclose(found, [run(net.params, x, d) for d in many], 2e-5)


def test_all_ways_to_run_agree():
    proto, x, lengths = model(MASKED), RNG.normal(size=(2, 9)).astype(np.float32), np.array([9, 4])
    net, expected = load(proto, bounds={"lengths": 16}, x64=False), load(proto)(x, lengths)
    assert not net.inputs[1].static
    assert not net.cuts
    with jax.disable_jit():
        ways = [net(x, lengths)]
    ways += [net(x, lengths), jax.jit(net.apply)({}, x, lengths), net.export().call({}, x, jnp.asarray(lengths))]
    for found in ways:
        chex.assert_trees_all_close(tuple(found), tuple(expected), rtol=1e-5)
    gradient = jax.jit(jax.grad(lambda x, lengths: net(x, lengths).y.sum()))(x, lengths)
    np.testing.assert_allclose(gradient, (1 - np.tanh(x) ** 2) * (np.arange(9) < lengths[:, None]), 1e-4)
    assert np.isnan(net(x, np.array([8, 4])).y).all()  # x has 9 columns: ONNX has no result


def test_one_program_serves_all_values():
    proto = model(MASKED)
    net, traces = load(proto, bounds={"lengths": 16}), []
    run = jax.jit(lambda *inputs: traces.append(0) or net.apply({}, *inputs))
    x = RNG.normal(size=(2, 9)).astype(np.float32)
    for lengths in ([9, 4], [2, 9], [9, 9]):
        chex.assert_trees_all_close(
            tuple(run(x, np.array(lengths))), tuple(load(proto)(x, np.array(lengths))), rtol=1e-5
        )
    assert len(traces) == 1


def test_an_output_has_room_for_the_bound():
    proto = model("main (int64 n) => (int64[K] y) { y = Range(zero, n, one) }", initializers={"zero": 0, "one": 1})
    net = load(proto, bounds={"n": 5})
    for y in (net(3), jax.jit(net)(3), net.apply({}, 3)):
        assert y.shape == (5,)
        assert y[:3].tolist() == [0, 1, 2]


WRONG = [
    ({"x": 3}, r"value of input 'x' sets no size\n.*can have: the inputs 'n', whose values set sizes"),
    ({"m": 3}, r"no node and no operator 'm'.*\n.*the inputs 'n'"),
    ({"n": 0}, "'n' is 0; it must be a positive integer"),
]


@pytest.mark.parametrize(("bounds", "match"), WRONG)
def test_wrong_bounds(bounds, match):
    with pytest.raises(ArgumentError, match=match):
        load(sized("range"), bounds=bounds)


def test_nodes_that_compute_sizes_are_listed():
    with pytest.raises(ArgumentError, match=r"'y' takes no bound.*\n.*can have: the nodes 'n', 'total', which compute"):
        load(sized("range", SUMMED), bounds={"y": 3})
    with pytest.raises(StaticError, match=r"bounds=\{name: n\}\), with the node that computes it, makes one program"):
        jax.jit(load(sized("range", SUMMED)).apply)({}, np.ones(8, np.float32), np.ones((1, 3), np.float32))


def test_an_input_and_a_node_of_one_name():
    proto = sized("range")
    proto.graph.node[-1].name = "n"
    with pytest.raises(ArgumentError, match="'n' is an input and ReduceMean 'n'; rename one of them"):
        load(proto, bounds={"n": 3})


def test_what_cannot_be_served_is_refused(tmp_path):
    rows = """main (float[8] x, int64 n) => (float[K,8] y) {
        yes = Constant<value = bool {1}>()
        last, y = Loop(n, yes, x) <body = b (int64 i, bool k, float[8] s) => (bool k2, float[8] t, float[8] r) {
            k2 = Identity(k) t = Add(s, s) r = Identity(s) }>
    }"""
    with pytest.raises(StaticError, match="Loop"):
        jax.jit(load(model(rows), bounds={"n": 3}).apply)({}, np.ones(8, np.float32), 2)
    with pytest.raises(UnsupportedError, match="bound"):
        load(sized("range"), bounds={"n": 3}).to_python(tmp_path)


def test_scan_outputs_need_a_bound_of_the_loop_too():
    proto = model("""main (float[8] x, int64 n) => (float y) {
        yes = Constant<value = bool {1}>()
        last, r = Loop(n, yes, x) <body = b (int64 i, bool k, float[8] s) => (bool k2, float[8] t, float[8] r) {
            k2 = Identity(k) t = Add(s, s) r = Identity(s) }>
        y = ReduceMean<keepdims = 0>(r)
    }""")
    x, net = np.arange(8, dtype=np.float32), load(proto, bounds={"n": 5, "Loop": 5})
    for n in (1, 3, 5):
        np.testing.assert_allclose(jax.jit(net.apply)({}, x, n), load(proto)(x, n), 1e-6)


def test_a_size_inside_a_branch_is_refused():
    proto = model("""main (float[8] x, int64 n, bool c) => (float y) {
        zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>()
        y = If(c) <then_branch = t () => (float a) {
                      r = Range(zero, n, one) f = Cast<to = 1>(r) a = ReduceMean<keepdims = 0>(f) },
                  else_branch = e () => (float b) { b = ReduceMax<keepdims = 0>(x) }>
    }""")
    with pytest.raises(StaticError, match=r"'n' must be known while tracing.*\n.*Range 'r' `limit`"):
        jax.jit(load(proto, bounds={"n": 5}).apply)({}, np.ones(8, np.float32), 2, True)


@pytest.mark.parametrize(
    ("declared", "numbers"), [("int64 n", "sets: b"), ("int64[2] n", "sets, if it is one number computed from it: b")]
)
def test_an_export_offers_a_bound_for_one_number(declared, numbers):
    """Each of two numbers, as the size of an image, would have its own bound."""
    body = "s = Reshape(n, k) a = ConstantOfShape(s) y = Concat<axis = 0>(a, a)"
    proto = model(f"main ({declared}) => (float[p] y) {{ k = Constant<value_ints = [-1]>() {body} }}")
    with pytest.raises(StaticError, match=rf"or the largest size that it {numbers}ounds={{'n': n}}"):
        load(proto).export()
