"""Light models of the onnx package, jaxops beside onnxruntime: load, first call, call, peak memory.

    python tests/benchmarks/models.py [light_resnet50 light_densenet121 …]

Each engine runs in processes of its own, in turns, as the machine may be shared; the best of each figure counts.
The peak is that of the whole process, its libraries included.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

ENGINES = ("jaxops", "onnxruntime")
FIGURES = {"load": "ms", "first call": "ms", "call": "ms", "peak": "MiB"}
ROUNDS, CALLS = 3, 15


def measure(engine: str, path: Path) -> dict[str, float]:
    """The figures of one engine in this process."""
    graph_input = onnx.load(path).graph
    weights = {t.name for t in graph_input.initializer}
    (formal,) = (v for v in graph_input.input if v.name not in weights)
    shape = [d.dim_value for d in formal.type.tensor_type.shape.dim]
    x = np.random.default_rng(0).random(shape, np.float32)
    if engine == "jaxops":
        import jaxops.onnx

        start = time.perf_counter()
        model = jaxops.onnx.load(path)
        call = lambda: np.asarray(model(x))  # noqa: E731
    else:
        import onnxruntime

        start = time.perf_counter()
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        call = lambda: session.run(None, {formal.name: x})[0]  # noqa: E731
    loaded = time.perf_counter()
    call()
    first = time.perf_counter()
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "load": (loaded - start) * 1e3,
        "first call": (first - loaded) * 1e3,
        "call": min(times) * 1e3,
        "peak": peak,
    }


def main(names: list[str]) -> None:
    console = Console()
    for name in names or ["light_resnet50", "light_densenet121"]:
        path = Path(onnx.__file__).parent / "backend/test/data/light" / f"{name}.onnx"
        best: dict[str, dict[str, float]] = {}
        for _ in range(ROUNDS):
            for engine in ENGINES:
                command = [sys.executable, __file__, "--measure", engine, str(path)]
                found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                best[engine] = {k: min(v, best.get(engine, found)[k]) for k, v in found.items()}
        table = Table("", *ENGINES, "ratio", title=name, title_justify="left")
        for figure, unit in FIGURES.items():
            ours, theirs = (best[engine][figure] for engine in ENGINES)
            table.add_row(f"{figure} [{unit}]", f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}")
        console.print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2], Path(sys.argv[3]))))
    else:
        main(sys.argv[1:])
