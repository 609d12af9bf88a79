"""The arrows between the folders, as the guide `how_it_is_built` draws them; an import against one fails here."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "jaxops").rglob("*.py"))
LONGEST = 400

STANDARD = set(sys.stdlib_module_names)
ARRAYS = {"jax", "numpy", "ml_dtypes"}
BASE = {
    *("jaxops.errors", "jaxops.memory", "jaxops.static", "jaxops.symbolic", "jaxops.attributes", "jaxops.dtypes"),
    *("jaxops.signature", "jaxops.signature_errors", "jaxops.opaque", "jaxops.host", "jaxops.file_replacement"),
    *("jaxops.lazy_array", "jaxops.lazy_sequences", "jaxops.shown_text", "jaxops.jax_internals", "jaxops.meshes"),
    "jaxops.number_checks",
}
FRONT_END = {"jaxops.graph", "jaxops.frontend"} | BASE

# Folder or module → what it may import besides the standard library; the longest name that fits decides.
ALLOWED = {
    "jaxops": {
        "jaxops.compiler.xla_options",
        "jaxops.errors",
        "jaxops.ops",
        "jaxops.microsoft",
        "jaxops.ml",
        "jaxops.preview",
        "jaxops.training",
    },
    "jaxops.microsoft": {"jaxops.ops"},
    "jaxops.ml": {"jaxops.ops"},
    "jaxops.preview": {"jaxops.ops"},
    "jaxops.training": {"jaxops.ops"},
    "jaxops.errors": {"numpy", "jaxops.shown_text"},
    "jaxops.shown_text": set(),
    "jaxops.garbage": set(),
    "jaxops.memory": {"numpy", "jaxops.errors"},
    "jaxops.host": set(),
    "jaxops.file_replacement": {"jaxops.errors"},
    "jaxops.progress": {"rich", "IPython", "jaxops.shown_text"},
    "jaxops.static": {"jax", "numpy", "typing_extensions", "jaxops.errors", "jaxops.jax_internals", "jaxops.memory"},
    "jaxops.jax_internals": {"jax"}
    | {f"jax._src.{module}.register_exclusion" for module in ("source_info_util", "traceback_util")},
    "jaxops.number_checks": {"jax"},
    "jaxops.call_hints": {"jaxops.errors"},
    "jaxops.signature": {"jaxops.static"},
    "jaxops.symbolic": {"numpy", "jaxops.errors", "jaxops.jax_internals", "jaxops.static"},
    "jaxops.meshes": {"jax", "jaxops.static"},
    "jaxops.opaque": {"jax", "numpy", "jaxops.errors", "jaxops.static"},
    "jaxops.lazy_array": {"jax", "numpy", "jaxops.host"},
    "jaxops.lazy_sequences": {"jax", "jaxops.errors", "jaxops.static"},
    "jaxops.attributes": {"jax", "numpy", "jaxops.errors", "jaxops.static", "jaxops.dtypes"},
    "jaxops.dtypes": {"jax", "numpy", "ml_dtypes", "jaxops.errors", "jaxops.memory", "jaxops.static"},
    "jaxops.signature_errors": {"jax", "numpy"}
    | {
        "jaxops." + name
        for name in ("call_hints", "errors", "jax_internals", "signature", "static", "opaque", "attributes", "dtypes")
    },
    # Sizes in, sizes out: no array, so neither NumPy nor JAX.
    "jaxops.shapes": {"jaxops.errors", "jaxops.jax_internals", "jaxops.memory", "jaxops.static", "jaxops.symbolic"}
    | {"jaxops.shapes"},
    # One computation in several programs: no operator.
    "jaxops.kernels": ARRAYS | BASE - {"jaxops.host"} | {"chex", "jaxops.shapes", "jaxops.kernels"},
    "jaxops.kernels.target": {"jax", "jaxops.host", "jaxops.memory"},  # what the others ask for the machine
    # Never a node, a version, a proto.
    "jaxops.ops": ARRAYS | BASE | {"chex", "jaxops.shapes", "jaxops.kernels", "jaxops.ops"},
    "jaxops.ops.image.decoding": {"numpy", "PIL"} | BASE,  # files of images
    "jaxops.ops.text.regular_expressions": {"re2"} | BASE,
    # Knows an operator as a protocol: no operator, no schema, no file format, no jaxpr. Never computes on tensor data.
    "jaxops.graph": {"jax", "numpy", "jaxops.graph"} | BASE,
    # Makes programs of programs: knows no node, no operator, no model.
    "jaxops.compiler": ARRAYS | BASE | {"jaxops.kernels", "jaxops.compiler", "jaxops.progress"},
    # One call of a model.
    "jaxops.runtime": {"jax", "numpy", "jaxops.kernels", "jaxops.graph", "jaxops.compiler", "jaxops.garbage"}
    | {"jaxops.progress", "jaxops.runtime"}
    | BASE,
    # What people do with a graph: no file format, and not the model either.
    "jaxops.tools": {"jax", "numpy", "rich", "jaxops.graph", "jaxops.compiler", "jaxops.runtime", "jaxops.ops"}
    | {"jaxops.progress", "jaxops.shapes", "jaxops.tools"}
    | BASE,
    "jaxops.tools.plot.coordinates": {"igraph", "jaxops.errors"},
    "jaxops.tools.python": {"jax", "numpy", "safetensors", "jaxops.graph", "jaxops.ops", "jaxops.tools"} | BASE,
    "jaxops.tools.adapters": {"jax", "numpy", "safetensors", "jaxops.graph", "jaxops.runtime", "jaxops.ops"}
    | {"jaxops.tools"}
    | BASE,
    "jaxops.sharding": {"jaxops.tools"},
    "jaxops.flax": {"flax", "jax", "jaxops.errors", "jaxops.model"},
    "jaxops.jaxprs": {"jaxops.compiler"},
    "jaxops.model": {"jax", "numpy", "jaxops.graph", "jaxops.runtime", "jaxops.tools"} | BASE,
    # What every file format needs, and no one alone.
    "jaxops.frontend": {"jax", "numpy", "jaxops.compiler"} | FRONT_END,
    "jaxops.frontend.loading": {"jaxops.garbage", "jaxops.model", "jaxops.progress", "jaxops.runtime", "jaxops.tools"}
    | FRONT_END,
    "jaxops.frontend.adapters": {"numpy", "jaxops.ops", "jaxops.tools"} | FRONT_END,
    "jaxops.frontend.options": {"jaxops.model", "jaxops.tools"} | FRONT_END,
    "jaxops.frontend.declarations": {"jaxops.runtime"} | FRONT_END,
    # These tell operators apart by the functions of `ops`, which they do not call.
    "jaxops.frontend.integer_types": {"numpy", "jaxops.ops"} | FRONT_END,
    "jaxops.frontend.norm_gradients": {"numpy", "jaxops.kernels", "jaxops.ops"} | FRONT_END,
    "jaxops.frontend.straight_through": {"numpy", "jaxops.ops"} | FRONT_END,
    "jaxops.frontend.training": {"numpy", "jaxops.ops"} | FRONT_END,
    "jaxops.frontend.swapped_axes": {"numpy", "jaxops.ops"} | FRONT_END,
    "jaxops.frontend.schema_operator": {"chex", "jax", "numpy"} | FRONT_END,
    # Only what is ONNX; never computes on tensor data either.
    "jaxops.onnx": {"jax", "numpy", "jaxops.onnx"} | FRONT_END,
    "jaxops.onnx.microsoft_schemas": {"onnx"},
    "jaxops.onnx.loading": {"jaxops.frontend", "jaxops.model", "jaxops.onnx"},
    "jaxops.onnx.schemas": {"jax", "numpy", "onnx", "jaxops.onnx"} | FRONT_END,
    "jaxops.onnx.registry": {"numpy", "onnx", "jaxops.ops", "jaxops.onnx"} | FRONT_END,
    "jaxops.onnx.bind": {"numpy", "onnx", "jaxops.onnx"} | FRONT_END,
    "jaxops.onnx.read": {"numpy", "onnx", "jaxops.onnx"} | FRONT_END,
    "jaxops.onnx.open": {"numpy", "onnx", "google.protobuf", "jaxops.onnx"} | FRONT_END,
    "jaxops.onnx.inference": {"onnx", "jaxops.onnx.validate"},
    "jaxops.onnx.origin": {"numpy", "onnx", "jaxops.onnx"} | FRONT_END,
    "jaxops.onnx.save": {"numpy", "onnx", "jaxops.onnx"} | FRONT_END,
    "jaxops.onnx.tensors": {"onnx"},
    "jaxops.onnx.disputed": {"jaxops.graph", "jaxops.ops", "jaxops.shown_text", "jaxops.shapes"},
    "jaxops.onnx.versions": ARRAYS | BASE | {"jaxops.kernels", "jaxops.ops", "jaxops.shapes", "jaxops.onnx"},
    # The interface of the standard itself.
    "jaxops.onnx.backend": {"jax", "numpy", "onnx", "jaxops.model", "jaxops.onnx"} | BASE,
    "jaxops.onnx.onnxruntime": {"numpy", "onnx", "onnxruntime", "jaxops.onnx"} | FRONT_END,
    # Only what is OpenVINO; never computes on tensor data either.
    "jaxops.openvino": {"numpy", "jaxops.ops", "jaxops.openvino"} | FRONT_END,
    "jaxops.openvino.ir": {"jaxops.errors"},
    "jaxops.openvino.texts": {"jaxops.errors"},
    "jaxops.openvino.linked": {"jaxops.errors", "jaxops.openvino"},
    "jaxops.openvino.element_types": {"numpy", "ml_dtypes", "jaxops.errors"},
    "jaxops.openvino.runtime": {"numpy", "ml_dtypes", "jaxops.openvino"} | FRONT_END,
    "jaxops.openvino.loading": {"jaxops.model", "jaxops.openvino"} | FRONT_END,
    "jaxops.openvino.decoding": {"jaxops.model", "jaxops.tools"} | FRONT_END,
    "jaxops.openvino.versions": {"numpy", "jaxops.ops", "jaxops.shapes", "jaxops.openvino"} | FRONT_END,
    "jaxops.__main__": {"jaxops.command_line"},
    "jaxops.command_line": {"jax", "numpy", "rich", "safetensors", "jaxops"},
}
# The package itself says what to install when this is absent.
ALSO = {"jaxops.onnx": {"onnx", "jaxops.model", "jaxops.tools"}}
# What of `jaxops.static` the folder of sizes may see: names for sizes, nothing that makes an array.
SIZES_ONLY = {"Dim", "Sizes", "Undecided", "LIMITING", "is_symbolic"}
# Computing on data, which these leave to the operators. Adapters may shape an argument.
COMPUTING = {"jax.numpy", "jax.lax"}
GIVING = {"jaxops.onnx", "jaxops.openvino", "jaxops.frontend", "jaxops.graph", "jaxops.runtime", "jaxops.model"}
# The one file whose JAX names change between releases.
FRAGILE, FRAGILE_AT = {"jax.core", "jax.extend", "jax.interpreters", "jax.errors"}, "jaxops.jax_internals"


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(name, folder):
    return name == folder or name.startswith(f"{folder}.")


def imports(source):
    """Each name a file imports, in full, also inside functions; and each private name of JAX that it spells."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text.startswith("jax.") and text.replace("_", "a").replace(".", "").isalnum():
                yield text


