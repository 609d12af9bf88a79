"""A model reads its weights when it needs them, keeps those that its calls read, and all once somebody asks."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from programs import equations

from jaxops.lazy_array import Unread, arrays
from jaxops.onnx import load

RNG = np.random.default_rng(3)
FILTERS = RNG.normal(size=(32, 16, 3, 3)).astype(np.float32)
MATRIX = RNG.normal(size=(32 * 64, 70)).astype(np.float32)
X = RNG.normal(size=(1, 16, 8, 8)).astype(np.float32)
# Filters are turned for a CPU, which is done once; the matrix is read at each call as it is.
TEXT = """
    <ir_version: 10, opset_import: ["" : 20]>
    net (float[N,16,8,8] x) => (float[N,70] y)
    {
        h = Conv <pads=[1,1,1,1]> (x, filters)
        flat = Flatten(h)
        y = MatMul(flat, matrix)
    }
"""


@pytest.fixture
def path(tmp_path):
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.initializer.extend(
        [numpy_helper.from_array(FILTERS, "filters"), numpy_helper.from_array(MATRIX, "matrix")]
    )
    onnx.save(proto, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def expected(model, filters=FILTERS, matrix=MATRIX):
    return jax.jit(model.apply)({"filters": filters, "matrix": matrix}, X)


def programs(model):
    return len(model._weights.cache.executables)


def test_loading_reads_nothing(path):
    model = load(path)
    assert model._weights.params == {}
    assert "2 parameters with 147,968 elements" in str(model)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="filters are turned on a CPU only")
def test_only_what_calls_read_is_kept(path):
    model = load(path)
    np.testing.assert_allclose(model(X), expected(model), rtol=1e-4, atol=1e-4)
    given = model._weights.for_calls(x64=False).params
    filters, matrix = given["filters"], given["matrix"]
    assert isinstance(filters, Unread)
    assert filters.array is None
    assert isinstance(matrix, Unread)
    assert matrix.array is not None
    assert model.params["matrix"] is matrix.array


def test_to_ask_for_the_weights_compiles_nothing_anew(path):
    model = load(path)
    first, count = model(X), programs(model)
    np.testing.assert_array_equal(model.params["filters"], FILTERS)
    np.testing.assert_array_equal(model.params["matrix"], MATRIX)
    np.testing.assert_array_equal(model(X), first)
    assert programs(model) == count


def test_several_threads_may_call_and_ask(path):
    for _ in range(5):
        model = load(path)
        wanted = expected(load(path))
        with ThreadPoolExecutor(8) as executor:
            uses = [executor.submit(*([model, X] if k % 2 else [getattr, model, "params"])) for k in range(16)]
        for k, use in enumerate(uses):
            if k % 2:
                np.testing.assert_allclose(use.result(), wanted, rtol=1e-4, atol=1e-4)
            else:
                assert use.result() is model.params


@pytest.mark.parametrize("name", ["filters", "matrix"])
def test_a_weight_that_is_replaced_counts(path, name):
    model = load(path)
    model(X)
    model.params[name] = model.params[name] * 2
    np.testing.assert_allclose(model(X), 2 * expected(model), rtol=1e-4, atol=1e-4)


def test_all_weights_are_read_where_a_call_is_traced(path):
    model = load(path)
    found = jax.jit(lambda x: model(x))(X)
    np.testing.assert_allclose(found, expected(model), rtol=1e-4, atol=1e-4)
    program = jax.make_jaxpr(lambda x: model(x))(X)
    assert not any(isinstance(v, Unread) for e in equations(program.jaxpr) for v in e.invars)
    gradient = jax.grad(lambda x: model(x).sum())(jnp.asarray(X))
    wanted = jax.grad(lambda x: model.apply({"filters": FILTERS, "matrix": MATRIX}, x).sum())(jnp.asarray(X))
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-4)


def test_node_by_node(path):
    model = load(path)
    with jax.disable_jit():
        np.testing.assert_allclose(model(X), expected(model), rtol=1e-4, atol=1e-4)


def test_types_are_those_of_the_first_use(tmp_path):
    """Whatever x64 is when the others are read."""
    wide = np.arange(600.0).reshape(20, 30) / 7
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (double[N,20] x) => (double[N,30] y) { y = MatMul(x, w) }'
    )
    proto.graph.initializer.append(numpy_helper.from_array(wide, "w"))
    model = load(proto, x64=False)
    x = np.ones((2, 20))
    np.testing.assert_allclose(model(x), x @ wide, rtol=1e-5)
    with jax.enable_x64(True):
        assert model.params["w"].dtype == np.float32


def test_arrays_are_read_once_by_several_threads():
    reads = []

    def read():
        reads.append(1)
        return jnp.zeros(3)

    weight = Unread(jax.ShapeDtypeStruct((3,), np.float32), read)
    np.asarray(weight)
    assert len(reads) == 1
    assert weight.array is None
    found = arrays([weight] * 50)
    assert len(reads) == 2
    assert all(x is weight.array for x in found)
    np.asarray(weight)
    assert len(reads) == 2
