"""A model as a pair of pure functions, in a program of the user's own."""

import functools
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from jaxops.errors import DTypeError, ShapeError, SignatureError, StaticError, UnsupportedError
from jaxops.onnx import load

RNG = np.random.default_rng(0)
NETWORK = """
    main (float[n, 3, h, w] x) => (float[n, 10] y) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        b = BatchNormalization (c, scale, shift, mean, var)
        g = Gelu (b)
        e = Conv <pads = [1, 1, 1, 1], group = 16> (g, d)
        f = Concat <axis = 1> (e, g)
        p = Conv (f, k)
        r = HardSwish (p)
        top = GlobalMaxPool (r)
        a = GlobalAveragePool (r)
        s = Add (a, top)
        v = Flatten (s)
        y = Gemm <transB = 1> (v, m, bias)
    }
"""
ATTENTION = """
    main (float[n, s, 32] x) => (float[n, s, 32] y) {
        q = MatMul (x, wq)
        k = MatMul (x, wk)
        kt = Transpose <perm = [0, 2, 1]> (k)
        scores = MatMul (q, kt)
        p = Softmax (scores)
        o = MatMul (p, x)
        z = Add (o, x)
        y = LayerNormalization (z, scale, shift)
    }
"""
QUANTIZED = """
    main (float[n, 3, 12, 10] x) => (float[n, 4] y) {
        q = QuantizeLinear (x, by, zero)
        f = DequantizeLinear (q, by, zero)
        g = DequantizeLinear <axis = 0> (w, scales)
        c = Conv <pads = [1, 1, 1, 1]> (f, g)
        a = GlobalAveragePool (c)
        v = Flatten (a)
        y = Tanh (v)
    }
"""


def numbers(*sizes):
    return RNG.standard_normal(sizes, np.float32) * np.float32(0.3)


@functools.cache
def network():
    """Convolutions of three kinds, a normalization, gelu, a concatenation, a maximum, a mean and a product."""
    weights = {"w": numbers(16, 3, 3, 3), "d": numbers(16, 1, 3, 3), "k": numbers(24, 32, 1, 1), "m": numbers(10, 24)}
    weights |= {name: numbers(16) for name in ("scale", "shift", "mean")}
    weights |= {"bias": numbers(10), "var": abs(numbers(16)) + np.float32(0.5)}
    return load(model(NETWORK, opset=20, initializers=weights)), numbers(2, 3, 40, 36)


@functools.cache
def attention():
    weights = {"wq": numbers(32, 32), "wk": numbers(32, 32), "scale": numbers(32), "shift": numbers(32)}
    return load(model(ATTENTION, opset=20, initializers=weights)), numbers(2, 70, 32)


@functools.cache
def quantized():
    """A convolution of integers, with a scale for each filter as a parameter."""
    weights = {"w": RNG.integers(-128, 128, (4, 3, 3, 3), np.int8), "scales": abs(numbers(4)) / 20}
    weights |= {"by": np.float32(0.01), "zero": np.uint8(120)}
    return load(model(QUANTIZED, opset=20, initializers=weights)), numbers(2, 3, 12, 10)


MODELS = pytest.mark.parametrize("example", [network, attention, quantized])
BOTH = pytest.mark.parametrize("transformable", [False, True])


def close(found, expected, tolerance=2e-5):
    chosen = jax.tree.leaves(found), jax.tree.leaves(expected)
    for a, b in zip(*chosen, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(np.abs(b).max(), 1e-3))


@MODELS
@BOTH
def test_a_pair_computes_what_apply_does(example, transformable):
    loaded, x = example()
    prepare, run = loaded.specialize(jax.ShapeDtypeStruct(x.shape, x.dtype), transformable=transformable)
    expected, prepared = loaded.apply(loaded.params, x), prepare(loaded.params)
    assert example is attention or prepared.values
    close(run(prepared, x), expected)
    close(jax.jit(run)(prepared, x), expected)
    close(jax.jit(lambda params, x: run(prepare(params), x))(loaded.params, x), expected)
    close(run(jax.jit(prepare)(loaded.params), x=x), expected)


