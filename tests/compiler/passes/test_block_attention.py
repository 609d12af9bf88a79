"""Attention in parts: the same numbers as at once, in less memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_programs import CASES, array, attended, heads
from graphs import model
from jax import lax
from programs import TARGET, inlined

import jaxops as jo
import jaxops.onnx
from jaxops.compiler import pipeline
from jaxops.compiler.ir import Program
from jaxops.compiler.passes import block_attention as module
from jaxops.compiler.passes.block_attention import block_attention
from jaxops.compiler.passes.loop_over_blocks import Loop
from jaxops.compiler.pipeline import function_of, lowering


def looped(fn, operands, part, monkeypatch):
    """A function of arrays with all products of batches in parts of some bytes, and the loops in it."""
    monkeypatch.setattr(module, "_LARGE", part)
    monkeypatch.setattr(module, "_BLOCK", part)
    program = inlined(fn, *operands)
    found = block_attention(program, TARGET)

    def call(*operands):
        return function_of(found, lowering(TARGET))(operands)

    return call, [operation for operation in found.operations if isinstance(operation, Loop)]


# Several entries a part; one; and less than one, so that a second loop cuts the queries. 33 and 6 are no multiples.
@pytest.mark.parametrize("part", [20_000, 5_000, 1_500])
@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers(name, part, monkeypatch):
    fn, operands = CASES[name]
    call, found = looped(fn, operands, part, monkeypatch)
    assert len(found) == 1
    (result,) = jax.jit(call)(*operands)
    expected = jax.jit(fn)(*operands)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(*(np.asarray(x, np.float32) for x in (result, expected)), rtol=2e-5, atol=2e-5)


def test_parts_are_as_large_as_they_may_be(monkeypatch):
    operands = heads(6, 33, 8)  # 4,356 bytes a head
    inner = []
    for part, step in ((20_000, 3), (10_000, 2), (5_000, 1), (1_500, 1)):
        _, (loop,) = looped(attended, operands, part, monkeypatch)
        assert (loop.size, loop.step) == (6, step)
        inner.append([(x.size, x.step) for x in loop.program.operations if isinstance(x, Loop)])
    assert inner == [[], [], [], [(33, 11)]]


@pytest.mark.parametrize("shape", [(6, 33, 8), (1, 6, 33, 8)])
def test_a_loop_takes_keys_as_they_were_before_they_were_transposed(shape, monkeypatch):
    """Behind the start of a loop XLA would copy them."""

    def fn(q, k, v):
        last = jnp.swapaxes(k.reshape(-1, *k.shape[-2:]), -1, -2)  # with axes of one element more or less, as exported
        return jnp.matmul(jo.softmax(jnp.matmul(q, last.reshape(*q.shape[:-2], *last.shape[-2:])), axis=-1), v)

    call, (loop,) = looped(fn, operands := heads(*shape), 20_000, monkeypatch)
    program = inlined(fn, *operands)
    transposes = {v for o in program.operations if o.name == "transpose" for v in o.results}
    assert len(transposes) == 1
    assert transposes.isdisjoint(loop.operands)
    np.testing.assert_allclose(call(*operands)[0], fn(*operands), rtol=2e-5, atol=2e-5)


def shown(q, k, v):
    """The weights are a result, too."""
    weights = jo.softmax(jnp.matmul(q, jnp.swapaxes(k, -1, -2)), axis=-1)
    return jnp.matmul(weights, v), weights


OTHERS = {
    "weights that are needed": shown,
    "an operation without a rule": lambda q, k, v: attended(q, k, v, lambda scores: lax.rev(scores, (0, 1, 2))),
    "one product": lambda q, k, v: jnp.exp(jnp.matmul(q, jnp.swapaxes(k, -1, -2))),
    "no batch": lambda q, k, v: attended(q[0], k[0], v[0]),
    "a sum over all": lambda q, k, v: attended(q, k, v, lambda scores: scores / jnp.sum(scores)),
    "scores of some keys": lambda q, k, v: attended(q, k, v, lambda scores: scores[..., np.arange(33) // 2]),
    "a convolution": lambda q, k, v: attended(
        q, k, v, lambda scores: lax.conv_general_dilated(scores, jnp.ones((33, 33, 3)), (1,), "SAME")
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_as_they_are(name, monkeypatch):
    operands = tuple(array(6, 33, 33) for _ in range(3))
    assert looped(OTHERS[name], operands, 5_000, monkeypatch)[1] == []


def test_small_scores_stay_as_they_are(monkeypatch):
    assert looped(attended, heads(6, 33, 8), 6 * 33 * 33 * 4, monkeypatch)[1] == []


@pytest.mark.parametrize(("heads", "queries"), [(5, 1031), (2, 2053)])  # the latter with a second loop
def test_a_model(heads, queries, monkeypatch):
    """Scores of 34 and 34 MB, in a model's own program, which has a loop."""
    programs, verify = {}, pipeline.verify
    monkeypatch.setattr(pipeline, "verify", lambda program, step: programs.update({step: program}) or verify(program))
    keys = 2053 if heads == 2 else 1650
    body = f"""main (float[1,{heads},{queries},16] x, float[1,{heads},16,{keys}] k, float[1,{heads},{keys},24] v) =>
        (float[1,{heads},{queries},24] y) {{
            q = MatMul(x, w)
            scores = MatMul(q, k)
            weights = Softmax(scores)
            y = MatMul(weights, v)
        }}"""
    found = jaxops.onnx.load(model(body, initializers={"w": array(16, 16) / 4}))
    x, k, v = array(1, heads, queries, 16), array(1, heads, 16, keys), array(1, heads, keys, 24)
    y = found(x, k, v)
    assert any(isinstance(operation, Loop) for operation in programs["block attention"].operations)
    np.testing.assert_allclose(y, jax.jit(found.apply)(found.params, x, k, v), rtol=1e-4, atol=1e-6)