class AsRun(ast.NodeTransformer):
    """Leaves out what type checkers alone read."""

    def visit_If(self, node):
        return node.orelse if ast.unparse(node.test) == "_typing.TYPE_CHECKING" else node


def complaints(module, source):
    """The imports of a file that its place does not allow."""
    if module == "jaxops":  # its front ends are imported at their first use, which a type checker does not follow
        source = ast.unparse(AsRun().visit(ast.parse(source)))
    rule = max((name for name in ALLOWED if within(module, name)), key=len)
    allowed = ALLOWED[rule] | ALSO.get(module, set())
    for name in imports(source):
        top = name.split(".")[0]
        if top in STANDARD:
            continue
        if top == "jax" and any(part.startswith("_") for part in name.split(".")) and name not in allowed:
            yield f"{module} uses {name}, which is private to JAX"
        elif any(within(name, fragile) for fragile in FRAGILE) and module != FRAGILE_AT:
            yield f"{module} uses {name}, which belongs into {FRAGILE_AT}"
        elif not any(within(name, folder) for folder in allowed):
            yield f"{module} imports {name}"
        elif (
            within(module, "jaxops.shapes") and within(name, "jaxops.static") and name.split(".")[-1] not in SIZES_ONLY
        ):
            yield f"{module} imports {name}, which is not about sizes"
        elif (
            any(within(module, folder) for folder in GIVING)
            and not within(module, "jaxops.onnx.versions")
            and any(within(name, folder) for folder in COMPUTING)
        ):
            yield f"{module} uses {name}: only operators compute"


