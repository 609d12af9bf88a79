"""`load(path, straight_through=True)`: gradients of models with QuantizeLinear and DequantizeLinear."""

import pickle

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.onnx import load

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 4)).astype(np.float32)
W1, W2 = (RNG.normal(size=s).astype(np.float32) / 2 for s in ((4, 8), (8, 3)))
S1 = (np.abs(W1).max(0) / 127).astype(np.float32)
# As quantization-aware training writes it: activations per tensor, weights per channel.
QAT = model(
    """main (float[N,4] x) => (float[N,3] y) {
        xq = QuantizeLinear(x, xs, xz) xd = DequantizeLinear(xq, xs, xz)
        wq = QuantizeLinear<axis = 1>(w1, s1, z1) wd = DequantizeLinear<axis = 1>(wq, s1, z1)
        h = MatMul(xd, wd) r = Relu(h)
        rq = QuantizeLinear(r, rs, rz) rc = Clip(rq, r0, r127) rd = DequantizeLinear(rc, rs, rz)
        vq = QuantizeLinear(w2, s2, z2) vd = DequantizeLinear(vq, s2, z2)
        y = MatMul(rd, vd)
    }""",
    initializers={
        **{"w1": W1, "s1": S1, "z1": np.zeros(8, np.int8), "w2": W2, "s2": np.float32(0.01), "z2": np.int8(0)},
        **{"xs": np.float32(0.01), "xz": np.int8(3), "rs": np.float32(0.02), "rz": np.uint8(0)},
        **{"r0": np.uint8(0), "r127": np.uint8(127)},
    },
)


def fake_quantized(x, scale, zero, low, high):
    """As PyTorch's, with a derivative by `stop_gradient`."""
    ratio = x / scale
    number = jnp.round(ratio) + zero
    through = ratio + jax.lax.stop_gradient(jnp.round(ratio) - ratio) + zero
    return (jnp.where((low <= number) & (number <= high), through, jnp.clip(number, low, high)) - zero) * scale


def by_hand(params, x):
    x = fake_quantized(x, 0.01, 3, -128, 127)
    h = jax.nn.relu(x @ fake_quantized(params["w1"], params["s1"][None], 0, -128, 127))
    return fake_quantized(h, 0.02, 0, 0, 127) @ fake_quantized(params["w2"], 0.01, 0, -128, 127)


def squared(apply, target):
    return lambda params, x: jnp.mean((apply(params, x) - target) ** 2)


def test_values_are_the_same_bit_for_bit():
    plain, net = load(QAT), load(QAT, straight_through=True)
    assert net.params.keys() == plain.params.keys() == {"w1", "s1", "w2"}
    x = 2 * X
    np.testing.assert_array_equal(net(x), plain(x))
    np.testing.assert_array_equal(jax.jit(net.apply)(net.params, x), jax.jit(plain.apply)(net.params, x))
    np.testing.assert_array_equal(net.export().call(net.params, x), plain.export().call(net.params, x))
    with jax.disable_jit():
        np.testing.assert_array_equal(net(x), plain(x))
    programs = [jax.jit(m.apply).lower(net.params, x).compile().as_text() or "" for m in (net, plain)]
    assert len(programs[0].splitlines()) == len(programs[1].splitlines())


def test_a_convolution_stays_one_of_integers():
    proto = model(
        """main (float[2,8,9,9] x) => (float[2,8,9,9] y) {
            q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
            wq = QuantizeLinear<axis = 0>(w, ws, wz) wd = DequantizeLinear<axis = 0>(wq, ws, wz)
            y = Conv<pads = [1, 1, 1, 1]>(d, wd)
        }""",
        initializers={
            **{"s": np.float32(0.02), "z": np.int8(0), "w": RNG.normal(size=(8, 8, 3, 3)).astype(np.float32)},
            **{"ws": np.full(8, 0.03, np.float32), "wz": np.zeros(8, np.int8)},
        },
    )
    x = RNG.normal(size=(2, 8, 9, 9)).astype(np.float32)
    plain, net = load(proto), load(proto, straight_through=True)
    np.testing.assert_array_equal(net(x), plain(x))
    assert net.paths == plain.paths
    pairs = [m.specialize(x) for m in (net, plain)]
    programs = [jax.jit(run).lower(prepare(net.params), x).as_text() for prepare, run in pairs]
    assert programs[0] == programs[1]
    assert np.any(jax.grad(lambda p: jnp.sum(net.apply(p, x) ** 2))(net.params)["w"])


def test_gradients_are_those_of_fake_quantization():
    plain, net = load(QAT), load(QAT, straight_through=True)
    x, target = 2 * X, np.float32(1)
    assert np.abs(net(x) - by_hand(net.params, x)).max() < 1e-4
    expected = jax.grad(squared(by_hand, target), (0, 1))(net.params, x)
    loss = squared(net.apply, target)
    ways = [jax.grad(loss, (0, 1)), jax.jit(jax.grad(loss, (0, 1)))]
    ways += [lambda p, x: jax.value_and_grad(loss, (0, 1))(p, x)[1]]
    ways += [jax.grad(lambda p, x: jnp.mean((net.with_params(p)(x) - target) ** 2), (0, 1))]
    prepare, run = net.specialize(x, transformable=True)
    ways += [jax.grad(lambda p, x: jnp.mean((run(prepare(p), x) - target) ** 2), (0, 1))]
    for grads in (way(net.params, x) for way in ways):
        chex.assert_trees_all_close(grads, expected, rtol=1e-3, atol=1e-5)
    each = jax.vmap(jax.grad(squared(net.apply, target)), (None, 0))(net.params, x[:, None])
    chex.assert_trees_all_close(jax.tree.map(lambda g: g.mean(0), each), expected[0], rtol=1e-3, atol=1e-5)
    without, of_x = jax.grad(squared(plain.apply, target), (0, 1))(net.params, x)
    assert not np.any(of_x)
    assert not np.any(without["w1"])
    assert np.any(expected[0]["w1"])


