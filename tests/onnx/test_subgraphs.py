"""Subgraphs in models: what must be known, what is compiled, and what comes out, at every version."""

import jax
import numpy as np
import onnx
import pytest
from graphs import model
from jax.export import export, symbolic_shape
from onnx import TensorProto, helper

import jaxops.onnx
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, StaticError
from jaxops.onnx.registry import adapters

X = np.float32([[1, 2, 3], [4, 5, 6]])


def load(*args, **kwargs):
    return jaxops.onnx.load(model(*args, **kwargs))


def both(loaded, *inputs):
    """The outputs operator by operator, which are asserted to be those of the compiled model."""
    with jax.disable_jit():
        one = loaded(*inputs)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(loaded(*inputs)), strict=True):
        # exp has another last digit in a vectorised loop on some CPUs.
        np.testing.assert_allclose(a, b, rtol=1e-6) if a.dtype == np.float32 else np.testing.assert_array_equal(a, b)
    return one


CHOICE = """main (bool c, float[N,3] x) => (float[N,3] y) {
    z = Add(x, x)
    y = If(c) <then_branch = t () => (float[N,3] a) { a = Mul(z, x) },
               else_branch = e () => (float[N,3] b) { b = Neg(x) }>
}"""


@pytest.mark.parametrize("opset", [9, 11, 13, 16, 19, 21, 25])
def test_a_choice(opset):
    loaded = load(CHOICE, opset=opset)
    np.testing.assert_array_equal(both(loaded, np.array(True), X), 2 * X * X)
    np.testing.assert_array_equal(both(loaded, np.array(False), X), -X)
    assert not loaded.inputs[0].static
    grad = jax.grad(lambda x: loaded.apply({}, np.array(True), x).sum())(X)
    np.testing.assert_array_equal(grad, 4 * X)
    batched = jax.vmap(loaded.apply, in_axes=(None, 0, None))({}, np.array([True, False]), X)
    np.testing.assert_array_equal(batched, [2 * X * X, -X])


def test_a_choice_that_makes_a_shape_is_known():
    loaded = load("""main (bool c, float[6] x) => (float[A,B] y) {
        s = If(c) <then_branch = t () => (int64[2] a) { a = Constant<value_ints = [2, 3]>() },
                   else_branch = e () => (int64[2] b) { b = Constant<value_ints = [3, 2]>() }>
        y = Reshape(x, s)
    }""")
    assert loaded.inputs[0].static.startswith("If 's'")
    assert both(loaded, np.array(True), X.reshape(6)).shape == (2, 3)
    assert both(loaded, np.array(False), X.reshape(6)).shape == (3, 2)


def test_a_choice_of_sequences_is_known():
    loaded = load("""main (bool c, float[N,3] x) => (seq(float[N,3]) y) {
        y = If(c) <then_branch = t () => (seq(float[N,3]) a) { a = SequenceConstruct(x) },
                   else_branch = e () => (seq(float[N,3]) b) { b = SequenceConstruct(x, x) }>
    }""")
    assert loaded.inputs[0].static
    assert len(both(loaded, np.array(True), X)) == 1
    assert len(both(loaded, np.array(False), X)) == 2


POWERS = """main (int64 n, float[2,3] x) => (float[2,3] y, float[N,2,3] rows) {
    keep = Constant<value = bool {1}>()
    y, rows = Loop(n, keep, x) <body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t, float[2,3] r) {
        k2 = Identity(k)  t = Mul(s, x)  r = Identity(s)
    }>
}"""


@pytest.mark.parametrize("opset", [9, 11, 13, 16, 19, 21, 25])
def test_a_counted_loop(opset):
    loaded = load(
        POWERS.replace("Constant<value = bool {1}>()", "Identity(truth)"),
        opset=opset,
        initializers={"truth": np.array(True)},
    )
    assert loaded.inputs[0].static == "Loop 'y' `M`"
    last, rows = both(loaded, np.array(3), X)
    np.testing.assert_array_equal(last, X**4)
    np.testing.assert_array_equal(rows, [X, X**2, X**3])
    assert both(loaded, np.array(0), X)[1].shape == (0, 2, 3)
    grad = jax.grad(lambda x: loaded.apply({}, np.array(3), x)[0].sum())(X)
    np.testing.assert_allclose(grad, 4 * X**3)


