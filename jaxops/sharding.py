"""Rules for `load(path, sharding=rule)`: which device has which part of a parameter.

With several processes, on one or several machines, all run the same program, as everywhere in JAX. Each loads the file
onto a mesh of all devices, and reads only those rows of a parameter of which its own devices have a part::

    jax.distributed.initialize()  # outside of a cluster: ("host:port", number of processes, number of this process)
    mesh = jax.make_mesh((jax.process_count(), jax.local_device_count()), ("data", "model"))
    with jax.set_mesh(mesh):
        model = jaxops.onnx.load(path, sharding=tensor_parallel("model"))
        x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), examples_of_this_process)
        y = model(x)  # or jax.jit(model.apply)(model.params, x), jax.grad: arrays over all devices
    mine = [shard.data for shard in y.addressable_shards]
"""

from jaxops.tools.convert.sharding_rules import data_parallel, fsdp, tensor_parallel

__all__ = ["data_parallel", "fsdp", "tensor_parallel"]