def test_training_reduces_the_loss():
    net = load(QAT, straight_through=True)
    goal = np.tanh(X @ RNG.normal(size=(4, 3)).astype(np.float32))

    @jax.jit
    def step(params):
        value, grads = jax.value_and_grad(squared(net.apply, goal))(params, X)
        return {name: params[name] - (1e-4 if name == "s1" else 0.1) * grads[name] for name in params}, value

    params, losses = net.params, []
    for _ in range(150):
        params, value = step(params)
        losses.append(float(value))
    assert losses[-1] < losses[0] / 4
    assert np.any(params["s1"] != S1)


def test_it_belongs_to_the_structure():
    trees = [jax.tree.structure(load(QAT, straight_through=on)) for on in (False, True, True)]
    assert trees[1] == trees[2]
    assert trees[0] != trees[1]
    assert jax.tree.structure(load(QAT)) == trees[0]


def test_what_people_do_with_such_a_model(tmp_path):
    net = load(QAT, straight_through=True)
    again = pickle.loads(pickle.dumps(net))
    chex.assert_trees_all_equal(*(jax.grad(squared(m.apply, 0))(net.params, X) for m in (net, again)))
    net.save(tmp_path / "tuned.onnx", {**net.params, "w1": 2 * W1})
    np.testing.assert_array_equal(load(tmp_path / "tuned.onnx").params["w1"], 2 * W1)
    assert net.compare(X).agrees
    assert "DequantizeLinear" in str(net.summary(X))
    narrow = net.astype(jnp.bfloat16)
    grads = jax.grad(lambda p: jnp.mean(narrow.apply(p, X.astype(jnp.bfloat16)).astype(np.float32) ** 2))(narrow.params)
    assert np.any(np.asarray(grads["w1"], np.float32))
    with pytest.raises(
        UnsupportedError, match=r"to_python: node 'xd' .* has a straight-through derivative, which a pac"
    ):
        net.to_python(tmp_path / "net")


def grads_of(proto, *inputs, **options):
    net = load(proto, straight_through=True, **options)
    return jax.grad(lambda *xs: jnp.sum(net(*xs)))(*inputs)


X1 = np.float32([0.3, -70, 70])
PAIR = "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)"
ZERO = {"s": np.float32(0.5), "z": np.int8(0)}


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23])
def test_every_opset(opset):
    proto = model(f"main (float[3] x) => (float[3] y) {{ {PAIR} }}", opset=opset, initializers=ZERO)
    assert grads_of(proto, X1).tolist() == [1, 0, 0]


def test_the_operators_of_onnxruntime():
    text = PAIR.replace("QuantizeLinear", "com.microsoft.QuantizeLinear", 1).replace("= Deq", "= com.microsoft.Deq")
    text = f"main (float[3] x) => (float[3] y) {{ {text} }}"
    proto = model(text, imports=', "com.microsoft" : 1', initializers=ZERO)
    assert grads_of(proto, X1).tolist() == [1, 0, 0]


def test_functions_branches_and_two_readers():
    proto = model(
        """main (float[3] x, bool c) => (float[3] y) {
            s = Constant<value = float {0.5}>() z = Constant<value = int8 {0}>()
            q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) i = Identity(q)
            b = If(c) <then_branch = t () => (float[3] d) { d = DequantizeLinear(i, s, z) },
                       else_branch = e () => (float[3] f) { f = loc.quantized(x) }>
            y = Add(a, b)
        }""",
        opset=19,
        imports=', "loc" : 1',
        functions="""<opset_import: ["" : 19], domain: "loc"> quantized (x) => (y) {
            s = Constant<value = float {0.1}>() z = Constant<value = int8 {0}>()
            q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }""",
    )
    x = np.float32([0.3, -70, 30])
    assert grads_of(proto, x, True).tolist() == [2, 0, 2]
    assert grads_of(proto, x, False).tolist() == [2, 0, 1]


def test_a_dynamic_quantization():
    proto = model(
        """main (float[3] x) => (float[3] y) { q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z) }"""
    )
    assert grads_of(proto, X1).tolist() == [1, 1, 1]


def test_integer_weights_are_no_parameters():
    proto = model(
        "main (float[N,4] x) => (float[N,3] y) { d = DequantizeLinear<axis = 1>(w, s, z) y = MatMul(x, d) }",
        initializers={"w": np.ones((4, 3), np.int8), "s": np.float32([1, 2, 3]), "z": np.zeros(3, np.int8)},
    )
    net = load(proto, straight_through=True)
    assert net.trainable == {"s": True}
    np.testing.assert_allclose(jax.grad(squared(net.apply, 0))(net.params, X)["s"].shape, (3,))


def test_integers_alone_give_no_gradient():
    proto = model(
        """main (float[N,4] x) => (float[N,3] y) {
            q = QuantizeLinear(x, s, z) m = QLinearMatMul(q, s, z, w, s, z, s, z) y = DequantizeLinear(m, s, z) }""",
        initializers={**ZERO, "w": np.ones((4, 3), np.int8)},
    )
    assert not np.any(grads_of(proto, X))


def test_another_value_is_an_error():
    with pytest.raises(ArgumentError, match="`straight_through` is 1; it must be True or False"):
        load(QAT, straight_through=1)
