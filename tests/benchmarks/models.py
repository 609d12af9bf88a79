"""Whole models, jaxops beside onnxruntime (and OpenVINO where it is installed): start, call, peak memory.

    python tests/benchmarks/export.py FOLDER          # once; needs torch
    python tests/benchmarks/models.py FOLDER/*.onnx [--rounds 3] [--json figures.json]

Names such as light_resnet50 are files of the onnx package. Each engine runs in processes of its own, in turns, as the
machine may be shared; the best of each figure counts. A start is loading and the first call. The peak is that of the
whole process, its libraries included. `call` is a median; ratios are to onnxruntime.
"""

import argparse
import importlib.util
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.progress import track
from rich.table import Table

ENGINES = ["onnxruntime", "jaxops"] + ["openvino"] * (importlib.util.find_spec("openvino") is not None)
FIGURES = {"start": "s", "call": "ms", "peak": "MiB"}
CALLS = 15


def example(path):
    """The name of the one input, and an array for it; sizes that are not fixed are 1."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    (formal,) = (v for v in graph.input if v.name not in weights)
    kind = onnx.helper.tensor_dtype_to_np_dtype(formal.type.tensor_type.elem_type)
    shape = [d.dim_value or 1 for d in formal.type.tensor_type.shape.dim]
    rng = np.random.default_rng(0)
    if kind.kind == "i":
        return formal.name, rng.integers(0, 1000, shape).astype(kind)
    return formal.name, rng.random(shape, np.float32).astype(kind)


def opened(engine, path, name):
    """A function of an array."""
    if engine == "jaxops":
        import jaxops.onnx

        model = jaxops.onnx.load(path)
        return lambda x: np.asarray(model(x))
    if engine == "openvino":
        import openvino

        compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return lambda x: compiled({name: x})[0]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {name: x})[0]


def measure(engine, path):
    """The figures of one engine in this process."""
    name, x = example(path)
    start = time.perf_counter()
    call = opened(engine, path, name)
    call(x)
    first = time.perf_counter()
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call(x)
        times.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"start": first - start, "call": statistics.median(times) * 1e3, "peak": peak}


def found(paths, rounds):
    """model → engine → figures."""
    best = {path.stem: {} for path in paths}
    for path, _ in track([(path, k) for path in paths for k in range(rounds)], "measuring"):
        for engine in ENGINES:
            command = [sys.executable, __file__, "--measure", engine, str(path)]
            now = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            before = best[path.stem].get(engine, now)
            best[path.stem][engine] = {figure: min(now[figure], before[figure]) for figure in FIGURES}
    return best


def table(figures):
    """A row for each model, and the geometric mean of the ratios."""
    shown = Table("model")
    ratios = {}
    for engine in ENGINES:
        for figure, unit in FIGURES.items():
            shown.add_column(f"{engine}\n{figure} [{unit}]", justify="right")
    for model, engines in figures.items():
        row = [model]
        for engine in ENGINES:
            for figure in FIGURES:
                ours, theirs = engines[engine][figure], engines["onnxruntime"][figure]
                ratios.setdefault((engine, figure), []).append(ours / theirs)
                row.append(f"{ours:.3g}" if engine == "onnxruntime" else f"{ours:.3g} ({ours / theirs:.2f})")
        shown.add_row(*row)
    means = [math.exp(statistics.fmean(map(math.log, values))) for values in ratios.values()]
    shown.add_section()
    shown.add_row("geometric mean", *(f"{mean:.2f}" for mean in means))
    return shown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["light_resnet50", "light_densenet121"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    light = Path(onnx.__file__).parent / "backend/test/data/light"
    paths = [Path(name) if name.endswith(".onnx") else light / f"{name}.onnx" for name in given.models]
    figures = found(paths, given.rounds)
    Console(width=200).print(table(figures))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3])))
    else:
        main()
