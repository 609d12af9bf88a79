"""Sizes that are computed from a number of rows, for 0 rows, 1 and more.

The expected values are those of ONNX's evaluator at exact sizes. The surplus of every array is overwritten.
"""

import jax
import numpy as np
import pytest
from count_cases import CASES
from graphs import model
from random_sized_models import RandomModel, wrong
from spoiled_surplus import spoiled_surplus

from jaxops.errors import SizeError
from jaxops.onnx import load

COUNTS, ROWS = (3, 7, 0, 1, 2, 0, 5, 1), 12
# A NonZero without a bound needs its input's exact size.
NO_PROGRAM = {("nonzero", "bound"), ("nonzero", "buckets"), ("sum of nonzero", "buckets")}


def in_pieces(m, output):
    return load(m.model([output]))


def in_buckets(m, output):
    return load(m.model([output]), buckets={"k": 8})


def with_bound(m, output):
    net = load(m.model([output]), bounds={"Compress": ROWS})
    apply = jax.jit(net.apply)
    return lambda *inputs: apply(net.params, *inputs)


def chosen_rows(rng):
    x = [rng.integers(-4, 5, (ROWS, 2)).astype(np.float32) for _ in COUNTS]
    masks = [rng.permutation(ROWS) < count for count in COUNTS]
    m = RandomModel(0, {"x": x, "mask": masks}, {"x": [ROWS, 2], "mask": [ROWS]})
    return m, m.add("Compress", "x", "mask", axis=0)


def rows_of_an_input(rng):
    x = [rng.integers(-4, 5, (count, 2)).astype(np.float32) for count in COUNTS]
    return RandomModel(0, {"x": x}, {"x": ["k", 2]}), "x"


WAYS = {
    "pieces": (chosen_rows, in_pieces),
    "buckets": (rows_of_an_input, in_buckets),
    "bound": (chosen_rows, with_bound),
}


@pytest.mark.grid
@pytest.mark.filterwarnings("ignore:buckets. no program serves:UserWarning")  # each half has its own then
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
@jax.enable_checks(False)
def test_same_as_at_exact_sizes(name, way):
    if (name, way) in NO_PROGRAM:
        pytest.skip("a NonZero without a bound has no program for several sizes of its input")
    start, loaded = WAYS[way]
    m, rows = start(np.random.default_rng(0))
    output = CASES[name](m, rows)
    with spoiled_surplus(np.True_):
        call = loaded(m, output)
        for k, count in enumerate(COUNTS):
            got, want = np.asarray(call(*(m.samples[v][k] for v in m.inputs))), m.samples[output][k]
            true = got[tuple(map(slice, want.shape))] if got.ndim == want.ndim else got
            assert not wrong(true, want, is_rough=True), f"{count} rows"


BROADCASTS = {
    "Add": ("c = Add(a, b)", np.add),
    "Mul": ("c = Mul(a, b)", np.multiply),
    "Where": ("positive = Less(zero, a) c = Where(positive, b, a)", lambda a, b: np.where(a > 0, b, a)),
    "Sum": ("c = Sum(b, a, b, row)", lambda a, b: a + b + b),
    "Expand": ("size = Shape(b) c = Expand(a, size)", lambda a, b: a + 0 * b),
}


# Sum takes floats alone.
@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, np.float32) for name in BROADCASTS), *((name, np.int32) for name in [*BROADCASTS][:3])]
)
def test_one_row_is_repeated_for_this_node_alone(name, dtype):
    """The rows of one mask meet those of another: the numbers of rows are equal, or one is 1."""
    kind, (body, expected) = {np.float32: "float", np.int32: "int32"}[dtype], BROADCASTS[name]
    text = f"""rows ({kind}[6, 2] x, bool[6] p, bool[6] q) => ({kind}[e, f] c, {kind}[a, b] y, {kind}[c, d] z) {{
        a = Compress<axis = 0>(x, p) b = Compress<axis = 0>(x, q)
        {body} y = ReduceSum(c, axis) z = ReduceSum(b, axis) }}"""
    given = {"axis": np.array([0]), "zero": np.zeros((), dtype), "row": np.zeros((1, 2), dtype)}
    net = load(model(text, initializers={name: x for name, x in given.items() if name in text}), bounds={"Compress": 6})
    apply, x = jax.jit(net.apply), np.arange(1, 13, dtype=dtype).reshape(6, 2)
    for first, second in [(3, 3), (3, 1), (0, 1), (0, 0), (1, 1), (6, 1), (1, 4), (1, 0)]:
        p, q = np.arange(6) < first, np.arange(6) >= 6 - second
        c, y, z = apply(net.params, x, p, q)
        want = expected(x[p], x[q])
        np.testing.assert_array_equal(c[: len(want)], want)
        np.testing.assert_array_equal(y, np.sum(want, 0, keepdims=True))
        np.testing.assert_array_equal(z, np.sum(x[q], 0, keepdims=True))


def counts_meet_a_free_size(**options):
    text = """rows (float[n, 2] y, float[6, 2] x, bool[6] p) => (float[e, 2] c, float[a, b] s) {
        a = Compress<axis = 0>(x, p) c = Add(y, a) s = ReduceSum(c, axis) }"""
    return load(model(text, initializers={"axis": np.array([0])}), bounds={"Compress": 6}, **options)


def sums_of_a_free_size(call, sizes):
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    for n, count in [(size, count) for size in sizes for count in ((0, 1, 4) if size == 1 else (1, size))]:
        c, y = call(np.ones((n, 2), np.float32), x, np.arange(6) < count)
        want = np.ones((n, 2), np.float32) + x[:count]
        np.testing.assert_array_equal(np.asarray(c)[: len(want)], want)
        np.testing.assert_array_equal(y, np.sum(want, 0, keepdims=True))


def test_a_free_size_of_an_export_is_not_one_where_it_meets_a_count():
    net = counts_meet_a_free_size()
    several, one = net.export(), net.export(sizes={"n": 1})
    sums_of_a_free_size(lambda *inputs: several.call(net.params, *inputs), (2, 5))
    sums_of_a_free_size(lambda *inputs: one.call(net.params, *inputs), (1,))
    with pytest.raises(ValueError, match="n >= 2"):
        several.call(net.params, np.ones((1, 2), np.float32), np.ones((6, 2), np.float32), np.ones(6, bool))
    (n,) = jax.export.symbolic_shape("n")
    given = [jax.ShapeDtypeStruct((n, 2), "float32"), jax.ShapeDtypeStruct((6, 2), "float32"), np.ones(6, bool)]
    with pytest.raises(SizeError, match=r"n may be 1, which broadcasts to the size of 'a', which .*\n.*n >= 2"):
        jax.export.export(jax.jit(net.apply))(net.params, *given)


@pytest.mark.filterwarnings("ignore:buckets. no program serves:UserWarning")  # 1 has its own, for which rows repeat
def test_a_size_in_buckets_meets_a_count():
    sums_of_a_free_size(counts_meet_a_free_size(buckets={"n": 4}), (3, 1, 2))
