"""Programs that compute each row of a symbolic axis from the same row, and programs in which rows meet."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxops.compiler.row_independence import serves_surplus_rows
from jaxops.static import symbolic_shape

W = np.ones((4, 5), np.float32)

ROW_WISE = {
    "a layer": lambda x: jnp.tanh(x @ W) + 1,
    "softmax of a row": lambda x: jax.nn.softmax(x, -1),
    "a running sum in a row": lambda x: jnp.cumsum(x, 1),
    "sorted in a row": lambda x: jnp.sort(x, 1),
    "elements side by side": lambda x: jnp.concatenate([x, x[:, :2]], 1)[:, ::-1],
    "rows of another size": lambda x: x.reshape(-1, 2).reshape(-1),
    "another axis behind": lambda x: jnp.transpose(x.reshape(-1, 2, 2), (2, 0, 1)),
    "numbers of rows": lambda x: x + jnp.arange(x.shape[0], dtype=np.float32)[:, None],
    "rows of a table": lambda x: jnp.take(W, jnp.argmax(x, 1), axis=0, mode="clip"),
    "a branch": lambda x: lax.cond(True, jnp.sin, jnp.cos, x),
    "several values kept together": lambda x: lax.optimization_barrier((x, x[:, 0])),
    "fixed sizes alone": lambda x: jnp.cumsum(jnp.sort(jnp.asarray(W), 0), 0),
}
MEETING = {
    "a sum of rows": lambda x: x.sum(0),
    "a sum of all": lambda x: x / x.max(),
    "a running sum": lambda x: jnp.cumsum(x, 0),
    "sorted rows": lambda x: jnp.sort(x, 0),
    "rows after each other": lambda x: jnp.concatenate([x, x]),
    "flipped": lambda x: x[::-1],
    "the first row": lambda x: x[:1],
    "one row more": lambda x: jnp.pad(x, ((1, 0), (0, 0))),
    "products of rows": lambda x: x.T @ x,
    "rows inside of rows": lambda x: x.T.reshape(-1),
    "neighbours": lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), "SAME"),
    "rows by number": lambda x: jnp.take(x, jnp.array([0, 1]), axis=0),
    "as many rows of a table": lambda x: jnp.arange(40.0)[: x.shape[0]],
    "a row of a table by size": lambda x: x + jnp.arange(40.0)[None, x.shape[0] : x.shape[0] + 1],
    "the number of rows": lambda x: x * x.shape[0],
    "a loop over rows": lambda x: lax.scan(lambda h, row: (h + row, h), jnp.zeros(4), x)[0],
    "a sum in a branch": lambda x: lax.cond(True, lambda y: y - y.sum(0, keepdims=True), jnp.cos, x),
    "no rule": lambda x: jnp.fft.fft(x, axis=0),
}


@pytest.mark.parametrize("name", [*ROW_WISE, *MEETING])
def test_rows_are_apart_or_meet(name):
    (n,) = symbolic_shape("n", constraints=["n <= 30"])
    fn = ROW_WISE.get(name) or MEETING[name]
    program = jax.make_jaxpr(fn)(jax.ShapeDtypeStruct((n, 4), np.float32))
    assert serves_surplus_rows(program.jaxpr) == (name in ROW_WISE)
