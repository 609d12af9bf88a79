"""Random numbers: their distributions, types, seeds and keys, at every version."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset, build, info, node
from jax.export import export, symbolic_args_specs
from peer import runtime

import jaxops as jo
import jaxops.onnx
from jaxops.errors import ArgumentError, DTypeError, ShapeError

pytestmark = pytest.mark.optimized

COUNT = 20_000
X = np.zeros((100, COUNT // 100), np.float32)
KEY = jax.random.key(7)


def normal_cdf(x):
    return 0.5 + 0.5 * np.vectorize(math.erf)(x / math.sqrt(2))


def distributed(sample, cdf):
    """Kolmogorov's test: the distance of the two distributions; it exceeds 2 / √n once in 1,500 times."""
    ordered = np.sort(np.asarray(sample, np.float64).ravel())
    steps = np.arange(ordered.size + 1) / ordered.size
    expected = cdf(ordered)
    distance = max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max())
    assert distance < 2 / math.sqrt(ordered.size), distance


def frequent(ones, share):
    """The share of a class lies within 4 standard deviations of its probability."""
    ones = np.asarray(ones, np.float64)
    assert abs(ones.mean() - share) <= 4 * math.sqrt(share * (1 - share) / ones.size)


@pytest.mark.parametrize(
    "draw", [lambda **a: jo.random_normal(shape=X.shape, **a), lambda **a: jo.random_normal_like(X, **a)]
)
def test_normal(draw):
    found = jax.jit(lambda key: draw(mean=3.0, scale=2.0, rng=key))(KEY)
    assert (found.shape, found.dtype) == (X.shape, np.float32)
    distributed(found, lambda x: normal_cdf((x - 3) / 2))
    with pytest.raises(AssertionError):
        distributed(found, lambda x: normal_cdf((x - 3) / 2.1))
    distributed(draw(dtype=np.float16, rng=KEY), normal_cdf)
    np.testing.assert_allclose(found, draw(mean=3.0, scale=2.0, rng=KEY), atol=1e-5)


@pytest.mark.parametrize(
    "draw", [lambda **a: jo.random_uniform(shape=X.shape, **a), lambda **a: jo.random_uniform_like(X, **a)]
)
def test_uniform(draw):
    found = jax.jit(lambda key: draw(low=-3.0, high=5.0, rng=key))(KEY)
    assert (found.shape, found.dtype) == (X.shape, np.float32)
    assert -3 <= found.min() <= found.max() <= 5
    distributed(found, lambda x: (x + 3) / 8)
    distributed(draw(dtype=jnp.bfloat16, rng=KEY), lambda x: x)
    distributed(draw(dtype=np.float16, rng=KEY), lambda x: x)


def test_bernoulli():
    share = np.linspace(0, 1, 11, dtype=np.float32)[:, None]
    found = jax.jit(lambda p: jo.bernoulli(p, rng=KEY))(np.broadcast_to(share, (11, 2000)))
    assert found.dtype == np.float32
    for row, p in zip(np.asarray(found), share[:, 0].astype(float), strict=True):
        assert set(row) <= {0, 1}
        frequent(row, p)
    with pytest.raises(AssertionError):
        frequent(found[5], 0.45)
    half = np.full(COUNT, 0.5, np.float16)
    for dtype in (None, bool, np.int8, np.uint64, jnp.bfloat16):
        drawn = jo.bernoulli(half, dtype=dtype, seed=1.0)
        assert drawn.dtype == jax.dtypes.canonicalize_dtype(dtype or np.float16)
        frequent(drawn, 0.5)


def test_multinomial():
    shares = np.array([[0.1, 0.2, 0.7], [0.0, 1.0, 0.0]])
    with np.errstate(divide="ignore"):
        logs = (np.log(shares) + 5).astype(np.float32)  # up to a constant
    found = np.asarray(jax.jit(lambda x: jo.multinomial(x, sample_size=3000, rng=KEY))(logs))
    assert (found.shape, found.dtype) == ((2, 3000), np.int32)
    for row, expected in zip(found, shares, strict=True):
        for i, share in enumerate(expected):
            frequent(row == i, share)
    assert jo.multinomial(logs, seed=1.0).shape == (2, 1)
    assert jo.multinomial(logs.astype(np.float16), seed=1.0).dtype == np.int32


OPERATORS = [
    ("RandomNormal", (), {"shape": (3, 5)}),
    ("RandomNormalLike", (np.zeros((3, 5), np.float32),), {}),
    ("RandomUniform", (), {"shape": (3, 5)}),
    ("RandomUniformLike", (np.zeros((3, 5), np.float32),), {}),
    ("Bernoulli", (np.full((3, 5), 0.5, np.float32),), {}),
    ("Multinomial", (np.zeros((3, 5), np.float32),), {"sample_size": 5}),
]
FIRST = {"Bernoulli": 15, "Multinomial": 7}


