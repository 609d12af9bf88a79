"""Models whose sizes depend on data: they run in compiled pieces, and agree with what runs operator by operator."""

import pickle

import jax
import numpy as np
import onnxruntime
import pytest
from graphs import model

from jaxops.errors import ShapeError, StaticError
from jaxops.onnx import load

RNG = np.random.default_rng(3)
X = np.float32([[1, 0, 3], [0, 0, 6], [7, 8, 0]])


def agree(proto, *inputs):
    """The outputs in pieces, asserted to be those of the walk operator by operator and of onnxruntime."""
    loaded = load(proto)
    got = jax.tree.leaves(loaded(*inputs))
    with jax.disable_jit():
        node_by_node = loaded(*inputs)
    for other in (jax.tree.leaves(node_by_node), peer(proto, *inputs)):
        assert len(got) == len(other)
        for a, b in zip(got, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return loaded, got


def peer(proto, *inputs):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), inputs, strict=True)))


POSITIVE = model("""main (float[N,M] x) => (float[K] y, int64[1] n, float s) {
    e = Exp(x)
    at = NonZero(x)
    rows = Transpose<perm = [1, 0]>(at)
    y = GatherND(e, rows)
    n = Shape(y)
    t = Tanh(y)
    s = ReduceSum<keepdims = 0>(t)
}""")


def test_a_size_that_data_decide():
    assert load(POSITIVE).cuts == {"at": "NonZero: the size of the result depends on `X`"}
    loaded, (y, n, s) = agree(POSITIVE, X)
    assert y.shape == (5,)
    assert n.tolist() == [5]
    assert s.shape == ()
    assert list(loaded.cuts) == ["at"]
    assert "the size of the result depends on `x`" in loaded.cuts["at"]
    assert "cut  before 'at': NonZero: the size of the result depends on `x`" in str(loaded)
    assert load(POSITIVE)(np.zeros((2, 2), np.float32))[0].shape == (0,)


def test_a_model_without_such_a_node_is_one_piece(traces):
    loaded = load(model("main (float[N] x) => (float[N] y) { a = Exp(x)  y = Neg(a) }"))
    loaded(X[0])
    assert traces == [0]
    assert not loaded.cuts
    assert "cut" not in str(loaded)


def test_what_numpy_computes_is_not_compiled_for_each_size(traces):
    loaded = load(
        model("""main (float[N] x) => (float[K] y) {
            zero = Constant<value = float {0}>()  a = Mul(x, x)  c = Greater(x, zero)
            at = NonZero(c)  i = Squeeze(at)  b = Gather(a, i)  two = Add(b, b)  y = Concat<axis = 0>(two, b)
        }""")
    )
    for count in range(1, 6):
        x = np.float32([1, -1, -2, -2, -2] + [3] * count)
        y = loaded(x)
        np.testing.assert_array_equal(y, np.r_[2 * x[x > 0] ** 2, x[x > 0] ** 2])
        assert isinstance(y, jax.Array)
    assert traces == [0] * 5  # one for each size of x, which is an input, and none behind the cut


def test_a_number_that_an_operator_must_know():
    loaded, (y,) = agree(
        model("""main (float[N,M] m, int64[1] least) => (float[K] y) {
            all = Constant<value_ints = [-1]>()  x = Reshape(m, all)
            zero = Constant<value = float {0}>()  c = Greater(x, zero)  n = Cast<to = 7>(c)
            some = ReduceSum(n)  k = Max(some, least)  y, i = TopK(x, k)
        }"""),
        X,
        np.array([1]),
    )
    assert y.tolist() == [8, 7, 6, 3, 1]
    assert list(loaded.cuts) == ["y"]


CHOICE = """main (float[N,M] x) => (float[K,L] y) {
    limit = Constant<value = float {5}>()  m = ReduceMax<keepdims = 0>(x)  c = Greater(m, limit)
    y = If(c) <then_branch = t () => (float[A,B] a) { e = Exp(x)  a = Transpose(e) },
               else_branch = e () => (float[A,B] b) { at = NonZero(x)  f = Cast<to = 1>(at)  b = Neg(f) }>
    }"""


def test_branches_of_different_shapes():
    for x in (X[:2], X[:2] / 9):
        loaded, _ = agree(model(CHOICE), x)
    assert loaded.cuts.keys() == {"y", "at"}


