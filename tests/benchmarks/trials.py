"""One engine tries many cases, in the Python that has it: `python trials.py ENGINE TASK < CASES`.

CASES are lines: names of the standard's suite for the task `cases`; for the others, in JSON, the path of a model and of
its data, an .npz file with `in:NAME` and `out:NUMBER`. Prints a line of JSON first, with the version of the engine, and
then one for each case: empty text where it is right, else why it is not. A case that takes too long ends the
process; `alternatives.py` starts it again behind that case. Nothing but NumPy, onnx and the engine is imported.
"""

import importlib.metadata
import json
import os
import signal
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.base
from engines import ENGINES
from examples import error
from peers import PEERS

SECONDS = {"cases": 60}
LONG = 300
TOLERANCE = 1e-3
# How far a finite difference in float32 may be from the derivative.
SLOPE = 0.05


def backends():
    """Name → a function of a model to one of a list of inputs to outputs; each as the engine's own tests do it."""

    def by_jaxops(model):
        import jaxops.onnx.backend

        return jaxops.onnx.backend.prepare(model).run

    def by_jaxonnxruntime(model):
        import jax
        import jaxonnxruntime

        jax.config.update("jax_enable_x64", True)
        jaxonnxruntime.config.update("jaxort_only_allow_initializers_as_static_args", False)
        return jaxonnxruntime.Backend.prepare(model).run

    def by_onnx2torch(model):
        import onnx2torch
        import torch

        module = onnx2torch.convert(model).eval()

        def run(inputs):
            with torch.inference_mode():
                found = module(*(torch.from_numpy(x) for x in inputs))
            return found if isinstance(found, tuple | list) else [found]

        return run

    def by_onnxruntime(model):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        small = onnx.TensorProto.BFLOAT16, *range(onnx.TensorProto.FLOAT8E4M3FN, onnx.TensorProto.FLOAT8E5M2FNUZ + 1)
        types = {v.name: v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}

        def run(inputs):
            given = dict(zip(names(model), inputs, strict=False))
            if not any(types[name] in small for name in types):
                return session.run(None, given)
            # Types that NumPy lacks go in as values of onnxruntime, and come out as bytes.
            value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
            found = session.run_with_ort_values(None, {name: value(x, types[name]) for name, x in given.items()})
            kinds = [onnx.helper.tensor_dtype_to_np_dtype(types[v.name]) for v in model.graph.output]
            return [y.numpy().view(kind) for y, kind in zip(found, kinds, strict=True)]

        return run

    def by_tinygrad(model):
        from tinygrad import Tensor
        from tinygrad.nn.onnx import OnnxRunner

        runner = OnnxRunner(Tensor(model.SerializeToString(), device="PYTHON"))
        return lambda inputs: list(runner(dict(zip(names(model), inputs, strict=False))).values())

    return {name.removeprefix("by_"): function for name, function in locals().items()}


def names(model):
    """The inputs of a model that are no weights."""
    weights = {t.name for t in model.graph.initializer}
    return [v.name for v in model.graph.input if v.name not in weights]


def numbers(value):
    """NumPy arrays of what an engine gave."""
    if isinstance(value, list | tuple):
        return [numbers(item) for item in value]
    return value.numpy() if hasattr(value, "numpy") else value if value is None else np.asarray(value)


def suite(engine):
    """Name → function of each case of the standard's suite."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import onnx_suite

    prepare = backends()[engine]

    class Rep(onnx.backend.base.BackendRep):
        def __init__(self, run):
            self.function = run

        def run(self, inputs, **_):
            inputs = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
            return tuple(numbers(list(self.function(inputs))))

    class Backend(onnx.backend.base.Backend):
        @classmethod
        def prepare(cls, model, device="CPU", **_):
            return Rep(prepare(model))

        @classmethod
        def supports_device(cls, device):
            return device == "CPU"

    cases = onnx_suite.cases(Backend)

    def run(name):
        onnx_suite.RUNNING[:] = [name]
        cases[name][1](None)

    return run


def data(path):
    """The inputs by name, and all outputs."""
    with np.load(path) as file:
        inputs = {name.removeprefix("in:"): file[name] for name in file if name.startswith("in:")}
        return inputs, [file[name] for name in file if name.startswith("out:")]


def expect(outputs, expected):
    found = error(numbers(list(outputs)), expected)
    assert found < TOLERANCE, f"the outputs are {found:.1e} from those expected"


def exports(engine, path, inputs, expected):
    """The whole model."""
    expect(ENGINES[engine](Path(tempfile.gettempdir()))(path)(inputs), expected)


def gradients(engine, path, inputs, expected):
    """The gradient by all weights: along it, finite differences are its square."""
    weights, function = PEERS[engine].gradient(path, inputs)
    value, gradient = function(weights)
    expected = np.square(expected[0]).mean()
    assert abs(value - expected) < TOLERANCE * expected, f"the mean square is {value}, not {expected}"
    gradient = {name: np.asarray(g, np.float64) for name, g in gradient.items()}
    square = sum(np.square(g).sum() for g in gradient.values())
    assert square > 0, "the gradient is zero"
    step = 0.01 * float(value) / square
    ends = [
        function({name: np.asarray(w + sign * step * gradient[name], w.dtype) for name, w in weights.items()})[0]
        for sign in (1, -1)
    ]
    ratio = float(ends[0] - ends[1]) / (2 * step) / square
    assert abs(ratio - 1) < SLOPE, f"finite differences are {ratio:.3f} of the gradient"


def vmap(engine, path, inputs, expected):
    """Two examples at once: these inputs, and the same with their batch turned round."""
    both = {name: np.stack([x, x[::-1]]) for name, x in inputs.items()}
    expect(PEERS[engine].mapped(path, both), [np.stack([y, y[::-1]]) for y in expected])


def sizes(engine, path, inputs, expected):
    """One program for the batch of the file's data, and for twice as many."""
    run = PEERS[engine].sizes(path, inputs)
    for repeats in (1, 2):
        several = {name: np.concatenate([x] * repeats) for name, x in inputs.items()}
        expect(run(several), [np.concatenate([y] * repeats) for y in expected])


def sharding(engine, path, inputs, expected):
    """Weights on two devices."""
    expect(PEERS[engine].sharded(path, inputs), expected)


TASKS = {task.__name__: task for task in (exports, gradients, vmap, sizes, sharding)}


def why(run, *arguments):
    """Why a case is not right: the kind of the exception, and the first line of what it says."""
    try:
        run(*arguments)
    except (Exception, unittest.SkipTest) as problem:
        lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
        # The first line says it, or the last one of a traceback from another process.
        line = lines[-any("Traceback" in line for line in lines)] if lines else "no message"
        return f"{type(problem).__name__}: {line}"[:200]
    return ""


def main(engine, task, lines):
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print is not in the report
    warnings.simplefilter("ignore")
    one = suite(engine) if task == "cases" else None
    print(json.dumps(importlib.metadata.version(engine)), file=report, flush=True)
    for line in lines:
        signal.alarm(SECONDS.get(task, LONG))
        if task == "cases":
            found = why(one, line)
        else:
            path, file = json.loads(line)
            found = why(TASKS[task], engine, path, *data(file))
        signal.alarm(0)
        print(json.dumps(found), file=report, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.stdin.read().splitlines())
