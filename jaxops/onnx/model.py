"""A loaded model: a pure JAX function of `(params, *inputs)`, and its compiled form."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_traced, canonical
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, StaticError, describe
from jaxops.onnx.bind import bind
from jaxops.onnx.demand import demand
from jaxops.onnx.graph import Graph, Value
from jaxops.onnx.params import partition
from jaxops.onnx.read import Readable, read
from jaxops.onnx.trace import run
from jaxops.static import StaticValue, Tracer, is_static, is_symbolic, tracing


def load(model: Readable) -> "Model":
    """Loads an ONNX model as a JAX function.

    model: the path of a file, its bytes, or a ModelProto. External data is looked for beside the file, checked
    now and read when `Model.params` is first used.
    Raises FileNotFoundError; ModelError for a file that is damaged, not sorted, or whose external data is missing or
    outside its folder; UnsupportedError with a list of all operators that jaxops does not have; SignatureError
    and others for nodes that their opset does not allow.
    """
    source = read(model)
    graph = bind(source)
    demanded = demand(graph)
    return Model(graph, demanded, opsets=source.opsets, producer=source.producer)


class Model:
    """An ONNX model as a JAX function.

    `model(*inputs, **named)` runs it compiled; `model.apply(params, *inputs, **named)` is the pure function, to be
    jitted, differentiated, vmapped or exported; outside `jit` it runs operator by operator. One output is
    returned as it is, several as a tuple in the order of the graph. Outside transformations an output that does
    not depend on traced values (a shape) is a NumPy array, of 64 bits.

    params: the weights, a flat dict of arrays under the ONNX names; read at the first use, in the types of that
    moment's x64 setting.
    inputs, outputs: name, shape with symbolic names, dtype; an input whose `static` is not empty must be given
    as a NumPy value, and each new value of it compiles anew.
    """

    def __init__(self, graph: Graph, demanded: Mapping[str, str], *, opsets: Mapping[str, int], producer: str) -> None:
        defaults = set(graph.initializers)
        formals = tuple(
            dataclasses.replace(v, static="it holds strings" if v.dtype == object else demanded.get(v.name, ""))
            for v in graph.inputs
        )
        self.inputs: tuple[Value, ...] = tuple(v for v in formals if v.name not in defaults)
        self.outputs: tuple[Value, ...] = graph.outputs
        self.opsets = dict(opsets)
        self._producer = producer
        self._defaults = {v.name: v for v in formals if v.name in defaults}
        self.graph, self._static, self._tensors = partition(graph, demanded)
        self._compiled = jax.jit(self._run)

    @functools.cached_property
    def params(self) -> dict[str, jax.Array]:
        """The weights under their ONNX names, read at the first use."""
        found = {}
        with jax.ensure_compile_time_eval():  # the first use may be inside `jit`, and they outlive it
            for name, tensor in list(self._tensors.items()):
                found[name] = as_traced(tensor.load())
                self._tensors[name] = dataclasses.replace(tensor, load=_spent)  # lets go of the file's bytes
        return found

    def apply(self, params: Mapping[str, Any], /, *inputs: Any, rng: jax.Array | None = None, **named: Any) -> Any:
        """The pure function: outputs for these parameters and inputs.

        params: as `model.params`. inputs: in the order of `model.inputs`, or by name. rng: a `jax.random` key, for
        models with random operators.
        Raises SignatureError for a missing, surplus or unknown input or parameter, ShapeError, DTypeError, and
        StaticError for a tracer where a static value is needed.
        """
        values = self._border(inputs, named)
        return _leave(self._walk(params, values, rng), (params, values))

    def __call__(self, /, *inputs: Any, rng: jax.Array | None = None, **named: Any) -> Any:
        """Runs the model compiled, once per shape of the inputs and value of the static ones; as `apply` else."""
        values = self._border(inputs, named)
        return _leave(_opened(self._compiled(self.params, values, rng)), values)

    def _run(self, params: Mapping[str, Any], values: Mapping[str, Any], rng: Any) -> tuple[Any, ...]:
        """What is compiled. Static outputs leave it as `StaticValue`, which `jit` hands through."""
        outputs = tuple(self._walk(params, values, rng))
        outputs = jax.tree.map(lambda y: as_traced(y) if is_symbolic(y) else y, outputs)
        return jax.tree.map(lambda y: StaticValue(y) if isinstance(y, np.ndarray) else y, outputs)

    def _walk(self, params: Mapping[str, Any], values: Mapping[str, Any], rng: Any) -> list[Any]:
        missing = [name for name in self._tensors if name not in params and name not in values]
        if missing:
            raise SignatureError(f"params: '{missing[0]}' is missing; give all {len(self._tensors)} of model.params")
        surplus = [name for name in params if name not in self._tensors]
        if surplus:
            raise SignatureError(
                f"params: the model has no '{surplus[0]}'; give the {len(self._tensors)} of model.params"
            )
        given = _opened(dict(values))
        # A model turns its parameters into JAX arrays too; else NumPy ones would work here and fail under `jit`.
        weights = {name: as_traced(params[name]) for name in self._tensors if name in params}
        return run(self.graph, {**self._static, **weights, **given}, rng)

    def _border(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name: JAX arrays, but for the static ones, which become `StaticValue`."""
        names = [value.name for value in self.inputs]
        if len(inputs) > len(names):
            raise SignatureError(f"the model has {len(names)} inputs {names}, but {len(inputs)} were given")
        given = dict(zip(names, inputs, strict=False))
        for name, value in named.items():
            if name in given:
                raise SignatureError(f"input '{name}' was given twice, by position and by name")
            if name not in names and name not in self._defaults:
                raise SignatureError(f"the model has no input '{name}'; its inputs are {names}")
            given[name] = value
        missing = [v.name for v in self.inputs if v.name not in given and v.kind != "optional"]
        if missing:
            raise SignatureError(f"input '{missing[0]}' is missing; the inputs are {names}")
        formals = {**self._defaults, **{v.name: v for v in self.inputs}}
        return {name: _enter(formals[name], given.get(name)) for name in formals if name in given or name in names}

    def __str__(self) -> str:
        opsets = ", ".join(f"{domain or 'ai.onnx'} {n}" for domain, n in self.opsets.items())
        size = sum(int(np.prod(t.shape)) for t in self._tensors.values())
        head = [f"model {self.graph.name or '(unnamed)'} · opset {opsets}"]
        head[0] += f" · {self._producer}" if self._producer else ""
        head.append(f"  {len(self.graph.nodes)} nodes, {len(self._tensors)} parameters with {size:,} elements")
        for value in self.inputs:
            head.append(f"  in   {value}" + (f"  static: {value.static}" if value.static else ""))
        head += [f"  out  {value}" for value in self.outputs]
        head += [f"  {line}" for node in self.graph.nodes for line in str(node).splitlines()]
        return "\n".join(head)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, values)) for values in (self.inputs, self.outputs))
        return f"<jaxops.onnx.Model {self.graph.name!r}: ({inputs}) → ({outputs}), {len(self.graph.nodes)} nodes>"