@pytest.mark.parametrize("path", FILES, ids=lambda path: module_of(path))
def test_imports(path):
    assert list(complaints(module_of(path), path.read_text())) == []


FORBIDDEN = [
    ("jaxops.ops.tensor.reshaping", "import onnx"),
    ("jaxops.ops.tensor.reshaping", "from onnx import helper"),
    ("jaxops.ops.tensor.reshaping", "def f():\n    from jaxops.onnx import registry"),
    ("jaxops.ops.tensor.reshaping", "from jaxops import onnx"),
    ("jaxops.ops.tensor.reshaping", "import jaxops"),
    ("jaxops.shapes.tensor.reshaping", "import numpy as np"),
    ("jaxops.shapes.tensor.reshaping", "import jax"),
    ("jaxops.shapes.tensor.reshaping", "from jaxops.static import array"),
    ("jaxops.shapes.tensor.reshaping", "from jaxops.ops import reshape"),
    ("jaxops.shapes.tensor.reshaping", "from jaxops import dtypes"),
    ("jaxops.static", "from jaxops.dtypes import as_traced"),
    ("jaxops.static", "from jax.core import Tracer"),
    ("jaxops.static", "from jax._src import core"),
    ("jaxops.static", "from jax._src.traceback_util import register_exclusion"),
    ("jaxops.jax_internals", "from jaxops.static import Array"),
    ("jaxops.static", "from jax._src.core import Tracer"),
    ("jaxops.errors", "import jax"),
    ("jaxops.graph.interpreter", "import onnx"),
    ("jaxops.graph.interpreter", "from jaxops.onnx import schemas"),
    ("jaxops.graph.interpreter", "from jaxops.ops import add"),
    ("jaxops.graph.interpreter", "from jaxops import model"),
    ("jaxops.tools.export.exporting", "import onnx"),
    ("jaxops.tools.export.exporting", "from jaxops import model"),
    ("jaxops.graph.interpreter", "from jaxops.tools import exporting"),
    ("jaxops.graph.interpreter", "from jaxops.tools import sharding"),
    ("jaxops.tools.convert.sharding_rules", "from jaxops import model"),
    ("jaxops.tools.convert.sharding_rules", "import onnx"),
    ("jaxops.tools.convert.sharding_rules", "from jaxops.onnx import parts"),
    ("jaxops.model", "from jaxops.onnx import loading"),
    ("jaxops.model", "import onnx"),
    ("jaxops.tools.inspect.parameter_paths", "from jaxops import model"),
    ("jaxops.tools.inspect.parameter_paths", "from jaxops.onnx import scopes"),
    ("jaxops.tools.plot.drawing", "import igraph"),
    ("jaxops.tools.inspect.compare", "import onnxruntime"),
    ("jaxops.onnx.origin", "import onnxruntime"),
    ("jaxops.graph.interpreter", "from jaxops.tools import paths"),
    ("jaxops.onnx.loading", "from onnx import numpy_helper"),
    ("jaxops.onnx.loading", "from google.protobuf import message"),
    ("jaxops.graph.interpreter", "import jax.numpy as jnp"),
    ("jaxops.model", "import jax\njax.lax.add(1, 2)"),
    ("jaxops.onnx.bind", "from jaxops.openvino import opset1"),
    ("jaxops.onnx.bind", "from jaxops import ops"),
    ("jaxops.onnx.versions.tensor", "import jaxops.openvino"),
    ("jaxops.openvino.opset1", "from jaxops.onnx import registry"),
    ("jaxops.openvino.opset1", "import onnx"),
    ("jaxops.frontend.loading", "from jaxops.onnx import schemas"),
    ("jaxops.frontend.norm_gradients", "import onnx"),
    ("jaxops.frontend.safe_files", "from jaxops.model import Model"),
    ("jaxops.tools.generate.decoder", "from jaxops.model import Model"),
    ("jaxops.tools.generate.decoder", "from jaxops.onnx import load"),
    ("jaxops", "from jaxops import onnx"),
    ("jaxops.ops.tensor.reshaping", "from jax._src import core"),
    ("jaxops.ops.tensor.reshaping", "import jax\njax._src.core.Tracer"),
    ("jaxops.ops.tensor.reshaping", "from jax.core import Tracer"),
    ("jaxops.ops.tensor.reshaping", "import torch"),
]


