"""Products and convolutions at the precision that JAX was asked for, on a CPU."""

import pickle
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model
from jax import lax
from programs import equations, specialized

import jaxops as jo
from jaxops import microsoft
from jaxops.errors import ArgumentError
from jaxops.host import processor_features
from jaxops.kernels import target
from jaxops.kernels.matmul import dot
from jaxops.onnx import load

pytestmark = pytest.mark.optimized
RNG = np.random.default_rng(0)
# The error by the largest term, for each name: more than the type of a result alone has, less than the next level.
BOUNDS = {
    "bfloat16": (3e-4, 1e-2),
    "BF16_BF16_F32": (3e-4, 1e-2),
    "high": (0, 4e-6),
    "highest": (0, 4e-6),
    None: (0, 4e-6),
}


def array(*shape):
    return jnp.asarray(RNG.normal(size=shape).astype(np.float32))


def lstm(x, w, r):
    return jo.lstm(x, w, r, hidden_size=8)[0]


CODES = RNG.integers(0, 256, (80, 3, 16), np.uint8)  # (N, blocks, bytes of 32 numbers of 4 bits)


def four_bits(x, scales):
    return microsoft.matmul_nbits(x, CODES, scales, K=96, N=80, block_size=32)


def nf4(x, scales):
    return microsoft.matmul_bnb4(x, CODES.reshape(-1), scales, K=96, N=80, block_size=32, quant_type=1)


A, B, IMAGE = array(64, 96), array(96, 80), array(2, 128, 9, 9)
FUNCTIONS = {
    "matmul": (jo.matmul, (A, B)),
    "batches": (jo.matmul, (array(3, 16, 64), array(3, 64, 32))),
    "gemm": (lambda a, b: jo.gemm(a, b, transB=1), (A, B.T)),
    "einsum": (lambda a, b: jo.einsum([a, b], equation="ij,jk->ki"), (A, B)),
    "fused_matmul": (microsoft.fused_matmul, (A, B)),
    "four bits": (four_bits, (A, array(80, 3))),
    "nf4": (nf4, (A, array(240))),
    "pointwise": (jo.conv, (IMAGE, array(32, 128, 1, 1))),
    "columns": (jo.conv, (array(1, 256, 5, 5), array(64, 256, 3, 3))),
    "attention": (lambda q, k, v: jo.attention(q, k, v)[0], tuple(array(2, 3, 32, 16) for _ in range(3))),
    "lstm": (lstm, (array(16, 4, 32), array(1, 32, 32) / 4, array(1, 32, 8) / 4)),
}


# Processors that are fast at products of bfloat16, and others, as Linux names what they can do.
FAST = {"AMX": {"GenuineIntel", "avx512_bf16", "amx_bf16"}, "AMD": {"AuthenticAMD", "avx512_bf16"}}
OTHERS = {"Intel": {"GenuineIntel", "avx512_bf16"}, "older": {"AuthenticAMD", "avx2"}, "unknown": set()}


def become(features, monkeypatch):
    """A processor with these features, whatever this one is."""
    monkeypatch.setattr(target, "processor_features", lambda: frozenset(features))
    monkeypatch.setattr(target, "_jaxlib", lambda: (0, 11))  # or Winograd's products are for a few cores
    jax.clear_caches()  # programs are lowered once
    yield
    jax.clear_caches()


@pytest.fixture(params=FAST)
def fast(request, monkeypatch):
    for _ in become(FAST[request.param], monkeypatch):
        yield request.param


@pytest.fixture
def amd(monkeypatch):
    yield from become(FAST["AMD"], monkeypatch)


@pytest.fixture(params=OTHERS)
def other(request, monkeypatch):
    yield from become(OTHERS[request.param], monkeypatch)


def exact(function, operands):
    with jax.enable_x64(True):
        return np.asarray(function(*(jnp.asarray(np.asarray(x, np.float64)) for x in operands)))


def error(found, expected):
    return np.abs(np.asarray(found, np.float64) - expected).max() / np.abs(expected).max()


