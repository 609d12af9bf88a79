"""Models in bfloat16 and float16, against float32 and against what torch's own cast changes."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx.parser
import pytest
from graphs import build, info, node, tensor
from onnx import helper
from openvino_files import File
from programs import equations

import jaxops.onnx
import jaxops.openvino
from jaxops.errors import ArgumentError, DTypeError
from jaxops.sharding import tensor_parallel
from jaxops.tools.convert.astype import as_type

MODELS = Path(__file__).parents[2] / "models"
# |y - y32| / |y32| over the first output, for torch 2 on CPU: the models of tests/models/export.py after
# `model.to(dtype)`, on the same inputs in that type: (bfloat16, float16).
TORCH = {
    "bert": (5.9e-3, 6.7e-4),
    "gpt2": (5.2e-3, 6.1e-4),
    "llama": (5.6e-3, 6.5e-4),
    "resnet": (4.6e-3, 4.1e-4),
    "t5": (5.9e-3, 6.5e-4),
    "vit": (4.9e-3, 9.4e-4),
    "whisper": (4.7e-3, 6.3e-4),
}


def inputs_of(name, dtype):
    data = np.load(MODELS / f"{name}.npz")
    given = {key[3:]: data[key] for key in data if key.startswith("in:")}
    return {key: x.astype(dtype) if x.dtype.kind == "f" else x for key, x in given.items()}, data["out:0"]


def off(got, expected):
    """The relative distance, which is NaN where a number is."""
    return np.linalg.norm(np.asarray(got, np.float64) - expected) / np.linalg.norm(expected)


def text(body, opset=17):
    """A model from the standard's text format."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{body}')


def load(body, opset=17):
    return jaxops.onnx.load(text(body, opset))


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize(("kind", "dtype", "place"), [("dynamo", jnp.bfloat16, 0), ("script", jnp.float16, 1)])
def test_models_differ_from_float32_as_in_torch(name, kind, dtype, place):
    model = jaxops.onnx.load(MODELS / f"{name}.{kind}.onnx").astype(dtype)
    inputs, expected = inputs_of(name, dtype)
    outputs = jax.tree.leaves(model(inputs))
    assert {y.dtype for y in outputs} == {np.dtype(dtype)}
    assert {v.dtype for v in model.outputs} == {np.dtype(dtype)}
    exact = [key for key, x in model.params.items() if x.dtype == np.float32]
    assert len(exact) == (name == "llama"), exact  # the frequencies of its rotary positions
    found = off(outputs[0], expected)
    assert found < 2 * TORCH[name][place]
    assert found > 1e-5, "nothing was narrowed"


def test_gradients_and_export():
    plain = jaxops.onnx.load(MODELS / "llama.dynamo.onnx")
    model = plain.astype(jnp.bfloat16)
    inputs, _ = inputs_of("llama", jnp.bfloat16)
    wide, _ = inputs_of("llama", np.float32)

    def loss(model, inputs):
        return lambda params: (model.apply(params, inputs)[0].astype(jnp.float32) ** 2).mean()

    found, expected = jax.grad(loss(model, inputs))(model.params), jax.grad(loss(plain, wide))(plain.params)
    for name, slope in found.items():
        assert slope.dtype == model.params[name].dtype
        assert off(slope, expected[name]) < 0.1, name
    run = jax.jit(lambda params, inputs: model.apply(params, inputs)[0])
    given = {name: jnp.asarray(x.astype(np.int32) if x.dtype == np.int64 else x) for name, x in inputs.items()}
    again = jax.export.deserialize(jax.export.export(run)(model.params, given).serialize())
    np.testing.assert_array_equal(again.call(model.params, given), run(model.params, given))


LAYER_NORM = """spelled (float[2, 8] x) => (float[2, 8] y)
<float two = {2}, float eps = {1e-5}> {
  mean = ReduceMean <axes = [-1]> (x)
  d = Sub(x, mean)
  squares = Pow(d, two)
  variance = ReduceMean <axes = [-1]> (squares)
  shifted = Add(variance, eps)
  deviation = Sqrt(shifted)
  y = Div(d, deviation)
}"""
RMS_NORM = """spelled (float[2, 8] x) => (float[2, 8] y)
<float eps = {1e-5}> {
  squares = Mul(x, x)
  variance = ReduceMean <axes = [-1]> (squares)
  shifted = Add(variance, eps)
  root = Sqrt(shifted)
  factor = Reciprocal(root)
  y = Mul(x, factor)
}"""


