"""`Model.to_python`: the package gives what the model gives, and is as tidy as if somebody had written it."""

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import jaxops.onnx
from jaxops.errors import DTypeError, ShapeError, SignatureError, UnsupportedError

MODELS = Path(__file__).parents[2] / "models"
NAMES = sorted(path.name.removesuffix(".onnx") for path in MODELS.glob("*.onnx"))


def imported(folder):
    """The package in a folder."""
    spec = importlib.util.spec_from_file_location(folder.name, folder / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(folder):
    return (folder / "__init__.py").read_text(encoding="utf-8")


def same(got, expected):
    """Asserts that two results are equal, bit for bit."""
    pairs = list(zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True))
    assert pairs
    for one, other in pairs:
        assert np.asarray(one).dtype == np.asarray(other).dtype
        if np.asarray(one).dtype == object:
            assert np.asarray(one).tolist() == np.asarray(other).tolist()
        else:
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def alike(got, expected):
    """Asserts that two results differ by rounding at most: the passes see a program of operators otherwise than one of
    a model, and XLA fuses its loops otherwise."""
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def quickly(fn, *args):
    """What a function gives when it is compiled with little effort."""
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(fn).lower(*args).compile(compiler_options=options)(*args)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """All models of the tests, written: name → (folder, model)."""
    root = tmp_path_factory.mktemp("packages")
    found = {}
    for name in NAMES:
        model = jaxops.onnx.load(MODELS / f"{name}.onnx")
        folder = root / name.replace(".", "_")
        model.to_python(folder)
        found[name] = folder, model
    return found


def inputs_of(name):
    values = np.load(MODELS / f"{name.split('.')[0]}.npz")
    return [values[key] for key in values if key.startswith("in:")]


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_the_model(packages, name):
    folder, model = packages[name]
    package, inputs = imported(folder), inputs_of(name)
    alike(quickly(package.apply, package.load_params(), *inputs), quickly(model.apply, model.params, *inputs))


@pytest.mark.parametrize("name", ["bert.script", "gpt2.dynamo"])
def test_other_sizes_than_those_of_the_example(packages, name):
    folder, model = packages[name]
    inputs = [np.concatenate([x, x[:1]]) for x in inputs_of(name)]  # a larger batch, and a longer sequence
    inputs[:2] = [np.concatenate([x, x[:, :1]], axis=1) for x in inputs[:2]]
    package = imported(folder)
    alike(quickly(package.apply, package.load_params(), *inputs), quickly(model.apply, model.params, *inputs))


def test_sizes_keep_apart_from_inputs_and_from_each_other(tmp_path):
    proto = model_of(
        "m (float[N,n,x] x, float[batch] batch) => (float[P] y, int64[R] s) { s = Shape(x) k = "
        "Constant<value_ints = [-1]>() a = Reshape(x, k) y = Concat<axis = 0>(a, batch) }"
    )
    model = jaxops.onnx.load(proto)
    model.to_python(tmp_path / "net")
    assert "n, n_2, x_2 = x.shape" in text_of(tmp_path / "net")
    same(jax.jit(imported(tmp_path / "net").apply)({}, X, X[0, 0]), jax.jit(model.apply)({}, X, X[0, 0]))


def test_another_weight_would_be_noticed(packages):
    folder, model = packages["resnet.script"]
    package, inputs = imported(folder), inputs_of("resnet")
    params = jax.tree.map(lambda w: w * 1.0001, package.load_params())
    with pytest.raises(AssertionError):
        same(package.apply(params, *inputs), model(*inputs))


def test_ruff_and_pyright_find_nothing(packages):
    root = next(iter(packages.values()))[0].parent
    for command in (["ruff", "check", "--isolated"], ["ruff", "format", "--isolated", "--check"], ["pyright"]):
        tool = Path(sys.executable).parent / command[0]
        options = ["--pythonpath", sys.executable] if command[0] == "pyright" else []
        done = subprocess.run(
            [tool, *command[1:], *options, "."], capture_output=True, text=True, cwd=root, check=False
        )
        assert done.returncode == 0, done.stdout


