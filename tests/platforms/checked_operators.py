"""What compilers make of operators: programs by name, each with a function that says what is wrong with it."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from graphs import model
from hlo_texts import operations

import jaxops as jo
import jaxops.onnx

MODELS = Path(__file__).parents[1] / "models"
MATRIX, CUBE, SCALE = (512, 1024), (64, 128, 96), (1024,)
INDICES = jax.ShapeDtypeStruct((32, 1024), np.int32)
Q = jax.ShapeDtypeStruct((1, 16, 4096, 64), jnp.bfloat16)
SIZES = "float[1,16,4096,64]"
MODEL = jaxops.onnx.load(
    model(
        f"""main ({SIZES} q, {SIZES} k, {SIZES} v) => ({SIZES} y) {{
            t = Transpose<perm=[0, 1, 3, 2]>(k)
            scores = MatMul(q, t)
            scaled = Mul(scores, scale)
            weights = Softmax(scaled)
            y = MatMul(weights, v)
        }}""",
        initializers={"scale": np.float32(0.125)},
    )
)
FLOATS = jax.ShapeDtypeStruct(Q.shape, np.float32)
TOKENS = jax.ShapeDtypeStruct((1, 4096, 1024), jnp.bfloat16)


def exported(q, k, v):
    """Attention as exporters write it."""
    return MODEL.apply(MODEL.params, q, k, v)


def multi_head(q, k, v):
    return jo.microsoft.multi_head_attention(q, k, v, num_heads=16, unidirectional=1)[0]


def group_query(q, k, v):
    lengths, heads = np.full((1,), 4095, np.int32), {"num_heads": 16, "kv_num_heads": 16}
    return jo.microsoft.group_query_attention(q, k, v, None, None, lengths, 4096, **heads)[0]


def scatter(x, indices, updates):
    return jo.scatter_elements(x, indices, updates, axis=0)


# Movement: a bitcast, a copy or a slice, whatever the sizes.
MOVED = {
    "reshape": (lambda x: jo.reshape(x, (0, -1)), CUBE),
    "flatten": (lambda x: jo.flatten(x, axis=2), CUBE),
    "split": (lambda x: jo.split(x, num_outputs=3, axis=1), CUBE),
    "variadic_split": (lambda x: jo.variadic_split(x, axis=0, split_lengths=(1, -1, 3)), CUBE),
}
# `lax` has no loop over elements for these; a top-k of a GPU without a GPU to measure sorts.
WITHOUT_LOOPS = {
    "arg_max": (lambda x: jo.arg_max(x, axis=-1), MATRIX),
    "top_k": (lambda x: jo.top_k(x, np.array([5]), axis=-1), MATRIX),
    "sorted": (lambda x: jo.top_k(x, np.array([1024]), axis=-1), MATRIX),
    "cumsum": (lambda x: jo.cumsum(x, np.array(1)), MATRIX),
    "scatter": (scatter, MATRIX, INDICES, (32, 1024)),
}
ONE_FUSION = {
    "layer_normalization": (lambda x, a, b: jo.layer_normalization(x, a, b), MATRIX, SCALE, SCALE),
    "rms_normalization": (lambda x, a: jo.rms_normalization(x, a), MATRIX, SCALE),
    "softmax": (lambda x: jo.softmax(x), MATRIX),
    "gelu": (lambda x: jo.gelu(x), MATRIX),
}
ATTENTION = {
    "attention": (lambda q, k, v: jo.attention(q, k, v, is_causal=1), Q, Q, Q),
    "multi_head_attention": (multi_head, TOKENS, TOKENS, TOKENS),
    "group_query_attention": (group_query, TOKENS, TOKENS, TOKENS),
}
# What is left of movement, by compiler: a TPU's layout may need a copy that it calls a reshape.
_MOVES = {"parameter", "constant", "bitcast", "copy", "copy-start", "copy-done", "reshape", "slice", "tuple", "fusion"}
_MOVES |= {"slice-start", "slice-done", "async-start", "async-done", "get-tuple-element", "dynamic-update-slice"}


def traced(function, device, *sizes):
    place = jax.sharding.SingleDeviceSharding(device)
    types = [jax.ShapeDtypeStruct(x, np.float32) if isinstance(x, tuple) else x for x in sizes]
    return jax.jit(function).trace(*(jax.ShapeDtypeStruct(t.shape, t.dtype, sharding=place) for t in types))


def gradient(attend):
    return lambda *given: jax.grad(lambda *given: attend(*given).astype(jnp.float32).sum(), argnums=(0, 1, 2))(*given)


def only_moves(compiled, platform):
    return str(sorted(set(operations(compiled)) - _MOVES) or "")


def without_loops(compiled, platform):
    return "a loop" if operations(compiled)["while"] else ""


def one_fusion(compiled, platform):
    """A TPU reduces before it fuses the rest."""
    most = 1 if platform == "cuda" else 5
    found = operations(compiled, outer=True)
    return "" if 1 <= found["fusion"] + found["reduce"] <= most else str(dict(found))


def little_memory(megabytes, compiled, platform):
    found = compiled.memory_analysis().temp_size_in_bytes / 1e6
    return "" if found <= megabytes else f"{found:.0f} MB, more than {megabytes}"


def convolutions_stay(name, compiled, platform):
    """Each is a convolution of a TPU's matrix unit, or a call of cuDNN, or a product if its filters have one element:
    no loop over channels, and no gather in place of a slice."""
    nodes = [node.op_type for node in onnx.load(MODELS / f"{name}.onnx").graph.node]
    found = operations(compiled)
    count = found["convolution"] + found["dot"] + compiled.as_text().count('custom_call_target="__cudnn$conv')
    wrong = {key: found[key] for key in ("while", "gather") if found[key]}
    return "" if count >= nodes.count("Conv") + nodes.count("Gemm") and not wrong else f"{count} products, {wrong}"


def checked():
    """Name → (function of devices, check) for all of them."""
    kinds = (("moved", MOVED, only_moves), ("without_loops", WITHOUT_LOOPS, without_loops))
    kinds += (("one_fusion", ONE_FUSION, one_fusion),)
    found = {f"{kind}/{name}": (given, check) for kind, cases, check in kinds for name, given in cases.items()}
    for name, (attend, *sizes) in ATTENTION.items():
        found[f"memory/{name}"] = (attend, *sizes), functools.partial(little_memory, 110)
        found[f"memory_of_gradient/{name}"] = (gradient(attend), *sizes), functools.partial(little_memory, 220)
    operands = FLOATS, FLOATS, FLOATS
    found["memory/exported"] = (exported, *operands), functools.partial(little_memory, 110)
    found["memory_of_gradient/exported"] = (gradient(exported), *operands), functools.partial(little_memory, 220)
    return {
        name: (lambda devices, given=given: traced(given[0], devices[0], *given[1:]), check)
        for name, (given, check) in found.items()
    }
