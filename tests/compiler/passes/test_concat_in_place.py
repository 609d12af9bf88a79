"""Concatenations of a value that grows: the same numbers, written into one array."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model
from jax import lax
from programs import TARGET, inlined

from jaxops.compiler import pipeline
from jaxops.compiler.ir import evaluate, run
from jaxops.compiler.passes.concat_in_place import concat_in_place
from jaxops.onnx import load

RNG = np.random.default_rng(5)
X = RNG.normal(size=(1, 8, 9, 10)).astype(np.float32)


def layer(x, k, axis=1):
    """Four channels, made of all before."""
    return jnp.tanh(lax.slice_in_dim(x, k, k + 4, axis=axis)) * jnp.max(x) + k


def dense(x, layers=5, axis=1):
    """Each layer's part behind what was put together before."""
    for k in range(layers):
        x = lax.concatenate([x, layer(x, k, axis)], axis)
    return x


def listed(x):
    """Each time all parts, one by one, as PyTorch has it."""
    parts = [x]
    for k in range(5):
        parts.append(layer(lax.concatenate(parts, 1) if k else x, k))
    return lax.concatenate(parts, 1)


def several(x):
    """Two parts at a time, and a second value that grows from the middle of the first."""
    other = None
    for k in range(5):
        x = lax.concatenate([x, layer(x, k), layer(x, k + 1)], 1)
        if k == 1:
            other = dense(x, 4)
    return x, other


def shown(x):
    """What it was on the way is a result, too."""
    middle = dense(x, 2)
    return dense(middle, 3), middle


def axes(x):
    return dense(dense(x, 4), 4, axis=3)


def empty(x):
    """A part of each has no elements."""
    for k in range(5):
        x = lax.concatenate([x, layer(x, k), x[:, :0]], 1)
    return x


def grown(fn):
    program = inlined(fn, X)
    return program, concat_in_place(program, TARGET)


# A function → how many concatenations are left.
CASES = {
    "one by one": (dense, 0),
    "lists": (listed, 0),
    "several": (several, 3),
    "shown": (shown, 0),
    "axes": (axes, 0),
}
CASES |= {
    "empty": (empty, 5),
    "few": (lambda x: dense(x, 3), 3),
    "behind it": (lambda x: lax.concatenate([layer(x, 0), dense(x)], 1), 1),
    "another axis": (lambda x: lax.concatenate([dense(x, 3)] * 2, 2), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers(name):
    fn, left = CASES[name]
    program, found = grown(fn)
    assert sum(operation.name == "concatenate" for operation in found.operations) == left
    results = jax.jit(lambda x: run(found, [x]))(X)
    expected = jax.tree.leaves(jax.jit(fn)(X))
    assert [y.shape for y in results] == [y.shape for y in expected]
    for y, z in zip(results, expected, strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-6)
    made = [v for operation in found.operations for v in operation.results]
    assert len(made) == len(set(made))
    types = [program.types[v] for v in program.outputs]
    assert types == [found.types[v] for v in found.outputs]


def test_each_value_has_the_type_that_is_said():
    _, found = grown(several)
    values = {0: X}
    evaluate(found.operations, values, found.outputs)
    assert len(values) == len(found.types)
    assert all((found.types[v].shape, found.types[v].dtype) == (x.shape, x.dtype) for v, x in values.items())


def net():
    """A dense block: a normalization, relu, and a convolution that makes 16 channels of all before."""
    weights, lines = {}, []
    for k in range(6):
        channels = 16 * (k + 1)
        weights[f"w{k}"] = (RNG.normal(size=(16, channels, 3, 3)) / channels).astype(np.float32)
        weights[f"s{k}"] = RNG.normal(size=(1, channels, 1, 1)).astype(np.float32)
        lines.append(f"""
            m{k} = Mul(x{k}, s{k})
            r{k} = Relu(m{k})
            c{k} = Conv <pads=[1,1,1,1]> (r{k}, w{k})
            x{k + 1} = Concat <axis=1> (x{k}, c{k})""")
    text = f"main (float[1,16,24,24] x0) => (float[1,112,24,24] x6) {{{''.join(lines)}}}"
    return model(text, initializers=weights)


@pytest.mark.optimized
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="values grow in place on a CPU only")
def test_a_model(monkeypatch):
    proto, x = net(), RNG.normal(size=(1, 16, 24, 24)).astype(np.float32)
    programs, verify = {}, pipeline.verify
    monkeypatch.setattr(pipeline, "verify", lambda program, step: programs.update({step: program}) or verify(program))
    y = load(proto)(x)
    names = [operation.name for operation in programs["concat in place"].operations]
    assert (names.count("concatenate"), names.count("dynamic_update_slice")) == (0, 6)
    other = load(proto)
    np.testing.assert_allclose(y, jax.jit(other.apply)(other.params, x), rtol=1e-4, atol=1e-4)
