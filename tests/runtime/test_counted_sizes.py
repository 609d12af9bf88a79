"""What reads a result of data-dependent size sees its true elements alone: with a bound, and in a program without one.

The expected values are those of `model(x)` without bounds, which computes with arrays of the exact size.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

from jaxops.errors import ShapeError, StaticError, UnboundedError, UnsupportedError
from jaxops.onnx import load

RNG = np.random.default_rng(0)
# Each reads the rows that a mask chooses: `i` are their indices, `s` and `rows` the elements there.
CONSUMERS = {
    "fill": "n0 = Shape(i) e0 = Expand(seven, n0) fill = ScatterND(v, idx, e0)",
    "written": "g1 = GatherND(v, idx) e1 = Exp(g1) written = ScatterND(v, idx, e1)",
    "added": 'added = ScatterND<reduction = "add">(v, idx, s)',
    "rows_written": "t2 = Sin(rows) rows_written = ScatterND(x, idx, t2)",
    "elements": "t3 = Neg(s) elements = ScatterElements(v, i, t3)",
    "segments": 'm4 = Mod(i, four) segments = ScatterElements<reduction = "add">(none4, m4, s)',
    "highest": 'm5 = Mod(i, four) highest = ScatterElements<reduction = "max">(none4, m5, s)',
    "nodes": """both6 = Concat<axis = 0>(i, i) back6 = Mod(both6, four) to6 = Unsqueeze(back6, one)
        from6 = Gather(x, both6) nodes = ScatterND<reduction = "add">(none43, to6, from6)""",
    "total": "total = ReduceSum<keepdims = 0>(rows, zero)",
    "mean": "mean = ReduceMean<keepdims = 0>(rows, zero)",
    "most": "most = ReduceMax<keepdims = 0>(rows, zero)",
    "logs": "q7 = Mul(rows, rows) l7 = Log(q7) logs = ReduceSum<keepdims = 0>(l7)",
    "soft": "p8 = Softmax<axis = 0>(s) soft = ScatterND(v, idx, p8)",
    "gram": "t9 = Transpose(rows) gram = MatMul(t9, rows)",
    "best": "c10 = Concat<axis = 0>(s, low) best, at10 = TopK(c10, two)",
    "some_best": """n11 = Shape(s) k11 = Min(n11, three) b11, at11 = TopK(s, k11) j11 = Gather(i, at11)
        w11 = Gather(v, j11) some_best = ReduceProd<keepdims = 0>(w11)""",
    "sums": "c12 = CumSum<reverse = 1>(s, first) sums = ScatterND(v, idx, c12)",
    "normal": "n13 = LayerNormalization(rows, ones) normal = ReduceSum<keepdims = 0>(n13, zero)",
    "windows": """t14 = Transpose(rows) b14 = Unsqueeze(t14, zero)
        c14 = Conv<kernel_shape = [3], pads = [1, 1]>(b14, filters) windows = ReduceSum<keepdims = 0>(c14)""",
    "attention": """t15 = Transpose(rows) l15 = MatMul(rows, t15) p15 = Softmax<axis = 1>(l15)
        a15 = MatMul(p15, rows) attention = ReduceSum<keepdims = 0>(a15, zero)""",
    "cut": "c16 = Slice(rows, zero, minus) d16 = Concat<axis = 0>(c16, more) cut = ReduceSum<keepdims = 0>(d16, zero)",
    "steps": """a17 = Slice(s, one, end) b17 = Slice(s, zero, minus) d17 = Sub(a17, b17) e17 = Exp(d17)
        steps = ReduceSum<keepdims = 0>(e17)""",
    "reversed": "r18 = Slice(s, minus, begin, zero, minus) reversed = ScatterND(v, idx, r18)",
    "scattered": "n19 = Shape(i) s19 = Slice(source, zero, n19) scattered = ScatterND(v, idx, s19)",
    "count": "n20 = Shape(i) count = Cast<to = 1>(n20)",
    "at_least_one": """n21 = Shape(s) k21 = Max(n21, one) f21 = Cast<to = 1>(k21) t21 = ReduceSum<keepdims = 0>(s)
        at_least_one = Div(t21, f21)""",
    "compressed": "c22 = Compress<axis = 0>(x, m) compressed = ReduceSum<keepdims = 0>(c22, zero)",
    "distinct": "q23 = Floor(v) u23, at23, of23, n23 = Unique(q23) distinct = ReduceSum<keepdims = 0>(u23)",
    "twice": """g24 = Greater(s, nought) at24 = NonZero(g24) i24 = Squeeze(at24, zero) t24 = Gather(s, i24)
        twice = ReduceSum<keepdims = 0>(t24)""",
    "classes": "o25 = OneHot<axis = 1>(i, eight, off_on) classes = ReduceSum<keepdims = 0>(o25, zero)",
    "boxes": """b26 = Gather(corners, i) b27 = Unsqueeze(b26, zero) s26 = Unsqueeze(s, both)
        f26 = NonMaxSuppression(b27, s26, hundred, overlap) k26 = Gather<axis = 1>(f26, last)
        w26 = Gather(s, k26) boxes = ReduceSum<keepdims = 0>(w26)""",
    "two_masks": """f28 = Cast<to = 1>(m) at28 = NonZero(f28) i28 = Squeeze(at28, zero) o28 = Gather(v, i28)
        p28 = Mul(s, o28) two_masks = ReduceSum<keepdims = 0>(p28)""",
    "branch": """n29 = Shape(i) some29 = Greater(n29, zero) c29 = Squeeze(some29, zero)
        branch = If(c29) <then_branch = t () => (float a) { a = ReduceMax<keepdims = 0>(rows) },
                          else_branch = e () => (float b) { b = Identity(seven) }>""",
    "counted": """r30 = Reshape(m, minus) c30 = Cast<to = 7>(r30) n30 = ReduceSum<keepdims = 1>(c30)
        e30 = Expand(seven, n30) counted = ScatterND(v, idx, e30)""",
    "shifted": """a33 = Slice(s, one, end) c33 = CumSum<exclusive = 1>(a33, first)
        shifted = ReduceSum<keepdims = 0>(c33)""",
    "rest": "n31 = Shape(i) r31 = Slice(source, n31, end) rest = ReduceSum<keepdims = 0>(r31)",
}
VALUES = {
    **{"zero": [0], "one": [1], "two": [2], "three": [3], "minus": [-1], "end": [2**62], "begin": [-(2**62)]},
    **{"both": [0, 1], "hundred": [100], "last": 2, "first": 0, "four": 4, "eight": 8},
}
FLOATS = {
    **{"seven": 7, "nought": 0, "none4": [0] * 4, "none43": [[0] * 3] * 4, "low": [-50, -60], "ones": [1] * 3},
    **{"off_on": [0, 1], "overlap": [0.3], "source": np.arange(8) / 4, "more": RNG.normal(size=(2, 3))},
    **{"filters": RNG.normal(size=(2, 3, 3)), "corners": [[0, k * 0.7, 1, k * 0.7 + 1] for k in range(8)]},
}
INITIALIZERS = {k: np.array(x) for k, x in VALUES.items()} | {k: np.array(x, np.float32) for k, x in FLOATS.items()}
MASKS = [np.arange(8) < 0, np.arange(8) == 2, np.arange(8) % 3 == 1, np.arange(8) < 5, np.arange(8) >= 0]


def net(*names):
    """The model of these consumers."""
    body = "\n".join(CONSUMERS[name] for name in names)
    outputs = ", ".join(f"float[d_{name}] {name}" for name in names)
    proto = model(
        f"""main (float[8,3] x, bool[8,1] mask, float[8] v) => ({outputs}) {{
            m = Reshape(mask, minus) at = NonZero(m) idx = Transpose<perm = [1, 0]>(at) i = Squeeze(at, zero)
            rows = Gather(x, i) s = Gather(v, i)
            {body} }}""",
        initializers={k: x for k, x in INITIALIZERS.items() if k in f"{body} zero minus"},
    )
    for output in proto.graph.output:  # of any rank
        output.type.tensor_type.ClearField("shape")
    return proto


def garbage(mask, seed=0):
    """Inputs with infinities, NaN and huge numbers in the rows that the mask does not choose."""
    rng = np.random.default_rng(seed)
    x, v = rng.normal(size=(8, 3)).astype(np.float32), rng.normal(size=8).astype(np.float32)
    x[~mask] = rng.choice([np.nan, np.inf, 1e30], size=(8 - mask.sum(), 3))
    return x, mask[:, None], v


BOUNDS = {"NonZero": 8, "Compress": 8, "Unique": 8, "NonMaxSuppression": 8}


SOME = ["fill", "written", "elements", "nodes", "mean", "best", "distinct", "two_masks", "branch", "counted"]


@pytest.mark.parametrize(("names", "bounds"), [(CONSUMERS, BOUNDS), (SOME, None)], ids=["bounds", "none"])
def test_every_consumer_sees_the_true_elements(names, bounds):
    proto = net(*names)
    exact, bounded = load(proto), load(proto, bounds=bounds)
    apply = jax.jit(chex.assert_max_traces(bounded.apply, 1))
    for mask in MASKS:
        inputs = garbage(mask)
        expected, got = exact(*inputs), apply(bounded.params, *inputs)
        for name in names:
            np.testing.assert_allclose(
                getattr(got, name), getattr(expected, name), rtol=1e-4, atol=1e-5, err_msg=f"{name}, {mask.sum()} rows"
            )


GRADIENTS = ["written", "rows_written", "segments", "nodes", "total", "logs", "soft", "normal", "attention", "best"]


def test_derivatives_leave_the_padding_out():
    """Those by rows that the mask does not choose are 0, though 1/x and log(x) are not finite there."""
    proto = net(*GRADIENTS)
    bounded = load(proto, bounds={"NonZero": 8})

    def loss(net, x, *others):
        return sum(jnp.where(jnp.isfinite(y), y, 0).sum() for y in net(x, *others)[1:])

    gradient = jax.jit(jax.grad(lambda x, mask, v: loss(bounded, x, mask, v), (0, 2)))
    for mask in MASKS[::2]:
        x, chosen, v = garbage(mask)
        x[~mask] = 0  # of `rows_written` the derivative by an unchosen row is 1, and that of the logarithm infinite
        known = load(proto, values={"mask": chosen})  # a size that does not depend on data
        expected = jax.jit(jax.grad(lambda x, v, known=known: loss(known, x, v), (0, 1)))(x, v)
        for got, wanted in zip(gradient(x, chosen, v), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_vmap_and_export():
    names = ["written", "fill", "total", "best", "counted"]
    net_, masks = load(net(*names)), np.stack(MASKS)[..., None]
    inputs = [garbage(mask, seed) for seed, mask in enumerate(MASKS)]
    mapped = jax.vmap(net_.apply, (None, 0, 0, 0))(net_.params, *map(np.stack, zip(*inputs, strict=True)))
    exported = net_.export()
    for k, (x, _, v) in enumerate(inputs):
        expected = net_(x, masks[k], v)
        for got in (jax.tree.map(lambda y, k=k: y[k], tuple(mapped)), exported.call(net_.params, x, masks[k], v)):
            chex.assert_trees_all_close(tuple(got), tuple(expected), rtol=1e-5)


# As PyTorch's two exporters write `y[mask] = exp(x[mask])`, the second one with a free batch.
WRITES = model(
    """main (float[b,4] x, bool[b,4] m) => (float[b,4] y, float mean) {
        at = NonZero(m) idx = Transpose<perm = [1, 0]>(at) s = GatherND(x, idx) e = Exp(s)
        flat = Reshape(m, minus) c = Cast<to = 7>(flat) n = ReduceSum<keepdims = 1>(c) same = Expand(e, n)
        d = Reshape(same, minus) y = ScatterND(x, idx, d) mean = ReduceMean<keepdims = 0>(s) }""",
    initializers={"minus": np.array([-1])},
)


def test_a_mask_of_rows_may_be_traced():
    """Although PyTorch's writes compute a size from it: the number of true elements."""
    proto = model(
        """main (float[b,4] x, bool[b] m) => (float[b,4] y) {
            at = NonZero(m) idx = Transpose<perm = [1, 0]>(at) s = GatherND(x, idx) e = Exp(s)
            c = Cast<to = 7>(m) n = ReduceSum<keepdims = 1>(c) size = Concat<axis = 0>(n, four) same = Expand(e, size)
            y = ScatterND(x, idx, same) }""",
        initializers={"four": np.array([4])},
    )
    found = load(proto)
    exported = found.export()
    for rows in (1, 3, 6):
        x = RNG.normal(size=(rows, 4)).astype(np.float32)
        for mask in (x[:, 0] > 0, x[:, 0] > 9, x[:, 0] < 9):
            for y in (found(x, mask), jax.jit(found.apply)({}, x, mask), exported.call({}, x, mask)):
                expected = np.where(mask[:, None], np.exp(x), x)
                np.testing.assert_allclose(y[0] if isinstance(y, tuple | list) else y, expected, rtol=1e-6)