def test_a_pair_is_pure():
    loaded, x = network()
    prepare, run = loaded.specialize(x)
    other = {name: 2 * w for name, w in loaded.params.items()}
    first, second = prepare(loaded.params), prepare(other)
    close(run(second, x), loaded.apply(other, x))
    close(run(first, x), loaded.apply(loaded.params, x))
    assert all(a is not b for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


@MODELS
def test_gradients(example):
    loaded, x = example()
    prepare, run = loaded.specialize(x, transformable=True)
    grad = jax.jit(jax.grad(lambda p, x: jnp.sum(run(prepare(p), x) ** 2), (0, 1)))
    expected = jax.jit(jax.grad(lambda p, x: jnp.sum(loaded.apply(p, x) ** 2), (0, 1)))
    close(grad(loaded.params, x), expected(loaded.params, x), 2e-4)
    eager = jax.grad(lambda p: jnp.sum(run(prepare(p), x) ** 2))(loaded.params)
    close(eager, expected(loaded.params, x)[0], 2e-4)


def test_the_gradient_of_equal_maxima_is_that_of_apply():
    loaded = load(
        model(
            "main (float[4, 600] x) => (float[4] y) { y = ReduceMax <keepdims = 0> (x, one) }",
            initializers={"one": np.int64([1])},
        )
    )
    x = np.zeros((4, 600), np.float32)
    prepare, run = loaded.specialize(x, transformable=True)
    found = jax.grad(lambda x: jnp.sum(run(prepare({}), x)))(x)
    np.testing.assert_array_equal(found, jax.grad(lambda x: jnp.sum(loaded.apply({}, x)))(x))
    assert found[0, 0] == np.float32(1 / 600)


@MODELS
def test_mapped_scanned_and_checkpointed(example):
    loaded, x = example()
    prepare, run = loaded.specialize(x, transformable=True)
    xs, params = np.stack([x, 2 * x, -x]), loaded.params
    expected = np.stack([loaded.apply(params, x) for x in xs])
    prepared = prepare(params)
    close(jax.jit(jax.vmap(run, (None, 0)))(prepared, xs), expected)
    close(jax.jit(lambda p, xs: jax.lax.map(lambda x: run(p, x), xs))(prepared, xs), expected)
    stack = jax.tree.map(lambda *w: jnp.stack(w), params, {name: 2 * w for name, w in params.items()})
    ensemble = jax.vmap(lambda params: run(prepare(params), x))(stack)
    close(ensemble[1], loaded.apply({name: 2 * w for name, w in params.items()}, x))
    again = jax.grad(lambda p: jnp.sum(jax.checkpoint(run)(prepare(p), x) ** 2))(params)
    close(again, jax.grad(lambda p: jnp.sum(loaded.apply(p, x) ** 2))(params), 2e-4)


def test_without_transformable_a_transformation_is_refused():
    loaded, x = network()
    prepare, run = loaded.specialize(x)
    prepared = prepare(loaded.params)
    with pytest.raises(UnsupportedError, match=r"without a derivative .*\n.*transformable=True"):
        jax.grad(lambda x: jnp.sum(run(prepared, x)))(x)
    with pytest.raises(UnsupportedError, match=r"a batching rule\n.*transformable=True"):
        jax.jit(jax.vmap(run, (None, 0)))(prepared, x[None])
    close(jax.jit(lambda xs: jax.lax.map(lambda x: run(prepared, x), xs))(x[None])[0], loaded.apply(loaded.params, x))


@pytest.mark.parametrize("where", ["inputs", "weights"])
@BOTH
def test_not_a_number(where, transformable):
    """XLA's own reductions of thousands of elements lose it; a program of the user's is compiled with those."""
    loaded = load(
        model(
            "main (float[8, 5000] x) => (float[8] y) { z = Mul (x, w) y = ReduceMax <keepdims = 0> (z, one) }",
            initializers={"one": np.int64([1]), "w": numbers(8, 5000)},
        )
    )
    x, params = numbers(8, 5000), dict(loaded.params)
    if where == "inputs":
        x[2, 4000] = np.nan
    else:
        params["w"] = params["w"].at[2, 4000].set(np.nan)
    prepare, run = loaded.specialize(x, transformable=transformable)
    for call in (run, jax.jit(run)):
        np.testing.assert_array_equal(call(prepare(params), x), np.max(x * np.asarray(params["w"]), axis=1))


@BOTH
def test_exported_for_another_platform(transformable):
    loaded, x = network()
    prepare, run = loaded.specialize(x, transformable=transformable)
    prepared = prepare(loaded.params)
    exported = jax.export.export(jax.jit(run), platforms=("cpu", "cuda", "tpu"))(prepared, x)
    close(exported.call(prepared, x), loaded.apply(loaded.params, x))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@BOTH
def test_sharded(kind, transformable):
    loaded, x = network()
    prepare, run = loaded.specialize(x, transformable=transformable)
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        sharded = jax.device_put(x, NamedSharding(mesh, P("batch")))
        found = jax.jit(lambda params, x: run(prepare(params), x))(loaded.params, sharded)
        close(run(prepare(loaded.params), sharded), loaded.apply(loaded.params, x))
        assert len(found.sharding.device_set) == 2
    close(found, loaded.apply(loaded.params, x))


@pytest.mark.parametrize("jitted", [False, True])
def test_sixty_four_bits(jitted):
    loaded = load(
        model(
            "main (double[n, 4] x) => (double[n, 4] y) { z = Mul (w, w) y = Mul (x, z) }",
            initializers={"w": np.float64([[1, 2, 3, 1e-3 / 3]])},
        )
    )
    assert loaded.x64
    x = np.float64([[1 / 3, 2, 3, 4]])
    prepare, run = loaded.specialize(x)
    compute = lambda params: run(prepare(params), x)  # noqa: E731
    found = (jax.jit(compute) if jitted else compute)(loaded.params)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, x * np.float64([[1, 4, 9, 1e-6 / 9]]), rtol=1e-15)


