"""A small network inside a larger program compiles to what the same network written by hand in jnp compiles to.

Networks as exporters write them, fixed at one row (1, D), called under vmap, grad and scan.
"""

import itertools
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import numpy_helper, parser

import jaxops.onnx

WIDTHS = (4, 16, 16, 2)


def weights(dtype):
    rng = np.random.default_rng(0)
    found = {}
    for k, (n, m) in enumerate(itertools.pairwise(WIDTHS), 1):
        found |= {f"w{k}": rng.normal(size=(n, m)) / np.sqrt(n), f"b{k}": rng.normal(size=m)}
    for name in ("scale", "shift", "mean", "variance"):
        found[name] = rng.uniform(0.5, 1.5, WIDTHS[1])
    return {name: value.astype(dtype) for name, value in found.items()}


def exported(body, dtype=np.float32):
    """A model of `body`; its initializers are the weights that it names."""
    kind = {"float32": "float", "float64": "double"}[np.dtype(dtype).name]
    text = f"""
    <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    network ({kind}[1, {WIDTHS[0]}] x) => ({kind}[1, {WIDTHS[-1]}] y) {{ {body} }}"""
    model = parser.parse_model(text)
    used = {name for node in model.graph.node for name in node.input}
    given = {
        **weights(dtype),
        "offset": np.full(WIDTHS[0], 0.5, dtype),
        "rows": np.array([-1, WIDTHS[-1]]),
    }
    for k in (1, 2, 3):
        given[f"t{k}"] = given[f"w{k}"].T.copy()
    model.graph.initializer.extend(numpy_helper.from_array(given[name], name) for name in given if name in used)
    return model


def layers(linear, activation):
    """Three layers. linear: text of one, with {y}, {x} and {k}."""
    names, text = ["x", "h1", "h2", "y"], ""
    for k in (1, 2, 3):
        last = k == 3
        text += linear.format(y=names[k] if last else f"z{k}", x=names[k - 1], k=k) + "\n"
        text += "" if last else activation.format(y=names[k], x=f"z{k}") + "\n"
    return text


GEMM = "{y} = Gemm({x}, w{k}, b{k})"
TORCH = "{y} = Gemm<transB = 1>({x}, t{k}, b{k})"
KERAS = "m{k} = MatMul({x}, w{k})  {y} = Add(m{k}, b{k})"
BATCH_NORM = """
    z1 = MatMul(x, w1)  n1 = BatchNormalization<epsilon = 0.001>(z1, scale, shift, mean, variance)
    h1 = Relu(n1)  y = MatMul(h1, w3)
"""
SKLEARN = """
    x1 = Sub(x, offset)  m1 = MatMul(x1, w1)  z1 = Add(m1, b1)  h1 = Relu(z1)
    m3 = MatMul(h1, w3)  z3 = Add(m3, b3)  y = Reshape(z3, rows)
"""


def by_hand(activation, transposed=False):
    def network(p, x):
        for k in (1, 2, 3):
            x = (x @ p[f"t{k}"].T if transposed else x @ p[f"w{k}"]) + p[f"b{k}"][None]
            x = activation(x) if k < 3 else x
        return x

    return network


def batch_norm(p, x):
    epsilon = jnp.asarray(np.float32(0.001), x.dtype)  # the standard's attribute has 32 bits
    factor = p["scale"] * jax.lax.rsqrt(p["variance"] + epsilon)
    z = (x @ p["w1"]) * factor[None] + (p["shift"] - p["mean"] * factor)[None]
    return jax.nn.relu(z) @ p["w3"]


def sklearn(p, x):
    return jax.nn.relu((x - p["offset"][None]) @ p["w1"] + p["b1"][None]) @ p["w3"] + p["b3"][None]


NETWORKS = {
    "Gemm, Tanh": (layers(GEMM, "{y} = Tanh({x})"), by_hand(jnp.tanh)),
    "torch's Gemm, Relu": (layers(TORCH, "{y} = Relu({x})"), by_hand(jax.nn.relu, transposed=True)),
    "MatMul and Add, Sigmoid": (layers(KERAS, "{y} = Sigmoid({x})"), by_hand(jax.nn.sigmoid)),
    "Gemm, Softplus": (layers(GEMM, "{y} = Softplus({x})"), by_hand(lambda x: jnp.logaddexp(x, 0.0))),
    "BatchNormalization": (BATCH_NORM, batch_norm),
    "a scaler before, Reshape behind": (SKLEARN, sklearn),
}


def plain(f):
    return f


def vmapped(f):
    return lambda p, x: jax.vmap(f, (None, 0))(p, jnp.stack([x, x + 1, x * 2]))


def differentiated(f):
    return lambda p, x: jax.grad(lambda p, x: f(p, x).sum(), argnums=1)(p, x)


def trained(f):
    return lambda p, x: jax.vmap(jax.grad(lambda p, x: (f(p, x) ** 2).sum()), (None, 0))(p, jnp.stack([x, x + 1]))


def scanned(f):
    def steps(p, x):
        return jax.lax.scan(lambda y, _: (y - 0.1 * differentiated(f)(p, y), None), x, length=50)[0]

    return steps


USES = (plain, vmapped, differentiated, trained, scanned)
COUNTED = ("dot", "copy", "transpose", "while", "reduce", "convert", "custom-call", "dynamic-slice", "gather", "fusion")


def compiled(fn, *args):
    return jax.jit(fn).lower(*args).compile()


def counts(program):
    """How often each operation stands in an optimized program."""
    found = re.findall(r"= \S+ ([a-z\-]+)\(", program.as_text())
    return {kind: found.count(kind) for kind in COUNTED}


def compare(body, network, use, dtype):
    model = jaxops.onnx.load(exported(body, dtype))
    params = model.params
    assert all(value.dtype == dtype for value in params.values())
    x = jnp.asarray(np.linspace(-1, 1, WIDTHS[0])[None], dtype)
    ours, theirs = (compiled(use(f), params, x) for f in (model.apply, network))
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    got, expected = (jax.tree.leaves(program(params, x)) for program in (ours, theirs))
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    a, b = counts(ours), counts(theirs)
    assert all(a[kind] <= b[kind] for kind in COUNTED), f"{a}\nby hand\n{b}"


@pytest.mark.grid
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize("name", NETWORKS)
def test_same_program_as_by_hand(name, use):
    compare(*NETWORKS[name], use, np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["Gemm, Tanh", "MatMul and Add, Sigmoid", "BatchNormalization"])
def test_x64(x64, name, dtype):
    """A float64 model computes in float64, and a float32 one stays float32."""
    compare(*NETWORKS[name], scanned, dtype)


def test_a_worse_program_is_caught():
    def detour(p, x):
        return by_hand(jnp.tanh)(p, x)

    body = layers("r{k} = Identity({x})  " + GEMM, "{y} = Tanh({x})") + "  "
    compare(body, detour, plain, np.float32)  # costs nothing
    body = body.replace("y = Gemm(h2", "q = MatMul(h2, w2)  y = Gemm(q")
    with pytest.raises(AssertionError):
        compare(body, detour, plain, np.float32)


def test_loads_in_milliseconds():
    data = exported(NETWORKS["Gemm, Tanh"][0]).SerializeToString()
    jaxops.onnx.load(data)  # the first one imports what describes the operators
    times = []
    for _ in range(5):
        start = time.process_time()
        jaxops.onnx.load(data).params  # noqa: B018
        times.append(time.process_time() - start)
    assert min(times) < 0.02