def test_an_export_with_free_sizes_needs_no_bound():
    exported = load(WRITES).export()
    for rows in (1, 3, 6):
        x = RNG.normal(size=(rows, 4)).astype(np.float32)
        for mask in (x > 0, x > 9, x < 9):
            y, mean = exported.call({}, x, mask)
            np.testing.assert_allclose(y, np.where(mask, np.exp(x), x), rtol=1e-6)
            np.testing.assert_allclose(mean, x[mask].mean() if mask.any() else np.nan, rtol=1e-5)


def test_above_the_bound_the_first_elements_count():
    proto = model(
        """main (float[N] x) => (int64[1,K] at, float sum, float[N] y) {
            at = NonZero(x) idx = Transpose<perm = [1, 0]>(at) s = GatherND(x, idx) sum = ReduceSum<keepdims = 0>(s)
            e = Neg(s) y = ScatterND(x, idx, e) }"""
    )
    bounded, x = load(proto, bounds={"at": 3}), np.array([1, 0, 2, 3, 4], np.float32)
    for call in (bounded, jax.jit(lambda x: bounded.apply({}, x))):
        at, total, y = call(x)
        assert (at.tolist(), float(total), y.tolist()) == ([[0, 2, 3]], 6, [-1, 0, -2, -3, 4])