def _leave(outputs: Sequence[Any], given: Any) -> Any:
    """The outputs as the caller gets them: one as it is, several as a tuple; static ones are NumPy arrays.

    Inside a transformation they become JAX arrays here, where a number that does not fit raises: `jit` would cut it.
    """
    inside = tracing() or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(given))
    traced = jax.tree.map(lambda y: as_traced(y) if inside or is_symbolic(y) else y, tuple(outputs))
    return traced[0] if len(traced) == 1 else traced


def _opened(values: Any) -> Any:
    """Values, also in sequences, with what each `StaticValue` holds in its place."""
    return jax.tree.map(
        lambda v: v.value if isinstance(v, StaticValue) else v, values, is_leaf=lambda v: isinstance(v, StaticValue)
    )


def _spent() -> np.ndarray:
    raise AssertionError("a parameter is read once")


def _enter(formal: Value, value: Any) -> Any:
    """One input at the border: checked against what the model declares, then a JAX array or a `StaticValue`."""
    if value is None:
        if formal.kind == "optional":
            return None
        raise SignatureError(f"input '{formal.name}' is None; the model expects {formal}")
    if formal.kind != "tensor" and isinstance(value, list | tuple):
        inner = dataclasses.replace(formal, kind="tensor")
        return [_enter(inner, item) for item in value]
    if isinstance(value, StaticValue):
        return value
    if not isinstance(value, jax.Array | np.ndarray | np.generic):
        value = _numbers(formal, value)
    _check_dtype(formal, value)
    _check_shape(formal, value.shape)
    if not formal.static:
        return as_traced(value)
    if isinstance(value, Tracer):
        raise StaticError(
            f"input '{formal.name}' must be known while tracing, but {describe(value)} is traced\n"
            f"  needed  {formal.static}\n"
            f"  hint    give it as a NumPy array; under jax.jit close over it or use static_argnames"
        )
    # A concrete 32-bit JAX array may stand for 64 bits; what is static has them.
    return StaticValue(np.asarray(value, formal.dtype))


def _numbers(formal: Value, value: Any) -> np.ndarray:
    """Python numbers as an array of the type that the model declares."""
    try:
        found = np.asarray(value)
        if found.dtype.kind in "fc" and formal.dtype is not None and "float" not in formal.dtype.name:
            raise TypeError(f"it holds {found.dtype.name}")
        return found if formal.dtype is None else np.asarray(value, formal.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"input '{formal.name}' is {value!r:.80}, but the model expects {formal}"
        raise ArgumentError(f"{problem}: {str(error).splitlines()[0]}") from error


def _check_dtype(formal: Value, value: Any) -> None:
    if formal.dtype is None:
        return
    if formal.dtype == object:
        fits = is_static(value) and value.dtype.kind in "USTO"
    else:
        fits = value.dtype == formal.dtype
        fits = fits or (isinstance(value, jax.Array) and value.dtype == canonical(formal.dtype))
    if not fits:
        raise DTypeError(f"input '{formal.name}' is {describe(value)}, but the model expects {formal}")


def _check_shape(formal: Value, sizes: tuple[Any, ...]) -> None:
    if formal.shape is None:
        return
    fits = len(sizes) == len(formal.shape)
    fits = fits and all(not isinstance(want, int) or want == got for want, got in zip(formal.shape, sizes, strict=True))
    if not fits:
        raise ShapeError(f"input '{formal.name}' has shape {tuple(sizes)}, but the model expects {formal}")