def layer_norm_of_ir():
    file = File("spelled")
    x, axis, keep = file.parameter([2, 8]), file.constant(np.array([-1])), {"keep_dims": True}
    mean = file.layer("ReduceMean", 1, [x, axis], keep)
    variance = file.layer("ReduceMean", 1, [file.layer("SquaredDifference", 1, [x, mean]), axis], keep)
    shifted = file.layer("Add", 1, [variance, file.constant(np.float32(1e-5))])
    difference = file.layer("Subtract", 1, [x, mean])
    file.result(file.layer("Divide", 1, [difference, file.layer("Sqrt", 1, [shifted])]))
    return jaxops.openvino.load(file.xml, weights=file.bin)


@pytest.mark.parametrize("body", [LAYER_NORM, RMS_NORM, layer_norm_of_ir])
def test_a_normalization_in_several_nodes_is_float32(body):
    model = body() if callable(body) else load(body)
    x = (1000 * np.random.default_rng(0).standard_normal((2, 8))).astype(np.float16)  # squares exceed float16
    expected = model(x.astype(np.float32))
    assert off(model.astype(np.float16)(x), expected) < 1e-3
    assert not off(model.astype(np.float16, keep=lambda label, name: False)(x), expected) < 1e-1


def test_keep_is_asked_for_each_node():
    model = load("m (float[4] x) => (float[4] y) { h = Exp(x)  y = Log(h) }")
    asked = []

    def keep(label, name):
        asked.append((label, name))
        return name == "Exp"

    narrow = model.astype(np.float16, keep=keep)
    assert asked == [("h", "Exp"), ("y", "Log")]
    h, y = narrow(np.full(4, 20, np.float16), outputs=["h", "y"])
    assert h.dtype == np.float32
    assert y.dtype == np.float16
    assert np.isfinite(h).all()  # exp(20) exceeds float16


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_a_row_that_is_masked_altogether_is_no_nan(dtype):
    model = load("""m (float[2, 3] x, int64[2, 3] mask) => (float[2, 3] y)
<float low = {-3.4028235e38}, float one = {1}> {
  m = Cast <to = 1> (mask)
  hidden = Sub(one, m)
  bias = Mul(hidden, low)
  biased = Add(x, bias)
  y = Softmax(biased)
}""")
    x, mask = np.ones((2, 3), dtype), np.array([[0, 0, 0], [1, 0, 1]])
    np.testing.assert_allclose(np.asarray(model.astype(dtype)(x, mask), np.float32)[1], [0.5, 0, 0.5])
    assert np.isfinite(np.asarray(model.astype(dtype)(x, mask), np.float32)).all()


CONTROL = """m (float[2] x, bool flag, int64 count) => (float[2] y, float[2] z, float[k, 2] rows)
<float[2] start = {0.5, 1.5}, bool go = {1}> {
  y = If (flag) <
    then_branch = then () => (float[2] a) { a = Constant <value = float[2] {1, 2}> () },
    else_branch = other () => (float[2] b) { b = Softmax(x) }>
  z, rows = Loop (count, go, start) <
    body = step (int64 i, bool c, float[2] state) => (bool again, float[2] next, float[2] row) {
      again = Identity(c)  next = Add(state, x)  row = Exp(next) }>
}"""


@pytest.mark.parametrize("count", [3, np.array(3)])
@pytest.mark.parametrize("flag", [True, False])
def test_subgraphs(flag, count):
    model = load(CONTROL)
    x = np.array([0.25, -1], np.float32)
    narrow = model.astype(jnp.bfloat16)
    got = narrow(x.astype(jnp.bfloat16), np.array(flag), np.array(count))
    for y, e in zip(got, model(x, np.array(flag), np.array(count)), strict=True):
        assert y.dtype == jnp.bfloat16
        assert off(y, e) < 1e-2


