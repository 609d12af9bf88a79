"""Rules for `load(path, sharding=rule)`: which device has which part of a parameter.

Several machines, or processes of one, run the same program, as everywhere in JAX. Each loads the file by itself, onto a
mesh of all devices, and reads those rows of each parameter of which its own devices have a part::

    jax.distributed.initialize()  # where nothing announces the processes: ("host:port", how many, which one)
    mesh = jax.make_mesh((jax.process_count(), jax.local_device_count()), ("data", "model"))
    with jax.set_mesh(mesh):
        model = jaxops.onnx.load(path, sharding=tensor_parallel("model"))
        x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), examples_of_this_process)
        y = model(x)  # or jax.jit(model.apply)(model.params, x), jax.grad: arrays over all devices
    mine = [shard.data for shard in y.addressable_shards]
"""

from jaxops.tools.convert.sharding_rules import data_parallel, tensor_parallel

__all__ = ["data_parallel", "tensor_parallel"]
