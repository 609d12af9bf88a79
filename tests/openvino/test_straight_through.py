"""`load(path, straight_through=True)`: gradients through FakeQuantize and FakeConvert."""

import pickle
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from openvino_files import File, single

from jaxops.errors import UnsupportedError
from jaxops.openvino import load

NNCF = Path(__file__).parents[1] / "models/nncf"
RNG = np.random.default_rng(3)
X = np.concatenate([RNG.normal(size=(3, 40)), [[-9, 9, np.inf, -np.inf, np.nan] * 8]]).astype(np.float32)
LIMITS = [np.float32(v) for v in (-1.5, 1.25, -1.0, 2.0)]
COLUMN = [np.linspace(v, v / 2, 4, dtype=np.float32)[:, None] for v in (-1.5, 1.25, -1.0, 2.0)]
ATTRIBUTES = {"levels": 16, "auto_broadcast": "numpy"}


def loaded(op_type, opset, operands, attributes, **options):
    file, inputs = single(op_type, opset, operands, attributes)
    return load(file.xml, weights=file.bin, **options), inputs


def nearest(x):
    return x + lax.stop_gradient(jnp.round(x) - x)


def quantized(x, low, high, out_low, out_high):
    """FakeQuantize by its formula; elements out of range do not enter the rounding."""
    above, below = x > jnp.maximum(low, high), x <= jnp.minimum(low, high)
    place = nearest((jnp.where(above | below, low, x) - low) / (high - low) * 15) / 15
    return jnp.where(below, out_low, jnp.where(above, out_high, place * (out_high - out_low) + out_low))


@pytest.mark.parametrize("limits", [LIMITS, COLUMN, [LIMITS[1], LIMITS[0], *LIMITS[2:]]], ids=["one", "rows", "turned"])
def test_fake_quantize(limits):
    plain, inputs = loaded("FakeQuantize", 1, [X, *limits], ATTRIBUTES)
    net, _ = loaded("FakeQuantize", 1, [X, *limits], ATTRIBUTES, straight_through=True)
    np.testing.assert_array_equal(net(*inputs), plain(*inputs))
    weight = RNG.normal(size=X.shape).astype(np.float32)
    everything = tuple(range(5))
    inputs = [np.nan_to_num(inputs[0], nan=0.1, posinf=np.inf, neginf=-np.inf), *inputs[1:]]
    expected = jax.grad(lambda *v: (weight * quantized(*v)).sum(), everything)(*inputs)
    for through in (net.apply, jax.jit(net.apply)):
        found = jax.grad(lambda *v, run=through: (weight * run({}, *v)).sum(), everything)(*inputs)
        chex.assert_trees_all_close(found, expected, rtol=2e-4, atol=2e-4)
    x = inputs[0]
    inside = (x > np.minimum(*inputs[1:3])) & (x <= np.maximum(*inputs[1:3]))
    assert 20 < inside.sum() < x.size
    slope = np.broadcast_to((inputs[4] - inputs[3]) / (inputs[2] - inputs[1]), x.shape)
    np.testing.assert_allclose(found[0], np.where(inside, weight * slope, 0), rtol=1e-5)
    flat = jax.grad(lambda x: (weight * plain.apply({}, x, *inputs[1:])).sum())(x)
    assert not np.any(flat)


def test_infinite_elements_leave_gradients_of_limits_finite():
    x = np.array([[np.inf, -np.inf, 0.3]], np.float32)
    net, inputs = loaded("FakeQuantize", 1, [x, *LIMITS], ATTRIBUTES, straight_through=True)
    found = jax.grad(lambda *v: net.apply({}, *v).sum(), (0, 1, 2, 3, 4))(*inputs)
    assert all(np.isfinite(g).all() for g in found)
    assert found[0].tolist() == [[0, 0, pytest.approx(3 / 2.75)]]
    assert found[4].tolist() == pytest.approx(1 + 10 / 15)  # the place of 0.3 is 10 of 15


@pytest.mark.parametrize("kind", ["f8e4m3", "f8e5m2"])
def test_fake_convert(kind):
    x = np.array([[0.3, -7.7, 1e3, np.inf, -1e6]], np.float32)
    operands = [x, np.float32(100), np.float32(2)]
    plain, inputs = loaded("FakeConvert", 13, operands, {"destination_type": kind})
    net, _ = loaded("FakeConvert", 13, operands, {"destination_type": kind}, straight_through=True)
    np.testing.assert_array_equal(net(*inputs), plain(*inputs))
    slopes, of_scale, of_shift = jax.grad(lambda *v: net.apply({}, *v).sum(), (0, 1, 2))(*inputs)
    most = {"f8e4m3": 448, "f8e5m2": 57344}[kind]
    inside = np.abs(x * 100 - 2) < most
    assert 0 < inside.sum() < 5
    np.testing.assert_allclose(slopes, inside, rtol=1e-6)
    # Beyond the range y is (±most + shift) / scale; inside, the rounding error over the scale.
    np.testing.assert_allclose(of_shift, (~inside).sum() / 100, rtol=1e-5)
    y = np.asarray(net(*inputs), np.float64)
    np.testing.assert_allclose(of_scale, (np.where(inside, x, 0) - y).sum() / 100, rtol=1e-3)


def test_a_network_of_nncf_is_fine_tuned():
    images = RNG.random((2, 3, 8, 8), np.float32)
    plain, net = load(NNCF / "quantized.xml"), load(NNCF / "quantized.xml", straight_through=True)
    net = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(net(images), plain(images))
    gradients = [
        jax.jit(jax.grad(lambda p, x, m=m: (m.apply(p, x) ** 2).sum(), 1))(m.params, images) for m in (plain, net)
    ]
    assert not np.any(gradients[0])
    step = 1e-2 * gradients[1] / np.abs(gradients[1]).max()
    loss = lambda x: float((np.asarray(net(x), np.float64) ** 2).sum())  # noqa: E731
    assert loss(images - 5 * step) < loss(images) < loss(images + 5 * step)
    of_params = jax.grad(lambda p: (net.apply(p, images) ** 2).sum())(net.params)
    assert all(np.any(g) for name, g in of_params.items() if net.trainable[name] and np.ndim(g))


def test_a_package_is_refused(tmp_path):
    net, _ = loaded("FakeQuantize", 1, [X, *LIMITS], ATTRIBUTES, straight_through=True)
    with pytest.raises(UnsupportedError, match="has a straight-through derivative, which a package cannot have"):
        net.to_python(tmp_path / "net")


def test_static_operands_stay_static():
    file = File()
    limits = [file.constant(v) for v in LIMITS]
    y = file.layer("FakeQuantize", 1, [file.constant(np.float32(0.3)), *limits], ATTRIBUTES)
    file.result(file.layer("Add", 1, [file.parameter([2]), y], {"auto_broadcast": "numpy"}))
    plain, net = (load(file.xml, weights=file.bin, straight_through=through) for through in (False, True))
    np.testing.assert_array_equal(net(np.zeros(2, "f4")), plain(np.zeros(2, "f4")))
