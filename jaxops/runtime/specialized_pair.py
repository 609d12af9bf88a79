"""`model.specialize`: a pair of pure functions for a user's own program. One prepares parameters, one runs a call."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np
from jax.custom_batching import custom_vmap
from jax.sharding import NamedSharding

from jaxops.compiler import pipeline
from jaxops.compiler.ir import reads_tracers
from jaxops.compiler.run.specialized import Specialized
from jaxops.dtypes import canonical
from jaxops.errors import DTypeError, ShapeError, SignatureError, UnsupportedError, describe
from jaxops.graph.nodes import Tensor
from jaxops.kernels.target import this_machine
from jaxops.runtime.arguments import Given, InputBinder, undeferred
from jaxops.runtime.auto_axes import any_on_mesh, auto_axes, under_auto_axes
from jaxops.runtime.parameter_values import matched
from jaxops.runtime.parts_of_weights import Piece, in_pieces
from jaxops.runtime.x64 import in_64_bits, is_on, x64_on
from jaxops.static import StaticValue, Tracer, tracing


class Prepared(NamedTuple):
    """The result of `prepare` of a specialized model, for `run`: a pytree.

    values: arrays that were computed from parameters alone. params: the parameters that `run` reads unchanged, by name.
    """

    values: tuple[Any, ...]
    params: dict[str, Any]


class Pair(NamedTuple):
    """Two pure functions: `run(prepare(params), *inputs)` returns the outputs of the model.

    >>> import jaxops.onnx
    >>> model = jaxops.onnx.load("notebooks/digits.onnx")
    >>> image = np.load("notebooks/seven.npy")
    >>> pair = model.specialize(image)
    >>> pair.run(pair.prepare(model.params), image).argmax(-1).tolist()
    [7]
    """

    prepare: Callable[[Mapping[str, Any]], Prepared]
    run: Callable[..., Any]


class SpecializedModel:
    """Holds the functions of a `Pair`. A copy by `pickle` traces the model again for the same types of inputs.

    specialize: a function of (given, transformable) that can be pickled and returns `Functions`.
    """

    def __init__(self, specialize: Callable[[Given, bool], "Functions"], given: Given, transformable: bool) -> None:
        self._specialize, self._given, self._transformable = specialize, given, transformable
        self._given = self._functions.given  # types in place of arrays

    @cached_property
    def _functions(self) -> "Functions":
        return self._specialize(self._given, self._transformable)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_functions"}

    def prepare(self, params: Mapping[str, Any]) -> Prepared:
        """Returns the prepared parameters for `run`. params: a dictionary like `model.params`."""
        return self._functions.prepare(params)

    def run(self, prepared: Prepared, /, *inputs: Any, rng: Any = None, **named: Any) -> Any:
        """Returns the outputs of a call. prepared: the result of `prepare`. The inputs must have the types for which
        the pair is specialized."""
        return self._functions.run(prepared, *inputs, rng=rng, **named)


class Functions(NamedTuple):
    """The functions of a pair, and the types of the inputs that they take."""

    prepare: Callable[[Mapping[str, Any]], Prepared]
    run: Callable[..., Any]
    given: Given


def specialize(
    fn: Callable[[Mapping[str, Any], Mapping[str, Any], Any], Any],
    binder: InputBinder,
    tensors: Mapping[str, Tensor],
    given: Given,
    x64: bool,
    transformable: bool,
    as_it_is: bool,
    places: Mapping[str, NamedSharding],
) -> Functions:
    """Traces a function of (parameters, inputs, key) for the types of these inputs, and splits it into two functions.

    binder: checks the inputs. tensors: the parameters. given: arrays, or a `jax.ShapeDtypeStruct` for each. x64:
    whether the function runs with x64 on. transformable: whether JAX can transform both. as_it_is: whether the program
    stays unchanged; for long graphs, which are compiled in sections. places: of the parts of weights on a mesh.
    """
    with x64_on(x64):
        inputs = binder.bind_inputs(*jax.tree.map(_example, (given.inputs, given.named)))
        examples = jax.tree.map(_type, (inputs, given.rng))
        types = {name: jax.ShapeDtypeStruct(t.shape, canonical(t.dtype)) for name, t in tensors.items()}
        closed, results = jax.make_jaxpr(fn, return_shape=True)(types, *examples)
        names = sorted(types)  # as JAX orders the leaves of a dictionary
        if as_it_is or reads_tracers(closed):
            pieces = list(map(Piece, names))
            specialized = pipeline.unchanged(closed, len(names))
        else:
            closed, pieces = in_pieces(closed, names, places)
            target = replace(this_machine(specialized=not transformable, prepared=True), partitioned=True)
            with auto_axes():  # as when it runs
                specialized = pipeline.specialize(closed, len(pieces), target)
    read, result_tree = [pieces[k].name for k in specialized.read], jax.tree.structure(results)
    types = {piece.name: _type(x) for piece, x in zip(pieces, closed.in_avals[: len(pieces)], strict=True)}
    expected = Prepared(specialized.prepare.types, {name: types[name] for name in read})
    on_mesh = partial(under_auto_axes, specialized.prepare, splits=specialized.prepare.splits)
    prepare_traced, call = jax.jit(on_mesh), _call(specialized, transformable)

    def prepare(params: Mapping[str, Any]) -> Prepared:
        with x64_on(x64):
            weights = matched(params, tensors, {})
            weights = {piece.name: piece.of(weights[piece.weight]) for piece in pieces}
        ordered = list(weights.values())
        is_program = tracing() or are_traced(ordered) or any_on_mesh(ordered)
        compute = prepare_traced if is_program else partial(specialized.prepare.cached, {})
        return Prepared(tuple(_in_its_bits(x64, compute, ordered)), {name: weights[name] for name in read})

    def run(prepared: Prepared, /, *inputs: Any, rng: Any = None, **named: Any) -> Any:
        with x64_on(x64):
            arguments = binder.bind_inputs(inputs, named), rng
        _check_prepared(prepared, expected)
        _check_inputs(arguments, examples)
        weights = [prepared.params[name] for name in read]
        results = _in_its_bits(x64, call, prepared.values, weights, jax.tree.leaves(arguments))
        outputs = jax.tree.unflatten(result_tree, results)
        return outputs if tracing() or are_traced(results) else undeferred(outputs)

    of_inputs = {k: v.value if isinstance(v, StaticValue) else v for k, v in examples[0].items() if v is not None}
    return Functions(prepare, run, given._replace(inputs=(), named=of_inputs))


def _call(specialized: Specialized, transformable: bool) -> Callable[..., Any]:
    """Returns the function of (prepared values, parameters, leaves of the inputs) that runs a specialized program."""

    def run(*arguments: Any) -> list[Any]:
        return under_auto_axes(specialized.run, *arguments, like=arguments[2])

    hint = "model.specialize(..., transformable=True) does not use these"
    function = run if transformable else untransformable(run, "specialize: `run`", hint)
    # JAX accepts compiler options only for a program that is not a part of another one.
    alone, inside = jax.jit(function, compiler_options=specialized.options), jax.jit(function)
    return lambda *arguments: (inside if tracing() or are_traced(arguments) else alone)(*arguments)


def untransformable(fn: Callable[..., Any], subject: str, hint: str) -> Callable[..., Any]:
    """Returns the function; it raises UnsupportedError, with a hint, if it is mapped or differentiated."""

    def refuse(*_: Any) -> NoReturn:
        problem = f"{subject} has kernels without a derivative and without a batching rule"
        raise UnsupportedError(f"{problem}\n  hint    {hint}")

    mapped = custom_vmap(fn)
    mapped.def_vmap(refuse)
    function = jax.custom_jvp(mapped)
    function.defjvp(refuse)
    return function


def _in_its_bits(x64: bool, fn: Callable[..., Any], *arguments: Any) -> Any:
    return in_64_bits(fn, *arguments) if x64 and not is_on() else fn(*arguments)


def _example(x: Any) -> Any:
    """Returns an array for a `jax.ShapeDtypeStruct`, a view of one element; any other object as it is."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, jax.ShapeDtypeStruct) else x


