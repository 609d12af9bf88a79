"""Where a program is cut: between equal layers, or in the middle of a network of convolutions."""

import itertools

import jax
import numpy as np
import pytest
from jax import lax
from programs import TARGET, inlined, specialized

from jaxops.compiler.numpy_interpreter import CONSTANT
from jaxops.compiler.partition import repeated_layers
from jaxops.compiler.passes.lift_scalars import lift_scalar_constants
from jaxops.kernels.target import Target
from jaxops.ops.nn.convolution import conv

pytestmark = pytest.mark.usefixtures("cut_however_short")
RNG = np.random.default_rng(0)
SIZE = 16
X = RNG.standard_normal((SIZE, SIZE), np.float32)
W = list(RNG.standard_normal((16, SIZE, SIZE), np.float32) / 4)


def cut(fn, *given, target=TARGET):
    program = inlined(fn, *given)
    found = repeated_layers.split_at_repeated_layers(program, target)
    if found:
        assert list(itertools.chain(*(part.program.operations for part in found))) == list(program.operations)
    return found


def stack(count, layer=lambda x, w: lax.max(lax.dot(x, w), 0.0) + x, end=lambda x: lax.exp(lax.neg(x))):
    """Layers between a beginning and an end of their own."""

    def fn(w, x):
        x = lax.mul(lax.sin(x), np.float32(0.5))
        for k in range(count):
            x = layer(x, w[k])
        return end(x)

    return fn


@pytest.mark.parametrize(
    ("count", "layers_of_parts"), [(3, [1, 1, 1]), (6, [2, 2, 2]), (11, [3, 3, 3]), (12, [3, 3, 3, 3])]
)
def test_equal_layers(count, layers_of_parts):
    """As many as divide into few equal parts; what is left joins what is before or behind."""
    found = cut(stack(count), W, X)
    one = len(inlined(stack(1), W, X).operations)
    size = len(inlined(stack(2), W, X).operations) - one
    equal = [part for part in found if sum(part.form == other.form for other in found) > 1]
    assert [len(part.program.operations) / size for part in equal] == layers_of_parts
    assert all(len(part.program.outputs) == 1 for part in equal)


def test_parts_begin_where_the_least_is_between_them():
    """Not within a layer, where its wide middle would cross."""

    def layer(x, w):
        wide = lax.dot(x, lax.concatenate([w] * 4, 1))
        return lax.dot(lax.tanh(wide), lax.concatenate([w] * 4, 0)) + x

    found = cut(stack(8, layer), W, X)
    assert len({part.form for part in found}) == 3
    crossing = [v for part in found for o in part.program.operations for v in o.results if v in part.program.outputs]
    sizes = {v: o.equation.outvars[0].aval.size for part in found for o in part.program.operations for v in o.results}
    assert {sizes[v] for v in crossing} == {X.size}


def test_the_last_layer_may_be_read_otherwise():
    """Of the others, the next one reads two values. What is behind three equal parts stays together."""

    def fn(w, x):
        x = lax.dot(lax.cos(x), w[0]) + x
        for k in range(1, 12):
            x = lax.dot(lax.sin(x), w[k]) + x
        return lax.cos(lax.sin(x))

    found = cut(fn, W, X)
    assert [len(part.program.outputs) for part in found] == [1, 2, 2, 2, 1]
    assert len({part.form for part in found[1:4]}) == 1


@pytest.mark.parametrize(
    "fn",
    [
        stack(1),
        stack(12, end=lambda x: (jax.debug.print("{}", x[0, 0]), lax.exp(x))[1]),  # effects keep their order
        lambda w, x: (stack(12)(w, x), x),  # an input is an output, too
        lambda w, x: (stack(12)(w, x), np.float32(1.0)),
        # Layers that differ: in a number, in what follows, in what they read.
        lambda w, x: [x := lax.dot(x, w[k]) * np.float32(k + 0.5) for k in range(12)][-1],
        lambda w, x: [x := (lax.sin if k in (0, 3, 5, 6) else lax.cos)(lax.dot(x, w[k])) for k in range(7)][-1],
    ],
    ids=["one", "effects", "input", "constant", "numbers", "kinds"],
)
def test_what_is_not_cut(fn):
    assert not cut(fn, W, X)