def test_products_of_quantized_numbers():
    """Integers, as in a call of the model; with `transformable` the floats that the file says, as in `apply`."""
    body = """
        main (float[n, 64] x) => (float[n, 128] y) {
            q = QuantizeLinear (x, xs, xz)
            d = DequantizeLinear (q, xs, xz)
            e = DequantizeLinear (w, ws)
            y = MatMul (d, e)
        }
    """
    constants = {"xs": np.float32(0.05), "xz": np.uint8(128), "ws": np.float32(0.02)}
    w = RNG.integers(-127, 128, (64, 128)).astype(np.int8)
    loaded, x = load(model(body, opset=20, initializers={**constants, "w": w})), 3 * numbers(256, 64)
    for transformable, kind, expected in ((False, "i32", loaded(x)), (True, "f32", loaded.apply(loaded.params, x))):
        prepare, run = loaded.specialize(x, transformable=transformable)
        prepared = prepare(loaded.params)
        np.testing.assert_array_equal(jax.jit(run)(prepared, x), expected)
        assert re.search(rf"dot_general.*-> tensor<256x128x{kind}>", jax.jit(run).lower(prepared, x).as_text())
    np.testing.assert_array_equal(jax.vmap(run, (None, 0))(prepared, x[None])[0], expected)


@pytest.mark.parametrize(("room", "prepares"), [(1 << 30, True), (1 << 22, False)])
def test_what_is_prepared_grows_as_far_as_the_limit_of_the_model(room, prepares):
    body = "main (float[n, 1024] x) => (float[n, 1024] y) { e = DequantizeLinear (w, ws) y = MatMul (x, e) }"
    w, ws = RNG.integers(-127, 128, (1024, 1024)).astype(np.int8), np.float32(0.02)
    loaded = load(model(body, opset=20, initializers={"w": w, "ws": ws}), max_bytes=room)
    prepare, _ = loaded.specialize(jax.ShapeDtypeStruct((4, 1024), np.float32))
    assert [value.dtype == np.float32 for value in prepare(loaded.params).values] == [True] * prepares


def test_static_inputs_are_a_part_of_the_program():
    loaded = load(model("main (float[n, 6] x, int64[k] sizes) => (y) { y = Reshape (x, sizes) }"))
    x, sizes = numbers(4, 6), np.int64([3, -1])
    prepare, run = loaded.specialize(jax.ShapeDtypeStruct(x.shape, x.dtype), sizes)
    assert jax.jit(lambda x: run(prepare({}), x, sizes))(x).shape == (3, 8)
    with pytest.raises(SignatureError, match=r"run: the inputs are .*int64\[2\].*, but the pair is specialized for"):
        run(prepare({}), x, np.int64([2, -1]))


