"""The parameters of a model: read from its file once, and those that a caller gives in their place."""

import dataclasses
import threading
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from jaxops.contract import check_array
from jaxops.dtypes import as_traced, canonical, stand_in
from jaxops.errors import DTypeError, JaxopsError, ShapeError, SignatureError
from jaxops.graph.nodes import Tensor
from jaxops.tools.sharding import placed

# One thread reads at a time: two may ask for the same parameters.
_READING = threading.RLock()


def read_into(params: dict[str, jax.Array], tensors: dict[str, Tensor], shardings: Mapping[str, NamedSharding]) -> None:
    """Reads the tensors that are not among `params` yet, and lets go of what the file has of them.

    What is read stays where a later tensor raises an error, so it can be tried again.
    """
    with _READING, jax.ensure_compile_time_eval():  # the first use may be inside `jit`, and they outlive it
        for name in [name for name in tensors if name not in params]:
            try:
                params[name] = placed(tensors[name], shardings.get(name))
            except JaxopsError as error:
                error.add_note(f"in parameter '{name}'")
                raise
            tensors[name] = dataclasses.replace(tensors[name], load=_spent, part=None)


def _spent() -> np.ndarray:
    raise AssertionError("a parameter is read once")


def matched(
    params: Any, tensors: Mapping[str, Tensor], values: Mapping[str, Any], what: str = "params"
) -> dict[str, jax.Array]:
    """The parameters that a caller gives as JAX arrays, as NumPy ones would work here and fail under `jit`.

    values: the inputs of the call, which may replace some. what: begins the messages about shapes and types.
    Raises SignatureError for a missing or unknown parameter, ArgumentError and DTypeError for one that is no array,
    ShapeError and DTypeError for one that the model has in another shape or type.
    """
    if not isinstance(params, Mapping):
        raise SignatureError(f"params is {params!r:.80}; give a dictionary like model.params")
    missing = [name for name in tensors if name not in params and name not in values]
    if missing:
        raise SignatureError(f"params: '{missing[0]}' is missing; give all {len(tensors)} of model.params")
    surplus = [name for name in params if name not in tensors]
    if surplus:
        raise SignatureError(f"params: the model has no '{surplus[0]}'; give the {len(tensors)} of model.params")
    return {name: _fitting(what, name, params[name], tensor) for name, tensor in tensors.items() if name in params}


def _fitting(what: str, name: str, value: Any, tensor: Tensor) -> jax.Array:
    """A parameter in the shape and type that the model has; float32 stands for float64, as JAX has it with x64 off."""
    if not isinstance(value, jax.Array):
        check_array("params", name, value)
    array, wanted = as_traced(value), canonical(tensor.dtype)
    if array.shape != tensor.shape:
        raise ShapeError(f"{what}: '{name}' has shape {array.shape}, but the model has {tensor.shape}")
    if array.dtype == wanted:
        return array
    if array.dtype != stand_in(wanted):
        raise DTypeError(
            f"{what}: '{name}' is {array.dtype.name}, but the model has {wanted.name}\n"
            f"  hint    convert it with .astype(jnp.{wanted.name}), or all of the model with model.astype"
        )
    return array.astype(wanted)
