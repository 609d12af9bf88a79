"""The parameters of a model: read from its file once, and those that a caller gives in their place."""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from jaxops.dtypes import as_canonical, as_traced, canonical, stand_in
from jaxops.errors import DTypeError, JaxopsError, ShapeError, SignatureError
from jaxops.graph.nodes import Tensor
from jaxops.lazy_array import READERS, Unread
from jaxops.progress import progress
from jaxops.runtime.placement import placed
from jaxops.runtime.x64 import is_on, x64_on
from jaxops.signature_errors import check_array
from jaxops.static import enable_x64


class Weights:
    """The parameters of a model by name, each read from its file when it is needed.

    params: those that somebody asked for; all of them, or none but for an error in between.
    """

    def __init__(
        self,
        tensors: dict[str, Tensor],
        shardings: Mapping[str, NamedSharding],
        params: dict[str, jax.Array] | None = None,
    ) -> None:
        self.tensors, self.shardings = tensors, shardings
        self.params = {} if params is None else params
        self._unread_by_name: dict[str, Any] | None = None
        self._lock = threading.RLock()  # two threads may ask for the same parameters

    def all(self) -> dict[str, jax.Array]:
        """The parameters, read for good; what the file had of them is let go.

        What is read stays where a later one raises an error, so it can be tried again.
        """
        if len(self.params) == len(self.tensors):
            return self.params
        work = progress(f"reading {len(self.tensors)} parameters")
        with work, self._lock, ThreadPoolExecutor(1 if self.shardings else READERS) as executor:
            by_name, missing = self._by_name(), [name for name in self.tensors if name not in self.params]
            arrays = executor.map(lambda name: by_name[name].read_once(), missing)
            for name, array in zip(missing, arrays, strict=True):
                self.params[name] = array
                self.tensors[name] = dataclasses.replace(self.tensors[name], load=_spent, part=None)
            self._unread_by_name = None
        return self.params

    def for_calls(self, x64: bool) -> dict[str, Any]:
        """Returns the parameters for the model's own calls: arrays, and for each one that is still in the file an
        `Unread`, in the types of the first use's x64 setting. x64: whether the model has types of 64 bits in any case;
        then all are read."""
        if x64 or self.shardings or len(self.params) == len(self.tensors):
            with x64_on(x64):
                return self.all()
        with self._lock:
            return self._by_name()

    def _by_name(self) -> dict[str, Any]:
        if len(self.params) == len(self.tensors):
            return self.params
        if self._unread_by_name is None:
            x64, by_name = is_on(), {}
            for name, tensor in self.tensors.items():
                by_name[name] = self.params[name] if name in self.params else self._unread(name, tensor, x64)
            self._unread_by_name = by_name
        return self._unread_by_name

    def _unread(self, name: str, tensor: Tensor, x64: bool) -> Unread:
        with _in_parameter(name):  # of a type that JAX does not have
            kind = jax.ShapeDtypeStruct(tensor.shape, as_canonical(np.empty(0, tensor.dtype)).dtype)
        return Unread(kind, functools.partial(_read, name, tensor, self.shardings.get(name), x64))


class GivenWeights:
    """Parameters that a caller made of those of a model: by `jax.tree.map`, say, which may leave anything there."""

    def __init__(self, tensors: dict[str, Tensor], params: Any) -> None:
        self.tensors, self.params = tensors, params
        self._arrays: dict[str, jax.Array] | None = None

    def all(self) -> Any:
        """The parameters, as the caller gave them."""
        return self.params

    def for_calls(self, x64: bool) -> dict[str, jax.Array]:
        """The parameters as JAX arrays. Raises what `matched` does."""
        if self._arrays is None:
            with x64_on(x64):
                self._arrays = matched(self.params, self.tensors, {})
        return self._arrays


def _read(name: str, tensor: Tensor, sharding: NamedSharding | None, x64: bool) -> jax.Array:
    # The first use may be inside `jit`, and they outlive it.
    with enable_x64(x64), jax.ensure_compile_time_eval(), _in_parameter(name):
        return placed(tensor, sharding)


@contextlib.contextmanager
def _in_parameter(name: str) -> Iterator[None]:
    try:
        yield
    except JaxopsError as error:
        error.add_note(f"in parameter '{name}'")
        raise


def _spent() -> np.ndarray:
    raise AssertionError("a parameter is read once")


def matched(
    params: Any, tensors: Mapping[str, Tensor], values: Mapping[str, Any], subject: str = "params"
) -> dict[str, jax.Array]:
    """The parameters that a caller gives as JAX arrays, as NumPy ones would work here and fail under `jit`.

    values: the inputs of the call, which may replace some. subject: begins the messages about shapes and types.
    Raises SignatureError for a missing or unknown parameter, ArgumentError and DTypeError for one that is not an array,
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
    return {name: _fitting(subject, name, params[name], tensor) for name, tensor in tensors.items() if name in params}


def _fitting(subject: str, name: str, value: Any, tensor: Tensor) -> jax.Array:
    """A parameter in the shape and type that the model has; float32 stands for float64, as JAX has it with x64 off."""
    if not isinstance(value, jax.Array):
        check_array("params", name, value)
    array, dtype = as_traced(value), canonical(tensor.dtype)
    if array.shape != tensor.shape:
        raise ShapeError(f"{subject}: '{name}' has shape {array.shape}, but the model has {tensor.shape}")
    if array.dtype == dtype:
        return array
    if array.dtype != stand_in(dtype):
        raise DTypeError(
            f"{subject}: '{name}' is {array.dtype.name}, but the model has {dtype.name}\n"
            f"  hint    convert it with .astype(jnp.{dtype.name}), or all of the model with model.astype"
        )
    return array.astype(dtype)
