"""The door is open to any format: a toy goes through all that a model can do, and no ONNX is near."""

import copy
import importlib.util
import pickle
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import toy_format
from toy_format import load, write

from jaxops.errors import ArgumentError, ModelError, PathError, SignatureError, StaticError, UnsupportedError

RNG = np.random.default_rng(3)
W = {
    "net.fc.weight": RNG.normal(size=(4, 8)).astype(np.float32),
    "net.fc.bias": RNG.normal(size=8).astype(np.float32),
    "net.norm.weight": np.linspace(0.5, 1.5, 8).astype(np.float32),
    "split": np.int64([0, -1]),
}
# Not in order: `h` is read before it is made.
NET = {
    "name": "toy",
    "inputs": {"x": ["float32", ["batch", 4]]},
    "outputs": ["y"],
    "nodes": [
        {"op": "layer_normalization", "name": "/net/norm/norm", "in": ["h", "net.norm.weight"], "out": ["n"]},
        {"op": "add", "name": "/net/fc/add", "in": ["p", "net.fc.bias"], "out": ["h"]},
        {"op": "matmul", "name": "/net/fc/matmul", "in": ["x", "net.fc.weight"], "out": ["p"]},
        {"op": "gelu", "name": "/net/gelu", "in": ["n"], "out": ["g"], "with": {"approximate": "tanh"}},
        {"op": "reshape", "in": ["g", "split"], "out": ["r"]},
        {"op": "concat", "in": ["r", "h"], "out": ["c"], "with": {"axis": 1}},
        {"op": "softmax", "in": ["c"], "out": ["y"]},
    ],
}
X = RNG.normal(size=(3, 4)).astype(np.float32)


def by_hand(x, params):
    h = x @ params["net.fc.weight"] + params["net.fc.bias"][None]
    centred = h - h.mean(-1, keepdims=True)
    n = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * params["net.norm.weight"][None]
    return jax.nn.softmax(jnp.concatenate([jax.nn.gelu(n, approximate=True), h], 1))


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "net.toy", NET, W)
    return tmp_path / "net.toy"


@pytest.fixture
def net(path):
    return load(path)


def small(tmp_path, nodes, inputs, outputs=("y",), tensors=None):
    """A toy of these nodes, `name = op a b` each; a tuple adds attributes."""
    written = []
    for node in nodes:
        text, attributes = node if isinstance(node, tuple) else (node, {})
        made, _, rest = text.partition(" = ")
        op, *read = rest.split()
        written.append({"op": op, "in": read, "out": made.split(), "with": attributes})
    content = {"inputs": inputs, "outputs": list(outputs), "nodes": written}
    write(tmp_path / "small.toy", content, tensors or {})
    return tmp_path / "small.toy"


def test_it_runs_alone_and_inside_every_transformation(net):
    expected = by_hand(X, W)
    np.testing.assert_allclose(net(X), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(net.apply)(net.params, X), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(lambda x: net(x[None])[0])(X), expected, rtol=1e-5)
    loss = lambda params: jnp.sum(net.apply(params, X)[:, 0])  # noqa: E731
    found, wanted = jax.grad(loss)(net.params), jax.grad(lambda p: jnp.sum(by_hand(X, p)[:, 0]))(net.params)
    assert found.keys() == {"net.fc.weight", "net.fc.bias", "net.norm.weight"}  # what shapes are made of is no weight
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, wanted[name], rtol=1e-4, atol=1e-6)


def test_one_program_for_all_sizes(net):
    exported = net.export()
    for batch in (1, 5):
        x = np.resize(X, (batch, 4))
        np.testing.assert_allclose(exported.call(net.params, x), by_hand(x, W), rtol=1e-5)


def test_what_people_look_at(net):
    assert "y = softmax(c)" in net.show()
    assert "model toy · toy 1" in str(net)
    assert net.paths["/net/fc/matmul"] == "net.fc"
    assert net.paths["net.fc.bias"] == "net.fc.bias"
    assert net.nest(net.params)["net"]["fc"]["bias"].shape == (8,)
    rows = {row.module: row for row in net.summary(X).rows}
    assert (rows["norm"].output, rows["norm"].parameters) == ("float32[3, 8]", 8)
    assert (rows["fc"].nodes, rows["fc"].parameters) == (2, 40)
    pytest.importorskip("igraph")
    texts = re.findall(r">([^<]+)</text>", net.plot(X, depth=2).svg)
    assert {"norm", "fc", "linear", "normalization", "3×16"} <= set(texts)  # kinds come from the functions


