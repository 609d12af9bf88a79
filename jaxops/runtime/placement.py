"""Moves parameters from the file to the devices."""

from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding

from jaxops.dtypes import as_canonical
from jaxops.errors import ArgumentError
from jaxops.graph.nodes import Tensor


def placed(tensor: Tensor, sharding: NamedSharding | None) -> jax.Array:
    """Reads a parameter to the default device, or a shard to each device of its sharding.

    If the file can be read in parts, the host holds one shard at a time. Raises ArgumentError if no device is here.
    """
    if sharding is None:
        # `jnp.asarray` would compile a program for each shape.
        return jax.device_put(as_canonical(np.asarray(tensor.load(), order="C")))
    if isinstance(sharding.mesh, AbstractMesh) or not sharding.addressable_devices:
        raise ArgumentError(
            "sharding: no device of the mesh is here, so a parameter cannot be read\n"
            "  hint    the rows of jaxops.sharding.explain(model) have the types of all, to compile a program with"
        )
    values_of_file = None if tensor.part else tensor.load()
    shards: dict[Any, jax.Array] = {}
    arrays = []
    for device, index in sharding.addressable_devices_indices_map(tensor.shape).items():
        index = index or ()  # None for an array without axes
        key = tuple((part.start, part.stop) for part in index)
        if key in shards:  # replicated: the host reads it once
            arrays.append(jax.device_put(shards[key], device))
        else:
            values = tensor.part(index) if tensor.part else np.asarray(values_of_file)[index]
            # The JAX array may share the memory of this NumPy array, since nothing else refers to it.
            arrays.append(jax.device_put(as_canonical(np.asarray(values, order="C")), device))
            del values
            shards[key] = arrays[-1]
        arrays[-1].block_until_ready()
    return jax.make_array_from_single_device_arrays(tensor.shape, sharding, arrays)
