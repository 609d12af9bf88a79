"""`load(path, bounds=…)`: results whose size depends on data get a fixed one, and a model is one program."""

import pickle

import chex
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import build, info, model, node

import jaxops as jo
from jaxops.errors import ArgumentError, StaticError, UnsupportedError
from jaxops.onnx import load, opset
from jaxops.signature import Static

RNG = np.random.default_rng(0)
X = np.float32([[0, 5, 0], [7, 0, 9]])
# The static NonZero is of a shape's computation, as exporters write `expand`.
NET = model(
    """main (float[2,3] x) => (int64[2,K] at, float[K,3] rows, float[A] y) {
        s = Shape(x) ones = ConstantOfShape<value = float[1] {1}>(s) all = NonZero(ones)
        at = NonZero(x) zero = Constant<value_ints = [0]>() i = Gather<axis = 0>(at, zero) flat = Squeeze(i, zero)
        rows = Gather(x, flat)
        count = Shape<start = 1>(all) y = Expand(half, count)
    }""",
    initializers={"half": np.full(6, 0.5, np.float32)},
)


def bounded(proto, **bounds):
    return load(proto, bounds=bounds)


def test_a_bound_pads_and_cuts():
    exact = load(NET)(X)
    for size in (2, 3, 5):
        at, rows, y = bounded(NET, NonZero=size)(X)
        n = min(size, 3)
        np.testing.assert_array_equal(at[:, :n], np.asarray(exact.at)[:, :n])
        np.testing.assert_array_equal(rows[:n], np.asarray(exact.rows)[:n])
        assert at[:, n:].tolist() == [[-1] * (size - n)] * 2
        assert rows[n:].tolist() == [X[-1].tolist()] * (size - n)  # the row at -1
        np.testing.assert_array_equal(y, exact.y)


def test_the_names_of_cuts_are_those_of_bounds():
    found = load(NET)
    found(X)  # a call may find more cuts
    assert list(found.cuts) == ["at"]
    assert not load(NET, bounds=dict.fromkeys(found.cuts, 4)).cuts


def test_all_ways_to_run_give_the_same():
    net = bounded(NET, at=4)
    assert not net.cuts
    assert load(NET).cuts
    expected = net(X)
    with jax.disable_jit():
        ways = [net(X), net.apply(net.params, X)]
    ways += [jax.jit(net.apply)(net.params, X), jax.jit(lambda m, x: m(x))(net, X), net(X)]
    ways += [net.export().call(net.params, X), pickle.loads(pickle.dumps(net))(X)]
    prepare, run = net.specialize(X)
    ways.append(run(prepare(net.params), X))
    for result in ways:
        chex.assert_trees_all_equal(tuple(result), tuple(expected))
    mapped = jax.vmap(net.apply, (None, 0))(net.params, jnp.stack([X, 2 * X, 0 * X]))
    np.testing.assert_array_equal(mapped.at[1], expected.at)
    assert (np.asarray(mapped.at[2]) == -1).all()
    np.testing.assert_array_equal(jax.grad(lambda x: net(x).rows[1].sum())(X), [[0, 0, 0], [1, 1, 1]])


def test_a_node_has_its_own_bound_before_that_of_its_operator():
    proto = model("main (float[N] x) => (int64[1,K] a, int64[1,L] b) { a = NonZero(x) n = Neg(x) b = NonZero(n) }")
    assert [v.shape for v in bounded(proto, NonZero=2, b=4)(X[0])] == [(1, 2), (1, 4)]
    assert [v.shape for v in bounded(proto, b=4)(X[0])] == [(1, 1), (1, 4)]  # the other is exact, in pieces
    with pytest.raises(StaticError, match=r"load\(path, bounds={'a': n}\)"):
        jax.jit(bounded(proto, b=4).apply)({}, X[0])


def test_a_bound_belongs_to_the_structure():
    trees = [jax.tree.structure(load(NET, bounds=b)) for b in (None, {}, {"at": 3}, {"at": 3}, {"at": 4})]
    assert trees[0] == trees[1]
    assert trees[2] == trees[3]
    assert len({*trees}) == 3


