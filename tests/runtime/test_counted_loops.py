"""What reads the scan outputs of a loop that data end sees the rows of the iterations that ran, and no padding.

The expected values are those of `model(x)` without bounds, which computes with arrays of the exact size.
"""

import chex
import jax
import numpy as np
import pytest
from graphs import info, model

from jaxops.errors import UnboundedError
from jaxops.onnx import load

CONSUMERS = {
    "total": "total = ReduceSum<keepdims = 0>(rows, zero)",
    "mean": "mean = ReduceMean<keepdims = 0>(rows, zero)",
    "least": "least = ReduceMin<keepdims = 0>(rows, zero)",
    "final": "final = Gather<axis = 0>(rows, minus)",
    "joined": "j1 = Concat<axis = 0>(rows, x1, rows) joined = ReduceProd<keepdims = 0>(j1, zero)",
    "soft": "s1 = Softmax<axis = 0>(rows) soft = Gather<axis = 0>(s1, minus)",
    "gram": "t1 = Transpose(rows) gram = MatMul(t1, rows)",
    "count": "n1 = Shape<end = 1>(rows) c1 = Cast<to = 1>(n1) count = ReduceSum<keepdims = 0>(c1)",
    "sums": "e1 = CumSum(rows, zero) sums = Gather<axis = 0>(e1, minus)",
    "flat": "f1 = Reshape(rows, minus) flat = ReduceLogSumExp<keepdims = 0>(f1, zero)",
}


def net(operands, *names):
    outputs = ", ".join(f"float[{'ABCDEFGHIJ'[k]}] {name}" for k, name in enumerate(names))
    return model(
        f"""main (float[2] x, float limit) => (float[2] y, {outputs}) {{
            m = Constant<value = int64 {{9}}>() three = Constant<value = int64 {{3}}>()
            yes = Constant<value = bool {{1}}>() half = Constant<value = float {{0.5}}>()
            minus = Constant<value_ints = [-1]>() zero = Constant<value_ints = [0]>() x1 = Unsqueeze(x, zero)
            d = ReduceMax<keepdims = 0>(x) starts = Less(d, limit)
            y, rows = Loop({operands}, x) <body = b (int64 i, bool go, float[2] s)
                    => (bool on, float[2] t, float[2] r) {{
                t = Add(s, s) r = Mul(s, half) u = ReduceMax<keepdims = 0>(t) on = Less(u, limit) }}>
            {" ".join(CONSUMERS[name] for name in names)}
        }}"""
    )


X = np.float32([1, 3])


@pytest.mark.parametrize(
    "names", [("total", "mean", "least", "final", "joined"), ("soft", "gram", "count", "sums", "flat")]
)
def test_what_follows_sees_the_iterations_that_ran(names):
    proto = net(", yes", *names)
    exact, bounded = load(proto), load(proto, bounds={"Loop": 6})
    assert not bounded.cuts
    run, exported = jax.jit(bounded.apply), bounded.export()
    for limit in np.float32([4, 20, 150]):
        expected = exact(X, limit)
        for results in (run({}, X, limit), bounded(X, limit), exported.call({}, X, limit)):
            chex.assert_trees_all_close(tuple(results), tuple(expected), rtol=1e-5)


def test_a_loop_without_an_iteration():
    proto = net(", starts", "total", "count", "joined")
    run = jax.jit(load(proto, bounds={"y": 3}).apply)
    for limit in np.float32([2, 5]):
        chex.assert_trees_all_close(tuple(run({}, X, limit)), tuple(load(proto)(X, limit)), rtol=1e-6)
    assert run({}, X, np.float32(2)).count == 0


def test_a_derivative_is_that_of_the_iterations_that_ran():
    names = "total", "mean", "joined", "soft", "gram", "flat"
    fixed, bounded = load(net("three, ", *names)), load(net(", yes", *names), bounds={"Loop": 7})
    x, limit = np.float32([0.5, 1.5]), np.float32(10)

    def loss(run):
        return lambda x: sum((leaf.sum() for leaf in run(x, limit)), 0.0)

    expected = jax.grad(loss(fixed))(x)
    for gradient in (jax.grad(loss(bounded)), jax.jit(jax.grad(loss(bounded)))):
        chex.assert_trees_all_close(gradient(x), expected, rtol=1e-5)


def test_a_loop_that_has_not_ended_marks_what_follows():
    results = jax.jit(load(net(", yes", "total", "final", "gram"), bounds={"Loop": 2}).apply)({}, X, np.float32(20))
    assert all(np.isnan(y).all() for y in results)