def test_updates_of_a_fixed_size_fit_the_count_or_write_nothing():
    proto = model(
        """main (float[5] x, float[2] v) => (float[5] y) {
            at = NonZero(x) idx = Transpose<perm = [1, 0]>(at) y = ScatterND(x, idx, v) }"""
    )
    exact, v = load(proto), np.array([8, 9], np.float32)
    for bounds in ({"NonZero": 4}, None):
        apply = jax.jit(load(proto, bounds=bounds).apply)
        x = np.array([0, 5, 0, 0, 7], np.float32)
        np.testing.assert_array_equal(apply({}, x, v), exact(x, v))
        with pytest.raises(ShapeError, match="updates"):
            exact(np.ones(5, np.float32), v)
        np.testing.assert_array_equal(apply({}, np.ones(5, np.float32), v), np.ones(5))


def test_buckets_and_pieces_beside_a_bound():
    proto = model(
        """main (float[k] v) => (float s, float[k] y, int64[1,M] least) {
            zero = Constant<value_ints = [0]>() at = NonZero(v) i = Squeeze(at, zero)
            r = Gather(v, i) s = ReduceSum<keepdims = 0>(r)
            idx = Transpose<perm = [1, 0]>(at) e = Neg(r) y = ScatterND(v, idx, e) least = NonZero(e) }"""
    )
    exact = load(proto)
    for bounded in (
        load(proto, bounds={"at": 9, "least": 9}, buckets={"k": 8}),
        load(proto, bounds={"least": 9}),
    ):
        for size in (3, 7, 5, 8):  # from the second size on, pieces run on rounded-up arrays
            v = RNG.normal(size=size).astype(np.float32) * (np.arange(size) % 3 > 0)
            (s, y, least), (total, changed, places) = bounded(v), exact(v)
            np.testing.assert_allclose(s, total, rtol=1e-6)
            np.testing.assert_array_equal(y, changed)
            np.testing.assert_array_equal(least[:, : places.shape[1]], places)
            assert (np.asarray(least[:, places.shape[1] :]) == -1).all()
            assert least.shape == (1, 9)


