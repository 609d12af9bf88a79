"""Moves parameters from the file to the devices."""

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from jaxops.dtypes import as_canonical
from jaxops.graph.nodes import Tensor


def placed(tensor: Tensor, sharding: NamedSharding | None) -> jax.Array:
    """Reads a parameter to the default device, or a shard to each device of its sharding.

    If the file can be read in parts, the host holds one shard at a time.
    """
    if sharding is None:
        # `jnp.asarray` would compile a program for each shape.
        return jax.device_put(as_canonical(np.asarray(tensor.load(), order="C")))
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
