"""What single nodes become in a package of `Model.to_python`: one call that gives what the node gives."""

import importlib.util
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import jaxops.onnx
from jaxops.errors import UnsupportedError
from jaxops.onnx import bind, lenient
from jaxops.tools.python.expressions import laid_out

F = np.float32
X = np.linspace(-2, 3, 24, dtype=F).reshape(2, 3, 4)


def model_of(body, opset=17, extra="", functions="", **constants):
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{extra}]>\n{body}\n{functions}')
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    return proto


def encoder_1(inputs, **defaults):
    """LabelEncoder of ai.onnx.ml 1, whose meaning is in the type of its operand."""
    kinds = [TensorProto.STRING, TensorProto.INT64][:: 1 if inputs == "string" else -1]
    info = [helper.make_tensor_value_info(name, kind, ["N"]) for name, kind in zip("xy", kinds, strict=True)]
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", classes_strings=["a", "b"], **defaults)
    opsets = [helper.make_opsetid("", 9), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(helper.make_graph([node], "m", info[:1], info[1:]), opset_imports=opsets)


LOOP = (
    "m (float[4] x) => (float[4] y) {{ m = Constant<value = int64 {{3}}>() u = Constant<value = bool {{1}}>() "
    "y = Loop<body = b (int64 i, bool k, float[4] v) => (bool k2, float[4] v2) {{ k2 = Identity(k) {} }}>(m, u, x) }}"
)
NORM = {name: np.ones(3, F) for name in "sbmv"}
QUANTIZED = (
    "m (float[N,4] x) => (uint8[N,4] y) { s = Constant<value = float[4] {0.1, 0.2, 0.3, 0.4}>() "
    "z = Constant<value = uint8[4] {3, 1, 2, 3}>() y = QuantizeLinear<axis = 1>(x, s, z) }"
)
SCAN = (
    "m (float[N,4] s, float[N,T,4] x) => (float[N,4] y, float[N,T,4] rows) { y, rows = Scan<num_scan_inputs = 1, "
    "body = b (float[4] v, float[4] u) => (float[4] w, float[4] r) { w = Add(v, u) r = Mul(w, u) }>(, s, x) }"
)

# name → (model, inputs, a line of the source).
CASES = {
    # Results that a node does not name.
    "unique, its values alone": (
        model_of("m (float[N] x) => (float[M] y) { a = Unique(x) y = Neg(a) }"),
        [X[0, 0]],
        "a, _, _, _ = jo.unique(x)",
    ),
    "unique, its last result alone": (
        model_of("m (float[N] x) => (int64[M] y) { , , , y = Unique(x) }"),
        [np.array([2, 1, 2, 2], F)],
        "_, _, _, y = jo.unique(x)",
    ),
    "top_k behind unique, its values alone": (
        model_of(
            "m (float[N] x) => (float[2] y) { a = Unique(x) k = Constant<value_ints = [2]>() b, i = TopK(a, k) "
            "y = Neg(b) }"
        ),
        [X[0, 0]],
        "b, _ = jo.top_k(a, (2,))",
    ),
    "lstm, its last state alone": (
        model_of(
            "m (float[S,B,3] x) => (float[1,B,2] y) { a = NonZero(x) , , y = LSTM<hidden_size = 2>(x, w, r) }",
            w=np.ones((1, 8, 3), F),
            r=np.ones((1, 8, 2), F),
        ),
        [np.ones((2, 1, 3), F)],
        '_, _, y = jo.lstm(x, params["w"], params["r"], hidden_size=2)',
    ),
    "an optional result behind unique": (
        model_of(
            "m (float[N] x) => (float[1,1,K] y) { a = Unique(x) k = Constant<value_ints = [1,1,-1]>() "
            "b = Reshape(a, k) c = MaxPool<kernel_shape = [2]>(b) y = Neg(c) }"
        ),
        [X[0, 0]],
        "return jo.neg(jo.max_pool(jo.reshape(a, (1, 1, -1)), kernel_shape=(2,)))",
    ),
    # Old versions.
    **{
        f"quantize_linear {opset}": (model_of(QUANTIZED, opset), [X[0]], 'return jo.quantize_linear(x, params["s"], ')
        for opset in (13, 19, 21, 22)
    },
    "batch_normalization 9": (
        model_of("m (float[N,C,H] x) => (float[N,C,H] y) { y = BatchNormalization(x, s, b, m, v) }", 9, **NORM),
        [X],
        "Sizes: c == 3.",
    ),
    "split 13 in a loop": (
        model_of(LOOP.format("p, q = Split<axis = 0>(v) v2 = Concat<axis = 0>(q, p)"), 13),
        [X[0, 0]],
        "p, q = opset13.Split(v, n_outputs=2)",
    ),
    "softmax 11 in a loop": (
        model_of(
            LOOP.format("v2 = Softmax<axis = 0>(v)"), 11
        ),
        [X[0, 0]],
        "return k, jo.softmax(v, axis=0)",
    ),
    "split 13 behind unique": (
        model_of("m (float[N] x) => (float[M] y, float[M] z) { a = Unique(x) y, z = Split<axis = 0>(a) }", 13),
        [X[0, 0]],
        "y, z = opset13.Split(a, n_outputs=2)",
    ),
    "split 13 of a named size": (
        model_of("m (float[N] x) => (float[M] y, float[M] z) { y, z = Split<axis = 0>(x) }", 13),
        [X[0, 0]],
        "y, z = opset13.Split(x, n_outputs=2)",
    ),
    "split 13 by an input": (
        model_of("m (float[N] x, int64[2] s) => (float[P] y, float[Q] z) { y, z = Split<axis = 0>(x, s) }", 13),
        [X[0, 0], np.array([1, 3])],
        "y, z = opset13.Split(x, s, n_outputs=2)",
    ),
    "split 18 that leaves the number of pieces to that of its outputs": (
        model_of("m (float[N,4] x) => (float[N,2] y, float[N,2] z) { y, z = Split<axis = 1>(x) }", 18),
        [X[0]],
        "y, z = jo.split(x, axis=1, num_outputs=2)",
    ),
    "slice by inputs": (
        model_of(
            "m (float[N] x, int64[1] s, int64[1] e, int64[1] a, int64[1] k) => (float[M] y) "
            "{ y = Slice(x, s, e, a, k) }"
        ),
        [X[0, 0], *(np.array([n]) for n in (3, 0, 0, -2))],
        "return jo.slice(x, s, e, a, k)",
    ),
    "upsample by an input": (
        model_of("m (float[1,2,3,4] x, float[4] s) => (float[1,2,A,B] y) { y = Upsample(x, s) }", 9),
        [X[None], np.array([1, 1, 2, 2], F)],
        "return opset9.Upsample(x, s)",
    ),
    "scan 8": (
        model_of(SCAN, 8),
        [X[:, 0], X],
        "None, [s, x], num_scan_inputs=1, body=body",
    ),
    "scan 8 of sequences of different lengths": (
        model_of(SCAN.replace("(float[N,4] s", "(int64[N] n, float[N,4] s").replace("(, s, x)", "(n, s, x)"), 8),
        [np.array([2, 3]), X[:, 0], X],
        "n, [s, x], num_scan_inputs=1, body=body",
    ),
    "softmax 11 over axes of which all but one have one element": (
        model_of("m (float[N,4,1] x) => (float[N,4,1] y) { y = Softmax<axis = 1>(x) }", 11),
        [X[0, :, :, None]],
        "return opset11.Softmax(x)",
    ),
    "functions of two opsets": (
        model_of(
            "m (float[N,3,4] x) => (float[N,3,4] y) { a = my.F(x) y = Softmax<axis = 1>(a) }",
            12,
            ', "my" : 1',
            '<domain: "my", opset_import: ["" : 9]> F (x) => (y) { a = Softmax<axis = 2>(x) y = Softmax<axis = 1>(a) }',
        ),
        [X],
        "opset9 = jaxops.onnx.opset(9)\nopset12 = jaxops.onnx.opset(12)",
    ),
    "inputs and sizes that have the name of an opset": (
        model_of(
            "m (float[opset9,3,4] opset9) => (float[N,12] y) { a = Softmax<axis = 1>(opset9) s = Shape(a) "
            "z = Constant<value = int64 {0}>() n = Gather(s, z) z1 = Unsqueeze<axes = [0]>(n) "
            "t = Constant<value = int64[1] {12}>() d = Concat<axis = 0>(z1, t) y = Reshape(a, d) }", 9
        ),
        [X],
        "return jo.reshape(opset9.Softmax(opset9_3), (opset9_2, 12))",
    ),
    "label_encoder 1 of strings": (
        encoder_1("string", default_int64=-2),
        [np.array(["b", "z"], object)],
        "default_int64=-2",
    ),
    "label_encoder 1 of integers": (encoder_1("int64", default_string="?"), [np.array([1, 7])], 'default_string="?"'),
    "gradient": (
        model_of(
            'm (float a, float b) => (float y, float d, float e) { c = Mul(a, b) y = Mul(c, a) '
            'd, e = ai.onnx.preview.training.Gradient<xs = ["a", "b"], y = "y">(a, b) }',
            extra=', "ai.onnx.preview.training" : 1',
        ),
        [F(2), F(5)],
        '[a, b], xs=("a", "b"), y="y", differentiated=differentiated',
    ),
    # Constants.
    **{
        f"constants that are dequantized, opset {opset}": (
            model_of(
                "m (float[4] x) => (float[4] y) { d = DequantizeLinear(q, s, z) y = Add(x, d) }",
                opset,
                q=np.arange(4, dtype=np.uint8),
                s=F(0.5),
                z=np.uint8(3),
            ),
            [X[0, 0]],
            "jo.dequantize_linear(",
        )
        for opset in (10, 12, 13)
    },
    # Named sizes.
    "top_k": (
        model_of(
            "m (float[N,M] x) => (float[N,2] y, int64[N,2] i) { k = Constant<value_ints = [2]>() y, i = TopK(x, k) }"
        ),
        [X[0]],
        "Sizes: m >= 2.",
    ),
    "a quotient of sizes": (
        model_of(
            "m (float[N,M] x) => (float[2,P,M] y) { s = Shape<end = 1>(x) two = Constant<value_ints = [2]>() "
            "h = Div(s, two) m1 = Constant<value_ints = [-1]>() k = Concat<axis = 0>(two, h, m1) y = Reshape(x, k) }"
        ),
        [X.reshape(4, 6)],
        "return jo.reshape(x, (2, n // 2, -1))",
    ),
    "what enters a loop is known behind it": (
        model_of(LOOP.format("v2 = Neg(v)").replace("y = Loop", "l = Loop")[:-1] + "y = Softmax<axis = 0>(l) }", 12),
        [X[0, 0]],
        "return jo.softmax(l_, axis=0)",
    ),
    # The derivative of a norm at zero is zero.
    "a norm": (
        model_of(
            "m (float[N,4] x) => (float[N] y) { a = Mul(x, x) k = Constant<value_ints = [1]>() "
            "b = ReduceSum<keepdims = 0>(a, k) y = Sqrt(b) }"
        ),
        [X[0]],
        "return flat_at_zero(jo.sqrt, jo.reduce_sum(jo.mul(x, x), (1,), keepdims=0))",
    ),
    "a norm as a power": (
        model_of(
            "m (float[N,4] x) => (float[N] y) { a = Mul(x, x) k = Constant<value_ints = [1]>() "
            "b = ReduceSum<keepdims = 0>(a, k) h = Constant<value = float {0.5}>() y = Pow(b, h) }"
        ),
        [X[0]],
        "return flat_at_zero(lambda x: jo.pow(x, np.array(0.5, np.float32)), b)",
    ),
    # Numbers.
    "a range of int32": (
        model_of("m (int32[257] x) => (int32[257] y) { y = Add(x, t) }", t=np.arange(257, dtype=np.int32)),
        [np.ones(257, np.int32)],
        "return jo.add(x, np.arange(257, dtype=np.int32))",
    ),
    "a momentum": (
        model_of(
            "m (float[N,C,H] x) => (float[N,C,H] y, float[C] p, float[C] q) "
            "{ y, p, q = BatchNormalization<training_mode = 1, momentum = 0.9>(x, s, b, m, v) }",
            **NORM,
        ),
        [X],
        "momentum=0.8999999761581421,",  # 1 - 0.9 is another float32
    ),
    "an epsilon": (
        model_of(
            "m (float[N,4] x) => (float[N,4] y) { y = LayerNormalization<epsilon = 1e-6>(x, s) }", s=np.ones(4, F)
        ),
        [X[0]],
        "epsilon=1e-06",
    ),
    "a sequence": (
        model_of("m (seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence<axis = 0>(x) }"),
        [[X[0, 0], X[0, 1]]],
        "x = jax.tree.map(jnp.asarray, x)",
    ),
}  # fmt: skip


def imported(folder):
    spec = importlib.util.spec_from_file_location("net", folder / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["a norm", "a norm as a power"])
def test_norms_have_no_infinite_derivative(tmp_path, name):
    model, x = jaxops.onnx.load(CASES[name][0]), np.array([[0, 0, 0, 0], [3, 0, 4, 0]], F)
    model.to_python(tmp_path / "net")
    for apply in (imported(tmp_path / "net").apply, model.apply):
        found = jax.grad(lambda x, apply=apply: apply({}, x).sum())(x)
        np.testing.assert_allclose(found, [[0, 0, 0, 0], [0.6, 0, 0.8, 0]], rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_source(tmp_path, name):
    proto, inputs, line = CASES[name]
    model = jaxops.onnx.load(proto)
    model.to_python(tmp_path / "net")
    assert line in (tmp_path / "net" / "__init__.py").read_text()
    package = imported(tmp_path / "net")
    with warnings.catch_warnings(), jax.disable_jit():
        warnings.simplefilter("ignore")  # int64 is int32 here
        found, expected = package.apply(package.load_params(), *inputs), model.apply(model.params, *inputs)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        one, other = np.asarray(one), np.asarray(other)
        if one.dtype.kind == "f":  # some versions of JAX round an epsilon of Python otherwise
            np.testing.assert_allclose(one, other, rtol=1e-6)
        else:
            assert one.tolist() == other.tolist()


@pytest.mark.parametrize("known", [True, False])
def test_a_type_that_an_opset_lacks_after_astype(tmp_path, known):
    """Opset 11 has no bfloat16: the function of the version takes it."""
    body = "m (float[N,4] x) => (float[N,2] y, float[N,2] z) { a = Neg(x) y, z = Split<axis = 1>(a) }"
    proto = model_of(body, 11)
    if not known:
        proto.graph.input[0].type.tensor_type.ClearField("shape")
    model = jaxops.onnx.load(proto).astype(jnp.bfloat16)
    model.to_python(tmp_path / "net")
    assert "jaxops.onnx.versions.tensor.split_2(" in (tmp_path / "net" / "__init__.py").read_text()
    x = X[0].astype(jnp.bfloat16)
    for one, other in zip(imported(tmp_path / "net").apply({}, x), model(x), strict=True):
        assert one.dtype == other.dtype == jnp.bfloat16
        assert one.tolist() == other.tolist()


def test_sizes_that_a_node_needs_must_be_known(tmp_path):
    body = "m (float[N] x) => (float[M] y, float[M] z) { a = Unique(x) y, z = Split(a) }"
    with pytest.raises(UnsupportedError, match=r"the sizes of a decide about a node, .*\n  hint    declare the shapes"):
        jaxops.onnx.load(model_of(body, 18)).to_python(tmp_path / "net")


def test_a_body_that_depends_on_types_needs_the_type_of_each_operand(monkeypatch, tmp_path):
    """The result of a function of the model has no known type; Clip is left without its function here."""
    found = lenient.tolerant

    def without_clip(op_type, domain, opset):
        operator = found(op_type, domain, opset)
        return lenient.TolerantOperator(operator.schema, None, opset) if op_type == "Clip" else operator

    monkeypatch.setattr(bind, "tolerant", without_clip)
    doubled = """<domain: "my", opset_import: ["": 17]> Doubled (a) => (b) { b = Add(a, a) }"""
    body = "m (float[4] x) => (float[4] y) { h = my.Doubled(x)  y = Clip(h, low) }"
    model = jaxops.onnx.load(model_of(body, extra=', "my" : 1', functions=doubled, low=F(0)))
    with pytest.raises(UnsupportedError, match="to_python: an operand has an unknown type"):
        model.to_python(tmp_path / "net")


def test_a_long_subscript_is_broken_before_what_is_called_on_it():
    name = "a_name_of_a_constant_that_is_longer_than_what_a_line_of_source_has_room_for_beside_it"
    lines = laid_out("", f'CONSTANTS["{name}"].view(jnp.bfloat16)', ",", " " * 12)
    assert [line.strip() for line in lines] == ["CONSTANTS[", f'"{name}"', "].view(jnp.bfloat16),"]


def test_a_function_whose_result_is_a_constant(tmp_path):
    function = '<domain: "my", opset_import: ["": 17]> F (x) => (y) { y = Constant<value = int64[2] {1, 2}>() }'
    model = jaxops.onnx.load(model_of("m (float[2] x) => (y) { y = my.F(x) }", extra=', "my" : 1', functions=function))
    model.to_python(tmp_path / "net")
    package = imported(tmp_path / "net")
    assert package.apply(package.load_params(), X[0, 0, :2]).tolist() == [1, 2]


def test_a_model_without_outputs(tmp_path):
    model = jaxops.onnx.load(model_of("m (float[2] x) => () { y = Neg(x) }"))
    model.to_python(tmp_path / "net")
    assert imported(tmp_path / "net").apply({}, X[0, 0, :2]) == model(X[0, 0, :2]) == ()
