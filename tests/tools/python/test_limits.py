"""Packages compute sizes as the model does, and refuse those beyond what their writer assumed."""

import importlib.util

import jax
import numpy as np
import pytest
from onnx import numpy_helper, parser

import jaxops.onnx

F = np.float32
MIN = "s = Shape<start = 1>(x) t = Constant<value_ints = [3]>() k = Min(s, t) z = Constant<value_ints = [0]>() "

# title → the graph, its constants, the shapes of inputs.
COMPUTED = {
    "slice": ("float[n,k] x", MIN + "a = Constant<value_ints = [1]>() y = Slice(x, z, k, a)", {}),
    "top_k": ("float[n,k] x", MIN + "y, i = TopK(x, k)", {}),
    "constant_of_shape": ("float[n,k] x", MIN + "y = ConstantOfShape(k)", {}),
    "range": (
        "float[n,k] x", MIN + "q = Squeeze(k) o = Constant<value_int = 1>() "
        "f = Squeeze(z) y = Range(f, q, o)", {},
    ),
    "resize": ("float[n,k] x", MIN + "b = Shape<end = 1>(x) q = Concat<axis = 0>(b, k) y = Resize(x, , , q)", {}),
    "expand": ("float[n,k] x", MIN + "w = Constant<value = float[1] {2.0}>() y = Expand(w, k)", {}),
    "a maximum": ("float[n,k] x", MIN + "g = Max(s, t) y = ConstantOfShape(g)", {}),
    "a branch": (
        "float[n,k] x",
        MIN + "q = Squeeze(s) o = Constant<value_int = 1>() c = Equal(q, o) y = If<then_branch = a () => (float[n] u) "
        "{ e = Constant<value_ints = [1]>() u = Squeeze(x, e) }, else_branch = b () => (float[n,k] v) "
        "{ v = Neg(x) }>(c)",
        {},
    ),
}  # fmt: skip


def package(model, folder):
    model.to_python(folder)
    spec = importlib.util.spec_from_file_location("written", folder / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_size_with_two_values_is_warned_of(tmp_path):
    body = 'y = Einsum<equation = "a,b->">(x, z) s = Shape(x)'
    text = f"net (float[n] x, float[n] z) => (float y, int64[1] s) {{ {body} }}"
    model = jaxops.onnx.load(parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}'))
    written = package(model, tmp_path / "net")
    x, z = np.ones(2, F), np.ones(3, F)
    for runs in (lambda *xs: written.apply({}, *xs), jax.jit(lambda *xs: written.apply({}, *xs)), model):
        assert runs(x, x).y == 4
        with pytest.warns(UserWarning, match=r"the size 'n' is 2 in input 'x', but 3 in 'z'; the \w+ runs with both"):
            assert runs(x, z).y == 6


def test_an_erfc(tmp_path):
    text = "net (float[n] x) => (float[n] y) { y = Erfc(x) }"
    model = jaxops.onnx.load(parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}'))
    x = np.array([-6, 0, 0.5, np.inf, np.nan], F)
    np.testing.assert_array_equal(package(model, tmp_path / "net").apply({}, x), model(x))


REFUSED = {
    "rows of a table": (
        "float[n,k] x",
        "s = Shape<start = 1>(x) z = Constant<value_ints = [0]>() r = Slice(t, z, s) y = Add(x, r)",
        {"t": np.arange(3, dtype=F)},
        [[(2, 2)], [(2, 3)]],
        [(2, 4)],
        r"the sizes must have k <= 3, not k = 4",
    ),
    "all axes of size 1": (
        "float[n,k] x", "y = Squeeze(x)", {}, [[(2, 3)]], [(2, 1)], "must have k >= 2, not k = 1",
    ),
    "an axis that is dropped": (
        "float[n,k] x", "z = Constant<value_ints = [1]>() y = Squeeze(x, z)", {}, [[(2, 1)]], [(2, 3)],
        "must have k == 1, not k = 3",
    ),
    "two inputs of one size": (
        "float[b,1,4] x, float[t,9,4] h",
        "a = Add(x, h) s = Shape<end = 1>(h) q = Constant<value_ints = [-1]>() d = Concat<axis = 0>(s, q) "
        "y = Reshape(a, d)",
        {},
        [[(2, 1, 4), (2, 9, 4)]],
        [(2, 1, 4), (1, 9, 4)],
        "must have t == b, not t = 1, b = 2",
    ),
    "different axes": (
        "float[batch,target] ids",
        "s = Shape<end = 1>(ids) q = Shape<start = 1>(ids) a = ConstantOfShape(s) c = ConstantOfShape(q) "
        "e = Add(a, c) m = Constant<value_ints = [-1]>() d = Concat<axis = 0>(s, m) f = Reshape(e, d) "
        "w = Constant<value_ints = [1]>() g = Unsqueeze(f, w) y = Add(ids, f)",
        {},
        [[(1, 9)], [(1, 1)]],
        [(2, 2)],
        "must have batch == 1, not batch = 2",
    ),
}  # fmt: skip


def packaged(folder, inputs, body, constants):
    """(The model, its package, the text of the package.)"""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> m ({inputs}) => (float y) {{ {body} }}')
    proto.graph.output[0].type.Clear()
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    model = jaxops.onnx.load(proto)
    model.to_python(folder)
    spec = importlib.util.spec_from_file_location("net", folder / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return model, module, (folder / "__init__.py").read_text()


def arrays(shapes):
    return [np.arange(np.prod(shape), dtype=F).reshape(shape) for shape in shapes]


def check(model, package, shapes):
    with jax.disable_jit():
        expected, found = (
            model.apply(model.params, *arrays(shapes)),
            package.apply(package.load_params(), *arrays(shapes)),
        )
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("title", COMPUTED)
def test_sizes_are_computed(tmp_path, title):
    model, package, text = packaged(tmp_path / "net", *COMPUTED[title])
    assert "Sizes:" not in text
    for sizes in [(2, 1), (2, 2), (2, 3), (1, 5), (3, 1)]:
        check(model, package, [sizes])


@pytest.mark.parametrize("title", REFUSED)
def test_sizes_beyond_an_assumption_are_refused(tmp_path, title):
    inputs, body, constants, served, refused, text = REFUSED[title]
    model, package, _ = packaged(tmp_path / "net", inputs, body, constants)
    for shapes in served:
        check(model, package, shapes)
    for function in (package.apply, jax.jit(package.apply)):
        with pytest.raises(ValueError, match=text):
            function(package.load_params(), *arrays(refused))
