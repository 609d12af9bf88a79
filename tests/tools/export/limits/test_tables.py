"""An export learns the sizes for which positions that count up are in their table."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node, tensor
from jax.export import symbolic_shape

import jaxops.onnx
from jaxops.errors import BoundsError, SizeError
from jaxops.tools.export.limits.tables import check_tables

ROWS = 96
TABLE = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)


def positions(*nodes, last="p"):
    """A model that reads a row for each token; `nodes` make the positions of the number `n`."""
    return build(
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["n"]),
        *nodes,
        node("Gather", ["table", last], ["rows"]),
        node("Add", ["x", "rows"], ["y"]),
        inputs=[info("x", ["b", "s", 4])],
        initializers=[
            tensor(TABLE, "table"),
            *(tensor(np.int64(value), name) for name, value in {"zero": 0, "one": 1, "two": 2}.items()),
            tensor(np.int64([0]), "axes"),
        ],
    )


COUNTED = node("Range", ["zero", "n", "one"], ["p"])
WAYS = {
    "a range": (positions(COUNTED), ROWS),
    "a range with another axis": (positions(COUNTED, node("Unsqueeze", ["p", "axes"], ["q"]), last="q"), ROWS),
    "from 2 on": (positions(COUNTED, node("Add", ["p", "two"], ["q"]), last="q"), ROWS - 2),
    "every other row": (positions(COUNTED, node("Mul", ["p", "two"], ["q"]), last="q"), ROWS // 2),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_export_serves_the_sizes_in_the_table(way):
    model, most = WAYS[way]
    loaded = jaxops.onnx.load(model)
    exported = loaded.export()
    x = np.ones((2, most, 4), np.float32)
    np.testing.assert_allclose(exported.call(loaded.params, x), loaded(x), rtol=1e-6)
    with pytest.raises(ValueError, match="do not match the symbolic shape constraint"):
        exported.call(loaded.params, np.ones((2, most + 1, 4), np.float32))
    with pytest.raises(BoundsError, match=r"size of 96|outside axis 0 of size 96"):
        loaded(np.ones((2, most + 1, 4), np.float32))


def test_a_size_that_is_asked_for_and_has_no_rows():
    model = jaxops.onnx.load(WAYS["a range"][0])
    with pytest.raises(BoundsError, match="position s - 1 of a table of 96 rows, in rows, which has no such row"):
        model.export(sizes={"s": "s >= 100"})


def checked(fn, size="s"):
    (s,) = symbolic_shape(size)
    check_tables(jax.make_jaxpr(fn)(jnp.asarray(TABLE), jax.ShapeDtypeStruct((s, 4), np.float32)))


def count(x):
    return jnp.arange(x.shape[0])


NO_LIMIT = {
    "clipped": lambda table, x: table[jnp.clip(count(x), 0, ROWS - 1)],
    "chosen": lambda table, x: table[jnp.where(count(x) >= ROWS, 0, count(x))],
    "a remainder": lambda table, x: table[count(x) % ROWS],
    "data": lambda table, x: table[x[:, 0].astype(np.int32)],
    "rows of the input": lambda table, x: x[count(x)],
}


@pytest.mark.parametrize("name", NO_LIMIT)
def test_positions_that_need_no_limit(name):
    checked(NO_LIMIT[name])


def test_positions_that_are_always_beyond():
    with pytest.raises(SizeError, match=re.escape("gather: position s - 1 of a table of 96 rows")):
        checked(lambda table, x: table[count(x)])
    with pytest.raises(BoundsError, match=r"gather: position s \+ 99 of a table of 96 rows, which has no such row"):
        checked(lambda table, x: table[count(x) + 100], "s")
