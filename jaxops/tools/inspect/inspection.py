"""The methods of a model that look into it: names, tables, pictures, and a comparison with another runtime."""

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import canonical
from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.graph.interpreter import unwrap
from jaxops.graph.nodes import Graph, Tensor, Value
from jaxops.graph.origin import Origin
from jaxops.memory import max_bytes
from jaxops.runtime.model_function import ModelFunction
from jaxops.runtime.parameter_values import GivenWeights, Weights
from jaxops.runtime.training_function import check_infers
from jaxops.runtime.x64 import under_its_x64
from jaxops.signature_errors import explained
from jaxops.tools.inspect.compare import Comparison, compare, names_of
from jaxops.tools.inspect.node_listing import listing
from jaxops.tools.inspect.nonfinite import NonFinite, find_nonfinite
from jaxops.tools.inspect.overview import heading, model_overview
from jaxops.tools.inspect.parameter_paths import Paths, flat, nested, paths
from jaxops.tools.inspect.summary import Summary, example, summarize, symbolic, timed, traced
from jaxops.tools.inspect.tables import Report, Table
from jaxops.tools.plot.drawing import Plot, plot
from jaxops.tools.writing import Writing


class Inspection(Writing, Report):
    """The methods of a model that look into it."""

    graph: Graph
    x64: bool
    inputs: tuple[Value, ...]
    _formals: tuple[Value, ...]
    _tensors: dict[str, Tensor]
    _weights: Weights | GivenWeights
    _function: ModelFunction
    _origin: Origin | None
    _description: str
    _file_graph: Graph
    _written: dict[str, np.dtype]
    _by_path: bool
    _expected_cuts: Mapping[str, str]

    @property
    def cuts(self) -> Mapping[str, str]:
        """The nodes before which a call is cut into compiled pieces: name → operator and reason.

        `load(path, bounds={name: n})` takes the same names. It is empty if all sizes follow from those of the inputs.
        Cuts inside of a branch or a loop are found when a call is traced.

        >>> import jaxops.onnx
        >>> dict(jaxops.onnx.load("notebooks/digits.onnx").cuts)
        {}
        """
        return MappingProxyType({**self._expected_cuts, **self._function.runner.cuts})

    @property
    def paths(self) -> dict[str, str]:
        """The module paths of parameters, such as `encoder.layer.0.fc.weight`, and of nodes, by the names in the file.

        Paths of parameters differ from each other. A name that is a path already stays as it is. Any other path follows
        from the name or the metadata of the node that uses the parameter.

        >>> import jaxops.onnx
        >>> jaxops.onnx.load("notebooks/digits.onnx").paths["onnx::Conv_33"]
        'features.0.weight'
        """
        return {n.name: n.scope for n in self.graph.nodes if n.name and n.scope} | self._named.names

    @property
    def tied(self) -> dict[str, str]:
        """Further paths of parameters that several modules share, each with the path that `paths` gives.

        The file holds such a parameter once: the modules shared it in PyTorch, or had equal weights when they were
        exported.

        >>> import jaxops.onnx
        >>> jaxops.onnx.load("notebooks/digits.onnx").tied
        {}
        """
        return dict(self._named.tied)

    @explained
    def nest(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns parameters, or their gradients, as nested dictionaries: `{"encoder": {"layer": {"0": …}}}`.

        params: with keys of `model.params`. Raises SignatureError for any other key.

        >>> import jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/digits.onnx")
        >>> sorted(model.nest(model.params))
        ['classes', 'features', 'hidden']
        """
        return nested(params, self._key_paths)

    @explained
    def flatten(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns nested dictionaries as a flat one, with the keys of `model.params`: the inverse of `nest`.

        Raises SignatureError for a path that the model does not have.

        >>> import jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/digits.onnx")
        >>> model.flatten(model.nest(model.params)).keys() == model.params.keys()
        True
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
    def show(self, *, grep: str = "", head: int | None = None) -> str:
        """Returns the model as text: inputs, outputs, and a line for each node, with small constants in place.

        grep: a regular expression; only nodes whose text matches it are listed. head: list only that many of them.
        Raises ArgumentError for an invalid regular expression.

        >>> import jaxops.onnx
        >>> print(jaxops.onnx.load("notebooks/digits.onnx").show(grep="Softmax"))
        model main_graph · opset ai.onnx 17 · pytorch 2.13.0
          11 nodes, 8 parameters with 11,482 elements
          in   image: float32[batch, 1, 8, 8]
          out  probabilities: float32[batch, 10]
          probabilities = Softmax(/classes/Gemm_output_0, axis=-1)
        """
        return "\n".join([*self._heading(folds=False), *listing(self.graph, grep, head)])

    def __str__(self) -> str:
        return "\n".join([*self._heading(folds=True), "  nodes: model.show()"])

    def _heading(self, *, folds: bool) -> list[str]:
        lines = heading(self.graph, self._description, self._formals, self._tensors, self.cuts, folds=folds)
        return [*lines, f"  prepared  {cache}"] if (cache := self._weights.cache).prepared else lines

    @explained
    @under_its_x64
    def summary(
        self, /, *inputs: Any, depth: int = 2, sizes: Mapping[str, int] | None = None, time: bool = False, **named: Any
    ) -> Summary:
        """Returns a table by module: its output, number of parameters, operations (FLOPs) and, with `time`, seconds.

        inputs, named: example inputs. Without them, `sizes` gives symbolic sizes, {"batch": 8}, and all other sizes are
        the smallest that fit. depth: how many levels of modules. time: measures each module on the example inputs: it
        is compiled alone and called ten times with the tensors that it gets in the model, and the best time counts. XLA
        cannot fuse operations of different modules then.
        Raises ArgumentError for a size that the model does not have, if no sizes fit, and for `time` without inputs.

        >>> import jaxops.onnx
        >>> table = jaxops.onnx.load("notebooks/digits.onnx").summary(sizes={"batch": 8})
        >>> table.rows[0].parameters
        11482
        """
        values = self._examples("summary", inputs, named, sizes)
        if time and not (inputs or named):
            raise ArgumentError("summary: `time` needs example inputs")
        every = functools.cache(lambda: self._every_tensor(values)) if inputs or named else None
        title = f"{self.graph.name or 'model'} · {self._description}"
        graph = self._function.part()
        table = summarize(graph, self._shapes, values, depth=depth, title=title, computed=every)
        if not (time and every):
            return table
        return timed(table, graph, self._weights.all(), {**unwrap(values), **every()}, depth)

    @explained
    @under_its_x64
    def plot(self, /, *inputs: Any, depth: int = 2, sizes: Mapping[str, int] | None = None, **named: Any) -> Plot:
        """Returns a picture of the modules, as SVG: a notebook shows it, `save("model.svg")` writes it.

        inputs, named, sizes: as in `summary`; arrows show the shapes of these. Without them, shapes have the names of
        symbolic sizes, where these can be followed. depth: how many levels of modules show their contents.
        Raises ModuleNotFoundError without igraph (the extra `plot`).

        >>> import jaxops.onnx
        >>> jaxops.onnx.load("notebooks/digits.onnx").plot(sizes={"batch": 8}).svg[:4]
        '<svg'
        """
        graph = self._function.part()
        if inputs or named or sizes:
            shapes = traced(graph, self._shapes, self._examples("plot", inputs, named, sizes))[0]
        else:
            shapes = symbolic(graph, self._shapes, self._formals)
        return plot(graph, self._tensors, shapes, depth=depth)

    @explained
    @under_its_x64
    def compare(
        self, /, *inputs: Any, rng: jax.Array | None = None, rtol: float = 1e-3, atol: float = 1e-5, **named: Any
    ) -> Comparison:
        """Runs the runtime of the file's format, such as onnxruntime, and compares every tensor with that of jaxops.

        Both compute with `model.params`, whether these are the file's or not. inputs, named: as in a call, and `state=`
        for a model with variables. rng: a key, as in a call. rtol, atol: tolerances, as in NumPy.
        Returns a report with a row for each tensor; `first` is the first one that differs, and `agrees` is True if
        there is none. Tensors after a node that draws random numbers, or whose size `bounds` fix, are not compared.
        Raises ModuleNotFoundError without that runtime, UnsupportedError for a model that it does not run, or that was
        not loaded from a file.

        >>> import jaxops.onnx, numpy as np
        >>> jaxops.onnx.load("notebooks/digits.onnx").compare(np.load("notebooks/seven.npy")).agrees
        True
        """
        check_infers("compare", self.graph)
        if self._origin is None:
            raise UnsupportedError("compare: the model was not loaded from a file, so no other runtime can run it")
        values = self._function.bind_inputs(inputs, named)
        with tempfile.TemporaryDirectory() as folder:
            origin = self._origin
            if isinstance(self._weights, GivenWeights):  # the file has others
                path = Path(folder, f"model{origin.suffix}")
                origin = self._write(origin, path, self._weights.all())
            theirs = origin.tensors(unwrap(values), {v.name: v.dtype for v in self.graph.inputs})
        return compare(self.graph, self._every_tensor(values, rng), theirs, rtol=rtol, atol=atol)

    @explained
    @under_its_x64
    def find_nonfinite(self, /, *inputs: Any, rng: jax.Array | None = None, **named: Any) -> NonFinite:
        """Finds the nodes at which NaNs and infinities begin, in subgraphs and functions, too.

        Such a node makes a NaN of operands without one, or an infinity of finite operands. inputs, rng, named: as in a
        call. The nodes run one by one; a loop counts as one node. Returns a report with a
        row for each tensor at which such numbers begin, inputs and parameters first; `first` is the first of them, None
        if all are finite.

        >>> import jaxops.onnx, numpy as np
        >>> jaxops.onnx.load("notebooks/digits.onnx").find_nonfinite(np.load("notebooks/seven.npy")).first
        """
        values = unwrap(self._function.bind_inputs(inputs, named))
        graph = self._function.part()
        with max_bytes(self._function.runner.max_bytes), jax.debug_nans(False), jax.debug_infs(False):
            return find_nonfinite(graph, values, self._weights.all(), rng)

    @under_its_x64
    def _examples(self, op: str, inputs: Sequence[Any], named: Any, sizes: Any, arrays: Any = None) -> dict[str, Any]:
        """Example inputs: those of the caller, or shapes instead. arrays: name → array that determines some shapes."""
        if not (inputs or named):
            return example(self._function.part(), self._shapes, self._formals, sizes or {}, op, arrays or {})
        if sizes:
            raise ArgumentError(f"{op}: give example inputs or `sizes`, not both")
        return self._function.bind_inputs(inputs, named)

    @property
    def _shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The shapes and types of the parameters, without reading them."""
        return {name: jax.ShapeDtypeStruct(t.shape, canonical(t.dtype)) for name, t in self._tensors.items()}

    def _every_tensor(self, values: Mapping[str, Any], rng: jax.Array | None = None) -> dict[str, Any]:
        """The tensors of all nodes, by name."""
        return self._function.tensors(names_of(self.graph), values, self._weights.all(), rng)

    def _table(self) -> Table:
        return model_overview(self.graph, self._description, self._formals, self._tensors, self.cuts)
