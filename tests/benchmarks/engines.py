"""One engine on one model, in a process that does nothing else: `python engines.py ENGINE MODEL.onnx FOLDER`.

FOLDER/inputs.npz holds the inputs, and gets the outputs as FOLDER/ENGINE.npz; FOLDER/programs keeps compiled programs.
Prints the figures as JSON. `import` is that of the engine, a start is loading and the first call, `call` is the median
of later ones, for a second at least; the peak is that of the whole process, its libraries included. Nothing but NumPy
is imported besides.
"""

import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

CALLS = 15
# A program's first five to ten calls fault pages in, 2 ms of 4 for MobileNetV3, until malloc keeps its memory.
SECONDS = 1.0


def by_onnxruntime(folder):
    import onnxruntime

    def opened(path):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(None, inputs)

    return opened


def by_jaxops(folder, precision=None, cached=False):
    import jaxops.onnx

    def opened(path):
        model = jaxops.onnx.load(path, precision=precision, cache=folder / "programs" if cached else None)
        names = [value.name for value in model.inputs]

        def call(inputs):
            # In order, as the fastest call of a model takes them.
            found = model(*[inputs[name] for name in names if name in inputs])
            return [np.asarray(y) for y in (found if isinstance(found, tuple) else [found])]

        return call

    return opened


def by_apply(folder, with_options=False):
    """In a program of the user's own, with the parameters as an argument."""
    import jax

    import jaxops.onnx

    def opened(path):
        model = jaxops.onnx.load(path)
        options = jaxops.compiler_options() if with_options else None
        params, run = jax.device_put(model.params), jax.jit(model.apply, compiler_options=options)
        return lambda inputs: [np.asarray(y) for y in jax.tree.leaves(run(params, inputs))]

    return opened


def by_pair(folder):
    """In a program of the user's own, with parameters that were prepared once."""
    import jax

    import jaxops
    import jaxops.onnx

    def opened(path):
        model, pairs = jaxops.onnx.load(path), []

        def call(inputs):
            if not pairs:
                prepare, run = model.specialize(inputs)
                options = jaxops.compiler_options()
                pairs.append((prepare(model.params), jax.jit(run, compiler_options=options)))
            ((prepared, run),) = pairs
            return [np.asarray(y) for y in jax.tree.leaves(run(prepared, inputs))]

        return call

    return opened


def by_openvino(folder, **options):
    import openvino

    def opened(path):
        compiled = openvino.Core().compile_model(path, "CPU", options)
        return lambda inputs: list(compiled(inputs).values())

    return opened


def by_jaxonnxruntime(folder):
    """Converted with the first inputs as its example, and compiled."""
    import jax
    from peers import of_jaxonnxruntime

    def opened(path):
        compiled = []

        def call(inputs):
            if not compiled:
                params, run = of_jaxonnxruntime(path, inputs)
                compiled.append((jax.jit(run), jax.device_put(params)))
            ((run, params),) = compiled
            return [np.asarray(y) for y in run(params, inputs)]

        return call

    return opened


def by_torchax(folder):
    """The module that `export.py` wrote to the file, as torchax takes no files."""
    import jax
    import torchax
    from modules import module

    def opened(path):
        params, run = torchax.extract_jax(module(path))
        compiled = jax.jit(run)
        return lambda inputs: [np.asarray(y) for y in jax.tree.leaves(compiled(params, tuple(inputs.values())))]

    return opened


def by_torch(folder):
    """The same module as it is."""
    import torch
    from modules import module
    from torch.utils import _pytree

    def opened(path):
        return torch_call(torch, _pytree, module(path))

    return opened


def by_onnx2torch(folder):
    import onnx2torch
    import torch
    from torch.utils import _pytree

    return lambda path: torch_call(torch, _pytree, onnx2torch.convert(path).eval())


def torch_call(torch, pytree, module):
    """A module as a function of inputs by name, which come in the order of its arguments."""

    def call(inputs):
        with torch.inference_mode():
            return [y.numpy() for y in pytree.tree_leaves(module(*map(torch.from_numpy, inputs.values())))]

    return call


def by_tinygrad(folder):
    """As its own benchmark of ONNX files does: the third call and later ones replay what the second one captured."""
    from tinygrad import Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    def opened(path):
        runner = OnnxRunner(path)
        run = TinyJit(lambda **inputs: tuple(y.realize() for y in runner(inputs).values()), prune=True)
        return lambda inputs: [y.numpy() for y in run(**{name: Tensor(x).realize() for name, x in inputs.items()})]

    return opened


# Name → what imports the engine, and gives a function of a path, which gives one of inputs by name to all outputs.
ENGINES = {
    "onnxruntime": by_onnxruntime,
    "jaxops": by_jaxops,
    "jaxops-cached": partial(by_jaxops, cached=True),
    "jaxops-apply": by_apply,
    "jaxops-options": partial(by_apply, with_options=True),
    "jaxops-specialize": by_pair,
    "jaxops-bfloat16": partial(by_jaxops, precision="bfloat16"),
    "openvino-f32": partial(by_openvino, INFERENCE_PRECISION_HINT="f32"),
    "jaxonnxruntime": by_jaxonnxruntime,
    "torchax": by_torchax,
    "torch": by_torch,
    "onnx2torch": by_onnx2torch,
    "tinygrad": by_tinygrad,
    "openvino": by_openvino,  # in its own default: bfloat16 where the processor multiplies it
}


def peak():
    """The most MiB that this process held, as Linux says it. `getrusage` would include the parent's peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024  # in kB


def median_call(call):
    """The median time of later calls, in milliseconds."""
    calls = []
    while len(calls) < CALLS or sum(calls) < SECONDS:
        begin = time.perf_counter()
        call()
        calls.append(time.perf_counter() - begin)
    return statistics.median(calls) * 1e3


def measure(engine, path, folder):
    """The figures of one engine, and its outputs."""
    with np.load(folder / "inputs.npz") as file:
        inputs = dict(file)
    moments = [time.perf_counter()]
    opened = ENGINES[engine](folder)
    moments.append(time.perf_counter())
    call = opened(path)
    outputs = call(inputs)
    moments.append(time.perf_counter())
    imported, start = np.diff(moments).tolist()
    return {"import": imported, "start": start, "call": median_call(lambda: call(inputs)), "peak": peak()}, outputs


if __name__ == "__main__":
    engine, path, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    figures, outputs = measure(engine, path, folder)
    np.savez(folder / f"{engine}.npz", *outputs)
    print(json.dumps(figures))
