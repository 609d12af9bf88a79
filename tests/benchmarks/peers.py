"""What can be done with a model as a function, in jaxops and in the alternatives: the code that a user would write.

`PEERS` has an object for each engine, whose methods take the path of a model and its inputs by name:

- `gradient`: the float weights, and a function of them to (mean square of the first output, its gradient by each);
- `mapped`: the outputs for inputs with one more axis in front, each example by itself;
- `sizes`: a function of inputs of any batch size that was made once, for this path;
- `sharded`: the outputs, with weights that lie in halves on two devices.

Only NumPy, onnx and the engine are imported. What has no such function raises NotImplementedError.
"""

import functools
import tempfile
from pathlib import Path

import numpy as np
import onnx


class Peer:
    """Without any of them."""

    def gradient(self, path, inputs):
        raise NotImplementedError("has no gradients")

    def mapped(self, path, inputs):
        raise NotImplementedError("has no vmap")

    def sizes(self, path, inputs):
        raise NotImplementedError("has no free sizes")

    def sharded(self, path, inputs):
        raise NotImplementedError("has no sharding on a CPU")


class Onnxruntime(Peer):
    def gradient(self, path, inputs):
        from onnxruntime.training import artifacts  # not in the wheels of today

        raise NotImplementedError(artifacts.__name__)

    def sizes(self, path, inputs):
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(None, inputs)


class Jax(Peer):
    """function: of a path and inputs, to parameters by name and a function of (parameters, inputs) to all outputs."""

    def __init__(self, function):
        self.function = function

    def gradient(self, path, inputs):
        import jax
        import jax.numpy as jnp

        params, run = self.function(path, inputs)
        inputs = {name: jnp.asarray(x) for name, x in inputs.items()}
        floats = {name: np.asarray(x) for name, x in params.items() if jnp.issubdtype(x.dtype, jnp.floating)}

        def loss(floats):
            return jnp.square(run({**params, **floats}, inputs)[0]).mean()

        return floats, jax.jit(jax.value_and_grad(loss))

    def mapped(self, path, inputs):
        import jax

        params, run = self.function(path, {name: x[0] for name, x in inputs.items()})
        return jax.jit(jax.vmap(run, (None, 0)))(params, inputs)

    def sizes(self, path, inputs):
        import jax

        params, run = self.function(path, inputs)
        (batch,) = jax.export.symbolic_shape("batch")

        def free(x):
            return jax.ShapeDtypeStruct((batch, *x.shape[1:]), jax.dtypes.canonicalize_dtype(x.dtype))

        program = jax.export.export(jax.jit(run))(params, {name: free(x) for name, x in inputs.items()})
        return functools.partial(program.call, params)

    def sharded(self, path, inputs):
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(np.array(jax.devices()[:2]), ("model",))

        def spread(x):
            axis = halved(x)
            spec = PartitionSpec(*(None,) * axis, "model") if axis is not None else PartitionSpec()
            return jax.device_put(x, NamedSharding(mesh, spec)) if x.dtype.kind == "f" else x

        params, run = self.function(path, inputs)
        params = {name: spread(x) for name, x in params.items()}
        assert any(isinstance(x, jax.Array) and not x.is_fully_replicated for x in params.values())
        return jax.jit(run)(params, inputs)


def halved(x):
    """The first axis of a matrix or more that two devices can share; None without one."""
    return next((i for i, d in enumerate(x.shape) if x.ndim > 1 and d % 2 == 0), None)


def of_jaxops(path, inputs):
    import jax

    import jaxops.onnx

    model = jaxops.onnx.load(path)
    return model.params, lambda params, inputs: jax.tree.leaves(model.apply(params, inputs))


def of_jaxonnxruntime(path, inputs):
    import jaxonnxruntime
    from jaxonnxruntime.core import call_onnx

    # Else it refuses most models: shapes that it computes from sizes are fixed as in the example.
    jaxonnxruntime.config.update("jaxort_only_allow_initializers_as_static_args", False)
    run, params = call_onnx.call_onnx_model(onnx.load(path), inputs)
    return params, run


def of_torchax(path, inputs):
    import jax
    import torchax
    from modules import module

    params, run = torchax.extract_jax(module(path))
    order = list(inputs)  # which JAX forgets of a dictionary
    return params, lambda params, inputs: jax.tree.leaves(run(params, tuple(inputs[name] for name in order)))


