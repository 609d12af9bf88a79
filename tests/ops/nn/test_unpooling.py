"""Col2Im and MaxUnpool: against loops in NumPy, against their inverses, and against onnxruntime."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from onnx import helper, numpy_helper

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError
from jaxops.onnx import load

RNG = np.random.default_rng(7)
X = RNG.normal(size=(2, 3, 8, 6)).astype(np.float32)


def runtime(op, inputs, opset, **attributes):
    names = ["a", "b", "c"][: len(inputs)]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, dict(zip(names, inputs, strict=True)))[0]


def counts(image, block, pads, strides, dilations):
    rows = zip(image, block, pads, pads[len(image) :], strides, dilations, strict=False)
    return [(n + low + high - (k - 1) * d - 1) // step + 1 for n, k, low, high, step, d in rows]


def fold(columns, image, block, pads, strides, dilations):
    places = counts(image, block, pads, strides, dilations)
    channels = columns.shape[1] // int(np.prod(block))
    y = columns.reshape(len(columns), channels, *block, *places)
    out = np.zeros((len(columns), channels, *image), columns.dtype)
    for k in np.ndindex(*block):
        for at in np.ndindex(*places):
            to = [
                p * s + i * d - low
                for p, s, i, d, low in zip(at, strides, k, dilations, pads[: len(image)], strict=True)
            ]
            if all(0 <= t < n for t, n in zip(to, image, strict=True)):
                out[(slice(None), slice(None), *to)] += y[(slice(None), slice(None), *k, *at)]
    return out


FOLDS = [
    ((5, 5), (2, 3), (0, 0, 0, 0), (1, 1), (1, 1)),
    ((7, 6), (3, 2), (1, 0, 2, 1), (2, 3), (1, 2)),
    ((40, 50), (3, 3), (1, 1, 1, 1), (2, 1), (1, 1)),
    ((4, 5, 3), (2, 2, 1), (0, 1, 0, 0, 0, 1), (1, 2, 1), (2, 1, 1)),
]


@pytest.mark.parametrize(("image", "block", "pads", "strides", "dilations"), FOLDS)
def test_col2im(image, block, pads, strides, dilations):
    length = int(np.prod(counts(image, block, pads, strides, dilations)))
    columns = RNG.integers(-9, 9, (2, 3 * int(np.prod(block)), length)).astype(np.float32)
    attributes = {"pads": list(pads), "strides": list(strides), "dilations": list(dilations)}
    expected = fold(columns, image, block, pads, strides, dilations)
    fn = jax.jit(lambda x: jo.col2im(x, image, block, **attributes))
    assert (fn(columns) == expected).all()
    given = [columns, np.array(image), np.array(block)]
    if len(image) == 2:  # onnxruntime differs on the case of three axes, from the sum over all blocks as well
        assert (runtime("Col2Im", given, 18, **attributes) == expected).all()
    assert (at_opset("Col2Im", 18, *given, **attributes)[0] == expected).all()
    for dtype in (np.int32, np.uint8, np.float16):
        found = jo.col2im(columns.astype(dtype), image, block, **attributes)
        assert found.dtype == dtype
        assert (found == fold(columns.astype(dtype), image, block, pads, strides, dilations)).all()


def test_col2im_gradients_vmap_and_symbolic_batch():
    columns = RNG.normal(size=(2, 3 * 4, 16)).astype(np.float32)
    fn = jax.jit(lambda x: jo.col2im(x, (5, 5), (2, 2)))
    check_grads(fn, (columns,), 1, ["fwd", "rev"], 1e-2, 1e-2, 0.1)
    (spec,) = symbolic_args_specs((columns,), ("b, 4*c, 16",))
    assert (export(fn)(spec).call(columns) == fn(columns)).all()
    assert (jax.vmap(lambda x: fn(x[None])[0])(columns) == fn(columns)).all()


def unpool(x, places, sizes):
    y = np.zeros(int(np.prod(sizes)), x.dtype)
    y[places.reshape(-1)] = x.reshape(-1)
    return y.reshape(sizes)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_max_unpool(dtype):
    x = (X * 100).astype(dtype)
    for kernel, strides, pads in [
        ((2, 2), (2, 2), (0,) * 4),
        ((3, 3), (2, 1), (1, 1, 0, 1)),
        ((2, 3), (2, 3), (0,) * 4),
    ]:
        attributes = {"kernel_shape": list(kernel), "strides": list(strides), "pads": list(pads)}
        top, places = jo.max_pool(x, return_indices=True, **attributes)
        sizes = [
            (d - 1) * s + k - lo - hi
            for d, s, k, lo, hi in zip(top.shape[2:], strides, kernel, pads, pads[2:], strict=False)
        ]
        if sizes != list(x.shape[2:]):
            continue
        expected = unpool(np.asarray(top), np.asarray(places), x.shape)
        found = jax.jit(lambda t, i, a=attributes: jo.max_unpool(t, i, **a))(top, places)
        assert found.dtype == dtype
        assert (found == expected).all()
        for opset in (9, 11, 22):
            if dtype == np.float32:
                (found,) = at_opset("MaxUnpool", opset, top, places, **attributes)
                assert (found == expected).all()
        if dtype == np.float32:
            given = [np.asarray(top), np.asarray(places).astype(np.int64)]
            assert (runtime("MaxUnpool", given, 11, **attributes) == expected).all()


def test_max_unpool_into_more_room():
    top, places = jo.max_pool(X, kernel_shape=(2, 2), strides=(2, 2), return_indices=True)
    same = jo.max_unpool(top, places, kernel_shape=(2, 2), strides=(2, 2))
    more = jo.max_unpool(top, places, (2, 3, 9, 8), kernel_shape=(2, 2), strides=(2, 2))
    assert (more == np.pad(same, ((0, 0), (0, 0), (0, 1), (0, 2)))).all()
    outside = jo.max_unpool(jnp.ones((1, 1, 2)), jnp.array([[[-1, 9]]]), kernel_shape=(1,))
    assert outside.tolist() == [[[0, 0]]]


def test_max_unpool_gradients_and_symbolic_batch():
    top, places = jo.max_pool(X, kernel_shape=(2, 2), strides=(2, 2), return_indices=True)
    fn = jax.jit(lambda t, i: jo.max_unpool(t, i, kernel_shape=(2, 2), strides=(2, 2)))
    check_grads(lambda t: fn(t, places), (top,), 1, ["fwd", "rev"], 1e-2, 1e-2, 0.1)
    specs = symbolic_args_specs((top, places), ("b, c, h, w", "b, c, h, w"))
    assert (export(fn)(*specs).call(top, places) == fn(top, places)).all()


ONES, FEW = jnp.ones((1, 4, 16)), jnp.zeros((1, 1, 2, 2), int)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, r"axis 1 must be a multiple of 4, axis 2 16", lambda: jo.col2im(ONES[:, :3], (5, 5), (2, 2))),
        (ShapeError, r"axis 1 must be a multiple of 4, axis 2 9", lambda: jo.col2im(ONES, (4, 4), (2, 2))),
        (ShapeError, r"must be \(N, C · elements", lambda: jo.col2im(ONES[0], (5, 5), (2, 2))),
        (ShapeError, r"`image_shape` \(5, 5\) and `block_shape` \(2,\)", lambda: jo.col2im(ONES, (5, 5), (2,))),
        (ArgumentError, "`block_shape` .* must be positive", lambda: jo.col2im(ONES, (5, 5), (2, 0))),
        (DTypeError, "must be numbers, got bool", lambda: jo.col2im(ONES > 0, (5, 5), (2, 2))),
        (
            StaticError,
            "`block_shape` must be known",
            lambda: jax.jit(lambda b: jo.col2im(ONES, (5, 5), b))(jnp.ones(2, int)),
        ),
        (ShapeError, r"`i` of \(1, 1, 2\) must both", lambda: jo.max_unpool(FEW, FEW[..., 0], kernel_shape=(2, 2))),
        (
            ShapeError,
            "`strides` .* has 1 number; it must have 2 for 2 spatial axes",
            lambda: jo.max_unpool(FEW, FEW, kernel_shape=(2, 2), strides=(2,)),
        ),
        (
            ShapeError,
            r"`output_shape` \(1, 1, 2, 3\) is smaller than \(1, 1, 3, 3\) at axis 2",
            lambda: jo.max_unpool(FEW, FEW, (1, 1, 2, 3), kernel_shape=(2, 2)),
        ),
        (ShapeError, "`output_shape` .* must hold 4 sizes", lambda: jo.max_unpool(FEW, FEW, (9,), kernel_shape=(2, 2))),
        (DTypeError, "`i` must be integers", lambda: jo.max_unpool(FEW, jnp.zeros((1, 1, 2, 2)), kernel_shape=(2, 2))),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("shape", "warned"), [([1, 1, 5, 5], True), ([1, 1, 4, 4], False), (None, False), ("an input", True)]
)
def test_a_model_with_an_output_shape_is_warned_of(shape, warned):
    """The suite counts indices in the inferred sizes, 4 by 4 here; the text and onnxruntime in `output_shape`."""
    x, places = np.float32([[[[1, 2], [3, 4]]]]), np.int64([[[[5, 7], [13, 15]]]])
    inputs = [helper.make_tensor_value_info("x", 1, x.shape), helper.make_tensor_value_info("i", 7, places.shape)]
    inputs += [helper.make_tensor_value_info("s", 7, [4])] if shape == "an input" else []
    weights = [numpy_helper.from_array(np.int64(shape), "s")] if isinstance(shape, list) else []
    names = ["x", "i", "s"] if shape else ["x", "i"]
    node = helper.make_node("MaxUnpool", names, ["y"], "unpool", kernel_shape=[2, 2], strides=[2, 2])
    outputs = [helper.make_tensor_value_info("y", 1, None)]
    proto = helper.make_model(
        helper.make_graph([node], "g", inputs, outputs, weights),
        opset_imports=[helper.make_opsetid("", 11)],
        ir_version=8,
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = load(proto)
    texts = [str(w.message) for w in found]
    assert len(texts) == warned
    assert all("MaxUnpool 'unpool': if `output_shape` is larger" in text for text in texts)
    given = {"x": x, "i": places} | ({"s": np.int64([1, 1, 5, 5])} if shape == "an input" else {})
    expected = np.pad(unpool(x, places, (1, 1, 4, 4)), [(0, 0), (0, 0), (0, 1), (0, 1)])
    size = model(given).shape[-1]
    assert size == (5 if warned else 4)
    np.testing.assert_array_equal(model(given), expected[..., :size, :size])
