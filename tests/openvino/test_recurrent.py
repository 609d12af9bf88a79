"""Recurrent cells and sequences, beside OpenVINO and the specification."""

import numpy as np
import pytest
from openvino_files import agrees, gives, load, outputs_of, single

RANDOM = np.random.RandomState(0)
DIRECTIONS = ["forward", "reverse", "bidirectional"]
LENGTHS = (np.array([4, 2], "i4"),)


def f(*sizes):
    return RANDOM.randn(*sizes).astype("f4")


def c(*sizes):
    return (f(*sizes),)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sequences(direction):
    d = 2 if direction == "bidirectional" else 1
    common = {"hidden_size": 3, "direction": direction}
    x, state = f(2, 4, 5), f(2, d, 3)
    usual = {**common, "activations": ["sigmoid", "tanh", "tanh"]}
    agrees("LSTMSequence", 5, [x, state, state, LENGTHS, c(d, 12, 5), c(d, 12, 3), c(d, 12)], usual, 3)
    for before, biases in ((True, 12), (False, 9)):
        weights = c(d, 9, 5), c(d, 9, 3), c(d, biases)
        options = {**common, "activations": ["sigmoid", "tanh"], "linear_before_reset": before}
        agrees("GRUSequence", 5, [x, state, LENGTHS, *weights], options, 2)
    relu = {**common, "activations": ["relu"]}
    agrees("RNNSequence", 5, [x, state, LENGTHS, c(d, 3, 5), c(d, 3, 3), c(d, 3)], relu, 2)


def test_cells():
    x, h = f(2, 5), f(2, 3)
    lstm = [x, h, 5 * h, c(12, 5), c(12, 3), c(12)]
    agrees("LSTMCell", 4, lstm, {"hidden_size": 3}, 2)
    agrees("LSTMCell", 1, [*lstm, (np.zeros(9, "f4"),)], {"hidden_size": 3}, 2)
    for before, biases in ((True, 12), (False, 9)):
        agrees("GRUCell", 3, [x, h, c(9, 5), c(9, 3), c(biases)], {"hidden_size": 3, "linear_before_reset": before})
    agrees("RNNCell", 1, [x, h, c(3, 5), c(3, 3), c(3)], {"hidden_size": 3, "clip": 0.5})


def test_clip_bounds_the_gates_and_not_the_cell():
    agrees(
        "LSTMCell", 4, [f(2, 5), f(2, 3), 5 * f(2, 3), c(12, 5), c(12, 3), c(12)], {"hidden_size": 3, "clip": 0.7}, 2
    )


@pytest.mark.parametrize("order", ["icof", "ifco", "ifoc", "iofc"])
def test_the_order_of_gates_of_version_1(order):
    """By the text; the plugin takes every order for fico."""
    x, h, cell, w, r, b = f(2, 5), f(2, 3), f(2, 3), f(4, 3, 5), f(4, 3, 3), f(4, 3)
    usual, inputs = single(
        "LSTMCell", 4, [x, h, cell, *((v.reshape(12, *v.shape[2:]),) for v in (w, r, b))], {"hidden_size": 3}, 2
    )
    expected = outputs_of(load(usual.xml, weights=usual.bin), inputs)
    other = [(v[["fico".index(gate) for gate in order]].reshape(12, *v.shape[2:]),) for v in (w, r, b)]
    gives("LSTMCell", 1, [x, h, cell, *other], {"hidden_size": 3, "weights_format": order}, *expected)


def test_coefficients_belong_to_the_activations_by_position():
    """The plugin knows neither of these activations."""
    x, h, w, r, b = (np.full(s, 0.5, "f4") for s in ((1, 1), (1, 1), (3, 1), (3, 1), (3,)))
    z = min(max(0.3 * 1 + 0.4, 0), 1)
    new = 0.5 + z * 0.5 * 0.5 + 0.5 * 0.5
    attributes = {
        "hidden_size": 1,
        "activations": "hardsigmoid,elu",
        "activations_alpha": "0.3,0.7",
        "activations_beta": "0.4,0",
    }
    gives("GRUCell", 3, [x, h, (w,), (r,), (b,)], attributes, np.array([[(1 - z) * new + z * 0.5]], "f4"))
