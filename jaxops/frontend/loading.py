"""Loading: from what a front end reads to a model, with the options that every file format has."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, cast

from jaxops import memory
from jaxops.errors import ArgumentError
from jaxops.frontend.extraction import Extraction
from jaxops.frontend.needs_x64 import needs_x64
from jaxops.frontend.straight_through import with_straight_through
from jaxops.garbage import garbage_later
from jaxops.graph.blocks import with_blocks
from jaxops.graph.bounded_sizes import with_bounds
from jaxops.graph.declared_sizes import fixed, with_buckets
from jaxops.graph.nodes import Graph
from jaxops.graph.origin import Origin
from jaxops.graph.parameters import Choice
from jaxops.model import Model
from jaxops.progress import progress
from jaxops.runtime.compiled_pieces import GraphRunner
from jaxops.runtime.disk_cache import keep_programs
from jaxops.runtime.fixed_inputs import with_values
from jaxops.signature_errors import explained
from jaxops.tools.convert.sharding_rules import Rule
from jaxops.tools.convert.tied_parameters import Tied, untied

F = TypeVar("F", bound=Callable[..., Model])
Operators = Mapping[tuple[str, str], Callable[..., Any]]


class Options(TypedDict, total=False):
    """static, trainable: which constants are part of the program instead of `Model.params`, and which parameters are to
    be trained: names, a dictionary from name to bool, or a function of the name that gives None where the default shall
    hold. By default single numbers and integers are static, and all but masks and running statistics is trained.
    operators: functions for operators of your own, by (domain, name): `fn(*inputs, **attributes)`, with None for an
    input left out. A parameter that is annotated `jaxops.signature.Static` gets NumPy values; `Weight`, `Bias` and the
    decorator `operator` there say what the function does: to `Model.paths`, `plot`, `astype`, and to x64="auto".
    sharding: a function of name, module path and shape of a parameter that gives its PartitionSpec on the current mesh
    (`jax.set_mesh`), or its NamedSharding; `jaxops.sharding` has two, and an example with several machines. Parameters
    are read shard by shard.
    tied: whether modules that read one initializer share a parameter, as files hold equal tensors once: True, False, or
    a function of the paths of these modules. By default each has its own, but for a matrix that an embedding looks up.
    names: of the keys of `Model.params`: the file's, or the module paths of `Model.paths`. The other options take the
    file's names in any case.
    sizes: numbers for symbolic sizes of the inputs, such as {"sequence": 128}; a call then accepts no others.
    buckets: numbers for symbolic sizes of the inputs that differ from call to call, such as {"width": 32}. A call
    rounds such a size up to a multiple of its number, so that one program serves all sizes of a bucket, such as 33 to
    64. Results have the sizes and, but for rounding, the values that they have without. With 1024 for the size of the
    batch, one program serves all batches of up to 1024, and takes as long for each. Inputs get zeros behind their
    elements, which take no part: a convolution reads zeros there, sums and softmax leave them out. Where that is not
    possible, the first call raises UnsupportedError, which names the operation; where the model itself asks for more
    than one bucket has, as a TopK of 5 does of 1 to 32, a warning says so, and each half of it gets its own program.
    Under `jax.jit` and other transformations, and for arrays on a mesh, sizes stay as they are.
    bounds: sizes for results whose size depends on data, by the name of a node or of an operator, such as
    {"NonMaxSuppression": 100}: the model is one program then, also under `jax.jit`, `vmap` and in `export`. A longer
    result is cut, a shorter one is filled up as the operator's function says: `jaxops.non_max_suppression` with rows of
    -1, `nonzero` with columns of -1, `compress` with zeros. Nodes after it take the padding for data: at -1, a Gather
    reads the last row, and a TopK may choose it, so compare with `model(…)` of a load without bounds. What follows from
    static values alone keeps its size.
    inputs, outputs: the part of the model to load: names of tensors that become its inputs, such as ["embedding"], and
    its outputs; any tensor that the graph itself has, under the file's name, and a parameter too. Weights that only the
    remaining nodes read are no parameters then. Inputs have the type and the shape that the file says, or none.
    Without `inputs`, they are those inputs that the outputs need. `Model.save` writes all of the file, though.
    values: what some inputs are for good, such as {"sr": 16000}: they are no inputs any more, and of a branch that they
    decide only the one that is taken is a part of the model. The file that `Model.save` writes still has them.
    straight_through: whether gradients pass a QuantizeLinear (or DynamicQuantizeLinear) and the DequantizeLinear that
    reads it, so that a file with these can be fine-tuned: as in PyTorch's `fake_quantize`, rounding counts as the
    identity, and the gradient is 0 out of range only. By default that of integers is 0. Scales that are parameters, of
    several channels, get that of learned step sizes (LSQ). Values stay the same. Weights that the file has as integers
    are no parameters: nothing trains them. Operators on integers, such as QLinearConv and MatMulInteger, still give
    gradient 0, and `to_python` cannot write such a model.
    precision: of products and convolutions, as `jax.default_matmul_precision` names it: "bfloat16", "high",
    "highest" or "float32". On a CPU all but "bfloat16" are exact, and that too where it has no products of bfloat16.
    x64: whether the model runs with 64-bit types while JAX's own x64 is off: True, as the file declares them; False, as
    JAX is set; "auto", where arithmetic on its values may exceed 32 bits, a constant does, or they are float64: see
    `jaxops.frontend.needs_x64`. Such a model takes JAX arrays of 32 bits for those of 64, and gives what it declares.
    All transformations of JAX go through it; a derivative with x64 off computes it once more. What a caller computes
    of an int64 or float64 with x64 off, JAX cuts to 32 bits: go on in NumPy, or under `jax.enable_x64(True)`.
    remat: "block" if a derivative shall compute once more what the repeated modules of the model make, such as the
    layers of a transformer, instead of keeping it until then: a step takes up to a third longer, and its memory for
    such values falls to that of one module and of what passes between them. Values and derivatives stay the same. They
    are the outermost modules whose paths differ in a last number and of which two in a row have the same operators,
    such as `encoder.layer.3`; it is an error where the file names none. On a CPU, XLA keeps the values of modules with
    convolutions of one group all the same. `to_python` writes the model without.
    max_bytes: how many bytes one static value, or one result of an operator, may take; by default half of the machine's
    memory. What is only traced, by `jax.export` or under a caller's `jit`, may be larger.
    cache: a folder for compiled programs, so that the next process need not trace and compile them again. It becomes
    JAX's persistent compilation cache, for all programs of this process; what models run is kept beside that, on a CPU
    with one device, without `operators` of your own. Who may write there, may run code here.
    """

    static: Choice | None
    trainable: Choice | None
    operators: Operators | None
    sharding: Rule | None
    tied: Tied | None
    names: Literal["file", "module"]
    sizes: Mapping[str, int] | None
    buckets: Mapping[str, int] | None
    bounds: Mapping[str, int] | None
    inputs: Sequence[str] | None
    outputs: Sequence[str] | None
    values: Mapping[str, Any] | None
    straight_through: bool
    precision: str | None
    x64: Literal["auto"] | bool
    remat: Literal["block"] | None
    max_bytes: int | None
    cache: str | os.PathLike[str] | None


_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(Options.__annotations__),
    "names": "file",
    "straight_through": False,
    "x64": "auto",
}


@dataclass(frozen=True)
class BoundModel:
    """A file as a front end has read and bound it.

    graph: its nodes have their operators. opsets: the version of each set of operators. description: what a person
    should know of the file. origin: makes, of the values that inputs have for good, what `Model.save` and
    `Model.compare` ask for the file; None if these are not possible.
    """

    graph: Graph
    opsets: Mapping[str, int]
    description: str
    origin: Callable[[Mapping[str, Any]], Origin | None]


def takes_options(load: F) -> F:
    """Makes the `load` of a front end show all `Options`, and say what is wrong with one.

    A line `{options}` of its docstring stands for theirs.
    """
    model, *extra, _ = inspect.signature(load).parameters.values()
    shown = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=annotation)
        for name, annotation in Options.__annotations__.items()
    ]
    shared = cast(Any, load)
    shared.__signature__ = inspect.Signature([model, *shown, *extra], return_annotation=Model)
    shared.__doc__ = (load.__doc__ or "").replace("{options}", (Options.__doc__ or "").strip())
    return explained(load)


def load_model(source: Any, bind: Callable[[Operators, Extraction], BoundModel], options: Options) -> Model:
    """The model that `bind` gives, which reads a file and binds its nodes.

    source: as the caller gave it, to be named while it is loaded. bind: gets the operators of the caller, and the part
    that is to be extracted before nodes are bound.

    Raises ArgumentError for an option that the model does not have a use for; what `bind` and `Model` raise.
    """
    for name in options.keys() - _DEFAULTS.keys():
        raise TypeError(f"load() got an unexpected keyword argument '{name}'")
    chosen = {**_DEFAULTS, **options}
    x64, limit, operators = chosen["x64"], chosen["max_bytes"], chosen["operators"]
    if x64 != "auto" and not isinstance(x64, bool):
        raise ArgumentError(f"`x64` is {x64!r:.80}; it must be 'auto', True or False")
    tied = cast(Tied | None, chosen["tied"])
    if chosen["remat"] not in (None, "block"):
        raise ArgumentError(f"`remat` is {chosen['remat']!r:.80}; it must be 'block' or None")
    if not isinstance(chosen["straight_through"], bool):
        raise ArgumentError(f"`straight_through` is {chosen['straight_through']!r:.80}; it must be True or False")
    if tied not in (None, True, False) and not callable(tied):
        raise ArgumentError(f"`tied` is {tied!r:.80}; it must be True, False or a function of module paths")
    programs = None if chosen["cache"] is None else keep_programs(chosen["cache"])
    name = f"'{Path(source).name}'" if isinstance(source, str | os.PathLike) else "a model"
    limit = memory.LIMIT.get() if limit is None else limit
    with progress(f"loading {name}"), memory.max_bytes(limit), garbage_later():
        bound = bind({} if operators is None else operators, Extraction(chosen["inputs"], chosen["outputs"]))
        graph = fixed(bound.graph, {} if chosen["sizes"] is None else chosen["sizes"])
        buckets = {} if chosen["buckets"] is None else chosen["buckets"]
        graph = with_buckets(graph, buckets)
        graph = with_bounds(graph, {} if chosen["bounds"] is None else chosen["bounds"])
        values = {} if chosen["values"] is None else chosen["values"]
        graph = untied(with_values(graph, values), tied)
        graph = with_straight_through(graph) if chosen["straight_through"] else graph
        return Model(
            with_blocks(graph) if chosen["remat"] else graph,
            opsets=bound.opsets,
            description=bound.description,
            # A file does not tell one function of a caller's from another.
            runner=GraphRunner(memory.LIMIT.get(), chosen["precision"], None if operators else programs, dict(buckets)),
            origin=bound.origin(values),
            static=chosen["static"],
            trainable=chosen["trainable"],
            sharding=chosen["sharding"],
            names=chosen["names"],
            x64=needs_x64 if x64 == "auto" else x64,
        )
