"""The parameters of a model: reads them from the file once, and checks those that a caller passes instead."""

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
from jaxops.errors import DTypeError, JaxopsError, ShapeError, SignatureError, amount
from jaxops.graph.nodes import Tensor
from jaxops.jax_internals import enable_x64
from jaxops.lazy_array import READERS, Unread, type_of
from jaxops.progress import progress
from jaxops.runtime.placement import placed
from jaxops.runtime.repeated_calls import CallCache
from jaxops.runtime.x64 import is_on, x64_on
from jaxops.signature_errors import check_array, errors_of


class Weights:
    """The parameters of a model by name, each read from its file when it is needed.

    params: the parameters that were read. Reading takes all or none, unless an error interrupts it. cache: what calls
    computed for the parameters.
    """

    def __init__(
        self,
        tensors: dict[str, Tensor],
        shardings: Mapping[str, NamedSharding],
        params: dict[str, jax.Array] | None = None,
    ) -> None:
        self.tensors, self.shardings = tensors, shardings
        self.params = {} if params is None else params
        self.cache = CallCache({})
        self._unread_by_name: dict[str, Any] | None = None
        self._lock = threading.RLock()  # two threads may ask for the same parameters

    def all(self) -> dict[str, jax.Array]:
        """Reads and returns all parameters, and releases the file.

        If one raises an error, the parameters before it stay, so that a later call can go on.
        """
        if len(self.params) == len(self.tensors):
            return self.params
        work = progress(f"reading {amount(len(self.tensors), 'parameter')}")
        with work, self._lock, ThreadPoolExecutor(1 if self.shardings else READERS) as executor:
            by_name, missing = self._by_name(), [name for name in self.tensors if name not in self.params]
            arrays = executor.map(lambda name: by_name[name].read_once(), missing)
            for name, array in zip(missing, arrays, strict=True):
                self.params[name] = array
                self.tensors[name] = dataclasses.replace(self.tensors[name], load=_spent, part=None)
            self._unread_by_name = None
        return self.params

    def for_calls(self, x64: bool) -> CallCache:
        """Returns the parameters for the model's own calls: arrays, or an `Unread` for a parameter still in the file.

        Their types follow the x64 setting of the first use. x64: True for a model that always runs with x64 on; then
        all parameters are read.
        """
        if (x64 and not self.shardings) or len(self.params) == len(self.tensors):
            with x64_on(x64):
                params = self.all()
        else:
            with x64_on(x64), self._lock:
                params = self._by_name()
        self.cache = cache = self.cache.of(params)
        return cache

    def types(self, x64: bool) -> dict[str, Any]:
        """Returns each parameter, or its shape, dtype and sharding while it is in the file. x64: as of `for_calls`."""
        with x64_on(x64), self._lock:
            return {name: type_of(x) for name, x in self._by_name().items()}

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
        with _in_parameter(name):  # raises for a type that JAX does not have
            dtype = as_canonical(np.empty(0, tensor.dtype)).dtype
        kind = jax.ShapeDtypeStruct(tensor.shape, dtype, sharding=self.shardings.get(name))
        return Unread(kind, functools.partial(_read, name, tensor, kind.sharding, x64))


class GivenWeights:
    """Parameters that a caller put into a model, for example with `jax.tree.map`; their leaves may be any objects.

    cache: what calls computed for the parameters.
    """

    def __init__(self, tensors: dict[str, Tensor], params: Any, cache: CallCache | None = None) -> None:
        self.tensors, self.params, self.cache = tensors, params, cache or CallCache({})
        self._is_checked = False

    def all(self) -> Any:
        """Returns the parameters as the caller passed them."""
        return self.params

    def types(self, x64: bool) -> Any:
        """Returns the parameters, which have their types. x64: as of `for_calls`."""
        return self.for_calls(x64).params

    def for_calls(self, x64: bool) -> CallCache:
        """Returns the parameters as JAX arrays. Raises what `matched` raises."""
        if not self._is_checked:
            with x64_on(x64):
                self.cache = self.cache.of(matched(self.params, self.tensors, {}))
            self._is_checked = True
        return self.cache


def _read(name: str, tensor: Tensor, sharding: NamedSharding | None, x64: bool) -> jax.Array:
    # The first use may be inside `jit`, where arrays would be tracers; the parameters outlive the trace.
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
    """Checks the parameters that a caller passes and returns them as JAX arrays; a NumPy array would be static.

    values: the inputs of the call, which may replace some. subject: begins the messages about shapes and types.
    Raises SignatureError for a missing or unknown parameter, ArgumentError or DTypeError for one that is not an array,
    ShapeError or DTypeError for one with another shape or type than the model's.
    """
    if not isinstance(params, Mapping):
        raise SignatureError(f"params is {params!r:.80}; give a dictionary like model.params")
    if params.keys() == tensors.keys():  # the usual case
        return {name: _fitting(subject, name, params[name], tensor) for name, tensor in tensors.items()}
    missing = [name for name in tensors if name not in params and name not in values]
    if missing:
        is_nested = any(isinstance(value, Mapping) for value in params.values())
        hint = "\n  hint    model.flatten makes nested dictionaries flat" if is_nested else ""
        raise SignatureError(f"params: '{missing[0]}' is missing; give all {len(tensors)} of model.params{hint}")
    surplus = [name for name in params if name not in tensors]
    if surplus:
        raise SignatureError(f"params: the model has no '{surplus[0]}'; give the {len(tensors)} of model.params")
    return {name: _fitting(subject, name, params[name], tensor) for name, tensor in tensors.items() if name in params}


def _fitting(subject: str, name: str, value: Any, tensor: Tensor) -> jax.Array:
    """Returns a parameter with the model's shape and type; float32 may represent float64, as in JAX with x64 off."""
    has_type = isinstance(value, jax.Array) and value.dtype == tensor.dtype and value.shape == tensor.shape
    if has_type and tensor.dtype.itemsize < 8:  # the usual case
        return value
    if not isinstance(value, jax.Array):
        with errors_of("params"):
            check_array(name, value)
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