def test_numbers_as_arguments_make_layers_equal():
    """What gives them is no operation of JAX: it has no equation."""

    def fn(w, x):
        for k in range(12):
            x = lax.dot(x, w[k]) * np.float32(k + 0.5)
        return x

    program = lift_scalar_constants(inlined(fn, W, X), TARGET)
    assert any(operation.name == CONSTANT for operation in program.operations)
    found = repeated_layers.split_at_repeated_layers(program, TARGET)
    assert max(sum(part.form == other.form for other in found) for part in found) == 4


def test_a_short_program_is_not_cut(monkeypatch):
    monkeypatch.setattr(repeated_layers, "_OF_AN_ELEMENT", 0)
    monkeypatch.setattr(repeated_layers, "_LEAST_WORK", 12 * SIZE**3 / 2 / 3)  # as one of two parts has, on 3 cores
    assert len(cut(stack(12), W, X, target=Target("cpu", cores=3))) == 4  # two of six layers, and both ends
    assert not cut(stack(12), W, X, target=Target("cpu", cores=4))


def test_as_many_as_are_worth_it(monkeypatch):
    """Operations spared, times the multiplications of a part for each core, for each part."""
    monkeypatch.setattr(repeated_layers, "_OF_AN_ELEMENT", 0)
    found = cut(stack(12), W, X)
    layer = len(found[1].program.operations) / 3
    for equal, size in ((4, 3), (3, 4), (2, 6)):
        worth = (12 - size) * layer * size * SIZE**3 / 2
        monkeypatch.setattr(repeated_layers, "_WORTH", worth / equal)
        assert len(cut(stack(12), W, X)) == equal + 2  # and both ends
        monkeypatch.setattr(repeated_layers, "_WORTH", (worth + 1) / equal)
        assert len(cut(stack(12), W, X)) < equal + 2
    assert not cut(stack(12), W, X)


def test_what_is_no_product_is_work_too(monkeypatch):
    """Each element that a core computes as so many multiplications; to move one is none."""

    def fn(w, x):
        for k in range(3):
            x = lax.transpose(lax.dot(lax.cos(x), w[k]), (1, 0))
        return x

    program = inlined(fn, W, X)
    elements = 3 * 2 * SIZE**2  # of cosines and of products
    work = repeated_layers._work(program.operations, program.types, TARGET)
    assert work == (3 * SIZE**3 + repeated_layers._OF_AN_ELEMENT * elements) / 2


@pytest.mark.parametrize(("number", "period"), [(0.0, 1), (-0.0, 2), (1.0, 2)])
def test_zeros_of_either_sign_are_different_constants(number, period):
    def fn(w, x):
        for k in range(12):
            x = lax.dot(x, w[k]) + np.float32(number if k % 2 else 0.0)
        return x

    program = inlined(fn, W, X)
    kinds = repeated_layers._kinds(program.operations, program.types)
    found = repeated_layers._repeated(program.operations, kinds, np.ones_like(kinds))
    assert found.period == found.seen == period * len(program.operations) / 12


FILTERS = RNG.standard_normal((12, 4, 4, 3, 3), np.float32) / 6


