"""Loading: from an ONNX file to a model."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from jaxops import memory
from jaxops.errors import ArgumentError
from jaxops.garbage import garbage_later
from jaxops.graph.declared_sizes import fixed
from jaxops.graph.parameters import Choice
from jaxops.model import Model
from jaxops.onnx.bind import bind
from jaxops.onnx.needs_x64 import needs_x64
from jaxops.onnx.open import Readable, parsed
from jaxops.onnx.origin import Origin
from jaxops.onnx.read import read
from jaxops.runtime.call import Pieces
from jaxops.runtime.disk_cache import keep_programs
from jaxops.runtime.fixed_inputs import with_values
from jaxops.signature_errors import explained
from jaxops.tools.convert.sharding_rules import Rule


@explained
def load(
    model: Readable,
    *,
    static: Choice | None = None,
    trainable: Choice | None = None,
    operators: Mapping[tuple[str, str], Callable[..., Any]] | None = None,
    sharding: Rule | None = None,
    names: Literal["onnx", "module"] = "onnx",
    sizes: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    precision: str | None = None,
    x64: Literal["auto"] | bool = "auto",
    max_bytes: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    external_data: str | os.PathLike[str] | None = None,
) -> Model:
    """Loads an ONNX model as a JAX function.

    It accepts what can mean one thing, although the opset forbids it: see `jaxops.onnx.lenient`.

    model: the path of a file, a file opened as binary, its bytes, a ModelProto or a torch.onnx.ONNXProgram. Weights,
    also those in files beside it, which are looked for and checked now, are read when they are needed: those that calls
    read by the first one, and all when `Model.params` is first used. The files must not be written to before; the
    model's own may be removed or replaced.
    static, trainable: which constants are part of the program instead of `Model.params`, and which parameters are to be
    trained: names, a dictionary from name to bool, or a function of the name that gives None where the default shall
    hold. By default single numbers and integers are static, and all but masks and running statistics is trained.
    operators: functions for operators of your own, by (domain, name): `fn(*inputs, **attributes)`, with None for an
    input left out. A parameter that is annotated `jaxops.static.Static` gets NumPy values.
    sharding: a function of name, module path and shape of a parameter that gives its PartitionSpec on the current mesh
    (`jax.set_mesh`), or its NamedSharding; `jaxops.sharding` has two. Parameters are read shard by shard.
    names: of the keys of `Model.params`: the file's, or the module paths of `Model.paths`. The other options take the
    file's names in any case.
    sizes: numbers for symbolic sizes of the inputs, such as {"sequence": 128}; a call then accepts no others.
    values: what some inputs are for good, such as {"sr": 16000}: they are no inputs any more, and of a branch that they
    decide only the one that is taken is a part of the model. The file that `Model.save` writes still has them.
    precision: of products and convolutions, as `jax.default_matmul_precision` names it: "bfloat16", "high",
    "highest" or "float32". On a CPU all but "bfloat16" are exact, and that too where it has no products of bfloat16.
    x64: whether the model runs with 64-bit types while JAX's own x64 is off: True, as the file declares them; False, as
    JAX is set; "auto", where arithmetic on its values may exceed 32 bits, a constant does, or they are float64: see
    `jaxops.onnx.needs_x64`. Such a model takes JAX arrays of 32 bits for those of 64, and gives what it declares.
    All transformations of JAX go through it; a derivative with x64 off computes it once more. What a caller computes
    of an int64 or float64 with x64 off, JAX cuts to 32 bits: go on in NumPy, or under `jax.enable_x64(True)`.
    max_bytes: how many bytes one static value, or one result of an operator, may take; by default half of the machine's
    memory. What is only traced, by `jax.export` or under a caller's `jit`, may be larger.
    cache: a folder for compiled programs, so that the next process need not trace and compile them again. It becomes
    JAX's persistent compilation cache, for all programs of this process; what models run is kept beside that, on a CPU
    with one device, without `operators` of your own. Who may write there, may run code here.
    external_data: the folder of the files with weights, in place of the model's own: that of its path, and that of the
    file which this path is a link to. Links may lead from one of these folders into another, and nowhere else.

    Raises PathError, a FileNotFoundError; ModelError for a file that is damaged, contradicts itself, has a cycle, or
    whose external data is missing or outside of all folders; UnsupportedError with a list of all operators that jaxops
    does not have; ArgumentError for a size or value that no input has; TooLargeError for a static value beyond
    `max_bytes`; SignatureError and others for nodes that their opset does not allow, and for an option that does not
    fit the model; ArgumentError where JAX has its cache in another folder than `cache`.
    """
    if x64 != "auto" and not isinstance(x64, bool):
        raise ArgumentError(f"`x64` is {x64!r:.80}; it must be 'auto', True or False")
    programs = None if cache is None else keep_programs(cache)
    with memory.max_bytes(memory.LIMIT.get() if max_bytes is None else max_bytes), garbage_later():
        found = parsed(model, external_data)
        source = read(found)
        opsets = ", ".join(f"{domain or 'ai.onnx'} {n}" for domain, n in source.opsets.items())
        bound = fixed(bind(source, {} if operators is None else operators), {} if sizes is None else sizes)
        given = {} if values is None else values
        return Model(
            with_values(bound, given),
            opsets=source.opsets,
            description=f"opset {opsets} · {source.producer}" if source.producer else f"opset {opsets}",
            # A file does not tell one function of a caller's from another.
            pieces=Pieces(memory.LIMIT.get(), precision, None if operators else programs),
            origin=Origin(found.source, found.folders, given),
            static=static,
            trainable=trainable,
            sharding=sharding,
            names=names,
            x64=needs_x64 if x64 == "auto" else x64,
        )