@pytest.mark.parametrize(("op", "inputs", "attributes"), OPERATORS, ids=[op for op, *_ in OPERATORS])
def test_every_version(op, inputs, attributes, x64):
    numbers = {"Multinomial": (6, 7), "Bernoulli": (1, 10, 11, 9, 7)}.get(op, (1, 10, 11))
    for opset in (FIRST.get(op, 1), 22):
        for number in numbers:
            (drawn,) = at_opset(op, opset, *inputs, **attributes, dtype=number, seed=3.0)
            assert drawn.shape == (3, 5)
            kinds = {1: np.float32, 10: np.float16, 11: np.float64, 9: bool, 6: np.int32, 7: np.int64}
            assert drawn.dtype == kinds[number]
    same, other = (at_opset(op, 22, *inputs, **attributes, seed=s)[0] for s in (3.0, 4.0))
    (again,) = at_opset(op, 22, *inputs, **attributes, seed=3.0)
    assert np.asarray(same).tolist() == np.asarray(again).tolist() != np.asarray(other).tolist()
    (keyed,) = at_opset(op, 22, *inputs, **attributes, seed=3.0, rng=KEY)
    assert np.asarray(keyed).tolist() == np.asarray(at_opset(op, 22, *inputs, **attributes, rng=KEY)[0]).tolist()
    assert np.asarray(keyed).tolist() != np.asarray(same).tolist()
    with pytest.raises(ArgumentError, match=r"it needs a random key; pass `rng`, such as jax.random.key\(0\), or a nu"):
        at_opset(op, 22, *inputs, **attributes)


def test_onnxruntime_has_the_same_distributions():
    """The same tests hold for its numbers, so that the attributes mean the same."""
    shape = {"shape": X.shape, "seed": 1.0}
    distributed(runtime("RandomNormal", [], 18, mean=3.0, scale=2.0, **shape)[0], lambda x: normal_cdf((x - 3) / 2))
    distributed(runtime("RandomUniform", [], 18, low=-3.0, high=5.0, **shape)[0], lambda x: (x + 3) / 8)
    # It runs the standard's function body, which compares the wrong way round.
    frequent(1 - runtime("Bernoulli", [np.full(COUNT, 0.3, np.float32)], 18, seed=1.0)[0], 0.3)
    shares = np.array([[0.1, 0.2, 0.7]])
    (drawn,) = runtime("Multinomial", [np.log(shares).astype(np.float32)], 18, sample_size=3000, seed=1.0)
    assert (drawn.shape, drawn.dtype) == ((1, 3000), np.int32)
    for i, share in enumerate(shares[0]):
        frequent(drawn == i, share)


def test_a_model_draws_from_its_key():
    nodes = [
        node("RandomNormalLike", ["x"], ["a"]),
        node("RandomNormalLike", ["x"], ["b"]),
        node("Sub", ["a", "b"], ["y"]),
    ]
    model = jaxops.onnx.load(build(*nodes, outputs=[info("y", None), info("a", None)]))
    x = np.zeros((2, 3), np.float32)
    differences, first = model(x, rng=KEY)
    assert np.all(np.asarray(differences) != 0)
    np.testing.assert_array_equal(first, model(x, rng=KEY)[1])
    assert np.all(np.asarray(first) != np.asarray(model(x, rng=jax.random.key(8))[1]))
    with pytest.raises(ArgumentError, match="random_normal_like: it needs a random key"):
        model(x)


def test_sizes_that_are_symbolic_and_vmap():
    def drawn(x):
        return jo.random_normal_like(x, rng=KEY), jo.multinomial(x, rng=KEY)

    x = jnp.zeros((3, 4))
    (spec,) = symbolic_args_specs([x], ["b, 4"])
    for found, expected in zip(export(jax.jit(drawn))(spec).call(x), drawn(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    probabilities = jnp.linspace(0, 1, 6).reshape(2, 3)
    keys = jax.random.split(KEY, 2)
    found = jax.vmap(lambda p, key: jo.bernoulli(p, rng=key))(probabilities, keys)
    for row, p, key in zip(found, probabilities, keys, strict=True):
        assert row.tolist() == jo.bernoulli(p, rng=key).tolist()
    assert jax.grad(lambda mean: jo.random_normal(shape=(4,), mean=mean, rng=KEY).sum())(0.5) == 4


BAD = [
    (lambda: jo.random_normal(shape=(2, -1), seed=0), ArgumentError, r"random_normal: `shape` \(2, -1\) holds -1"),
    (lambda: jo.random_uniform(shape=(2,), dtype=np.int32, seed=0), DTypeError, "random_uniform: `dtype` is int32; it"),
    (lambda: jo.random_normal_like(np.zeros(2, int), seed=0), DTypeError, "`dtype` is int64; it must be a floating"),
    (lambda: jo.bernoulli(np.zeros(2, np.int32), seed=0), DTypeError, "bernoulli: `input` must be floating-point, got"),
    (lambda: jo.bernoulli(X, dtype=str, seed=0), DTypeError, "bernoulli: `dtype` is str.*; it must be real numbers"),
    (lambda: jo.multinomial(X[0], seed=0), ShapeError, r"multinomial: `input` of \(200,\) must be \(batch, classes\)"),
    (lambda: jo.multinomial(X[:, :0], seed=0), ShapeError, r"of \(100, 0\) must be .*, with at least one class"),
    (lambda: jo.multinomial(X, sample_size=0, seed=0), ArgumentError, "`sample_size` is 0; it must be at least 1"),
    (lambda: jo.multinomial(X, dtype=np.int8, seed=0), DTypeError, "multinomial: `dtype` is int8; it must be int32 or"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "match"), BAD, ids=[m for *_, m in BAD])
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
