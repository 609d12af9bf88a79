"""The standard's own test suite through `Model.to_python`: each package does what its model does, bit for bit.

Both are traced, and their programs compared, so nothing is compiled. Where data decide about sizes, and where the
programs differ, both run node by node.
"""

import types
import warnings

import jax
import numpy as np
import onnx
import pytest
from jax import enable_x64
from onnx_suite import RUNNING, cases, read_list
from traced_programs import digests

import jaxops.onnx.backend
from jaxops.dtypes import as_traced
from jaxops.errors import JaxopsError


def imported(file):
    """A package from its file, whose text may be another one than before."""
    package = types.ModuleType("package")
    package.__file__ = str(file)
    exec(compile(file.read_text(encoding="utf-8"), file, "exec"), package.__dict__)
    return package


class Compared(Exception):
    """A package and its model agree on a case."""


class Package(jaxops.onnx.backend.JaxopsRep):
    """A model, and what `to_python` makes of it."""

    def __init__(self, model, folder):
        super().__init__(model, None, False)
        model.to_python(folder)
        self.package = imported(folder / "__init__.py")

    def run(self, inputs, **kwargs):
        with enable_x64(True):
            same_answers(self.model, self.package, inputs)
        raise Compared


class Writing(jaxops.onnx.backend.JaxopsBackend):
    """Writes packages. folder: where to; named: whether the sizes of the inputs get names."""

    folder, named = None, False

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        return Package(jaxops.onnx.load(with_names(model) if cls.named else model), cls.folder)


def with_names(model):
    """The model with a name for each size of its inputs but 1; equal sizes have one name."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    del model.graph.value_info[:]
    for value in model.graph.input:
        for size in value.type.tensor_type.shape.dim:
            if size.dim_value > 1:
                size.dim_param = f"n{size.dim_value}"
    return model


def same_answers(model, package, inputs):
    """Asserts that a package has the parameters of its model, and gives for these inputs what the model gives."""
    params = package.load_params()
    assert jax.tree.structure(params) == jax.tree.structure(model.nest(model.params))
    same(params, model.nest(model.params))
    given = [
        x if value.static or value.dtype == object else jax.tree.map(as_traced, x)
        for value, x in zip(model.inputs, inputs, strict=False)
    ]
    if not one_program(model, package, given):
        with jax.disable_jit():
            same(package.apply(params, *given), model.apply(model.params, *given))


def one_program(model, package, given):
    """Whether the package is traced to the program of the model. False where data decide about sizes."""

    def written(params, *inputs):
        found = package.apply(model.nest(params), *inputs)
        return jax.tree.map(as_traced, found)  # sizes come out of a package as static values

    try:
        return digests(written, model.params, *given) == digests(model.apply, model.params, *given)
    except (JaxopsError, TypeError):
        return False


def same(found, expected):
    """Asserts that two results are equal, bit for bit."""
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    CASES = cases(Writing)


@pytest.mark.grid
@pytest.mark.filterwarnings("ignore")  # the cases cast and divide out of range on purpose
@pytest.mark.parametrize(
    ("name", "sizes"),
    # The large models reshape to the sizes that they have.
    [(n, s) for n in sorted(read_list(())) for s in ("numbers", "names") if s == "numbers" or CASES[n][0] != "Real"],
)
def test_package(name, sizes, tmp_path, monkeypatch):
    monkeypatch.setattr(Writing, "folder", tmp_path / "net")
    monkeypatch.setattr(Writing, "named", sizes == "names")
    RUNNING[:] = [name]
    with pytest.raises(Compared):
        CASES[name][1](None)


@pytest.mark.parametrize(
    "change", [("jo.relu", "jo.abs"), ("return jo.relu", "return 0 * jo.relu"), ("= value", "= value + 1")]
)
def test_another_package_is_noticed(tmp_path, change):
    """The comparison finds another operator, another result, and other parameters."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[N] x) => (float[N] y) '
        "{ w = Constant<value = float[2] {1., 2.}>() a = Mul(x, w) y = Relu(a) }"
    )
    made, x = Package(jaxops.onnx.load(proto), tmp_path / "net"), np.array([-1, 2], np.float32)
    same_answers(made.model, made.package, [x])
    file = tmp_path / "net" / "__init__.py"
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(AssertionError):
        same_answers(made.model, imported(file), [x])
