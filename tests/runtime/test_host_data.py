"""What is kept between the pieces of a model that is cut, and between its calls."""

import numpy as np
from graphs import model

from jaxops.onnx import load
from jaxops.runtime import host_data

RNG = np.random.default_rng(0)


def chain(cuts):
    """Selects, as often as that, the numbers above -1, which are all."""
    steps = "".join(
        f"c{k} = Greater(h{k}, low) n{k} = NonZero(c{k}) i{k} = Squeeze(n{k}, zero) g{k} = Gather(h{k}, i{k})"
        f" t{k} = Tanh(g{k}) h{k + 1} = Mul(t{k}, t{k}) "
        for k in range(cuts)
    )
    return model(
        f"main (float[N] h0) => (float[M] h{cuts}) {{ zero = Constant<value_ints = [0]>() {steps} }}",
        initializers={"low": np.float32(-1)},
    )


def test_values_between_pieces_stay_on_the_host(monkeypatch):
    """Only the output of a model that is cut four times becomes a JAX array, once the sizes have differed."""
    net, made = load(chain(4)), []
    inputs = [RNG.uniform(0.5, 1, size=n).astype(np.float32) for n in (5, 9, 12)]
    for x in (*inputs, *inputs):
        net(x)
    assert len(net.cuts) == 4
    as_traced = host_data.as_traced
    monkeypatch.setattr(host_data, "as_traced", lambda x: made.append(x.shape) or as_traced(x))
    for x in inputs:
        expected = x
        for _ in range(4):
            expected = np.tanh(expected) ** 2
        np.testing.assert_allclose(net(x), expected, 1e-4)
    assert made == [(5,), (9,), (12,)]


def test_the_last_plans_are_kept(monkeypatch):
    net = load(chain(1))
    plans = net._function.runner._rounding._plans
    monkeypatch.setattr(plans, "_most", 3)
    for n in (1, 2, 5, 4, 6, 5):
        x = np.full(n, 0.5, np.float32)
        np.testing.assert_allclose(net(x), np.tanh(x) ** 2, 1e-6)
    assert [key[1][0][0] for key in plans] == [4, 6, 5]
