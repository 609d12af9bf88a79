"""Operations on floats are done in the order that a model says, though XLA knows shorter ways for reals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build as build_model, info, model, node
from jax import lax
from onnx import helper, numpy_helper
from programs import TARGET, inlined

import jaxops as jo
from jaxops.compiler.ir import run
from jaxops.compiler.passes.keep_order import keep_order
from jaxops.compiler.xla_options import program_options
from jaxops.kernels.target import this_machine
from jaxops.onnx import load

pytestmark = pytest.mark.optimized

X, ROUNDED = [0.4, 0.5, 0.6, 1.5, 2.5, -1.2], [0, 0, 1, 2, 2, -1]
# 1.5 · 2^(digits - 1): added and subtracted, it rounds to an integer.
MAGIC = {"float32": 12582912.0, "float16": 1536.0, "bfloat16": 192.0, "float64": 6755399441055744.0}
INF = np.inf


def constants(dtype):
    """By name: c the magic number and d its negative, b a large number and s its reciprocal, m near the largest."""
    magic, most = MAGIC[dtype], float(jnp.finfo(dtype).max)
    big = 2.0 ** (round(np.log2(most)) - 2)  # its reciprocal is no subnormal number
    return {"c": magic, "d": -magic, "b": big, "s": 1 / big, "m": most * 0.9, "v": [magic] * 6}


def cases(dtype):
    """Name → (nodes with '.' for what came before, inputs, results)."""
    most, big = float(jnp.finfo(dtype).max), constants(dtype)["b"]
    opposite = [-r for r in ROUNDED]
    return {
        "+ c - c": ([("Add", ".", "c"), ("Sub", ".", "c")], X, ROUNDED),
        "c + x - c": ([("Add", "c", "."), ("Sub", ".", "c")], X, ROUNDED),
        "- c + c": ([("Sub", ".", "c"), ("Add", ".", "c")], X, ROUNDED),
        "+ c + -c": ([("Add", ".", "c"), ("Add", ".", "d")], X, ROUNDED),
        "c - x - c": ([("Sub", "c", "."), ("Sub", ".", "c")], X, opposite),
        "c - (c - x)": ([("Sub", "c", "."), ("Sub", "c", ".")], X, ROUNDED),
        "-(x + c) + c": ([("Add", ".", "c"), ("Neg", "."), ("Add", ".", "c")], X, opposite),
        "Identity between": ([("Add", ".", "c"), ("Identity", "."), ("Sub", ".", "c")], X, ROUNDED),
        "Sum": ([("Sum", ".", "c", "d")], X, ROUNDED),
        "+ m - m": ([("Add", ".", "m"), ("Sub", ".", "m")], [most * 0.3, 0], [INF, 0]),
        "* b * s": ([("Mul", ".", "b"), ("Mul", ".", "s")], [most / 64, 1], [INF, 1]),
        "* b / b": ([("Mul", ".", "b"), ("Div", ".", "b")], [most / 64, 1], [INF, 1]),
        "/ s / b": ([("Div", ".", "s"), ("Div", ".", "b")], [most / 64, 1], [INF, 1]),
        "/ b / b": ([("Div", ".", "b"), ("Div", ".", "b")], [big], [1 / big]),
        "log(exp)": ([("Exp", "."), ("Log", ".")], [most, 0], [INF, 0]),
        "sqrt(x * x)": ([("Mul", ".", "."), ("Sqrt", ".")], [most / 64, 2], [INF, 2]),
    }


def loaded(steps, dtype, **how):
    """A model of a chain of nodes."""
    kind = helper.np_dtype_to_tensor_dtype(jnp.dtype(dtype))
    names = ["x", *(f"v{k}" for k in range(1, len(steps))), "y"]
    nodes = [
        node(op, [names[k] if name == "." else name for name in operands], [names[k + 1]])
        for k, (op, *operands) in enumerate(steps)
    ]
    kept = [numpy_helper.from_array(np.asarray(x, jnp.dtype(dtype)), k) for k, x in constants(dtype).items()]
    inputs, outputs = [info("x", ["N"], kind)], [info("y", None, kind)]
    return load(build_model(*nodes, inputs=inputs, outputs=outputs, initializers=kept, opsets=(("", 22),)), **how)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", MAGIC)
@pytest.mark.parametrize("name", cases("float32"))
def test_each_operation_counts(name, dtype):
    steps, values, results = cases(dtype)[name]
    found = loaded(steps, dtype)
    x, wanted = np.resize(np.asarray(values, jnp.dtype(dtype)), 4096), np.resize(results, 4096)
    with jax.enable_x64(dtype == "float64"):
        mapped = jax.jit(jax.vmap(found))
        for call in (found, lambda x: found.apply(found.params, x), jax.jit(found), lambda x: mapped(x[None])[0]):
            np.testing.assert_array_equal(np.asarray(call(x), np.float64), wanted)
        if name == "+ c - c":
            exported = found.export().call(found.params, x)
            np.testing.assert_array_equal(np.asarray(exported, np.float64), wanted)
            np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: found(x).sum()))(x), np.ones_like(x))


@pytest.mark.parametrize("static", [[], ["v"]])
def test_constants_of_several_numbers(static):
    found = loaded([("Add", ".", "v"), ("Sub", ".", "v")], "float32", static=static)
    x = np.float32(X)
    for call in (found, lambda x: found.apply(found.params, x), jax.jit(found)):
        np.testing.assert_array_equal(call(x), ROUNDED)


K = "k = Constant<value_float=12582912.0>()"
PLACES = {
    "behind a reshape": f"main (float[N,6] x) => (float[M] y) {{ {K} s = Constant<value_ints=[-1]>() a = Add(x, k) "
    "b = Reshape(a, s) y = Sub(b, k) }",
    "in a loop": "main (float[N,6] x) => (float[N,6] y) { m = Constant<value_int=3>() y = Loop(m, , x) <body = b "
    f"(int64 i, bool c, float[N,6] s) => (bool d, float[N,6] t) {{ {K} d = Identity(c) a = Add(s, k) t = Sub(a, k) "
    "}> }",
    "in a branch": "main (float[N,6] x, bool c) => (float[N,6] y) { y = If(c) <then_branch = t () => (float[N,6] v) "
    f"{{ {K} a = Add(x, k) v = Sub(a, k) }}, else_branch = e () => (float[N,6] w) {{ w = Neg(x) }}> }}",
    "in functions": f"main (float[N,6] x) => (float[N,6] y) {{ {K} a = loc.f(x, k) y = loc.g(a, k) }}",
}


@pytest.mark.parametrize("place", PLACES)
def test_places(place):
    functions = """<opset_import: ["": 18], domain: "loc"> f (a, b) => (q) { q = Add(a, b) }
        <opset_import: ["": 18], domain: "loc"> g (a, b) => (q) { q = Sub(a, b) }"""
    named = place == "in functions"
    found = load(model(PLACES[place], functions=functions if named else "", imports=', "loc": 1' if named else ""))
    inputs = [np.tile(np.float32(X), (700, 1)), *([np.bool_(True)] if "branch" in place else [])]
    for call in (found, lambda *inputs: found.apply(found.params, *inputs), jax.jit(found)):
        np.testing.assert_array_equal(np.reshape(call(*inputs), (700, 6)), np.tile(np.float32(ROUNDED), (700, 1)))


def test_in_weights():
    w = np.resize(np.float32(X), 4096)
    text = f"main (float[4096] x) => (float[4096] y) {{ {K} a = Add(w, k) b = Sub(a, k) y = Add(x, b) }}"
    found = load(model(text, initializers={"w": w}))
    x = np.zeros(4096, np.float32)
    for call in (found, lambda x: found.apply(found.params, x), jax.jit(found)):
        np.testing.assert_array_equal(call(x), np.resize(ROUNDED, 4096))


@pytest.mark.parametrize("c", [np.float32(12582912), jnp.float32(12582912), 12582912.0])
def test_in_a_program_of_a_user(c):
    x = np.resize(np.float32(X), 4096)
    for jit in (jax.jit, lambda fn: jax.jit(jax.vmap(fn))):
        np.testing.assert_array_equal(jit(lambda x: jo.sub(jo.add(x, c), c))(x), np.resize(ROUNDED, 4096))


def test_only_constants_of_traced_floats_are_hidden():
    def text(fn, *args):
        return str(jax.make_jaxpr(fn)(*args))

    assert "optimization_barrier" in text(lambda x: jo.add(x, np.float32(1)), np.float32(X))
    assert "optimization_barrier" not in text(lambda x: jo.add(x, np.int32(1)), np.int32([1, 2]))
    assert "optimization_barrier" not in text(jo.add, np.float32(X), np.float32(X))
    assert isinstance(jo.add(np.float32(X), np.float32(1)), np.ndarray)


W = np.resize(np.float32(X), 4096) + 3


def spread(number):
    return lax.full((4096,), number, np.float32)


PAIRS = {
    "sums": (lambda x, w: lax.sub(lax.add(x, spread(2)), spread(3)), 1),
    "sums of three": (lambda x, w: lax.add(lax.sub(lax.add(x, spread(2)), spread(3)), spread(4)), 2),
    "products": (lambda x, w: lax.mul(lax.mul(x, spread(2)), spread(3)), 1),
    "a quotient of a product": (lambda x, w: lax.div(lax.mul(x, spread(2)), spread(3)), 1),
    "quotients": (lambda x, w: lax.div(lax.div(x, w), w), 1),
    "a quotient below": (lambda x, w: lax.div(x, lax.div(w, lax.add(x, w))), 1),
    "a reshape between": (
        lambda x, w: lax.sub(lax.reshape(lax.add(x, spread(2)), (2, 2048)), lax.full((2, 2048), 3.0)),
        1,
    ),
    "a logarithm": (lambda x, w: lax.log(lax.exp(x)), 1),
    "of a power": (lambda x, w: lax.log(lax.pow(w, spread(3))), 1),
    "a root": (lambda x, w: lax.sqrt(lax.mul(x, x)), 1),
    "exponentials": (lambda x, w: lax.mul(lax.exp(x), lax.exp(w)), 1),
    "by an exponential": (lambda x, w: lax.div(w, lax.exp(x)), 1),
    "one constant": (lambda x, w: lax.sub(lax.add(x, spread(2)), w), 0),
    "a sum and a product": (lambda x, w: lax.mul(lax.add(x, spread(2)), spread(3)), 0),
    "no constant": (lambda x, w: lax.sub(lax.add(x, w), w), 0),
    "integers": (lambda x, w: lax.add(lax.add(lax.convert_element_type(x, np.int32), 2), 3), 0),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_stands_between(name):
    """A barrier makes no loop of its own, where XLA removes barriers before it fuses loops (before jaxlib 0.11.1)."""
    fn, count = PAIRS[name]
    x = np.resize(np.float32(X), 4096)
    program = inlined(fn, x, W)
    ordered = keep_order(program, TARGET)
    names = [operation.name for operation in ordered.operations]
    assert names.count("optimization_barrier") == count
    assert len(names) == len(program.operations) + count

    def compiled(program):
        def call(x, w):
            return run(program, [x, w])

        return jax.jit(call, compiler_options=program_options(this_machine())).lower(x, W).compile()

    plain, kept = compiled(program), compiled(ordered)
    np.testing.assert_allclose(kept(x, W)[0], fn(jnp.asarray(x), jnp.asarray(W)), rtol=1e-5)
    barrier = jax.jit(lambda x: lax.optimization_barrier(x * x) - 1).lower(x).compile()
    most = max(plain.as_text().count("fusion("), 1)
    assert kept.as_text().count("fusion(") <= most + (count if barrier.as_text().count("fusion(") > 1 else 0)
    assert "opt-barrier" not in kept.as_text()


def test_hidden_constants_are_seen_by_the_passes():
    program = inlined(lambda x: jo.add(x, np.float32(2)), np.float32(X))
    assert [operation.name for operation in program.operations] == ["broadcast_in_dim", "add"]
