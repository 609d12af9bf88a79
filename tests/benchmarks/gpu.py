"""The models of `export.py` on a GPU: jaxops beside torch.compile and onnxruntime's CUDA provider.

    python tests/benchmarks/gpu.py FOLDER [MODEL …] [--rounds 3] [--together 4] [--json figures.json]

FOLDER/NAME.onnx are the files that `export.py` wrote. Needs a JAX for CUDA; torch and onnxruntime-gpu take part where
they are installed. Each engine has a process of its own for each model. Those of some models start at once, as that
takes minutes, so that starts can only be compared with each other; then each is timed in turn while the others wait.
Inputs are on the device, and outputs stay there. `call` is the median time until a call's outputs are there, `queued`
that of a call when many are asked for at once. Files of a batch of 32 are those of `export.py --batch 32`; training
steps are those of `training.py --engines torch.compile jaxops`, and tokens those of `tokens.py`. "tf32" is the default
of JAX and onnxruntime on such a device, and `set_float32_matmul_precision("high")` of torch.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from models import error, example, outputs
from report import geometric_mean
from rich.console import Console
from rich.table import Table

from jaxops.host import cores

CALLS, QUEUED = 50, 50


def by_jaxops(path, inputs, precision, applied=False):
    """applied: in a program of the user's own, `jax.jit(model.apply)`, which gets the parameters as an argument."""
    import jax
    import jax.numpy as jnp

    import jaxops.onnx

    model = jaxops.onnx.load(path, precision="highest" if precision == "float32" else None)
    if precision == "bfloat16":
        model = model.astype(jnp.bfloat16)
    given = [jnp.asarray(inputs[value.name]) for value in model.inputs if value.name in inputs]
    if precision == "bfloat16":
        given = [x.astype(jnp.bfloat16) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in given]
    apply = jax.jit(model.apply)
    params = jax.device_put(model.params) if applied else None
    return (
        (lambda: apply(params, *given)) if applied else (lambda: model(*given)),
        jax.block_until_ready,
        lambda found: [np.asarray(y, np.float32) for y in jax.tree.leaves(found)],
    )


def by_torch(path, inputs, precision, compiled=True):
    import export
    import torch

    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    torch.manual_seed(0)
    model, _ = export.MODELS[path.stem]()
    (x,) = (torch.from_numpy(value).cuda() for value in inputs.values())
    model = model.eval().cuda()
    if precision == "bfloat16":
        model = model.bfloat16()
        x = x.bfloat16() if x.is_floating_point() else x
    run = torch.compile(model, mode="reduce-overhead") if compiled else model

    def call():
        with torch.inference_mode():
            return run(x)

    for _ in range(2):  # the first calls compile, and record a graph of CUDA
        call()
    return call, lambda _: torch.cuda.synchronize(), lambda found: [found.float().cpu().numpy()]


def by_onnxruntime(path, inputs, precision):
    import onnxruntime

    with contextlib.suppress(AttributeError):  # before 1.21
        onnxruntime.preload_dlls()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    provider = "CUDAExecutionProvider", {"use_tf32": int(precision != "float32")}
    session = onnxruntime.InferenceSession(path, options, providers=[provider])
    if "CUDAExecutionProvider" not in session.get_providers():
        raise SystemExit("onnxruntime has no CUDA here")
    binding = session.io_binding()
    for name, x in inputs.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(x, "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")

    def call():
        session.run_with_iobinding(binding)
        return binding

    return call, lambda _: binding.synchronize_outputs(), lambda _: binding.copy_outputs_to_cpu()


# Name → function of (path, inputs, precision) to a call, what waits for it, and its outputs as arrays.
ENGINES = {
    "jaxops": by_jaxops,
    "jaxops-apply": partial(by_jaxops, applied=True),
    "torch.compile": by_torch,
    "torch": lambda *given: by_torch(*given, compiled=False),
    "onnxruntime": by_onnxruntime,
}


def worker(engine, precision, path, folder):
    """Starts, says how long it took, and measures calls each time that it is asked to."""
    with np.load(folder / "inputs.npz") as file:
        inputs = dict(file)
    begin = time.perf_counter()
    call, wait, arrays = ENGINES[engine](path, inputs, precision)
    found = call()
    wait(found)
    print(json.dumps({"start": time.perf_counter() - begin}), flush=True)
    np.savez(folder / f"{engine}-{precision}.npz", *arrays(found))
    for _ in sys.stdin:
        for _ in range(10):
            wait(call())
        single = []
        for _ in range(CALLS):
            begin = time.perf_counter()
            wait(call())
            single.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        for _ in range(QUEUED):
            found = call()
        wait(found)
        queued = (time.perf_counter() - begin) / QUEUED
        print(json.dumps({"call": statistics.median(single) * 1e3, "queued": queued * 1e3}), flush=True)


