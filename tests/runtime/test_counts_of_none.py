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


@pytest.mark.parametrize(("op", "dtype"), [("Add", np.float32), ("Mul", np.int32)])
def test_one_row_is_repeated_for_this_node_alone(op, dtype):
    """The rows of one mask meet those of another: the numbers of rows are equal, or the second one is 1."""
    kind = {np.float32: "float", np.int32: "int32"}[dtype]
    text = f"""rows ({kind}[6, 2] x, bool[6] p, bool[6] q) => ({kind}[a, b] y, {kind}[c, d] z)
        <int64[1] axis = {{0}}> {{
        a = Compress<axis = 0>(x, p) b = Compress<axis = 0>(x, q)
        c = {op}(a, b) y = ReduceSum(c, axis) z = ReduceSum(b, axis) }}"""
    net = load(model(text), bounds={"Compress": 6})
    apply, x = jax.jit(net.apply), np.arange(1, 13, dtype=dtype).reshape(6, 2)
    for first, second in [(3, 3), (3, 1), (0, 1), (0, 0), (1, 1), (6, 1)]:
        p, q = np.arange(6) < first, np.arange(6) >= 6 - second
        y, z = apply(net.params, x, p, q)
        np.testing.assert_array_equal(y, np.sum(x[p] * x[q] if op == "Mul" else x[p] + x[q], 0, keepdims=True))
        np.testing.assert_array_equal(z, np.sum(x[q], 0, keepdims=True))
