"""RandomUniform: the numbers that its text documents, and those of TensorFlow and PyTorch; and Multinomial."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from openvino_peer import agree

from jaxops.errors import ArgumentError, DTypeError, ShapeError
from jaxops.openvino import ops
from jaxops.ops.common import randomness

SEEDS = {"global_seed": 12345, "op_seed": 54321}
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
# Of the seeds above, from -100 to 250: the first numbers of TensorFlow and PyTorch.
FIRST = {
    ("tensorflow", "f64"): [2.2366742631480037, -34.69201247030239, -97.57804424383426, 142.71748941703436],
    ("tensorflow", "f32"): [175.27957, 101.50319, -91.83651, -24.046616, 206.55273, 195.63635],
    ("tensorflow", "f16"): [-59.66, 14.19, -74.7, 160.0, -69.94, 103.0, -57.62, 210.0, 208.0],
    ("tensorflow", "bf16"): [222, 113, 102, 230, 141, 124, 240, -70, -86.5, 26, 100, -7],
    ("tensorflow", "i64"): [230, -4, 26, -12, 23, 195, 74, -53, 121, 206, -99, 9, 249],
    ("tensorflow", "i32"): [-92, 82, 160, 41, 218, 48, 42, 51, 189, -96, -95, -10, -72],
    ("pytorch", "f64"): [198.81105973918417, 228.00168788316387, 133.0046720103377, 228.80839789039902],
    ("pytorch", "f32"): [243.6013641357422, 207.86228942871094, 247.25021362304688, 61.373538970947266],
    ("pytorch", "f16"): [-17.625, 157.875, 123.6875, -77.9375, 146.75, 147.625, 249.625, -34.71875],
    ("pytorch", "bf16"): [209.0, 213.0, -60.25, 76.5, 124.0, 131.0, 247.0, 72.5, 38.0, -53.5, -60.25],
    ("pytorch", "i64"): [90, 181, 85, -97, 34, -63, 160, 158, -79, 50, 121, -35, 226, 85],
    ("pytorch", "i32"): [90, 181, 85, -97, 34, -63, 160, 158, -79, 50, 121, -35, 226, 85],
}


def drawn(shape, low, high, kind, **options):
    dtype = np.dtype(TYPES.get(kind, {"i32": np.int32, "i64": np.int64}.get(kind)))
    return ops.random_uniform(shape, np.asarray(low, dtype), np.asarray(high, dtype), output_type=dtype, **options)


def test_the_examples_of_the_text():
    y = drawn((3, 3), 0, 1, "f32", global_seed=150, op_seed=10)
    expected = [[0.7011236, 0.30539632, 0.93931055], [0.9456035, 0.11694777, 0.50770056]]
    np.testing.assert_array_equal(y[:2], np.float32(expected))
    y = drawn((2, 3), 50, 100, "i32", global_seed=80, op_seed=100)
    assert y.tolist() == [[65, 70, 56], [59, 82, 92]]
    with jax.enable_x64(True):
        y = drawn((2, 2), 2, 10, "f64", global_seed=80, op_seed=100)
    np.testing.assert_allclose(y, [[5.65927959, 4.23122376], [2.67008206, 2.36423758]], rtol=1e-8)


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize(("alignment", "kind"), FIRST)
def test_numbers_of_tensorflow_and_pytorch(alignment, kind, x64):
    expected = np.asarray(FIRST[alignment, kind])
    with jax.enable_x64(x64):
        y = drawn((7, 6), -100, 250, kind, alignment=alignment, **SEEDS)
    assert y.shape == (7, 6)
    ours = np.asarray(y).reshape(-1)[: expected.size]
    if kind == "f64":
        np.testing.assert_allclose(ours, expected, rtol=1e-15 if x64 else 5e-6)
    elif kind[0] == "i" or (alignment, kind) == ("pytorch", "f16"):
        np.testing.assert_array_equal(ours.astype(np.float64), expected)
    else:  # written with few digits
        np.testing.assert_allclose(ours.astype(np.float64), expected, rtol=5e-4)


def test_wide_integers_take_two_words():
    with jax.enable_x64(True):
        y = drawn((2, 4), 0, 4294967300, "i64", alignment="pytorch", **SEEDS)
        assert y.reshape(-1).tolist()[:4] == [737404521, 3716027413, 1306031901, 35197318]
        bounds = jnp.asarray([0, 4294967300], np.int64)
        traced = jax.jit(
            lambda b: ops.random_uniform((2, 4), b[0], b[1], output_type=np.int64, alignment="pytorch", **SEEDS)
        )
        np.testing.assert_array_equal(traced(bounds), y)
        narrow = traced(jnp.asarray([-100, 250], np.int64))
    np.testing.assert_array_equal(narrow.reshape(-1), FIRST["pytorch", "i64"][:8])


@pytest.mark.parametrize("span", [3, 350, 2**31 - 1, 2**32 - 1])
def test_a_remainder_of_two_words_in_32_bits(span):
    """Without x64, by long division."""
    low = -(2**31) if span > 2**31 - 1 else 0
    with jax.enable_x64(True):
        expected = drawn((50,), low, low + span, "i64", **SEEDS)
    np.testing.assert_array_equal(drawn((50,), low, low + span, "i64", **SEEDS), expected)


def test_traced_bounds_and_symbolic_sizes():
    y = drawn((4, 3), -1.5, 2, "f32", **SEEDS)
    bounds = np.float32([-1.5, 2])
    traced = jax.jit(lambda b: ops.random_uniform((4, 3), b[0], b[1], output_type=np.float32, **SEEDS))(bounds)
    np.testing.assert_array_equal(traced, y)
    for alignment in ("tensorflow", "pytorch"):
        numbers = lambda x: drawn(x.shape, 0, 1, "f32", alignment=alignment, **SEEDS)  # noqa: B023, E731
        exported = jax.export.export(jax.jit(numbers))(
            jax.ShapeDtypeStruct(jax.export.symbolic_shape("a, b"), np.float32)
        )
        np.testing.assert_array_equal(exported.call(np.zeros((4, 200), "f4")), numbers(np.zeros((4, 200))))
    assert drawn((0, 2), 0, 1, "f32", **SEEDS).shape == (0, 2)


def test_a_key_where_both_seeds_are_0():
    key = jax.random.key(3)
    y = drawn((1000,), -2, 3, "f32", rng=key)
    assert -2 <= y.min() < -1.9 < 2.9 < y.max() < 3
    np.testing.assert_array_equal(drawn((1000,), -2, 3, "f32", rng=key), y)
    assert not np.array_equal(drawn((1000,), -2, 3, "f32", rng=jax.random.key(4)), y)
    whole = drawn((1000,), -2, 3, "i32", rng=key)
    assert sorted(set(whole.tolist())) == [-2, -1, 0, 1, 2]
    assert drawn((3,), 0, 1, "bf16", rng=key).dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(  # seeds alone say the numbers
        drawn((3,), 0, 1, "f32", rng=key, **SEEDS), drawn((3,), 0, 1, "f32", **SEEDS)
    )


def test_seeds_of_64_bits():
    low, high = (drawn((4,), 0, 2**31 - 1, "i32", global_seed=g, op_seed=1) for g in (5, 5 + 2**32))
    assert not np.array_equal(low, high)
    np.testing.assert_array_equal(low, drawn((4,), 0, 2**31 - 1, "i32", global_seed=5, op_seed=1 + 2**64))


def test_words_are_those_of_numpy():
    """Philox of NumPy has 64-bit words, so the Mersenne Twister alone can be compared."""
    words = randomness.mersenne_twister(12345, 1500)[:1500]
    np.testing.assert_array_equal(words, np.random.RandomState(12345).randint(0, 2**32, 1500, np.uint32))


@pytest.mark.parametrize("kind", ["f32", "i32"])
def test_openvino_draws_the_same(kind):
    """Numbers of 16 bits it draws in float32, from which its text differs."""
    dtype = {"f32": np.float32, "i32": np.int32}[kind]
    for alignment in ("tensorflow", "pytorch"):
        attributes = {"output_type": kind, "alignment": alignment, **SEEDS}
        inputs = [np.array([3, 5]), np.asarray(-3, dtype), np.asarray(7, dtype)]
        y = drawn((3, 5), -3, 7, kind, alignment=alignment, **SEEDS)
        agree(8, "RandomUniform", inputs, attributes, y, constants=(0, 1, 2), atol=1e-6)


def sample(probs, count, *, with_replacement=True, log_probs=False, **options):
    return ops.multinomial(
        np.asarray(probs, np.float32),
        count,
        convert_type="int32",
        with_replacement=with_replacement,
        log_probs=log_probs,
        **(options or {"global_seed": 1}),
    )


@pytest.mark.parametrize("log_probs", [True, False])
@pytest.mark.parametrize("with_replacement", [True, False])
def test_classes_by_the_text(with_replacement, log_probs):
    """The algorithm of the text as a loop, on the same numbers."""
    random = np.random.RandomState(0)
    probs = random.uniform(0.1, 3, (3, 6)).astype(np.float32)
    numbers = np.asarray(drawn((3, 5), 0, 1, "f64", global_seed=9))
    expected = np.zeros((3, 5), np.int32)
    for row in range(3):
        weights = np.exp(probs[row], dtype=np.float64) if log_probs else probs[row].astype(np.float64)
        for column in range(5):
            reached = np.cumsum(weights) / weights.sum()
            expected[row, column] = chosen = np.flatnonzero(numbers[row, column] <= reached)[0]
            if not with_replacement:
                weights[chosen] = 0
    y = sample(probs, 5, with_replacement=with_replacement, log_probs=log_probs, global_seed=9)
    np.testing.assert_array_equal(y, expected)
    assert y.dtype == np.int32


def test_classes_are_as_frequent_as_probable():
    y = np.asarray(sample([[1, 3, 0, 4]], 4000, rng=jax.random.key(0)))
    counts = np.bincount(y[0], minlength=4) / 4000
    np.testing.assert_allclose(counts, [0.125, 0.375, 0, 0.5], atol=0.03)
    large = sample([[1000, 0, 1000]], 50, log_probs=True)
    assert set(np.asarray(large)[0].tolist()) == {0, 2}


def test_without_replacement_each_class_comes_once():
    y = np.asarray(sample(np.ones((20, 7)), 7, with_replacement=False))
    np.testing.assert_array_equal(np.sort(y, 1), np.broadcast_to(np.arange(7), (20, 7)))
    exported = jax.export.export(jax.jit(lambda x: sample_of(x)))(
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 7"), np.float32)
    )
    np.testing.assert_array_equal(exported.call(np.ones((20, 7), "f4")), y)


def sample_of(x):
    return ops.multinomial(x, 7, convert_type="int32", with_replacement=False, log_probs=False, global_seed=1)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ArgumentError, "it needs a random key", lambda: drawn((2,), 0, 1, "f32")),
        (ArgumentError, r"`shape` \(2, -1\) holds -1", lambda: drawn((2, -1), 0, 1, "f32", **SEEDS)),
        (ArgumentError, r"`max_val` is 1\.0; it must be above `min_val`, 1\.0", lambda: drawn((2,), 1, 1, "f32")),
        (ShapeError, r"`min_val` must be one number, got \(2,\)", lambda: drawn((2,), [0, 1], 1, "f32", **SEEDS)),
        (DTypeError, "`output_type` is bool", lambda: ops.random_uniform((2,), 0, 1, output_type="bool", **SEEDS)),
        (ArgumentError, "`alignment` is 'jax'", lambda: drawn((2,), 0, 1, "f32", alignment="jax", **SEEDS)),
        (ArgumentError, "it needs a random key", lambda: sample([[1]], 2, global_seed=0)),
        (ShapeError, r"`probs` of \(3,\) must be \(batch, classes\)", lambda: sample([1, 2, 3], 2)),
        (
            ArgumentError,
            r"`num_samples` is 4, but `probs` of \(1, 3\) has 3 classes",
            lambda: sample([[1, 2, 3]], 4, with_replacement=False),
        ),
        (
            DTypeError,
            "`convert_type` is float32",
            lambda: ops.multinomial(
                np.ones((1, 2), "f4"), 1, convert_type="f4", with_replacement=True, log_probs=False, global_seed=1
            ),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
