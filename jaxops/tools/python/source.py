"""A model as a Python package: a module that calls jaxops, and its parameters next to it."""

import ast
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxops.errors import UnsupportedError
from jaxops.graph.data_dependence import reader_of_padding
from jaxops.graph.liveness import live
from jaxops.graph.nodes import Graph, Value
from jaxops.tools.inspect.parameter_paths import paths
from jaxops.tools.python import files
from jaxops.tools.python.converting import CONVERSION
from jaxops.tools.python.expressions import INDENT, WIDTH, Group, laid_out
from jaxops.tools.python.grouping import grouped
from jaxops.tools.python.literals import dtype_text
from jaxops.tools.python.quoting import comment, docstring, identifier, string
from jaxops.tools.python.rendering import Renderer, Written
from jaxops.tools.python.size_lines import UNLIKE
from jaxops.tools.python.steps import Reader, tensor

_LOADING = '''
def load_params(file: str | Path = HERE / "params.safetensors") -> Params:
    """The parameters, in dictionaries along the modules of the model."""
    params: Params = {}
    for name, value in load_file(file).items():
        *modules, last = name.split(".")
        place = params
        for module in modules:
            place = place.setdefault(module, {})
        place[last] = value
    return params
'''
# If the file keeps parameters as integers.
_VIEWED = """\
        if name in TYPES:
            value = jnp.asarray(np.asarray(value).view(TYPES[name]))
"""

_KEYS = '''
def fold_in(rng: jax.Array | None, number: int) -> jax.Array | None:
    """The random key of one operation, where there is a key."""
    return None if rng is None else jax.random.fold_in(rng, number)
'''


def to_python(
    folder: str | os.PathLike[str],
    graph: Graph,
    inputs: Sequence[Value],
    params: Mapping[str, Any],
    description: str,
    *,
    x64: bool = False,
    overwrite: bool = False,
) -> None:
    """Writes a package that computes the same as the graph.

    graph: prepared. inputs: of the model, with their `static` reasons. params: by name, for the file. x64: whether the
    package turns x64 on; if so, it must be on here.
    Raises ExistsError, and UnsupportedError for a node that cannot be written as calls of operators.
    """
    if not overwrite:
        files.check_free(Path(folder))
    found = reader_of_padding(live(graph), {value.name: bool(value.static) for value in inputs})
    if found is not None:
        raise UnsupportedError(
            f"to_python: {found[1].title} reads the result of '{found[0]}', whose size depends on data; a package "
            "would take the padding of its bound for data\n  hint    export the model instead: model.export()"
        )
    names = files.keys(paths(graph).names)
    text, constants = source(live(graph), inputs, params, names, description, x64)
    files.write(Path(folder), text, {names[name]: value for name, value in params.items()}, constants)


def source(
    graph: Graph,
    inputs: Sequence[Value],
    params: Mapping[str, Any],
    names: Mapping[str, str],
    description: str,
    x64: bool = False,
) -> tuple[str, dict[str, np.ndarray]]:
    """(the text of the module, the static arrays that it reads from a file)."""
    reader = Reader(params)
    function = grouped(reader.main(graph, inputs), reader.facts, names)
    outputs = [tensor(value.name) for value in graph.outputs]
    reserved = {*reader.symbols.values(), *reader.functions, *(name.partition(".")[0] for name in reader.modules)}
    renderer = Renderer(names, reader.names, [tensor(value.name) for value in inputs], outputs, reserved)
    scope = renderer.main(function)
    body = scope.lines()
    parts = [_function(written) for written in renderer.functions]
    parts.append(_apply(graph, inputs, scope.args, body, graph.draws, x64))
    if len(graph.outputs) > 1:
        parts.insert(0, _outputs(graph.outputs))
    types = {names[name]: value.dtype for name, value in params.items() if files.in_params(value.dtype)}
    text = _module(graph, parts, inputs, description, reader, bool(renderer.constants), types, x64)
    return text, renderer.constants


