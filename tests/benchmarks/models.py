"""Whole models, jaxops beside onnxruntime and OpenVINO: start, call, peak memory.

    python tests/benchmarks/export.py FOLDER          # once; needs torch
    python tests/benchmarks/quantize.py FOLDER        # once; quantized ones, made of those
    python tests/benchmarks/models.py FOLDER/*.onnx [--engines onnxruntime jaxops …] [--rounds 3]
        [--json figures.json] [--chart figures.svg]

Names such as light_resnet50 are files of the onnx package, whose weights are all one value. Each engine runs in
processes of its own (`engines.py` says what is measured), in turns, as the machine may be shared; the best of each
figure counts. Ratios are to onnxruntime; their geometric means are over the models in `report.COUNTED`, and what else
was measured stands below them. `jaxops-cached` finds its programs compiled: its start is what counts. `jaxops-apply`
and `jaxops-specialize` are programs of the user's own: `jax.jit(model.apply)`, and the pair of `model.specialize` with
`jaxops.compiler_options()`.
"""

import argparse
import compileall
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from engines import ENGINES
from report import BASE, FIGURES, chart, show
from rich.progress import track

import jaxops

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
PEERS = ["openvino-f32", "openvino"] * (importlib.util.find_spec("openvino") is not None)
DEFAULTS = [BASE, "jaxops", *PEERS]
LIGHT_MODELS = ["light_resnet50", "light_densenet121", "light_inception_v2", "light_squeezenet"]


def example(path):
    """An array for each input by name, as the file declares it; sizes that are not fixed are 1."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    rng = np.random.default_rng(0)

    def array(formal):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(formal.elem_type)
        shape = [d.dim_value or 1 for d in formal.shape.dim]
        return (rng.integers(0, 1000, shape) if dtype.kind in "iu" else rng.random(shape, np.float32)).astype(dtype)

    return {v.name: array(v.type.tensor_type) for v in graph.input if v.name not in weights}


def error(outputs, expected):
    """The largest difference of two lists of outputs, as a part of the largest number; inf where one has a NaN."""
    found = 0.0
    for y, z in zip(outputs, expected, strict=True):
        y, z = np.asarray(y, np.float64), np.asarray(z, np.float64)
        if y.shape != z.shape:
            return float("inf")
        finite = np.isfinite(y) & np.isfinite(z)
        if not np.array_equal(y[~finite], z[~finite], equal_nan=True):
            return float("inf")
        most, scale = (np.abs(numbers[finite]).max(initial=0) for numbers in (y - z, z))
        found = max(found, most / scale if scale else most)
    return float(found)


def outputs(engine, folder):
    """What an engine gave."""
    with np.load(folder / f"{engine}.npz") as file:
        return list(file.values())


def run_environment():
    """That of this process, but for what would make each start compile each module: users have bytecode."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(engine, path, folder):
    """The figures of one process; None where the engine cannot run the model, whose last words are printed."""
    command = [sys.executable, str(Path(__file__).with_name("engines.py")), engine, str(path), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=run_environment(), check=False)
    if done.returncode:
        print(f"{path.stem}: {engine} fails: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def measured(path, engines, rounds):
    """engine → figures, the best of some rounds; `error` is the distance of the outputs from onnxruntime's."""
    best = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "inputs.npz", allow_pickle=False, **example(path))
        running = list(engines)
        if "jaxops-cached" in running:
            run("jaxops-cached", path, folder)  # what it keeps is there from now on
        for _ in range(rounds):
            for engine in list(running):
                now = run(engine, path, folder)
                if now is None:
                    running.remove(engine)
                else:
                    before = best.get(engine, now)
                    best[engine] = {figure: min(now[figure], before[figure]) for figure in FIGURES}
        for engine in set(best) - {BASE} if BASE in best else ():
            best[engine]["error"] = error(outputs(engine, folder), outputs(BASE, folder))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=LIGHT_MODELS)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=DEFAULTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path)
    given = parser.parse_args()
    compileall.compile_dir(jaxops.__path__[0], quiet=1)
    paths = [Path(name) if name.endswith(".onnx") else LIGHT / f"{name}.onnx" for name in given.models]
    figures = {}
    for path in track(paths, "measuring"):
        figures[path.stem] = measured(path, given.engines, given.rounds)
        if given.json:  # after each model, as all together take an hour
            given.json.write_text(json.dumps(figures, indent=1))
    show(figures)
    if given.chart:
        chart(figures, given.chart)


if __name__ == "__main__":
    main()