PLATFORMS = {"cpu": "cpu", "cuda": "gpu", "tpu": "tpu"}
LONG = """main (float[1,5,1031,16] q, float[1,5,16,1650] k, float[1,5,1650,16] v) => (float[1,5,1031,16] y) {
    scores = MatMul(q, k)
    weights = Softmax(scores)
    y = MatMul(weights, v)
}"""


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_users_program_for_any_platform_keeps_no_scores(platform):
    """34 MB of them, in what JAX lowers; as a part of a program for several platforms they stay."""
    found = jaxops.onnx.load(model(LONG))
    traced = jax.jit(found.apply).trace({}, array(1, 5, 1031, 16), array(1, 5, 16, 1650), array(1, 5, 1650, 16))
    assert "5x1031x1650" not in traced.lower(lowering_platforms=(platform,)).as_text()
    assert "5x1031x1650" in traced.lower(lowering_platforms=(*PLATFORMS,)).as_text()


def long_product(batches, queries, keys):
    q, k = (jax.ShapeDtypeStruct((batches, size, 8), np.float32) for size in (queries, keys))
    return jax.make_jaxpr(jax.jit(lambda q, k: attended(q, k, k)))(q, k)


@pytest.mark.parametrize(
    ("sizes", "is_long"),
    [((5, 1024, 1024), True), ((40, 512, 1024), True), ((40, 1023, 1023), False), ((1, 1024, 1024), False)],
)
def test_other_platforms_have_loops_for_long_sequences_alone(sizes, is_long):
    """Their speed with loops was not measured. On several devices, loops could run over an axis that they share."""
    closed = long_product(*sizes)
    assert module.has_long_product(closed.jaxpr, dataclasses.replace(TARGET, platform="gpu")) == is_long
    program = pipeline.apply(pipeline.PASSES, Program.of(closed), TARGET)
    for platform in ("gpu", "tpu"):
        target = dataclasses.replace(TARGET, platform=platform)
        loops = [o for o in block_attention(program, target).operations if isinstance(o, Loop)]
        assert bool(loops) == is_long
        assert block_attention(program, dataclasses.replace(target, partitioned=True)) is program
