"""Models of 64 bits while JAX's x64 is off: numbers beyond 32 bits are onnxruntime's, or refused."""

import copy
import functools
import pickle

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, function, info, model, node, tensor
from onnx import TensorProto, helper
from wide_models import answer, bits, text

import jaxops.onnx
from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError
from jaxops.onnx import load

LARGE = np.int64([2**30, -(2**31), 2**31 - 1])


ARITHMETIC = {
    "add": (text("y = Add(x, x)"), LARGE),
    "sub": (text("z = Neg(x) y = Sub(x, z)"), LARGE),
    "mul": (text("y = Mul(x, x)"), LARGE),
    "div": (text("y = Div(x, d)", initializers={"d": np.int64(-1)}), LARGE),
    "neg": (text("y = Neg(x)"), LARGE),
    "abs": (text("y = Abs(x)"), LARGE),
    "pow": (text("y = Pow(x, e)", initializers={"e": np.int64(2)}), LARGE),
    "sum of three": (text("a = Mul(x, x) y = Add(a, x)"), LARGE),
    "reduce_sum": (text("y = ReduceSum<keepdims=0>(x)", y="int64"), np.int64([2**30] * 3)),
    "reduce_prod": (text("y = ReduceProd<keepdims=0>(x)", y="int64"), np.int64([2**20] * 3)),
    "cumsum": (text("y = CumSum(x, a)", initializers={"a": np.int64(0)}), np.int64([2**30] * 3)),
    "prelu": (text("y = PRelu(x, s)", initializers={"s": np.int64([2**20])}), LARGE),
    "matmul": (text("y = MatMul(x, x)", y="int64"), LARGE),
    "uint64": (text("y = Add(x, x)", "uint64[3]", "uint64[K]"), np.uint64([1, 2**31, 2**32 - 1])),
    "uint32 as int64": (text("y = Cast<to=7>(x)", "uint32[3]"), np.uint32([1, 2**31, 2**32 - 1])),
    "int32 as uint64": (text("y = Cast<to=13>(x)", "int32[3]", "uint64[K]"), np.int32([1, -1, -(2**31)])),
    "int8 as uint64": (
        text("y = CastLike(x, k)", "int8[3]", "uint64[K]", initializers={"k": np.uint64(0)}),
        np.int8([1, -1, -128]),
    ),
    "int64 as uint64": (text("y = Cast<to=13>(x)", "int64[3]", "uint64[K]"), LARGE),
    "uint64 as int64": (text("y = Cast<to=7>(x)", "uint64[3]"), np.uint64([1, 2**31, 2**32 - 1])),
    "float as int64": (text("y = Cast<to=7>(x)", "float[3]"), np.float32([1e10, -3e9, 2.5])),
    "cast like": (text("y = CastLike(x, k)", "float[3]", initializers={"k": np.int64(0)}), np.float32([1e10, -3e9, 2])),
    "float64 underflows": (text("y = Mul(x, x)", "double[3]", "double[K]"), np.float64([1e-30, 1e30, 1 / 3])),
    "float64 moves": (text("y = Identity(x)", "double[3]", "double[K]"), np.float64([1e-300, 1e300, 1 / 3])),
    "float64 inside": (
        text("a = Cast<to=11>(x) b = Mul(a, a) c = Sqrt(b) y = Cast<to=1>(c)", "float[3]", "float[K]"),
        np.float32([1e-30, 1e30, 1 / 3]),
    ),
    "int64 inside": (
        text("a = Cast<to=7>(x) b = Mul(a, a) y = Cast<to=1>(b)", "float[3]", "float[K]"),
        np.float32([1e5, 2e5, 3]),
    ),
    "scatter": (
        text(
            "y = ScatterElements<reduction='add'>(x, i, x)".replace("'", '"'), initializers={"i": np.int64([0, 0, 2])}
        ),
        LARGE,
    ),
    "function": (
        build(
            node("F", ["x"], ["y"], domain="loc"),
            inputs=[info("x", [3], TensorProto.INT64)],
            outputs=[info("y", [3], TensorProto.INT64)],
            opsets=(("", 18), ("loc", 1)),
            functions=[function("F", ["a"], node("Add", ["a", "a"], ["b"]))],
        ),
        LARGE,
    ),
    "hash of 64 bits": (
        build(
            node("MurmurHash3", ["x"], ["y"], domain="com.microsoft"),
            inputs=[info("x", [3], TensorProto.INT64)],
            outputs=[info("y", [3], TensorProto.UINT32)],
            opsets=(("", 18), ("com.microsoft", 1)),
        ),
        np.int64([1, 2, -3]),
    ),
}
FITTING = {
    name: case for name, case in ARITHMETIC.items() if name not in ("uint64", "uint32 as int64", "uint64 as int64")
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_exact_while_x64_is_off(name):
    proto, x = ARITHMETIC[name]
    loaded = load(proto)
    assert loaded.x64
    bits(loaded(x), answer(proto, x))
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("name", FITTING)
def test_and_under_a_callers_jit(name):
    proto, x = FITTING[name]
    with jax.enable_x64(True):
        given = jnp.asarray(x, np.int32 if x.dtype == np.int64 else x.dtype)
    bits(jax.jit(load(proto))(given), answer(proto, x))
    if name in ("add", "cumsum", "float64 inside"):
        bits(jax.jit(jax.vmap(load(proto)))(jnp.stack([given, given]))[1], answer(proto, x))


def test_the_old_answer_wraps():
    np.testing.assert_array_equal(load(ARITHMETIC["add"][0], x64=False)(LARGE), (LARGE * 2).astype(np.int32))


def test_indices_and_static_arithmetic_leave_a_model_as_it_is():
    shape = "s = Shape(x) n = Mul(s, s) p = Add(n, s) z = Cast<to=1>(p)"
    tables = {"w": np.arange(12, dtype=np.float32).reshape(4, 3)}
    for proto in (
        text("y = Gather(w, x)", y="float[K, M]", initializers=tables),
        text("i = ArgMax(w) y = Gather(x, i)", y="int64[K, M]", initializers=tables),
        text(f"{shape} y = Mul(x, z)", "float[3]", "float[K]"),
        text("a = Less(x, x) y = Where(a, x, x)"),
        text("y = Cast<to=7>(x)", "int32[3]"),
        text("y = Cast<to=7>(x)", "uint16[3]"),
        text("y = Cast<to=13>(x)", "uint32[3]", "uint64[3]"),
        text("y = Mul(x, z)", initializers={"z": np.int64(0)}),  # a zero of the shape of x, as PyTorch writes it
        text("a = Mul(m, x) y = Gather(a, x)", initializers={"m": np.int64([0, 1, 1])}),
    ):
        assert not load(proto).x64
    bits(load(ARITHMETIC["add"][0], x64=False)(jnp.arange(3)), np.int32([0, 2, 4]))


def test_with_x64_on_all_three_are_the_same(x64):
    proto, x = ARITHMETIC["mul"]
    for choice in ("auto", True, False):
        bits(load(proto, x64=choice)(x), answer(proto, x))


def test_true_keeps_what_the_file_declares():
    proto = text("y = Identity(x)")
    bits(load(proto, x64=True)(np.int64([2**40, 1, 2])), np.int64([2**40, 1, 2]))
    with pytest.raises(OutOfRangeError, match=r"the int64 value 1099511627776 does not fit int32"):
        load(proto)(np.int64([2**40, 1, 2]))
    with pytest.raises(ArgumentError, match=r"`x64` is 'yes'; it must be 'auto', True or False"):
        load(proto, x64="yes")


def test_arrays_of_64_bits_enter_a_model_of_32():
    ids = load(ARITHMETIC["add"][0])(np.int64([0, 1, 1]))
    table = load(text("y = Gather(w, x)", y="float[K]", initializers={"w": np.float32([3, 4, 5])}))
    np.testing.assert_array_equal(table(ids), [3, 5, 5])
    with pytest.raises(OutOfRangeError, match=r"2199023255552 does not fit int32"):
        table(load(ARITHMETIC["add"][0])(np.int64([0, 1, 2**40])))
    with pytest.raises(DTypeError, match=r"input 'x' is int64\[3\](.|\n)*load it with x64=True"):
        jax.jit(table)(ids)


WEIGHTS = {"w": np.arange(6.0).reshape(2, 3) / 7 + 1e-9, "k": np.float64(1 / 3)}
OF_FLOAT64 = text(
    "a = MatMul(x, w) b = Mul(a, k) c = Slice(b, i, j) d = Pad(c, p) y = Softmax(d)",
    "double[2, 2]",
    "double[K, M]",
    initializers=WEIGHTS | {"i": np.int64([0]), "j": np.int64([1]), "p": np.int64([1, 0, 0, 2])},
)
MIXED = text(
    "a = Mul(x, w) b = Cast<to=7>(a) c = Mul(b, b) d = Cast<to=1>(c) y = Mul(d, a)",
    "float[3]",
    "float[K]",
    initializers={"w": np.float32([1e5, 2, 3])},
)


@pytest.mark.parametrize("proto", [OF_FLOAT64, MIXED], ids=["float64", "mixed"])
def test_derivatives_are_those_with_x64_on(proto):
    loaded = load(proto)
    x = np.float64([[1e-9, 2], [3, 1 / 3]]) if proto is OF_FLOAT64 else np.float32([1, 2, 3])

    def loss(params, x):
        return loaded.apply(params, x)[(0,) * x.ndim]

    def every(params, x, ways):
        direction = jax.tree.map(jnp.ones_like, params)
        return {
            "grad": jax.grad(loss, (0, 1))(params, x),
            "jvp": jax.jvp(lambda p: loss(p, x), (params,), (direction,))[1],
            "second": jax.jvp(lambda x: jax.grad(loss, 1)(params, x), (x,), (x,))[1],
            "vmap": jax.vmap(jax.grad(loss), (None, 0))(params, jnp.stack([x, x])),
        }[ways]

    params = loaded.params
    with jax.enable_x64(True):
        x = jnp.asarray(x)
    for ways in ("grad", "jvp", "second", "vmap"):
        compiled = jax.jit(functools.partial(every, ways=ways))
        with jax.enable_x64(True):
            expected = compiled(params, x)
        jax.tree.map(bits, compiled(params, x), expected)
        if ways == "grad":
            jax.tree.map(bits, every(params, x, ways), expected)


def test_a_gradient_of_parameters_computes_none_of_the_inputs():
    body = "d = Cast<to=11>(x) a = MatMul(d, w) b = Tanh(a) c = MatMul(b, v) y = Cast<to=1>(c)"
    weights = {"w": np.float64([[1, 2], [3, 4]]), "v": np.float64([[1, -1], [2, 1]])}
    loaded = load(text(body, "float[2, 2]", "float[K, M]", initializers=weights))

    def products(arguments):
        grad = jax.grad(lambda params, x: loaded.apply(params, x).sum(), arguments)
        return jax.jit(grad).lower(loaded.params, jnp.ones((2, 2))).as_text().count("dot_general")

    # Two forward, one for each of w and v, one for what is between them; and one for x.
    assert products(0) == products((0, 1)) - 1
    assert products(1) == products((0, 1)) - 2


def test_derivatives_beside_outputs_of_other_kinds():
    """An integer has no derivative, and the static shape is an array of the program."""
    loaded = load(
        model(
            """main (float[N] x) => (int64[K] a, float[N] y, int64[R] s, string[1] t) {
              c = Cast<to=7>(x) a = Mul(c, c) f = Cast<to=1>(a) y = Mul(x, f) s = Shape(x) t = Identity(w) }""",
            initializers={"w": np.array(["a"], object)},
        )
    )
    x = jnp.float32([1e5, 2])
    for way in (lambda fn: fn, jax.jit):
        (value, others), grad = way(jax.value_and_grad(lambda x: (loaded(x).y[1], loaded(x)[:3]), has_aux=True))(x)
        assert float(value) == 8
        bits(grad, np.float32([0, 4]))
        bits(others[0], np.int64([10**10, 4]))
        assert np.asarray(others[2]).tolist() == [2]


def test_on_two_devices():
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("i",)), jax.sharding.PartitionSpec("i")
    add = load(text("y = Add(x, x)", "int64[N]"))
    run = jax.shard_map(add, mesh=mesh, in_specs=spec, out_specs=spec)
    bits(jax.jit(run)(jnp.int32([2**30] * 4)), np.int64([2**31] * 4))