def test_random_numbers_and_other_outputs():
    loaded = load(
        model("main (float[64, 64] x) => (float[64, 64] y) { r = RandomUniformLike (x) y = Add (x, r) z = Neg (r) }")
    )
    x, key = numbers(64, 64), jax.random.key(3)
    prepare, run = loaded.specialize(x, rng=key, outputs=["z"])
    np.testing.assert_array_equal(run(prepare({}), x, rng=key), loaded.apply({}, x, rng=key, outputs=["z"]))
    assert (run(prepare({}), x, rng=jax.random.key(4)) != run(prepare({}), x, rng=key)).any()
    with pytest.raises(SignatureError, match=r"but the pair is specialized for .* with a key"):
        run(prepare({}), x)


def test_several_outputs_have_their_names():
    loaded = load(model("main (float[n, 4] x) => (float[n, 4] a, int64[2] b) { a = Neg (x) b = Shape (x) }"))
    prepare, run = loaded.specialize(x := numbers(3, 4))
    found = run(prepare({}), x)
    np.testing.assert_array_equal(found.a, -x)
    assert found.b.tolist() == [3, 4]


def test_a_pair_is_pickled():
    """A copy is traced for the same types, static values and outputs; it holds no array that was given."""
    loaded, x = network()
    pair = loaded.specialize(x, transformable=True)
    content = pickle.dumps(pair)
    copy = pickle.loads(content)
    np.testing.assert_array_equal(copy.run(copy.prepare(loaded.params), x), pair.run(pair.prepare(loaded.params), x))
    with pytest.raises(ShapeError, match=r"run: input \['x'\] is float32\[1,3,40,36\]"):
        copy.run(pair.prepare(loaded.params), x[:1])
    wide = np.zeros((200, *x.shape[1:]), np.float32)
    assert len(pickle.dumps(loaded.specialize(wide, transformable=True))) < len(content) + 1000
    text = "main (float[n] x, int64[1] k) => (float[m] y, float[n] z) { y = Tile (x, k) z = Neg (x) }"
    loaded = load(model(text))
    pair = loaded.specialize(numbers(4), np.array([3]), outputs=["y"])
    copy = pickle.loads(pickle.dumps(pair))
    assert copy.run(copy.prepare({}), numbers(4), np.array([3])).shape == (12,)


def test_bad_arguments():
    loaded, x = network()
    prepare, run = loaded.specialize(x)
    prepared = prepare(loaded.params)
    with pytest.raises(
        ShapeError, match=r"run: input \['x'\] is float32\[1,3,40,36\], but .* for float32\[2, 3, 40, 36\]"
    ):
        run(prepared, x[:1])
    with pytest.raises(DTypeError, match="input 'x' is float16"):
        run(prepared, x.astype(np.float16))
    with pytest.raises(SignatureError, match=r"the first argument, a dict, is not what `prepare\(params\)` returns"):
        run(loaded.params, x)
    with pytest.raises(ShapeError, match=r"run: `prepared` has float32\[.*\], but the pair is specialized for"):
        run(jax.tree.map(lambda w: w[None], prepared), x)
    with pytest.raises(SignatureError, match="params: 'd' is missing"):
        prepare({"w": loaded.params["w"]})
    with pytest.raises(SignatureError, match="input 'x' is missing"):
        loaded.specialize()


def test_a_size_that_depends_on_data():
    loaded = load(model("main (float[n] x) => (int64[1, k] y) { y = NonZero (x) }"))
    with pytest.raises(StaticError, match="NonZero"):
        loaded.specialize(numbers(4))


def test_a_long_graph_runs_in_sections(monkeypatch):
    monkeypatch.setattr("jaxops.graph.interpreter._FUSED", 4)
    lines = " ".join(f"x{k + 1} = Mul (x{k}, w)" for k in range(40))
    loaded = load(
        model(f"main (float[3] x0) => (float[3] x40) {{ {lines} }}", initializers={"w": np.float32([1, 1.1, 0.9])})
    )
    prepare, run = loaded.specialize(np.ones(3, np.float32), transformable=True)
    prepared = prepare(loaded.params)
    assert not prepared.values
    x = np.float32([1, 2, 3])
    np.testing.assert_allclose(run(prepared, x), x * np.float32([1, 1.1, 0.9]) ** 40, rtol=1e-5)
