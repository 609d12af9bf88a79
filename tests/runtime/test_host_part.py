"""Inputs that set sizes: NumPy computes the sizes before a call, and one program serves all inputs with those."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import model
from lengths import MASKED

from jaxops.errors import StaticError
from jaxops.graph.host_part import divided
from jaxops.onnx import load
from jaxops.runtime import host_part

RNG = np.random.default_rng(0)


def batch(longest, count=2):
    return RNG.normal(size=(count, longest)).astype(np.float32)


def agrees(proto, found, **inputs):
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for got, expected in zip(found, session.run(None, inputs), strict=True):
        np.testing.assert_allclose(got, expected, 1e-5, 1e-6)


def programs(net):
    """The number of programs that were specialized."""
    return len(net._function.runner.specialized.programs)


def test_one_program_serves_all_lengths_with_the_same_maximum():
    proto = model(MASKED)
    net = load(proto)
    assert "ReduceMax 'longest' → Range 'places' `limit`" in net.inputs[1].static
    for lengths in ([20, 12], [20, 13], [1, 20], [20, 20], [20, 12]):
        x = batch(20)
        agrees(proto, net(x, np.array(lengths)), x=x, lengths=np.array(lengths))
    assert programs(net) == 1
    assert not net.cuts
    x = batch(7)
    agrees(proto, net(x, np.array([7, 5])), x=x, lengths=np.array([7, 5]))
    assert programs(net) == 2


def test_all_ways_to_run_agree():
    net, x, lengths = load(model(MASKED)), batch(9), np.array([9, 4])
    expected = net(x, lengths)
    with jax.disable_jit():
        ways = [net(x, lengths)]
    ways += [net.apply(net.params, x, lengths), jax.jit(lambda x: net(x, lengths))(x)]
    ways += [pickle.loads(pickle.dumps(net))(x, lengths), copy.deepcopy(net)(x, lengths), net(x, [9, 4])]
    for found in ways:
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, want, 1e-6)
            assert type(got) is type(want)
    for run in (lambda f: f, jax.jit):
        gradient = run(jax.grad(lambda x: net(x, lengths).y.sum()))(x)
        np.testing.assert_allclose(gradient, (1 - np.tanh(x) ** 2) * (np.arange(9) < lengths[:, None]), 1e-4)
    with pytest.raises(StaticError, match="input 'lengths' must be known while tracing"):
        jax.jit(net.apply)({}, x, jnp.asarray(lengths))


def test_a_repeated_call_computes_nothing_on_the_host(monkeypatch):
    net, x = load(model(MASKED)), batch(9)
    first = net(x, np.array([9, 4]))

    def run_graph(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(host_part, "run_graph", run_graph)
    np.testing.assert_array_equal(net(x, np.array([9, 4])).y, first.y)
    with pytest.raises(AssertionError, match="computed again"):
        net(x, np.array([9, 5]))


def test_the_last_calls_are_kept():
    net, x = load(model(MASKED)), batch(200)
    for k in range(1, 150):
        net(x, np.array([200, k]))
        net(x, np.array([200, 1]))
    kept = [int(key[2][0][1].value[1]) for key in net._function.runner.host_parts._inputs]
    assert kept == [*range(23, 150), 1]
    assert programs(net) == 1


BOTH = """main (float[N] x, int64[K] s) => (float[N] y, int64[N] z, int64[K] t) {
    zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()
    first = Slice(s, zero, one) size = Shape(x) half = Div(size, two) sizes = Concat<axis = 0>(first, half)
    shaped = Expand(one, sizes) z = Cast<to = 7>(shaped) t = Mul(s, two) k = ReduceMax<keepdims = 0>(s)
    f = Cast<to = 1>(k) y = Mul(x, f)
}"""


def test_what_the_program_has_baked_in_is_its_key():
    """The sizes of another input count, and values that enter arithmetic do not."""
    proto = model(BOTH, initializers={"two": np.array([2])})
    net = load(proto)
    for n, s in ((4, [3, 1]), (4, [3, 5]), (4, [3, -7]), (6, [3, 1]), (4, [2, 1])):
        x = np.arange(n, dtype=np.float32)
        y, z, t = net(x, np.array(s))
        np.testing.assert_array_equal(y, x * max(s))
        assert z.shape == (s[0], n // 2)
        np.testing.assert_array_equal(t, 2 * np.array(s))
    assert programs(net) == 3


def test_an_input_that_is_needed_as_it_is_stays_static():
    proto = model("main (float[N] x, int64[K] s) => (float[M] y, int64[K] t) { y = Reshape(x, s) t = Neg(s) }")
    net = load(proto)
    y, t = net(batch(6, 1)[0], np.array([2, 3]))
    assert y.shape == (2, 3)
    assert isinstance(t, np.ndarray)  # 64 bits, as nothing traced enters it
    assert divided(net.graph, ["s"]) is None


def test_values_that_decide_are_needed():
    """A branch, the number of iterations, and a result whose size depends on data."""
    proto = model(
        """main (float[N] x, int64[B] n) => (float[K] y, float[N] z, int64[1,L] at) {
        zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>() four = Constant<value = int64 {4}>()
        top = ReduceMax<keepdims = 0>(n) r = Range(zero, top, one) some = Greater(top, four)
        f = Cast<to = 1>(r) y = If(some) <then_branch = a () => (float[K] p) { p = Mul(f, f) },
            else_branch = b () => (float[M] q) { q = Concat<axis = 0>(f, x) }>
        low = ReduceMin<keepdims = 0>(n)
        z = Loop(low, , x) <body = l (int64 i, bool go, float[N] s) => (bool on, float[N] t) {
            on = Identity(go) t = Add(s, x) }>
        odd = Mod(n, two) at = NonZero(odd)
    }""",
        initializers={"two": np.array(2)},
    )
    net, x = load(proto), batch(3, 1)[0]
    for n in ([3, 2], [5, 2, 1], [5, 1]):
        agrees(proto, net(x, np.array(n)), x=x, n=np.array(n))
    assert not net.cuts
    np.testing.assert_array_equal(jax.grad(lambda x: net(x, np.array([5, 2])).z.sum())(x), [3, 3, 3])


def test_in_subgraphs_and_functions():
    """What a body captures, and a function whose operand must be known."""
    proto = model(
        """main (float[N] x, int64[B] n) => (float[A] y, float[M] z) {
            zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>() yes = Constant<value = bool {1}>()
            top = ReduceMax<keepdims = 0>(n)
            y = If(c) <then_branch = a () => (float[A] p) { r = Range(zero, top, one) p = Cast<to = 1>(r) },
                else_branch = b () => (float[A] q) { r2 = Range(zero, top, one) f2 = Cast<to = 1>(r2) q = Neg(f2) }>
            z = loc.repeated(x, top)
        }""",
        imports=', "loc" : 1',
        functions="""<opset_import: ["" : 18], domain: "loc"> repeated (x, top) => (z) {
            ax = Constant<value_ints = [-1]>() t = Reshape(top, ax) z = Tile(x, t) }""",
        initializers={"c": np.array(True)},
    )
    net, x = load(proto), batch(3, 1)[0]
    for n in ([3, 2], [3, 1], [1, 3]):
        y, z = net(x, np.array(n))
        np.testing.assert_array_equal(y, [0, 1, 2])
        np.testing.assert_array_equal(z, np.tile(x, 3))
    assert programs(net) == 1


def test_numbers_beyond_32_bits():
    large = 2**40
    net = load(model(MASKED))
    assert not net.x64
    x = batch(3)
    with pytest.raises(MemoryError, match="range"):
        net(x, np.array([large, 1]))
    # Not the length itself enters the program, but what is left of it.
    text = "longest = ReduceMax<keepdims = 0>(short) short = Mod(lengths, m)"
    text = MASKED.replace("longest = ReduceMax<keepdims = 0>(lengths)", text)
    net = load(model(text, initializers={"m": np.array(9)}))
    y = net(x, np.array([large + 3 - large % 9, 3])).y
    assert y.shape == (2, 3)
    # A product of lengths may exceed 32 bits, so NumPy computes it.
    grown = "square = Mul(lengths, lengths) part = Div(square, e) count = Cast<to = 1>(part)"
    grown = MASKED.replace("count = Cast<to = 1>(lengths)", grown)
    net = load(model(grown, initializers={"e": np.array(2**31)}))
    assert not net.x64
    x, lengths = batch(1, 2), np.array([1, -(2**30)])
    np.testing.assert_allclose(net(x, lengths).mean, net(x, lengths).y.sum(1) / np.float32([0, 2**29]), 1e-6)
    assert programs(net) == 1


def test_random_numbers_stay_those_of_the_whole_graph():
    text = MASKED.replace("t = Tanh(x)", "u = RandomUniformLike(x) t = Tanh(u)")
    net, x, lengths = load(model(text)), batch(5), np.array([5, 2])
    key = jax.random.key(3)
    with_host = net(x, lengths, rng=key)
    np.testing.assert_allclose(with_host.y, jax.jit(lambda x: net(x, lengths, rng=key))(x).y, 1e-6)