def convolutions(where, count=12):
    """Layers none of which equals another, some of them convolutions: where."""
    kinds = [lax.sin, lax.cos, lax.tanh, lax.exp, lax.neg, lax.abs]

    def fn(w, x):
        for k in range(count):
            x = kinds[k // 3 % 6](kinds[k % 3](x))
            x = lax.conv(x, w[k], (1, 1), "SAME") if k in where else lax.mul(x, np.float32(k + 0.5))
        return x

    return fn


@pytest.mark.parametrize(
    ("where", "is_cut"),
    [(range(12), True), ([5], True), ([0, 1, 2, 3, 9, 10, 11], False), ([], False)],
    ids=["each", "middle", "ends", "none"],
)
def test_a_network_of_convolutions_is_cut_in_two(where, is_cut):
    """Before one in the middle third."""
    x = np.ones((1, 4, 8, 8), np.float32)
    found = cut(convolutions(where), list(FILTERS), x)
    assert len(found) == 2 * is_cut
    if is_cut:
        assert found[1].program.operations[0].name == "conv_general_dilated"
        sizes = [len(part.program.operations) for part in found]
        assert max(sizes) <= 2 / 3 * sum(sizes)


@pytest.mark.parametrize("wide", [5, 6, 7])
def test_a_network_is_cut_where_the_fewest_kinds_are_on_both_sides(wide):
    """XLA would compile these twice."""

    def fn(w, x):
        for k in range(12):
            if k == wide:
                x = lax.concatenate([x, x], 2)
            x = (lax.sin if k % 2 else lax.cos)(lax.conv(lax.tanh(lax.tanh(x)) if k % 3 else x, w[k], (1, 1), "SAME"))
        return x

    _, behind = cut(fn, list(FILTERS), np.ones((1, 4, 8, 8), np.float32))
    assert {operation.equation.outvars[0].aval.shape[2] for operation in behind.program.operations} == {16}


def test_a_short_network_is_not_cut_in_two(monkeypatch):
    x = np.ones((1, 4, 8, 8), np.float32)
    fn = convolutions(range(12))
    size = len(inlined(fn, list(FILTERS), x).operations)
    monkeypatch.setattr(repeated_layers, "_HALVED", size * 12 * (4 * 64 * 4 * 9) / 2)
    assert cut(fn, list(FILTERS), x)
    monkeypatch.setattr(repeated_layers, "_HALVED", size * 12 * (4 * 64 * 4 * 9) / 2 + 1)
    assert not cut(fn, list(FILTERS), x)


def test_a_network_of_few_kinds_is_not_cut_in_two(monkeypatch):
    """XLA has little to compile for it."""
    x = np.ones((1, 4, 8, 8), np.float32)
    fn = convolutions(range(12))
    program = inlined(fn, list(FILTERS), x)
    kinds = len(set(repeated_layers._kinds(program.operations, program.types)))
    monkeypatch.setattr(repeated_layers, "_VARIED", kinds)
    assert cut(fn, list(FILTERS), x)
    monkeypatch.setattr(repeated_layers, "_VARIED", kinds + 1)
    assert not cut(fn, list(FILTERS), x)


def by_channel(size, more=lambda k, x: x):
    """Layers with a filter for each channel. more: what else follows a layer."""

    def fn(w, x):
        for k in range(12):
            x = more(k, lax.tanh(conv(x, w[k], group=4, pads=(size // 2,) * 4)))
        return x

    return (
        specialized(fn),
        list(RNG.standard_normal((12, 4, 1, size, size), np.float32)),
        np.ones((1, 4, 8, 8), np.float32),
    )


@pytest.mark.parametrize("size", [3, 5])
def test_each_place_of_a_filter_for_a_channel_counts(monkeypatch, size):
    """It is one operation for JAX, and five for each place for XLA."""
    fn, w, x = by_channel(size, lambda k, x: lax.conv(x, FILTERS[k], (1, 1), "SAME") if k == 6 else x)
    program = inlined(fn, w, x)
    kinds = len(set(repeated_layers._kinds(program.operations, program.types)))
    monkeypatch.setattr(repeated_layers, "_VARIED", kinds - 1 + 5 * size * size)
    assert len(cut(fn, w, x)) == 2
    monkeypatch.setattr(repeated_layers, "_VARIED", kinds + 5 * size * size)
    assert not cut(fn, w, x)


def test_what_xla_is_spared_is_counted_as_it_sees_it(monkeypatch):
    """Filters for each channel, between as many operations that are not repeated."""
    kinds = [lax.sin, lax.cos, lax.tanh, lax.exp, lax.neg, lax.abs]

    def more(k, x):
        return lax.dot_general(x, np.eye(8, dtype=np.float32), (((3,), (0,)), ((), ())))

    fn, w, x = by_channel(5, more)

    def varied(w, x):
        for k in range(80):
            x = kinds[k // 6 % 6](kinds[k % 6](x)) * np.float32(k + 0.5)
        return fn(w, x)

    monkeypatch.setattr(repeated_layers, "_SPARED", 1 / 2)
    found = cut(varied, w, x)
    assert max(sum(part.form == other.form for other in found) for part in found) == 4


@pytest.mark.parametrize(("cores", "count"), [(1, 1), (2, 2), (8, 2)])
def test_programs_of_many_equal_operations_are_compiled_at_once(monkeypatch, cores, count):
    """Not those of as many kinds: XLA would need more memory than time is saved."""
    parts = cut(stack(12), W, X)
    different = {part.form: part for part in parts}.values()
    ratio = sum(len(part.program.operations) for part in different) / len({k for part in different for k in part.kinds})
    monkeypatch.setattr(repeated_layers, "_ALIKE", ratio)
    assert repeated_layers.at_once(parts, Target("cpu", cores=cores)) == count
    monkeypatch.setattr(repeated_layers, "_ALIKE", ratio + 1e-6)
    assert repeated_layers.at_once(parts, Target("cpu", cores=cores)) == 1
