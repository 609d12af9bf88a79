"""Calls of a model compute once what depends on its parameters alone."""

import contextlib
import gc
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto as T, helper, numpy_helper

import jaxops.onnx

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)
FILTERS = RNG.standard_normal((8, 3, 3, 3), np.float32)
MEAN, VAR, SCALE, SHIFT = (RNG.random(8, np.float32) + 0.5 for _ in range(4))


def loaded(nodes, shape, how=None, **tensors):
    kept = [numpy_helper.from_array(value, name) for name, value in tensors.items()]
    x, y = helper.make_tensor_value_info("x", T.FLOAT, shape), helper.make_tensor_value_info("y", T.FLOAT, None)
    graph = helper.make_graph([helper.make_node(*node, **given) for *node, given in nodes], "g", [x], [y], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return jaxops.onnx.load(model, **how or {})


@pytest.fixture
def model():
    """A convolution and its normalization."""
    return loaded(
        [
            ("Conv", ["x", "w"], ["c"], {"pads": [1, 1, 1, 1]}),
            ("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["y"], {}),
        ],
        ["n", 3, "h", "w"],
        w=FILTERS,
        scale=SCALE,
        shift=SHIFT,
        mean=MEAN,
        var=VAR,
    )


def image(*sizes):
    return RNG.standard_normal(sizes, np.float32)


def test_a_call_computes_what_apply_does(model):
    x = image(2, 3, 40, 40)
    np.testing.assert_allclose(model(x), jax.jit(model.apply)(model.params, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "filters", "attributes"),
    [
        ((6, 9), (4, 6, 3), {"pads": [1, 2], "strides": [2]}),
        ((6, 9, 11), (4, 6, 1, 1), {}),
        ((6, 9, 11), (4, 6, 1, 1), {"strides": [2, 3]}),
        ((6, 9, 11), (4, 6, 3, 2), {"pads": [1, 0, 2, 1], "dilations": [2, 1], "strides": [1, 2]}),
        ((6, 9, 11), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ((6, 9, 11), (12, 1, 3, 3), {"group": 6}),
        ((6, 9, 11), (9, 2, 3, 3), {"group": 3, "auto_pad": "SAME_LOWER"}),
        ((6, 9, 11), (6, 2, 3, 3), {"group": 3, "pads": [0, 1, 2, 1]}),
        ((16, 9, 11), (24, 8, 3, 3), {"group": 2, "strides": [1, 2]}),
        ((32, 9, 11), (32, 16, 3, 3), {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ((6, 4, 5, 6), (3, 6, 2, 2, 2), {"pads": [1, 0, 0, 0, 1, 0]}),
    ],
)
def test_convolutions_and_what_is_between_them(sizes, filters, attributes):
    """A second convolution, behind a pad and a concatenation, so that no transpose is the last one."""
    rank, channels = len(sizes) - 1, filters[0]
    model = loaded(
        [
            ("Conv", ["x", "w", "b"], ["c"], attributes),
            ("Sigmoid", ["c"], ["s"], {}),
            ("Mul", ["c", "s"], ["m"], {}),
            ("Concat", ["m", "c"], ["j"], {"axis": 1}),
            ("Pad", ["j", "pads"], ["p"], {}),
            ("MaxPool", ["p"], ["q"], {"kernel_shape": [2] * rank}),
            ("Conv", ["q", "v"], ["y"], {}),
        ],
        ["n", *sizes],
        w=RNG.standard_normal(filters, np.float32),
        b=RNG.standard_normal(channels, np.float32),
        v=RNG.standard_normal((5, 2 * channels, *[1] * rank), np.float32),
        pads=np.asarray([0, 0, *[1] * rank, 0, 0, *[0] * rank]),
    )
    x = image(2, *sizes)
    expected = jax.jit(model.apply)(model.params, x)
    np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-4)
    assert model._weights.cache.prepared or filters[2:] == (1, 1)


def test_filters_of_channels_stay_whole():
    """A value for each of their 25 rows would have to be handed over at each call."""
    w = RNG.standard_normal((96, 1, 5, 5), np.float32)
    model = loaded([("Conv", ["x", "w"], ["y"], {"group": 96, "pads": [2] * 4})], [1, 96, 20, 20], w=w)
    x = image(1, 96, 20, 20)
    np.testing.assert_allclose(model(x), jax.jit(model.apply)(model.params, x), rtol=1e-5, atol=1e-5)
    assert [value.shape for value in model._weights.cache.prepared.values()] == [(25, 96)]


@pytest.mark.parametrize("channels", [2, 16])
def test_a_pointwise_convolution_with_groups_between_others_and_attention(channels):
    """As EfficientViT has it. Written as a sum over the channels of a group, XLA made one wrong loop of it."""
    nodes = [
        ("Conv", ["x", "v"], ["a"], {}),
        ("Conv", ["a", "u"], ["b"], {"group": 96, "pads": [2] * 4}),
        ("Conv", ["b", "w"], ["c"], {"group": 96 // channels}),
        ("Reshape", ["c", "sizes"], ["d"], {}),
        ("Transpose", ["d"], ["e"], {"perm": [0, 1, 3, 2]}),
        ("Split", ["e"], ["p", "q", "r"], {"axis": 3, "num_outputs": 3}),
        ("Transpose", ["q"], ["k"], {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["p", "k"], ["s"], {}),
        ("MatMul", ["s", "r"], ["y"], {}),
    ]
    sizes = {"v": (96, 32, 1, 1), "u": (96, 1, 5, 5), "w": (96, channels, 1, 1)}
    weights = {name: RNG.standard_normal(shape, np.float32) for name, shape in sizes.items()}
    model = loaded(nodes, [1, 32, 14, 14], **weights, sizes=np.asarray([1, 2, 48, 196]))
    x = image(1, 32, 14, 14)
    expected = jax.jit(model.apply)(model.params, x)
    np.testing.assert_allclose(model(x), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_parts_of_a_matrix_are_prepared():
    """A product would copy them at each call."""
    w = RNG.standard_normal((32, 64), np.float32)
    nodes = [
        ("Split", ["w"], ["a", "b"], {"axis": 1, "num_outputs": 2}),
        ("MatMul", ["x", "a"], ["c"], {}),
        ("MatMul", ["c", "b"], ["y"], {}),
    ]
    model = loaded(nodes, [16, 32], w=w)
    x = image(16, 32)
    np.testing.assert_allclose(model(x), x @ w[:, :32] @ w[:, 32:], rtol=1e-4, atol=1e-4)
    assert {value.shape for value in model._weights.cache.prepared.values()} == {(32, 32)}


def test_other_sizes_share_what_is_prepared(model):
    model(image(1, 3, 8, 8))
    prepared = {id(value) for value in model._weights.cache.prepared.values()}
    assert prepared
    model(image(2, 3, 8, 12))
    assert {id(value) for value in model._weights.cache.prepared.values()} == prepared


def test_the_first_call_compiles_one_program(model, caplog):
    """NumPy prepares the weights while XLA compiles what the call finds."""
    with caplog.at_level("DEBUG", "jax"):
        model(image(1, 3, 8, 8))
    assert sum("Finished XLA compilation" in message for message in caplog.messages) == 1


def test_printing_says_what_is_prepared(model):
    assert "prepared" not in str(model)
    model(image(1, 3, 8, 8))
    # The filters of each channel, 1 / sqrt(var + epsilon) · scale, and the shift that follows.
    assert f"prepared  5 values of {(8 * 27 + 8 + 8) * 4} bytes" in str(model).replace(",", "")


def test_a_parameter_that_is_replaced_counts(model):
    x = image(1, 3, 8, 8)
    before = model(x)
    model.params["scale"] = jnp.asarray(2 * SCALE)
    expected = model.apply(dict(model.params), x)
    assert not np.allclose(before, expected)
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-5)


def test_settings_of_jax_count(model):
    x = image(1, 3, 8, 8)
    model(x)
    programs = len(model._function.runner.specialized.programs)
    with jax.default_matmul_precision("highest"):
        model(x)
    assert len(model._function.runner.specialized.programs) == programs + 1
    model(x)
    assert len(model._function.runner.specialized.programs) == programs + 1


def test_types_that_a_shape_does_not_say_count(model):
    """A weak type, and a type of keys, are parts of the signature; a device is not, but the results are there."""
    x = image(1, 3, 8, 8)
    expected = model(x)
    programs = len(model._function.runner.specialized.programs)
    weak = jnp.full(x.shape, 1.0)
    assert weak.weak_type
    for _ in range(2):  # in turns
        np.testing.assert_allclose(model(weak), model(np.ones_like(x)), rtol=1e-6)
        np.testing.assert_array_equal(model(x), expected)
    assert len(model._function.runner.specialized.programs) == programs + 1
    other = jax.devices()[1]
    found = model(jax.device_put(x, other))
    assert found.devices() == {other}
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with jax.default_device(other):
        assert model(x).devices() == {other}
    assert len(model._function.runner.specialized.programs) == programs + 1


def test_threads_that_replace_parameters(model):
    """Each call sees the parameters of one moment."""
    x = jnp.asarray(image(1, 3, 8, 8))
    scales = [jnp.asarray(SCALE), jnp.asarray(2 * SCALE)]
    allowed = [model.apply({**model.params, "scale": scale}, x) for scale in scales]

    def calls(scale):
        for _ in range(20):
            model.params["scale"] = scale
            found = model(x)
            assert any(np.allclose(found, want, rtol=1e-4, atol=1e-5) for want in allowed)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(calls, scales))


def test_inside_a_transformation_nothing_is_prepared(model):
    x = image(1, 3, 8, 8)
    jax.jit(model)(x)
    jax.vmap(model)(x[None])
    assert not model._weights.cache.prepared


@pytest.mark.parametrize(("room", "kept"), [(1 << 30, 2), (24 << 20, 1), (12 << 20, 0)])
def test_what_is_much_larger_is_kept_while_there_is_room(room, kept):
    """Two matrices of four times the bytes that they are made of, 4 MiB each: a quarter of `max_bytes` is for them."""
    weights = {name: RNG.integers(-100, 100, (1024, 1024)).astype(np.int8) for name in ("q", "r")}
    model = loaded(
        [
            ("DequantizeLinear", ["q", "s"], ["v"], {}),
            ("DequantizeLinear", ["r", "s"], ["w"], {}),
            ("MatMul", ["x", "v"], ["z"], {}),
            ("MatMul", ["z", "w"], ["y"], {}),
        ],
        ["n", 1024],
        {"max_bytes": room},
        s=np.float32(0.01),
        **weights,
    )
    x = image(2, 1024)
    first, second = (value * np.float32(0.01) for value in weights.values())
    np.testing.assert_allclose(model(x), x @ first @ second, rtol=1e-3, atol=1e-2)
    assert [value.nbytes for value in model._weights.cache.prepared.values()] == [4 << 20] * kept


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_a_wide_product_reads_the_words_as_the_file_has_them(rows):
    """The last product of a language model, with the table of its words transposed: no second table is made."""
    words = RNG.standard_normal((41_000, 6), np.float32)
    model = loaded(
        [("Transpose", ["words"], ["w"], {"perm": [1, 0]}), ("MatMul", ["x", "w"], ["y"], {})], ["n", 6], words=words
    )
    x = image(rows, 6)
    np.testing.assert_allclose(model(x), x @ words.T, rtol=1e-4, atol=1e-5)
    assert not model._weights.cache.prepared


def test_a_table_that_depends_on_sizes_alone_is_computed_once():
    """The cosines of a discrete Fourier transform, as an exporter writes it."""
    size = 300
    nodes = [
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "one"], ["n"], {}),
        ("Range", ["zero", "n", "one"], ["range"], {}),
        ("Cast", ["range"], ["row"], {"to": 1}),
        ("Unsqueeze", ["row", "last"], ["column"], {}),
        ("Mul", ["column", "row"], ["products"], {}),
        ("Mul", ["products", "angle"], ["angles"], {}),
        ("Cos", ["angles"], ["table"], {}),
        ("MatMul", ["x", "table"], ["y"], {}),
    ]
    angle = np.float32(2 * np.pi / size)
    model = loaded(nodes, [1, "n"], zero=np.int64(0), one=np.int64(1), last=np.int64([1]), angle=angle)
    x, places = image(1, size), np.arange(size, dtype=np.float32)
    expected = x @ np.cos(np.outer(places, places) * angle)
    for _ in range(2):
        np.testing.assert_allclose(model(x), expected, rtol=1e-3, atol=1e-3)
    assert [value.shape for value in model._weights.cache.prepared.values()] == [(size, size)]


def test_zero_and_minus_zero_are_two_constants():
    """Two expressions that differ in the sign of a zero alone."""
    model = loaded(
        [
            ("Mul", ["w", "zero"], ["a"], {}),
            ("Mul", ["w", "minus"], ["b"], {}),
            ("Concat", ["a", "b"], ["c"], {"axis": 0}),
            ("Reciprocal", ["c"], ["d"], {}),
            ("Add", ["x", "d"], ["y"], {}),
        ],
        [1],
        w=np.ones(3, np.float32),
        zero=np.float32(0.0),
        minus=np.float32(-0.0),
    )
    np.testing.assert_array_equal(model(np.zeros(1, np.float32)), [np.inf] * 3 + [-np.inf] * 3)


def test_a_model_whose_output_needs_no_input():
    model = loaded([("Sqrt", ["w"], ["y"], {})], [1], w=np.asarray([4.0, 9.0], np.float32))
    np.testing.assert_array_equal(model(np.zeros(1, np.float32)), [2.0, 3.0])


def test_with_sixty_four_bits(model):
    x = image(1, 3, 8, 8)
    expected = model(x)
    with jax.enable_x64(True):
        np.testing.assert_allclose(model(x), expected, rtol=1e-6, atol=1e-6)


def test_under_a_mesh_nothing_is_prepared(model):
    x = image(2, 3, 8, 8)
    expected = model(x)
    cache = model._weights.cache
    prepared, executables = len(cache.prepared), len(cache.executables)
    with jax.set_mesh(jax.make_mesh((2,), ("data",))):
        np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-5)
    assert (len(cache.prepared), len(cache.executables)) == (prepared, executables)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_python_collects_garbage_behind_a_first_call(monkeypatch, enabled, fails):
    seen = []

    def noting(x):
        seen.append(gc.isenabled())
        if fails:
            raise ValueError("on purpose")
        return jnp.exp(x)

    node = helper.make_node("Noting", ["a"], ["y"], domain="here")
    x, y = helper.make_tensor_value_info("x", T.FLOAT, [3]), helper.make_tensor_value_info("y", T.FLOAT, [3])
    add = helper.make_node("Add", ["x", "w"], ["a"])
    graph = helper.make_graph([add, node], "g", [x], [y], [numpy_helper.from_array(np.ones(3, np.float32), "w")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("here", 1)]
    model = jaxops.onnx.load(
        helper.make_model(graph, opset_imports=opsets, ir_version=10), operators={("here", "Noting"): noting}
    )
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        for _ in range(2):
            with pytest.raises(Exception, match="on purpose") if fails else contextlib.nullcontext():
                model(np.zeros(3, np.float32))
            assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
    assert seen[0] is False


def quantized_product():
    """A product of quantized weights, which a call multiplies as integers, and apply as floats."""
    scale, zero = np.float32(0.013), np.uint8(118)
    return loaded(
        [
            ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
            ("DequantizeLinear", ["q", "s", "z"], ["f"], {}),
            ("DequantizeLinear", ["w", "t"], ["v"], {}),
            ("MatMul", ["f", "v"], ["y"], {}),
        ],
        [16, 256],
        s=scale,
        z=zero,
        t=np.float32(0.0071),
        w=RNG.integers(-127, 127, (256, 64), np.int8),
    )


def test_apply_does_not_ask_which_dictionary_it_gets(model):
    quantized = quantized_product()
    for found, x in ((quantized, image(16, 256)), (model, image(1, 3, 16, 16))):
        first = found.apply(found.params, x)
        np.testing.assert_array_equal(found.apply(dict(found.params), x), first)
        assert not found._weights.cache.prepared
        np.testing.assert_allclose(found(x), first, rtol=1e-4, atol=1e-4)
        for params in (found.params, dict(found.params), jax.tree.map(lambda x: x + 0, found.params)):
            np.testing.assert_array_equal(found.apply(params, x), first)
        np.testing.assert_allclose(jax.jit(found.apply)(found.params, x), first, rtol=1e-4, atol=1e-4)