def test_a_traced_count_without_scan_outputs():
    loaded = load("""main (int64 n, float x) => (float y) {
        y = Loop(n, , x) <body = b (int64 i, bool k, float s) => (bool k2, float t) { k2 = Identity(k)  t = Add(s, s) }>
    }""")
    assert not loaded.inputs[0].static
    assert both(loaded, np.array(3), np.float32(1)) == 8
    np.testing.assert_array_equal(jax.vmap(lambda n: loaded(n, np.float32(1)))(np.array([0, 2])), [1, 4])


def test_a_search_that_ends_early():
    loaded = load("""main (float limit, float x) => (float y) {
        keep = Constant<value = bool {1}>()
        y = Loop(, keep, x) <body = b (int64 i, bool k, float s) => (bool k2, float t) {
            t = Add(s, s)  k2 = Less(t, limit) }>
    }""")
    assert both(loaded, np.float32(10), np.float32(1)) == 16
    assert not any(value.static for value in loaded.inputs)


def test_scan_outputs_of_a_loop_that_ends_early_need_data():
    loaded = load("""main (float limit, float x) => (float y, float[N] rows) {
        keep = Constant<value = bool {1}>()
        y, rows = Loop(, keep, x) <body = b (int64 i, bool k, float s) => (bool k2, float t, float r) {
            t = Exp(s)  k2 = Less(t, limit)  r = Identity(s) }>
    }""")
    _, rows = both(loaded, np.float32(10), np.float32(0))
    np.testing.assert_allclose(rows, [0, 1, np.e], rtol=1e-6)
    with pytest.raises(
        StaticError, match=r"(?s)the condition that body returns is traced.*load\(path, bounds={'y': n}\)"
    ):
        jax.jit(loaded.apply)({}, np.float32(10), np.float32(0))


def test_rows_of_no_iterations_have_the_declared_sizes():
    # Its body cannot run: there is no first row to take.
    loaded = load("""main (float[N,3] x) => (float[N,A,B] rows) {
        n = Shape<end = 1>(x)  none = Constant<value_ints = [0]>()  m = Squeeze(n, none)
        yes = Constant<value = bool {1}>()
        rows = Loop(m, yes) <body = b (int64 i, bool k) => (bool k2, float[A,3] r) {
            k2 = Identity(k)  row = Gather(x, i)  r = Unsqueeze(row, none) }>
    }""")
    assert both(loaded, X).shape == (2, 1, 3)
    assert loaded.apply({}, X[:0]).shape == loaded(X[:0]).shape == (0, 0, 3)


def test_a_body_that_slices_by_its_number_is_known():
    loaded = load("""main (int64 n, int64 start, float[4] x) => (float[N] y) {
        one = Constant<value_ints = [1]>()
        keep = Constant<value = bool {1}>()
        a = Identity(start)
        last, y = Loop(n, keep, a) <body = b (int64 i, bool k, int64 s) => (bool k2, int64 s2, float[M] r) {
            k2 = Identity(k)  at = Reshape(s, one)  s2 = Add(s, i)  till = Add(at, one)  r = Slice(x, at, till) }>
    }""")
    assert [bool(value.static) for value in loaded.inputs] == [True, True, False]
    x = np.float32([1, 2, 3, 4])
    np.testing.assert_array_equal(both(loaded, np.array(3), np.array(0), x), [[1], [1], [2]])


def test_a_loop_that_collects_a_sequence():
    loaded = load("""main (int64 n, float[2,3] x) => (seq(float[2,3]) y) {
        empty = SequenceEmpty()
        keep = Constant<value = bool {1}>()
        y = Loop(n, keep, empty) <body = b (int64 i, bool k, seq(float[2,3]) s) => (bool k2, seq(float[2,3]) t) {
            k2 = Identity(k)  t = SequenceInsert(s, x) }>
    }""")
    np.testing.assert_array_equal(both(loaded, np.array(2), X), [X, X])
    assert both(loaded, np.array(0), X) == []


