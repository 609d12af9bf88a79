"""The gradient of attention as exporters write it keeps no scores, and has the same numbers in all transformations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

from jaxops.compiler.passes import block_attention
from jaxops.compiler.passes.loop_over_blocks import Loop
from jaxops.kernels import kept_scores
from jaxops.onnx import load

RNG = np.random.default_rng(0)
TEXT = """main (float[b,4,s,8] q, float[b,4,t,8] k, float[b,4,t,8] v, bool[s,t] mask) =>
    (float[b,4,s,8] y, int64[4] size) {
        u = MatMul(q, w)
        columns = Transpose<perm = [0, 1, 3, 2]>(k)
        scores = MatMul(u, columns)
        masked = Where(mask, scores, low)
        weights = Softmax(masked)
        dropped = Dropout(weights, ratio, training)
        y = MatMul(dropped, v)
        size = Shape(y)
}"""
CONSTANTS = {"low": np.float32(-np.inf), "ratio": np.float32(0.3)}


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


W, Q, K, V = np.eye(8, dtype=np.float32) + array(8, 8) / 9, array(2, 4, 35, 8), array(2, 4, 29, 8), array(2, 4, 29, 8)
MASK = RNG.random((35, 29)) < 0.8
MASK[:, 0] = True
ALL = (0, 1, 2, 3)


@pytest.fixture
def loops(monkeypatch):
    """Makes blocks of 3,000 bytes of scores, from 3,000 on; returns the loops that the calls inside of it computed."""
    found, scanned = [], Loop._scanned
    monkeypatch.setattr(kept_scores, "LONG", 2)
    monkeypatch.setattr(kept_scores, "_MOST_ON_CPU", 3000)
    monkeypatch.setattr(block_attention, "_BLOCK", 3000)
    monkeypatch.setattr(Loop, "_scanned", lambda self, *operands: found.append(self) or scanned(self, *operands))
    return found


def loss_of(mask=MASK, drops=False, **options):
    """A loss of parameters, queries, keys and values; and the parameters."""
    initializers = {"w": W, "training": np.array(drops), **CONSTANTS}
    net, how = load(model(TEXT, initializers=initializers), **options), {"rng": jax.random.key(3)} if drops else {}
    return lambda p, q, k, v: (net.apply(p, q, k, v, mask, **how).y ** 2).sum(), net.params


def plainly(make, monkeypatch):
    """What `make` returns if a gradient keeps all scores."""
    with monkeypatch.context() as patched:
        patched.setattr(kept_scores, "_MOST_ON_CPU", 1 << 60)
        return make()


def close(found, expected, tolerance=2e-5):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        largest = max(1, np.abs(y).max(initial=0, where=np.isfinite(y)))
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * largest)


def vector_hessian(loss, p):
    return jax.jit(lambda q: jax.jvp(lambda q: jax.grad(loss, 1)(p, q, K, V), (q,), (q,))[1])(Q)


TRANSFORMED = {
    "grad": lambda loss, p: jax.value_and_grad(loss, ALL)(p, Q, K, V),
    "by parameters alone": lambda loss, p: jax.grad(loss)(p, Q, K, V),
    "jit of grad": lambda loss, p: jax.jit(jax.grad(loss, ALL))(p, Q, K, V),
    "grad of jit": lambda loss, p: jax.grad(jax.jit(loss), ALL)(p, Q, K, V),
    "checkpoint": lambda loss, p: jax.jit(jax.grad(jax.checkpoint(loss), ALL))(p, Q, K, V),
    "vmap of grad": lambda loss, p: jax.jit(jax.vmap(jax.grad(loss, 1), (None, 0, None, None)))(p, Q[None], K, V),
    "vmap": lambda loss, p: jax.vmap(jax.jit(loss), (None, 0, None, None))(p, Q[None], K, V),
    "jvp": lambda loss, p: jax.jvp(loss, (p, Q, K, V), (p, Q, K, V)),
    "linearize": lambda loss, p: jax.linearize(loss, p, Q, K, V)[1](p, Q, K, V),
    "second derivative": vector_hessian,
}


# A random mask is one more operand of the loop, whatever the transformation.
@pytest.mark.parametrize(("name", "drops"), [*((name, False) for name in TRANSFORMED), ("grad", True)])
def test_transformations(name, drops, loops, monkeypatch):
    expected = plainly(lambda: TRANSFORMED[name](*loss_of(drops=drops)), monkeypatch)
    assert not loops
    close(TRANSFORMED[name](*loss_of(drops=drops)), expected, 1e-4 if name == "second derivative" else 2e-5)
    assert loops


@pytest.mark.parametrize(("where", "value"), [("q", np.inf), ("k", np.nan), ("v", np.inf), ("w", np.nan)])
def test_what_is_not_finite_stays_so(value, where, loops, monkeypatch):
    """The last queries are in two blocks. One is masked, one may use no key."""
    mask = MASK.copy()
    mask[7] = False

    def kinds():
        loss, params = loss_of(mask)
        given = {"w": params["w"], "q": jnp.asarray(Q), "k": jnp.asarray(K), "v": jnp.asarray(V)}
        given[where] = given[where].at[(0,) * (given[where].ndim - 2) + (-1, 3)].set(value)
        w, *rest = given.values()
        gradients = jax.jit(jax.grad(loss, ALL))({"w": w}, *rest)
        return [(np.isfinite(x).astype(int), np.isnan(x).astype(int)) for x in jax.tree.leaves(gradients)]

    expected = plainly(kinds, monkeypatch)
    assert expected[0][0].min() == 0
    close(kinds(), expected)
    assert loops


def test_masked_rows_have_a_finite_gradient(loops, monkeypatch):
    lowest = np.float32(np.finfo(np.float32).min)
    monkeypatch.setitem(CONSTANTS, "low", lowest)
    mask = MASK.copy()
    mask[[7, 34]] = False

    def gradients():
        loss, params = loss_of(mask)
        return jax.jit(jax.grad(loss, ALL))(params, Q, K, V)

    expected = plainly(gradients, monkeypatch)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(expected))
    close(gradients(), expected)
    assert loops


def test_a_pair_that_jax_may_transform(loops, monkeypatch):
    def gradients():
        net = load(model(TEXT, initializers={"w": W, "training": np.array(False), **CONSTANTS}))
        prepare, run = net.specialize(Q, K, V, MASK, transformable=True)
        return jax.jit(jax.grad(lambda p, q: (run(prepare(p), q, K, V, MASK).y ** 2).sum(), (0, 1)))(net.params, Q)

    expected = plainly(gradients, monkeypatch)
    assert not loops
    close(gradients(), expected)
    assert loops


def test_an_export_with_its_derivative(loops, monkeypatch):
    """Symbolic sizes are not compared with numbers: their scores stay."""

    def gradient(**sizes):
        net = load(model(TEXT, initializers={"w": W, "training": np.array(False), **CONSTANTS}))
        read = jax.export.deserialize(net.export(sizes=sizes).serialize(vjp_order=1))
        return jax.grad(lambda p: (read.call(p, Q, K, V, MASK)[0] ** 2).sum())(net.params)

    expected = gradient()
    assert not loops
    close(gradient(b=2, s=35, t=29), expected)
    assert loops


def test_products_in_bfloat16(loops, monkeypatch):
    gradients = {}
    for part in (1 << 60, 3000):
        monkeypatch.setattr(kept_scores, "_MOST_ON_CPU", part)
        loss, params = loss_of(precision="bfloat16")
        gradients[part] = jax.grad(loss, ALL)(params, Q, K, V)
        assert bool(loops) == (part == 3000)
    close(gradients[3000], gradients[1 << 60], 2e-2)


def test_models_of_64_bits_with_x64_off(loops, monkeypatch):
    def gradient():
        constants = {"w": W.astype(np.float64), "low": np.float64(-np.inf), "ratio": np.float64(0.3)}
        text = TEXT.replace("float[", "double[")
        net = load(model(text, initializers=constants | {"training": np.array(False)}))
        return jax.grad(lambda p: net.apply(p, *(x.astype(np.float64) for x in (Q, K, V)), MASK).y[0, 0, 0, 0])(
            net.params
        )

    expected = plainly(gradient, monkeypatch)
    close(gradient(), expected)
    assert loops


def test_einsum_and_a_branch(loops, monkeypatch):
    """A branch that is known is a part of the program; one that is not gets a loop, too."""
    text = """main (float[b,s,4,8] q, float[b,t,4,8] k, bool use) => (float[b,s,4,8] y) {
        y = If (use) <then_branch = first () => (float[b,s,4,8] y1) {
            scores = Einsum<equation = "bshd,bthd->bhst">(q, k)
            weights = Softmax(scores)
            y1 = Einsum<equation = "bhst,bthd->bshd">(weights, k)
        }, else_branch = second () => (float[b,s,4,8] y2) { y2 = Neg(q) }>
    }"""

    def gradient(use):
        net = load(model(text))
        q, k = Q.swapaxes(1, 2), K.swapaxes(1, 2)
        if isinstance(use, np.ndarray):
            return jax.jit(jax.grad(lambda q: (net.apply(net.params, q, k, use) ** 2).sum()))(q)
        return jax.jit(jax.grad(lambda q, use: (net.apply(net.params, q, k, use) ** 2).sum()))(q, use)

    expected = plainly(lambda: gradient(np.array(True)), monkeypatch)
    for use in (jnp.array(True), np.array(True)):
        close(gradient(use), expected)
        assert loops
        loops.clear()


def test_layers_that_a_gradient_computes_anew(loops, monkeypatch):
    """Each is a function that XLA does not inline, with a loop inside."""
    layer = """t{k} = Transpose<perm = [0, 1, 3, 2]>(h{k})
        s{k} = MatMul(h{k}, t{k})
        p{k} = Softmax(s{k})
        h{next} = MatMul(p{k}, h{k})"""
    layers = " ".join(layer.format(k=k, next=k + 1) for k in range(2))
    proto = model(f"main (float[b,4,s,8] h0) => (float[b,4,s,8] h2) {{ {layers} }}")
    for k, node in enumerate(proto.graph.node):
        node.name = f"/layers.{k // 4}/{node.op_type}"

    def gradient(**options):
        net = load(proto, **options)
        return jax.jit(jax.grad(lambda q: (net.apply(net.params, q) ** 2).sum()))(Q)

    expected = plainly(gradient, monkeypatch)
    close(gradient(remat="block"), expected)
    assert len(loops) > 1


def test_calls_that_stay_as_they_are(loops):
    """On a mesh, JAX may split the axis over which a loop would run; other settings look at the nodes one by one."""
    loss, params = loss_of()
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    given = [jax.device_put(x, jax.NamedSharding(mesh, jax.P("data"))) for x in (Q, K, V)]
    found = [jax.grad(loss)(params, *given)]
    with jax.disable_jit():
        found.append(jax.grad(loss)(params, Q, K, V))
    with jax.debug_nans(True):
        found.append(jax.grad(loss)(params, Q, K, V))
    assert not loops
    close(found[1:], [found[0]] * 2)


def test_a_short_model_has_the_same_gradient_as_before(monkeypatch):
    """Its nodes are traced once, and nothing replaces them."""
    loss, params = loss_of()
    programs = [str(jax.make_jaxpr(jax.grad(loss, ALL))(params, Q, K, V))]
    monkeypatch.setattr("jaxops.runtime.dispatch._may_be_differentiated", lambda call: False)
    programs.append(str(jax.make_jaxpr(jax.grad(loss, ALL))(params, Q, K, V)))
    assert programs[0] == programs[1]
    assert "remat" not in programs[0]


def test_platforms():
    """The limits of a CPU and of others; sizes that are not known are no limits."""
    assert kept_scores.keeps("cpu", (1, 16, 2048, 2048))
    assert not kept_scores.keeps("gpu", (1, 16, 2048, 2048))
    assert not kept_scores.keeps("cpu", (1, 16, 4096, 4096))
    (n,) = jax.export.symbolic_shape("n")
    assert kept_scores.keeps("gpu", (n, 16, 4096, 4096))
    target = dataclasses.replace(kept_scores.this_machine(), platform="gpu")
    assert has_scores((16, 2048, 64), (16, 64, 2048), target)
    assert not has_scores((16, 2048, 64), (16, 64, 2048), dataclasses.replace(target, platform="cpu"))


def has_scores(first, second, target):
    operands = (jax.ShapeDtypeStruct(sizes, np.float32) for sizes in (first, second))
    return block_attention.has_long_product(jax.make_jaxpr(jnp.matmul)(*operands).jaxpr, target)


@pytest.mark.parametrize(
    ("first", "second", "are"),
    [
        ((16, 512, 64), (16, 64, 65536), True),  # few queries, many keys
        ((16, 65536, 64), (16, 64, 512), True),
        ((16, 1, 64), (16, 64, 1 << 20), False),  # one query: its keys take more than its scores
        ((16, 65536, 64), (16, 64, 16), False),
        ((16, 4096, 4096), (16, 4096, 64), False),  # weights · values
        ((4096, 512, 64), (4096, 64, 512), False),  # many windows of short sequences
        ((16, 2048, 4096), (16, 4096, 2048), False),
    ],
)
def test_which_products_are_scores(first, second, are):
    """There is more of them than of queries and keys."""
    target = dataclasses.replace(kept_scores.this_machine(), platform="gpu")
    assert has_scores(first, second, target) == are
    assert has_scores(first, second, dataclasses.replace(target, specialized=True)) == are
