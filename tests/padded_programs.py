"""Programs of a symbolic size on padded arrays, beside the same on arrays of exact sizes."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity
from jaxops.jax_internals import evaluated
from jaxops.static import symbolic_shape

LARGEST = 6


def check(fn, *shapes, dtype=np.float32, sizes=(1, 4)):
    """Compares `fn` on padded arrays with `fn`; the surplus is made of numbers that spoil what they enter."""
    (s,) = symbolic_shape("s", constraints=[f"s <= {LARGEST}"])
    specs = [jax.ShapeDtypeStruct(tuple(eval(str(d), {"s": s}) for d in shape), dtype) for shape in shapes]
    program, tree = jax.make_jaxpr(fn, return_shape=True)(*specs)
    rng = np.random.default_rng(0)

    @jax.jit
    def padded(arrays, size):
        found = run_padded(program, arrays, Capacity({"s": size}, {"s": LARGEST}, {}))
        return [x.array for x in found]

    for size in sizes:
        true = [tuple(d if isinstance(d, int) else evaluated(d, {"s": size}) for d in x.shape) for x in specs]
        exact = [(rng.permutation(np.prod(shape, dtype=int)).reshape(shape) - 3).astype(dtype) for shape in true]
        room = [tuple(d if isinstance(d, int) else evaluated(d, {"s": LARGEST}) for d in x.shape) for x in specs]
        arrays = [
            np.pad(x, [(0, more - n) for more, n in zip(r, x.shape, strict=True)])
            for x, r in zip(exact, room, strict=True)
        ]
        found = padded(arrays, jnp.int32(size))
        for got, expected in zip(found, jax.tree.leaves(fn(*map(jnp.asarray, exact))), strict=True):
            expected = np.asarray(expected)
            np.testing.assert_allclose(np.asarray(got)[tuple(map(slice, expected.shape))], expected, rtol=1e-6)
    return tree
