"""Rules for `load(path, sharding=rule)`: which device has which part of a parameter. `explain` shows what they did.

With several processes, on one or several machines, all run the same program, as everywhere in JAX. Each loads the file
onto a mesh of all devices, and reads only those rows of a parameter of which its own devices have a part::

    jax.distributed.initialize()  # outside of a cluster: ("host:port", number of processes, number of this process)
    mesh = jax.make_mesh((jax.process_count(), jax.local_device_count()), ("data", "model"))
    with jax.set_mesh(mesh):
        model = jaxops.onnx.load(path, sharding=tensor_parallel("model"))
        x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), examples_of_this_process)
        y = model(x)  # or jax.jit(model.apply)(model.params, x), jax.grad: arrays over all devices
    mine = [shard.data for shard in y.addressable_shards]

A mesh that is given to a rule need not be set for calls, `jit`, `jax.vjp` and `jax.jvp`. But outside of `jit`,
`jax.grad` of any loss on a mesh with Explicit axes, JAX's default, is an error of JAX until the mesh is set: run it
under `jax.set_mesh(mesh)`, or under `jit`.
"""

from typing import Any

from jaxops.tools.convert.placement_table import PlacementTable, placement_table
from jaxops.tools.convert.sharding_rules import data_parallel, fsdp, tensor_parallel

__all__ = ["data_parallel", "explain", "fsdp", "tensor_parallel"]


def explain(model: Any) -> PlacementTable:
    """Returns a table of a model's parameters, to be printed: name, role, spec, bytes on one device, and the reason.

    The role follows from the graph, also for a rule of your own. `rows` has the columns as values; `bytes` is the sum
    on one device, and `total` that of the whole parameters. They are those of `model.params`: of a weight that
    `model(x)` splits in parts, as its reason says, a device keeps less there. Nothing is read from the file, so the
    devices of the mesh need not be here: with the `type` of each row a program is compiled for them.

    >>> import jax, jaxops.onnx
    >>> rule = tensor_parallel("model", jax.make_mesh((1,), ("model",)))
    >>> table = explain(jaxops.onnx.load("notebooks/digits.onnx", sharding=rule))
    >>> table.rows[0].name, table.rows[0].role, table.rows[0].bytes, table.rows[0].reason
    ('hidden.weight', 'first', 24576, 'first of a pair, by what it makes')
    """
    return placement_table(model.graph, model._weights.types(model.x64), model._placements)