def test_nodes_in_branches_loops_and_functions():
    proto = model(
        """main (float[N] x, bool c) => (int64[1,K] y, int64[1,L] z, int64[T,1,M] w) {
            y = If(c) <then_branch = t () => (int64[1,A] a) { a = NonZero(x) },
                       else_branch = e () => (int64[1,B] b) { m = Neg(x) b = NonZero(m) }>
            z = loc.outer(x)
            three = Constant<value = int64 {3}>() yes = Constant<value = bool {1}>()
            w = Loop(three, yes) <body = l (int64 i, bool go) => (bool on, int64[1,C] p) {
                on = Identity(go) f = Cast<to = 1>(i) g = Greater(x, f) p = NonZero(g) }>
        }""",
        imports=', "loc" : 1',
        functions="""<opset_import: ["" : 18, "loc" : 1], domain: "loc"> outer (x) => (r) {
                s = Tanh(x) r = loc.inner(s) }
            <opset_import: ["" : 18], domain: "loc"> inner (v) => (q) { n = Ceil(v) q = NonZero(n) }""",
    )
    net = bounded(proto, NonZero=4)
    x = np.float32([0, 1.5, 0, 2.5])
    for c in (True, False):
        y, z, w = jax.jit(net.apply)({}, x, c)
        assert (y.tolist(), z.tolist()) == ([[1, 3, -1, -1]],) * 2
        assert w.tolist() == [[[1, 3, -1, -1]], [[1, 3, -1, -1]], [[3, -1, -1, -1]]]
    # What is in the branches, the body and the function has names of its own.
    names = {"a": 4, "b": 4, "q": 5, "p": 6}
    assert [v.shape for v in jax.jit(load(proto, bounds=names).apply)({}, x, True)] == [(1, 4), (1, 5), (3, 1, 6)]
    with pytest.raises(StaticError, match=r"bounds={'q': n}"):
        jax.jit(load(proto, bounds={"a": 4, "b": 4}).apply)({}, x, True)


BOXES = np.float32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 5, 1, 6]]])
MATRIX = np.float32([[1, 1, 9], [9, 9, 1]])


def filled(*rows, by=-1.0):
    """Fills up each axis by so many."""
    return lambda y: np.pad(y, [(0, n) for n in rows], constant_values=y.min() if by is None else by)


# Operator, domain, inputs, outputs, size, what that makes of the exact result.
OPERATORS = [
    ("NonMaxSuppression", "", "boxes, scores, most, overlap", 1, 4, filled(2, 0)),
    ("Compress", "", "v, mask", 1, 4, filled(2, by=0)),
    ("Unique", "", "v", 1, 4, filled(1, by=None)),
    ("Unique", "com.microsoft", "v", 3, 4, filled(1, by=None)),
    ("DynamicTimeWarping", "com.microsoft", "cost", 1, 6, filled(0, 3)),
    ("BifurcationDetector", "com.microsoft", "source, current, start, predicted", 2, 6, filled(2)),
]
INPUTS = {
    "boxes": BOXES,
    "scores": np.float32([[[0.9, 0.8, 0.7]]]),
    "most": np.array([3]),
    "overlap": np.float32([0.5]),
    "v": np.float32([3, 1, 1, 2]),
    "mask": np.array([True, False, True]),
    "cost": MATRIX,
    "source": np.array([1, 2, 3, 4]),
    "current": np.array([9]),
    "start": np.array(0),
    "predicted": np.array([1, 2, 4, 5, 5]),
}


@pytest.mark.parametrize(("name", "domain", "inputs", "outputs", "size", "fill"), OPERATORS)
def test_every_operator_with_a_size(name, domain, inputs, outputs, size, fill):
    names = inputs.split(", ")
    values = [INPUTS[i] for i in names]
    types = [info(i, list(x.shape), {"f": 1, "i": 7, "b": 9}[x.dtype.kind]) for i, x in zip(names, values, strict=True)]
    targets = ["y", "y1", "y2"][:outputs]
    opsets = [("", 18), ("com.microsoft", 1)]
    proto = build(node(name, names, targets, domain=domain), inputs=types, outputs=[info("y", None, 0)], opsets=opsets)
    expected = fill(np.asarray(load(proto)(*values)))
    np.testing.assert_array_equal(jax.jit(bounded(proto, **{name: size}).apply)({}, *values), expected)
    with pytest.raises(StaticError, match=r"load\(path, bounds={'y': n}\), which makes it n \w+, "):
        jax.jit(load(proto).apply)({}, *values)


