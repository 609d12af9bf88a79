"""The programs that are compiled for devices that are not there, by name.

Each is a function of devices that returns a traced program, `jax.jit(…).trace(…)`, whose arguments lie on them, and a
function of the compiled program and the platform that returns what is wrong with it.
"""

import functools
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from checked_operators import checked, convolutions_stay
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from onnx import TensorProto, numpy_helper

import jaxops.onnx
from jaxops.compiler import pipeline
from jaxops.kernels.target import Target
from jaxops.sharding import tensor_parallel

MODELS = Path(__file__).parents[1] / "models"


def suite():
    """Returns the cases of the standard's suite on tensors of numbers, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the values are made here, with overflows on purpose
        cases = load_model_tests(kind="node")
    return {case.name: case for case in cases if case.model is not None and _takes_numbers(case.model)}


def _takes_numbers(model):
    types = [value.type for value in model.graph.input]
    return all(
        type.WhichOneof("value") == "tensor_type" and type.tensor_type.elem_type != TensorProto.STRING for type in types
    )


def spec(x, place):
    """Returns the type of an array on a device, or on several as `place` says."""
    place = place if isinstance(place, NamedSharding) else SingleDeviceSharding(place)
    return jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.canonicalize_dtype(x.dtype), sharding=place)


def traced(function, device, *arguments):
    return jax.jit(function).trace(*jax.tree.map(lambda x: spec(x, device), arguments))


def case_of_the_suite(case, devices):
    model = jaxops.onnx.load(case.model)
    given = [numpy_helper.to_array(x) if isinstance(x, TensorProto) else np.asarray(x) for x in case.data_sets[0][0]]
    values = dict(zip((value.name for value in case.model.graph.input), given, strict=True))
    known = {value.name: values.pop(value.name) for value in model.inputs if value.static and value.name in values}
    return traced(lambda params, values: model.apply(params, **known, **values), devices[0], model.params, values)


def inputs_of(name):
    """Returns the inputs of a file of `tests/models`, by name."""
    with np.load(MODELS / f"{name.partition('.')[0]}.npz") as file:
        return {key.removeprefix("in:"): file[key] for key in file if key.startswith("in:")}


def loaded(name):
    return jaxops.onnx.load(MODELS / f"{name}.onnx")


def call(name, devices):
    model = loaded(name)
    return traced(lambda params, inputs: model.apply(params, **inputs), devices[0], model.params, inputs_of(name))


def training_step(name, devices):
    model = loaded(name)

    def step(params, inputs):
        def loss(params):
            return sum(jnp.mean(y.astype(jnp.float32) ** 2) for y in jax.tree.leaves(model.apply(params, **inputs)))

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    return traced(step, devices[0], model.params, inputs_of(name))


def decoding_step(name, devices):
    model = loaded(name)
    step = jaxops.onnx.decoder(model, length=32)
    return traced(step, devices[0], model.params, step.init(2), np.zeros(2, np.int32))


def specialized(part, name, devices):
    """Compiles one function of the pair that `specialize` makes on the machine that has the device."""
    model, inputs = loaded(name), inputs_of(name)
    closed = jax.make_jaxpr(lambda params, inputs: model.apply(params, **inputs))(model.params, inputs)
    platform = devices[0].platform
    target = Target(platform, frozenset({"cuda"} if platform == "gpu" else ()), specialized=True, prepared=True)
    pair = pipeline.specialize(closed, len(model.params), target)
    weights, values = jax.tree.leaves(model.params), jax.tree.leaves(inputs)
    if part == "prepare":
        return traced(pair.prepare, devices[0], weights)
    prepared = jax.eval_shape(pair.prepare, weights)
    return traced(pair.run, devices[0], prepared, [weights[k] for k in pair.read], values)


def exported(name, devices):
    model = loaded(name)
    program = model.export(platforms=["cpu", "cuda", "tpu"])
    values = [inputs_of(name)[value.name] for value in model.inputs]
    return traced(program.call, devices[0], model.params, *values)


def split_over_a_mesh(name, devices):
    """Compiles a call of a tensor-parallel model on a 2 × 2 mesh, with the batch split along its other axis."""
    with jax.set_mesh(Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))):
        model = jaxops.onnx.load(MODELS / f"{name}.onnx", sharding=tensor_parallel("model"))
    mesh = Mesh(np.array(devices[:4]).reshape(2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    params = {k: spec(x, NamedSharding(mesh, x.sharding.spec)) for k, x in model.params.items()}
    inputs = {k: spec(x, NamedSharding(mesh, P("data"))) for k, x in inputs_of(name).items()}
    with jax.set_mesh(mesh):
        return jax.jit(lambda params, inputs: model.apply(params, **inputs)).trace(params, inputs)


def programs():
    """Name → (function of devices, check), for all programs; cases of the suite are "suite/NAME"."""
    found = {f"suite/{name}": functools.partial(case_of_the_suite, case) for name, case in suite().items()}
    files = sorted(path.name.removesuffix(".onnx") for path in MODELS.glob("*.onnx"))
    found |= {f"model/{name}": functools.partial(call, name) for name in files}
    for kind, names in {
        training_step: ("resnet.dynamo", "bert.script"),
        decoding_step: ("gpt2.dynamo", "llama.script"),
        exported: ("bert.dynamo", "resnet.script"),
        split_over_a_mesh: ("bert.script", "llama.dynamo"),
    }.items():
        found |= {f"{kind.__name__}/{name}": functools.partial(kind, name) for name in names}
    for part in ("prepare", "run"):
        found |= {f"{part}/{n}": functools.partial(specialized, part, n) for n in ("resnet.script", "bert.dynamo")}
    checks = {f"model/{n}": functools.partial(convolutions_stay, n) for n in ("resnet.script", "resnet.dynamo")}
    return {name: (trace, checks.get(name, lambda *_: "")) for name, trace in found.items()} | checked()