@pytest.mark.grid
@pytest.mark.parametrize("asked", BOUNDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error(name, asked, fast):
    function, operands = FUNCTIONS[name]
    expected, (least, most) = exact(function, operands), BOUNDS[asked]
    with jax.default_matmul_precision(asked):
        found = function(*operands)
        assert found.dtype == jnp.float32
        assert least <= error(found, expected) <= most
        np.testing.assert_allclose(jax.jit(function)(*operands), found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("asked", ["bfloat16", "BF16_BF16_F32"])
def test_a_processor_without_such_products_changes_nothing(asked, other):
    expected = np.asarray(jo.matmul(A, B))
    with jax.default_matmul_precision(asked):
        assert (np.asarray(jo.matmul(A, B)) == expected).all()


def test_a_few_rows_are_exact(fast):
    with jax.default_matmul_precision("bfloat16"):
        assert (np.asarray(jo.matmul(A[:4], B)) == np.asarray(jnp.matmul(A[:4], B))).all()


@pytest.mark.parametrize("asked", ["bfloat16", "high"])
def test_infinities_and_nan(asked, fast):
    a = A.at[0, 0].set(jnp.inf).at[1, 0].set(jnp.nan)
    with jax.default_matmul_precision(asked):
        found = np.asarray(jo.matmul(a, B))
    assert (found[0] == np.where(np.asarray(B)[0] > 0, np.inf, -np.inf)).all()
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[2:]).all()


@pytest.mark.parametrize("asked", ["bfloat16", "high"])
def test_derivatives_are_those_of_float32(asked, fast):
    def loss(a, b):
        return jnp.sum(jo.matmul(a, b) * jnp.cos(jnp.arange(80.0))[None])

    expected = jax.grad(loss, (0, 1))(A, B)
    with jax.default_matmul_precision(asked):
        for found in (jax.grad(loss, (0, 1))(A, B), jax.jit(jax.grad(loss, (0, 1)))(A, B), (jax.grad(loss)(A, B),)):
            for got, wanted in zip(found, expected, strict=False):
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        batched = jax.vmap(jo.matmul, (0, None))(jnp.stack([A, 2 * A]), B)
    assert error(batched[1], exact(jo.matmul, (2 * A, B))) <= BOUNDS[asked][1]


NET = model(
    """main (float[N,128,12,12] x) => (float[N,10] y) {
        a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, k) b = Relu(a) c = Conv(b, p)
        d = GlobalAveragePool(c) e = Flatten(d) f = Relu(e) y = MatMul(f, w)
    }""",
    initializers={
        "k": RNG.normal(size=(128, 128, 3, 3)).astype(np.float32) / 34,
        "p": RNG.normal(size=(64, 128, 1, 1)).astype(np.float32) / 11,
        "w": RNG.normal(size=(64, 10)).astype(np.float32) / 8,
    },
)


@pytest.mark.parametrize("asked", ["bfloat16", "high"])
def test_a_model(asked, fast):
    x = array(9, 128, 12, 12)
    expected = np.asarray(load(NET)(x), np.float64)
    loaded = load(NET, precision=asked)
    least, most = BOUNDS[asked]
    copy = pickle.loads(pickle.dumps(loaded))
    for found in (loaded(x), loaded.apply(loaded.params, x), jax.jit(loaded.apply)(loaded.params, x), copy(x)):
        assert least <= error(found, expected) <= most
    assert error(loaded.astype(jnp.bfloat16)(x.astype(jnp.bfloat16)), expected) < 0.05
    with jax.default_matmul_precision(asked):
        assert least <= error(load(NET)(x), expected) <= most
        assert error(load(NET, precision="highest")(x), expected) <= 4e-6


def test_weights_are_prepared_in_bfloat16(fast):
    loaded = load(NET, precision="bfloat16")
    loaded(array(9, 128, 12, 12))
    kept = loaded._weights.cache.prepared.values()
    assert {v.dtype for v in kept} == {jnp.dtype(jnp.bfloat16)}
    sizes = {name: p.size for name, p in loaded.params.items()}
    if fast == "AMD":  # Winograd's
        sizes["k"] = sizes["k"] * 4 // 3
    assert sorted(v.size for v in kept) == sorted(sizes.values())


# Rows, terms, columns → how weights (columns, terms) are multiplied, in bfloat16 and in float32: as they are, turned to
# (terms, columns), or as the first operand.
LIE = {
    (1, 300, 96): ("as they are", "as they are"),
    (2, 300, 96): ("first", "first"),  # float32, whatever is asked for
    (8, 300, 96): ("first", "first"),
    (9, 300, 96): ("as they are", "turned"),
    (16, 128, 512): ("first", "first"),
    (17, 128, 512): ("as they are", "turned"),
    (64, 128, 512): ("first", "first"),
    (64, 128, 255): ("as they are", "turned"),
    (16, 128, 99): ("as they are", "turned"),
    (80, 128, 512): ("as they are", "turned"),
    (99, 300, 96): ("as they are", "turned"),
    (100, 300, 96): ("as they are", "as they are"),
}


@pytest.mark.parametrize("asked", ["bfloat16", None])
@pytest.mark.parametrize("sizes", LIE)
def test_how_prepared_weights_lie(sizes, asked, amd, monkeypatch):
    monkeypatch.setattr(dot, "_FEWEST_WEIGHTS", 100 * 128)
    rows, terms, columns = sizes
    w = RNG.normal(size=(columns, terms)).astype(np.float32)
    text = f"main (float[N,{terms}] x) => (float[N,{columns}] y) {{ y = Gemm<transB=1>(x, w) }}"
    loaded, a = load(model(text, initializers={"w": w}), precision=asked), array(rows, terms).at[0, 0].set(jnp.inf)
    expected, found = np.asarray(a[1:], np.float64) @ w.T, np.asarray(loaded(a))
    assert (found[0] == np.where(w[:, 0] > 0, np.inf, -np.inf)).all()
    if rows > 1:
        least, most = BOUNDS[asked if rows >= 8 else None]
        assert least <= error(found[1:], expected) <= most
    assert (
        dot_operands(asked, a, w)
        == {
            "as they are": [a.shape, w.shape],
            "turned": [a.shape, w.shape[::-1]],
            "first": [w.shape, a.shape],
        }[LIE[sizes][asked is None]]
    )


def dot_operands(asked, a, w):
    """The sizes of both operands of a product with prepared weights."""
    with jax.default_matmul_precision(asked):
        program = jax.make_jaxpr(specialized(lambda a, w: jo.gemm(a, w, transB=1)))(a, w)
    (found,) = [e for e in equations(program.jaxpr) if e.primitive is lax.dot_general_p]
    return [v.aval.shape for v in found.invars]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 300), (300,), (1, 1, 300)])
