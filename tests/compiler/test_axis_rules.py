"""The independent axes of a primitive are those along which its numbers say so: what is done to the entries of the
operands happens to the same entries of the results, and to no other one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from jaxops.compiler.axis_rules import Axis, independent_axes

RNG = np.random.default_rng(0)
MESH = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))


def floats(*shape):
    return jnp.asarray(RNG.standard_normal(shape), jnp.float32)


def integers(*shape, below):
    return jnp.asarray(RNG.integers(0, below, shape), jnp.int32)


def by_axis(*shape):
    """An array to be read or written along axis 0, and where: two places for each of three."""
    return floats(*shape), integers(2, 3, 1, below=shape[0])


def gathered(x, indices, **numbers):
    return lax.gather(x, indices, lax.GatherDimensionNumbers(start_index_map=(0,), **numbers), (1, *x.shape[1:]))


def convolved(x, w, **params):
    return lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC"), **params)


def window(x, operation=lax.add, start=0.0):
    return lax.reduce_window(x, start, operation, (1, 3, 1), (1, 1, 2), ((0, 0), (1, 1), (0, 0)))


# The function that binds the primitive, and its operands. No two axes of equal sizes but where they belong together.
CASES = {
    "argmax": (lambda x: lax.argmax(x, 1, np.int32), floats(2, 3, 4)),
    "add, of one entry": (lambda x, y: lax.add_p.bind(x, y), floats(2, 3, 4), floats(2, 1, 4)),
    "add, of a number": (lambda x: lax.add_p.bind(x, jnp.float32(2)), floats(2, 3)),
    "barrier of one": (lambda x: lax.optimization_barrier(x), floats(2, 3)),
    "broadcast": (lambda x: lax.broadcast_in_dim(x, (5, 3, 4, 2), (1, 3)), floats(1, 2)),
    "broadcast of more": (lambda x: lax.broadcast_in_dim(x, (5, 3, 4, 2), (1, 3)), floats(3, 2)),
    "concatenate": (lambda x, y: lax.concatenate([x, y], 1), floats(2, 3, 4), floats(2, 5, 4)),
    "convolution": (convolved, floats(2, 5, 4, 3), floats(7, 3, 3, 2)),
    "convolution, by groups": (
        lambda x, w: convolved(x, w, feature_group_count=2),
        *(floats(2, 5, 4, 6), floats(8, 3, 3, 2)),
    ),
    "convolution, by examples": (
        lambda x, w: convolved(x, w, batch_group_count=2),
        *(floats(4, 5, 6, 3), floats(8, 3, 3, 2)),
    ),
    "complex numbers": (lambda x, y: lax.complex(x, y), floats(2, 3), floats(2, 3)),
    "transform": (
        lambda x: lax.fft_p.bind(x, fft_type=lax.FftType.RFFT, fft_lengths=(4, 5)),
        floats(2, 3, 4, 5),
    ),
    "total order": (lambda x, y: lax.le_to_p.bind(x, y), floats(2, 3), floats(2, 3)),
    "cumsum": (lambda x: lax.cumsum(x, 1), floats(2, 3, 4)),
    "dot": (
        lambda x, y: lax.dot_general(x, y, (((2, 4), (0, 3)), ((3, 0), (1, 2)))),
        *(floats(3, 7, 4, 2, 5), floats(4, 2, 3, 5, 6)),
    ),
    "dynamic slice": (lambda x, i: lax.dynamic_slice_p.bind(x, i, i, slice_sizes=(2, 3)), floats(2, 5), jnp.int32(1)),
    "dynamic update": (
        lambda x, y, i: lax.dynamic_update_slice_p.bind(x, y, i, i, i),
        *(floats(2, 3, 4), floats(1, 3, 2), jnp.int32(1)),
    ),
    "flip": (lambda x: lax.rev(x, (1,)), floats(2, 3, 4)),
    "gather": (lambda x, i: gathered(x, i, offset_dims=(1, 3), collapsed_slice_dims=(0,)), *by_axis(7, 4, 5)),
    "gather by batches": (
        lambda x, i: lax.gather(
            *(x, i),
            lax.GatherDimensionNumbers((2,), (0,), (0,), operand_batching_dims=(1,), start_indices_batching_dims=(1,)),
            (1, 1, 5),
        ),
        *by_axis(7, 3, 5),
    ),
    "maximum": (lambda x: lax.reduce_max(x, (0, 2)), floats(2, 3, 4)),
    "pad": (lambda x: lax.pad(x, jnp.float32(1), ((0, 0, 0), (1, -1, 0), (0, 2, 1))), floats(2, 3, 4)),
    "reduce": (lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + a, (1,)), floats(2, 3, 4)),
    "reshape": (lambda x: lax.reshape(x, (2, 15, 4, 2)), floats(2, 3, 5, 8)),
    "reshape, of one entry": (lambda x: lax.reshape(x, (1, 2, 3)), floats(2, 1, 3)),
    "select": (lambda p, x, y: lax.select_n(p, x, y), floats(2, 3) > 0, floats(2, 3), floats(2, 3)),
    "slice": (lambda x: lax.slice(x, (0, 1, 0, 0), (2, 4, 5, 2), (1, 1, 2, 1)), floats(2, 5, 6, 3)),
    "sort": (lambda x, y: lax.sort((x, y), dimension=1), floats(2, 3, 4), floats(2, 3, 4)),
    "split": (lambda x: lax.split(x, (1, 2), 1), floats(2, 3, 4)),
    "squeeze": (lambda x: lax.squeeze(x, (1, 3)), floats(2, 1, 3, 1)),
    "stack": (lambda x, y: jnp.stack([x, y], 1), floats(3, 4), floats(3, 4)),
    "to fewer bits": (lambda x: lax.bitcast_convert_type(x, np.int8), floats(2, 3)),
    "top k": (lambda x: lax.top_k(x, 2), floats(3, 5)),
    "transpose": (lambda x: lax.transpose(x, (2, 0, 1)), floats(2, 3, 4)),
    "sharding constraint": (
        lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P("d"))),
        floats(2, 6, 5),
    ),
    "window": (window, floats(2, 6, 5)),
    "window of another function": (
        lambda x: window(x, lambda a, b: a * b + a, jnp.float32(1)),
        floats(2, 6, 5),
    ),
}


def with_others(x, axis):
    """Other numbers of the same kind in all entries of an axis but the first one."""
    x = np.asarray(x)
    y = RNG.permutation(np.ravel(x)).reshape(x.shape)
    y[(slice(None),) * axis + (0,)] = np.take(x, 0, axis)
    return y


def is_independent(fn, operands, axis):
    """Whether the entries of the results move with those of the operands, and depend on no other ones."""
    pairs = list(zip(operands, axis.operands, strict=True))
    moved, replaced = (
        jax.tree.leaves(fn(*(x if a is None else jnp.asarray(change(x, a)) for x, a in pairs)))
        for change in (lambda x, a: np.roll(x, 1, a), with_others)
    )
    return all(
        np.allclose(np.roll(y, 1, axis.result), y_moved, atol=1e-5)
        and np.allclose(*(np.take(np.asarray(z), 0, axis.result) for z in (y, y_replaced)), atol=1e-5)
        for y, y_moved, y_replaced in zip(jax.tree.leaves(fn(*operands)), moved, replaced, strict=True)
    )


def by_numbers(fn, operands):
    """All independent axes of more than one entry."""
    results, axes = jax.tree.leaves(jax.eval_shape(fn, *operands)), []
    for result, size in enumerate(results[0].shape):
        if size > 1 and all(y.shape[result] == size for y in results):
            choices = ([None, *(a for a in range(x.ndim) if x.shape[a] == size)] for x in operands)
            axes += [Axis(result, chosen) for chosen in itertools.product(*choices)]
    return [axis for axis in axes if is_independent(fn, operands, axis)]


@pytest.mark.parametrize("name", CASES)
def test_independent_axes(name):
    fn, *operands = CASES[name]
    (equation,) = jax.make_jaxpr(fn)(*operands).eqns
    result = equation.outvars[0].aval.shape
    axes = independent_axes(equation.primitive.name, equation.params, [v.aval.shape for v in equation.invars], result)
    found = [axis._replace(operands=axis.operands[: len(operands)]) for axis in axes if result[axis.result] > 1]
    assert found == by_numbers(fn, operands)


def test_a_primitive_without_a_rule():
    assert independent_axes("cholesky", {}, [(2, 3)], (2, 3)) == []