class Process:
    """One engine on one model, started."""

    def __init__(self, engine, precision, path, folder):
        self.names = path.stem, engine, precision
        command = [sys.executable, __file__, "--worker", engine, precision, str(path), str(folder)]
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
        environment |= {"TORCHINDUCTOR_COMPILE_THREADS": "2"}  # all cores in each of many processes take minutes
        self.errors = folder / f"{engine}-{precision}.errors"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )

    def answer(self):
        """The next figures; none where the process ended, whose last words are printed."""
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.end()
        print(*self.names, "fails:", (self.errors.read_text().strip().splitlines() or ["no message"])[-1])
        return None

    def calls(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.communicate()


def measured(jobs, folder, rounds, together):
    """(model, engine, precision) → figures. jobs: (engine, precision, path)."""
    folders = {}
    for _, _, path in jobs:
        folders[path] = folder / path.stem
        folders[path].mkdir(exist_ok=True)
        np.savez(folders[path] / "inputs.npz", allow_pickle=False, **example(path))

    def started(job):
        process = Process(*job, folders[job[-1]])
        return process, process.answer()

    with ThreadPoolExecutor(together) as executor:
        ready = [(process, figures) for process, figures in executor.map(started, jobs) if figures]
    found = {process.names: figures for process, figures in ready}
    for _ in range(rounds):
        for process, figures in ready:
            now = process.calls() or {}
            figures.update({name: min(value, figures.get(name, value)) for name, value in now.items()})
    for process, _ in ready:
        process.end()
    return found


def errors(figures, folder):
    """Adds how far jaxops' outputs are from those of its own in float32, and these from onnxruntime's."""
    for (model, engine, precision), row in figures.items():
        expected = "onnxruntime" if precision == "float32" else "jaxops"
        if engine.startswith("jaxops") and (model, expected, "float32") in figures:
            given = f"{engine}-{precision}", f"{expected}-float32"
            row["error"] = error(*(outputs(name, folder / model) for name in given))


def show(figures):
    """A table for each figure: a row for each model and precision, and the ratios of the others to jaxops' time."""
    rows = sorted({(precision, model) for model, _, precision in figures})
    engines = [engine for engine in ENGINES if any(engine == e for _, e, _ in figures)]
    for figure, unit in (("call", "ms"), ("queued", "ms"), ("start", "s"), ("error", "of the largest output")):
        shown = Table("precision", "model", *engines, title=f"{figure}, {unit} (jaxops' part of it)")
        parts = {}
        for precision, model in rows:
            found = [figures.get((model, engine, precision), {}).get(figure) for engine in engines]
            ours = figures.get((model, "jaxops", precision), {}).get(figure)
            cells = []
            for engine, value in zip(engines, found, strict=True):
                beside = ours is not None and value is not None and engine != "jaxops" and figure != "error"
                cells.append("–" if value is None else f"{value:.3g}" + (f" ({ours / value:.2f})" if beside else ""))
                if beside:
                    parts.setdefault((precision, engine), []).append(ours / value)
            shown.add_row(precision, model, *cells)
        for (precision, engine), values in parts.items():
            shown.caption = (
                f"{shown.caption or ''}{precision} {engine}: {geometric_mean(values):.2f} of {len(values)}. "
            )
        Console(width=160).print(shown)


def available():
    """The engines that are installed."""
    needs = {
        "jaxops": "jax",
        "jaxops-apply": "jax",
        "torch.compile": "torch",
        "torch": "torch",
        "onnxruntime": "onnxruntime",
    }
    return [engine for engine in ENGINES if importlib.util.find_spec(needs[engine])]


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:4], *map(Path, sys.argv[4:6]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=available())
    parser.add_argument("--precisions", nargs="+", default=["float32", "tf32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--together", type=int, default=4, help="models whose processes wait at once")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    paths = [given.folder / f"{name}.onnx" for name in given.models] or sorted(given.folder.glob("*.onnx"))
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        for first in range(0, len(paths), given.together):
            jobs = [
                (engine, precision, path)
                for path in paths[first : first + given.together]
                for engine in given.engines
                for precision in given.precisions
                if precision != "bfloat16" or engine != "onnxruntime"  # whose files would be others
            ]
            figures.update(measured(jobs, Path(name), given.rounds, cores()))
            errors(figures, Path(name))
            if given.json:
                given.json.write_text(json.dumps([[*names, row] for names, row in figures.items()], indent=1))
    show(figures)


if __name__ == "__main__":
    main()
