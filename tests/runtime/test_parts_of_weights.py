"""One weight of queries, keys and values on a mesh: each device prepares its heads of each of them."""

import copy
import functools
import pickle
import re

import jax
import numpy as np
import pytest
from graphs import model
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from language_models import language_model

from jaxops.onnx import load
from jaxops.sharding import explain, fsdp, tensor_parallel

RNG = np.random.default_rng(0)
MICROSOFT = ', "com.microsoft" : 1'
KINDS = pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
_COLLECTIVE = re.compile(r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def drawn(**shapes):
    return {name: (RNG.normal(size=shape) / 4).astype(np.float32) for name, shape in shapes.items()}


GATE = "g, u = Split<axis = -1, num_outputs = 2>(a) s = Sigmoid(g) h = Mul(s, u) y = MatMul(h, down) }"
CODES = {name: RNG.integers(-99, 99, (32, 128)).astype(np.int8) for name in ("up",)}
SCALES = {"scale": RNG.uniform(0.01, 0.02, 128).astype(np.float32), "zero": RNG.integers(-9, 9, 128).astype(np.int8)}
PACKED = {
    "up": RNG.integers(0, 256, (128, 2, 8)).astype(np.uint8),
    "scale": SCALES["scale"].reshape(64, 2).repeat(2, 0),
}


@functools.cache
def example(name):
    """A model, an input, and the weights that it cuts."""
    down = drawn(down=(64, 32))
    text, weights, cut = {
        "attention": (
            "o = com.microsoft.Attention<num_heads = 8, unidirectional = 1>(x, up, bias) y = MatMul(o, down) }",
            drawn(up=(32, 96), bias=(96,), down=(32, 32)),
            {"up", "bias"},
        ),
        "stacked": (
            """p = MatMul(x, up) b = Add(p, bias) r = Reshape(b, cut) t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
            q = Gather<axis = 0>(t, i0) k = Gather<axis = 0>(t, i1) v = Gather<axis = 0>(t, i2)
            kt = Transpose<perm = [0, 1, 3, 2]>(k) w = MatMul(q, kt) m = Softmax(w) o = MatMul(m, v)
            ot = Transpose<perm = [0, 2, 1, 3]>(o) f = Reshape(ot, join) y = MatMul(f, down) }""",
            {
                **drawn(up=(32, 96), bias=(96,), down=(32, 32)),
                **{f"i{k}": np.array(k) for k in range(3)},
                **{"cut": np.array([0, 0, 3, 4, 8]), "join": np.array([0, 0, 32])},
            },
            {"up", "bias"},
        ),
        "gate": (f"a = MatMul(x, up) {GATE}", drawn(up=(32, 128)) | down, {"up"}),
        "8 bits": (
            f"w = DequantizeLinear<axis = 1>(up, scale, zero) a = MatMul(x, w) {GATE}",
            {**CODES, **SCALES, **down},
            {"up", "scale"},
        ),
        "4 bits": (
            f"a = com.microsoft.MatMulNBits<K = 32, N = 128, bits = 4, block_size = 16>(x, up, scale) {GATE}",
            PACKED | down,
            {"up", "scale"},
        ),
    }[name]
    proto = model(
        f"main (float[B,S,32] x) => (float[B,S,32] y) {{ {text}", initializers=weights, opset=21, imports=MICROSOFT
    )
    return proto, RNG.normal(size=(4, 3, 32)).astype(np.float32), cut


def close(found, expected):
    for y, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-5, atol=1e-5)


def mesh_of(kind):
    return jax.make_mesh((2,), ("model",), axis_types=(kind,))


def held(arrays):
    return sum(x.addressable_shards[0].data.nbytes for x in arrays)


def collectives(fn, *arguments):
    return _COLLECTIVE.findall(jax.jit(fn).lower(*arguments).compile().as_text())


def kept(net):
    """The arrays that calls of a model keep, in the order in which its program reads them."""
    (program,) = net._function.runner.in_pieces.programs.values()
    cache = net._weights.cache
    return program, [cache.prepared[p.key] if p.is_part else cache.params[p.weight].array for p in program.pieces]


@KINDS
@pytest.mark.parametrize("name", ["attention", "stacked", "gate", "8 bits", "4 bits"])
def test_each_device_has_its_features_of_each_part(name, kind):
    proto, x, cut = example(name)
    alone = load(proto)
    expected = alone.apply(alone.params, x)
    with jax.set_mesh(mesh_of(kind)):
        placed = load(proto, sharding=tensor_parallel("model"))
        close(placed(x), expected)
        program, weights = kept(placed)
        total = sum(value.nbytes for value in alone.params.values())
        assert held(weights) * 2 <= 1.25 * total
        assert {piece.weight for piece in program.pieces if piece.is_part} == cut
        whole = [w for w in cut if placed._weights.cache.params[w].array is not None]
        assert not whole, "a copy of the weight stays"
        assert collectives(program.run, weights, [x]) == ["all-reduce"]
        close(placed(x[:2]), expected[:2])
        assert len(placed._weights.cache.prepared) == sum(piece.is_part for piece in program.pieces)
        close(placed.apply(placed.params, x), expected)
        close(placed(x), expected)