def test_a_trip_count_of_at_most_1000_needs_no_bound():
    proto = net("m, yes", "total", "count", "final")
    for limit in np.float32([20, 1e9]):
        chex.assert_trees_all_close(
            tuple(jax.jit(load(proto).apply)({}, X, limit)), tuple(load(proto)(X, limit)), rtol=1e-6
        )
    proto.graph.node[0].attribute[0].t.int64_data[:] = [1001]
    with pytest.raises(UnboundedError, match="load"):
        jax.jit(load(proto).apply)({}, X, limit)


def test_a_loop_in_a_loop():
    proto = model("""main (float[2] x, float limit) => (float[2] y, float[3,2] sums) {
        three = Constant<value = int64 {3}>() zero = Constant<value_ints = [0]>() yes = Constant<value = bool {1}>()
        y, sums = Loop(three, , x) <body = o (int64 k, bool l, float[2] v) => (bool l2, float[2] w, float[2] sum) {
            l2 = Identity(l) two = Constant<value = float {2}>() w = Div(v, two)
            z, rows = Loop(, yes, v) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t, float[2] r) {
                t = Add(s, s) r = Identity(s) u = ReduceMax<keepdims = 0>(t) on = Less(u, limit) }>
            sum = ReduceMean<keepdims = 0>(rows, zero) }>
    }""")
    run = jax.jit(load(proto, bounds={"z": 8}).apply)
    for limit in np.float32([4, 20]):
        chex.assert_trees_all_close(tuple(run({}, X, limit)), tuple(load(proto)(X, limit)), rtol=1e-6)


def test_the_state_of_a_while_loop_holds_what_it_has_written():
    proto = model("""main (float[4] x) => (float[4] buffer, int64 n, float last, float[A] kept) {
        yes = Constant<value = bool {1}>() none = Constant<value = int64 {0}>()
        nothing = Constant<value_floats = [0, 0, 0, 0]>() zeros = Add(nothing, nothing)
        zero = Constant<value_ints = [0]>() one = Constant<value = int64 {1}>()
        n, buffer, rows = Loop(, yes, none, zeros) <body = b (int64 i, bool go, int64 k, float[4] s)
                => (bool on, int64 k2, float[4] t, float r) {
            at = Unsqueeze(k, zero) v = Gather(x, at) w = Exp(v) t = ScatterElements(s, at, w) k2 = Add(k, one)
            r = Squeeze(v, zero) three = Constant<value = float {3}>() on = Less(r, three) }>
        e = ReduceSum<keepdims = 0>(rows) last = Identity(e)
        twice = Concat<axis = 0>(rows, x) most = ReduceMax<keepdims = 1>(twice) kept = Identity(most)
    }""")
    bounded = load(proto, bounds={"Loop": 4})
    for x in (np.float32([1, 2, 3, 4]), np.float32([5, 1, 1, 1]), np.float32([0, 0, 0, 9])):
        expected = tuple(load(proto)(x))
        chex.assert_trees_all_close(tuple(jax.jit(bounded)(x)), expected, rtol=1e-6)
        chex.assert_trees_all_close(tuple(bounded.export().call(bounded.params, x)), expected, rtol=1e-6)


def test_the_trip_count_of_a_loop_with_a_bound_may_be_traced():
    proto = net("count_of, yes", "total", "count")
    proto.graph.input.append(info("count_of", [], 7))
    run = jax.jit(load(proto, bounds={"Loop": 4}).apply)
    for n in (0, 1, 3, 4):
        expected = load(proto)(X, np.float32(20), n)
        chex.assert_trees_all_close(tuple(run({}, X, np.float32(20), n)), tuple(expected), rtol=1e-6)


def test_a_trip_count_that_is_an_input():
    """A NumPy number is known, so the result has its rows; a JAX array has the rows of the bound."""
    proto = model(
        """main (int64 n, float[2] x) => (float[2] y, float[k, 2] rows) {
            y, rows = Loop(n, , x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t, float[2] r) {
                on = Identity(go) t = Add(s, s) r = Identity(t) }> }"""
    )
    bounded = load(proto, bounds={"Loop": 4})
    for n in (0, 1, 3):
        expected = load(proto)(np.array(n), X)
        chex.assert_trees_all_equal(tuple(bounded(np.array(n), X)), tuple(expected))
        padded = np.zeros((4, 2), np.float32)
        padded[:n] = expected.rows
        for run in (bounded, jax.jit(bounded)):
            np.testing.assert_array_equal(run(jax.numpy.array(n), X).rows, padded)