def test_a_row_of_bfloat16_is_one_of_two(shape, transposed):
    """XLA would make float32 of all weights."""
    a, w = (RNG.normal(size=s).astype(jnp.bfloat16) for s in (shape, (300, 96)))

    def fn(a, w):
        return jo.matmul(a, jo.transpose(w, perm=(1, 0)) if transposed else w)

    weights = w.T if transposed else w
    run = specialized(fn, target.Target("cpu"))
    (product,) = [e for e in equations(jax.make_jaxpr(run)(a, weights).jaxpr) if e.primitive is lax.dot_general_p]
    assert product.invars[0].aval.shape == (2, 300)
    y = jax.jit(run)(a, weights)
    assert (y.shape, y.dtype) == ((*shape[:-1], 96), jnp.bfloat16)
    assert error(np.asarray(y, np.float32), a.astype(np.float64) @ w.astype(np.float64)) < 0.01


PRODUCTS = {lax.conv_general_dilated_p, lax.dot_general_p}  # Winograd's are a batch
# Sizes of the data and the filters, attributes → how it is computed with AMX, and with AMD's products of bfloat16.
CONVOLUTIONS = {
    "3×3": ((2, 64, 9, 12), (96, 64, 3, 3), {"pads": [1, 1, 1, 1]}, "columns", "float32"),
    "many multiplications": ((2, 64, 19, 22), (96, 64, 3, 3), {"pads": [1, 0, 1, 1]}, "columns", "Winograd's"),
    "few filters": ((1, 128, 28, 28), (32, 128, 3, 3), {"pads": [1, 1, 1, 1]}, "Winograd's", "Winograd's"),
    "few of both": ((1, 128, 14, 14), (32, 128, 3, 3), {"pads": [1, 1, 1, 1]}, "float32", "float32"),
    "few rows": ((1, 64, 9, 7), (96, 64, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, "columns", "columns"),
    "strides": ((1, 64, 15, 20), (64, 64, 3, 3), {"strides": [2, 2], "pads": [1, 0, 2, 1]}, "columns", "float32"),
    "dilations": ((1, 64, 15, 20), (64, 64, 3, 2), {"dilations": [2, 3]}, "columns", "float32"),
    "skipped": ((1, 64, 7, 20), (64, 64, 2, 3), {"strides": [3, 3], "pads": [0, 1, 0, 1]}, "columns", "columns"),
    "one axis": ((2, 64, 8), (80, 64, 5), {"pads": [2, 2]}, "columns", "columns"),
    "three axes": ((1, 64, 5, 6, 7), (64, 64, 2, 3, 2), {"pads": [1, 0, 1, 0, 1, 1]}, "columns", "float32"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_with_prepared_weights(name, fast):
    size, filters, attributes, *ways = CONVOLUTIONS[name]
    x, w, way = array(*size), array(*filters), ways[fast == "AMD"]
    expected = exact(lambda x, w: jo.conv(x, w, **attributes), (x, w))
    with jax.default_matmul_precision("bfloat16"):
        run = jax.jit(specialized(lambda x, w: jo.conv(x, w, **attributes)))
        (product,) = [e for e in equations(run.trace(x, w).jaxpr) if e.primitive in PRODUCTS]
        found = run(x, w)
    if product.primitive is lax.dot_general_p:
        assert way == ("Winograd's" if product.params["dimension_numbers"][1][0] else "columns")
    else:
        assert way == "float32"
    least, most = BOUNDS[None if way == "float32" else "bfloat16"]
    assert found.shape == expected.shape
    assert least <= error(found, expected) <= most


@pytest.mark.skipif(not processor_features(), reason="the processor is known on Linux only")
def test_the_maker_of_the_processor_is_known():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    for field in ("vendor_id", "flags"):
        said = next((line for line in lines if line.startswith(field)), ":").partition(":")[2].split()
        assert processor_features() >= set(said)


def test_unknown_names():
    with pytest.raises(ArgumentError, match=r"`precision` is 'half'; jax\.default_matmul_precision: new enum value"):
        load(NET, precision="half")


@pytest.mark.parametrize(
    ("a", "b", "type"),
    [
        ((8, 33), (33, 8), "i8"),
        ((2, 3, 33), (33, 8), "i8"),
        ((8, 32), (32, 8), "i8"),
        ((3, 8, 33), (3, 33, 8), "i32"),
        ((1, 4, 4), (1, 4, 4), "i32"),
    ],
)
def test_a_gpu_multiplies_no_bytes_that_triton_may_double(a, b, type):
    x, y = (RNG.integers(-128, 128, shape, np.int8) for shape in (a, b))
    expected = np.matmul(x.astype(np.int32), y.astype(np.int32))
    np.testing.assert_array_equal(jax.jit(jo.matmul_integer)(x, y), expected)
    np.testing.assert_array_equal(specialized(jo.matmul_integer, target.Target("gpu"))(x, y), expected)
    text = jax.jit(jo.matmul_integer).trace(x, y).lower(lowering_platforms=("cuda",)).as_text()
    (product,) = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    sizes = re.search(rf": \(tensor<([0-9x]+)x{type}>, tensor<[0-9x]+x{type}>\) -> tensor<[0-9x]+xi32>", product)
    assert sizes
    assert type == "i32" or int(sizes[1].split("x")[-1]) % 4 == 0


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("lead", [(1,), (1, 1), (1, 1, 1)])
def test_weights_of_one_row_are_not_transposed_at_each_call(lead, over):
    x, w = array(*lead, 512), array(*((512, 640), (640, 512))[over])
    bias = array(640)

    def fn(x, w, bias):
        y = dot.dot(x, w, (((len(lead),), (over,)), ((), ())), np.float32)
        return y + jnp.broadcast_to(bias, y.shape)

    compiled = jax.jit(fn).lower(x, w, bias).compile()
    assert "transpose" not in compiled.as_text().partition("ENTRY")[2]
    np.testing.assert_allclose(
        compiled(x, w, bias),
        jnp.tensordot(x, w, ((-1,), (over,))) + jnp.broadcast_to(bias, (*lead, 640)),
        rtol=1e-4,
        atol=1e-4,
    )


def test_one_row_along_any_axis():
    x, w = array(1, 96, 1), array(64, 96)

    def fn(x, w):
        return dot.dot(x, w, (((1,), (1,)), ((), ())), np.float32)

    y = jax.jit(fn)(x, w)
    np.testing.assert_allclose(y, lax.dot_general(x, w, (((1,), (1,)), ((), ()))), rtol=1e-5, atol=1e-5)
    check = jax.grad(lambda x, w: (fn(x, w) ** 2).sum(), (0, 1))(x, w)
    plain = jax.grad(lambda x, w: (lax.dot_general(x, w, (((1,), (1,)), ((), ()))) ** 2).sum(), (0, 1))(x, w)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), check, plain)