def test_a_callers_export():
    square = load(text("y = Mul(x, x)", "int64[N]"))
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.int32)
    bits(jax.export.export(jax.jit(square))(spec).call(jnp.int32([2**20, 3])), np.int64([2**40, 9]))


def test_params_of_32_bits_stand_for_64():
    loaded = load(OF_FLOAT64)
    x = np.eye(2)
    assert {name: p.dtype.name for name, p in loaded.params.items()} == {"w": "float64"}
    narrow = {"w": jnp.asarray(WEIGHTS["w"], np.float32)}
    exact = load(OF_FLOAT64)
    with jax.enable_x64(True):
        expected = exact.apply({"w": narrow["w"].astype(np.float64)}, x)
    bits(loaded.apply(narrow, x), expected)


def test_what_a_callers_jit_lowers_later_has_64_bits():
    """JAX writes an ArgMax, or random bits, out in simpler operations once the trace of a program has ended."""
    scores = text(
        "a = ArgMax<axis=0, keepdims=0>(x) y = Mul(a, k)", "float[3]", "int64", initializers={"k": LARGE[0] * 8}
    )
    assert int(jax.jit(load(scores))(jnp.float32([1, 2, 9]))) == 2**34
    drawn = load(text("y = RandomUniformLike<seed=1.0>(x)", "double[4]", "double[4]"))
    with jax.enable_x64(True):
        x = jnp.zeros(4)
    bits(jax.jit(drawn)(x), np.asarray(drawn(x)))