def _module(
    graph: Graph,
    parts: list[str],
    inputs: Sequence[Value],
    description: str,
    reader: Reader,
    constants: bool,
    types: Mapping[str, np.dtype],
    x64: bool,
) -> str:
    """The text of the module. types: of the parameters that the file stores as integers."""
    wide = "@with_x64" if x64 else ""
    loading = _LOADING.replace("        place[last]", f"{_VIEWED}        place[last]") if types else _LOADING
    fixed = [wide + loading]
    called = _names_read("\n".join(parts))
    for text, use in ((_KEYS, "fold_in"), (CONVERSION, "converted"), (UNLIKE, "warn_of_unlike")):
        fixed += [text] * (use in called)
    code = "\n\n\n".join(part.strip("\n") for part in [*fixed, *parts])
    opsets = [f"opset{n} = {module}.opset({n})" for module, n in sorted(reader.opsets) if f"opset{n}" in called]
    read = _names_read("\n".join([*opsets, code]))
    named = ", ".join(identifier(value.name) for value in inputs)
    head = [f'"""{docstring(graph.name or "A model")}, written by jaxops from a model of {docstring(description)}.', ""]
    if reader.assumptions.texts:
        head += [f"Sizes: {', '.join(reader.assumptions.texts)}.", ""]
    head += [">>> params = load_params()  # doctest: +SKIP", f">>> jax.jit(apply)(params, {named})  # doctest: +SKIP"]
    head += ['"""', ""]
    head += ["import warnings"] * ("warnings" in read)
    head += ["from pathlib import Path", f"from typing import Any{', NamedTuple' if 'NamedTuple' in read else ''}", ""]
    used = [line for name, line in _IMPORTS.items() if name in read or name in ("jax", "np")]
    used += [_IMPORTS["jnp"]] * (bool(types) and _IMPORTS["jnp"] not in used)
    used += [line for name in reader.modules if name in read and (line := f"import {name}") not in used]
    used.sort(key=lambda line: line.split()[1])
    used += ["from jaxops.kernels.xla_workarounds import flat_at_zero"] * ("flat_at_zero" in read)
    used += ["from jaxops.runtime.x64 import with_x64"] * bool(wide)
    used.append("from safetensors.flax import load_file")
    head += [*used, "", "Array = jax.Array | np.ndarray", "Params = dict[str, Any]", "HERE = Path(__file__).parent"]
    head += opsets
    if constants:
        head.append('CONSTANTS = dict(np.load(HERE / "constants.npz"))')
    if types:
        items = [f"{string(name)}: {dtype_text(dtype)}" for name, dtype in types.items()]
        head += laid_out("TYPES = ", Group("{", tuple(items), "}"))
    return "\n".join(head) + "\n\n\n" + code + "\n"


def _names_read(code: str) -> set[str]:
    """The names that code reads, also dotted ones: for `jaxops.onnx.opset`, `jaxops`, `jaxops.onnx` and itself."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        text = node.id if isinstance(node, ast.Name) else _dotted(node)
        names.add(text)
    return names - {""}


def _dotted(node: ast.AST) -> str:
    """The text of `a.b.c`; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


_IMPORTS = {
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "jo": "import jaxops as jo",
    "jaxops.openvino": "import jaxops.openvino",
    "np": "import numpy as np",
}


def _function(written: Written) -> str:
    header = ["params: Params"] if written.params else []
    header += [f"{name}: {'Any' if name == 'rng' else 'Array'}" for name in written.args]
    header += [f"{name}: int" for name in written.sizes]
    lines = laid_out(f"def {written.name}", Group("(", tuple(header), ")"), f"{written.returns}:")
    doc = f"{docstring(_pattern(written.paths) or written.name)}: {written.doc}".rstrip(": ")
    lines.append(f'{INDENT}"""{doc}."""')
    return "\n".join([*lines, *written.lines])


def _pattern(paths: Sequence[tuple[str, ...]]) -> str:
    """The path of a module; a star replaces the part in which several paths differ."""
    lengths = {len(path) for path in paths}
    if len(lengths) > 1:
        return ".".join(paths[0])
    return ".".join(part[0] if len(set(part)) == 1 else "*" for part in zip(*paths, strict=True))


def _apply(graph: Graph, inputs: Sequence[Value], args: Sequence[str], body: list[str], draws: bool, x64: bool) -> str:
    header = ["params: Params"]
    header += [f"{name}: Any" for name in args]
    if draws:
        header += ["*", "rng: jax.Array | None = None"]
    many = len(graph.outputs) > 1
    returned = "the outputs" if many else docstring(graph.outputs[0]) if graph.outputs else "nothing"
    lines = ["@with_x64"] * x64
    lines += laid_out("def apply", Group("(", tuple(header), ")"), f" -> {'Outputs' if many else 'Any'}:")
    lines += [
        f'{INDENT}"""Returns {returned}.',
        "",
        *(f"{INDENT}{docstring(value)}{', static' if value.static else ''}" for value in inputs),
        f'{INDENT}"""',
    ]
    lines += [f"{INDENT}{name} = {_entered(value, name, x64)}" for value, name in zip(inputs, args, strict=True)]
    return "\n".join([*lines, *body])


def _entered(value: Value, name: str, x64: bool) -> str:
    """The conversion of an input: to a JAX array, or to one of NumPy if it is static; else to a structure of them."""
    static = value.static or (value.dtype is not None and value.dtype == object)
    wide = x64 and not static and value.dtype is not None and value.dtype.itemsize == 8
    # Inputs that were made with x64 off have 32 bits.
    declared = f", np.{value.dtype.name}" if wide and value.dtype is not None else ""
    function = "np.asarray" if static else "jnp.asarray"
    if value.kind == "tensor":
        return f"{function}({name}{declared})"
    return f"jax.tree.map({f'lambda x: {function}(x{declared})' if wide else function}, {name})"


def _outputs(outputs: Sequence[Value]) -> str:
    used: set[str] = set()
    lines = ["class Outputs(NamedTuple):", f'{INDENT}"""The outputs of the model."""', ""]
    for value in outputs:
        name = identifier(value.name, used)
        used.add(name)
        kind = comment(value.type_text)
        line = f"{INDENT}{name}: Any  {kind}"
        lines += [line] if len(line) <= WIDTH else [f"{INDENT}{kind}", f"{INDENT}{name}: Any"]
    return "\n".join(lines)
