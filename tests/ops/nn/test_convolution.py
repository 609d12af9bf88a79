"""Conv and ConvTranspose: values by loops in NumPy and by onnxruntime; every way to run them; errors."""

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax.export import export, symbolic_shape
from onnx import helper

import jaxops.onnx
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError
from jaxops.ops import conv, conv_transpose

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def conv_by_hand(x, w, b=None, *, pads=None, strides=None, dilations=None, group=1, auto_pad="NOTSET", **_):
    """The sum over each window, an output element at a time."""
    n, rank, features = x.shape[0], x.ndim - 2, w.shape[0] // group
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or (0,) * (2 * rank)
    width = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    if auto_pad.startswith("SAME"):
        totals = [
            max(0, (math.ceil(i / s) - 1) * s + v - i) for i, s, v in zip(x.shape[2:], strides, width, strict=True)
        ]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        pads = small + large if auto_pad == "SAME_UPPER" else large + small
    x = np.pad(x.astype(np.float64), [(0, 0)] * 2 + [(pads[i], pads[i + rank]) for i in range(rank)])
    out = [(i - v) // s + 1 for i, v, s in zip(x.shape[2:], width, strides, strict=True)]
    y = np.zeros((n, w.shape[0], *out))
    for at in np.ndindex(*out):
        window = x[
            (..., *(slice(o * s, o * s + v, d) for o, s, v, d in zip(at, strides, width, dilations, strict=True)))
        ]
        for g in range(group):
            part = window[:, g * w.shape[1] : (g + 1) * w.shape[1]].reshape(n, math.prod(w.shape[1:]))
            filters = w[g * features : (g + 1) * features].reshape(features, math.prod(w.shape[1:]))
            y[(slice(None), slice(g * features, (g + 1) * features), *at)] = part @ filters.T
    return y if b is None else y + b.reshape(-1, *(1,) * rank)


def transpose_by_hand(x, w, b=None, *, pads=None, strides=None, dilations=None, group=1, output_padding=None, **_):
    """Adds the filter, scaled, at the place of each element."""
    n, c, *sizes = x.shape
    rank, features = len(sizes), w.shape[1]
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads, extra = pads or (0,) * (2 * rank), output_padding or (0,) * rank
    full = [(i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(sizes, strides, w.shape[2:], dilations, strict=True)]
    y = np.zeros((n, group * features, *(f + e for f, e in zip(full, extra, strict=True))))
    for at in np.ndindex(*sizes):
        for tap in np.ndindex(*w.shape[2:]):
            place = tuple(i * s + t * d for i, s, t, d in zip(at, strides, tap, dilations, strict=True))
            for g, ch in itertools.product(range(group), range(c // group)):
                source = g * (c // group) + ch
                target = slice(g * features, (g + 1) * features)
                y[(slice(None), target, *place)] += np.outer(
                    x[(slice(None), source, *at)], w[(source, slice(None), *tap)]
                )
    cut = tuple(slice(pads[i], y.shape[2 + i] - pads[i + rank]) for i in range(rank))
    y = y[(..., *cut)]
    return y if b is None else y + b.reshape(-1, *(1,) * rank)


def runtime(op: str, inputs: list[np.ndarray], opset: int = 22, **attributes: Any) -> np.ndarray:
    names = [f"i{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, dict(zip(names, inputs, strict=True)))[0])


@dataclass
class Case:
    name: str
    inputs: list[np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict)
    runtime: bool = True

    @property
    def fn(self) -> Any:
        return conv_transpose if self.name.startswith("transpose") else conv

    def expected(self) -> np.ndarray:
        by_hand = transpose_by_hand if self.fn is conv_transpose else conv_by_hand
        return by_hand(*self.inputs, **self.attributes)

    def __str__(self) -> str:
        return self.name


X2 = f32(2, 4, 7, 6)
CASES = [
    Case("plain", [X2, f32(6, 4, 3, 3), f32(6)]),
    Case("1d", [f32(2, 3, 9), f32(4, 3, 3)], {"pads": (1, 0), "strides": (2,)}),
    Case("3d", [f32(1, 2, 5, 4, 6), f32(3, 2, 3, 2, 1)], {"pads": (1, 0, 1, 0, 1, 2), "strides": (2, 1, 3)}),
    Case("4d", [f32(1, 2, 3, 3, 3, 3), f32(3, 2, 2, 1, 1, 2)], runtime=False),
    Case("dilated", [X2, f32(6, 4, 3, 2)], {"dilations": (2, 3), "pads": (2, 1, 0, 1)}),
    Case("same upper", [X2, f32(6, 4, 3, 2)], {"auto_pad": "SAME_UPPER", "strides": (2, 1)}),
    Case("same lower", [X2, f32(6, 4, 3, 2)], {"auto_pad": "SAME_LOWER", "strides": (2, 3)}),
    Case("valid", [X2, f32(6, 4, 3, 2)], {"auto_pad": "VALID", "kernel_shape": (3, 2)}),
    Case("pointwise", [X2, f32(6, 4, 1, 1), f32(6)]),
    Case("pointwise/strided", [X2, f32(6, 4, 1, 1), f32(6)], {"strides": (2, 3)}),
    Case("pointwise/padded", [X2, f32(6, 4, 1, 1)], {"pads": (1, 0, 0, 2)}),
    Case("depthwise", [X2, f32(4, 1, 3, 3), f32(4)], {"group": 4, "pads": (1, 1, 1, 1), "strides": (2, 1)}),
    Case("depthwise/multiplied", [X2, f32(8, 1, 3, 3)], {"group": 4, "dilations": (2, 1)}),
    Case("groups", [X2, f32(6, 2, 3, 3), f32(6)], {"group": 2, "pads": (1, 1, 1, 1)}),
    Case("groups/columns", [f32(2, 24, 5, 5), f32(6, 12, 3, 3)], {"group": 2, "pads": (1, 1, 1, 1), "strides": (2, 2)}),
    Case("groups/large kernel", [f32(1, 2, 12, 12), f32(2, 1, 9, 9)], {"group": 2}),
    Case("columns", [f32(1, 32, 3, 3), f32(64, 32, 3, 3), f32(64)], {"pads": (1, 1, 1, 1)}),
    Case("empty batch", [X2[:0], f32(6, 4, 3, 3)], runtime=False),
    Case("empty batch/pointwise", [X2[:0], f32(6, 4, 1, 1)], runtime=False),
    Case("empty result", [X2, f32(6, 4, 8, 3)], runtime=False),
    Case("no channels", [X2[:, :0], np.zeros((6, 0, 3, 3), np.float32)], runtime=False),
    Case("transpose", [X2, f32(4, 3, 3, 2), f32(3)]),
    Case("transpose/1d", [f32(2, 3, 5), f32(3, 4, 3)], {"strides": (2,), "pads": (1, 1)}),
    Case("transpose/3d", [f32(1, 2, 3, 2, 3), f32(2, 3, 2, 3, 2)], {"strides": (2, 1, 3)}),
    Case("transpose/dilated", [X2, f32(4, 3, 3, 2)], {"dilations": (2, 3), "strides": (1, 2), "pads": (1, 0, 2, 1)}),
    Case("transpose/groups", [X2, f32(4, 3, 3, 2), f32(6)], {"group": 2, "strides": (2, 2)}),
    Case("transpose/groups, stride 1", [X2, f32(4, 3, 3, 2), f32(6)], {"group": 2}),
    Case("transpose/more at the end", [X2, f32(4, 3, 3, 2)], {"output_padding": (1, 2), "strides": (2, 3)}),
    Case("transpose/pads beyond the kernel", [X2, f32(4, 3, 2, 2)], {"pads": (2, 3, 3, 2), "strides": (2, 2)}),
    Case("transpose/stride above kernel", [X2, f32(4, 3, 1, 2)], {"strides": (3, 4), "output_padding": (2, 0)}),
    Case("transpose/empty batch", [X2[:0], f32(4, 3, 3, 2)], {"strides": (2, 2)}, runtime=False),
    Case("transpose/no channels", [X2[:, :0], np.zeros((0, 3, 3, 2), np.float32)], runtime=False),
]


def named(names: list[str]) -> list[Case]:
    return [next(c for c in CASES if c.name == name) for name in names]


def close(found: Any, expected: np.ndarray, scale: float = 1e-5) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=scale, atol=scale * max(1, np.abs(expected).max(initial=0)))


def eager(case: Case) -> Any:
    return case.fn(*map(jnp.asarray, case.inputs), **case.attributes)


def static(case: Case) -> Any:
    return case.fn(*case.inputs, **case.attributes)


def jitted(case: Case) -> Any:
    return jax.jit(lambda *a: case.fn(*a, **case.attributes))(*case.inputs)


def mapped(case: Case) -> Any:
    x, *rest = case.inputs
    mapped = jax.vmap(lambda x, *a: case.fn(x, *a, **case.attributes), (0, *[None] * len(rest)))
    return jax.jit(mapped)(np.stack([x, x + 1]), *rest)[0]


def exported(case: Case) -> Any:
    """With a symbolic batch."""
    x, *rest = case.inputs
    (b,) = symbolic_shape("b")
    specs = [jax.ShapeDtypeStruct((b, *x.shape[1:]), x.dtype), *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in rest)]
    program = export(jax.jit(lambda *a: case.fn(*a, **case.attributes)), platforms=("cpu", "cuda"))(*specs)
    return program.call(*case.inputs)


@pytest.mark.grid
@pytest.mark.parametrize("run", [eager, static, jitted, mapped, exported])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case, run):
    if run is exported and not len(case.inputs[0]):
        pytest.skip("a symbolic size is at least 1")
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        close(run(case), case.expected())


@pytest.mark.parametrize("case", [c for c in CASES if c.runtime], ids=str)
def test_value_equals_onnxruntime(case):
    op = "ConvTranspose" if case.fn is conv_transpose else "Conv"
    close(static(case), runtime(op, case.inputs, **case.attributes))


REWRITTEN = ["pointwise/strided", "depthwise", "groups/columns", "columns", "transpose/groups", "transpose/3d"]


@pytest.mark.grid
@pytest.mark.parametrize("case", named(REWRITTEN), ids=str)
def test_gradient_equals_a_plain_convolution(case, monkeypatch):
    """The ways to write it for a CPU against the one convolution that it is elsewhere."""

    def loss(*operands):
        return jnp.sum(jnp.sin(case.fn(*operands, **case.attributes)))

    positions = tuple(range(len(case.inputs)))
    ones = tuple(np.ones_like(a) for a in case.inputs)
    found = jax.jit(jax.grad(loss, positions))(*case.inputs)
    forward = jax.jit(lambda *a: jax.jvp(loss, a, ones)[1])(*case.inputs)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *a, cpu, default: default(*a))
    expected = jax.jit(jax.grad(loss, positions))(*case.inputs)
    for one, other in zip(found, expected, strict=True):
        close(one, np.asarray(other), 1e-4)
    np.testing.assert_allclose(forward, sum(g.sum() for g in expected), rtol=1e-3, atol=1e-2)


SPATIAL = [
    Case("pads", [X2, f32(6, 4, 3, 3)], {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    Case("same, stride 1", [X2, f32(6, 4, 3, 3)], {"auto_pad": "SAME_UPPER"}),
    Case("same, stride 2", [X2, f32(6, 4, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": (2, 2)}),
    Case("pointwise", [X2, f32(6, 4, 1, 1)]),
    Case("pointwise, stride 2", [X2, f32(6, 4, 1, 1)], {"strides": (2, 2)}),
    Case("depthwise", [X2, f32(4, 1, 3, 3)], {"group": 4}),
    Case("transpose", [X2, f32(4, 3, 3, 3)], {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 1)}),
]


@pytest.mark.parametrize("case", SPATIAL, ids=str)
def test_symbolic_spatial_sizes(case):
    x, w = case.inputs
    h, v = symbolic_shape("h, w", constraints=["h >= 3", "w >= 3"])
    spec = jax.ShapeDtypeStruct((2, 4, h, v), x.dtype)
    program = export(jax.jit(lambda x: case.fn(x, jnp.asarray(w), **case.attributes)))(spec)
    close(program.call(x), case.expected())


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, np.float64])
@pytest.mark.parametrize("case", named([*REWRITTEN, "plain", "transpose", "groups/large kernel"]), ids=str)
def test_other_types(case, dtype):
    with jax.enable_x64(True):
        inputs = [jnp.asarray(a, dtype) for a in case.inputs]
        found = case.fn(*inputs, **case.attributes)
        assert found.dtype == dtype
        rounded = Case(case.name, [np.asarray(a, np.float64) for a in inputs], case.attributes)
        scale = {2: 4 * float(jnp.finfo(dtype).eps), 8: 1e-12}[np.dtype(dtype).itemsize]
        close(np.asarray(found, np.float64), rounded.expected(), scale)


def test_output_shape_and_auto_pad_of_transpose():
    x, w = np.array([[[1, 2, 3]]], np.float32), np.array([[[1, 10, 100]]], np.float32)
    op = jaxops.onnx.opset(11)
    assert op.ConvTranspose(x, w, output_shape=(4,)).tolist() == [[[12, 123, 230, 300]]]
    assert op.ConvTranspose(x, w, output_shape=(4,), auto_pad="SAME_UPPER").tolist() == [[[1, 12, 123, 230]]]
    assert op.ConvTranspose(x, w, output_shape=(6,), pads=(2, 2)).tolist() == [[[1, 12, 123, 230, 300, 0]]]
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for extra in ((0,), (1,)):
            attributes = {"auto_pad": auto_pad, "strides": (2,), "output_padding": extra}
            close(op.ConvTranspose(x, w, **attributes), runtime("ConvTranspose", [x, w], 11, **attributes))


def test_transpose_before_opset_11_cuts_on_the_other_side():
    x, w = np.array([[[1, 2, 3]]], np.float32), np.array([[[1, 10, 100]]], np.float32)
    op = jaxops.onnx.opset(10)
    assert op.ConvTranspose(x, w, output_shape=(4,)).tolist() == [[[1, 12, 123, 230]]]
    assert op.ConvTranspose(x, w, output_shape=(4,), auto_pad="SAME_UPPER").tolist() == [[[12, 123, 230, 300]]]
    same = op.ConvTranspose(x, w, auto_pad="SAME_UPPER", strides=(2,))
    assert same.tolist() == [[[1, 10, 102, 20, 203, 30]]]


@pytest.mark.parametrize("opset", [1, 10, 11, 21, 22, 25])
def test_every_version(opset):
    op = jaxops.onnx.opset(opset)
    for case in CASES:
        run = op.ConvTranspose if case.fn is conv_transpose else op.Conv
        close(run(*case.inputs, **case.attributes), case.expected())


def test_bfloat16_came_with_opset_22():
    x, w = jnp.ones((1, 1, 3), jnp.bfloat16), jnp.ones((1, 1, 1), jnp.bfloat16)
    assert jaxops.onnx.opset(22).Conv(x, w).dtype == jnp.bfloat16
    with pytest.raises(DTypeError, match=r"Conv-11: input 0 `X` is bfloat16\[1,1,3\]"):
        jaxops.onnx.opset(21).Conv(x, w)


W2 = f32(6, 4, 3, 3)
ERRORS = [
    (lambda: conv(X2[0, 0], W2), ShapeError, r"conv: `x` has sizes \(7, 6\); it needs batch"),
    (lambda: conv(X2[:, :3], W2), ShapeError, r"conv: `w` of \(6, 4, 3, 3\) .* takes 4 channels, .* has 3"),
    (lambda: conv(X2, W2, f32(5)), ShapeError, r"conv: `b` of \(5,\) must be \(6,\)"),
    (lambda: conv(X2, W2.astype(np.float16)), DTypeError, "conv: operands must have one .* x float32, w float16"),
    (lambda: conv(X2, W2, kernel_shape=(3, 2)), ShapeError, r"conv: `kernel_shape` is \(3, 2\)"),
    (
        lambda: conv(X2, W2, auto_pad="SAME"),
        ArgumentError,
        "conv: `auto_pad` is 'SAME'; it must be one of 'NOTSET', 'S",
    ),
    (lambda: conv(X2, W2, strides=(1,)), ShapeError, r"conv: `strides` \(1,\) has 1 value; .* need 2"),
    (lambda: conv(X2, W2, auto_pad="same"), ArgumentError, "conv: `auto_pad` is 'same'"),
    (lambda: jax.jit(lambda p: conv(X2, W2, pads=p))(np.zeros(4, int)), StaticError, "conv: `pads` must be known"),
    (lambda: conv_transpose(X2, W2), ShapeError, r"conv_transpose: `w` of \(6, 4, 3, 3\) takes 6 channels"),
    (
        lambda: conv_transpose(X2, W2[:4], f32(1)),
        ShapeError,
        r"conv_transpose: `b` of \(1,\) must be \(4,\)",
    ),
    (lambda: conv_transpose(X2, W2[:4], output_padding=(1, 0)), ArgumentError, "conv_transpose: `output_padding`"),
]


@pytest.mark.parametrize(("call", "error", "match"), ERRORS, ids=[row[2][:30] for row in ERRORS])
def test_error(call, error, match):
    with pytest.raises(error, match=match):
        call()


class Wrong(Case):
    fn = staticmethod(lambda *a, **k: conv(*a, **{**k, "auto_pad": "SAME_LOWER"}))  # pyright: ignore


def test_a_wrong_operator_is_caught():
    case = Case("same upper", [X2, f32(6, 4, 2, 2)], {"auto_pad": "SAME_UPPER"})
    with pytest.raises(AssertionError, match="Mismatched elements"):
        close(eager(Wrong(case.name, case.inputs, case.attributes)), case.expected())