@pytest.mark.parametrize(("module", "source"), FORBIDDEN)
def test_a_forbidden_import_is_caught(module, source):
    assert len(list(complaints(module, source))) >= 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jaxops.ops.tensor.reshaping", "from jax import lax\nimport numpy as np\nfrom jaxops.shapes import tensor"),
        ("jaxops.jax_internals", "from jax.core import Tracer"),
        ("jaxops.openvino", "from jaxops.frontend.loading import load_model"),
        ("jaxops.onnx.versions.tensor", "import numpy\nfrom jaxops import ops"),
    ],
)
def test_a_permitted_import_is_not(module, source):
    assert list(complaints(module, source)) == []


def test_the_rules_name_what_is_there():
    modules = {module_of(path) for path in FILES}
    assert len(modules) > 30
    assert all(name in modules for name in ALLOWED)


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import jaxops", ["onnx", "jaxops.onnx", "jaxops.openvino", "google.protobuf", "rich"]),
        ("import jaxops.onnx", ["jaxops.openvino", "onnxruntime", "rich", "IPython"]),
        ("import jaxops.openvino", ["onnx", "jaxops.onnx"]),
    ],
)
def test_what_an_import_leaves_alone(code, absent):
    program = f"import sys; {code}; print([m for m in {absent} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_is_longer_than_it_may_be():
    files = [*FILES, *(ROOT / "tests").rglob("*.py")]
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in files}
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def test_test_folders_are_no_packages():
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_the_root_holds_what_the_design_lists():
    done = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode or not done.stdout:
        pytest.skip("not a git checkout")
    found = {line.split("/")[0] for line in done.stdout.splitlines()}
    listed = {"jaxops", "tests", "notebooks", "pyproject.toml", "README.md", "LICENSE", ".ci", ".gitignore"}
    assert found <= listed