def test_zeros_of_a_rounded_size_are_cropped():
    proto = model(
        """main (float[b,4] x, bool[b] m) => (float[b,4] y) {
            at = NonZero(m) idx = Transpose<perm = [1, 0]>(at) s = GatherND(x, idx)
            shape = Shape(x) none = ConstantOfShape(shape) y = ScatterND(none, idx, s) }"""
    )
    net_ = load(proto)
    for size in (6, 9, 12):
        x, mask = RNG.normal(size=(size, 4)).astype(np.float32), np.arange(size) % 2 > 0
        np.testing.assert_array_equal(net_(x, mask), np.where(mask[:, None], x, 0))


def test_the_state_of_a_loop_has_no_padding():
    """A value that re-enters the next iteration would have its padding as data."""
    proto = model(
        """main (float[4] x) => (int64[1,K] y) {
            three = Constant<value = int64 {3}>() yes = Constant<value = bool {1}>() at = NonZero(x)
            y = Loop(three, yes, at) <body = l (int64 i, bool go, int64[1,A] s) => (bool on, int64[1,B] t) {
                on = Identity(go) f = Cast<to = 1>(i) g = Greater(x, f) t = NonZero(g) }> }"""
    )
    with pytest.raises(UnsupportedError, match="Loop 'y'"):
        jax.jit(load(proto, bounds={"NonZero": 4}).apply)({}, np.array([1, 0, 2, 0], np.float32))