def test_a_random_key_may_be_traced():
    drawn, x, key = (
        load(text("r = RandomNormalLike(x) y = Mul(x, r)", "double[4]", "double[4]")),
        np.ones(4),
        jax.random.key(3),
    )
    numbers = np.asarray(drawn(x, rng=key))
    bits(jax.jit(lambda x, key: drawn.apply({}, x, rng=key))(x, key), numbers)
    bits(jax.vmap(lambda key: drawn.apply({}, x, rng=key))(key[None])[0], numbers)
    slopes = jax.grad(lambda x, key: drawn.apply({}, x, rng=key)[0].astype(np.float32))(jnp.ones(4), key)
    np.testing.assert_allclose(slopes, numbers * [1, 0, 0, 0], rtol=1e-6)


def test_in_a_scan_of_the_caller():
    step = load(ARITHMETIC["add"][0])
    with jax.enable_x64(True):
        start = jnp.asarray([1, 2, 3], np.int64)
    last, _ = jax.lax.scan(lambda x, _: (step(x), None), start, length=40)
    bits(last, np.int64([1, 2, 3]) << 40)


def test_nothing_that_a_caller_gives_is_remembered_with_64_bits():
    loaded, x = load(OF_FLOAT64), np.eye(2)
    jax.grad(lambda p: loaded.apply(p, x)[0, 0])(loaded.params)
    bits(jax.jit(lambda x: x * 2)(x), np.eye(2, dtype=np.float32) * 2)


