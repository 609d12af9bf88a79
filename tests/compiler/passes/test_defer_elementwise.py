"""That concatenations come before what all their parts go through alike, and only then."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import TARGET, inlined

from jaxops.compiler.ir import needed, run
from jaxops.compiler.passes.defer_elementwise import defer_elementwise

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 5, 24, 30), np.float32)
SIZES = (8, 3, 40)  # channels of the parts
FILTERS = [RNG.standard_normal((size, 5, 1, 1), np.float32) for size in SIZES]
SCALES, SHIFTS = ([RNG.standard_normal((size,), np.float32) for size in SIZES] for _ in range(2))
WEIGHTS = [jnp.asarray(w) for w in (*FILTERS, *SCALES, *SHIFTS)]


def joined(each, after=lambda parts: lax.concatenate(parts, 1)):
    """The names of what runs for parts that `each` makes of a convolution, a scale and a shift for each channel."""

    def fn(weights, x):
        filters, scales, shifts = weights[:3], weights[3:6], weights[6:]
        parts = [lax.conv(x, w, (1, 1), "VALID") for w in filters]
        return after([each(k, y, s, b) for k, (y, s, b) in enumerate(zip(parts, scales, shifts, strict=True))])

    before = inlined(fn, WEIGHTS, jnp.asarray(X))
    program = defer_elementwise(before, TARGET)

    found = jax.jit(lambda weights, x: run(program, [*weights, x]))(WEIGHTS, X)
    for a, b in zip(found, jax.tree.leaves(jax.jit(fn)(WEIGHTS, X)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert program.types[: len(before.types)] == before.types
    for operation in program.operations:
        assert [program.types[v].shape for v in operation.results] == [
            y.shape
            for y in jax.eval_shape(lambda *xs, o=operation: o.emit(xs), *map(struct(program), operation.operands))
        ]
    return [o.name for o in needed(program.operations, program.outputs)]


def struct(program):
    return lambda v: program.types[v] if isinstance(v, int) else v.value


def channel(v):
    return lax.broadcast_in_dim(v, (2, v.shape[0], 24, 30), (1,))


def normalized(_, y, s, b):
    """A normalization, its vectors as ONNX files have them, and an activation that reads it twice."""
    y = lax.add(lax.mul(y, channel(s)), lax.broadcast_in_dim(b.reshape(-1, 1, 1), y.shape, (1, 2, 3)))
    return lax.select(lax.le(y, jnp.zeros_like(y)), jnp.zeros_like(y), y)


def test_a_normalization_and_an_activation_of_all_parts():
    names = joined(normalized)
    assert [names.count(name) for name in ("mul", "add", "le", "select_n")] == [1, 1, 1, 1]
    assert names.count("concatenate") == 3  # the data, the scales, the shifts
    assert names.index("concatenate") < names.index("mul")


def test_numbers_that_all_share():
    names = joined(lambda k, y, s, b: lax.clamp(0.0, lax.mul(y, jnp.full_like(y, 0.5)), 6.0))
    assert [names.count(name) for name in ("mul", "clamp", "concatenate")] == [1, 1, 1]


def test_parts_in_another_order():
    names = joined(lambda k, y, s, b: lax.exp(lax.transpose(lax.transpose(y, (0, 2, 3, 1)), (0, 3, 2, 1))))
    assert names.count("exp") == 1


STAYS = {
    "another number in each": lambda k, y, s, b: lax.mul(y, jnp.full_like(y, 0.5 + k)),
    "another operation": lambda k, y, s, b: lax.exp(y) if k else lax.tanh(y),
    "another parameter": lambda k, y, s, b: lax.integer_pow(y, 2 + k),
    "one part as it is": lambda k, y, s, b: lax.exp(y) if k else y,
    "two arrays": lambda k, y, s, b: lax.add(lax.exp(y), lax.rev(y, (2,))),
    "vectors along another axis": lambda k, y, s, b: y + lax.broadcast_in_dim(jnp.ones(30) * s[0], y.shape, (3,)),
    "what is no product": lambda k, y, s, b: lax.exp(lax.pad(y, 0.0, [(0, 0, 0)] * 2 + [(1, 1, 0)] * 2)),
}


@pytest.mark.parametrize("each", STAYS.values(), ids=STAYS)
def test_what_stays(each):
    names = joined(each)
    assert names.count("concatenate") == 1
    assert names[-1] == "concatenate"


@pytest.mark.parametrize(
    "after",
    [
        lambda parts: (lax.concatenate(parts, 1), parts[1]),
        lambda parts: lax.concatenate(parts, 1) * jnp.sum(parts[1]),
        lambda parts: lax.concatenate([*parts, parts[0]], 1),
    ],
    ids=["an output", "read elsewhere", "twice"],
)
def test_parts_that_are_read_elsewhere(after):
    assert joined(normalized, after).count("select_n") == len(SIZES)


def test_only_what_nothing_else_reads_moves():
    """The activation moves, the normalization, which is an output, does not."""
    kept = []

    def each(k, y, s, b):
        kept.append(lax.mul(y, channel(s)))
        return lax.exp(kept[-1])

    names = joined(each, lambda parts: (lax.concatenate(parts, 1), kept.pop(0), kept.clear()))
    assert names.count("exp") == 3  # behind no product


@pytest.mark.optimized
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="XLA:CPU copies parts along the last axis")
@pytest.mark.parametrize(("sizes", "copies"), [((64, 96), 0), ((63, 96), 1), ((64, 64, 64), 1)])
def test_two_parts_are_a_part_of_the_loop_behind_them(sizes, copies):
    x = RNG.standard_normal((400, 8), np.float32)
    weights = [RNG.standard_normal((8, size), np.float32) for size in sizes]

    def fn(weights, x):
        return lax.concatenate([lax.max(lax.dot(x, w), np.float32(0)) for w in weights], 1)

    program = defer_elementwise(inlined(fn, weights, x), TARGET)
    call = jax.jit(lambda *given: run(program, given)[0])
    text = call.lower(*weights, x).compile().as_text()
    assert text.split("ENTRY")[1].count(" concatenate(") == copies
    np.testing.assert_allclose(call(*weights, x), fn(weights, x), rtol=1e-6, atol=1e-6)
