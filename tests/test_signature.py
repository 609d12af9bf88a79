"""Tools go by what an operator says of itself, so a new operator is right in each of them without another edit."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, model, node, tensor

import jaxops as jo
from jaxops import ops
from jaxops.frontend.needs_x64 import needs_x64
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.graph.nodes import Graph, Node, Tensor, Value
from jaxops.onnx import load
from jaxops.onnx.registry import DOMAINS
from jaxops.signature import (
    AllBits,
    Bias,
    Cache,
    FourthOutput,
    SecondOutput,
    Traits,
    UpperBound,
    Weight,
    operator,
    role,
    traits,
)
from jaxops.static import Array
from jaxops.tools.convert.astype import converted
from jaxops.tools.generate.cache_inputs import windows_of
from jaxops.tools.inspect.parameter_paths import paths
from jaxops.tools.plot.blocks import blocks

RNG = np.random.default_rng(0)
W, B = np.float32(RNG.normal(size=(3, 3))), np.float32(RNG.normal(size=3))


@operator(kind="convolution", precision="float32", foldable=True)
def mixed(x: Array, kernel: Weight[Array], shift: Bias[Array] | None = None):
    """A layer that no front end and no tool has heard of."""
    product = jo.matmul(x, kernel)
    return product if shift is None else jo.add(product, shift)


@operator(grows=True, differentiable=False)
def tripled(x):
    return 3 * x


@operator(precision="exact")
def counted(x, edges: Weight[Array]):
    return jnp.searchsorted(edges, x).astype(x.dtype)


def digest(x: AllBits[Array], most: UpperBound[Array]):
    return jnp.minimum(x, most)


OWN = {("my", "Mixed"): mixed, ("my", "Tripled"): tripled, ("my", "Counted"): counted, ("my", "Digest"): digest}


def loaded(text, **options):
    return load(model(text, imports=', "my" : 1', **options), operators=OWN)


def own_layer():
    layer = node("Mixed", ["x", "onnx::Mixed_7", "onnx::Mixed_8"], ["h"], node_name="/encoder/mix/Mixed", domain="my")
    ends = node("Relu", ["h"], ["y"])
    parameters = [tensor(W, "onnx::Mixed_7"), tensor(B, "onnx::Mixed_8")]
    return load(build(layer, ends, initializers=parameters, opsets=[("", 18), ("my", 1)]), operators=OWN)


def kinds(graph, params):
    return {block.name: block.kind for block in blocks(graph, params, 3).inside}


def test_kind_and_roles_of_an_operator_of_the_caller():
    found = own_layer()
    assert found.paths["onnx::Mixed_7"] == "encoder.mix.weight"
    assert found.paths["onnx::Mixed_8"] == "encoder.mix.bias"
    assert kinds(found.graph, found.params)["Mixed"] == "convolution"
    assert "#d5efe3" in found.plot().svg  # the colour of convolutions
    assert any("encoder.mix" in row and " 12 " in row for row in str(found.summary()).splitlines())


def test_precision_of_an_operator_of_the_caller():
    narrow = own_layer().astype("bfloat16")
    assert [(n.operator.name, n.operator.type.name) for n in narrow.graph.nodes] == [
        ("Mixed", "float32"),
        ("Relu", "bfloat16"),
    ]
    kept = own_layer().astype("bfloat16", keep=lambda label, name: False)
    assert {n.operator.type.name for n in kept.graph.nodes} == {"bfloat16"}
    text = "main (float[N] x) => (float[N] y) <float[3] edges = {1, 259, 300}> { y = my.Counted(x, edges) }"
    exact = loaded(text).astype("bfloat16", keep=lambda label, name: False)
    assert exact.params["edges"].dtype == np.float32
    assert exact(jnp.bfloat16([260])).astype(np.float32).tolist() == [2]  # 259 would be 260


def test_growth_of_an_operator_of_the_caller():
    assert loaded("main (int64[N] x) => (int64[N] y) { y = my.Tripled(x) }").x64
    assert not loaded("main (int32[N] x) => (int32[N] y) { y = my.Tripled(x) }").x64
    assert not loaded("main (int64[N] x, float[3] e) => (int64[N] y) { y = my.Counted(x, e) }").x64
    assert loaded("main (int64[N] x, int64[N] most) => (int64[N] y) { y = my.Digest(x, most) }").x64
    whole = "<int64 most = {9223372036854775807}> { y = my.Digest(x, most) }"
    assert not loaded(f"main (int32[N] x) => (int32[N] y) {whole}").x64


def test_an_operator_of_the_caller_folds():
    text = "main (float[N,3] x) => (float[3] y) <float[3,3] w> { s = Shape(x) f = CastLike(s, x) y = my.Mixed(f, w) }"
    assert loaded(text.replace(" <float[3,3] w>", ""), initializers={"w": W}).graph.nodes[-1].operator.foldable


def neutral():
    """A graph of another front end: whatever its file says, its operators are functions."""
    nodes = (
        Node(SignatureOperator("Blend", mixed), "b", ("x", "w", "c"), ("h",), {}, scope="encoder.blend"),
        Node(SignatureOperator("Root", jo.sqrt), "r", ("h",), ("y",), {}),
    )
    values = [Value(name, np.dtype(np.float32), ("N", 3)) for name in "xy"]
    return Graph("g", (values[0],), (values[1],), nodes, {}, params={"w": "p.1", "c": "p::2"})


def test_marks_serve_another_front_end():
    graph = neutral()
    params = {"p.1": jnp.asarray(W), "p::2": jnp.asarray(B)}
    tensors = {name: Tensor(x.dtype, x.shape, lambda x=x: np.asarray(x)) for name, x in params.items()}
    assert paths(graph).names["p::2"] == "encoder.blend.bias"
    assert kinds(graph, params)["Blend"] == "convolution"
    narrow = converted(graph, graph.inputs, (), tensors, params, "bfloat16", None)
    assert [n.operator.type.name for n in narrow.graph.nodes] == ["float32", "bfloat16"]


@pytest.mark.parametrize(("fn", "expected"), [(tripled, True), (counted, False), (jo.add, True), (jo.concat, False)])
def test_growth_serves_another_front_end(fn, expected):
    value = Value("x", np.dtype(np.int64), (3,))
    nodes = (Node(SignatureOperator("Any", fn), "a", ("x", "x"), ("y",), {}),)
    graph = Graph("g", (value,), (Value("y", None, None),), nodes, {})
    assert needs_x64(graph, {}, {"x": False}) is expected


def test_caches_are_found_by_their_marks():
    def attend(q, past: Cache[Array], *, sliding_window_cache: int, local_window_size: int): ...

    given = {"sliding_window_cache": 1, "local_window_size": 4}
    nodes = (Node(SignatureOperator("Attend", attend), "a", ("q", "past.0"), ("y",), given),)
    assert windows_of(Graph("g", (), (), nodes, {})) == {"past.0": 4}


@pytest.mark.parametrize(("n_outputs", "flags"), [(1, ()), (2, ("more",)), (3, ("more",)), (4, ("more", "scores"))])
def test_flags_follow_from_the_number_of_outputs(n_outputs, flags):
    def attend(x, *, scale: float = 1.0, more: SecondOutput = False, scores: FourthOutput = False):
        return x, scale, *(name for name, flag in (("more", more), ("scores", scores)) if flag)

    found = SignatureOperator("Attend", attend).call([3], {"scale": 2.0}, n_outputs=n_outputs, rng=None)
    assert found == (3, 2.0, *flags)


def test_each_flag_of_further_outputs_is_marked():
    flags = [
        (fn.__name__, name)
        for fn in FUNCTIONS
        for name, p in inspect.signature(fn).parameters.items()
        if name.startswith("return_") and p.annotation not in (SecondOutput, FourthOutput)
    ]
    assert flags == []


def test_marks_of_a_file_and_of_none():
    assert traits(ops.conv) == Traits(kind="convolution")
    assert traits(ops.lrn) == Traits(kind="normalization")
    assert traits(None) == traits(len) == Traits()
    assert traits(lambda x: x) == Traits()
    assert [role(ops.sum, k) for k in (0, 5)] == ["bias", "bias"]
    assert role(None, 0) is None
    with pytest.raises(TypeError, match="color"):
        operator(color="red")(lambda x: x)


# Parameters whose names say what they are for, …
NAMES = {"w": "weight", "weight": "weight", "weights": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}
# … and operands that have such a name and are none: weights of classes, gates, a second bias.
OPERANDS = {
    *("negative_log_likelihood_loss.weight", "softmax_cross_entropy_loss.weights", "linear_attention.beta"),
    *("gated_delta_net.beta", "skip_group_norm.bias", "skip_layer_normalization.bias"),
    "skip_simplified_layer_normalization.bias",
}


def without_role(fn):
    """The parameters of an operator whose names say a role that its signature does not."""
    inputs = [p.name for p in inspect.signature(fn).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    return {f"{fn.__name__}.{name}" for k, name in enumerate(inputs) if name in NAMES and role(fn, k) != NAMES[name]}


FUNCTIONS = [getattr(module, name) for module in DOMAINS.values() for name in module.__all__]


def test_parameters_have_the_roles_that_their_names_say():
    assert {name for fn in FUNCTIONS for name in without_role(fn)} == OPERANDS


def test_an_operator_with_a_weight_says_its_kind():
    weighted = {
        fn for fn in FUNCTIONS if "weight" in [role(fn, k) for k in range(len(inspect.signature(fn).parameters))]
    }
    assert len(weighted) > 50
    assert {fn.__name__ for fn in weighted if not traits(fn).kind} == {"mul", "gated_relative_position_bias"}


def test_a_forgotten_role_is_found():
    def layer(x, weight, bias: Bias[Array], gamma: Bias[Array]): ...

    assert without_role(layer) == {"layer.weight", "layer.gamma"}
