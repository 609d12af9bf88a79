"""A loaded model: a pure JAX function of `(params, *inputs)`, and its compiled form."""

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import SignatureError
from jaxops.graph.border import arrive, leave
from jaxops.graph.cuts import expected_cuts
from jaxops.graph.nodes import Graph, Value
from jaxops.graph.params import Choice, prepare
from jaxops.graph.pieces import Pieces
from jaxops.graph.static_inputs import Need, StaticInputs
from jaxops.tools.precision import Keep, narrowed
from jaxops.tools.sharding import Rule, placed, shardings


class Model:
    """A model as a JAX function.

    `model.apply(params, *inputs, **named)` is the pure function, to be jitted, differentiated, vmapped or exported;
    `model(*inputs, **named)` is that with the model's own parameters. Both are compiled, once per shape of the inputs
    and value of the static ones; inside a transformation they become part of its program, and under `jax.disable_jit`
    they run node by node. Inputs come in the order of `model.inputs`, by name, or as one dictionary. One output is
    returned as it is, several as a namedtuple in the order of the graph. Outside transformations an output that does
    not depend on traced values (a shape) is a NumPy array, of 64 bits. It can be copied and pickled.

    params: the weights, a flat dict of arrays under the model's names; read at the first use, in the types of that
    moment's x64 setting. Single numbers, such as the exponent of a Pow, are not weights. trainable: which to train.
    inputs, outputs: name, shape with symbolic names, dtype; an input whose `static` is not empty must be given
    as a NumPy value, and each new value of it compiles anew.
    graph: the nodes; opsets: the version of each set of operators.
    cuts: the nodes before which a call is cut into compiled pieces, and why; a model whose sizes follow from those of
    its inputs has none. A branch or a loop that must be cut is found when a call is traced.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        opsets: Mapping[str, int],
        description: str,
        origin: Any = None,
        static: Choice | None = None,
        trainable: Choice | None = None,
        sharding: Rule | None = None,
    ) -> None:
        """description: what a person should know of the file: its opsets, what wrote it. origin: where the front end
        read it. static, trainable, sharding: as `jaxops.onnx.load` takes them."""
        needs = StaticInputs()
        needed = needs.walk(graph)
        formals = tuple(dataclasses.replace(v, static=_static(v, needed)) for v in graph.inputs)
        self.inputs: tuple[Value, ...] = tuple(v for v in formals if v.name not in graph.initializers)
        self.outputs: tuple[Value, ...] = graph.outputs
        self.opsets = dict(opsets)
        self._description = description
        self._defaults = tuple(v for v in formals if v.name in graph.initializers)
        self.graph, self._constants = prepare(graph, needs.of, static, trainable)
        self._tensors = self._constants.tensors
        self._shardings = {} if sharding is None else shardings(self._tensors, {}, sharding)
        self._origin = origin
        self._params: dict[str, jax.Array] = {}
        self._pieces = Pieces()
        self._other_outputs: dict[tuple[str, ...], Graph] = {}
        self._expected_cuts = expected_cuts(self.graph, {v.name: bool(v.static) for v in formals})

    @property
    def cuts(self) -> Mapping[str, str]:
        """Node → why a call is cut there."""
        return MappingProxyType({**self._expected_cuts, **self._pieces.cuts})

    def __getstate__(self) -> dict[str, Any]:
        self.params  # noqa: B018 - read, as the file need not be there when the copy is
        return self.__dict__

    @property
    def params(self) -> dict[str, jax.Array]:
        """The weights under their names, read at the first use."""
        unread = [name for name in self._tensors if name not in self._params]
        if unread:
            with jax.ensure_compile_time_eval():  # the first use may be inside `jit`, and they outlive it
                for name in unread:
                    tensor = self._tensors[name]
                    self._params[name] = placed(tensor, self._shardings.get(name))
                    self._tensors[name] = dataclasses.replace(
                        tensor, load=_spent, part=None
                    )  # lets go of the file's bytes
        return self._params

    @cached_property
    def trainable(self) -> dict[str, bool]:
        """The keys of `params`, and whether gradient descent should change each: not so running statistics, masks,
        tables that nodes generate, and integers. For `optax.masked` and `equinox.partition`.
        """
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
        values = arrive(self.inputs, self._defaults, inputs, named)
        graph = self.graph if outputs is None else self._giving(tuple(outputs))
        weights = params if params is self._params else self._weights(params, values)
        found = self._pieces.call(graph, values, weights, rng)
        return leave(found, [value.name for value in graph.outputs], (weights, values, rng))

    def __call__(
        self, /, *inputs: Any, rng: jax.Array | None = None, outputs: Sequence[str] | None = None, **named: Any
    ) -> Any:
        """Runs the model with its own parameters; as `apply` else."""
        return self.apply(self.params, *inputs, rng=rng, outputs=outputs, **named)

    def astype(self, dtype: Any, *, keep: Keep | None = None) -> "Model":
        """The model in bfloat16 or float16: floating-point parameters, inputs and outputs have that type.

        keep: which nodes compute in float32, as a function of a node's label and the name of its operator; without it,
        normalizations, also those spelled out in several nodes, softmax and losses. What a node reads is converted, and
        so is what the model returns. A finite number beyond the type's range becomes its largest.
        Raises ArgumentError for another type.
        """
        found = narrowed(self.graph, self.inputs, self._defaults, self._tensors, self._params, dtype, keep)
        model = copy.copy(self)
        model.graph, model.inputs, model.outputs = found.graph, found.inputs, found.outputs
        model._defaults, model._tensors, model._params = found.defaults, found.tensors, found.params
        model._constants = dataclasses.replace(self._constants, tensors=found.tensors)
        model._pieces, model._other_outputs = Pieces(), {}
        return model

    def _giving(self, names: tuple[str, ...]) -> Graph:
        """The graph with these outputs, one for each question, as programs are compiled for it."""
        if names not in self._other_outputs:
            self._other_outputs[names] = self.graph.giving(names)
        return self._other_outputs[names]

    def _weights(self, params: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, jax.Array]:
        """The parameters as JAX arrays, as NumPy ones would work here and fail under `jit`."""
        missing = [name for name in self._tensors if name not in params and name not in values]
        if missing:
            raise SignatureError(f"params: '{missing[0]}' is missing; give all {len(self._tensors)} of model.params")
        surplus = [name for name in params if name not in self._tensors]
        if surplus:
            raise SignatureError(
                f"params: the model has no '{surplus[0]}'; give the {len(self._tensors)} of model.params"
            )
        return {name: as_traced(params[name]) for name in self._tensors if name in params}

    def __str__(self) -> str:
        size = sum(math.prod(t.shape) for t in self._tensors.values())
        head = [f"model {self.graph.name or '(unnamed)'} · {self._description}"]
        head.append(f"  {len(self.graph.nodes)} nodes, {len(self._tensors)} parameters with {size:,} elements")
        for value in self.inputs:
            head.append(f"  in   {value}" + (f"  static: {value.static}" if value.static else ""))
        head += [f"  out  {value}" for value in self.outputs]
        for node, reason in self.cuts.items():
            head.append(f"  cut  before {node}: {reason}")
        head += [f"  {line}" for node in self.graph.nodes for line in str(node).splitlines()]
        return "\n".join(head)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, values)) for values in (self.inputs, self.outputs))
        return f"<jaxops.Model {self.graph.name!r}: ({inputs}) → ({outputs}), {len(self.graph.nodes)} nodes>"


def _static(value: Value, needed: Mapping[str, Need]) -> str:
    """Why an input must be static. Sizes come as numbers or vectors; from a larger one, they are computed as data."""
    if value.dtype == object:
        return "it holds strings"
    if value.name not in needed or (value.shape is not None and len(value.shape) > 1):
        return ""
    return str(needed[value.name])


def _spent() -> np.ndarray:
    raise AssertionError("a parameter is read once")
