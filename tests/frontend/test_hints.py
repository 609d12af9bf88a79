"""Hints for users who have a file alone: what to pass to `load`, by the names in the file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, model, node, tensor
from onnx import TensorProto, helper

import jaxops as jo
from jaxops.errors import ArgumentError, ModelError, ShapeError, StaticError, UnboundedError
from jaxops.onnx import load

X = np.ones((2, 3), np.float32)


def branch(name, *nodes):
    return helper.make_graph(nodes, name, [], [info(name, None)])


# As an exporter merges the two decoders of a language model.
MERGED = build(
    node(
        "If",
        ["use_cache_branch"],
        ["y"],
        then_branch=branch("a", node("Concat", ["x", "x"], ["a"], axis=1)),
        else_branch=branch("b", node("Identity", ["x"], ["b"])),
    ),
    inputs=[info("x", ["N", 3]), info("use_cache_branch", [1], TensorProto.BOOL)],
    outputs=[info("y", None)],
)


@pytest.mark.parametrize("ask", [lambda m: m.export(), lambda m: jax.jit(m.apply)({}, X, np.array([True]))])
def test_an_input_that_decides_a_branch_is_named(ask):
    with pytest.raises(ShapeError) as caught:
        ask(load(MERGED))
    notes = "\n".join(caught.value.__notes__)
    assert (
        "the condition of this If is traced, so both branches are compiled; input 'use_cache_branch' may decide it: "
        "load(path, values={'use_cache_branch': True}), or False, loads one branch" in notes
    )
    assert notes.count("load(path") == 1  # one remedy, which works as it is written
    assert "…}" not in notes


@pytest.mark.parametrize("flag", [True, [True], np.array(True), np.array([True])])
def test_the_hint_works_as_it_is_written(flag):
    chosen = load(MERGED, values={"use_cache_branch": flag})
    assert jax.jit(chosen.apply)({}, X).shape == (2, 6)
    assert load(MERGED, values={"use_cache_branch": False}).export().call({}, X).shape == (2, 3)


FOUND = model(
    "main (float[N] x, int64[E] edges) => (float[M] y) { i = NonZero(edges) k = Squeeze(i, z) y = Gather(x, k) }",
    initializers={"z": np.array([0])},
)


def test_a_size_that_depends_on_data():
    """All bounds at once, or the input that decides them."""
    net, edges = load(FOUND), np.array([1, 0, 2])
    x = np.float32([1, 2, 3])
    with pytest.raises(UnboundedError) as caught:
        jax.jit(net.apply)({}, x, edges)
    text = str(caught.value)
    for hint in ("bounds={'i': n}", "{'NonZero': n} bounds each NonZero", "model.cuts"):
        assert hint in text
    hint = "Or load(path, values={'edges': value}) fixes what decides the size, if it stays the same"
    assert text.endswith(hint)
    fixed = load(FOUND, values={"edges": edges})
    assert jax.jit(jax.grad(lambda x: fixed.apply({}, x).sum()))(x).tolist() == [1, 0, 1]


GRAPH_NETWORK = """main (float[N,2] x, int64[2,E] edges, int64[E] kinds, bool c) => (float[A,2] y) {
    one = Constant<value = int64 {1}>() from = Gather<axis = 0>(edges, zero) to = Gather<axis = 0>(edges, one)
    own = Equal(from, to) of_kind = Greater(kinds, zero) both = Or(own, of_kind) n = Shape(x)
    SIZED
}"""
# The node inside another one reads more than what decides the size.
SIZED = [
    ("k = Compress<axis = 0>(from, both) y = Gather(x, k)", "'edges': value, 'kinds': value"),
    ("k = Compress<axis = 0>(from, own) y = Gather(x, k)", "'edges': value"),
    ("k = loc.kept(from, of_kind) y = Gather(x, k)", "'edges': value, 'kinds': value"),
    (
        """k = If(c) <then_branch = t () => (int64[K] a) { a = Compress<axis = 0>(from, own) },
            else_branch = e () => (int64[L] b) { b = Identity(from) }> y = Gather(x, k)""",
        "'edges': value, 'c': value",
    ),
]


@pytest.mark.parametrize(("nodes", "values"), SIZED)
def test_a_derivative_names_the_inputs_that_decide_a_size(nodes, values):
    proto = model(
        GRAPH_NETWORK.replace("SIZED", nodes),
        imports=', "loc" : 1',
        functions="""<opset_import: ["" : 18], domain: "loc"> kept (v, m) => (w) { w = Compress<axis = 0>(v, m) }""",
        initializers={"zero": np.array(0)},
    )
    net = load(proto)
    x, edges, kinds = np.ones((3, 2), np.float32), np.array([[0, 1], [0, 2]]), np.array([0, 1])
    with pytest.raises(UnboundedError) as caught:
        jax.jit(jax.grad(lambda x, edges, kinds, c: net(x, edges, kinds, c).sum()))(x, edges, kinds, True)
    assert f"load(path, values={{{values}}}) fixes" in str(caught.value)
    fixed = load(proto, values={"edges": edges, "kinds": kinds, "c": True})
    kept = fixed(x)
    gradient = jax.jit(jax.grad(lambda x: fixed(x).sum()))(x)
    assert gradient.sum() == kept.size


def test_inputs_that_all_decide_a_size_cannot_be_fixed():
    proto = model("main (float[N] x) => (int64[1,M] y) { y = NonZero(x) }")
    with pytest.raises(UnboundedError) as caught:
        jax.jit(load(proto).apply)({}, np.ones(3, np.float32))
    assert str(caught.value).endswith("and model.cuts lists all")


def test_an_operand_that_must_be_known():
    """A caller of the operator may compute it from a shape; a user of a file cannot."""
    proto = model(
        "main (float[N] x) => (float[M] y) { c = Cast<to = 7>(x) s = ReduceMax<keepdims = 1>(c) y = Expand(one, s) }",
        initializers={"one": np.float32([1, 1])[:1]},
    )
    net = load(proto)
    with pytest.raises(StaticError) as caught:
        jax.jit(lambda x: jo.expand(np.ones(1, np.float32), x))(np.array([2]))
    assert "compute it from `jaxops.shape(x)`" in str(caught.value)
    assert "jaxops.shape" not in _refused(net)


def _refused(net):
    with pytest.raises(StaticError) as caught:
        jax.jit(net.apply)({}, np.float32([2]))
    return str(caught.value)


def test_a_seed():
    drawn = load(build(node("RandomNormalLike", ["x"], ["y"])))
    with pytest.raises(ArgumentError, match=r"pass `rng`, .* or a number `seed` where the operator itself is called"):
        drawn(X)
    assert drawn(X, rng=jax.random.key(0)).shape == (2, 3)


def test_a_file_of_onnxruntime(tmp_path):
    path = tmp_path / "m.ort"
    path.write_bytes(b"\x18\x00\x00\x00ORTM" + bytes(range(200)))
    with pytest.raises(ModelError, match=r"own format \(.ort\); load the .onnx file from which it was made"):
        load(path)


def test_expand_takes_no_bound():
    """Its size comes from `shape`; `cuts` names it, too."""
    nodes = [
        node("NonZero", ["x"], ["i"]),
        node("ReduceMax", ["i", "axes"], ["s"], keepdims=1),
        node("Reshape", ["s", "flat"], ["r"]),
        node("Expand", ["one", "r"], ["y"]),
    ]
    constants = [tensor([0, 1], "axes"), tensor([-1], "flat"), tensor(np.float32([1]), "one")]
    proto = build(*nodes, initializers=constants)
    assert load(proto).cuts.keys() == {"i", "y"}
    problem = r"Expand 'y' takes no bound: it does not find its size itself\n.*'NonZero'"
    with pytest.raises(ArgumentError, match=problem):
        load(proto, bounds={"Expand": 3})


def test_a_narrow_model_with_a_constant_output():
    constant = node("Constant", [], ["k"], value=tensor(np.float32(1.5)))
    outputs = [info("y", None), info("l", []), info("w", [2]), info("s", [])]
    nodes = [node("Relu", ["x"], ["y"]), constant, node("Identity", ["k"], ["l"])]
    proto = build(*nodes, outputs=outputs, initializers=[tensor(np.float32([4, 5]), "w"), tensor(np.float32(7), "s")])
    narrow = load(proto).astype(jnp.bfloat16)
    x = jnp.ones((1, 3), jnp.bfloat16)
    for results in (narrow(x), jax.jit(narrow.apply)(narrow.params, x), narrow.apply(narrow.params, x)):
        assert [y.dtype for y in results] == [jnp.bfloat16] * 4
        assert [float(results[k]) for k in (1, 3)] == [1.5, 7]


@pytest.mark.parametrize(
    ("ask", "options", "instead"),
    [
        (lambda m: jax.jit(m)(X[0]), {}, "call the model outside `jax.jit`"),
        (lambda m: m.export(), {}, "call the model without exporting it"),
        (lambda m: m(X[0]), {"buckets": {"n": 8}}, "load the model without `buckets`"),
    ],
)
def test_an_open_size_names_the_way_out_of_where_the_user_is(ask, options, instead):
    found = model("m (float[n] x) => (int64[1, k] y) { y = NonZero(x) }")
    with pytest.raises(UnboundedError) as caught:
        ask(load(found, **options))
    assert f"hint    {instead}, or load(path, bounds={{'y': n}})" in str(caught.value)
    assert load(found)(X[0]).tolist() == [[0, 1, 2]]
    if "outside" not in instead:
        ask(load(found, bounds={"y": 4}, **options))


def test_a_value_that_must_be_known_names_the_way_out_of_where_the_user_is():
    running = model(
        "m (float[n] x) => (float[k] y) { s = Shape(x) z = Constant <value_int = 0> () e = Expand(s, s) "
        "c = CumSum(e, z) m = Constant <value_ints = [-1]> () last = Gather(c, m) y = ConstantOfShape(last) }"
    )
    with pytest.raises(StaticError, match="hint    call the model without exporting it: model"):
        load(running).export()
    with pytest.raises(StaticError, match="hint    load the model without `buckets`: model"):
        load(running, buckets={"n": 8})(X[0])
    assert load(running)(X[0]).shape == (9,)
    assert jax.jit(load(running))(X[0]).shape == (9,)


def test_an_input_that_must_be_known_may_not_be_an_argument():
    net = load(model("m (float[n] x, int64[2] shape) => (float[q, r] y) { y = Reshape(x, shape) }"))
    shape = np.array([3, -1])
    with pytest.raises(StaticError, match=r"a NumPy array, which may not be an argument of jax\.jit"):
        jax.jit(net)(X[0], shape)
    assert jax.jit(lambda x: net(x, shape))(X[0]).shape == (3, 1)
