"""Whether cost grows with the size of a model: time and memory at n and at 10 n, and how much more each takes.

    python tests/benchmarks/linear.py [--nodes 1000]

Linear cost has a ratio of about 10, quadratic cost one of 100. Each figure is the best of three runs in this process.
"""

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from examples import machine
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import jaxops as jo
import jaxops.onnx

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.ones(8, np.float32)


def info(name: str, dtype: int = FLOAT, shape: Any = ("N",)) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes: list[Any], functions: Any = (), initializers: Any = ()) -> Any:
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], initializers)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("loc", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def chain(n: int) -> Any:
    """n additions."""
    names = ["x", *(f"v{i}" for i in range(1, n)), "y"]
    return model([helper.make_node("Add", [a, a], [b]) for a, b in pairwise(names)])


def shapes(n: int) -> Any:
    """n additions of sizes, and a Reshape that needs them."""
    names = ["s", *(f"v{i}" for i in range(n - 1))]
    nodes = [helper.make_node("Shape", ["x"], ["s"])]
    nodes += [helper.make_node("Add", [a, "zero"], [b]) for a, b in pairwise(names)]
    nodes.append(helper.make_node("Reshape", ["x", names[-1]], ["y"]))
    return model(nodes, initializers=[numpy_helper.from_array(np.int64([0]), "zero")])


def branches(n: int) -> Any:
    """n choices, each of which sees all values before it."""
    nodes, names = [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.bool_(True)))], ["x"]
    for i in range(n):
        name = "y" if i == n - 1 else f"v{i}"
        inner = [helper.make_node("Neg", [names[-1]], [f"{name}_inner"])]
        graphs = [helper.make_graph(inner, k, [], [info(f"{name}_inner")]) for k in ("t", "e")]
        nodes.append(helper.make_node("If", ["c"], [name], then_branch=graphs[0], else_branch=graphs[1]))
        names.append(name)
    return model(nodes)


def functions(n: int) -> Any:
    """n functions, each of which calls the one before it twice: 2**n steps, if they were written out."""
    made = []
    for i in range(n):
        call = ("Relu", "") if i == 0 else (f"F{i - 1}", "loc")
        body = [
            helper.make_node(call[0], ["a"], ["m"], domain=call[1]),
            helper.make_node(call[0], ["m"], ["b"], domain=call[1]),
        ]
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("loc", 1)]
        made.append(helper.make_function("loc", f"F{i}", ["a"], ["b"], body, imports))
    return model([helper.make_node(f"F{n - 1}", ["x"], ["y"], domain="loc")], made)


def nested(depth: int) -> Callable[[Any], Any]:
    """Loops in loops."""

    def body(level: int) -> Callable[..., Any]:
        if level == 0:
            return lambda number, keep, state: (keep, jo.mul(state, np.float32(0.5)))
        return lambda number, keep, state: (keep, *jo.loop(2, True, [state], body(level - 1)))

    return lambda x: jo.loop(2, True, [x], body(depth - 1))[0]


def cost(make: Callable[[], Callable[[], Any]]) -> tuple[float, float]:
    """Seconds and peak MiB of a job; `make` prepares it, outside of the measurement."""
    seconds, peak = float("inf"), 0.0
    for measured in ("time", "time", "memory"):
        job = make()
        gc.collect()
        if measured == "memory":
            tracemalloc.start()
        start = time.perf_counter()
        result = job()
        if measured == "time":
            seconds = min(seconds, time.perf_counter() - start)
        else:
            peak = tracemalloc.get_traced_memory()[1] / 2**20
            tracemalloc.stop()
        del result
    return seconds, peak


def load(proto: Any) -> Callable[[], Callable[[], Any]]:
    data = proto.SerializeToString()
    return lambda: lambda: jaxops.onnx.load(data)


def trace(proto: Any, **named: Any) -> Callable[[], Callable[[], Any]]:
    found = jaxops.onnx.load(proto.SerializeToString())
    # A new function each time, or JAX finds the trace in its cache.
    return lambda: lambda: jax.make_jaxpr(lambda x: found.apply(found.params, x, **named))(X)


def eager(proto: Any) -> Callable[[], Callable[[], Any]]:
    found, x = jaxops.onnx.load(proto.SerializeToString()), np.ones(2**14, np.float32)
    return lambda: jax.disable_jit()(lambda: found(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    n = parser.parse_args().nodes
    print(machine())
    rows: dict[str, Callable[[int], Any]] = {
        "load a chain": lambda k: load(chain(k)),
        "trace a chain": lambda k: trace(chain(k)),
        "trace a chain, with a key": lambda k: trace(chain(k), rng=jax.random.key(0)),
        "run a chain eagerly": lambda k: eager(chain(k)),
        "load shape arithmetic": lambda k: load(shapes(k)),
        "trace shape arithmetic": lambda k: trace(shapes(k)),
        "load choices": lambda k: load(branches(k)),
        "trace choices": lambda k: trace(branches(k)),
    }
    table = Table("", f"n = {n}: ms", "MiB", f"{10 * n}: ms", "MiB", "time ×", "memory ×", title_justify="left")
    for name, make in rows.items():
        (small, little), (large, much) = cost(make(n)), cost(make(10 * n))
        table.add_row(
            name, f"{small * 1e3:.0f}", f"{little:.1f}", f"{large * 1e3:.0f}", f"{much:.1f}",
            f"{large / small:.1f}", f"{much / little:.1f}",
        )  # fmt: skip
    steep = Table("", "depth", "ms", "twice the depth", "ms", "time ×")
    cases: list[tuple[str, int, Callable[[int], Any]]] = [
        ("load functions that call each other twice", 15, lambda k: load(functions(k))),
        ("trace loops in loops", 5, lambda k: lambda: lambda: jax.make_jaxpr(lambda x: nested(k)(x))(X)),
    ]
    for name, depth, make in cases:
        (small, _), (large, _) = cost(make(depth)), cost(make(2 * depth))
        steep.add_row(
            name, str(depth), f"{small * 1e3:.1f}", str(2 * depth), f"{large * 1e3:.1f}", f"{large / small:.1f}"
        )
    console = Console(width=140)
    console.print(table)
    console.print(steep)


if __name__ == "__main__":
    main()
