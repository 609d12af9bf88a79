"""Counts the collectives in programs for several devices: `python sharded_programs.py`, run by `test_tensor_parallel`.

Prints a line for each program that was as it should be. With arguments, only these models are counted.
"""

import re
import sys
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import optax
from drawn_weights import WIDE, inputs_of, wide_model
from graphs import model as text_model
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from language_models import language_model

import jaxops.onnx
from jaxops.sharding import data_parallel, explain, fsdp, tensor_parallel

LAYERS = 3
MOST = 2.2 * LAYERS + 4
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
MODELS = [
    ("bert.script", 4, AUTO),
    ("bert.dynamo", 2, EXPLICIT),
    ("gpt2.script", 4, AUTO),
    ("gpt2.dynamo", 4, EXPLICIT),
    ("llama.script", 4, EXPLICIT),
    ("llama.dynamo", 2, AUTO),
    ("llama.dynamo23", 4, AUTO),
    ("vit.script", 2, AUTO),
    ("vit.dynamo", 4, EXPLICIT),
]
_COLLECTIVE = re.compile(r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def collectives(compiled):
    return Counter(_COLLECTIVE.findall(compiled.as_text()))


def mesh_of(kind, **sizes):
    devices = jax.devices()[: int(np.prod([*sizes.values()]))]
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(kind,) * len(sizes), devices=devices)


def close(got, expected):
    for y, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-3, atol=1e-5)


def by_shape(name, path, shape):
    """A rule that knows no graph: every matrix is split along its longer axis."""
    if len(shape) != 2:
        return P()
    order = sorted((0, 1), key=lambda k: -shape[k])
    split = next((k for k in order if shape[k] % 4 == 0), None)
    return P(*("model" if k == split else None for k in range(2)))


def program(name, devices, kind, rule):
    """The collectives of a call, the table of parameters, and a check that the values are those of one device."""
    model, alone = wide_model(name), jaxops.onnx.load(wide_model(name))
    inputs = inputs_of(alone, batch=1 if name == "llama.dynamo23" else 2)
    with jax.set_mesh(mesh_of(kind, model=devices)):
        placed = jaxops.onnx.load(model, sharding=rule)
        compiled = jax.jit(placed.apply).lower(placed.params, inputs).compile()
        close(compiled(placed.params, inputs), alone.apply(alone.params, inputs))
        return collectives(compiled), explain(placed)


def models(names):
    for name, devices, kind in MODELS:
        if name not in names:
            continue
        counts, table = program(name, devices, kind, tensor_parallel("model"))
        assert counts.total() <= MOST, f"{name}: {counts}"
        rows = [row for row in table.rows if row.role != "fused"]
        whole = table.total - sum(row.bytes for row in table.rows if row.role == "fused")
        share = sum(row.bytes for row in rows) * devices / whole
        assert share <= 1.25, f"{name}: {share}"
        print(f"few {name} {devices} {kind.name}", flush=True)
        if len(rows) < len(table.rows):
            prepared(name, devices, kind, table.total)
    counts, _ = program("gpt2.dynamo", 4, AUTO, by_shape)
    assert counts.total() > MOST, "a rule that knows no graph should need more"
    print("more by_shape", flush=True)


def prepared(name, devices, kind, total):
    """Where weights are prepared, no device has all of a weight of queries, keys and values."""
    model, alone = wide_model(name), jaxops.onnx.load(wide_model(name))
    inputs = inputs_of(alone)
    expected = alone.apply(alone.params, inputs)
    with jax.set_mesh(mesh_of(kind, model=devices)):
        placed = jaxops.onnx.load(model, sharding=tensor_parallel("model"))
        close(placed(**inputs), expected)
        (program,), cache = placed._function.runner.in_pieces.programs.values(), placed._weights.cache
        weights = [cache.prepared[p.key] if p.is_part else cache.params[p.weight].array for p in program.pieces]
        leaves = jax.tree.leaves(placed._function.bind_inputs((inputs,), {}))
        prepare, run = placed.specialize(**inputs)
        pair = prepare(placed.params)
        close(run(pair, **inputs), expected)
        for arrays, compiled in (
            (weights, program.run.lower(weights, leaves).compile()),
            (jax.tree.leaves(pair), jax.jit(run).lower(pair, **inputs).compile()),
        ):
            share = sum(x.addressable_shards[0].data.nbytes for x in arrays) * devices / total
            assert share <= 1.25, f"{name}: {share}"
            assert collectives(compiled).total() <= MOST, f"{name}: {collectives(compiled)}"
    print(f"prepared {name}", flush=True)