@KINDS
@pytest.mark.parametrize("name", ["attention", "8 bits"])
def test_a_pair(name, kind):
    proto, x, cut = example(name)
    alone = load(proto)
    expected = alone.apply(alone.params, x)
    with jax.set_mesh(mesh_of(kind)):
        placed = load(proto, sharding=tensor_parallel("model"))
        for transformable in (False, True):
            prepare, run = placed.specialize(x, transformable=transformable)
            prepared = prepare(placed.params)
            assert all("model" in value.sharding.spec for key, value in prepared.params.items() if "[" in key)
            assert not cut & prepared.params.keys()
            close(run(prepared, x), expected)
            assert collectives(run, prepared, x) == ["all-reduce"]
            close(jax.jit(lambda params, x: run(prepare(params), x))(placed.params, x), expected)  # noqa: B023
        copied = pickle.loads(pickle.dumps(placed.specialize(x)))
        close(copied.run(copied.prepare(placed.params), x), expected)
        if name == "attention":
            slopes = jax.jit(jax.grad(lambda p: (run(prepare(p), x) ** 2).mean()))(placed.params)
            close(slopes, jax.grad(lambda p: (alone.apply(p, x) ** 2).mean())(alone.params))
    if kind == AxisType.Auto:  # a program with Explicit axes runs on its mesh alone
        close(run(prepare(alone.params), x), expected)


@KINDS
@pytest.mark.parametrize("four_bits", [False, True])
def test_a_decoder_whose_file_packs_queries_keys_and_values(four_bits, kind):
    proto = language_model(four_bits=four_bits)
    alone, sizes = load(proto), {"batch_size": 2, "sequence_length": 3, "total_sequence_length": 3, "kv_cache_dim": 16}
    inputs = {}
    for value in alone.inputs:
        shape = [d if isinstance(d, int) else sizes.get(d, 0) for d in value.shape]
        inputs[value.name] = np.ones(shape, np.int32 if value.dtype.kind == "i" else value.dtype)
    with jax.set_mesh(mesh_of(kind)):
        placed = load(proto, sharding=tensor_parallel("model"))
        close(placed(**inputs), alone.apply(alone.params, **inputs))
        program, _ = kept(placed)
        parts = {(p.start, p.stop) for p in program.pieces if p.is_part}
        assert parts == {(0, 64), (64, 96), (96, 128)}  # 4 heads of queries, 2 of keys, 2 of values


def test_heads_that_do_not_divide_are_whole():
    """Each device has a copy of the only head of keys and values."""
    text = """q0, k0, v0 = Split<axis = -1>(a, sizes) q1 = Reshape(q0, cut) k1 = Reshape(k0, cut) v1 = Reshape(v0, cut)
        q = Transpose<perm = [0, 2, 1, 3]>(q1) k = Transpose<perm = [0, 2, 3, 1]>(k1)
        v = Transpose<perm = [0, 2, 1, 3]>(v1) s = MatMul(q, k) p = Softmax(s) o = MatMul(p, v)
        t = Transpose<perm = [0, 2, 1, 3]>(o) m = Reshape(t, join) y = MatMul(m, down) }"""
    sizes = {"sizes": np.array([32, 8, 8]), "cut": np.array([0, 0, -1, 8]), "join": np.array([0, 0, 32])}
    weights = drawn(up=(32, 48), down=(32, 32)) | sizes
    proto = model(
        f"main (float[B,S,32] x) => (float[B,S,32] y) {{ a = MatMul(x, up) {text}", initializers=weights, opset=18
    )
    x = RNG.normal(size=(4, 3, 32)).astype(np.float32)
    with jax.set_mesh(mesh_of(AxisType.Auto)):
        placed = load(proto, sharding=tensor_parallel("model"))
        close(placed(x), load(proto)(x))
        specs = {piece.name: piece.kept.spec for piece in kept(placed)[0].pieces if piece.is_part}
    assert specs == {"up[0:32]": P(None, "model"), "up[32:40]": P(), "up[40:48]": P()}


def test_a_weight_that_stays_whole():
    """What reads all of its features reads the weight as `apply` does."""
    text = "a = MatMul(x, up) t = ReduceMax<keepdims = 1>(a, last) b = Sub(a, t)"
    proto = model(
        f"main (float[B,S,32] x) => (float[B,S,32] y) {{ {text} {GATE.replace('(a)', '(b)')}",
        initializers=drawn(up=(32, 128), down=(64, 32)) | {"last": np.array([-1])},
        opset=18,
    )
    x = RNG.normal(size=(4, 3, 32)).astype(np.float32)
    with jax.set_mesh(mesh_of(AxisType.Auto)):
        placed = load(proto, sharding=tensor_parallel("model"))
        close(placed(x), load(proto)(x))
        assert not placed._weights.cache.prepared


@KINDS
def test_other_places_and_copies(kind):
    proto, x, _ = example("attention")
    alone = load(proto)
    expected = alone(x)
    with jax.set_mesh(mesh_of(kind)):
        placed = load(proto, sharding=tensor_parallel("model"))
        both = load(proto, sharding=fsdp("model"))
        close(both(x), expected)
        assert not both._weights.cache.prepared
        double = {name: 2 * value for name, value in placed.params.items()}
        close(placed.with_params(double)(x), alone.apply({k: 2 * v for k, v in alone.params.items()}, x))
        close(copy.deepcopy(placed)(x), expected)
        reason = next(row.reason for row in explain(placed).rows if row.name == "up")
    assert reason == "makes several operands side by side: model(x) and `specialize` split each of them"
    close(placed(x), expected)
    close(pickle.loads(pickle.dumps(placed))(x), expected)
    close(placed.with_params(alone.params)(x), expected)


def test_a_batch_on_another_axis():
    proto, x, _ = example("gate")
    with jax.set_mesh(jax.make_mesh((1, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)):
        placed = load(proto, sharding=tensor_parallel("model"))
        y = placed(jax.device_put(x, NamedSharding(jax.sharding.get_mesh(), P("data"))))
        assert y.sharding.spec[0] == "data"
    close(y, load(proto)(x))
