"""Constants beyond 32 bits, and of float64, in models while JAX's x64 is off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, function, info, node, tensor
from onnx import TensorProto, helper
from wide_models import answer, bits, text

from jaxops.errors import OutOfRangeError
from jaxops.onnx import load

BEYOND, FIVE = np.int64(2**40), np.int64([5, 2**31 - 1, -3])


def beside(body, c=BEYOND, y="int64[K]", x="int64[3]", given=FIVE, **initializers):
    return text(body, x, y, initializers={"c": c, **initializers}), given


def floats(body, c, y="float[K]", **initializers):
    return beside(body, c, y, "float[2]", np.float32([1, 2]), **initializers)


# A constant beyond 32 bits meets a traced value whose type is of 64.
CONSTANTS = {
    "equal": beside("y = Equal(x, c)", y="bool[K]"),
    "equal, one of three": beside("y = Equal(x, c)", np.int64([5, 2**40, -3]), "bool[K]"),
    "less": beside("y = Less(x, c)", y="bool[K]"),
    "greater or equal": beside("y = GreaterOrEqual(x, c)", -BEYOND, "bool[K]"),
    "where": beside("b = Greater(x, z) y = Where(b, x, c)", z=np.int64(0)),
    "where, a known condition": beside("y = Where(b, x, c)", b=np.array([True, False, True])),
    "mod": beside("y = Mod(x, c)"),
    "min": beside("y = Min(x, c)", np.int64(2**63 - 1)),
    "max": beside("y = Max(x, c)"),
    "clip from": beside("y = Clip(x, c)"),
    "clip to": beside("y = Clip(x, , c)", -BEYOND),
    "bitwise and": beside("y = BitwiseAnd(x, c)", BEYOND - 1),
    "concat": beside("y = Concat<axis=0>(x, c)", np.int64([2**40, 1])),
    "pad": beside("y = Pad(x, p, c)", p=np.int64([1, 2])),
    "gather": beside("y = Gather(c, x)", np.int64([2**40, 1, 2]), given=np.int64([0, 2, 1])),
    "gather elements": beside("y = GatherElements(c, x)", np.int64([2**40, 1, 2]), given=np.int64([0, 2, 1])),
    "gather nd": beside("y = GatherND(c, x)", np.int64([2**40, 1]), x="int64[2, 1]", given=np.int64([[1], [0]])),
    "scatter elements": beside("y = ScatterElements(x, i, c)", np.int64([2**40]), i=np.int64([1])),
    "scatter nd": beside("y = ScatterND(x, i, c)", np.int64([2**40]), i=np.int64([[1]])),
    "one-hot": beside("y = OneHot(x, d, c)", np.int64([0, 2**40]), "int64[K, M]", d=np.int64(4)),
    "constant of shape": beside(
        "s = Shape(x) k = ConstantOfShape<value=int64[1] {1099511627776}>(s) y = Equal(x, k)", y="bool[K]"
    ),
    "attribute": beside("k = Constant<value_ints=[1099511627776]>() y = Equal(x, k)", y="bool[K]"),
    "computed": beside("k = Cast<to=7>(c) y = Equal(x, k)", np.float32(1e12), "bool[K]"),
    "computed of sizes": beside("s = Shape(x) k = Mul(s, c) y = Equal(x, k)", y="bool[K]"),
    "reshaped": beside("k = Reshape(c, n) y = Equal(x, k)", np.int64([[5, 2**40, 1]]), "bool[K]", n=np.int64([-1])),
    "reduced": beside("k = ReduceMax<keepdims=0>(c) y = Equal(x, k)", np.int64([5, 2**40]), "bool[K]"),
    "an output": beside("y = Identity(c)", np.int64([2**40, 1])),
    "uint64": beside("y = Equal(x, c)", np.uint64(2**40), "bool[K]", "uint64[3]", np.uint64([1, 2, 3])),
    "float64 cast": floats("k = Cast<to=1>(c) y = Mul(x, k)", np.float64([1.5e100, 2])),
    "float64 compared": floats(
        "b = Less(c, d) y = Where(b, x, x)", np.float64([1.5e100, 2]), d=np.float64([1.6e100, 1])
    ),
    "float64 compared closely": floats(
        "b = Less(c, d) z = Neg(x) y = Where(b, x, z)", np.float64([1, 2]), d=np.float64([1 + 1e-12, 2])
    ),
    "a power of float64": floats("y = Pow(x, c)", np.float64(1.5e100)),
    "an output of float64": floats("y = Identity(c)", np.float64(1.5e100), "double"),
    "function": (
        build(
            node("F", ["x", "c"], ["y"], domain="loc"),
            inputs=[info("x", [3], TensorProto.INT64)],
            outputs=[info("y", [3], TensorProto.BOOL)],
            opsets=(("", 18), ("loc", 1)),
            functions=[function("F", ["a", "c"], node("Equal", ["a", "c"], ["b"]))],
            initializers=[tensor(BEYOND, "c")],
        ),
        FIVE,
    ),
    "branch": (
        build(
            node("ReduceMax", ["x"], ["m"], keepdims=0),
            node("Greater", ["m", "z"], ["b"]),
            node(
                "If",
                ["b"],
                ["y"],
                then_branch=helper.make_graph([node("Identity", ["c"], ["t"])], "t", [], [info("t", [1], 7)]),
                else_branch=helper.make_graph([node("Identity", ["z"], ["e"])], "e", [], [info("e", [1], 7)]),
            ),
            inputs=[info("x", [3], TensorProto.INT64)],
            outputs=[info("y", [1], TensorProto.INT64)],
            initializers=[tensor(np.int64([2**40]), "c"), tensor(np.int64([0]), "z")],
        ),
        FIVE,
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_beyond_32_bits_that_meets_a_traced_value(name):
    proto, x = CONSTANTS[name]
    loaded = load(proto)
    assert loaded.x64
    expected = answer(proto, x)
    bits(loaded(x), expected)
    with jax.enable_x64(True):
        given = jnp.asarray(x, {"int64": np.int32, "uint64": np.uint32}.get(x.dtype.name, x.dtype))
    if x.dtype != np.uint64:  # for which JAX has no array of 32 bits
        bits(jax.jit(loaded)(given), expected)


@pytest.mark.parametrize(
    "case",
    [
        beside("y = Clip(x, c, d)", np.int64(-(2**63)), d=np.int64(2**63 - 1)),
        beside("y = Slice(x, s, c)", np.int64([2**63 - 1]), s=np.int64([1])),
        beside("s = Shape(x) t = Slice(s, z, c) y = Expand(x, t)", np.int64([2**63 - 1]), z=np.int64([0])),
        beside("y = Equal(x, c)", np.uint32(2**32 - 1), "bool[K]", "uint32[3]", np.uint32([1, 2, 2**32 - 1])),
        floats("k = Cast<to=1>(c) y = Mul(x, k)", np.float64(1.5e100)),
    ],
)
def test_a_limit_that_nothing_passes_leaves_a_model_as_it_is(case):
    proto, x = case
    loaded = load(proto)
    assert not loaded.x64
    np.testing.assert_array_equal(loaded(x), answer(proto, x))


def test_the_caller_decides_about_constants_beyond_32_bits():
    proto, x = CONSTANTS["where"]
    with pytest.raises(OutOfRangeError, match=r"the int64 value 1099511627776 does not fit int32(.|\n)*x64=True"):
        load(proto, x64=False)(x)
    loaded = load(proto, static={"c": False})  # a parameter
    assert loaded.x64
    assert loaded.params["c"].dtype == np.int64
    bits(loaded(x), answer(proto, x))


def test_an_operation_that_jax_replaces_late():
    wide = load(text("y = NonZero(x)", "float[4]", "int64[1, K]"), bounds={"NonZero": 3}, x64=True)
    x = np.array([0, 5, 0, 7], np.float32)
    assert jax.jit(wide.apply)(wide.params, x).tolist() == [[1, 3, -1]]
