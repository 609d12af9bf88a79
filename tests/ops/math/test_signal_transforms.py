"""Fourier transforms against NumPy's, the mel matrix against the standard's loop, and all against onnxruntime."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import at_opset, build, info, node, tensor
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads

import jaxops as jo
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(9)


def draw(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def pairs(values):
    return np.stack([values.real, values.imag], -1)


def numbers(x):
    x = x.astype(np.float64)
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def transformed(x, dft_length=None, axis=-2, inverse=0, onesided=0):
    """The sum of the text, as a product with its matrix."""
    values, axis = np.moveaxis(numbers(x), axis % x.ndim, -1), axis % x.ndim
    size = values.shape[-1]
    count = dft_length or (2 * (size - 1) if onesided and inverse else size)
    if onesided and inverse:
        found = np.fft.irfft(values, count)
        return np.moveaxis(found, -1, axis)[..., None]
    padded = np.zeros((*values.shape[:-1], count), complex)
    padded[..., : min(size, count)] = values[..., :count]
    at = np.arange(count)
    found = padded @ np.exp((2j if inverse else -2j) * np.pi * np.outer(at, at) / count) / (count if inverse else 1)
    return pairs(np.moveaxis(found[..., : count // 2 + 1] if onesided else found, -1, axis))


def close(found, expected, tolerance=2e-5):
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, atol=tolerance, rtol=tolerance)


def runtime(op, inputs, version, **attributes):
    """onnxruntime, with every input an initializer."""
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    given = [tensor(v, name) for v, name in zip(inputs, names, strict=True) if name]
    model = build(
        node(op, names, ["y"], **attributes), inputs=(), outputs=[info("y", None)], initializers=given,
        opsets=(("", version),),
    )  # fmt: skip
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})[0]


@pytest.mark.grid
@pytest.mark.parametrize("length", [None, 4, 9, 1])
@pytest.mark.parametrize("axis", [1, 2, -2])
def test_dft(axis, length):
    for last, inverse, onesided in ((1, 0, 0), (2, 0, 0), (2, 1, 0), (1, 1, 0), (1, 0, 1), (2, 1, 1)):
        x = draw(2, 6, 5, last)
        attributes = {"inverse": inverse, "onesided": onesided}
        expected = transformed(x, length, axis, inverse, onesided)
        close(jo.dft(x, length, axis, **attributes), expected)
        close(jax.jit(lambda x: jo.dft(x, length, axis, **attributes))(x), expected)  # noqa: B023
        given = [x, None if length is None else np.int64(length)]
        close(at_opset("DFT", 20, *given, np.int64(axis), **attributes)[0], expected)
        close(at_opset("DFT", 17, *given, axis=axis, **attributes)[0], expected)
        if not inverse and (length, axis) != (1, -2):
            close(runtime("DFT", [*given, np.int64(axis)], 20, **attributes), expected)


def test_the_default_axis():
    x = draw(2, 3, 4, 1)
    close(at_opset("DFT", 20, x)[0], transformed(x, axis=2))
    close(at_opset("DFT", 17, x)[0], transformed(x, axis=1))
    with pytest.raises(AssertionError):
        close(jo.dft(x, axis=1), transformed(x, axis=2))


@pytest.mark.optimized
def test_large_transforms():
    x = draw(3, 4096, 1)
    close(jax.jit(lambda x: jo.dft(x, onesided=1))(x), pairs(np.fft.rfft(x[..., 0].astype(np.float64))), 2e-4)
    window = np.hanning(400).astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(x[..., 0], 400, 1)[:, ::160] * window
    found = jax.jit(lambda x: jo.stft(x, 160, window))(x)
    close(found, pairs(np.fft.rfft(frames.astype(np.float64))), 2e-4)
    close(found, runtime("STFT", [x, np.int64(160), window], 17), 5e-3)  # it loses three digits at this length


@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(onesided):
    x, window = draw(2, 11, 1), draw(4)
    for step in (1, 3, 4, 20):
        frames = np.stack([x[:, s : s + 4, 0] for s in range(0, 8, step)], 1).astype(np.float64)
        fft = np.fft.rfft if onesided else np.fft.fft
        for given, factor in (((None, 4), 1), ((window, None), window), ((window, np.int64([4])), window)):
            found = jax.jit(lambda x: jo.stft(x, step, *given, onesided=onesided))(x)  # noqa: B023
            close(found, pairs(fft(frames * factor)))
    close(jo.stft(x, 1, onesided=onesided), pairs(fft(x[:, None, :, 0].astype(np.float64))))
    two = draw(2, 11, 2)
    frames = np.stack([numbers(two)[:, s : s + 4] for s in range(0, 8, 3)], 1)
    close(at_opset("STFT", 17, two, np.int64(3), window, onesided=0)[0], pairs(np.fft.fft(frames * window)))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_element_types(dtype, x64):
    x, tolerance = draw(2, 8, 1, dtype=dtype), {2: 2e-2, 8: 1e-12}[np.dtype(dtype).itemsize]
    tolerance *= 4 if dtype == jnp.bfloat16 else 1
    for found in (jo.dft(x), jo.stft(x, 8)[:, 0]):
        assert found.dtype == dtype
    close(jo.dft(x), transformed(x), tolerance)
    close(jo.stft(x, 8, onesided=0)[:, 0], transformed(x), tolerance)


def test_symbolic_sizes_vmap_and_gradients(x64):
    x, window = draw(2, 9, 1, dtype=np.float64), draw(4, dtype=np.float64)
    for fn, shape in ((lambda x: jo.dft(x, onesided=1), "b, 9, 1"), (lambda x: jo.stft(x, 2, window), "b, t, 1")):
        (spec,) = symbolic_args_specs([x], [shape], constraints=["t >= 4"] if "t" in shape else [])
        close(export(jax.jit(fn))(spec).call(x), np.asarray(fn(x)), 1e-12)
        close(jax.vmap(fn)(x[None]), np.asarray(fn(x))[None], 1e-12)
        check_grads(fn, (x,), order=1, modes=["rev"])
    back = draw(2, 5, 2, dtype=np.float64)
    check_grads(lambda x: jo.dft(x, inverse=1, onesided=1), (back,), order=1, modes=["rev"])


def mel(bands, length, rate, low, high):
    first, last = (2595 * np.log10(1 + f / 700) for f in (low, high))
    edges = first + np.arange(bands + 2) * (last - first) / (bands + 2)
    at = (((length + 1) * 700 * (10 ** (edges / 2595) - 1)) // rate).astype(int)
    found = np.zeros((length // 2 + 1, bands))
    for i in range(bands):
        a, b, c = at[i : i + 3]
        for j in range(a, b):
            found[j, i] = (j - a) / (b - a)
        for j in range(b, max(c, b + 1)):
            found[j, i] = (c - j) / (c - b) if c > b else 1
    return found


@pytest.mark.parametrize("given", [(8, 16, 8192, 0.0, 4096.0), (80, 512, 16000, 20.0, 7600.0), (3, 7, 10, 0.0, 2.0)])
def test_mel_weight_matrix(given):
    expected = mel(*given)
    arrays = [np.int64(v) for v in given[:3]] + [np.float32(v) for v in given[3:]]
    for found in (jo.mel_weight_matrix(*given), at_opset("MelWeightMatrix", 17, *arrays)[0]):
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float32
        close(found, expected, 1e-6)
    close(runtime("MelWeightMatrix", arrays, 17), expected, 1e-5)
    wide = jo.mel_weight_matrix(*given, output_datatype=np.int8)
    np.testing.assert_array_equal(wide, expected.astype(np.int8))


def test_a_wrong_mel_matrix_is_caught():
    with pytest.raises(AssertionError):
        close(jo.mel_weight_matrix(8, 16, 8192, 0.0, 4096.0), mel(8, 16, 8192, 0.0, 2048.0))


X, PAIRS, MEL = np.zeros((2, 6, 1), np.float32), np.zeros((2, 6, 2), np.float32), (8, 16, 8192, 0.0, 4096.0)
BAD = [
    (lambda: jo.dft(np.zeros(3, np.float32)), ShapeError, r"dft: `input` of \(3,\) must have at least 2 axes"),
    (lambda: jo.dft(np.zeros((2, 3), np.float32)), ShapeError, r"of \(2, 3\) must have .* 1 for real numbers or 2"),
    (lambda: jo.dft(X, axis=-1), AxisError, r"`axis` 2 is the last .*of \(2, 6, 1\), which holds"),
    (lambda: jo.dft(X, axis=3), AxisError, "`axis` is 3, but the operand has 3 axes"),
    (lambda: jo.dft(X, 0), ShapeError, "dft: a transform of 0 points; there must be at least 1"),
    (lambda: jo.dft(PAIRS, onesided=1), ArgumentError, r"onesided=1 and inverse=0 it takes a real input, "),
    (lambda: jo.dft(X, onesided=1, inverse=1), ArgumentError, r"inverse=1 it takes a complex input, \(…, 2\), got"),
    (lambda: jo.dft(X.astype(np.int32)), DTypeError, "dft: `input` must be floating-point, got int32"),
    (lambda: jax.jit(lambda n: jo.dft(X, n))(4), StaticError, "dft: `dft_length` must be known while tracing"),
    (lambda: jo.stft(X[0, :, 0], 1), ShapeError, r"stft: `signal` of \(6,\) must be \(batch, length, 1\)"),
    (lambda: jo.stft(PAIRS, 1), ArgumentError, r"`signal` of \(2, 6, 2\) is complex; that needs onesided=0"),
    (lambda: jo.stft(X, 0), ArgumentError, "stft: `frame_step` is 0; it must be at least 1"),
    (lambda: jo.stft(X, 1, X), ShapeError, r"stft: `window` of \(2, 6, 1\) must be \(length,\)"),
    (lambda: jo.stft(X, 1, X[0, :, 0], 4), ShapeError, r"`window` of \(6,\) must be \(4,\), as `frame_length` says"),
    (lambda: jo.stft(X, 1, None, 7), ShapeError, "stft: a frame of 7 samples is longer than the signal of 6"),
    (lambda: jo.mel_weight_matrix(0, *MEL[1:]), ArgumentError, "mel_weight_matrix: `num_mel_bins` is 0; it must be at"),
    (lambda: jo.mel_weight_matrix(*MEL[:4], [1.0, 2.0]), ShapeError, "`upper_edge_hertz` must be one number"),
    (lambda: jo.mel_weight_matrix(*MEL[:3], -1.0, 2.0), ArgumentError, "`lower_edge_hertz` is -1.0; it must be a freq"),
    (lambda: jo.mel_weight_matrix(*MEL, output_datatype=str), DTypeError, "`output_datatype` is .*; it must be a type"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "match"), BAD, ids=[m for *_, m in BAD])
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("length", ["", "t - 2", "t + 3", "2*t"])
@pytest.mark.parametrize(
    ("sizes", "inverse", "onesided"),
    [
        *itertools.product(["2, t, 3, 1", "2, t, 3, 2"], [0, 1], [0]),
        ("2, t, 3, 1", 0, 1),
        ("2, t, 3, 2", 1, 1),
    ],
)
def test_a_transform_of_a_symbolic_size(sizes, length, inverse, onesided, x64):

    def fn(x):
        (t,) = [d for d in x.shape if not isinstance(d, int)] or [x.shape[1]]
        return jo.dft(x, eval(length, {"t": t}) if length else None, 1, inverse=inverse, onesided=onesided)

    (spec,) = symbolic_args_specs(
        [draw(2, 6, 3, int(sizes[-1]), dtype=np.float64)], [sizes], constraints=["t >= 3", "t <= 8000"]
    )
    program = export(jax.jit(fn))(spec)
    for t in (6, 9, 50):
        x = draw(2, t, *spec.shape[2:], dtype=np.float64)
        got, want = program.call(x), fn(x)
        assert got.shape == want.shape
        close(got, np.asarray(want), 1e-12)


def test_a_long_transform_of_a_symbolic_size_keeps_float32():
    (spec,) = symbolic_args_specs([X[:1]], ["1, t, 1"], constraints=["t <= 4096"])
    x = draw(1, 4093, 1)
    got = export(jax.jit(lambda x: jo.dft(x, onesided=1)))(spec).call(x)
    want = pairs(np.fft.rfft(np.float64(x[..., 0])))
    assert np.abs(got - want).max() < 4e-6 * np.abs(want).max()


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (jo.dft, "dft: a transform of the symbolic size t may have at most 16384 points\n.*hint .*16384 >= t"),
        (lambda x: jo.dft(x, inverse=1, onesided=1), r"dft: a transform of 2\*t - 2 points; there must be at least 1"),
        (
            lambda x: jo.stft(x, 2, onesided=0),
            "stft: a frame has the symbolic size t; it needs a size that is a number",
        ),
        (lambda x: jo.dft(x, x.shape[1] + 2**15), r"dft: .* size t \+ 32768 may have at most 16384 points"),
    ],
)
def test_symbolic_sizes_that_are_refused(fn, match):
    (spec,) = symbolic_args_specs([PAIRS], ["2, t, 2"])
    with pytest.raises(ShapeError, match=match):
        export(jax.jit(fn))(spec)