def test_an_error_in_a_branch_is_still_raised():
    loaded = load(model(CHOICE.replace("a = Transpose(e)", "q = Constant<value_ints = [5]>()  a = Reshape(e, q)")))
    with pytest.raises(ShapeError, match=r"6 elements") as raised:
        loaded(X[:2])
    assert any("node 'a'" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_condition_on_data_beside_scan_outputs(keepdims):
    """Runtimes take a condition of one element, whatever its rank."""
    _, (y, rows) = agree(
        model(f"""main (float[N] x, float limit) => (float[K] y, float[T,M] rows) {{
            yes = Constant<value = bool {{1}}>()
            y, rows = Loop(, yes, x) <body = b (int64 i, bool k, float[A] s) => (bool k2, float[B] t, float[C] row) {{
                t = Add(s, s)  m = ReduceSum<keepdims = {keepdims}>(t)  k2 = Less(m, limit)  row = Neg(t) }}>
        }}"""),
        X[0],
        np.array(20, np.float32),
    )
    assert y.tolist() == [8, 0, 24]
    assert rows.shape == (3, 3)


def test_a_state_that_grows(traces):
    loaded, (y,) = agree(
        model("""main (float[N] x, float limit) => (float[K] y) {
            yes = Constant<value = bool {1}>()
            y = Loop(, yes, x) <body = b (int64 i, bool k, float[A] s) => (bool k2, float[B] t) {
                h = Tanh(s)  t = Concat<axis = 0>(s, h)  m = ReduceSum<keepdims = 0>(t)  k2 = Less(m, limit) }>
        }"""),
        np.float32([1, 2]),
        np.array(20, np.float32),
    )
    assert len(y) == 32
    assert list(loaded.cuts) == ["y"]


def test_rows_of_a_loop_that_data_end_compile_its_body_once(traces):
    _, (_, rows) = agree(
        model("""main (float limit, float x) => (float y, float[N] rows) {
            yes = Constant<value = bool {1}>()
            y, rows = Loop(, yes, x) <body = b (int64 i, bool k, float s) => (bool k2, float t, float r) {
                f = Cast<to = 1>(i)  e = Tanh(s)  u = Add(s, e)  t = Add(u, f)  k2 = Less(t, limit)  r = Identity(s) }>
        }"""),
        np.array(50, np.float32),
        np.array(1, np.float32),
    )
    assert len(rows) > 5
    assert len(traces) == 2  # the graph around it, the body


def test_a_cut_in_a_function():
    proto = model(
        "main (float[N,M] x) => (float[R,K] y) { e = Exp(x)  y = loc.places(e, x) }",
        imports=', "loc" : 1',
        functions="""<opset_import: ["" : 18], domain: "loc"> places (e, x) => (b) {
            at = NonZero(x)  f = CastLike(at, e)  s = Sigmoid(f)  b = Neg(s) }""",
    )
    loaded, _ = agree(proto, X)
    assert "at" in loaded.cuts


def test_numbers_of_64_bits_meet_those_of_32():
    # While x64 is off, what a piece computes has 32 bits, and what NumPy computes has 64.
    agree(
        model("""main (float[N,M] x) => (int64[K] y) {
            best = ArgMax<axis = 1, keepdims = 0>(x)
            at = NonZero(x)  zero = Constant<value_ints = [0]>()  rows = Gather(at, zero)  one = Squeeze(rows, zero)
            i = Gather(best, one)  y = Add(i, one)
        }"""),
        X,
    )


def test_inside_a_transformation_it_is_an_error():
    loaded = load(POSITIVE)
    message = (
        r"(?s)nonzero: the size of the result depends on `x`.*load\(path, bounds={'at': n}\), which makes it n columns"
    )
    for call in (
        jax.jit(loaded),
        lambda x: jax.jit(loaded.apply)({}, x),
        lambda x: jax.grad(lambda v: loaded(v)[2])(x),
    ):
        with pytest.raises(StaticError, match=message) as raised:
            call(X)
        assert any("node 'at'" in note for note in raised.value.__notes__)


def test_cuts_are_known_at_load():
    proto = model(
        """main (float[N,M] x, int64[1] least, bool c) => (float[K] y, float[A] a, int64[B] b) {
            all = Constant<value_ints = [-1]>()  v = Reshape(x, all)  n = Size(v)
            k = ArgMax<axis = 0>(v)  some = Max(k, least)  y, i = TopK(v, some)
            b = If(c) <then_branch = t () => (int64[P,Q] at) { at = NonZero(x) },
                       else_branch = e () => (int64[R] s) { s = Reshape(n, all) }>
            a = loc.kept(v)
        }""",
        imports=', "loc" : 1',
        functions="""<opset_import: ["" : 18], domain: "loc"> kept (v) => (r) {
            s = Shape(v)  w = Reshape(v, s)  g = IsNaN(w)  r = Compress(w, g) }""",
    )
    assert load(proto).cuts == {
        "y": "TopK: `K` must be known, but it depends on data",
        "at": "NonZero: the size of the result depends on `X`",
        "r": "Compress: the size of the result depends on `condition`",
    }


def test_a_copy_runs():
    loaded = load(POSITIVE)
    loaded(X)
    again = pickle.loads(pickle.dumps(loaded))
    assert again.cuts == loaded.cuts
    np.testing.assert_array_equal(again(X)[0], loaded(X)[0])