def test_captures_of_captures():
    loaded = load("""main (bool c, float x) => (float y) {
        two = Constant<value_float = 2.0>()
        n = Constant<value_int = 3>()
        keep = Constant<value = bool {1}>()
        y = Loop(n, keep, x) <body = b (int64 i, bool k, float s) => (bool k2, float t) {
            k2 = Identity(k)
            w = Mul(x, two)
            t = If(c) <then_branch = p () => (float u) {
                u = Loop(n, k, s) <body = q (int64 j, bool l, float v) => (bool l2, float v2) {
                    l2 = Identity(l)  v2 = Add(v, w) }>
            }, else_branch = r () => (float m) { m = Mul(s, two) }>
        }>
    }""")
    assert both(loaded, np.array(True), np.float32(1)) == 19
    assert both(loaded, np.array(False), np.float32(1)) == 8
    assert jax.jit(jax.grad(lambda x: loaded.apply(loaded.params, np.array(True), x)))(1.0) == 19


def test_each_iteration_draws_its_own_numbers():
    loaded = load("""main (float[64] x) => (float[64] y, float[N,64] rows, float[M,64] more) {
        n = Constant<value_int = 4>()
        half = Constant<value_float = 0.5>()
        yes = Constant<value = bool {1}>()
        y, rows = Loop(n, yes, x) <body = b (int64 i, bool k, float[64] s) => (bool k2, float[64] t, float[64] r) {
            k2 = Identity(k)  t = Identity(s)  r = Dropout(s, half, yes) }>
        ones = Greater(rows, half)
        plain = CastLike(ones, x)
        again = Max(plain, x)
        more = Scan<num_scan_inputs = 1, body = c (float[64] v) => (float[64] w) { w = Dropout(v, half, yes) }>(again)
    }""")
    x = np.ones(64, np.float32)
    for run in (loaded.apply, jax.jit(loaded.apply)):
        for rows in run(loaded.params, x, rng=jax.random.key(0))[1:]:
            assert np.unique(rows, axis=0).shape == (4, 64)


def test_each_item_of_a_sequence_draws_its_own_numbers():
    loaded = load("""main (seq(float[64]) s) => (seq(float[64]) y) {
        half = Constant<value_float = 0.5>()
        yes = Constant<value = bool {1}>()
        y = SequenceMap(s) <body = b (float[64] a) => (float[64] d) { d = Dropout(a, half, yes) }>
    }""")
    rows = loaded.apply(loaded.params, [np.ones(64, np.float32)] * 4, rng=jax.random.key(0))
    assert np.unique(rows, axis=0).shape == (4, 64)


@pytest.mark.parametrize("lengths", [None, np.array([3, 3])])
def test_each_step_of_each_sequence_of_scan_8_draws_its_own_numbers(lengths):
    def body(state, value, rng):  # no operator of opset 8 that jaxops has draws numbers
        return [state + value, jax.random.uniform(rng, (64,))]

    operands = [np.ones(2, np.float32), np.ones((2, 3), np.float32)]
    last, rows = adapters()["", "Scan"][8](lengths, operands, num_scan_inputs=1, body=body, rng=jax.random.key(0))
    np.testing.assert_array_equal(last, [4, 4])
    assert np.unique(np.reshape(rows, (6, 64)), axis=0).shape == (6, 64)


def scan_model(opset, *, body="s2 = Add(s, v)  r = Identity(s2)", **attributes):
    listed = "".join(f"{name} = {value}, " for name, value in attributes.items())
    return load(
        f"""main (float[B] start, float[P,Q] x) => (float[B] y, float[T,B] rows) {{
            y, rows = Scan<num_scan_inputs = 1, {listed}
                body = b (float[B] s, float[B] v) => (float[B] s2, float[B] r) {{ {body} }}>(start, x)
        }}""",
        opset=opset,
    )


