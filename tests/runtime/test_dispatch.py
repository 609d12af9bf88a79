"""The ways in which a call runs: the one that applies, and the same results without it."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

from jaxops.onnx import load
from jaxops.runtime import dispatch

RNG = np.random.default_rng(2)
X = RNG.normal(size=(5, 4)).astype(np.float32)
W = RNG.normal(size=(4, 3)).astype(np.float32)
PRODUCT = model(
    "main (float[N,4] x) => (float[N,3] y, int64[2] s) { a = MatMul(x, w)  y = Softmax<axis = 0>(a)  s = Shape(y) }",
    initializers={"w": W},
)
DOUBLE = model("main (double[N] x) => (double[N] y) { y = Mul(x, x) }")
MASKED = model(
    """main (float[B,T] x, int64[B] lengths) => (float[B,L] y) {
        zero = Constant<value = int64 {0}>()  one = Constant<value = int64 {1}>()
        longest = ReduceMax<keepdims = 0>(lengths)  r = Range(zero, longest, one)
        rows = Unsqueeze(lengths, one)  places = Unsqueeze(r, zero)  mask = Less(places, rows)
        numbers = Cast<to = 1>(mask)  t = Slice(x, zeros, ends, ones)  y = Mul(t, numbers) }""",
    initializers={"zeros": np.int64([1]), "ends": np.int64([3]), "ones": np.int64([1])},
)
POSITIVE = model(
    """main (float[N,4] x) => (float[K] y) {
        at = NonZero(x)  rows = Transpose<perm = [1, 0]>(at)  g = GatherND(x, rows)  y = Exp(g) }"""
)
DRAWN = model("main (float[N,4] x) => (float[N,4] y) { n = RandomNormalLike(x)  y = Add(n, x) }")


@pytest.fixture
def ways(caplog):
    """Returns the names of the ways that a call takes, and the nodes at which it is cut."""

    def taken(fn, *arguments, **named):
        caplog.clear()
        with caplog.at_level("DEBUG", "jaxops"):
            fn(*arguments, **named)
        told = [line.partition(": ")[2].partition(", since ")[0] for line in caplog.messages if ", since " in line]
        assert all(name.startswith("cut before ") or name in [way.name for way in dispatch.LIST] for name in told)
        return told

    return taken


def test_repeated(ways):
    loaded = load(PRODUCT, outputs=["y"])
    assert ways(loaded, X) == ["specialized"]
    assert ways(loaded, X) == ways(loaded, 2 * X) == ["repeated"]
    assert ways(loaded, jnp.asarray(X)) == ["specialized"]
    assert ways(loaded, X[:2]) == ["specialized"]
    assert [ways(loaded, x=X) for _ in range(2)] == [["specialized"], ["repeated"]]
    assert ways(loaded, X, outputs=["a"]) == ["specialized"]
    loaded.params["w"] = jnp.asarray(2 * W)
    assert ways(loaded, X) == ["specialized"]
    drawn = load(DRAWN)
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert [ways(drawn, X, rng=key) for _ in range(2)] == [["specialized"], ["repeated"]]


def test_in_64_bits(ways):
    loaded, x = load(DOUBLE), np.float64([1, 2])
    assert ways(loaded, x) == ["in 64 bits", "specialized"]
    assert ways(loaded, x) == ["repeated"]
    assert ways(loaded.apply, {}, x) == ["in 64 bits", "compiled"]
    assert ways(jax.jit(lambda: loaded(x))) == ["in 64 bits", "node by node"]
    assert ways(jax.jit(loaded.apply), {}, x.astype(np.float32)) == ["in 64 bits", "one operation", "node by node"]
    with jax.enable_x64(True):
        assert ways(loaded.apply, {}, x) == ["compiled"]


def test_one_operation_in_64_bits():
    """The types of a model of 64 bits stay in a program with x64 off, as do its derivatives and batches."""
    loaded, x = load(DOUBLE), jnp.asarray([1 + 2**-20, 3], jnp.float32)
    expected = np.asarray(x, np.float64) ** 2
    run = jax.jit(lambda x: loaded.apply({}, x))
    for found in (run(x), jax.jit(jax.vmap(run))(x[None])[0], jax.vmap(run)(x[None])[0]):
        assert found.dtype == np.float64
        np.testing.assert_array_equal(np.asarray(found), expected)

    def loss(x):
        return run(x).astype(jnp.float32).sum()

    for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_allclose(gradient(x), 2 * x, rtol=1e-7)


def test_one_operation(ways):
    loaded = load(PRODUCT)
    assert ways(jax.jit(loaded.apply), loaded.params, X) == ["one operation", "node by node"]
    assert ways(jax.jit(lambda net, x: net(x)), loaded, X) == ["one operation", "node by node"]
    # A derivative or a batch would open the operation at once, and a weight that is not traced is a constant.
    assert ways(jax.jit(jax.vmap(loaded.apply, (None, 0))), loaded.params, X[None]) == ["node by node"]
    assert ways(jax.jit(lambda x: loaded(x)), X) == ["node by node"]


def test_host_part(ways):
    loaded, x = load(MASKED), np.ones((2, 4), np.float32)
    assert ways(loaded, x, np.array([2, 1])) == ["host part", "specialized"]
    assert ways(loaded.apply, {}, x, np.array([2, 2])) == ["host part", "compiled"]
    assert ways(loaded, x, np.array([2, 1]), outputs=["y"]) == ["specialized"]
    assert ways(jax.jit(lambda x: loaded(x, np.array([2, 1]))), x) == ["one operation", "node by node"]


def test_node_by_node(ways):
    loaded = load(PRODUCT)
    with jax.disable_jit():
        assert ways(loaded, X) == ["node by node"]
    assert ways(loaded.specialize, X) == ["node by node"]
    assert ways(loaded.export) == ["node by node"]


def test_in_buckets(ways):
    loaded = load(PRODUCT, buckets={"N": 4})
    assert ways(loaded, X) == ways(loaded, X) == ["in buckets", "specialized"]
    assert ways(loaded.apply, loaded.params, X) == ["in buckets", "compiled"]
    assert ways(loaded, X[:0]) == ["specialized"]
    with jax.disable_jit():
        assert ways(loaded, X) == ["node by node"]


def test_in_sections(ways, monkeypatch):
    loaded = load(PRODUCT, buckets={"N": 4})
    monkeypatch.setattr(dispatch, "is_long", lambda graph: True)
    assert ways(loaded, X) == ["in buckets", "in sections"]
    assert ways(load(PRODUCT), X) == ["in sections"]
    assert ways(jax.jit(loaded.apply), loaded.params, X) == ["node by node"]


def test_specialized_and_compiled(ways):
    loaded = load(PRODUCT)
    assert ways(loaded, X) == ["specialized"]
    assert ways(loaded.apply, loaded.params, X) == ["compiled"]
    assert ways(jax.grad(lambda x: loaded(x).y[0, 0]), X) == ["compiled"]
    with jax.set_mesh(jax.make_mesh((2,), ("data",))):
        assert ways(loaded, X) == ["compiled"]
    mesh = jax.make_mesh((2,), ("data",))
    sharded = load(PRODUCT, sharding=lambda *_: jax.NamedSharding(mesh, jax.P("data")))
    assert ways(sharded, X) == ways(sharded, X) == ["compiled"]


def test_a_known_size_among_tracers(ways):
    """`jax.grad` by the weights alone leaves the inputs known."""
    proto = model(
        "main (float[N,4] x) => (float[K] y) { at = NonZero(x)  first = Gather(at, zero)  y = Gather(w, first) }",
        initializers={"w": np.float32([3, 4, 5, 6, 7]), "zero": np.int64(0)},
    )
    loaded, grads = load(proto), []
    names = ways(lambda: grads.append(jax.grad(lambda w: loaded.apply({"w": w}, X[:2]).sum())(loaded.params["w"])))
    assert names == ["compiled", "node by node"]
    np.testing.assert_array_equal(grads[0], [4, 4, 0, 0, 0])


def test_cuts_are_told(ways, caplog):
    loaded = load(POSITIVE)
    assert ways(loaded, X) == ways(loaded, X) == ["specialized", "cut before NonZero 'at'"]
    assert "main: cut before NonZero 'at', since NonZero: the size of the result depends on `x`" in caplog.text


def test_names_of_files_are_cleaned(caplog):
    proto = model("main (float[N,4] x) => (float[N,4] y) { y = Neg(x) }")
    proto.graph.name = "a\x1b[31mb\nc"
    loaded = load(proto)
    with caplog.at_level("DEBUG", "jaxops"):
        loaded(X)
    assert not any("\x1b" in line or "\n" in line for line in caplog.messages)


def test_copies_share_what_was_computed_for_the_parameters():
    loaded = load(PRODUCT)
    loaded(X)
    cache = loaded._weights.cache
    assert cache.executables
    other = copy.copy(loaded)
    assert other._weights.for_calls(x64=False) is cache
    for apart in (pickle.loads(pickle.dumps(loaded)), loaded.with_params({"w": jnp.asarray(2 * W)})):
        assert not apart._weights.cache.executables
        assert apart(X).y.shape == (5, 3)


def test_the_list():
    names = [way.name for way in dispatch.LIST]
    assert len(set(names)) == len(names)
    assert all(way.when and way.why for way in dispatch.LIST)
    assert dispatch.WAYS[-1].applies(None)


def calls(name):
    """Returns calls that take a way, each a function without arguments."""
    loaded, cut, double, masked = load(PRODUCT), load(POSITIVE), load(DOUBLE), load(MASKED)
    rounded = load(PRODUCT, buckets={"N": 4})
    return {
        "repeated": [lambda x=x: double(x) for x in (np.float64([1e300]), np.float64([3]))] + [lambda: cut(X)],
        "one operation": [lambda: jax.jit(loaded.apply)(loaded.params, X), lambda: jax.jit(loaded)(X)],
        "host part": [lambda n=n: masked(X[:2], np.array(n)) for n in ([2, 1], [1, 2], [2, 2])],
        "in buckets": [lambda n=n: rounded(X[:n]) for n in range(1, 6)],
    }.get(name, [lambda: loaded(X), lambda: loaded(x=X), lambda: loaded(X, outputs=["s", "a"]), lambda: cut(X)])


def outcomes(name, ways):
    """Returns the results of these calls, and the ways that each took."""
    results = []
    return results, [ways(lambda call=call: results.append(call())) for call in calls(name)]


@pytest.mark.parametrize("name", ["repeated", "one operation", "host part", "in buckets", "in sections", "specialized"])
def test_results_are_the_same_without_it(name, ways, monkeypatch):
    if name == "in sections":
        monkeypatch.setattr(dispatch, "is_long", lambda graph: True)
    expected, taken = outcomes(name, ways)
    assert any(name in names for names in taken)
    repeated = dispatch.REPEATED._replace(applies=lambda given: name != "repeated")
    monkeypatch.setattr(dispatch, "REPEATED", repeated)
    monkeypatch.setattr(dispatch, "WAYS", tuple(way for way in dispatch.WAYS if way.name != name))
    results, taken = outcomes(name, ways)
    assert not any(name in names for names in taken)
    for x, y in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        assert (type(x), x.dtype, x.shape) == (type(y), y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