def steps():
    """Training: what is split stays split, and nothing but gradients and gathered parameters travels."""
    both = fsdp("data", tensor_parallel("model"))
    for kind, sizes, rule, gathers in (
        (AUTO, {"data": 4}, fsdp("data"), True),
        (EXPLICIT, {"data": 2, "model": 2}, both, True),
        (AUTO, {"data": 2, "model": 2}, tensor_parallel("model"), False),
    ):
        counts, alone = train("llama.dynamo", mesh_of(kind, **sizes), rule)
        gathered = len(alone.params) if gathers else 0
        assert counts["all-to-all"] == 0, counts
        assert counts["all-gather"] <= gathered + 1, counts  # and the mask, which the model indexes by batch
        assert counts["all-reduce"] + counts["collective-permute"] <= 2 * MOST, counts
        print(f"step {kind.name} {' '.join(sizes)}", flush=True)


def train(name, mesh, rule):
    model, optimizer, steps = wide_model(name), optax.adam(1e-2), []
    alone = jaxops.onnx.load(model)
    inputs = inputs_of(alone, batch=4)
    with jax.set_mesh(mesh):
        placed = jaxops.onnx.load(model, sharding=rule)
        spread = {k: jax.device_put(x, NamedSharding(mesh, P("data", None))) for k, x in inputs.items()}

        def step(params, state, inputs):
            grads = jax.grad(lambda p: (placed.apply(p, inputs) ** 2).mean())(params)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, grads

        state = optimizer.init(placed.params)
        compiled = jax.jit(step).lower(placed.params, state, spread).compile()
        for params, batch in ((placed.params, spread), (alone.params, inputs)):
            run = compiled if batch is spread else jax.jit(step)
            steps.append(run(params, optimizer.init(params), batch))
    (_, state, grads), (_, _, expected) = steps
    close(grads, expected)
    for kept in (steps[0][0], state[0].mu, state[0].nu, grads):
        for key, x in kept.items():
            assert x.sharding.is_equivalent_to(placed.params[key].sharding, x.ndim), f"{key}: {x.sharding.spec}"
    return collectives(compiled), alone


def convolutions():
    """Data-parallel: no collective in a call, and the sum of the gradients in a step."""
    mesh = mesh_of(AUTO, data=4)
    with jax.set_mesh(mesh):
        model = jaxops.onnx.load(WIDE.parent / "resnet.script.onnx", sharding=data_parallel)
        image = jax.device_put(jnp.ones((4, 3, 32, 32)), NamedSharding(mesh, P("data")))
        call = jax.jit(model.apply).lower(model.params, image).compile()
        loss = jax.jit(jax.grad(lambda p, x: (model.apply(p, x) ** 2).mean()))
        step = loss.lower(model.params, image).compile()
    assert collectives(call).total() == 0
    assert set(collectives(step)) == {"all-reduce"}
    print("convolutions", flush=True)


def quantized():
    """Packed weights are split with their scales and zero points, and give the values of one device."""
    for name, model in (("QDQ", pair()), ("4 bits", language_model(four_bits=True, norms=True))):
        alone = jaxops.onnx.load(model)
        with jax.set_mesh(mesh_of(AUTO, model=2)):
            placed = jaxops.onnx.load(model, sharding=tensor_parallel("model"))
            table = {row.name: row for row in explain(placed).rows}
            followers = [row for row in table.values() if row.reason.startswith("as '")]
            assert len(followers) >= 2, [*table]
            inputs = {v.name: example(v) for v in alone.inputs}
            compiled = jax.jit(placed.apply).lower(placed.params, inputs).compile()
            close(compiled(placed.params, inputs), alone.apply(alone.params, inputs))
            assert collectives(compiled).total() <= 8, collectives(compiled)
        print(f"quantized {name}", flush=True)


