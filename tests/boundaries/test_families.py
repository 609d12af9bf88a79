"""Each operator stands in the family that the standard gives it, and the lists of names are made from the files."""

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import defs

import jaxops
import jaxops.microsoft
import jaxops.ml
import jaxops.openvino
import jaxops.preview
import jaxops.training
from jaxops import ops, shapes
from jaxops.onnx import registry, versions
from jaxops.onnx.schemas import operators

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "ai.onnx.ml": "ml",
    "ai.onnx.preview": "preview",
    "ai.onnx.preview.training": "training",
    "com.microsoft": "microsoft",
}
# A package of such a name would hide the operator Optional, or RNN. The kin of Optional are among the sequences, which
# they may hold.
MOVED = {"optional": "sequence", "rnn": "recurrent"}
# What the standard does not have: from which domain it comes, and where it stands.
OTHERS = {"variadic_split": "tensor"}
FAMILIES = sorted(m.name for m in pkgutil.iter_modules(ops.__path__) if m.ispkg)


def family(op_type, domain=""):
    """The folder of an operator: that of its definition in the standard's sources, or that of its domain."""
    if domain:
        return FOLDERS[domain]
    folder = Path(defs.get_schema(op_type).file).parent.name
    return MOVED.get(folder, folder)


def modules(package):
    """The modules below a package, by their dotted names without it."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return {m.name.removeprefix(f"{package.__name__}."): m for m in found}


FUNCTIONS = [
    (op_type, domain, registry.function(op_type, domain))
    for domain in registry.DOMAINS
    for op_type in operators(domain)
    if registry.function(op_type, domain)
]


@pytest.mark.parametrize(("op_type", "domain", "fn"), FUNCTIONS, ids=[f"{d}.{o}".lstrip(".") for o, d, _ in FUNCTIONS])
def test_an_operator_is_in_its_family(op_type, domain, fn):
    if domain == "" and not defs.has(op_type):
        return  # Scatter and Upsample are gone from the newest opset
    assert fn.__module__.split(".")[2] == family(op_type, domain)


def test_there_are_operators_to_look_at():
    assert len(FUNCTIONS) > 160
    assert {domain for _, domain, _ in FUNCTIONS} == set(registry.DOMAINS)


def test_what_the_standard_does_not_have_is_listed():
    ours = {fn for _, _, fn in FUNCTIONS}
    others = {name: getattr(ops, name) for name in ops.__all__ if getattr(ops, name) not in ours}
    assert {name: fn.__module__.split(".")[2] for name, fn in others.items()} == OTHERS


def test_sizes_versions_and_tests_have_the_same_names():
    known = set(modules(ops))
    own = {"arithmetic", "tensor.indexing"}  # arithmetic on sizes; what gathers and scatters share
    assert set(modules(shapes)) <= known | own
    assert {m.name for m in pkgutil.iter_modules(versions.__path__)} <= set(FAMILIES)
    for kind in ("ops", "shapes"):
        folders = {p.name for p in (ROOT / "tests" / kind).iterdir() if any(p.rglob("test_*.py"))}
        assert folders <= set(FAMILIES)


@pytest.mark.parametrize(("domain", "op_type"), sorted(registry.adapters()), ids="-".join)
def test_an_adapter_is_in_the_file_of_its_family(domain, op_type):
    names = {family(op_type, domain)} if domain or defs.has(op_type) else {"tensor"}
    own = {fn.__module__ for fn in registry.adapters()[domain, op_type].values() if "versions" in fn.__module__}
    # Adapters of `logical` are made by a function of `math`.
    own -= {"jaxops.onnx.versions.math"} if names == {"logical"} else set()
    assert own <= {f"jaxops.onnx.versions.{name}" for name in names}


def test_no_module_bears_the_name_of_an_operator():
    names = {*(name for module in registry.DOMAINS.values() for name in module.__all__)}
    beside = {m.name for m in pkgutil.iter_modules(jaxops.__path__)}
    found = {name.rpartition(".")[2]: name for name in (*modules(ops), *beside)}
    assert {found[name] for name in names & found.keys()} == set()


@pytest.mark.parametrize("name", [name for name, m in modules(ops).items() if not m.ispkg])
def test_all_stands_at_the_top_and_lists_the_public_functions(name):
    module = importlib.import_module(f"jaxops.ops.{name}")
    if not hasattr(module, "__all__"):  # what operators share
        public = {n for n, f in vars(module).items() if getattr(f, "__module__", "") == module.__name__ and n[0] != "_"}
        own = {n.replace("_", "") for n in public} - {"scale"}  # an operand of quantization; Scale is of opsets 1 to 9
        assert own & {op_type.lower() for domain in registry.DOMAINS for op_type in operators(domain)} == set()
        return
    body = ast.parse(Path(module.__file__).read_text()).body
    assert ast.unparse(body[1].targets[0]) == "__all__"
    assert all(getattr(module, f).__module__ == module.__name__ for f in module.__all__)


def test_each_name_comes_from_one_file():
    listed = []
    for name, info in modules(ops).items():
        if not info.ispkg:
            listed += getattr(importlib.import_module(f"jaxops.ops.{name}"), "__all__", [])
    namespaces = [*registry.DOMAINS.values(), ops.openvino]
    assert sorted(listed) == sorted([name for module in namespaces for name in module.__all__])


def test_the_package_has_every_operator_and_shows_it():
    assert set(ops.__all__) <= set(jaxops.__all__) <= set(dir(jaxops))
    others = {"errors", "memory", "jaxprs", "sharding", "__doc__", "__version__"}
    assert set(dir(jaxops)) - set(jaxops.__all__) - {"flax", "onnx", "openvino"} == others
    assert all(hasattr(jaxops, name) for name in dir(jaxops))
    assert jaxops.ml.label_encoder is ops.ml.label_encoder
    assert jaxops.training.adam is ops.training.adam
    assert jaxops.microsoft.fused_matmul is ops.microsoft.fused_matmul
    assert jaxops.openvino.ops.prior_box is ops.openvino.prior_box
    assert jaxops.openvino.ops.__all__ == ops.openvino.__all__
    assert "Joins arrays" in (jaxops.concat.__doc__ or "")


PROGRAM = """
import jax
import numpy as np

import jaxops as jo
from jaxops import ml, reshape

reveal_type(jo.reshape)
reveal_type(jo.softmax)
reveal_type(reshape)
reveal_type(jo.ml.label_encoder)
reveal_type(ml.label_encoder)
reveal_type(jo.microsoft.fused_matmul)
jo.no_such_operator
jo.fused_matmul


def net(x: jax.Array, w: jax.Array) -> jax.Array:
    h = jo.relu(jo.add(jo.matmul(x, w), jo.gather(w, jo.flatten(x))))
    return jo.softmax(jo.transpose(jo.reshape(jo.layer_normalization(h, w), (2, -1)), perm=(1, 0)))


static: np.ndarray = jo.mul(jo.shape(np.ones(3)), np.ones(3))
"""


def test_a_type_checker_sees_the_names(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    settings = {"include": [str(path)], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    found = json.loads(done.stdout)["generalDiagnostics"]
    revealed = [d["message"] for d in found if d["severity"] == "information"]
    assert len(revealed) == 6
    assert all("(" in text and "Unknown" not in text.split("->")[0] for text in revealed), revealed
    errors = [d["message"].splitlines()[0] for d in found if d["severity"] == "error"]
    assert len(errors) == 2, found  # so arrays of JAX stay arrays of JAX, and static values static
    assert "no_such_operator" in errors[0]
    assert "fused_matmul" in errors[1]
