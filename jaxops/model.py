"""A loaded model: a pure JAX function of `(params, *inputs)`, and its compiled form."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax.export

from jaxops.dtypes import canonical
from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.graph.data_dependence import expected_cuts
from jaxops.graph.declared_sizes import separated
from jaxops.graph.interpreter import unwrap
from jaxops.graph.nodes import Graph, Tensor
from jaxops.graph.origin import Origin
from jaxops.graph.parameters import Choice, prepare, renamed
from jaxops.graph.static_analysis import StaticInputs, marked_inputs
from jaxops.memory import LIMIT
from jaxops.runtime.compiled_pieces import GraphRunner
from jaxops.runtime.model_structure import ModelStructure, again, register_model
from jaxops.runtime.parameter_values import GivenWeights, Weights, matched
from jaxops.runtime.specialized_pair import Pair
from jaxops.runtime.stateful_function import StateMethods
from jaxops.runtime.x64 import portable, restored, under_its_x64
from jaxops.signature_errors import explained
from jaxops.tools.convert.astype import Keep, narrowed
from jaxops.tools.convert.sharding_rules import Rule, shardings
from jaxops.tools.export.exporting import export
from jaxops.tools.inspect.compare import Comparison, compare, names_of
from jaxops.tools.inspect.node_listing import listing
from jaxops.tools.inspect.overview import heading, model_overview
from jaxops.tools.inspect.parameter_paths import Paths, flat, nested, paths
from jaxops.tools.inspect.summary import Summary, example, summarize, symbolic, timed, traced
from jaxops.tools.inspect.tables import Report, Table
from jaxops.tools.plot.drawing import Plot, plot
from jaxops.tools.python.source import to_python


class Model(StateMethods, Report):
    """A model as a JAX function.

    `model.apply(params, *inputs, **named)` is the pure function, to be jitted, differentiated, vmapped or exported;
    `model(*inputs, **named)` is that with the model's own parameters. Both are compiled, once per shape of the inputs
    and value of the static ones; inside a transformation they become part of its program, and under `jax.disable_jit`
    they run node by node. A model is a pytree whose leaves are `model.params`, as in
    `jax.jit(lambda model, x: model(x))(model, x)`. Inputs come in the order of `model.inputs`, by name, or as one
    dictionary. One output is returned alone, several as a namedtuple in the order of the graph. Outside transformations
    an output that depends on no traced value (a shape) is a NumPy array, of 64 bits. A model can be copied and pickled.

    params: the weights, a flat dict of arrays under the model's names; read at the first use, in the types of that
    moment's x64 setting, or as declared if `x64` (see `load`); scalars are not parameters. trainable: which to train.
    state: the variables of a model that has such, see `init` and `step`; no input is one of them.
    inputs, outputs: name, shape with symbolic names, dtype; an input whose `static` is not empty must be given
    as a NumPy value, and each new value of it compiles anew. One that `decides` which branch is taken may be given as
    a NumPy value or a Python number, so that only that branch is compiled, or as a JAX array.
    graph: the nodes; opsets: the version of each set of operators.
    cuts: the nodes before which a call is cut into compiled pieces, and why; none where all sizes follow from those of
    the inputs. A branch or a loop that must be cut is found when a call is traced.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        opsets: Mapping[str, int],
        description: str,
        runner: GraphRunner | None = None,
        origin: Origin | None = None,
        static: Choice | None = None,
        trainable: Choice | None = None,
        names: str = "file",
        sharding: Rule | None = None,
        x64: bool | Callable[[Graph, Mapping[str, Tensor], Mapping[str, bool]], bool] = False,
    ) -> None:
        """description: a line about the file. runner: runs it. origin: the place that it was read from. x64: or what
        decides it from the prepared graph, the parameters, and which inputs are static. The others: as in `load`."""
        if not isinstance(names, str) or names not in ("file", "module"):
            raise ArgumentError(f"`names` is {names!r}; it must be 'file' or 'module'")
        formals = marked_inputs(graph, needs := StaticInputs())
        self.opsets, self._description = dict(opsets), description
        self._defaults = tuple(v for v in formals if v.name in graph.initializers)
        self.graph, self._constants = prepare(graph, needs.of, static, trainable)
        self._declare(tuple(v for v in formals if v.name not in graph.initializers), graph.outputs)
        self._by_path = names == "module"
        if self._by_path:
            paths = self._named.names
            self.graph, self._constants = renamed(self.graph, paths), self._constants.renamed(paths)
        self._tensors = self._constants.tensors
        self._written = {name: tensor.dtype for name, tensor in self._tensors.items()}
        self._shardings = {} if sharding is None else shardings(self._tensors, self._key_paths, sharding)
        self._origin, self._weights = origin, Weights(self._tensors, self._shardings)
        facts = {v.name: bool(v.static) for v in formals}
        self.x64: bool = x64 if isinstance(x64, bool) else x64(self.graph, self._tensors, facts)
        self._function = self._function_by(runner or GraphRunner(LIMIT.get()))
        self._expected_cuts = expected_cuts(self._function.part(), facts)

    @property
    def cuts(self) -> Mapping[str, str]:
        """Node → why a call is cut there."""
        return MappingProxyType({**self._expected_cuts, **self._function.runner.cuts})

    def __getstate__(self) -> dict[str, Any]:
        attributes = {name: value for name, value in self.__dict__.items() if name != "_structure"}
        return attributes | {"_weights": portable(self.params)}  # read: the file may be gone when the copy is used

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._weights = GivenWeights(self._tensors, restored(state["_weights"]))

    @property
    @under_its_x64
    def params(self) -> dict[str, jax.Array]:
        """The weights under their names, read at the first use."""
        return self._weights.all()

    @functools.cached_property
    @under_its_x64
    def trainable(self) -> dict[str, bool]:
        """The keys of `params`, and whether gradient descent should change each: not so running statistics, masks,
        tables that nodes generate, and integers, which `jax.grad` refuses: give it the params whose value here is True,
        and the others apart. For `optax.masked` and `equinox.partition`."""
        return self._constants.trained(self.params)

    def apply(
        self,
        params: Mapping[str, Any],
        /,
        *inputs: Any,
        rng: jax.Array | None = None,
        outputs: Sequence[str] | None = None,
        **named: Any,
    ) -> Any:
        """The pure function: outputs for these parameters and inputs.

        params: as `model.params`. rng: a `jax.random` key, for models with random operators. outputs: the names of the
        tensors to return, any of the graph, in place of its own outputs.

        Where the size of a result depends on data, the model is cut there into compiled pieces; `print(model)` shows
        where. Inside a transformation, where no data can be read, that is an error.

        Raises SignatureError for a missing, surplus or unknown input, parameter or output, ShapeError, DTypeError, and
        StaticError for a tracer where a static value is needed.
        """
        return self._function.apply(params, inputs, named, rng, outputs)

    def __call__(
        self, /, *inputs: Any, rng: jax.Array | None = None, outputs: Sequence[str] | None = None, **named: Any
    ) -> Any:
        """As `apply`, but for rounding, with the model's own parameters; values computed from these alone are kept."""
        weights = self._weights.for_calls(self.x64)
        return self._function.call(weights, inputs, named, rng, outputs, prepares=not self._shardings)

    @explained
    def specialize(
        self,
        /,
        *inputs: Any,
        rng: jax.Array | None = None,
        outputs: Sequence[str] | None = None,
        transformable: bool = False,
        **named: Any,
    ) -> Pair:
        """The model as two pure functions, `prepare, run`, for the types of these inputs: `run(prepare(params), …)`
        computes what `apply(params, …)` does, but for rounding, as fast as `model(…)`, also inside your own `jit`.

        inputs, named: as in a call, or a `jax.ShapeDtypeStruct` for each; static ones are a part of the program. rng: a
        key if `run` gets one. outputs: as in `apply`. `prepare` computes what depends on the parameters alone, such as
        filters in another layout; its result is a pytree. transformable: whether JAX may differentiate and map both,
        which leaves out forms without derivative or batching rule. Both run on all platforms, fast on that of JAX here.

        Raises what `apply` raises inside of `jit`. `run` raises ShapeError and DTypeError for inputs of other types,
        and UnsupportedError where JAX transforms it without `transformable`.
        """
        return self._function.specialize(inputs, named, rng, outputs, transformable)

    def with_params(self, params: Mapping[str, Any]) -> "Model":
        """The model with other parameters, which its calls check and prepare; or with anything in their places:
        `equinox.partition(model, model.with_params(model.trainable))` takes apart what to train."""
        return self._structure.with_params(params)

    @functools.cached_property
    def _structure(self) -> ModelStructure:
        types = {name: (t.dtype, t.shape) for name, t in self._tensors.items()}
        facts = self.graph, self._formals, self._defaults, types, self._constants.trainable, self._by_path, self.x64
        return ModelStructure(self, *facts, repr(self._shardings))

    @explained
    @under_its_x64
    def save(self, path: str | os.PathLike[str], params: Mapping[str, Any] | None = None) -> None:
        """Writes the file that the model came from with other weights; other runtimes run it to the same answer.

        params: as `model.params`, the default. Each weight goes where it came from, in the type that the file has, also
        after `astype`. Weights of more than 2 GB, or of a file that keeps them beside it, go to a second file.
        Raises SignatureError for a missing or unknown parameter, ShapeError and DTypeError for one that does not fit,
        UnsupportedError for a model that came from no file, ArgumentError for an IR's path without .xml.
        """
        if self._origin is None:
            raise UnsupportedError("save: the model came from no file; only what `load` read can be saved")
        self._origin.save(path, self.graph, self._own_or("save", params), self._written, self.params)

    @explained
    @under_its_x64
    def to_python(
        self, folder: str | os.PathLike[str], params: Mapping[str, Any] | None = None, *, overwrite: bool = False
    ) -> None:
        """Writes the model as a Python package to be read and edited: a function for each module, calls of `jaxops`.

        Its `apply(params, *inputs)` does what `model.apply` does, without onnx (but for an old operator that no newest
        one says). Variables are its last inputs, and their next values its last outputs, as in `export`. params: as
        `model.params`, the default; they go to 'params.safetensors', under the paths of the modules, and
        `load_params()` reads them. overwrite: also a folder that it did not write, or that was edited.
        Raises ExistsError (a FileExistsError) for such a folder; SignatureError, ShapeError and DTypeError as `save`,
        and UnsupportedError for a node that no call of public operators says.
        """
        weights = self._own_or("to_python", params)
        to_python(folder, self.graph, self._formals, weights, self._description, x64=self.x64, overwrite=overwrite)

    @explained
    @under_its_x64
    def astype(self, dtype: Any, *, keep: Keep | None = None) -> "Model":
        """The model in bfloat16 or float16: floating-point parameters, inputs and outputs have that type.

        keep: which nodes compute in float32, as a function of a node's label and the name of its operator; without it,
        normalizations, also those spelled out in several nodes, softmax, losses and means: see their `Traits`. Casts
        are inserted around these nodes. A finite number beyond the type's range becomes its largest.
        Raises ArgumentError for another type.
        """
        narrow = narrowed(self.graph, self._formals, self._defaults, self._tensors, self._weights.params, dtype, keep)
        model = again(self)
        model.__dict__.pop("_structure", None)
        model.graph = narrow.graph
        model._declare(narrow.inputs, narrow.outputs)
        model._defaults, model._tensors = narrow.defaults, narrow.tensors
        model._weights = Weights(narrow.tensors, self._shardings, narrow.params)
        model._constants = dataclasses.replace(self._constants, tensors=narrow.tensors)
        model._function = model._function_by(self._function.runner.uncompiled())
        return model

    def _own_or(self, caller: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
        return self.params if params is None else matched(params, self._tensors, {}, caller)

    @explained
    @under_its_x64
    def export(
        self, sizes: Mapping[str, int | str] | None = None, platforms: Sequence[str] | None = None
    ) -> jax.export.Exported:
        """One program of `(params, *inputs)` for many sizes, to be serialized and run without jaxops.

        It returns one output as it is, several as a tuple. Its inputs come in the order of `model.inputs`; optional
        ones are left out. `model.params` has its parameters.

        sizes: the name of a size → a number, which fixes it, or its name in the program, with limits:
        `{"batch": "b", "sequence": "s <= 512, s >= 2", "total": "past + s"}`. A size that is not in it stays symbolic
        under its own name; one that has no name gets that of its input and axis, such as `x_0`. So does one whose name
        another input has, where no node makes the two meet, or where `sizes` says so: `{"x_0": "other"}`. Where the
        model can run for some sizes only (`s <= 512` for a table of 512 positions, `total == past + s`), or asks
        whether a size is 1 (`s >= 2`, as the other sizes are many), the program has that limit too, and refuses others
        when called.
        platforms: such as ("cpu", "cuda"); by default the platform of JAX here.
        Raises ArgumentError for an unknown size or platform; SizeError, which names the node and a size to fix, where
        one program cannot serve all sizes; StaticError for an input that must be static.
        """
        return export(self.apply, separated(self.graph, self._formals, sizes or ()), self._tensors, sizes, platforms)

    @property
    def paths(self) -> dict[str, str]:
        """Name in the file → module path: of each parameter, `encoder.layer.0.fc`, and of each node that has a module.

        Paths of parameters differ from each other. A name that is a path already stays as it is; else the node that
        uses the parameter says it, by its name or metadata.
        """
        return {n.name: n.scope for n in self.graph.nodes if n.name and n.scope} | self._named.names

    @property
    def tied(self) -> dict[str, str]:
        """Further paths of parameters that the file holds once for several modules → the path that `paths` gives.

        Weights that share memory are tied, and so are weights that were merely equal when PyTorch exported them.
        """
        return dict(self._named.tied)

    @explained
    def nest(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters, or their gradients, as dictionaries in dictionaries: `{"encoder": {"layer": {"0": …}}}`.

        params: with keys of `model.params`. Raises SignatureError for another.
        """
        return nested(params, self._key_paths)

    @explained
    def flatten(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The inverse of `nest`: a flat dictionary with the keys of `model.params`.

        Raises SignatureError for a path that the model does not have.
        """
        return flat(params, self._key_paths)

    @functools.cached_property
    def _named(self) -> Paths:
        """The paths of the parameters, from the file's names; read before `names="module"` replaces these."""
        return paths(self.graph)

    @property
    def _key_paths(self) -> dict[str, str]:
        """The keys of `params` → their paths."""
        return {path: path for path in self._tensors} if self._by_path else self._named.names

    @explained
    @under_its_x64
    def compare(self, /, *inputs: Any, rtol: float = 1e-3, atol: float = 1e-5, **named: Any) -> Comparison:
        """Runs the format's own runtime, such as onnxruntime, beside jaxops and compares every tensor.

        inputs, named: as in a call; a model with variables takes `state=` too.
        The report has a row for each tensor, `first`, the first that differs, and `agrees`. Tensors after a node that
        draws random numbers, or whose size `bounds` fix, are left out of the comparison. Raises ModuleNotFoundError
        without that runtime, UnsupportedError for a model that it does not run, or that came from no file.
        """
        if self._origin is None:
            raise UnsupportedError("compare: the model came from no file; only what `load` read can be compared")
        values = self._function.bind_inputs(inputs, named)
        theirs = self._origin.tensors(unwrap(values), {v.name: v.dtype for v in self.graph.inputs})
        return compare(self.graph, self._every_tensor(values), theirs, rtol=rtol, atol=atol)

    @explained
    @under_its_x64
    def summary(
        self, /, *inputs: Any, depth: int = 2, sizes: Mapping[str, int] | None = None, time: bool = False, **named: Any
    ) -> Summary:
        """A table by module: what comes out, parameters, operations (FLOPs) and, with `time`, seconds.

        inputs: examples; without them, `sizes` says the symbolic sizes, {"batch": 8}; the others are the smallest that
        fit. depth: how many levels of modules. time: measures each module on the inputs, compiled alone and called with
        the tensors it gets in the model, the best of ten calls. XLA cannot fuse across modules then.
        Raises ArgumentError for a size that the model does not have, where none fit, or for `time` without inputs.
        """
        values = self._examples("summary", inputs, named, sizes)
        if time and not (inputs or named):
            raise ArgumentError("summary: `time` needs example inputs")
        every = functools.cache(lambda: self._every_tensor(values)) if inputs or named else None
        title = f"{self.graph.name or 'model'} · {self._description}"
        graph = self._function.part()
        table = summarize(graph, self._shapes, values, depth=depth, title=title, computed=every)
        return timed(table, graph, self.params, {**unwrap(values), **every()}, depth) if time and every else table

    @explained
    @under_its_x64
    def plot(self, /, *inputs: Any, depth: int = 2, sizes: Mapping[str, int] | None = None, **named: Any) -> Plot:
        """A picture of the modules, as SVG: a notebook shows it, `save("model.svg")` writes it.

        depth: how many levels of modules show their contents. Arrows say shapes: those of the example inputs or of
        `sizes`, as in `summary`; without either, with the names of the symbolic sizes, where they can be followed.
        Raises ModuleNotFoundError without igraph (the extra `plot`).
        """
        graph = self._function.part()
        if inputs or named or sizes:
            shapes = traced(graph, self._shapes, self._examples("plot", inputs, named, sizes))[0]
        else:
            shapes = symbolic(graph, self._shapes, self._formals)
        return plot(graph, self._tensors, shapes, depth=depth)

    @explained
    def show(self, *, grep: str = "", head: int | None = None) -> str:
        """The model as text: inputs, outputs, and a line for each node, with small constants in place.

        grep: a regular expression; only nodes whose text it matches. head: how many of them at most.
        Raises ArgumentError for an invalid regular expression.
        """
        lines = heading(self.graph, self._description, self._formals, self._tensors, self.cuts)
        lines += [f"  prepared  {p}"] if (p := self._function.runner.prepared).values else []
        return "\n".join([*lines, *listing(self.graph, grep, head)])

    @under_its_x64
    def _examples(self, op: str, inputs: Sequence[Any], named: Any, sizes: Any, arrays: Any = None) -> dict[str, Any]:
        """Inputs as a call gets them, or shapes in their place. arrays: arrays that say some of these, by name."""
        if not (inputs or named):
            return example(self._function.part(), self._shapes, self._formals, sizes or {}, op, arrays or {})
        if sizes:
            raise ArgumentError(f"{op}: give example inputs or `sizes`, not both")
        return self._function.bind_inputs(inputs, named)

    @property
    def _shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The shapes and types of the parameters, none of which is read."""
        return {name: jax.ShapeDtypeStruct(t.shape, canonical(t.dtype)) for name, t in self._tensors.items()}

    def _every_tensor(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors of all nodes, by name."""
        return self._function.tensors(names_of(self.graph), values, self.params)

    __str__ = show

    def _table(self) -> Table:
        return model_overview(self.graph, self._description, self._formals, self._tensors, self.cuts)


register_model(Model)
