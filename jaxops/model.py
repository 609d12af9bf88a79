"""A loaded model: a pure JAX function of `(params, *inputs)`, and its compiled form."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.export

from jaxops.errors import ArgumentError
from jaxops.graph.data_dependence import expected_cuts
from jaxops.graph.declared_sizes import separated
from jaxops.graph.host_part import divided_at_load
from jaxops.graph.nodes import Graph, Tensor
from jaxops.graph.origin import Origin
from jaxops.graph.parameter_roles import with_whole_features
from jaxops.graph.parameters import Choice, prepare, renamed
from jaxops.graph.static_analysis import StaticInputs, marked_inputs
from jaxops.memory import LIMIT
from jaxops.meshes import OfDevices
from jaxops.runtime.arguments import Given
from jaxops.runtime.bounds_check import check_bounds
from jaxops.runtime.compiled_pieces import GraphRunner
from jaxops.runtime.model_pytree import ModelStructure, again, register_model
from jaxops.runtime.parameter_values import GivenWeights, Weights
from jaxops.runtime.specialized_pair import Pair
from jaxops.runtime.stateful_function import StateMethods
from jaxops.runtime.training_function import check_infers
from jaxops.runtime.x64 import portable, restored, under_its_x64
from jaxops.signature_errors import explained
from jaxops.tools.adapters.merging import Adapting
from jaxops.tools.convert.astype import Keep, converted
from jaxops.tools.convert.sharding_rules import Rule, placements
from jaxops.tools.export.exporting import export
from jaxops.tools.inspect.inspection import Inspection


class Model(StateMethods, Inspection):
    """A model as a pure JAX function, as `jaxops.onnx.load` and `jaxops.openvino.load` return it.

    `model.apply(params, *inputs, **named)` is the pure function, to be jitted, differentiated, vmapped or exported.
    `model(*inputs, **named)` calls it with the model's own parameters. Both are compiled once for each shape of the
    inputs and each value of the static ones. Inside a transformation they become a part of its program, and under
    `jax.disable_jit` they run node by node.

    Inputs come in the order of `model.inputs`, by name, or as one dictionary. One output is returned alone, several as
    a namedtuple in the order of the graph. Outside of transformations, an output that depends on no traced value, such
    as a shape, is a NumPy array with 64 bits. A model is a pytree whose leaves are `model.params`, so that
    `jax.jit(lambda model, x: model(x))(model, x)` works. It can be copied and pickled.

    inputs, outputs: the name, dtype and shape of each, with names for symbolic sizes. An input whose `static` is not
    empty must be a NumPy value. The model is compiled again for each new size that follows from it: if that is the
    largest of its numbers, for each new maximum. An input that `decides` which branch runs may be a NumPy value or a
    Python number, so that only that branch is compiled, or a JAX array. The option `bounds` of `load` lets an input
    that must be static be traced: `bounds={"lengths": 512}` limits the sizes that its value sets.
    graph: the nodes. opsets: the version of each set of operators. x64: whether the model runs with 64-bit types.

    >>> import jaxops.onnx, numpy as np
    >>> model = jaxops.onnx.load("notebooks/digits.onnx")
    >>> print(model.inputs[0], "->", model.outputs[0])
    image: float32[batch, 1, 8, 8] -> probabilities: float32[batch, 10]
    >>> int(model(np.load("notebooks/seven.npy")).argmax())
    7
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
        adapting: Adapting | None = None,
        sharding: Rule | None = None,
        x64: bool | Callable[[Graph, Mapping[str, Tensor], Mapping[str, bool]], bool] = False,
    ) -> None:
        """description: a line about the file. runner: runs the graph. origin: the file that the model was read from.
        x64: True or False, or a function that decides it from the prepared graph, the parameters, and which inputs are
        static. adapting: adds adapters to the prepared graph and its parameters. All other arguments are those of
        `load`.
        """
        if not isinstance(names, str) or names not in ("file", "module"):
            raise ArgumentError(f"`names` is {names!r}; it must be 'file' or 'module'")
        formals = marked_inputs(graph, needs := StaticInputs())
        self.opsets, self._description = dict(opsets), description
        self._defaults = tuple(v for v in formals if v.name in graph.initializers)
        prepared, self._constants = prepare(graph, needs.of, static, trainable)
        self.graph = with_whole_features(prepared, {name: t.shape for name, t in self._constants.tensors.items()})
        self._declare(tuple(v for v in formals if v.name not in graph.initializers), graph.outputs)
        self._by_path = names == "module"
        if self._by_path:
            paths = self._named.names
            self.graph, self._constants = renamed(self.graph, paths), self._constants.renamed(paths)
        self._file_graph = self.graph
        if adapting is not None:
            self.graph, self._constants = adapting(self.graph, self._constants)
        self._tensors = self._constants.tensors
        self._written = {name: tensor.dtype for name, tensor in self._tensors.items()}
        found = {} if sharding is None else placements(self._tensors, self._key_paths, self.graph, sharding)
        self._placements = OfDevices(found)
        self._shardings = OfDevices({name: placement.sharding for name, placement in found.items()})
        self._origin, self._weights = origin, Weights(self._tensors, self._shardings)
        facts = {v.name: bool(v.static) for v in formals}
        self.x64: bool = x64 if isinstance(x64, bool) else x64(self.graph, self._tensors, facts)
        parts = None if self.x64 else divided_at_load(self.graph, formals)
        if parts is not None and not isinstance(x64, bool):
            self.x64 = x64(parts.program, self._tensors, facts | parts.facts)
        runner = runner or GraphRunner(LIMIT.get())
        runner.places = OfDevices({name: (p.sharding, p.used) for name, p in found.items()})
        runner.places_of_parts = OfDevices({name: p.in_parts for name, p in found.items() if p.in_parts})
        self._function = self._function_by(runner)
        self._expected_cuts = expected_cuts(self._function.part(), facts)
        if self.graph.bounded and not self._expected_cuts:
            check_bounds(self.apply, self._formals, self._tensors)

    def __getstate__(self) -> dict[str, Any]:
        attributes = {k: v for k, v in self.__dict__.items() if k not in ("_structure", "programs")}
        # The parameters are read: the file may be gone when the copy is used.
        return attributes | {"_weights": (portable(self.params), self._weights.cache)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        params, cache = state["_weights"]
        self._weights = GivenWeights(self._tensors, restored(params), cache)

    @property
    @under_its_x64
    def params(self) -> dict[str, jax.Array]:
        """The weights by name, a flat dictionary of arrays that are read at the first use.

        Their types are those of JAX's x64 setting at that moment, or those of the file if `model.x64`. Scalars are
        constants of the program instead, except for weights of layers.

        >>> import jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/digits.onnx")
        >>> model.params["hidden.weight"].shape
        (48, 128)
        """
        return self._weights.all()

    @property
    def folder(self) -> Path | None:
        """The folder of the file; None for a model that was not loaded from the path of one.

        >>> import jaxops.onnx
        >>> jaxops.onnx.load("notebooks/digits.onnx").folder.name
        'notebooks'
        """
        source = None if self._origin is None else self._origin.source
        return source.parent if isinstance(source, Path) else None

    @functools.cached_property
    def programs(self) -> dict[str, Any]:
        """The programs that functions such as `generate` compiled for this model. They decide no result, and a copy of
        the model begins without them.

        >>> import jaxops.onnx
        >>> jaxops.onnx.load("notebooks/digits.onnx").programs
        {}
        """
        return {}

    @functools.cached_property
    @under_its_x64
    def trainable(self) -> dict[str, bool]:
        """The keys of `params`, each with True if training should change the parameter.

        The value is False for running statistics, masks, tables that nodes generate, tables of rotary embeddings, all
        but the adapters of a model that has some, and integers, which `jax.grad` refuses: differentiate by the
        parameters with True, and pass the rest as another argument. `optax.masked` and `equinox.partition` take this
        dictionary.

        >>> import jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/digits.onnx", trainable={"hidden.weight": False})
        >>> [name for name, trained in model.trainable.items() if not trained]
        ['hidden.weight']
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
        """Computes the outputs for these parameters and inputs. It is a pure function.

        params: a dictionary like `model.params`. inputs, named: JAX arrays, NumPy arrays or numbers, with the shapes
        and types of `model.inputs`: in this order, by name, or as one dictionary. An input that is marked `static`
        there must be a NumPy value or a number. rng: a `jax.random` key, for models with random operators. outputs: the
        names of tensors to return in place of the model's outputs; any tensor of the graph can be named, or a module,
        such as "encoder.layer.0", for what it returns. Returns one output as an array, several as a namedtuple, and all
        tensors, `outputs="*"`, as a dictionary; of a model that was loaded with training=True, (outputs, statistics).

        If the size of a result depends on data, the model runs as several compiled pieces; `print(model)` shows the
        nodes between them. Inside a transformation no data can be read, so such a model needs the `bounds` of `load`.

        Raises SignatureError for a missing, surplus or unknown input, parameter or output, ShapeError, DTypeError, and
        StaticError for a tracer in place of a static value.

        >>> import jaxops.onnx, numpy as np
        >>> model = jaxops.onnx.load("notebooks/digits.onnx")
        >>> image = np.load("notebooks/seven.npy")
        >>> grads = jax.grad(lambda params: model.apply(params, image)[0, 7])(model.params)
        >>> grads["hidden.weight"].shape == model.params["hidden.weight"].shape
        True
        """
        return self._function.apply(params, Given(inputs, named, rng, outputs))

    def __call__(
        self, /, *inputs: Any, rng: jax.Array | None = None, outputs: Sequence[str] | None = None, **named: Any
    ) -> Any:
        """Computes the outputs with the model's own parameters: `apply(model.params, …)`, except for rounding.

        It is faster than `apply`, as values that depend on the parameters alone are computed once and kept.

        >>> import jaxops.onnx, numpy as np
        >>> model = jaxops.onnx.load("notebooks/digits.onnx")
        >>> model(np.load("notebooks/seven.npy")).argmax(-1).tolist()
        [7]
        """
        return self._function.call(self._weights, Given(inputs, named, rng, outputs))

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
        """Returns the model as two pure functions, `prepare` and `run`, for inputs of these shapes and types.

        `run(prepare(params), *inputs)` computes what `apply(params, *inputs)` does, except for rounding, at the speed
        of `model(…)`, also inside your own `jit`. `prepare` computes what depends on the parameters alone, such as
        filters in another layout, and returns a pytree.

        inputs, named: as in a call, or a `jax.ShapeDtypeStruct` for each. Static inputs become a part of the program.
        rng: a key if `run` gets one. outputs: as in `apply`. transformable: True if JAX will differentiate or map the
        functions; kernels without a derivative or a batching rule are then not used. Both functions run on all
        platforms, and are optimized for JAX's default backend.

        Raises what `apply` raises inside of `jit`. `run` raises ShapeError and DTypeError for inputs of other shapes or
        types, and UnsupportedError if JAX differentiates or maps it without `transformable`.

        >>> import jaxops.onnx, numpy as np
        >>> model = jaxops.onnx.load("notebooks/digits.onnx")
        >>> image = np.load("notebooks/seven.npy")
        >>> prepare, run = model.specialize(image)
        >>> prepared = prepare(model.params)
        >>> jax.jit(run)(prepared, image).argmax(-1).tolist()
        [7]
        """
        return self._function.specialize(Given(inputs, named, rng, outputs), transformable)

    def with_params(self, params: Mapping[str, Any]) -> "Model":
        """Returns the model with other parameters, which its calls check and prepare.

        The values may also be anything else, such as booleans:
        `equinox.partition(model, model.with_params(model.trainable))` splits a model into the part to train and the
        rest.

        >>> import jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/digits.onnx")
        >>> halved = model.with_params({name: x / 2 for name, x in model.params.items()})
        >>> bool((halved.params["hidden.weight"] * 2 == model.params["hidden.weight"]).all())
        True
        """
        return self._structure.with_params(params)

    @functools.cached_property
    def _structure(self) -> ModelStructure:
        types = {name: (t.dtype, t.shape) for name, t in self._tensors.items()}
        facts = {
            "precision": self._function.runner.precision,
            "x64": self.x64,
            "names": "module" if self._by_path else "file",
            "training": self.graph.statistics is not None,
            "trainable": self._constants.trainable,
            "parameters": types,
            "inputs": (self._formals, self._defaults),
        }
        return ModelStructure(self, facts)

    @explained
    @under_its_x64
    def astype(self, dtype: Any, *, keep: Keep | None = None) -> "Model":
        """Returns the model in another type, which floating-point parameters, inputs and outputs have.

        dtype: bfloat16, float16 or float64. A model in float64 runs as with `x64=True`, and has float64 where the file
        asks for float32, as in a Cast.
        keep: a function of a node's label and the name of its operator, which returns True for nodes that compute in
        float32, if the type is narrower. The default keeps normalizations (also those that are spelled out in
        several nodes), softmax, losses and means. Casts are inserted around these nodes. Finite numbers out of the
        type's range are clamped to it.
        Raises ArgumentError for another type.

        >>> import jax.numpy as jnp, numpy as np, jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/digits.onnx").astype(jnp.bfloat16)
        >>> model(np.load("notebooks/seven.npy").astype(jnp.bfloat16)).dtype
        dtype(bfloat16)
        """
        other = converted(self.graph, self._formals, self._defaults, self._tensors, self._weights.params, dtype, keep)
        model = again(self)
        model.__dict__.pop("_structure", None)
        model.graph, model.x64 = other.graph, self.x64 or other.dtype.name == "float64"
        model._declare(other.inputs, other.outputs)
        model._defaults, model._tensors = other.defaults, other.tensors
        model._weights = Weights(other.tensors, self._shardings, other.params)
        model._constants = dataclasses.replace(self._constants, tensors=other.tensors)
        model._function = model._function_by(copy.copy(self._function.runner))
        return model

    @explained
    @under_its_x64
    def export(
        self,
        sizes: Mapping[str, int | str] | None = None,
        platforms: Sequence[str] | None = None,
        *,
        params: bool = False,
    ) -> jax.export.Exported:
        """Returns the model as a `jax.export.Exported` for many sizes: serialized, it runs without jaxops.

        It is a function of `(params, *inputs)` and returns one output as it is, several as a tuple. Its inputs are in
        the order of `model.inputs`, without optional ones; a random key is its last input, if the model draws numbers
        without a seed. `model.params` are its parameters. Only a program that returns strings or dictionaries (ZipMap)
        needs `import jaxops` before it is deserialized. The program takes a flat list of arrays, as a caller in C++
        gives it: the parameters sorted by name, then the inputs, then the key. Its name is that of the model.

        params: True for a function of `(*inputs)`, whose parameters are constants of the program.
        sizes: name of a size → a number that fixes it, or its name in the program, with limits:
        `{"batch": "b", "sequence": "s <= 512, s >= 2", "total": "past + s"}`. A size that is not listed stays symbolic
        under its own name. A size without a name is named after its input and axis, such as `x_0`. If two inputs have a
        size of the same name, the second one is renamed in this way, too, if no node combines the two inputs, or if
        `sizes` uses the new name, as in `{"x_0": "other"}`.
        The program also has the limits of the model, and raises an error when it is called with other sizes: `s <= 512`
        for a table of 512 positions, `total == past + s`, or `s >= 2` if the model asks whether a size is 1. A size
        that the model fixes, such as the batch of a state, becomes a number. A Reshape of (b, k) to (-1, 4) asks for a
        b*k that is a multiple of 4, or, if JAX cannot trace the model with that, for a multiple of 4 as b. The logger
        "jaxops" says which sizes become numbers or multiples (INFO).
        platforms: such as ("cpu", "cuda"); by default JAX's default backend.
        Raises ArgumentError for an unknown size or platform; SizeError, which names the node and a size to fix, if one
        program cannot serve all sizes, or if the file gives one name to two sizes; StaticError for an input that must
        be static.

        >>> import jaxops.onnx
        >>> exported = jaxops.onnx.load("notebooks/digits.onnx").export(sizes={"batch": "b <= 64"})
        >>> exported.out_avals[0].shape
        (b, 10)
        """
        check_infers("export", self.graph)
        apply = functools.partial(self.apply, self.params) if params else self.apply
        inputs, tensors = separated(self.graph, self._formals, sizes or ()), None if params else self._tensors
        return export(self.graph.name, apply, inputs, tensors, sizes, platforms)


register_model(Model)