def test_narrow_numbers(net):
    narrow = net.astype(jnp.bfloat16)
    assert narrow(X.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    assert narrow.params["net.fc.weight"].dtype == jnp.bfloat16
    labels = {node.label: node.operator.label for node in narrow.graph.nodes}
    assert labels["/net/norm/norm"] == "layer_normalization, in float32"  # the function says so, no name
    assert labels["/net/fc/matmul"] == "matmul, in bfloat16"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(net, copied):
    np.testing.assert_array_equal(copied(net)(X), net(X))


def test_it_is_saved_with_other_weights(net, tmp_path):
    halved = {name: value / 2 for name, value in net.params.items()}
    net.save(tmp_path / "half.toy", halved)
    np.testing.assert_allclose(load(tmp_path / "half.toy")(X), by_hand(X, halved), rtol=1e-5)
    with pytest.raises(UnsupportedError, match="compare: nothing but jaxops runs a toy"):
        net.compare(X)
    (tmp_path / "half.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"tensor 'net.fc.weight': weights 'half.bin': bytes 0 to 128 go past"):
        load(tmp_path / "half.toy")


def test_it_becomes_python(net, tmp_path):
    pytest.importorskip("safetensors")
    net.to_python(tmp_path / "package")
    spec = importlib.util.spec_from_file_location("package", tmp_path / "package/__init__.py")
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    np.testing.assert_allclose(package.apply(package.load_params(), X), net(X), rtol=1e-5)


def test_options_do_what_they_do_elsewhere(path):
    assert load(path, sizes={"batch": 3}).inputs[0].shape == (3, 4)
    assert load(path, static=["net.fc.bias"]).params.keys() == {"net.fc.weight", "net.norm.weight"}
    assert load(path, trainable={"net.fc.bias": False}).trainable["net.fc.bias"] is False
    doubled = load(path, operators={("toy", "softmax"): lambda x: 2 * x})
    assert doubled(X).max() > 1
    with pytest.raises(ArgumentError, match="sizes: no input has a size named 'length'; the names are 'batch'"):
        load(path, sizes={"length": 3})
    with pytest.raises(TypeError, match=r"load\(\) got an unexpected keyword argument 'external_data'"):
        load(path, external_data="here")
    assert "weights: the folder of its weights." in load.__doc__
    assert 'sizes={"sequence": 128}' in load.__doc__


def test_weights_lie_beside_the_file_or_where_the_caller_says(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "net.bin").rename(tmp_path / "elsewhere/net.bin")
    with pytest.raises(ModelError, match=r"weights 'net.bin' is missing: .*give .* load\(…, weights=folder\)"):
        load(path)
    np.testing.assert_allclose(load(path, weights=tmp_path / "elsewhere")(X), by_hand(X, W), rtol=1e-5)
    with pytest.raises(PathError, match=r"load: `weights` '.*nowhere' is not a folder"):
        load(path, weights=tmp_path / "nowhere")
    (tmp_path / "net.bin").symlink_to("/etc/hostname")
    with pytest.raises(ModelError, match=r"weights 'net.bin' lies outside the model's folder"):
        load(path)


def test_what_a_file_must_not_say(tmp_path):
    x = {"x": ["float32", [2]]}
    for nodes, error, text in [
        (["y = add x z", "z = relu y"], ModelError, "the graph has a cycle"),
        (["y = add x q"], ModelError, "reads 'q', which nothing defines"),
        (["y = swish x"], UnsupportedError, "the toy has no operator swish"),
        (["y = relu x x x"], SignatureError, "relu: too many positional arguments; the node has 3 inputs"),
        ([("y = softmax x", {"axes": 1, "base": 2})], SignatureError, "softmax: got an unexpected keyword .*'base'"),
    ]:
        with pytest.raises(error, match=text):
            load(small(tmp_path, nodes, x))


def test_an_input_is_declared_as_its_default_is(tmp_path):
    with pytest.raises(ModelError, match=r"the input x: float32.2. has an initializer of another type or shape"):
        load(small(tmp_path, ["y = relu x"], {"x": ["float32", [2]]}, tensors={"x": np.zeros(3, np.float32)}))


def test_values_that_must_be_static(tmp_path):
    path = small(tmp_path, ["y = reshape x sizes"], {"x": ["float32", [6]], "sizes": ["int64", [2]]})
    found = load(path)
    assert found.inputs[1].static == "reshape 'y' `shape`"
    assert found(np.ones(6, np.float32), np.int64([2, 3])).shape == (2, 3)
    with pytest.raises(StaticError, match="input 'sizes' must be known while tracing"):
        jax.jit(found)(np.ones(6, np.float32), np.int64([2, 3]))


def test_a_size_that_depends_on_data_cuts_the_call(tmp_path):
    found = load(small(tmp_path, ["y = nonzero m", "m = relu x"], {"x": ["float32", ["n"]]}))
    assert found.cuts == {"y": "nonzero: the size of the result depends on `x`"}
    assert found(np.float32([0, 2, -1, 3])).tolist() == [[1, 3]]


def test_a_graph_in_a_node_reads_what_is_around_it(tmp_path):
    branch = {"inputs": {}, "outputs": ["b"]}
    then = {**branch, "nodes": [{"op": "mul", "in": ["x", "two"], "out": ["b"]}]}
    other = {**branch, "nodes": [{"op": "relu", "in": ["x"], "out": ["b"]}]}
    nodes = [("y = if_ c", {"then_branch": then, "else_branch": other}), "c = less total limit", "total = reduce_sum x"]
    nodes[2] = ("total = reduce_sum x", {"keepdims": 0})
    path = small(tmp_path, nodes, {"x": ["float32", [2]]}, tensors={"two": np.float32(2), "limit": np.float32(0)})
    found = jax.jit(load(path))
    assert found(np.float32([1, -3])).tolist() == [2, -6]
    assert found(np.float32([4, -3])).tolist() == [4, 0]
    then["outputs"] = ["b", "x"]
    with pytest.raises(ModelError, match="if_: the graph `then_branch` has 2 outputs, but the node hands over 1"):
        load(small(tmp_path, nodes, {"x": ["float32", [2]]}, tensors={"two": np.float32(2), "limit": np.float32(0)}))


def test_the_gradient_of_a_norm_at_zero(tmp_path):
    nodes = ["s = mul x x", ("t = reduce_sum s", {"keepdims": 0}), "y = sqrt t"]
    found = load(small(tmp_path, nodes, {"x": ["float32", [3]]}))
    assert jax.grad(found)(np.zeros(3, np.float32)).tolist() == [0, 0, 0]
    np.testing.assert_allclose(jax.grad(found)(np.float32([3, 4, 0])), [0.6, 0.8, 0])


@pytest.mark.parametrize(("op", "expected"), [("mul", True), ("gather", False)])
def test_integers_that_may_outgrow_32_bits(tmp_path, op, expected):
    found = load(small(tmp_path, [f"y = {op} x i"], {"x": ["int64", [3]], "i": ["int64", [3]]}))
    assert found.x64 is expected
    assert load(small(tmp_path, [f"y = {op} x i"], {"x": ["int64", [3]], "i": ["int64", [3]]}), x64=False).x64 is False


def test_random_numbers_follow_the_key(tmp_path):
    found = load(small(tmp_path, ["y = random_normal_like x"], {"x": ["float32", [3]]}))
    one, again, other = (found(np.zeros(3, np.float32), rng=jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_no_onnx_is_imported(path):
    program = (
        f"import sys; sys.path.insert(0, {str(Path(toy_format.__file__).parent)!r}); from toy_format import load; "
        f"load({str(path)!r}).summary(sizes={{'batch': 2}}); "
        "print([m for m in sys.modules if m == 'onnx' or m.startswith(('jaxops.onnx', 'jaxops.openvino'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200)
    assert done.stdout.strip() == "[]"
