"""Window functions against their formulas written out and onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from peer import runtime

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError

FACTORS = {"Hann": (0.5, 0.5, 0), "Hamming": (25 / 46, 21 / 46, 0), "Blackman": (0.42, 0.5, 0.08)}
WINDOWS = {"Hann": jo.hann_window, "Hamming": jo.hamming_window, "Blackman": jo.blackman_window}


def written_out(name, size, periodic):
    period = size if periodic else size - 1
    a, b, c = FACTORS[name]
    return np.array([a - b * np.cos(2 * np.pi * k / period) + c * np.cos(4 * np.pi * k / period) for k in range(size)])


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("name", FACTORS)
def test_windows(name, periodic):
    for size in (0, 2, 5, 16, 999):
        expected = written_out(name, size, periodic)
        number = np.int32(size) if size == 5 else np.int64(size)
        for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-12), (np.float16, 1e-3), (jnp.bfloat16, 5e-3)):
            found = WINDOWS[name](number, periodic=periodic, output_datatype=dtype)
            assert isinstance(found, np.ndarray)
            assert (found.dtype, found.shape) == (dtype, (size,))
            np.testing.assert_allclose(found.astype(np.float64), expected, atol=tolerance)
        for at in (1, 11, 6, 2):
            (peer,) = runtime(f"{name}Window", [number], 17, periodic=periodic, output_datatype=at)
            (found,) = at_opset(f"{name}Window", 17, number, periodic=periodic, output_datatype=at)
            assert found.dtype == peer.dtype
            np.testing.assert_allclose(found, peer, atol=2e-6)
    # One factor that is the same from both ends: 0 / 0 in the standard's body and in onnxruntime.
    assert np.isnan(WINDOWS[name](1, periodic=0)).all()
    assert np.isnan(runtime(f"{name}Window", [np.int64(1)], 17, periodic=0)[0]).all()
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(WINDOWS[name](5, periodic=periodic), written_out(name, 5, not periodic), atol=1e-3)


def test_a_window_of_a_shape_is_static_under_jit():
    x = jnp.ones((2, 6))
    found = jax.jit(lambda x: x * jo.hann_window(jo.gather(jo.shape(x), 1))[None])(x)
    np.testing.assert_allclose(found[1], written_out("Hann", 6, 1), atol=1e-6)


BAD = [
    (lambda: jo.hann_window(-1), ArgumentError, "hann_window: `size` is -1; it must be at least 0"),
    (lambda: jo.hann_window((3, 4)), ShapeError, "hann_window: `size` must hold one integer"),
    (lambda: jo.hamming_window(2.5), DTypeError, "hamming_window: `size` must be integers, got float64"),
    (lambda: jo.hann_window(3, periodic=2), ArgumentError, "hann_window: `periodic` is 2; it must be 0 or 1"),
    (
        lambda: jo.blackman_window(3, output_datatype=bool),
        DTypeError,
        "`output_datatype` is bool; it must be a type of",
    ),
    (lambda: jax.jit(jo.hann_window)(3), StaticError, "hann_window: `size` must be known while tracing"),
]


@pytest.mark.parametrize(("call", "error", "match"), BAD, ids=[m for *_, m in BAD])
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