@pytest.mark.parametrize("opset", [9, 11, 16, 19, 21, 25])
def test_scan(opset):
    last, rows = both(scan_model(opset), np.zeros(3, np.float32), X)
    np.testing.assert_array_equal(last, X.sum(0))
    np.testing.assert_array_equal(rows, X.cumsum(0))
    turned = scan_model(
        opset, scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1]
    )
    last, rows = both(turned, np.zeros(2, np.float32), X)
    np.testing.assert_array_equal(rows, X[:, ::-1].cumsum(1)[:, ::-1])


def test_scan_with_symbolic_sizes():
    loaded = scan_model(18)
    scope = symbolic_shape("t, b")
    specs = [jax.ShapeDtypeStruct(scope[1:], np.float32), jax.ShapeDtypeStruct(scope, np.float32)]
    exported = export(jax.jit(lambda s, x: loaded.apply({}, s, x)))(*specs)
    _, rows = exported.call(np.zeros(3, np.float32), X)
    np.testing.assert_array_equal(rows, X.cumsum(0))
    grad = jax.grad(lambda x: loaded.apply({}, np.zeros(3, np.float32), x)[1].sum())(X)
    np.testing.assert_array_equal(grad, [[2, 2, 2], [1, 1, 1]])


def old_scan(lengths, **attributes):
    def info(name, shape, dtype=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, dtype, shape)

    body = helper.make_graph(
        [helper.make_node("Add", ["s", "v"], ["s2"]), helper.make_node("Identity", ["s2"], ["r"])],
        "body",
        [info("s", ["C"]), info("v", ["C"])],
        [info("s2", ["C"]), info("r", ["C"])],
    )
    node = helper.make_node(
        "Scan", ["n" if lengths else "", "s0", "x"], ["y", "rows"], body=body, num_scan_inputs=1, **attributes
    )
    inputs = [info("s0", ["B", "C"]), info("x", ["B", "T", "C"])]
    inputs += [info("n", ["L"], TensorProto.INT64)] if lengths else []
    graph = helper.make_graph([node], "main", inputs, [info("y", ["B", "C"]), info("rows", ["B", "T", "C"])])
    return jaxops.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)]))


BATCH = np.arange(12, dtype=np.float32).reshape(2, 3, 2)


def test_scan_8_runs_over_a_batch():
    start = np.ones((2, 2), np.float32)
    last, rows = both(old_scan(False), start, BATCH)
    np.testing.assert_array_equal(rows, 1 + BATCH.cumsum(1))
    np.testing.assert_array_equal(last, 1 + BATCH.sum(1))
    _, rows = both(old_scan(False, directions=[1]), start, BATCH)
    np.testing.assert_array_equal(rows, 1 + BATCH[:, ::-1].cumsum(1))


@pytest.mark.parametrize("turn", [0, 1])
def test_scan_8_with_sequences_of_several_lengths(turn):
    lengths = np.array([3, 1])
    last, rows = both(old_scan(True, directions=[turn]), np.ones((2, 2), np.float32), BATCH, lengths)
    for k, n in enumerate(lengths):
        expected = 1 + BATCH[k, :n][:: -1 if turn else 1].cumsum(0)
        np.testing.assert_array_equal(rows[k, :n], expected)
        np.testing.assert_array_equal(rows[k, n:], 0)
        np.testing.assert_array_equal(last[k], expected[-1])


MAP = """main (seq(float[N]) s, float[M] x) => (seq(float[N]) y, seq(int64[K]) z) {
    y, z = SequenceMap(s, x) <body = b (float[N] a, float[M] c) => (float[N] d, int64[K] e) {
        d = Add(a, c)  e = Shape(a) }>
}"""


def test_sequence_map():
    sums, sizes = both(load(MAP), [X[0], X[1, :1]], np.float32([10]))
    np.testing.assert_array_equal(sums[0], X[0] + 10)
    np.testing.assert_array_equal(sums[1], [14])
    assert [size.tolist() for size in sizes] == [[3], [1]]
    assert both(load(MAP), [], X[0]) == ([], [])