def test_random_numbers_are_those_of_the_exact_size():
    """A program draws for the true elements what a plain call draws, along any axis."""
    proto = model(
        """main (float[6,2] x, bool[6] m) => (float[2] first, float[2] last, float[2] total) {
            rows = Compress<axis = 0>(x, m) t = Transpose(rows) r = RandomNormalLike(rows) q = RandomUniformLike(t)
            first = Gather(r, nought) last = Gather<axis = 1>(q, minus) total = ReduceSum<keepdims = 0>(q, one) }""",
        initializers={"nought": 0, "minus": -1, "one": [1]},
    )
    exact, bounded = load(proto), load(proto, bounds={"Compress": 6})
    for net_ in (exact, bounded):
        run = jax.jit(net_.apply)
        for count in (1, 4, 6):
            inputs, key = (np.zeros((6, 2), np.float32), np.arange(6) < count), jax.random.key(count)
            for got, wanted in zip(run({}, *inputs, rng=key), exact(*inputs, rng=key), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_flags_of_rows_that_data_choose_are_counted():
    """Their sum may be a size, so it has a largest value: the most rows that a mask can choose."""
    proto = model(
        """main (float[8,2] x, bool[8] m) => (int64[1] n, float[1,1] total) {
            rows = Compress<axis = 0>(x, m) s = Gather<axis = 1>(rows, nought) high = Greater(s, two)
            flags = Cast<to = 7>(high) n = ReduceSum(flags, first) line = Unsqueeze(s, both)
            c = Conv<pads = [1, 1]>(line, filters) total = ReduceSum<keepdims = 0>(c, last) }""",
        initializers={
            **{"two": np.float32(2), "nought": 0, "first": [0], "both": [0, 1], "last": [2]},
            "filters": np.ones((1, 1, 3), np.float32),
        },
    )
    net_, x = load(proto), np.stack([np.arange(8, dtype=np.float32)] * 2, 1)
    apply = jax.jit(net_.apply)
    for count in (2, 5, 8):
        n, total = apply(net_.params, x, np.arange(8) < count)
        np.testing.assert_array_equal(n, [max(0, count - 3)])
        ends = 0 + count - 1
        np.testing.assert_allclose(total, [[3 * np.arange(count).sum() - ends]])


def sliced(body):
    """A model whose slice `part` depends on the number n of the rows that a mask chooses; without a mask n is 0."""
    return load(
        model(
            f"""main (float[8,2] x, bool[8] m) => (float[2] y) {{
                rows = Compress<axis = 0>(x, m) n = Shape<end = 1>(rows)
                {body} y = ReduceSum<keepdims = 0>(part, zero) }}""",
            initializers={"zero": [0], "one": [1], "eight": [8], "end": [2**62], "two": [2]},
        )
    )


@pytest.mark.parametrize(
    "body",
    [
        "part = Slice(rows, zero, end, zero, eight)",
        "k = Min(n, two) few = Slice(rows, zero, k) part = Slice(few, zero, end, zero, two)",
        "k = Sub(n, one) part = Slice(rows, k, end)",
        "k = Neg(n) part = Slice(rows, k, end)",
    ],
)
def test_a_slice_of_no_rows_is_empty(body):
    net_ = sliced(body)
    apply = jax.jit(net_.apply)
    for count in (0, 1, 5):
        x, mask = RNG.normal(size=(8, 2)).astype(np.float32), np.arange(8) >= 8 - count
        np.testing.assert_allclose(apply({}, x, mask), net_(x, mask), rtol=1e-6)


@pytest.mark.parametrize("body", ["k = Sub(n, one) part = Slice(x, zero, k)", "k = Neg(n) part = Slice(x, k, end)"])
def test_a_bound_that_counts_from_the_end_for_some_numbers_of_rows(body):
    """x[-n:] is all of x for n = 0, and x[: n - 1] all but the last."""
    net_ = sliced(body)
    x, mask = np.ones((8, 2), np.float32), np.zeros(8, bool)
    np.testing.assert_array_equal(net_(x, mask), [8, 8] if "Neg" in body else [7, 7])
    with pytest.raises((StaticError, UnboundedError), match=r"must be known|depends on"):
        jax.jit(net_.apply)({}, x, mask)
