"""The option `adapters` of `load`: low-rank additions to products, in all ways to call a model."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model
from jax.sharding import NamedSharding
from language_models import GROUPS, HEAD, language_model

import jaxops.onnx
from jaxops.errors import ArgumentError
from jaxops.sharding import data_parallel, tensor_parallel

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 6)).astype(np.float32)
W = RNG.normal(size=(6, 4)).astype(np.float32)
PRODUCT = "main (float[N,6] x) => (float[N,4] y) { y = MatMul(x, fc) }"
LETTERS = "notebooks/letters.onnx"


def load(text=PRODUCT, adapters=None, weights=None, **options):
    weights = {"fc": W} if weights is None else weights
    imports = ', "com.microsoft" : 1'
    return jaxops.onnx.load(model(text, initializers=weights, imports=imports, opset=21), adapters=adapters, **options)


def trained(found):
    """The parameters with other numbers in the adapters."""
    rng = np.random.default_rng(1)
    return {
        name: jnp.asarray(rng.normal(size=x.shape) * 0.3, x.dtype) if ".lora_" in name else x
        for name, x in found.params.items()
    }


def added(params, x, scale=1.0, module="fc"):
    a, b = (np.asarray(params[f"{module}.lora_{which}.weight"], np.float32) for which in "AB")
    return scale * (x @ a.T) @ b.T


PACKED = RNG.integers(0, 256, (64, 1, 16)).astype(np.uint8)
SCALES = RNG.uniform(0.5, 1, (64, 1)).astype(np.float32)
INT8 = RNG.integers(-128, 128, (64, 64)).astype(np.int8)
WIDE = RNG.normal(size=(5, 64)).astype(np.float32)
# Text of a product, its weights, and a value.
PRODUCTS = {
    "MatMul": (PRODUCT, {"fc": W}, X),
    "MatMul of three axes": ("main (float[N,M,6] x) => (float[P,Q,R] y) { y = MatMul(x, fc) }", {"fc": W}, X[None]),
    "turned weight": (
        "main (float[N,6] x) => (float[P,Q] y) { t = Transpose<perm = [1, 0]>(fc) y = MatMul(x, t) }",
        {"fc": W.T},
        X,
    ),
    "Gemm": (
        "main (float[N,6] x) => (float[P,Q] y) { y = Gemm<alpha = 0.5, transB = 1>(x, fc, b) }",
        {"fc": W.T, "b": np.ones(4, np.float32)},
        X,
    ),
    "Gemm of a turned value": (
        "main (float[6,N] x) => (float[P,Q] y) { y = Gemm<transA = 1>(x, fc) }",
        {"fc": W},
        X.T,
    ),
    "MatMulNBits": (
        """main (float[N,32] x) => (float[P,Q] y) {
            y = com.microsoft.MatMulNBits<K = 32, N = 64, bits = 4, block_size = 32>(x, fc, s)
        }""",
        {"fc": PACKED, "s": SCALES},
        WIDE[:, :32],
    ),
    "MatMulBnb4": (
        """main (float[N,32] x) => (float[P,Q] y) {
            y = com.microsoft.MatMulBnb4<K = 32, N = 64, block_size = 32, quant_type = 1>(x, fc, s)
        }""",
        {"fc": PACKED.reshape(-1), "s": SCALES[:, 0]},
        WIDE[:, :32],
    ),
    "FusedMatMul": (
        """main (float[N,6] x) => (float[P,Q] y) {
            y = com.microsoft.FusedMatMul<alpha = 0.5, transB = 1>(x, fc)
        }""",
        {"fc": W.T},
        X,
    ),
    "DequantizeLinear": (
        """main (float[N,64] x) => (float[P,Q] y) {
            w = DequantizeLinear<axis = 1>(fc, s) y = MatMul(x, w)
        }""",
        {"fc": INT8, "s": SCALES[:, 0] / 64},
        WIDE,
    ),
    "DequantizeLinear after QuantizeLinear of the value": (
        """main (float[N,64] x) => (float[P,Q] y) {
            q = QuantizeLinear(x, sx) d = DequantizeLinear(q, sx)
            w = DequantizeLinear<axis = 0>(fc, s) y = Gemm<transB = 1>(d, w)
        }""",
        {"fc": INT8, "s": SCALES[:, 0] / 64, "sx": np.float32(1e-6)},
        np.zeros((5, 64), np.float32),
    ),
    "branch": (
        """main (float[N,6] x) => (float[P,Q] y) {
            s = ReduceSum<keepdims = 0>(x) zero = Constant<value_float = 1e6>() c = Less(s, zero)
            y = If (c) <
                then_branch = one () => (float[P,Q] a) { a = MatMul(x, fc) },
                else_branch = two () => (float[P,Q] b) { b = MatMul(x, fc) }
            >
        }""",
        {"fc": W},
        X,
    ),
    "one weight, two products": (
        """main (float[N,6] x) => (float[P,Q] y) {
            n = Neg(x) p = MatMul(n, fc) q = Mul(p, two) r = MatMul(x, fc) y = Add(q, r)
        }""",
        {"fc": W, "two": np.float32(-0.5)},
        X,
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_gets_an_addition(case):
    text, weights, x = PRODUCTS[case]
    expected = load(text, weights=weights)(x)
    found = load(text, {"fc": (3, 6.0)}, weights)
    np.testing.assert_array_equal(found(x), expected)
    assert [name for name, is_trained in found.trainable.items() if is_trained] == [
        "fc.lora_A.weight",
        "fc.lora_B.weight",
    ]
    assert all(found.params[name].dtype == value.dtype for name, value in weights.items() if name in found.params)
    params = trained(found)
    more = added(params, x.T if "turned value" in case else x, 2.0)
    more = 1.5 * more if "two products" in case else more
    want = expected + more
    np.testing.assert_allclose(found.apply(params, x), want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.with_params(params)(x), want, rtol=1e-4, atol=1e-4)


def test_new_adapters_are_those_of_peft():
    """A is uniform within 1 / sqrt(inputs), B is zero, and both are the same in each process."""
    one, again = (load(adapters={"fc": 50}).params["fc.lora_A.weight"] for _ in range(2))
    np.testing.assert_array_equal(one, again)
    bound = 6**-0.5
    assert 0.95 * bound < abs(one).max() <= bound
    assert abs(one.mean()) < 0.1 * bound
    np.testing.assert_allclose(one[0, :3], [-0.3094434, 0.0557062, 0.3357278], rtol=1e-6)


@pytest.mark.parametrize("options", [{"four_bits": True}, {"half": True}])
def test_all_transformations_of_a_language_model(options):
    file = language_model((0, 0), **options)
    plain = jaxops.onnx.load(file)
    found = jaxops.onnx.load(file, adapters={"*.qkv_proj": 2, "*.mlp.*": (3, 6.0)})
    tokens = np.int64([[1, 2, 3, 4]])
    inputs = {v.name: np.zeros((1, GROUPS, 0, HEAD), v.dtype) for v in found.inputs if len(v.shape) == 4}
    inputs |= {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    params, new = trained(found), [name for name in found.params if ".lora_" in name]
    assert len(new) == 2 * 2 * 4
    assert [name for name, is_trained in found.trainable.items() if is_trained] == new
    assert {name: x.dtype for name, x in found.params.items() if name in plain.params} == {
        name: x.dtype for name, x in plain.params.items()
    }
    np.testing.assert_array_equal(found(inputs)[0], plain(inputs)[0])

    def loss(scale):
        scaled = {name: x * scale.astype(x.dtype) if name in new else x for name, x in params.items()}
        return jnp.sum(found.apply(scaled, inputs)[0].astype(jnp.float32) ** 2)

    one, close = jnp.float32(1), 0.05 if "half" in options else 1e-3
    step = jnp.float32(0.02 if "half" in options else 4e-3)
    difference = (loss(one + step) - loss(one - step)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(one), difference, rtol=close)
    np.testing.assert_allclose(jax.vmap(loss)(jnp.float32([0, 1])), [loss(one * 0), loss(one)], rtol=close)
    tuned = found.with_params(params)
    want = tuned(inputs)[0]
    np.testing.assert_allclose(found.apply(params, inputs)[0], want, atol=close)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(tuned))(inputs)[0], want)
    prepare, run = found.specialize(inputs)
    np.testing.assert_allclose(run(prepare(params), inputs)[0], want, atol=close)
    step = jaxops.onnx.decoder(found, length=8)
    state, _ = step(params, step.init(batch=1), tokens[:, :2])
    _, logits = step(params, state, tokens[:, 2:])
    np.testing.assert_allclose(logits, want[:, 2:], atol=close)


def test_types_names_blocks_and_exports():
    plain = jaxops.onnx.load(LETTERS, names="module")
    found = jaxops.onnx.load(LETTERS, names="module", adapters={"*.attention.*": 4}, remat="block")
    assert sum(name.endswith("lora_A.weight") for name in found.params) == 8
    tokens, params = np.arange(12).reshape(2, 6), trained(found)
    want = found.apply(params, tokens)
    assert abs(want - plain(tokens)).max() > 0.01
    np.testing.assert_allclose(found.export().call(params, tokens.astype(np.int32)), want, atol=1e-5)
    narrow = found.with_params(params).astype(jnp.bfloat16)
    assert narrow.params["layers.0.up.weight"].dtype == jnp.bfloat16
    assert narrow.trainable == found.trainable
    np.testing.assert_allclose(narrow(tokens).astype(np.float32), want, atol=0.3)
    assert found.flatten(found.nest(params)).keys() == params.keys()

    def loss(params):
        return (found.apply(params, tokens) ** 2).sum()

    gradients = jax.jit(jax.grad(loss))(params)
    assert all(abs(gradients[name]).max() > 0 for name in params if ".lora_" in name)


def test_placed_on_a_mesh():
    mesh = jax.make_mesh((2,), ("model",))
    rule = tensor_parallel("model", mesh)
    found = load(adapters={"fc": 2}, sharding=rule)
    assert isinstance(found.params["fc.lora_A.weight"].sharding, NamedSharding)
    params = trained(found)
    want = X @ W + added(params, X)
    with jax.set_mesh(mesh):
        np.testing.assert_allclose(load(adapters={"fc": 2}, sharding=data_parallel).apply(params, X), want, atol=1e-5)
    np.testing.assert_allclose(found.apply(params, X), want, atol=1e-5)


def test_a_decision_of_the_caller_to_train_a_weight_stays():
    found = load(adapters={"fc": 2}, trainable={"fc": True})
    assert found.trainable == {"fc": True, "fc.lora_A.weight": True, "fc.lora_B.weight": True}


def test_the_first_pattern_decides():
    adapters = {"layers.0.*.query": 2, "layers.*": 3}
    found = jaxops.onnx.load(LETTERS, adapters=adapters)
    ranks = {a.module: a.rank for a in found.graph.adapters}
    assert ranks["layers.0.attention.query"] == 2
    assert ranks["layers.1.attention.query"] == ranks["layers.1.up"] == 3
    assert "letters" not in ranks


def test_several_weights_in_one_module_have_the_names_of_their_weights():
    text = "main (float[N,6] x) => (float[P,Q] y) { a = MatMul(x, w) y = MatMul(a, v) }"
    proto = model(text, initializers={"attn.in_proj_weight": W, "attn.out_proj.weight": W.T})
    for node, weight in zip(proto.graph.node, proto.graph.initializer, strict=True):
        node.name, node.input[1] = f"/attn/{node.output[0]}", weight.name
    found = jaxops.onnx.load(proto, adapters={"*": 2})
    assert [adapter.module for adapter in found.graph.adapters] == ["attn.in_proj", "attn.out_proj"]


def test_one_weight_in_two_directions_gets_two_adapters():
    text = """main (float[N,6] x) => (float[N,6] y) {
        a = MatMul(x, fc) t = Transpose<perm = [1, 0]>(fc) y = MatMul(a, t)
    }"""
    found = load(text, {"*": 2})
    assert [(a.module, a.weight) for a in found.graph.adapters] == [("fc", ""), ("fc_2", "")]
    params = trained(found)
    a = X @ W + added(params, X)
    np.testing.assert_allclose(found.apply(params, X), a @ W.T + added(params, a, module="fc_2"), rtol=1e-4, atol=1e-5)


def test_random_numbers_stay_the_same():
    text = "main (float[N,6] x) => (float[N,4] y) { a = MatMul(x, fc) n = RandomNormalLike(a) y = Add(a, n) }"
    key = jax.random.key(0)
    np.testing.assert_array_equal(load(text, {"fc": 2})(X, rng=key), load(text)(X, rng=key))


def test_gradients_pass_quantized_activations():
    text, weights, _ = PRODUCTS["DequantizeLinear after QuantizeLinear of the value"]
    text = text.replace("q = QuantizeLinear(x, sx)", "h = MatMul(x, first) q = QuantizeLinear(h, sx)")
    weights = {**weights, "first": np.eye(64, dtype=np.float32), "sx": np.float32(0.1)}
    found = load(text, {"*": 2}, weights, straight_through=True)
    params = trained(found)
    new = {name: x for name, x in params.items() if found.trainable[name]}
    gradients = jax.grad(lambda new: found.apply({**params, **new}, WIDE).sum())(new)
    assert all(abs(gradient).max() > 0 for gradient in gradients.values())


CONV = "main (float[N,3,8,8] x) => (float[P,Q] y) { y = Conv(x, stem) }"
LEFT = "main (float[6,N] x) => (float[P,Q] y) { y = MatMul(fc, x) }"


@pytest.mark.parametrize(
    ("adapters", "match"),
    [
        ({"fc1": 2}, r"`adapters`: no module with a product x · W fits 'fc1'; similar: 'fc'"),
        ({"*.mlp": 2}, r"fits '\*.mlp'; the modules are 'fc'$"),
        ({"fc": 0}, r"'fc' has 0; give a rank, an integer of at least 1"),
        ({"fc": True}, r"'fc' has True; give a rank"),
        ({"fc": 2.5}, r"'fc' has 2.5; give a rank"),
        ({"fc": (0, 4)}, r"'fc' has \(0, 4\); give a rank"),
        ({"fc": (2, np.nan)}, r"'fc' has the alpha nan; it must be a finite number"),
        ({"fc": (2, "a")}, r"'fc' has the alpha 'a'"),
        ({3: 2}, r"the key 3 must be a pattern of module paths"),
        ({}, r"`adapters` is \{\}; it must be a dictionary"),
        (4, r"`adapters` is 4; it must be a dictionary"),
    ],
)
def test_bad_adapters(adapters, match):
    with pytest.raises(ArgumentError, match=match):
        load(adapters=adapters)


@pytest.mark.parametrize(
    ("text", "weights", "match"),
    [
        (
            CONV,
            {"stem": np.ones((4, 3, 3, 3), np.float32)},
            "'stem', but no product x · W reads its weight: Conv",
        ),
        (LEFT, {"stem": W, "fc": W.T}, "no product x · W reads its weight: MatMul does"),
        (
            "main (uint8[N,6] x) => (int32[P,Q] y) { y = MatMulInteger(x, fc) }",
            {"fc": np.ones((6, 4), np.int8)},
            "'fc', but no product x · W reads its weight: MatMulInteger does",
        ),
        ("main (float[N] x) => (float[P,Q] y) { y = Relu(x) }", {}, "fits '*'; the model has none"),
    ],
)
def test_weights_that_no_product_reads(text, weights, match):
    with pytest.raises(ArgumentError) as caught:
        load(text, {"*": 2}, weights)
    assert match in str(caught.value)


def test_other_runtimes_need_not_know_adapters(tmp_path):
    """`to_python` writes them as operators."""
    found = load(adapters={"fc": (2, 4)})
    found.to_python(tmp_path / "net", params := trained(found))
    scope = {"__file__": str(tmp_path / "net" / "__init__.py"), "__name__": "net"}
    exec((tmp_path / "net" / "__init__.py").read_text(), scope)
    np.testing.assert_allclose(scope["apply"](scope["load_params"](), X), found.apply(params, X), atol=1e-5)


def test_the_model_stays_valid_as_a_pytree():
    one, other = (load(adapters={"fc": (2, alpha)}) for alpha in (2, 4))
    assert jax.tree.structure(one) == jax.tree.structure(load(adapters={"fc": 2}))
    assert jax.tree.structure(one) != jax.tree.structure(other)
