"""Derivatives where there is none: at kinks, ties and zeros they are those of PyTorch's operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxops as jo

INF, NAN = np.inf, np.nan
TO = np.array([0, 0, 1])


def case(name, fn, *pairs):
    """The gradient of the sum of `fn` by each operand: (operand, gradient) pairs, the numbers of PyTorch 2."""
    return pytest.param(fn, *zip(*pairs, strict=True), id=name)


def scatter(how):
    return lambda x, y: jo.scatter_elements(x, TO, y, reduction=how)


CASES = [
    case("abs", jo.abs, ([0, -1], [0, -1])),
    case("sign", jo.sign, ([0, 2], [0, 0])),
    case("relu", jo.relu, ([0, 1], [0, 1])),
    case("leaky relu", lambda x: jo.leaky_relu(x, alpha=0.1), ([0, 1], [0.1, 1])),
    case("prelu", jo.prelu, ([0, 1, -1], [0.25, 1, 0.25]), ([0.25], [-1])),
    case("hard sigmoid", lambda x: jo.hard_sigmoid(x, alpha=1 / 6), ([-3, 3, 0], [0, 0, 1 / 6])),
    case("sqrt", jo.sqrt, ([0, 4], [INF, 0.25])),
    case("log", jo.log, ([0, 2], [INF, 0.5])),
    case("asin", jo.asin, ([1, -1], [INF, INF])),
    case("round", jo.round, ([1.5], [0])),
    case("mod", jo.mod, ([6, 5, -5], [1, 1, 1]), ([3, 3, 3], [-2, -1, 2])),
    case("pow 2", lambda x: jo.pow(x, np.float32(2)), ([0, 2, -1], [0, 4, -2])),
    case("pow 0", lambda x: jo.pow(x, np.float32(0)), ([0, 2, -1], [0, 0, 0])),
    case("pow 0.5", lambda x: jo.pow(x, np.float32(0.5)), ([0, 2], [INF, 0.3535534])),
    case("traced pow", jo.pow, ([0, 0, 0, 0], [0, 1, 0, INF]), ([0, 1, 2, 0.5], [0, 0, 0, 0])),
    case("max", lambda x, y: jo.max([x, y]), ([1, 2], [0.5, 1]), ([1, 1], [0.5, 0])),
    case("min", lambda x, y: jo.min([x, y]), ([1, 2], [0.5, 0]), ([1, 1], [0.5, 1])),
    case("amax", jo.reduce_max, ([2, 2, 1], [0.5, 0.5, 0])),
    case("max pool", lambda x: jo.max_pool(x, kernel_shape=(2,)), ([[[1, 1]]], [[[1, 0]]])),
    case("adaptive max pool", jo.global_max_pool, ([[[3, 1, 2, 3]]], [[[1, 0, 0, 0]]])),
    case("relu6", lambda x: jo.clip(x, 0.0, 6.0), ([0, 6, -1, 3], [0, 0, 0, 1])),
    case("clamp", jo.clip, ([0, 6, -1, 3, 7], [1, 1, 0, 1, 0]), (0, 1), (6, 1)),
    case("clamp, min above max", jo.clip, ([0, 6, 4.5], [0, 0, 0]), (5, 0), (4, 3)),
    case("clamp min", jo.clip, ([0, 6, -1], [1, 1, 0]), (0, 1)),
    case("norm", lambda x: jo.reduce_l2(x, (1,)), ([[0, 0], [3, 4]], [[0, 0], [0.6, 0.8]])),
    case("norm of order 1", jo.reduce_l1, ([0, -2], [0, -1])),
    case("lp pool", lambda x: jo.lp_pool(x, kernel_shape=(2,)), ([[[0, 0]]], [[[0, 0]]])),
    case("lp pool of order 1", lambda x: jo.lp_pool(x, kernel_shape=(2,), p=1), ([[[0, 2]]], [[[0, 1]]])),
    case("mean variance", lambda x: jo.mean_variance_normalization(x, axes=(0,)), ([2, 2], [0, 0])),
    case("prod", jo.reduce_prod, ([0, 2, 3], [6, 0, 0])),
    case("cumprod", lambda x: jo.cumprod(x, 0), ([0, 2, 3], [9, 0, 0])),
    case("topk", lambda x: jo.top_k(x, np.array([2]))[0], ([1, 1, 1], [1, 1, 0])),
    case("gather", lambda x: jo.gather(x, np.array([1, 1, 0])), ([1, 2, 3], [1, 2, 0])),
    case("logsumexp", lambda x: jo.reduce_log_sum_exp(x, (0,)), ([0, -INF], [1, 0])),
    case("softmax", lambda x: jo.softmax(x)[0], ([0, -INF], [0, 0])),
    case("scatter mul", scatter("mul"), ([2, 1, 7], [4, 1, 1]), ([2, 2, 1], [4, 4, 1])),
    case("scatter mul by zero", scatter("mul"), ([2, 1, 7], [0, 0, 1]), ([0, 2, 0], [4, 0, 1])),
    case("scatter amax", scatter("max"), ([2, 1, 7], [1 / 3, 0.5, 1]), ([2, 2, 1], [1 / 3, 1 / 3, 0.5])),
    case("attention to nothing", lambda q: jo.attention(q, q, q, np.array([[False]])), ([[[[1, 2]]]], [[[[0, 0]]]])),
    case(
        "ignored label",
        lambda x: jo.negative_log_likelihood_loss(x, jnp.array([1, 0]), ignore_index=1),
        ([[1, 2], [3, 4]], [[0, 0], [-1, 0]]),
    ),
]


@pytest.mark.parametrize(("fn", "operands", "expected"), CASES)
def test_as_pytorch(fn, operands, expected):
    traced = [jnp.asarray(x, jnp.float32) for x in operands]
    found = jax.jit(jax.grad(lambda *xs: jnp.sum(fn(*xs)), tuple(range(len(traced)))))(*traced)
    for gradient, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(gradient, np.float32(wanted), rtol=1e-6, atol=1e-7)


def test_a_zero_remainder_has_the_sign_of_the_divisor():
    found = jax.jit(jo.mod)(jnp.array([6.0, 6.0]), jnp.array([3.0, -3.0]))
    assert np.signbit(found).tolist() == [False, True]