def test_sequence_map_over_lengths_that_differ():
    loaded = load("""main (seq(float) s, seq(float) t) => (seq(float) y) {
        y = SequenceMap(s, t) <body = b (float a, float c) => (float d) { d = Add(a, c) }>
    }""")
    with pytest.raises(ShapeError, match="input 1 has 1 item, but `input_sequence` has 2"):
        loaded([np.float32(1), np.float32(2)], [np.float32(1)])


def test_sequences_and_optionals_cross_the_border():
    loaded = load("""main (seq(float[N]) s, optional(float[2]) o) => (seq(float[N]) y, optional(float[2]) p, bool has) {
        y = Identity(s)  p = Identity(o)  has = OptionalHasElement(o)
    }""")
    for value in (None, X[0, :2]):
        y, p, has = both(loaded, [X[0], X[1, :1]], value)
        assert [item.shape for item in y] == [(3,), (1,)]
        assert all(isinstance(item, jax.Array) for item in y)
        assert (p is None) == (value is None)
        assert has == (value is not None)
    with pytest.raises(DTypeError, match=r"'s' is float64.* expects s: float32"):
        loaded([X[0].astype(float)], None)


def test_a_sequence_that_must_be_known():
    loaded = load("""main (seq(int64[2]) s, float[6] x) => (float[A,B] y) {
        zero = Constant<value_int = 0>()
        shape = SequenceAt(s, zero)
        y = Reshape(x, shape)
    }""")
    assert loaded.inputs[0].static == "SequenceAt 'shape' → Reshape 'y' `shape`"
    assert both(loaded, [np.array([2, 3])], X.reshape(6)).shape == (2, 3)
    assert both(loaded, [np.array([3, 2])], X.reshape(6)).shape == (3, 2)


def test_strings_in_sequences():
    loaded = load("""main (string[N] x) => (seq(string[N]) y) { y = SequenceConstruct(x, x) }""")
    assert [item.tolist() for item in both(loaded, np.array(["a", "b"], object))] == [["a", "b"]] * 2


def test_the_type_of_an_optional_is_read():
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    node = helper.make_node("Optional", [], ["y"], type=helper.make_sequence_type_proto(element))
    output = helper.make_value_info("y", helper.make_optional_type_proto(helper.make_sequence_type_proto(element)))
    graph = helper.make_graph([node], "main", [], [output])
    loaded = jaxops.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert loaded() is None
    assert "type='sequence(float32[2])'" in loaded.show()


ERRORS = [
    (
        lambda: jax.jit(load(CHOICE.replace("Neg(x)", "Transpose(x)")).apply)({}, np.array(True), X),
        ShapeError,
        r"(?s)output 0 is.*float32\[2,3\].*float32\[3,2\]",
    ),
    (lambda: scan_model(11, body="s2 = Add(s, v)  r = Transpose(s)", scan_output_axes=[2])(X[0], X), AxisError, "is 2"),
    (
        jax.disable_jit()(lambda: old_scan(True)(BATCH[:, 0], BATCH, np.array([3, 4]))),
        ArgumentError,
        r"`sequence_lens` must be in \[0, 3\]",
    ),
    (
        lambda: old_scan(True).apply({}, BATCH[:, 0], BATCH, np.array([3])),
        ShapeError,
        r"`sequence_lens` of \(1,\) must be \(2,\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[-24:] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_an_error_in_a_body_names_all_the_nodes():
    with pytest.raises(ShapeError) as info:
        load(CHOICE.replace("Mul(z, x)", "MatMul(z, x)"))(np.array(True), X)
    notes = "\n".join(info.value.__notes__)
    assert "'a' (MatMul" in notes
    assert "'y' (If" in notes
    assert notes.index("MatMul") < notes.index("(If")


def test_every_case_is_a_valid_model():
    for text in (CHOICE, POWERS, MAP):
        onnx.checker.check_model(model(text, opset=18))
