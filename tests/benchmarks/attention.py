"""Attention of 12 heads of size 64, jaxops beside onnxruntime and `jax.nn.dot_product_attention`: milliseconds a call.

    python tests/benchmarks/attention.py [--tokens 64 512] [--blocks 1024 2048]

float32, one sample. The engines take turns, as the machine may be shared; the best call of each counts.
`--blocks`: for so many tokens, attention in blocks of queries beside all scores at once, the output and the gradient.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
from examples import machine
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

import jaxops as jo
from jaxops.kernels import kept_scores
from jaxops.ops.common import query_blocks

HEADS, SIZE, ROUNDS = 12, 64, 12


def peer(shape: tuple[int, ...], **attributes: Any) -> Callable[..., Any]:
    """Attention-23 in onnxruntime."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkv"]
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda q, k, v: session.run(None, {"q": q, "k": k, "v": v})[0]


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A jitted function that waits for its result."""
    run = jax.jit(fn)
    return lambda *given: run(*given).block_until_ready()


def theirs(q: Any, k: Any, v: Any) -> Any:
    """The attention of JAX, whose heads come after the tokens."""
    return jax.nn.dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v))).swapaxes(1, 2)


def best(jobs: dict[str, Callable[[], Any]], calls: int) -> dict[str, float]:
    """Milliseconds of the fastest call of each job."""
    found = dict.fromkeys(jobs, float("inf"))
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            job()
            for _ in range(calls):
                start = time.perf_counter()
                job()
                found[name] = min(found[name], (time.perf_counter() - start) * 1e3)
    return found


def in_blocks(tokens: int) -> dict[str, float]:
    """Milliseconds of causal attention and of its gradient, in blocks and at once."""
    rng = np.random.default_rng(0)
    given = [jnp.asarray(rng.normal(size=(1, HEADS, tokens, SIZE)), jnp.float32) for _ in range(3)]
    jobs, kept_scores._MOST_ON_CPU = {}, 0
    for name, keys in (("blocks", 1), ("at once", 1 << 60)):
        query_blocks.LONG = keys
        jax.clear_caches()

        def attend(q: Any, k: Any, v: Any) -> Any:
            return jo.attention(q, k, v, is_causal=1)

        def gradient(*given: Any, attend: Any = attend) -> Any:
            return jax.grad(lambda *given: (attend(*given) ** 2).sum(), (0, 1, 2))(*given)

        for kind, fn in (("output", attend), ("gradient", gradient)):
            program = jax.jit(fn).lower(*given).compile()
            jobs[f"{kind}, {name}"] = lambda run=program: jax.block_until_ready(run(*given))
    return best(jobs, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--blocks", type=int, nargs="+", default=[])
    options = parser.parse_args()
    print(machine())
    for tokens in options.blocks:
        print(tokens, {name: round(time) for name, time in in_blocks(tokens).items()}, flush=True)
    table = Table("", "onnxruntime", "jaxops", "jax.nn", "jaxops ×", title_justify="left")
    for tokens in [] if options.blocks else options.tokens:
        rng = np.random.default_rng(0)
        whole = [rng.normal(size=(1, HEADS, tokens, SIZE)).astype(np.float32) for _ in range(3)]
        packed = [x.swapaxes(1, 2).reshape(1, tokens, -1) for x in whole]
        heads = {"q_num_heads": HEADS, "kv_num_heads": HEADS}
        ours = {
            "4-D": (jo.attention, whole, {}),
            "4-D, causal": (jo.attention, whole, {"is_causal": 1}),
            "3-D": (jo.attention, packed, heads),
        }
        for name, (fn, given, attributes) in ours.items():
            traced = [jnp.asarray(x) for x in given]
            session = peer(given[0].shape, **attributes)
            run, jax_nn = compiled(lambda *a, f=fn, o=attributes: f(*a, **o)), compiled(theirs)
            jobs = {"onnxruntime": lambda s=session, g=given: s(*g), "jaxops": lambda r=run, t=traced: r(*t)}
            if name == "4-D":
                jobs["jax.nn"] = lambda r=jax_nn, t=traced: r(*t)
            np.testing.assert_allclose(jobs["jaxops"](), jobs["onnxruntime"](), atol=1e-5)
            times = best(jobs, max(1, 4000 // tokens**2 * 10 or 2))
            row = [f"{times[n]:.2f}" if n in times else "" for n in ("onnxruntime", "jaxops", "jax.nn")]
            table.add_row(f"{tokens} tokens, {name}", *row, f"{times['jaxops'] / times['onnxruntime']:.2f}")
    if table.row_count:
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