def test_a_model_after_astype(tmp_path):
    model = jaxops.onnx.load(MODELS / "bert.script.onnx").astype(jnp.bfloat16)
    model.to_python(tmp_path / "net")
    package, inputs = imported(tmp_path / "net"), inputs_of("bert")
    alike(quickly(package.apply, package.load_params(), *inputs), quickly(model.apply, model.params, *inputs))
    for command in (["ruff", "check", "--isolated"], ["ruff", "format", "--isolated", "--check"]):
        tool = Path(sys.executable).parent / command[0]
        done = subprocess.run([tool, *command[1:], "."], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout


def test_conversions_keep_what_is_finite(tmp_path):
    """As `astype` does it: a mask's minimum stays finite, a table stays as it is in its file."""
    table = np.array([-1e38, 1.0], np.float32).repeat(35).reshape(5, 7, 2)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 7, 2]) for name in "xy"]
    constant = helper.make_tensor("t", TensorProto.FLOAT, table.shape, table.reshape(-1))
    graph = helper.make_graph([helper.make_node("Add", ["x", "t"], ["y"])], "m", info[:1], info[1:], [constant])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    loaded = jaxops.onnx.load(proto, static=["t"]).astype(np.float16)
    loaded.to_python(tmp_path / "net")
    package, x = imported(tmp_path / "net"), np.ones((5, 7, 2), np.float16)
    same(package.apply(package.load_params(), x), loaded(x))
    assert np.isfinite(np.asarray(loaded(x))).all()


def test_it_runs_without_onnx(packages, tmp_path):
    folder, model = packages["bert.dynamo"]
    np.savez(tmp_path / "in.npz", *inputs_of("bert"))
    program = (
        "import sys; sys.modules['onnx'] = None; sys.path.insert(0, sys.argv[1])\n"
        "import bert_dynamo, jax, numpy as np\n"
        "inputs = np.load(sys.argv[2] + '/in.npz')\n"
        "y = jax.jit(bert_dynamo.apply)(bert_dynamo.load_params(), *inputs.values())\n"
        "np.save(sys.argv[2] + '/out.npy', y)\n"
        "assert not any(name.startswith(('jaxops.onnx', 'google.protobuf')) for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, folder.parent, tmp_path], check=True)
    alike(np.load(tmp_path / "out.npy"), jax.jit(model.apply)(model.params, *inputs_of("bert")))


def test_repeated_layers_are_one_function(packages):
    text = text_of(packages["bert.dynamo"][0])
    assert text.count("def layer(") == 1
    assert text.count("layer_out = layer(") + text.count("return layer(") == 2
    assert '"""model.bert.encoder.layer.*: float32[batch, sequence, 16]."""' in text
    assert 'params["layer"]["0"]' in text
    assert 'params["layer"]["1"]' in text


def test_shape_arithmetic_becomes_arithmetic_on_sizes(packages):
    text = text_of(packages["bert.script"][0])
    assert "jo.shape(" not in text
    assert "batch, sequence, _ = x.shape" in text
    assert "Sizes: sequence <= 32." in text


def test_params_are_nested_and_may_be_others(packages, tmp_path):
    _, model = packages["resnet.script"]
    tuned = {name: w * 2 for name, w in model.params.items()}
    model.to_python(tmp_path / "tuned", tuned)
    package = imported(tmp_path / "tuned")
    same(jax.jit(package.apply)(package.load_params(), *inputs_of("resnet")), model.apply(tuned, *inputs_of("resnet")))


F = np.float32
X = np.linspace(-2, 3, 24, dtype=F).reshape(2, 3, 4)


def model_of(body, opset=17, extra="", functions=""):
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{extra}]>\n{body}\n{functions}')