def test_compress_by_a_static_condition_keeps_its_size():
    text = "main (float[3] v) => (float[K] y) { m = Constant<value = bool[3] {1, 0, 1}>() y = Compress(v, m) }"
    net = load(model(text), static={"m": True}, bounds={"Compress": 9})
    assert jax.jit(net.apply)(net.params, X[0]).tolist() == X[0, [0, 2]].tolist()


def test_an_operator_of_a_callers():
    def positive(x, *, size: Static = None):
        return jo.compress(x, x > 0, size=size)

    proto = build(node("Positive", ["x"], ["y"], domain="my"), inputs=[info("x", [3])], opsets=[("", 18), ("my", 1)])
    functions = {("my", "Positive"): positive}
    assert load(proto, operators=functions)(X[0]).tolist() == [5]
    assert jax.jit(load(proto, operators=functions, bounds={"Positive": 2}).apply)({}, X[0]).tolist() == [5, 0]


def test_the_file_and_what_others_see_of_it(tmp_path):
    net = bounded(NET, at=4)
    net.save(tmp_path / "again.onnx", {"half": np.full(6, 2, np.float32)})
    again = load(tmp_path / "again.onnx")(X)
    assert again.at.shape == (2, 3)
    np.testing.assert_array_equal(again.y, np.full(6, 2))
    assert "at = NonZero(x, size=4)" in net.show()
    assert net.summary(X).rows == net.summary().rows
    assert "int32[2, 4]" in str(net.summary())
    compared = net.compare(X)
    assert compared.agrees
    assert {row.output: row.note for row in compared.rows}["rows"] == "bounded"
    assert {row.output: row.note for row in compared.rows}["y"] == ""
    narrow = net.astype(jnp.bfloat16)
    assert jax.jit(narrow.apply)(narrow.params, X.astype(jnp.bfloat16)).rows.shape == (4, 3)


def test_as_python(tmp_path, monkeypatch):
    net = bounded(NET, NonZero=4)
    net.to_python(tmp_path / "bounded_net")
    monkeypatch.syspath_prepend(tmp_path)
    import bounded_net  # pyright: ignore[reportMissingImports]

    text = "".join(path.read_text() for path in (tmp_path / "bounded_net").glob("*.py"))
    assert text.count("size=4") == 1  # not for the static one
    chex.assert_trees_all_equal(tuple(bounded_net.apply(bounded_net.load_params(), X)), tuple(net(X)))


def test_a_package_has_no_padding_as_data(tmp_path):
    proto = model(
        """main (float[N] x) => (float y) {
            at = NonZero(x) i = Squeeze(at) s = Gather(x, i) y = ReduceSum<keepdims = 0>(s) }"""
    )
    with pytest.raises(UnsupportedError, match="ReduceSum 'y' reads the result of 'at', whose size depends on data"):
        bounded(proto, at=3).to_python(tmp_path / "net")


def test_what_is_computed_in_pieces_beside_a_bound():
    """A bounded node behind a cut, whose operands are known there, has its bound all the same."""
    proto = model(
        "main (float[N] x) => (int64[1,K] b) { a = NonZero(x) c = Cast<to = 1>(a) b = loc.places(c) }",
        imports=', "loc" : 1',
        functions="""<opset_import: ["" : 18], domain: "loc"> places (c) => (d) {
            z = Constant<value_ints = [0]>() s = Squeeze(c, z) d = NonZero(s) }""",
    )
    for name in ("d", "NonZero"):
        assert bounded(proto, **{name: 6})(np.float32([1, 0, 3])).shape == (1, 6)
    np.testing.assert_array_equal(bounded(proto, d=2)(np.float32([1, 0, 3])), [[1, -1]])


GROWING = """main (float[2] x, float[2] w) => (float[2] y, float[K,2] rows) {
    yes = Constant<value = bool {1}>()
    y, rows = Loop(, yes, x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t, float[2] r) {
        t = Mul(s, w) r = Identity(s)
        sum = ReduceSum<keepdims=0>(t) ten = Constant<value = float {10}>() on = Less(sum, ten) }>
}"""
W = np.float32([2, 1.5])


