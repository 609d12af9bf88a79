"""Named calls: JAX transforms what they stand for, and the lowering picks the form of a platform."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.export import symbolic_shape
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import jaxops as jo
from jaxops.kernels.named_call import NamedCall, named_call, plain_jaxpr

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(2, 8, 9, 9)), jnp.float32)
W = jnp.asarray(RNG.normal(size=(8, 1, 3, 3)), jnp.float32)
OPTIONS = {"group": 8, "pads": (1, 1, 1, 1)}


def conv(x, w):
    return jo.conv(x, w, **OPTIONS)


def plain_conv(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), [(1, 1)] * 2, feature_group_count=8)


def gelu(x, w):
    return jo.gelu(x * w.sum())


def plain_gelu(x, w):
    return jax.nn.gelu(x * w.sum(), approximate=False)


def loss(fn):
    return lambda *args: jnp.sum(jnp.sin(fn(*args)))


PAIRS = pytest.mark.parametrize(("fn", "plain"), [(conv, plain_conv), (gelu, plain_gelu)], ids=["conv", "gelu"])
TRANSFORMED = {
    "eager": lambda fn: fn(X, W),
    "jit": lambda fn: jax.jit(fn)(X, W),
    "grad": lambda fn: jax.grad(loss(fn), argnums=(0, 1))(X, W),
    "grad by one": lambda fn: jax.jit(jax.grad(loss(fn), argnums=1))(X, W),
    "grad of grad": lambda fn: jax.jit(jax.grad(lambda w: jnp.sum(jax.grad(loss(fn))(X, w) ** 2) / 100))(W),
    "jvp": lambda fn: jax.jvp(fn, (X, W), (jnp.cos(X), jnp.cos(W))),
    "vmap": lambda fn: jax.vmap(fn, (None, 0))(X, jnp.stack([W, 2 * W])),
    "vmap of all": lambda fn: jax.jit(jax.vmap(fn, (1, 0)))(jnp.stack([X, X + 1], 1), jnp.stack([W, 2 * W])),
    "grad of vmap": lambda fn: jax.grad(loss(jax.vmap(fn, (0, None))), argnums=1)(jnp.stack([X, X + 1]), W),
    "vmap of grad": lambda fn: jax.vmap(jax.grad(loss(fn), argnums=1), (0, None))(jnp.stack([X, X + 1]), W),
    "scan": lambda fn: lax.scan(lambda c, _: (jnp.tanh(fn(c, W)), None), X, None, length=2)[0],
    "grad of scan": lambda fn: jax.grad(
        lambda w: jnp.sum(lax.scan(lambda c, _: (jnp.tanh(fn(c, w)), None), X, None, length=2)[0] ** 2)
    )(W),
    "checkpoint": lambda fn: jax.grad(loss(jax.checkpoint(fn)), argnums=(0, 1))(X, W),
    "while": lambda fn: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, jnp.tanh(fn(c[1], W))), (0, X))[1],
    "cond": lambda fn: jax.jit(lambda x: lax.cond(x.sum() > 1e9, lambda x: x, lambda x: fn(x, W), x))(X),
    "linearize": lambda fn: jax.linearize(fn, X, W)[1](jnp.cos(X), jnp.cos(W)),
    "hessian": lambda fn: jax.hessian(lambda a: jnp.mean(jnp.sin(fn(X * a, W))))(jnp.float32(0.5)),
}


@PAIRS
@pytest.mark.parametrize("how", TRANSFORMED)
def test_transformations(fn, plain, how):
    found, expected = TRANSFORMED[how](fn), TRANSFORMED[how](plain)
    jax.tree.map(lambda y, z: np.testing.assert_allclose(y, z, rtol=2e-4, atol=2e-4), found, expected)


def _twice(x, y, *, times):
    return jnp.sin(x) * y * times


def _other(x, y, *, times):
    return y * (jnp.sin(x) * times) + 0 * jnp.cos(y)


CALL = NamedCall("twice", _twice, lambda target, *_, **__: _other if target.platform == "cpu" else None)


def call(x, y):
    return CALL(x, y, times=2.0)


def lowered(fn, *args, platform="cpu"):
    return jax.jit(fn).trace(*args).lower(lowering_platforms=(platform,)).as_text()


def test_the_lowering_picks_the_form():
    x = jnp.float32(1)
    jaxpr = jax.make_jaxpr(call)(x, x)
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == ["twice"]
    assert "cosine" in lowered(call, x, x)
    for platform in ("cuda", "rocm", "tpu"):
        assert "cosine" not in lowered(call, x, x, platform=platform)
        assert "sine" in lowered(call, x, x, platform=platform)


def test_several_platforms_at_once():
    text = jax.jit(call).trace(jnp.float32(1), jnp.float32(1)).lower(lowering_platforms=("cpu", "cuda")).as_text()
    assert text.count("cosine") == 1
    assert text.count("sine") == 3


def parameters(size, times):
    (eqn,) = jax.make_jaxpr(lambda x: CALL(x, x, times=times))(jnp.ones(size)).eqns
    return eqn.params


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_sizes_of_a_convolution_are_those_of_its_plain_form(dtype):
    (b,) = symbolic_shape("b")
    for shape in ((2, 8, 9, 9), (b, 8, 9, 9), (2, 8, b, 9)):
        closed = jax.make_jaxpr(conv)(*(jax.ShapeDtypeStruct(s, dtype) for s in (shape, W.shape)))
        (call,) = [e for e in closed.eqns if named_call(e)]
        assert [v.aval for v in call.outvars] == plain_jaxpr(call).out_avals


def test_equal_calls_have_equal_parameters():
    assert parameters(3, 2) == parameters(4, 2) != parameters(3, 3)
    assert hash(parameters(3, 2)["call"]) == hash(parameters(4, 2)["call"])


def test_a_form_is_traced_once_for_each_type():
    traces = []

    def plain(x):
        traces.append(x.shape)
        return jnp.sin(x)

    named = NamedCall("counted", plain)
    jax.make_jaxpr(lambda x: named(named(x)))(jnp.ones(3))
    jax.make_jaxpr(lambda x: jnp.cos(named(x)))(jnp.ones(3))
    assert traces == [(3,)]
    jax.make_jaxpr(lambda x: named(x))(jnp.ones(4))
    assert traces == [(3,), (4,)]


def test_names_of_scopes_are_those_of_each_call():
    def fn(x):
        with jax.named_scope("one"):
            y = CALL(x, x, times=5.0)
        with jax.named_scope("two"):
            return CALL(y, y, times=5.0)

    text = jax.jit(fn).lower(jnp.ones(3)).as_text(debug_info=True)
    assert "one/" in text
    assert "two/" in text
    assert "one/two" not in text
    assert "two/one" not in text


def test_settings_are_those_around_the_call():
    product = NamedCall("product_of_settings", lambda x: x @ x)
    x = jnp.ones((3, 3))

    def fn(x):
        with jax.default_matmul_precision("highest"):
            return product(x)

    assert "HIGHEST" in lowered(fn, x)
    assert "HIGHEST" not in lowered(product, x)


def test_integers_and_unused_tangents():
    named = NamedCall("count_of", lambda x, k: lax.convert_element_type(x > 0, np.int32) + k)
    assert jax.jvp(lambda x: x * named(x, jnp.int32(2)).astype(x.dtype), (jnp.float32(3),), (jnp.float32(1),))[1] == 3
    scaled = NamedCall("scaled_by_count", lambda x, k: x * k.astype(x.dtype))
    assert jax.grad(lambda x: scaled(x, jnp.int32(4)))(jnp.float32(3)) == 4
    by_count = jax.grad(lambda x, k: scaled(x, k), argnums=1, allow_int=True)(jnp.float32(3), jnp.int32(1))
    assert by_count.dtype == jax.dtypes.float0


def test_without_jit_and_with_checks():
    with jax.disable_jit():
        np.testing.assert_allclose(call(jnp.float32(1), jnp.float32(3)), 6 * np.sin(1), rtol=1e-6)
    with jax.enable_checks(True), jax.checking_leaks():
        gradient = jax.jit(jax.grad(loss(conv), argnums=(0, 1)))(X, W)
        jax.jit(jax.vmap(conv, (0, None)))(jnp.stack([X, X]), W)
    expected = jax.grad(loss(plain_conv), argnums=(0, 1))(X, W)
    jax.tree.map(lambda y, z: np.testing.assert_allclose(y, z, rtol=2e-4, atol=2e-4), gradient, expected)


def test_nothing_is_computed_twice():
    x, w = jnp.ones((1, 16, 9, 9)), jnp.ones((16, 16, 3, 3))
    gradient = jax.grad(lambda x, w: jnp.sum(jnp.sin(jo.conv(x, w))), argnums=(0, 1))
    assert lowered(gradient, x, w).count("stablehlo.convolution") == 3


def test_export_with_symbolic_sizes_for_two_platforms():
    (b,) = jax.export.symbolic_shape("b")
    types = jax.ShapeDtypeStruct((b, *X.shape[1:]), X.dtype), jax.ShapeDtypeStruct(W.shape, W.dtype)
    for fn, plain in ((conv, plain_conv), (gelu, plain_gelu)):
        exported = jax.export.export(jax.jit(fn), platforms=("cpu", "cuda"))(*types)
        np.testing.assert_allclose(exported.call(X, W), plain(X, W), rtol=1e-4, atol=1e-4)
    gradient = jax.export.export(jax.jit(jax.grad(loss(conv), argnums=1)))(*types)
    np.testing.assert_allclose(gradient.call(X, W), jax.grad(loss(plain_conv), argnums=1)(X, W), rtol=1e-4, atol=1e-4)


def test_symbolic_sizes_of_several_scopes():
    for _ in range(2):
        (b,) = jax.export.symbolic_shape("b")
        y = jax.eval_shape(conv, jax.ShapeDtypeStruct((b, 8, 9, 9), np.float32), W)
        assert y.shape == (b, 8, 9, 9)


def _gradients(fn):
    return jax.jit(jax.value_and_grad(loss(fn), argnums=(0, 1)))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("is_set", [True, False])
@PAIRS
def test_meshes(fn, plain, kind, is_set):
    mesh = jax.make_mesh((2,), ("d",), axis_types=(kind,))
    x, w = jax.device_put(X, NamedSharding(mesh, P("d"))), jax.device_put(W, NamedSharding(mesh, P()))
    with jax.set_mesh(mesh) if is_set else contextlib.nullcontext():
        y = jax.jit(fn)(x, w)
        found = _gradients(fn)(x, w)
    assert y.sharding.is_equivalent_to(x.sharding, 4)
    np.testing.assert_allclose(y, plain(X, W), rtol=1e-4, atol=1e-4)
    jax.tree.map(lambda y, z: np.testing.assert_allclose(y, z, rtol=1e-3, atol=1e-3), found, _gradients(plain)(X, W))


@PAIRS
def test_shard_map(fn, plain):
    """The filters are the same on all devices, so that their gradients are summed."""
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))

    def total(x, w):
        return jnp.sum(jnp.sin(jax.shard_map(fn, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))(x, w)))

    found = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))(X, W)
    jax.tree.map(lambda y, z: np.testing.assert_allclose(y, z, rtol=1e-3, atol=1e-3), found, _gradients(plain)(X, W))
