"""The options of `load` that every file format has, and how `help(load)` shows them."""

from __future__ import annotations  # so that `help` can show `Choice`, and not the union that it is

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, cast, get_type_hints

from jaxops.frontend.adapters import Adapters
from jaxops.graph.parameters import Choice
from jaxops.model import Model
from jaxops.signature_errors import explained
from jaxops.tools.convert.sharding_rules import Rule
from jaxops.tools.convert.tied_parameters import Tied

F = TypeVar("F", bound=Callable[..., Model])
Operators: TypeAlias = Mapping[tuple[str, str], Callable[..., Any]]


class Options(TypedDict, total=False):
    """Each option, with an example:

    inputs=["embedding"]         The part to load begins at these tensors: they become the inputs.
    outputs=["features"]         The part to load ends at these tensors: they become the outputs.
    values={"sr": 16000}         Fixes inputs to a value. Calls do not take them any more.
    sizes={"sequence": 128}      Fixes symbolic sizes of the inputs. Calls must then have these sizes.
    buckets={"width": 32}        Rounds symbolic sizes of calls up to a multiple: one program then serves many sizes.
    bounds={"NonZero": 100}      Fixes the size of results whose size depends on data, so that `jit` takes the model.

    static=["scale"]             Makes these constants a part of the program. They are not in `Model.params`.
    trainable={"table": False}   Chooses which parameters training changes: see `Model.trainable`.
    tied=False                   Gives each module its own parameter if several read one tensor of the file.
    names="module"               Names parameters by their modules, such as "layer.0.weight", not as in the file.
    adapters={"*.q_proj": 8}     Adds low-rank adapters (LoRA) of this rank to modules, and trains only these.
    sharding=data_parallel       Places each parameter on the devices of a mesh by a rule: see `jaxops.sharding`.

    operators={("my.domain", "MyOp"): fn}  Adds functions for operators, or replaces those of jaxops.
    training=True                Makes BatchNormalization and Dropout train: `apply` also returns running statistics.
    straight_through=True        Lets gradients pass rounding, so that a quantized model can be fine-tuned.
    precision="bfloat16"         Sets the precision of products and convolutions.
    x64=True                     Runs the model with 64-bit types while JAX's x64 is off.
    remat="block"                Saves memory in training: derivatives recompute the values inside of repeated modules.
    max_bytes=2**34              Limits the bytes of values. The default is half of the machine's memory.
    cache="programs/"            Keeps compiled programs in a folder, so that the next process starts faster.

    More about them:

    inputs, outputs: names of any tensors of the main graph, parameters included, as the file has them. Weights that the
    part does not read are not in `Model.params`. A new input has the type and shape that the file declares; if there is
    no declaration, it takes any. Without `inputs`, the part has those inputs of the file that its outputs need.
    `Model.save` still writes the whole file.

    values: if a value decides which branch of an If runs, only that branch is loaded. `Model.save` still writes these
    inputs.

    buckets: a number for each size that differs from call to call. A call rounds the size up to a multiple of the
    number, so that one program serves all sizes of a bucket, such as 33 to 64, or all batches of up to 1024. Results
    have the sizes and, except for rounding, the values that they have without buckets: the padding takes no part, as
    convolutions read zeros there, and sums and softmax leave it out. If that is not possible, the first call raises
    UnsupportedError, which names the operation. If some sizes of a bucket are too small for the model, as 1 to 4 are
    for a TopK of 5, a warning says so, and each half of the bucket gets its own program. Under `jax.jit` and other
    transformations, and for arrays on a mesh, sizes stay as they are.

    bounds: a key is the name of a node, or that of an operator for all of its nodes. The model is then one program,
    also under `jax.jit`, `vmap` and in `export`. A longer result is cut, and a shorter one is padded as the operator's
    function says: `jaxops.non_max_suppression` pads with rows of -1, `nonzero` with columns of -1, `compress` with
    zeros. The nodes after it see the true elements alone: a sum, a TopK, a ScatterND or a Shape leaves the padding out,
    and so do derivatives. What is computed row by row has padded rows as well if it is an output of the model, such as
    the last row for a Gather at -1. If a node needs more than the number of true elements, `load` raises
    UnsupportedError, which names the node and the bound; if a size of the inputs has no number, the first call does.
    `to_python` writes only nodes that move rows. A result that follows from static values alone keeps its size.
    A Loop whose number of iterations depends on data has at most so many: its scan outputs are padded with zeros to
    this number of rows, and a loop that has not ended gives NaN and -1. Such a loop also has gradients, as has one with
    a trip count of at most 1,000. A Loop with a known number of iterations keeps it, such as one that a call gets as a
    NumPy number.
    A key may also be the name of an input whose value sets a size, such as the lengths in `arange(lengths.max())`, or
    of the node that computes one from data, such as the sum of predicted durations. That value may then be traced, and
    one program serves all its values. Each integer that is computed from it alone is limited to the range from 0 to the
    bound; an array of such a size as an output has rows of padding.
    If no output has such a size, as in `x[mask] = y` and `x[mask].mean()` of PyTorch, NonZero, Compress, Unique,
    NonMaxSuppression, and a Loop with a trip count of at most 1,000 need no bound under transformations and in
    `export`.

    static, trainable: a list of names, a dictionary from name to bool, or a function of the name that returns True,
    False, or None for the default. By default, scalars and integers are static, except for weights of layers, and all
    parameters are trained, except for masks and running statistics.

    tied: exporters write equal tensors once, so modules may share a tensor by accident. With True they share its
    parameter, too; with False each module has its own. A function of the paths of the modules decides for each tensor.
    By default each module has its own, except for a matrix that an embedding looks up.

    names: "file" (the default) or "module", for the paths of `Model.paths`. The options take the file's names in both
    cases.

    adapters: patterns of module paths, in which `*` stands for any characters, each with a rank, or with (rank, alpha);
    the first pattern that fits a module decides. A product y = x · W of a module becomes
    y + alpha / rank · x · Aᵀ · Bᵀ, in which alpha is the rank if it is not given. W is a matrix that MatMul or Gemm
    reads, or a DequantizeLinear before it, or the weight of a MatMulNBits, which stays packed; a fused product, such as
    `qkv_proj`, counts as one module. `Model.params` gets `<module>.lora_A.weight`, uniform numbers that the name
    determines, and `<module>.lora_B.weight`, zeros, so the outputs stay the same at first; in `Model.trainable` all
    other parameters become False, but for those that `trainable` names. A folder in place of the patterns has adapters
    that `Model.save_adapters` or the package peft saved; `Model.save` merges adapters into weights that are floats. If
    the file quantizes activations, too, `straight_through=True` lets gradients reach the adapters before them.

    sharding: a rule of `jaxops.sharding` (`tensor_parallel`, `fsdp`, `data_parallel`; an example with several machines
    is there, too), or a function of the name, the module path and the shape of a parameter that returns a PartitionSpec
    on the current mesh (`jax.set_mesh`) or a NamedSharding. Parameters are read shard by shard.

    operators: a function `fn(*inputs, **attributes)` for each (domain, name), also in place of an operator that jaxops
    has: ("", "Relu"). It gets None for an input that the node leaves out, and NumPy values for a parameter with the
    annotation `jaxops.signature.Static`. The annotations `Weight` and `Bias` and the decorator `operator` there tell
    `Model.paths`, `plot`, `astype` and x64="auto" what it does.

    training: a call then returns `(outputs, statistics)`. `statistics` has the next running means and variances under
    their names in `Model.params`, so that `{**params, **statistics}` are the next parameters. The variances are those
    of the population, as ONNX says; PyTorch's are n / (n - 1) times that. Dropout draws from the `rng` of the call.
    The file must have one of the operators; most exporters fold them, unless told otherwise. `Model.save` writes a file
    for inference. For exporting, decoding and comparing, load that file without this option.

    straight_through: a QuantizeLinear (or DynamicQuantizeLinear) with the DequantizeLinear that reads it then has the
    gradient of PyTorch's `fake_quantize`: rounding counts as the identity, and only out of range the gradient is 0. By
    default the gradient of integers is 0. Scales of several channels that are parameters get the gradient of learned
    step sizes (LSQ). The values stay the same. Weights that the file holds as integers are not parameters, so nothing
    trains them. Operators on integers, such as QLinearConv and MatMulInteger, still have gradient 0. In an OpenVINO IR,
    FakeQuantize and FakeConvert have such gradients, with respect to their limits, scales and shifts too. `to_python`
    cannot write such a model.

    precision: a name of `jax.default_matmul_precision`: "bfloat16", "high", "highest" or "float32". On a CPU all but
    "bfloat16" are exact, and "bfloat16" is, too, if the CPU has no products of bfloat16.

    x64: with True the model has the 64-bit types that the file declares, with False those of JAX's setting. "auto", the
    default, means True if arithmetic on the model's values may exceed 32 bits, if a constant does, or if values are
    float64 (the rules are in `jaxops.frontend.needs_x64`). A model with 64 bits also accepts JAX arrays of 32 bits, and
    returns the types that it declares. All transformations of JAX take it. While JAX's x64 is off, a derivative runs
    the model once more, and JAX converts an int64 or float64 result to 32 bits as soon as you compute with it: continue
    in NumPy, or under `jax.enable_x64(True)`.

    remat: repeated modules are the outermost ones whose paths differ in a last number, such as `encoder.layer.3`, and
    of which two in a row have the same operators or, except for a few, weights of the same shapes. It is an error if
    the file names none. A training step takes up to a third longer, and keeps only the values of one module and those
    that pass between modules. Values and derivatives stay the same. On a CPU, XLA still keeps the values of modules
    with convolutions over all channels. `to_python` writes the model without it.

    max_bytes: the limit of one result of an operator, and of all static values that are held together. A program that
    is only traced, by `jax.export` or under your own `jit`, may have larger results.

    cache: it becomes the folder of JAX's persistent compilation cache, for all programs of this process. On a CPU with
    one device, the programs of models without `operators` are stored next to it, so that they need no tracing either.
    Threads and processes may share the folder. A stored program that is damaged or cannot be read is compiled again and
    replaced; the logger "jaxops" says so. Anyone who can write to this folder can run code as you.
    """

    inputs: Sequence[str] | None
    outputs: Sequence[str] | None
    values: Mapping[str, Any] | None
    sizes: Mapping[str, int] | None
    buckets: Mapping[str, int] | None
    bounds: Mapping[str, int] | None
    static: Choice | None
    trainable: Choice | None
    tied: Tied | None
    names: Literal["file", "module"]
    adapters: Adapters | None
    sharding: Rule | None
    operators: Operators | None
    training: bool
    straight_through: bool
    precision: str | None
    x64: Literal["auto"] | bool
    remat: Literal["block"] | None
    max_bytes: int | None
    cache: str | os.PathLike[str] | None


DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(Options.__annotations__),
    "names": "file",
    "training": False,
    "straight_through": False,
    "x64": "auto",
}


class _AsWritten(str):
    """An annotation that shows the text of the source."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def takes_options(load: F) -> F:
    """Makes the `load` of a front end show all `Options`, and say what is wrong with one.

    A line `{options}` of its docstring stands for theirs. `help` shows annotations as the source writes them, if the
    file of `load` has them as strings (`from __future__ import annotations`); calls are checked by the types.
    """
    written, evaluated = inspect.signature(load), inspect.signature(load, eval_str=True)
    cast(Any, load).__signature__ = _with_options(evaluated, get_type_hints(Options))
    load.__doc__ = (load.__doc__ or "").replace("{options}", (Options.__doc__ or "").strip())
    shown = explained(load)
    texts = {name: cast(Any, hint).__forward_arg__ for name, hint in Options.__annotations__.items()}
    cast(Any, shown).__signature__ = _with_options(written, texts)
    return shown


def _with_options(signature: inspect.Signature, types: Mapping[str, Any]) -> inspect.Signature:
    """Returns the signature of a `load` with all options. types: their annotations; a string is shown as it is."""
    model, *extra, _ = signature.parameters.values()
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=annotation)
        for name, annotation in types.items()
    ]
    parameters = [
        p.replace(annotation=_AsWritten(p.annotation)) if isinstance(p.annotation, str) else p
        for p in (model, *options, *extra)
    ]
    return signature.replace(parameters=parameters, return_annotation=Model)
