"""ISTFT against a loop in NumPy and against OpenVINO."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from openvino_peer import agree

from jaxops.errors import ArgumentError, ShapeError, StaticError
from jaxops.openvino import ops

RNG = np.random.default_rng(3)
WINDOW = np.hanning(9)[1:-1].astype(np.float32)


@pytest.mark.parametrize("length", [None, 20, 64])
@pytest.mark.parametrize(("center", "normalized"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize(("size", "step"), [(11, 3), (8, 4)])
def test_istft(size, step, center, normalized, length):
    data = RNG.normal(size=(2, size // 2 + 1, 16, 2)).astype(np.float32)
    window = np.zeros(size)
    first = (size - 7) // 2
    window[first : first + 7] = WINDOW
    total, weight = np.zeros((2, 15 * step + size)), np.zeros(15 * step + size)
    for t in range(16):
        frame = np.fft.irfft(data[:, :, t, 0] + 1j * data[:, :, t, 1], size)
        total[:, t * step : t * step + size] += frame * window
        weight[t * step : t * step + size] += window**2
    signal = np.divide(total, weight, out=np.zeros_like(total), where=weight != 0)
    signal = signal * np.sqrt(size) if normalized else signal
    count = length if length is not None else 15 * step + (0 if center else size)
    signal = signal[:, size // 2 :] if center else signal
    expected = np.zeros((2, count))
    expected[:, : signal.shape[1]] = signal[:, :count]
    how = {"center": center, "normalized": normalized}
    y = jax.jit(lambda *v: ops.istft(*v, size, step, length, **how))(data, WINDOW)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ops.istft(data[0], WINDOW, size, step, length, **how), y[0], atol=1e-5)
    if not (center and size % 2 and length is None):  # the plugin gives an element more than the text says
        inputs = [data, WINDOW, np.array(size), np.array(step), *([] if length is None else [np.array(length)])]
        agree(16, "ISTFT", inputs, how, y, atol=1e-4, constants=range(2, len(inputs)))


def test_gradients_and_symbolic_sizes():
    data = RNG.normal(size=(2, 5, 6, 2)).astype(np.float32)
    fn = jax.jit(lambda d: ops.istft(d, WINDOW, 8, 4, center=True, normalized=False))
    check_grads(fn, (jnp.asarray(data),), 1, ["rev"], 1e-2, 1e-2)
    specs = symbolic_args_specs((data,), ("n, 5, t, 2",))
    np.testing.assert_allclose(export(fn)(*specs).call(data), fn(data), atol=1e-5)


DATA = np.zeros((6, 4, 2), np.float32)
HOW = {"center": False, "normalized": False}


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, r"`data` of \(6, 4, 2\) must be \(5, T, 2\)", lambda: ops.istft(DATA, WINDOW, 8, 4, **HOW)),
        (ShapeError, "is longer than `frame_size`, 10", lambda: ops.istft(DATA, np.ones(11, np.float32), 10, 4, **HOW)),
        (ArgumentError, "has no frame", lambda: ops.istft(DATA[:, :0], WINDOW, 11, 4, **HOW)),
        (ArgumentError, "`frame_step` is 0", lambda: ops.istft(DATA, WINDOW, 11, 0, **HOW)),
        (StaticError, "`frame_size` must be", lambda: jax.jit(lambda n: ops.istft(DATA, WINDOW, n, 4, **HOW))(11)),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
