"""A call with the parameters of an earlier one, and with inputs of the same types, runs its program at once."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np

from jaxops.dtypes import as_canonical, canonical
from jaxops.errors import OutOfRangeError, amount
from jaxops.graph.nodes import Graph, Value
from jaxops.jax_internals import JaxRuntimeError
from jaxops.lazy_array import Unread, is_the_same
from jaxops.number_checks import checks_numbers
from jaxops.opaque import Deferred
from jaxops.runtime.arguments import Given, packer
from jaxops.runtime.auto_axes import any_on_mesh
from jaxops.runtime.recently_used import RecentlyUsed
from jaxops.static import is_concrete, tracing


class SignatureChanged(Exception):
    """Raised by a program that is called with other types or settings than it was specialized for."""


@dataclass(frozen=True)
class Executable:
    """A program that runs at each call: `run(prepared, weights, leaves of the inputs)`.

    weights: the parameters that it reads besides the prepared values. tree: the structure of its results.
    """

    run: Any
    prepared: tuple[Any, ...]
    weights: tuple[Any, ...]
    tree: Any


@dataclass(eq=False)
class CallCache:
    """Everything that calls of a model computed for its parameters. Other parameters get another cache.

    executables: static arguments, shapes and dtypes → the program that ran last for them; it raises `SignatureChanged`
    if another one is needed. prepared: expression → its value. fast_calls: types of the arguments, as the caller passed
    them → the function of such arguments that runs an executable.
    """

    params: Mapping[str, Any]
    executables: RecentlyUsed[Any, Executable] = field(default_factory=RecentlyUsed)
    prepared: dict[str, Any] = field(default_factory=dict)
    fast_calls: RecentlyUsed[Any, Callable[[Given], Any]] = field(default_factory=RecentlyUsed)

    def __reduce__(self) -> Any:
        # Programs cannot be pickled.
        return CallCache, ({},)

    def __str__(self) -> str:
        size = sum(x.nbytes for x in self.prepared.values())
        return f"{amount(len(self.prepared), 'value')} of {amount(size, 'byte')}, computed once from parameters"

    @cached_property
    def concrete(self) -> bool:
        """Returns True if no parameter is traced."""
        return all(isinstance(x, Unread) or is_concrete(x) for x in self.params.values())

    @cached_property
    def on_mesh(self) -> bool:
        """Returns True if a parameter is on a mesh."""
        values = self.params.values()
        return any_on_mesh(values) or any(isinstance(x, Unread) and x.type.sharding is not None for x in values)

    def of(self, params: Mapping[str, Any]) -> "CallCache":
        """Returns the cache of these parameters: this one, or an empty one."""
        return self if self.has(params) else CallCache(dict(params))

    def has(self, params: Mapping[str, Any]) -> bool:
        """Returns True if these are the parameters of the cache; some may have been read from the file since."""
        if len(params) != len(self.params):
            return False
        if not all(map(operator.is_, params.values(), self.params.values())):
            if not all(map(is_the_same, params.values(), self.params.values())):
                return False
            self.params = dict(params)
        return True

    def remember(
        self, executable: Executable, graph: Graph, given: Given, bound: Mapping[str, Any], outputs: list[Any]
    ) -> None:
        """Adds a fast call, if inputs need no conversion but that to 32 bits, and outputs need none.

        bound: the inputs by name, after conversion.
        """
        names, inputs = list(given.named or bound), _inputs(given)
        if not inputs or len(inputs) != len(bound) or bound.keys() != {*names} or not all(map(_is_array, inputs)):
            return
        changed = [k for k, name in enumerate(names) if inputs[k] is not bound[name]]
        if not all(_is_narrowed(inputs[k], bound[names[k]]) for k in changed):
            return
        tree = executable.tree
        by_name = jax.tree.unflatten(tree, range(tree.num_leaves))[1]
        positions = [by_name.get(name) for name in graph.output_names]  # of the outputs among the results
        are_results = all(isinstance(k, int | Deferred) for k in positions)
        if not (are_results and all(map(_is_declared, graph.outputs, outputs))):
            return
        order, packed = [names.index(name) for name in sorted(names)], packer(graph.outputs)
        run, prepared, weights = executable.run, executable.prepared, executable.weights

        def again(given: Given) -> Any:
            inputs = _inputs(given)
            leaves = [as_canonical(inputs[k]) if k in changed else inputs[k] for k in order]
            results = run(prepared, weights, leaves if given.rng is None else [*leaves, given.rng])
            return packed([results[k] if isinstance(k, int) else k.value_of(results[k.array]) for k in positions])

        self.fast_calls[_kinds(given)] = again

    def call_again(self, given: Given) -> Any:
        """Returns the result of a fast call for these arguments; None if there is none.

        Checking inputs and outputs takes longer than a small program, and most calls have the types of an earlier one.
        """
        try:
            again = self.fast_calls.used(_kinds(given))
        except (AttributeError, TypeError):  # inputs that are not arrays
            return None
        if again is None or cast(Any, jax.config).jax_disable_jit or checks_numbers() or tracing():
            return None
        try:
            return again(given)
        except OutOfRangeError:  # the usual path raises it with the name of the input
            return None
        except (SignatureChanged, JaxRuntimeError):
            self.fast_calls.clear()
            return None


def _inputs(given: Given) -> Sequence[Any]:
    return [*given.named.values()] if given.named else given.inputs


def _kinds(given: Given) -> tuple[Any, ...]:
    return (*given.named, *map(_kind, _inputs(given)), given.rng is not None and _kind(given.rng))


def _kind(x: Any) -> tuple[Any, ...]:
    return type(x), x.shape, x.dtype


def _is_array(x: Any) -> bool:
    return is_concrete(x) or type(x) is np.ndarray


def _is_narrowed(x: Any, entered: Any) -> bool:
    """Returns True if an input was converted by `as_canonical`."""
    return type(x) is type(entered) is np.ndarray and entered.dtype == canonical(x.dtype) != x.dtype


def _is_declared(formal: Value, y: Any) -> bool:
    if isinstance(y, Deferred):
        return formal.kind != "tensor" or formal.dtype in (None, getattr(y, "dtype", None))
    return is_concrete(y) and (formal.dtype is None or y.dtype in (formal.dtype, canonical(formal.dtype)))