def test_an_export_has_the_types_of_the_file():
    proto, x = ARITHMETIC["mul"]
    program = load(proto).export()
    assert [str(a) for a in program.in_avals] == ["int64[3]"]
    with jax.enable_x64(True):
        bits(program.call({}, x), answer(proto, x))


def test_copies_run_in_64_bits_too():
    proto, x = ARITHMETIC["mul"]
    loaded = load(proto)
    for other in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        bits(other(x), answer(proto, x))
    params = pickle.loads(pickle.dumps(load(OF_FLOAT64))).params
    bits(params["w"], WEIGHTS["w"])


def test_astype_keeps_exact_integers():
    proto, x = ARITHMETIC["int64 inside"]
    found = load(proto).astype(jnp.bfloat16)(jnp.asarray(x, jnp.bfloat16))
    np.testing.assert_allclose(np.asarray(found, np.float64), x.astype(np.float64) ** 2, rtol=0.02)


def test_a_written_package_computes_the_same(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, proto, x in (
        ("wide_integers", ARITHMETIC["mul"][0], LARGE),
        ("wide_floats", OF_FLOAT64, np.eye(2) / 3),
    ):
        loaded = load(proto)
        loaded.to_python(tmp_path / name)
        package = __import__(name)
        bits(package.apply(package.load_params(), x), np.asarray(loaded(x)))
        narrow = jnp.asarray(x, np.int32 if name == "wide_integers" else np.float32)
        bits(jax.jit(package.apply)(package.load_params(), narrow), np.asarray(loaded(narrow)))
    params = package.load_params()
    assert params["w"].dtype == np.float64
    with jax.enable_x64(True):
        expected = jax.grad(lambda p: loaded.apply(p, x)[0, 0])(loaded.params)
    bits(jax.jit(jax.grad(lambda p: package.apply(p, x)[0, 0]))(params)["w"], expected["w"])


def test_in_pieces_and_in_subgraphs():
    """NonZero cuts the model; what is behind the cut runs in 64 bits, too."""
    proto = text("a = Mul(x, x) i = NonZero(a) t = Transpose(i) b = GatherND(a, t) y = Mul(b, b)", "int64[4]")
    x = np.int64([2**15, 0, 3, 2**15 + 1])
    bits(load(proto)(x), answer(proto, x))
    body = helper.make_graph(
        [node("Add", ["s", "s"], ["t"]), node("Identity", ["c"], ["d"])],
        "b",
        [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("s", [3], TensorProto.INT64)],
        [info("d", [], TensorProto.BOOL), info("t", [3], TensorProto.INT64)],
    )
    proto = build(
        node("Loop", ["n", "", "x"], ["y"], body=body),
        inputs=[info("x", [3], TensorProto.INT64)],
        outputs=[info("y", [3], TensorProto.INT64)],
        initializers=[tensor(np.int64(5), "n")],
    )
    assert load(proto).x64
    bits(load(proto)(LARGE), answer(proto, LARGE))


def test_the_tools_see_64_bits():
    proto, x = ARITHMETIC["mul"]
    loaded = load(proto)
    assert loaded.compare(x).agrees
    assert "int64" in str(loaded.summary(x))
    loaded.plot(x)


def test_a_decoder_of_64_bits():
    proto = model(
        """main (int64[b, n] ids, float[b, 1, p, 2] cache_k_0) =>
               (float[b, n, 3] logits, float[b, 1, t, 2] new_cache_k_0) {
          big = Mul(ids, k) small = Div(big, k) e = Gather(w, small) u = Unsqueeze(e, one)
          new_cache_k_0 = Concat<axis=2>(cache_k_0, u) s = ReduceSum(new_cache_k_0, two)
          q = Squeeze(s, one) m = MatMul(e, v) a = MatMul(q, v) f = Add(m, a)
          top = ArgMax<axis=-1>(e) zero = Mul(top, k) none = Sub(zero, zero) g = Cast<to=1>(none)
          logits = Add(f, g) }""",
        initializers={
            "k": np.int64(2**40),
            "one": np.int64([1]),
            "two": np.int64([2]),
            "w": np.arange(8, dtype=np.float32).reshape(4, 2),
            "v": np.ones((2, 3), np.float32),
        },
    )
    loaded = load(proto)
    assert loaded.x64
    step = jaxops.onnx.decoder(loaded, length=8)
    state, first = step(loaded.params, step.init(1), np.int64([[1, 2]]))
    past = np.zeros((1, 1, 0, 2), np.float32)
    whole = loaded(np.int64([[1, 2]]), past)
    np.testing.assert_allclose(first, whole.logits)
    _, (logits, _) = jax.lax.scan(
        lambda c, t: ((s := step(loaded.params, c, t))[0], (s[1], t)), state, jnp.asarray([[3], [0]])
    )
    np.testing.assert_allclose(
        logits[-1], loaded(np.int64([[0]]), np.float32([[[[2, 3], [4, 5], [6, 7]]]])).logits[:, 0]
    )