def test_numbers_that_are_counted_stay_exact():
    resize = load("""m (float[1, 1, 4] x) => (float[1, 1, n] y)
<float[3] scales = {1, 1, 2.5}> { y = Resize(x, , scales) }""")
    assert resize.astype(jnp.float16)(np.ones((1, 1, 4), np.float16)).shape == (1, 1, 10)
    scaled = load("""m (float[3, 2] x) => (uint8[3, 2] y)
<float[2] scale = {0.1001, 0.3}, uint8[2] zero = {0, 0}> { y = QuantizeLinear <axis = 1> (x, scale, zero) }""")
    model, x = scaled.astype(jnp.bfloat16), np.array([[10.0, 30], [20, 60], [24, 72]], np.float32)
    assert model.params["scale"].dtype == np.float32
    np.testing.assert_array_equal(model(x.astype(jnp.bfloat16)), scaled(x))


RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 1, 4)).astype(jnp.bfloat16).astype(np.float16).astype(np.float32)
I8, SCALE = RNG.integers(-100, 100, (1, 4, 12), np.int8), np.float32(0.01234)
QUANTIZED = {  # the first operand is the model's input
    "DynamicQuantizeLSTM": (
        [X, I8, I8[:, :3], None, None, None, None, None, np.float32([0.0123]), np.int8([0]), np.float32([0.011]),
         np.int8([3])],
        {"hidden_size": 3},
    ),
    "DynamicQuantizeMatMul": ([X, I8[0], np.linspace(0.01, 0.013, 12, dtype=np.float32)], {}),
    "MatMulIntegerToFloat": ([I8[0].T, I8[0], SCALE, SCALE], {}),
    "QLinearSigmoid": ([I8, SCALE, np.int8(2), np.float32(0.00391), np.int8(-128)], {}),
    "QGemm": ([I8[0].T, SCALE, np.int8(2), I8[0], SCALE, np.int8(1), None, np.float32(0.0567), np.int8(0)], {}),
    "QLinearAdd": (
        [I8, SCALE, np.int8(2), I8, np.float32(0.0456), np.int8(1), np.float32(0.0567), np.int8(0)], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
@pytest.mark.parametrize("name", QUANTIZED)
def test_operators_on_quantized_numbers_are_float32(name, dtype):
    """Their scales, of four digits, stay what they are: a scale of bfloat16 would be another grid."""
    (x, *rest), attributes = QUANTIZED[name]
    names = ["" if v is None else f"w{k}" for k, v in enumerate(rest)]
    proto = build(
        node(name, ["x", *names], ["y"], domain="com.microsoft", **attributes),
        inputs=[info("x", x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))],
        outputs=[helper.make_empty_tensor_value_info("y")],
        initializers=[tensor(np.asarray(v), n) for n, v in zip(names, rest, strict=True) if n],
        opsets=(("", 17), ("com.microsoft", 1)),
    )
    model = jaxops.onnx.load(proto)
    found, expected = model.astype(dtype)(x.astype(dtype) if x is X else x), np.asarray(model(x))
    if expected.dtype == np.float32:
        assert found.dtype == dtype
        expected = expected.astype(dtype)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("opset", [11, 13, 15, 16])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_results_of_a_type_that_an_opset_does_not_list(opset, dtype):
    """If and SequenceAt give what went into them, by another name."""
    branches = """then_branch = t () => (float[2, 3] u) { u = Mul(x, x) },
                  else_branch = e () => (float[2, 3] v) { v = Neg(x) }"""
    model = load(
        f"""m (float[2, 3] x) => (float[2, 3] y, float[4, 3] z) {{
          zero = Constant <value = int64 {{0}}> ()  two = Constant <value = float {{2}}> ()
          most = ReduceMax <keepdims = 0> (x)  b = Greater(most, two)  c = If(b) <{branches}>
          s = SequenceConstruct(c, x)  y = SequenceAt(s, zero)  z = ConcatFromSequence <axis = 0> (s) }}""",
        opset,
    )
    x = np.arange(6).reshape(2, 3).astype(dtype)
    y, z = model.astype(dtype)(x)
    assert y.dtype == z.dtype == dtype
    np.testing.assert_array_equal(y, x * x)
    np.testing.assert_array_equal(z, np.concatenate([x * x, x]))


def test_angles_of_large_positions():
    model = load("""m (int64[n] positions) => (float[n, 3] y) <float[1, 3] frequency = {1, 0.1003, 0.01}> {
  p = Cast <to = 1> (positions)
  one = Constant <value_ints = [1]> ()
  column = Unsqueeze(p, one)
  angle = MatMul(column, frequency)
  y = Sin(angle)
}""")
    positions = np.array([1, 257, 1000, 4001])
    narrow = model.astype(jnp.bfloat16)
    assert narrow.params["frequency"].dtype == np.float32
    assert off(narrow(positions), model(positions)) < 5e-3


def test_a_layer_before_a_sine_is_narrow():
    model = load("m (float[n, 2] x) => (float[n, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { h = MatMul(x, w)  y = Sin(h) }")
    assert model.astype(jnp.bfloat16).params["w"].dtype == jnp.bfloat16


def test_an_old_opset_that_does_not_list_bfloat16():
    model = load("m (float[3] x) => (float[3] y) { y = Relu(x) }", opset=9)
    x = np.array([-1, 0.5, 2], jnp.bfloat16)
    np.testing.assert_array_equal(model.astype(jnp.bfloat16)(x), np.maximum(x, 0))


RETURNED = {  # constants that a node reads and the model returns
    "a number": "(float[2] x) => (float[1] c, float[2] y) <float[1] c = {1.5}> { y = Mul(x, c) }",
    "scales": "(float[2] x) => (float[1] c, float[n] y) <float[1] c = {2.5}> { y = Resize(x, , c) }",
    "computed scales": """(float[2] x) => (float[1] c, float[n] y) <float[1] b = {1.25}> {
        c = Add(b, b)  y = Resize(x, , c) }""",
    "pieces": """(float[2] x) => (float[1] c, float[n] y, float[1] d) <float[2] b = {2.5, 1.5}> {
        z = Constant <value_ints = [0]> ()  k = Identity(z)  h = Shape(x)  one = Div(h, h)  f = Cast <to = 1> (one)
        g = Concat <axis = 0> (f, f)  c, d = Split <axis = 0> (g)  y = Resize(x, , c) }""",
    "in a branch": """(float[2] x) => (float[1] c, float[2] y) <float[1] c = {1.5}, float zero = {0}> {
        s = ReduceSum <keepdims = 0> (x)  t = Greater(s, zero)
        y = If (t) < then_branch = then () => (float[2] a) { a = Mul(x, c) },
                     else_branch = other () => (float[2] b) { b = Add(x, c) }> }""",
}


@pytest.mark.parametrize("name", RETURNED)
def test_a_constant_that_is_returned_and_read(name):
    """The model returns it in the narrow type; a node that needs it static reads it as it was."""
    model, x = load(f"m {RETURNED[name]}"), np.float32([1, 2])
    for narrow in (model.astype(jnp.bfloat16), model.astype(jnp.float16).astype(jnp.bfloat16)):
        given = x.astype(jnp.bfloat16)
        for outputs in (narrow(given), jax.jit(narrow)(given), narrow.apply(narrow.params, given)):
            for y, e in zip(outputs, model(x), strict=True):
                assert y.dtype == jnp.bfloat16
                np.testing.assert_array_equal(np.asarray(y, np.float32), e)
        [y] = narrow.apply(narrow.params, given, outputs=["y"])[None]
        np.testing.assert_array_equal(np.asarray(y, np.float32), model(x).y)


def test_what_is_refused():
    model = load("m (float[3] x) => (float[3] y) { y = Relu(x) }")
    with pytest.raises(ArgumentError, match="astype: int8 is not one of bfloat16, float16, float64"):
        model.astype(np.int8)
    with pytest.raises(DTypeError, match=r"input 'x' is float32.*expects x: bfloat16"):
        model.astype(jnp.bfloat16)(np.ones(3, np.float32))


def test_from_one_narrow_type_to_the_other_and_the_model_stays():
    plain = load(LAYER_NORM)
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float16)
    y = plain.astype(jnp.bfloat16).astype(np.float16)(x)
    assert y.dtype == np.float16
    assert off(y, plain(x.astype(np.float32))) < 1e-3