# name → (model, inputs, a line of the source).
CASES = {
    "softmax over the rest": (
        model_of("m (float[N,3,4] x) => (float[N,3,4] y) { y = Softmax<axis = 1>(x) }", 9),
        [X],
        "return opset9.Softmax(x)",
    ),
    "broadcast from an axis": (
        model_of("m (float[2,3,4] x, float[3] b) => (float[2,3,4] y) { y = Add<broadcast = 1, axis = 1>(x, b) }", 6),
        [X, np.ones(3, F)],
        "return opset6.Add(x, b, axis=1, broadcast=1)",
    ),
    "clip by attributes": (
        model_of("m (float[N] x) => (float[N] y) { y = Clip<min = 0.1>(x) }", 6),
        [X[0, 0]],
        "return jo.clip(x, 0.1, 3.4028235e38)",
    ),
    "even split": (
        model_of("m (float[2,3,4] x) => (float[2,3,2] y, float[2,3,2] z) { y, z = Split<axis = 2>(x) }", 13),
        [X],
        "y, z = opset13.Split(x, axis=2, n_outputs=2)",
    ),
    "an output left out": (
        model_of("m (float[N,4] x) => (float[N,1] y) { k = Constant<value_ints = [1]>() y, i = TopK(x, k) }"),
        [X[0]],
        "y, _ = jo.top_k(x, (1,))",
    ),
    "upsample": (
        model_of(
            "m (float[1,2,3,4] x) => (float[1,2,6,4] y) "
            "{ s = Constant<value = float[4] {1., 1., 2., 1.}>() y = Upsample(x, s) }",
            9,
        ),
        [X[None]],
        "return opset9.Upsample(x, np.array([1.0, 1.0, 2.0, 1.0], np.float32))",
    ),
    "dropout that is not training": (
        model_of("m (float[N,4] x) => (float[N,4] y) { y = Dropout(x) }"),
        [X[0]],
        "return jo.dropout(x)",
    ),
    "branches": (
        model_of(
            "m (float[N,4] x, bool c) => (float[N,4] y) { y = If<then_branch = t () => (float[N,4] a) { b = Mul(x, x) "
            "a = Relu(b) }, else_branch = e () => (float[N,4] a) { a = Neg(x) }>(c) }"
        ),
        [X[0], np.array(True)],
        "(y,) = jo.if_(c, then_branch, else_branch)",
    ),
    "loop": (
        model_of(
            "m (float[4] x) => (float[4] y, float[T,4] rows) { n, t = Split<num_outputs = 2>(x) m = Constant<value_int "
            "= 3>() u = Constant<value = bool {1}>() y, rows = Loop<body = b (int64 i, bool k, float[4] v) => (bool k2,"
            " float[4] v2, float[4] r) { k2 = Identity(k) v2 = Add(v, v) r = Mul(v, x) }>(m, u, x) }",
            18,
        ),
        [X[0, 0]],
        "y, rows = jo.loop(3, np.array(True), [x], body)",
    ),
    "scan": (
        model_of(
            "m (float[4] s, float[T,4] x) => (float[4] y, float[T,4] rows) { y, rows = Scan<num_scan_inputs = 1, body ="
            " b (float[4] v, float[4] u) => (float[4] w, float[4] r) { w = Add(v, u) r = Mul(w, u) }>(s, x) }"
        ),
        [X[0, 0], X[1]],
        "y, rows = jo.scan([s, x], body, num_scan_inputs=1)",
    ),
    "com.microsoft": (
        model_of(
            "m (float[N,4] x) => (float[N,4] y) { w = Constant<value = float[4] {1., 2., 3., 4.}>() "
            "y = com.microsoft.BiasGelu(x, w) }",
            extra=', "com.microsoft" : 1',
        ),
        [X[0]],
        'return jo.microsoft.bias_gelu(x, params["w"])',
    ),
    "functions of the model": (
        model_of(
            "m (float[N,4] x) => (float[N,4] y) { a = my.Half<k = 2.0>(x) y = my.Half<k = 3.0>(a) }",
            extra=', "my" : 1',
            functions='<domain: "my", opset_import: ["" : 17]> Half <k> (x) => (y) '
            "{ c = Constant<value_float: float = @k>() d = Mul(x, c) y = Relu(d) }",
        ),
        [X[0]],
        "return half_2(half_out)",
    ),
    "a function of the standard": (
        model_of("m (float[2,3,4] x) => (float[2,3,4] y) { y = MeanVarianceNormalization<axes = [0, 2]>(x) }"),
        [X],
        "return jo.mean_variance_normalization(x, axes=(0, 2))",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_source(tmp_path, name):
    proto, inputs, line = CASES[name]
    model = jaxops.onnx.load(proto)
    model.to_python(tmp_path / "net")
    assert line in text_of(tmp_path / "net")
    package = imported(tmp_path / "net")
    alike(quickly(package.apply, package.load_params(), *inputs), quickly(model.apply, model.params, *inputs))


def test_strings_and_static_inputs_stay_static(tmp_path):
    proto = model_of(
        "m (string[N] x, int64[K] s, float[N,4] v) => (string[N] y, float[P,Q] w) "
        '{ t = Constant<value_strings = ["a", "b\\"c"]>() y = StringConcat(x, t) w = Reshape(v, s) }',
        20,
    )
    jaxops.onnx.load(proto).to_python(tmp_path / "net")
    found = imported(tmp_path / "net").apply({}, np.array(["u", "v"], object), (4, 2), X[0, :2])
    assert found.y.tolist() == ["ua", 'vb"c']
    np.testing.assert_array_equal(found.w, X[0, :2].reshape(4, 2))


def test_a_large_static_array_goes_to_a_file(tmp_path):
    table = np.random.default_rng(0).integers(0, 9, (3, 40))
    node = helper.make_node("Add", ["x", "t"], ["y"])
    info = [helper.make_tensor_value_info(name, TensorProto.INT64, [3, 40]) for name in "xy"]
    constant = helper.make_tensor("t", TensorProto.INT64, table.shape, table.reshape(-1))
    graph = helper.make_graph([node], "m", info[:1], info[1:], [constant])
    model = jaxops.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    model.to_python(tmp_path / "net")
    assert 'jo.add(x, CONSTANTS["t"])' in text_of(tmp_path / "net")
    np.testing.assert_array_equal(imported(tmp_path / "net").apply({}, table), table * 2)


def test_random_operators_draw_the_same_numbers(tmp_path):
    proto = model_of("m (float[N,4] x) => (float[N,4] y) { a = RandomNormalLike(x) y = Add(a, x) }")
    model, key = jaxops.onnx.load(proto), jax.random.key(3)
    model.to_python(tmp_path / "net")
    same(jax.jit(imported(tmp_path / "net").apply)({}, X[0], rng=key), model.apply({}, X[0], rng=key))


def test_operators_of_ones_own_are_imported(tmp_path, monkeypatch):
    (tmp_path / "own_functions.py").write_text("def scaled(x, *, by):\n    return x * by\n")
    monkeypatch.syspath_prepend(tmp_path)
    import own_functions  # pyright: ignore[reportMissingImports]

    proto = model_of("m (float[N,4] x) => (float[N,4] y) { y = my.Scaled<by = 2.0>(x) }", extra=', "my" : 1')
    model = jaxops.onnx.load(proto, operators={("my", "Scaled"): own_functions.scaled})
    model.to_python(tmp_path / "net")
    text = text_of(tmp_path / "net")
    assert '"""Returns y: float32[N, 4].\n' in text
    assert "return own_functions.scaled(x, by=2.0)" in text
    same(imported(tmp_path / "net").apply({}, X[0]), X[0] * 2)


def test_errors(tmp_path):
    own = "m (float[N,4] x) => (float[N,4] y) { y = my.Scaled<by = 2.0>(x) }"
    model = jaxops.onnx.load(model_of(own, extra=', "my" : 1'), operators={("my", "Scaled"): lambda x, by: x * by})
    with pytest.raises(
        UnsupportedError, match=r"node 'y' \(Scaled, of my.*which cannot be imported\n.*top of a module"
    ):
        model.to_python(tmp_path / "net")
    model = jaxops.onnx.load(
        model_of(own, extra=', "my" : 1'), operators={("my", "Scaled"): functools.partial(lambda x, by: x * by)}
    )
    with pytest.raises(
        UnsupportedError, match=r"partial.*, which has no name and cannot be imported\n.*top of a module"
    ):
        model.to_python(tmp_path / "net")
    branches = (
        "m (float[N,4] x, bool c) => (float[N,4] y) { y = If(c) <then_branch = a () => (float[N,4] p) { p = Relu(x) }, "
        "else_branch = b () => (float[N,4] q) { q = Neg(x) }> }"
    )
    with pytest.raises(
        UnsupportedError, match=r"node 'y' \(If, opset 18, in bfloat16\) has subgraphs\n.*as it was load"
    ):
        jaxops.onnx.load(model_of(branches, 18)).astype(jnp.bfloat16).to_python(tmp_path / "net")
    resnet = jaxops.onnx.load(MODELS / "resnet.script.onnx")
    name, weight = next(iter(resnet.params.items()))
    with pytest.raises(ShapeError, match=f"to_python: '{name}' has shape .* but the model has"):
        resnet.to_python(tmp_path / "net", {**resnet.params, name: weight[:1]})
    with pytest.raises(DTypeError, match=rf"to_python: '{name}' is float16, .*\n.*astype\(jnp.float32\)"):
        resnet.to_python(tmp_path / "net", {**resnet.params, name: weight.astype(np.float16)})
    with pytest.raises(SignatureError, match="params: the model has no 'other'"):
        resnet.to_python(tmp_path / "net", {**resnet.params, "other": weight})
