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
`jaxops.compiler_options()`; `jaxops-options` is `jaxops-apply` with them.
"""

import argparse
import compileall
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from engines import ENGINES
from examples import error, example, machine, run_environment
from report import BASE, FIGURES, chart, show
from rich.progress import track

import jaxops

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
PEERS = ["openvino-f32", "openvino"] * (importlib.util.find_spec("openvino") is not None)
DEFAULTS = [BASE, "jaxops", *PEERS]
LONGEST = 240  # seconds of one process
LIGHT_MODELS = ["light_resnet50", "light_densenet121", "light_inception_v2", "light_squeezenet"]


def outputs(engine, folder):
    """What an engine gave."""
    with np.load(folder / f"{engine}.npz") as file:
        return list(file.values())


def run(engine, path, folder, python=sys.executable):
    """The figures of one process; None where the engine cannot run the model in time, and the reason is printed."""
    command = [python, str(Path(__file__).with_name("engines.py")), engine, str(path), str(folder)]
    options = {"capture_output": True, "text": True, "env": run_environment(), "timeout": LONGEST}
    try:
        done = subprocess.run(command, check=False, **options)
    except subprocess.TimeoutExpired:
        print(f"{path.stem}: {engine} takes more than {LONGEST} s")
        return None
    if done.returncode:
        print(f"{path.stem}: {engine} fails: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def measured(path, engines, rounds, pythons=None):
    """engine → figures, the best of some rounds; `error` is the distance of the outputs from onnxruntime's.

    pythons: engine → the Python that has it, where it is not this one.
    """
    best = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "inputs.npz", allow_pickle=False, **example(path))
        running = list(engines)
        if "jaxops-cached" in running:
            run("jaxops-cached", path, folder)  # what it keeps is there from now on
        for _ in range(rounds):
            for engine in list(running):
                now = run(engine, path, folder, (pythons or {}).get(engine, sys.executable))
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
    print(machine())
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