@pytest.mark.parametrize("read", [False, True])
def test_shards_stay_where_they_are(read):
    with jax.set_mesh(jax.make_mesh((2,), ("model",))):
        model_path = MODELS / "vit.script.onnx"
        model = jaxops.onnx.load(model_path, sharding=tensor_parallel("model"))
        before = model.params if read else jaxops.onnx.load(model_path, sharding=tensor_parallel("model")).params
        narrow = model.astype(jnp.bfloat16).params
        assert all(x.sharding.is_equivalent_to(before[name].sharding, x.ndim) for name, x in narrow.items())
        assert not all(x.is_fully_replicated for x in narrow.values())
        assert all(x.dtype == jnp.bfloat16 for x in narrow.values())


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
def test_as_type(make):
    x = make(np.array([1.5, -3.4e38, 1e5, np.inf, -np.inf, np.nan], np.float32))
    found = as_type(x, np.dtype(np.float16))
    np.testing.assert_array_equal(found, np.array([1.5, -65504, 65504, np.inf, -np.inf, np.nan], np.float16))
    assert as_type(x, np.dtype(np.float32)) is x
    whole = make(np.array([1], np.int32))
    assert as_type(whole, np.dtype(np.float16)) is whole
    assert as_type(make(np.array([300.0], np.float16)), np.dtype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("kind", ["dynamo", "script"])
def test_in_float64_nothing_is_rounded_to_float32(name, kind):
    model = jaxops.onnx.load(MODELS / f"{name}.{kind}.onnx").astype(np.float64)
    inputs, _ = inputs_of(name, np.float64)
    with jax.enable_x64(True):
        program = jax.make_jaxpr(lambda params, x: model.apply(params, x))(model.params, inputs)
    types = {v.aval.dtype for equation in equations(program.jaxpr) for v in equation.outvars}
    assert np.dtype(np.float64) in types
    assert np.dtype(np.float32) not in types


def test_a_derivative_in_float64():
    model = jaxops.onnx.load(MODELS / "bert.script.onnx").astype(np.float64)
    inputs, expected = inputs_of("bert", np.float64)
    outputs = jax.tree.leaves(model(inputs))
    assert {y.dtype for y in outputs} == {np.dtype(np.float64)}
    assert off(outputs[0], expected) < 1e-5
    random = np.random.default_rng(0)
    step = {key: random.normal(size=x.shape) for key, x in model.params.items()}
    with jax.enable_x64(True):
        apply = jax.jit(lambda params: jax.tree.leaves(model.apply(params, inputs))[0])
        slope = jax.jvp(apply, (model.params,), (step,))[1]
        ahead, behind = (apply({k: x + s * step[k] for k, x in model.params.items()}) for s in (1e-6, -1e-6))
    assert off(slope, np.asarray(ahead - behind) / 2e-6) < 1e-7


def test_types_that_the_file_asks_for_in_float64():
    model = load(
        """m (float[2, 3] x) => (float[2, 3] y, float[2, 3] z, float[2, 3] bits) {
        n = Shape(x)  f = Cast <to = 1> (n)  s = Constant <value_float = 0.1> ()  t = ReduceSum <keepdims = 0> (f)
        w = Mul(t, s)  v = Expand(w, n)  a = Mul(x, v)  b = Cast <to = 6> (a)  c = Cast <to = 1> (b)
        one = Constant <value_float = 1.0> ()  g = Expand(one, n)  h = ReduceSum <keepdims = 0> (g)
        y = Div(a, h)  z = Add(a, c)  i = Cast <to = 6> (g)  bits = BitCast <to = 1> (i) }""",
        opset=26,
    )
    x = np.random.default_rng(0).normal(size=(2, 3)) * 10
    a = x * (5 * np.float64(np.float32(0.1)))
    double = model.astype(np.float64)
    with jax.enable_x64(True):
        compiled = jax.jit(double)(x)
    for y, z, bits in (double(x), compiled, double.apply(double.params, x)):
        np.testing.assert_allclose(y, a / 6, rtol=1e-15)
        np.testing.assert_allclose(z, a + np.trunc(a), rtol=1e-15)
        np.testing.assert_array_equal(bits, np.full((2, 3), np.int32(1)).view(np.float32).astype(np.float64))
