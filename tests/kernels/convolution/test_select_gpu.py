"""The forms of a convolution on a GPU: which it is, and its values, which a CPU computes here."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from graphs import build, info, node, tensor
from hypothesis import given, settings, strategies as st
from jax import lax
from jax.export import symbolic_shape
from programs import primitives, specialized

import jaxops.onnx
from jaxops.kernels.convolution import select_gpu
from jaxops.kernels.target import Target
from jaxops.ops import conv
from jaxops.shapes.nn import windows

RNG = np.random.default_rng(0)


def over(sizes, kernel, pads=None, strides=None, dilations=None):
    return windows.sliding(sizes, kernel, windows.Options("NOTSET", pads, strides, dilations))


def test_form_chosen():
    def way(x, w, group=1, pads=None, specialized=True):
        found = select_gpu.gpu_form(Target("gpu", specialized=specialized), x, w, over(x[2:], w[2:], pads), group)
        return found and found.__name__

    (b,) = symbolic_shape("b")
    assert way((b, 64, 56, 56), (256, 64, 1, 1)) == "only_product_last"
    assert way((1, 64, 56, 56), (256, 64, 1, 1), pads=(1, 1, 1, 1)) == "convolution_last"
    assert way((1, 64, 56, 56), (256, 32, 1, 1), 2) == "convolution_last"
    assert way((1, 64, 56, 56), (64, 1, 3, 3), 64) == "by_channel"
    assert way((1, 64, 56, 56), (64, 1, 3, 3), 64, specialized=False) == "convolution_last"  # it has no derivative
    assert way((16, 64, 56, 56), (64, 1, 3, 3), 64) == "convolution_last"  # too many sums
    assert way((b, 64, 56, 56), (64, 1, 3, 3), 64) == "convolution_last"  # how many is not known
    assert way((1, 64, 56, 56), (128, 1, 3, 3), 64) == "convolution_last"
    assert way((1, 64, 56, 56), (64, 1, 9, 9), 64) == "convolution_last"  # too many slices
    assert way((1, 1, 56, 56), (1, 1, 3, 3)) == "convolution_last"  # no groups
    assert way((b, 3, 224, 224), (64, 3, 7, 7)) == "convolution_last"
    assert way((1, 64, b, 56), (64, 64, 3, 3)) is None
    assert way((1, 0, 56, 56), (64, 0, 3, 3)) is None


@st.composite
def layers(draw):
    """The shapes of data and filters, how many groups there are, and windows."""
    rank = draw(st.integers(1, 3))

    def sizes(low, high, count=rank):
        return tuple(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    kernel, dilations = draw(st.sampled_from([(1,) * rank, sizes(1, 3)])), sizes(1, 2)
    spatial = tuple((k - 1) * d + 1 + s for k, d, s in zip(kernel, dilations, sizes(0, 5), strict=True))
    group, inner, filters = draw(st.sampled_from([(1, 4, 6), (4, 1, 4), (4, 1, 8), (2, 3, 4)]))
    found = over(spatial, kernel, sizes(0, 2, 2 * rank), sizes(1, 3), dilations)
    return (2, group * inner, *spatial), (filters, inner, *kernel), group, found


def plain(x, w, windows, group):
    dilations = {"rhs_dilation": windows.dilations, "feature_group_count": group}
    return lax.conv_general_dilated(x, w, windows.strides, windows.pads, **dilations, precision="highest")


@settings(max_examples=60, deadline=None)
@given(layers(), st.sampled_from([np.float32, np.float16, jnp.bfloat16]))
def test_values(layer, dtype):
    x_shape, w_shape, group, found = layer
    x, w = (RNG.normal(size=shape).astype(dtype) for shape in (x_shape, w_shape))
    expected = plain(*(a.astype(np.float32) for a in (x, w)), found, group)
    form = select_gpu.gpu_form(Target("gpu", specialized=True), x_shape, w_shape, found, group)
    y = jax.jit(lambda x, w: form(x, w, found, group))(x, w)
    assert y.dtype == dtype
    scale = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(
        np.asarray(y, np.float32), expected, atol=2e-5 * scale if dtype == np.float32 else 0.02 * scale
    )


@settings(max_examples=30, deadline=None)
@given(layers())
def test_derivatives(layer):
    x_shape, w_shape, group, found = layer
    x, w = (RNG.normal(size=shape).astype(np.float32) for shape in (x_shape, w_shape))
    form = select_gpu.gpu_form(Target("gpu"), x_shape, w_shape, found, group)
    y, back = jax.vjp(lambda x, w: plain(x, w, found, group), x, w)
    along = RNG.normal(size=y.shape).astype(np.float32)
    given = jax.jit(lambda x, w: jax.vjp(lambda x, w: form(x, w, found, group), x, w)[1](along))(x, w)
    for g, e in zip(given, back(along), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5 * max(1, np.abs(e).max(initial=0)))


NETWORK = [
    ("stem", (16, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("depthwise", (16, 1, 3, 3), {"group": 16, "pads": [1, 1, 1, 1]}),
    ("pointwise", (32, 16, 1, 1), {}),
    ("grouped", (32, 8, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ("narrowed", (8, 32, 1, 1), {"strides": [2, 2]}),
]


def network():
    """A convolution of each kind after the other, with a relu behind each."""
    nodes, value = [], "x"
    for name, _, attributes in NETWORK:
        nodes += [node("Conv", [value, name], [f"{name}_y"], **attributes), node("Relu", [f"{name}_y"], [f"{name}_z"])]
        value = f"{name}_z"
    weights = [tensor(RNG.normal(size=shape).astype(np.float32) / 4, name) for name, shape, _ in NETWORK]
    nodes.append(node("GlobalAveragePool", [value], ["y"]))
    return build(*nodes, inputs=[info("x", [2, 3, 40, 40])], initializers=weights)


def test_a_network(monkeypatch):
    x = RNG.normal(size=(2, 3, 40, 40)).astype(np.float32)
    model = network()
    expected = np.asarray(jaxops.onnx.load(model)(x))
    asked = []
    plain = select_gpu.gpu_form
    monkeypatch.setattr(
        "jaxops.kernels.convolution.convolve.gpu_form", lambda *a: asked.append(found := plain(*a)) or found
    )
    monkeypatch.setattr("jaxops.runtime.specialized_calls.this_machine", lambda **options: Target("gpu", **options))
    np.testing.assert_allclose(jaxops.onnx.load(model)(x), expected, rtol=1e-4, atol=1e-5)
    names = [form.__name__ for form in asked]
    assert names[:3] == ["convolution_last", "by_channel", "only_product_last"]
    assert names[3:5] == ["convolution_last", "only_product_last"]


def test_a_user_s_program_has_these_forms_and_its_derivative_those_that_have_derivatives():
    x, w = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((1, 16, 9, 9), (16, 1, 3, 3)))

    def fn(x, w):
        return conv(x, w, group=16)

    def convolutions(fn, platform):
        return jax.jit(fn).trace(x, w).lower(lowering_platforms=(platform,)).as_text().count("stablehlo.convolution")

    assert "conv_general_dilated" not in primitives(specialized(fn, Target("gpu")), *map(jnp.zeros_like, (x, w)))
    assert convolutions(fn, "cuda") == 0
    assert convolutions(fn, "tpu") == 1
    assert convolutions(jax.grad(lambda *a: jnp.square(fn(*a)).sum(), (0, 1)), "cuda") == 2
    assert convolutions(lambda x, w: jax.vmap(fn, (None, 0))(x, jnp.stack([w, w])), "cuda") == 1


def test_what_cuda_gets():
    """Neither a convolution nor a call of a function, for a filter for each channel."""
    x, w = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((1, 16, 9, 9), (16, 1, 3, 3)))
    found = over((9, 9), (3, 3))
    traced = jax.jit(lambda x, w: select_gpu.by_channel(x, w, found, 16)).trace(x, w)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert len(re.findall("stablehlo.multiply", text)) == 9
    assert "convolution" not in text
    assert "call @" not in text