def test_a_loop_with_a_bound():
    x, net = np.ones(2, np.float32), bounded(model(GROWING), Loop=5)
    exact = load(model(GROWING))(x, W)
    assert exact.rows.shape == (3, 2)
    with jax.disable_jit():
        ways = [net(x, W)]
    ways += [
        net(x, W),
        jax.jit(net.apply)({}, x, W),
        net.export().call({}, x, W),
        pickle.loads(pickle.dumps(net))(x, W),
    ]
    for y, rows in ways:
        np.testing.assert_array_equal(y, exact.y)
        np.testing.assert_array_equal(rows, np.concatenate([exact.rows, np.zeros((2, 2))]))
    assert not net.cuts
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda w: net(x, w).y.sum()))(W), 3 * W**2)
    assert all(np.isnan(v).all() for v in bounded(model(GROWING), y=2)(x, W))
    with pytest.raises(
        StaticError, match=r"one row per iteration\n.*load\(path, bounds={'y': n}\), which makes it n row"
    ):
        jax.jit(load(model(GROWING)).apply)({}, x, W)


def test_a_derivative_of_a_loop_that_data_end():
    text = GROWING.replace(", float[K,2] rows", "").replace(", rows", "").replace(", float[2] r)", ")")
    proto = model(text.replace("r = Identity(s)", ""))
    for run in (lambda f: f, jax.jit):
        with pytest.raises(
            StaticError, match=r"Loop 'y': data decide .* mode needs .*\n.*load\(path, bounds={'y': n}\)"
        ):
            run(jax.grad(lambda w: load(proto)(W, w).sum()))(W)
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(jax.grad(lambda w: bounded(proto, y=5)(x, w).sum())(W), 3 * W**2)
    limited = model(
        text.replace("r = Identity(s)", "").replace("Loop(,", "Loop(m,"), initializers={"m": np.array(1000)}
    )
    np.testing.assert_array_equal(jax.grad(lambda w: load(limited)(x, w).sum())(W), 3 * W**2)


def test_a_loop_of_a_known_number_of_iterations_keeps_it():
    proto = model("""main (float[2] x) => (float[2] y, float[K,2] rows) {
        three = Constant<value = int64 {3}>()
        y, rows = Loop(three, , x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t, float[2] r) {
            on = Identity(go) t = Add(s, s) r = Identity(s) }>
    }""")
    for net in (bounded(proto, Loop=7), bounded(proto, Loop=2)):
        np.testing.assert_array_equal(jax.jit(net.apply)({}, W).rows, [W, 2 * W, 4 * W])


WRONG = [
    ({"at": 0}, "`bounds`: 'at' is 0; it must be a positive integer"),
    ({"at": True}, "'at' is True; it must be a positive integer"),
    ({"at": 2.0}, r"'at' is 2\.0; it must be"),
    ({"Nonzero": 2}, r"no operator 'Nonzero'; similar: 'NonZero'\n  hint    bounds can have: 'NonZero', or "),
    ({"nowhere": 2}, r"no operator 'nowhere'\n.*'NonZero', or the nodes 'all', 'at'$"),
    ({"rows": 2}, r"Gather 'rows' takes no bound: it does not find its size itself\n.*'NonZero', or the nodes 'all', "),
    ({"Expand": 2}, "Expand 'y' takes no bound: it does not find its size itself"),
]  # fmt: skip


@pytest.mark.parametrize(("bounds", "match"), WRONG)
def test_wrong_bounds(bounds, match):
    with pytest.raises(ArgumentError, match=match):
        load(NET, bounds=bounds)


def test_a_model_that_needs_no_bound():
    with pytest.raises(ArgumentError, match="no operator 'NonZero'; no node of the model can have a bound"):
        bounded(model("main (float[N] x) => (float[N] y) { y = Relu(x) }"), NonZero=2)


def test_a_direct_call_is_told_of_size():
    for call in (jo.nonzero, opset(18).NonZero):
        with pytest.raises(
            StaticError, match=r"or give `size`: nonzero\(…, size=n\) returns n columns, padded or cro"
        ) as raised:
            jax.jit(call)(X)
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_exact_results_agree_with_onnxruntime():
    exact = onnxruntime.InferenceSession(NET.SerializeToString()).run(None, {"x": X})
    for got, expected in zip(bounded(NET, NonZero=3)(X), exact, strict=True):
        np.testing.assert_array_equal(got, expected)