def _type(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def are_traced(values: Any) -> bool:
    """Returns True if any array in a pytree is a tracer."""
    return any(isinstance(x, Tracer) for x in jax.tree.leaves(values))


def _check_prepared(prepared: Any, expected: Prepared) -> None:
    """Raises SignatureError if this is not a result of `prepare`, ShapeError or DTypeError if an array does not fit."""
    if not isinstance(prepared, Prepared) or jax.tree.structure(prepared) != jax.tree.structure(expected):
        received = f"a {type(prepared).__name__}"
        raise SignatureError(f"run: the first argument, {received}, is not what `prepare(params)` returns; give that")
    for x, expected_type in zip(jax.tree.leaves(prepared), jax.tree.leaves(expected), strict=True):
        if np.shape(x) != expected_type.shape or x.dtype != expected_type.dtype:
            raise _misfit("run: `prepared` has", x, expected_type)


def _check_inputs(arguments: tuple[Any, Any], examples: tuple[Any, Any]) -> None:
    """Raises ShapeError or DTypeError for inputs of other types, SignatureError for other static ones."""
    (leaves, tree), (expected, expected_tree) = jax.tree.flatten(arguments), jax.tree.flatten(examples)
    if tree != expected_tree:
        raise SignatureError(
            f"run: the inputs are {_told(arguments)}, but the pair is specialized for {_told(examples)}; "
            "specialize another pair for other static values, and for other optional inputs"
        )
    for k, (x, example) in enumerate(zip(leaves, expected, strict=True)):
        if x.shape != example.shape or x.dtype != example.dtype:
            name = jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(arguments)[k][0][1:])
            raise _misfit(f"run: input {name} is" if name else "run: `rng` is", x, example)


def _misfit(subject: str, x: Any, expected: Any) -> ShapeError | DTypeError:
    """Returns the error about an array whose type is not the one that the program is specialized for."""
    kind = ShapeError if np.shape(x) != expected.shape else DTypeError
    wants = f"the pair is specialized for {expected.dtype.name}{list(expected.shape)}; specialize another one"
    return kind(f"{subject} {describe(x)}, but {wants}")


def _told(arguments: tuple[Any, Any]) -> str:
    inputs, rng = arguments
    texts = {k: describe(v.value) if isinstance(v, StaticValue) else "…" for k, v in inputs.items() if v is not None}
    return f"{texts}" + (" with a key" if rng is not None else "")