class Torch(Peer):
    """The module that onnx2torch makes of a file. Weights are parameters of some layers, and buffers of others."""

    def function(self, path):
        """As of `Jax`."""
        import onnx2torch
        import torch
        from torch.utils import _pytree

        module = onnx2torch.convert(path).eval()
        params = {**dict(module.named_parameters()), **dict(module.named_buffers())}

        def run(params, inputs):
            return _pytree.tree_leaves(torch.func.functional_call(module, params, tuple(inputs.values())))

        return {name: x.detach() for name, x in params.items()}, run

    def gradient(self, path, inputs):
        import torch

        params, run = self.function(path)
        tensors = tensors_of(inputs)

        def gradient(floats):
            given = {name: x.requires_grad_() for name, x in tensors_of(floats).items()}
            loss = run({**params, **given}, tensors)[0].square().mean()
            found = torch.autograd.grad(loss, list(given.values()), materialize_grads=True)
            return loss.item(), {name: g.numpy() for name, g in zip(given, found, strict=True)}

        return {name: x.numpy() for name, x in params.items() if x.is_floating_point()}, gradient

    def mapped(self, path, inputs):
        import torch

        params, run = self.function(path)
        return torch.vmap(run, (None, 0))(params, tensors_of(inputs))

    def sizes(self, path, inputs):
        import onnx2torch
        import torch
        from torch.utils import _pytree

        module, arguments = onnx2torch.convert(path).eval(), tuple(tensors_of(inputs).values())
        batch = torch.export.Dim("batch")
        program = torch.export.export(module, arguments, dynamic_shapes=tuple({0: batch} for _ in arguments)).module()

        def run(inputs):
            with torch.no_grad():
                return _pytree.tree_leaves(program(*tensors_of(inputs).values()))

        return run

    def sharded(self, path, inputs):
        import torch

        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(one_of_two, (path, inputs, folder), nprocs=2)
            with np.load(Path(folder, "outputs.npz")) as file:
                return list(file.values())


def weights_in_buffers(module):
    """The floats that onnx2torch keeps in a module of their own, by their names in it."""
    buffers = {name.removeprefix("initializers."): x for name, x in module.named_buffers() if x.is_floating_point()}
    return {name: x for name, x in buffers.items() if "." not in name and hasattr(module, "initializers")}


def one_of_two(rank, path, inputs, folder):
    """A process of two, each of which has a half of each weight."""
    import onnx2torch
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.utils import _pytree

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    module = onnx2torch.convert(path).eval()
    for name, weight in weights_in_buffers(module).items():
        delattr(module.initializers, name)
        module.initializers.register_parameter(name, torch.nn.Parameter(weight))
    fully_shard(module, mesh=init_device_mesh("cpu", (2,)))
    assert any(p.to_local().numel() < p.numel() for p in module.parameters())
    with torch.no_grad():
        outputs = _pytree.tree_leaves(module(*tensors_of(inputs).values()))
    if rank == 0:
        np.savez(Path(folder, "outputs.npz"), *(y.numpy() for y in outputs))
    torch.distributed.destroy_process_group()


def tensors_of(arrays):
    import torch

    return {name: torch.from_numpy(np.array(x)) for name, x in arrays.items()}


class Tinygrad(Peer):
    """The runner that tinygrad makes of a file, whose `graph_values` are its weights."""

    def opened(self, path):
        """A runner, and its weights of floats by name."""
        from tinygrad import Tensor, dtypes
        from tinygrad.nn.onnx import OnnxRunner

        runner = OnnxRunner(path)
        values = {name: x for name, x in runner.graph_values.items() if isinstance(x, Tensor)}
        return runner, {name: x for name, x in values.items() if dtypes.is_float(x.dtype)}

    def gradient(self, path, inputs):
        from tinygrad import Tensor

        runner, weights = self.opened(path)

        def gradient(floats):
            given = {name: Tensor(x) for name, x in floats.items()}
            runner.graph_values.update(given)
            loss = next(iter(runner(inputs).values())).square().mean()
            found = loss.gradient(*given.values())
            return loss.item(), {name: g.numpy() for name, g in zip(given, found, strict=True)}

        return {name: x.numpy() for name, x in weights.items()}, gradient

    def sizes(self, path, inputs):
        runner, _ = self.opened(path)
        return lambda inputs: [y.numpy() for y in runner(inputs).values()]

    def sharded(self, path, inputs):
        from tinygrad import Tensor

        runner, weights = self.opened(path)
        devices = ("CPU:0", "CPU:1")
        for name, x in runner.graph_values.items():
            if isinstance(x, Tensor):
                runner.graph_values[name] = x.shard(devices, halved(x) if name in weights else None)
        found = runner({name: Tensor(x).shard(devices, None) for name, x in inputs.items()})
        return [y.numpy() for y in found.values()]


PEERS = {
    "jaxops": Jax(of_jaxops),
    "jaxonnxruntime": Jax(of_jaxonnxruntime),
    "torchax": Jax(of_torchax),
    "onnx2torch": Torch(),
    "onnxruntime": Onnxruntime(),
    "tinygrad": Tinygrad(),
}