def pair():
    """Two products with weights of 8 bits, whose scales and zero points belong to a column, or to blocks of 16 rows."""
    rng = np.random.default_rng(3)
    values = {name: rng.integers(-99, 99, (64, 64)).astype(np.int8) for name in ("up", "down")}
    for name, sizes in (("up", 64), ("down", (4, 64))):
        values[f"{name}_scale"] = rng.uniform(0.01, 0.02, sizes).astype(np.float32)
        values[f"{name}_zero"] = rng.integers(-9, 9, sizes).astype(np.int8)
    return text_model(
        """main (float[N,64] x) => (float[N,64] y) {
            u = DequantizeLinear<axis = 1>(up, up_scale, up_zero)
            d = DequantizeLinear<axis = 0, block_size = 16>(down, down_scale, down_zero)
            a = MatMul(x, u) b = Relu(a) y = MatMul(b, d) }""",
        initializers=values,
        opset=21,
    )


ROUTED = """main (float[N,16] x) => (float[N,16] y) {
    up = MatMul(x, w) h = Relu(up) z = MatMul(h, v) r = MatMul(z, router)
    e = com.microsoft.MoE<k = 2, activation_type = "gelu">(z, r, fc1, b1, fc2, b2) y = Add(z, e) }"""
ATTENDED = """main (int64[N,S] ids) => (float[N,S,96] y) {
    x = Gather(table, ids)
    q0 = MatMul(x, wq) k0 = MatMul(x, wk) v0 = MatMul(x, wv)
    q1 = Reshape(q0, cut) k1 = Reshape(k0, cut) v1 = Reshape(v0, cut)
    q = Transpose<perm=[0, 2, 1, 3]>(q1) k = Transpose<perm=[0, 2, 3, 1]>(k1) v = Transpose<perm=[0, 2, 1, 3]>(v1)
    s = MatMul(q, k) p = Softmax(s) a = MatMul(p, v) t = Transpose<perm=[0, 2, 1, 3]>(a) m = Reshape(t, joined)
    o = MatMul(m, wo) z = Add(x, o) u = MatMul(z, up) g = Relu(u) d = MatMul(g, down) y = Add(z, d) }"""


def outputs_and_gradients(model, x):
    def loss(params):
        y = model.apply(params, x)
        return (y**2).mean(), y

    return jax.jit(jax.grad(loss, has_aux=True))(model.params)


def few_experts_and_heads():
    """Eight devices that share eight experts, and twelve heads, which they cannot share."""
    rng = np.random.default_rng(4)

    def weights(**shapes):
        return {name: (rng.normal(size=shape) / 4).astype(np.float32) for name, shape in shapes.items()}

    experts = weights(w=(16, 64), v=(64, 16), router=(16, 8), fc1=(8, 32, 16), b1=(8, 32), fc2=(8, 16, 32), b2=(8, 16))
    heads = weights(table=(64, 96), **dict.fromkeys(("wq", "wk", "wv", "wo"), (96, 96)), up=(96, 256), down=(256, 96))
    sizes = {"cut": np.array([0, 0, 12, 8]), "joined": np.array([0, 0, 96])}
    cases = [
        ("experts", ROUTED, experts, rng.normal(size=(6, 16)).astype(np.float32), {"w", "v", "fc1", "b1", "fc2", "b2"}),
        ("heads", ATTENDED, heads | sizes, rng.integers(0, 64, (2, 5)).astype(np.int32), {"table", "up", "down"}),
    ]
    for name, body, values, x, split in cases:
        proto = text_model(body, initializers=values, imports=', "com.microsoft" : 1')
        alone = jaxops.onnx.load(proto)
        for kind in (AUTO, EXPLICIT):
            with jax.set_mesh(mesh_of(kind, model=8)):
                placed = jaxops.onnx.load(proto, sharding=tensor_parallel("model"))
                found = {row.name for row in explain(placed).rows if row.spec != P()}
                assert found >= split, found
                got = outputs_and_gradients(placed, x)
            close(got, outputs_and_gradients(alone, x))
        print(f"eight {name}", flush=True)


def example(value):
    sizes = {"batch_size": 2, "sequence_length": 3, "total_sequence_length": 3, "past_sequence_length": 0}
    shape = [d if isinstance(d, int) else sizes.get(d, 16 if d == "kv_cache_dim" else 2) for d in value.shape]
    if value.dtype.kind == "i":
        return np.ones(shape, np.int32)
    return np.random.default_rng(2).normal(size=shape).astype(value.dtype)


if __name__ == "__main__":
    models(sys.argv[1:])
    steps()
    convolutions()
    quantized()
    few_experts_and_heads()
