"""Padding, tiling, blocks, triangles: values from NumPy, several ways to run, errors."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_shape

from jaxops import ops
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, SizeError, StaticError
from jaxops.onnx import opset

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGE = np.arange(2 * 8 * 4 * 6, dtype=np.float32).reshape(2, 8, 4, 6)
WIDTHS = ((1, 0), (0, 2), (3, 1))
PADS = (1, 0, 3, 0, 2, 1)


def pads(mode: str, **more: Any) -> np.ndarray:
    return np.pad(X, WIDTHS, mode=mode, **more)  # pyright: ignore[reportArgumentType, reportCallIssue]


def there_and_back(x: Any, mode: str) -> Any:
    return ops.depth_to_space(ops.space_to_depth(x, blocksize=2, mode=mode), blocksize=2, mode=mode)


REVERSED = X.copy()
REVERSED[0, :2], REVERSED[1, :3] = X[0, 1::-1], X[1, ::-1]
SIX = IMAGE.reshape(2, 2, 2, 2, 4, 6)
CASES: list[tuple[str, Callable[[Any], Any], np.ndarray, np.ndarray]] = [
    ("pad/constant", lambda x: ops.pad(x, PADS, 7.0), X, pads("constant", constant_values=7)),
    ("pad/default", lambda x: ops.pad(x, PADS), X, pads("constant")),
    ("pad/edge", lambda x: ops.pad(x, PADS, mode="edge"), X, pads("edge")),
    ("pad/wrap", lambda x: ops.pad(x, PADS, mode="wrap"), X, pads("wrap")),
    ("pad/symmetric", lambda x: ops.pad(x, PADS, mode="symmetric"), X, pads("symmetric")),
    (
        "pad/reflect",
        lambda x: ops.pad(x, (0, 2, 3, 1, 1, 2), mode="reflect"),
        X,
        np.pad(X, ((0, 1), (2, 1), (3, 2)), "reflect"),
    ),
    (
        "pad/reflect far",
        lambda x: ops.pad(x, (5, 7), axes=(1,), mode="reflect"),
        X,
        np.pad(X, ((0, 0), (5, 7), (0, 0)), "reflect"),
    ),
    (
        "pad/wrap far",
        lambda x: ops.pad(x, (5, 7), axes=(-2,), mode="wrap"),
        X,
        np.pad(X, ((0, 0), (5, 7), (0, 0)), "wrap"),
    ),
    ("pad/one element", lambda x: ops.pad(x, (3, 1), axes=(0,), mode="reflect"), X[:1], X[[0] * 5]),
    ("pad/negative", lambda x: ops.pad(x, (-1, 2), axes=(1,)), X, np.pad(X[:, 1:], ((0, 0), (0, 2), (0, 0)))),
    ("pad/negative edge", lambda x: ops.pad(x, (1, -2), axes=(1,), mode="edge"), X, X[:, [0, 0]]),
    ("pad/nothing", lambda x: ops.pad(x, (0,) * 6, mode="edge"), X, X),
    ("pad/empty", lambda x: ops.pad(x, (1, 0), axes=(1,)), X[:, :0], np.zeros((2, 1, 4))),
    ("pad/scalar", lambda x: ops.pad(x, ()), X[0, 0, 1], X[0, 0, 1]),
    ("tile", lambda x: ops.tile(x, (2, 1, 3)), X, np.tile(X, (2, 1, 3))),
    ("tile/none", lambda x: ops.tile(x, (1, 0, 1)), X, X[:, :0]),
    (
        "depth_to_space/dcr",
        lambda x: ops.depth_to_space(x, blocksize=2),
        IMAGE,
        SIX.transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 8, 12),
    ),
    (
        "depth_to_space/crd",
        lambda x: ops.depth_to_space(x, blocksize=2, mode="CRD"),
        IMAGE,
        SIX.transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 8, 12),
    ),
    *((f"space_to_depth/{mode}", lambda x, m=mode: there_and_back(x, m), IMAGE, IMAGE) for mode in ("DCR", "CRD")),
    ("trilu/upper", lambda x: ops.trilu(x, 1), X, np.triu(X, 1)),
    ("trilu/lower", lambda x: ops.trilu(x, np.int64([-1]), upper=0), X, np.tril(X, -1)),
    ("trilu/far", lambda x: ops.trilu(x, np.int64(2**62), upper=0), X, X),
    (
        "reverse/batch first",
        lambda x: ops.reverse_sequence(x, np.array([2, 3]), batch_axis=0, time_axis=1),
        X,
        REVERSED,
    ),
    (
        "reverse/time first",
        lambda x: ops.reverse_sequence(x, jnp.array([2, 3])),
        X.transpose(1, 0, 2),
        REVERSED.transpose(1, 0, 2),
    ),
    ("reverse/none", lambda x: ops.reverse_sequence(x, np.array([0, 1]), batch_axis=0, time_axis=1), X, X),
    ("center/crop", lambda x: ops.center_crop_pad(x, (1, 1), axes=(1, 2)), X, X[:, 1:2, 1:2]),
    ("center/pad", lambda x: ops.center_crop_pad(x, (2, 6, 4)), X, np.pad(X, ((0, 0), (1, 2), (0, 0)))),
]


@pytest.mark.grid
@pytest.mark.parametrize("run", ["static", "eager", "jit", "vmap"])
@pytest.mark.parametrize(("fn", "x", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_value(fn: Callable[[Any], Any], x: np.ndarray, expected: np.ndarray, run: str) -> None:
    x = np.asarray(x)
    runs = {
        "static": lambda: fn(x),
        "eager": lambda: fn(jnp.asarray(x)),
        "jit": lambda: jax.jit(fn)(x),
        "vmap": lambda: jax.vmap(fn)(np.stack([x, x]))[1],
    }
    found = runs[run]()
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_a_wrong_operator_is_caught() -> None:
    with pytest.raises(AssertionError):
        test_value(lambda x: ops.tile(x, (2, 1, 1)), X, np.tile(X, (1, 2, 1)), "jit")


STATIC_CASES = ["pad/constant", "pad/edge", "tile", "depth_to_space/dcr", "trilu/upper", "center/pad"]


@pytest.mark.parametrize("name", STATIC_CASES)
def test_static_stays_static(name: str) -> None:
    fn, x = next(c[1:3] for c in CASES if c[0] == name)
    assert isinstance(fn(x), np.ndarray)


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap", "reflect", "symmetric"])
def test_symbolic_pad(mode: str) -> None:
    fn = jax.jit(lambda x: ops.pad(x, (0, 3, 1, 4), mode=mode))
    spec = jax.ShapeDtypeStruct(symbolic_shape("b, n"), np.float32)
    run = export(fn)(spec)
    for n in (1, 2, 4, 7):
        x = X.reshape(-1)[: 2 * n].reshape(2, n)
        np.testing.assert_array_equal(run.call(x), np.pad(x, ((0, 1), (3, 4)), mode=mode))  # pyright: ignore


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: ops.tile(x, (2, 3, 1, 1)), "b, 8, h, 2"),
        (lambda x: ops.depth_to_space(x, blocksize=2), "b, 8, h, 2"),
        (lambda x: ops.space_to_depth(x, blocksize=2), "b, 8, 2*h, 2"),
        (lambda x: ops.trilu(x), "b, 8, h, 2"),
        (lambda x: ops.reverse_sequence(x, jnp.ones(8, jnp.int32)), "h, 8, b, 2"),
    ],
)
def test_symbolic_sizes(fn: Callable[[Any], Any], shape: str) -> None:
    spec = jax.ShapeDtypeStruct(symbolic_shape(shape), np.float32)
    x = np.arange(3 * 8 * 4 * 2, dtype=np.float32).reshape(4 if shape.startswith("h") else 3, 8, -1, 2)
    np.testing.assert_array_equal(export(jax.jit(fn))(spec).call(x), fn(x))


def test_a_pad_of_symbolic_width() -> None:
    spec = jax.ShapeDtypeStruct(symbolic_shape("n"), np.float32)
    fn = export(jax.jit(lambda x: ops.pad(x, np.array([0, x.shape[0]], object))))(spec)
    assert fn.call(np.float32([1, 2])).tolist() == [1, 2, 0, 0]


def test_strings_and_booleans() -> None:
    words = np.array(["a", "b"], dtype=object)
    assert ops.pad(words, (1, 1)).tolist() == ["", "a", "b", ""]
    assert ops.pad(words, (0, 1), np.array("z", object)).tolist() == ["a", "b", "z"]
    assert ops.tile(words, (2,)).tolist() == ["a", "b", "a", "b"]
    assert ops.pad(jnp.array([True]), (1, 0)).tolist() == [False, True]


def test_gradients() -> None:
    grad = jax.grad(lambda x: ops.pad(x, (2, 2), mode="reflect").sum())(jnp.arange(3.0))
    assert grad.tolist() == [2, 3, 2]
    assert jax.grad(lambda x: ops.trilu(x).sum())(jnp.ones((2, 2))).tolist() == [[1, 1], [0, 1]]


def test_a_traced_diagonal() -> None:
    for k in (-1, 0, 2):
        np.testing.assert_array_equal(jax.jit(ops.trilu)(X, k), np.triu(X, k))


def test_a_traced_diagonal_beyond_int32() -> None:
    with jax.enable_x64(True):
        for k in (np.int64(2**32), np.uint32(2**32 - 1), np.int64(-(2**32) - 1), np.int8(1)):
            np.testing.assert_array_equal(jax.jit(ops.trilu)(X, jnp.asarray(k)), np.triu(X, int(k)))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint16])
def test_lengths_of_a_type_that_does_not_hold_the_number_of_steps(kind) -> None:
    x, expected = np.arange(300), np.r_[99:-1:-1, 100:300]
    for lengths in (np.array([100], kind), jnp.array([100], kind)):
        np.testing.assert_array_equal(ops.reverse_sequence(x[:, None], lengths)[:, 0], expected)


def test_no_onnx_version_has_the_symmetric_mode() -> None:
    for version in (2, 11, 19, 25):
        inputs, attributes = ((X,), {"pads": PADS}) if version == 2 else ((X, np.array(PADS)), {})
        with pytest.raises(ArgumentError, match="`mode` is 'symmetric'; it must be one of"):
            opset(version).Pad(*inputs, mode="symmetric", **attributes)


def test_versions() -> None:
    np.testing.assert_array_equal(
        at_opset("Pad", 1, X, paddings=PADS, value=2.0)[0], pads("constant", constant_values=2)
    )
    np.testing.assert_array_equal(at_opset("Pad", 2, X, pads=PADS, mode="edge")[0], pads("edge"))
    for version in (11, 13, 18, 19, 25):
        np.testing.assert_array_equal(
            at_opset("Pad", version, X, np.int64(PADS), np.float32(3))[0], pads("constant", constant_values=3)
        )
    np.testing.assert_array_equal(at_opset("Pad", 19, X, np.int64(PADS), mode="wrap")[0], pads("wrap"))
    np.testing.assert_array_equal(at_opset("Tile", 1, X, np.float32([2]), np.float32([1]))[0], np.tile(X, (1, 2, 1)))
    np.testing.assert_array_equal(at_opset("Tile", 6, X, np.int64([1, 2, 1]))[0], np.tile(X, (1, 2, 1)))


ERRORS = [
    (lambda: ops.pad(X, (1, 2)), ShapeError, r"`pads` \(1, 2\) has 2 numbers; it must have 6, a begin for each axis"),
    (lambda: ops.pad(X, (-3, -1), axes=(1,)), ShapeError, r"`pads` \(-3, -1\) crop axis 1 of .* to -1 elements"),
    (
        lambda: ops.pad(X, PADS, mode="mirror"),
        ArgumentError,
        "`mode` is 'mirror'; it must be one of 'constant', 'reflect'",
    ),
    (lambda: ops.pad(X, PADS, X), ShapeError, "`constant_value` must be one number"),
    (lambda: ops.pad(X, PADS, np.int32(1)), DTypeError, "pad: operands must have one element type"),
    (lambda: ops.pad(X[:0], PADS, mode="edge"), ShapeError, "is empty; mode 'edge' has nothing to repeat"),
    (lambda: ops.pad(X, (1, 1), axes=(3,)), AxisError, "`axes` is 3"),
    (lambda: jax.jit(lambda p: ops.pad(X, p))(np.array(PADS)), StaticError, "`pads` must be known"),
    (lambda: ops.tile(X, (2,)), ShapeError, r"`repeats` \(2,\) must hold one number for each axis"),
    (lambda: ops.tile(X, (2, -1, 1)), ArgumentError, "holds -1; it must not be negative"),
    (lambda: ops.depth_to_space(X, blocksize=2), ShapeError, r"must be \(N, C, H, W\)"),
    (lambda: ops.depth_to_space(IMAGE, blocksize=3), ShapeError, "C 8 is not a multiple of 9"),
    (lambda: ops.depth_to_space(IMAGE, blocksize=0), ArgumentError, "`blocksize` is 0"),
    (lambda: ops.depth_to_space(IMAGE, blocksize=2, mode="X"), ArgumentError, "`mode` is 'X'; it must be one of 'DCR'"),
    (lambda: ops.space_to_depth(IMAGE, blocksize=4), ShapeError, "W 6 is not a multiple of 4"),
    (lambda: ops.trilu(X[0, 0]), ShapeError, "needs at least two axes"),
    (lambda: ops.trilu(X, 0.5), ShapeError, "`k` must be one integer"),
    (lambda: ops.reverse_sequence(X, np.array([1])), ShapeError, "one length for each entry of axis 1"),
    (lambda: ops.reverse_sequence(X, np.array([1, 4, 0])), ArgumentError, r"each must be in \[0, 2\]"),
    (lambda: ops.reverse_sequence(X, np.ones(3)), DTypeError, "`sequence_lens` must be integers"),
    (lambda: ops.reverse_sequence(X, np.ones(3), time_axis=1), AxisError, "one must be 0, the other 1"),
    (lambda: ops.center_crop_pad(X, (1,)), ShapeError, "one size for each of 3 axes"),
    (lambda: ops.center_crop_pad(X, (-1,), axes=(0,)), ArgumentError, "holds -1; sizes must not be negative"),
    (lambda: at_opset("Pad", 18, X, np.int64(PADS), mode="wrap"), ArgumentError, "Pad-18: `mode` is 'wrap'"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for _, _, m in ERRORS])
def test_error(call: Callable[[], Any], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        call()


def test_undecided_sizes() -> None:
    n, m = symbolic_shape("n, m")
    x = jax.ShapeDtypeStruct((n,), np.float32)
    with pytest.raises(SizeError, match=r"the new size .* may be negative") as caught:
        jax.eval_shape(lambda x: ops.pad(x, (-m, 0)), x)
    assert caught.value.needs == "n - m >= 0"
    assert jax.eval_shape(lambda x: ops.center_crop_pad(x, (m,)), x).shape == (m,)
