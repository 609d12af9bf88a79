"""What runs under Auto axes of a mesh whose axes are Explicit, JAX's default: every kind of operator, as in a model."""

import functools
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P, get_abstract_mesh

import jaxops as jo
from jaxops.runtime.auto_axes import under_auto_axes as auto

MATRIX = runpy.run_path(str(Path(__file__).parents[1] / "ops" / "matrix.py"))
ROWS = {name: row for name, row in MATRIX["ROWS"].items() if name not in ("shape", "size", "identity")}
PLAIN = {
    "relu": lambda x, y: jo.relu(x),
    "matmul": lambda x, y: jo.matmul(x, jo.transpose(y, perm=(1, 0))),
    "softmax": lambda x, y: jo.softmax(x, axis=0),
    "reduce_sum": lambda x, y: jo.reduce_sum(x, (0,), keepdims=0),
    "top_k": lambda x, y: jo.top_k(x, 2, axis=0),
    "conv": lambda x, y: jo.conv(jo.unsqueeze(x, (1,)), jo.unsqueeze(y, (1,)), pads=(1, 2)),
    "layer_norm": lambda x, y: jo.layer_normalization(x, y, axis=-2),
    "where": lambda x, y: jo.where(x > y, x, y),
    "einsum": lambda x, y: jo.einsum([x, y], equation="ij,kj->ik"),
    "pad": lambda x, y: jo.pad(x, (1, 0, 0, 2)),
    "cumsum": lambda x, y: jo.cumsum(x, 0),
    "scatter": lambda x, y: jo.scatter_elements(x, np.array([[0, 3, 1, 2]]), jo.slice(y, (0,), (1,), (0,)), axis=0),
    "concat": lambda x, y: jo.concat([x, y], axis=0),
    "gemm": lambda x, y: jo.gemm(x, y, transB=1),
    "gather_nd": lambda x, y: jo.gather_nd(x, np.array([[3, 1], [0, 0]])),
}


def mesh_of(kind):
    return jax.make_mesh((2,), ("i",), axis_types=(kind,))


def sharded(mesh, values, axis):
    spec = (None,) * axis + ("i",)
    return [jax.device_put(x, NamedSharding(mesh, P(*spec))) for x in values]


def cases():
    for name, row in ROWS.items():
        fitting = [a for a in range(len(row.shapes[0])) if all(shape[a] % 2 == 0 for shape in row.shapes)]
        if fitting:
            yield pytest.param(row.ours, row.shapes, fitting[0], id=name)
    for name, fn in PLAIN.items():
        yield pytest.param(fn, ((4, 4), (4, 4)), 0, id=name)


def numbers(shapes):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def close(got, expected):
    for g, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("fn", "shapes", "axis"), list(cases()))
def test_operators_on_explicit_and_auto_axes(fn, shapes, axis):
    values = numbers(shapes)
    fn = functools.partial(auto, fn)

    def loss(*xs):
        ys = fn(*xs)
        return sum((y**2).sum() for y in jax.tree.leaves(ys) if jnp.issubdtype(y.dtype, jnp.floating)), ys

    run = jax.jit(jax.grad(loss, has_aux=True))
    slopes, expected = run(*map(jnp.asarray, values))
    for kind in (AxisType.Explicit, AxisType.Auto):
        mesh = mesh_of(kind)
        xs = sharded(mesh, values, axis)
        close(fn(*xs), expected)
        with jax.set_mesh(mesh):
            found, outputs = run(*xs)
        close(outputs, expected)
        close(found, slopes)
        assert jax.typeof(found) == jax.typeof(xs[0])


@pytest.mark.parametrize("axis", [0, 1])
def test_vmap_over_a_sharded_axis(axis):
    values = numbers([(4, 4, 6)])
    expected = jnp.stack([jo.reshape(x, (-1, 3)) for x in values[0]])
    (x,) = sharded(mesh_of(AxisType.Explicit), values, axis)
    close(jax.jit(lambda x: auto(jax.vmap(lambda x: jo.reshape(x, (-1, 3))), x))(x), expected)


def test_jax_itself_refuses():
    (x,) = sharded(mesh_of(AxisType.Explicit), numbers([(4, 6)]), 1)
    with pytest.raises(Exception, match=r"sharding|out_sharding"):
        jax.jit(lambda x: jo.reshape(x, (-1,)))(x)


def test_a_result_keeps_the_sharding_of_axes_that_keep_their_place():
    mesh = jax.make_mesh((1, 2), ("i", "j"))
    x, w = numbers([(4, 6), (6, 8)])
    x, w = jax.device_put(x, NamedSharding(mesh, P("i"))), jax.device_put(w, NamedSharding(mesh, P(None, "j")))

    def spec(fn, *operands):
        return jax.typeof(auto(fn, *operands)).sharding.spec

    assert spec(jo.matmul, x, w) == P("i", "j")
    assert spec(lambda x, w: jo.matmul(x, jo.gather(w, np.array(0), axis=1)), x, w) == P("i")
    assert spec(lambda w: jo.add(w, jo.slice(w, (0,), (1,), (0,))), w) == P(None, "j")
    assert spec(lambda w: jo.gather(w, np.array(0)), w) == P("j")  # aligned on the right
    assert spec(lambda w: jo.transpose(w, perm=(1, 0)), w) == P(None, None)


def test_an_axis_of_the_mesh_is_used_once():
    mesh = mesh_of(AxisType.Explicit)
    x, y = sharded(mesh, numbers([(4, 6)]), 0)[0], sharded(mesh, numbers([(6, 4)]), 1)[0]
    assert jax.typeof(auto(jo.matmul, x, y)).sharding.spec == P("i", None)


def test_nothing_changes_without_an_explicit_mesh():
    x = jnp.ones(3)
    assert auto(lambda y: y, x) is x
    mesh = mesh_of(AxisType.Explicit)
    seen = auto(lambda y: (get_abstract_mesh().explicit_axes, y), *sharded(mesh, numbers([(4,)]), 0))
    assert seen[0] == ()
    assert jax.typeof(seen[1]).sharding.spec == P("i")


def test_arrays_that_are_on_no_mesh_and_keys_are_taken():
    mesh = mesh_of(AxisType.Explicit)
    with jax.set_mesh(mesh):
        assert auto(lambda x: jo.reshape(x, (-1,)), jnp.ones((4, 6))).shape == (24,)
        (x,) = sharded(mesh, numbers([(4, 6)]), 0)
        assert auto(lambda x, key: jo.dropout(x, 0.5, True, rng=key), x, jax.random.key(0)).shape == (4, 6)
        shape, y = auto(lambda x: (jo.shape(x), jo.reshape(x, (-1,))), x)
    assert isinstance(shape, np.ndarray)
    assert y.shape == (24,)
