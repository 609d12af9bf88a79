"""Names of a file are data: whatever they are, a package has the calls and the names that its writer makes."""

import ast
import builtins
import importlib.util
import re
import time
from xml.sax.saxutils import escape

import jax
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from openvino_files import File

import jaxops.onnx
import jaxops.openvino
from jaxops.tools.python import source
from jaxops.tools.python.naming import base_name
from jaxops.tools.python.quoting import identifier

F = np.float32
X = np.arange(6, dtype=F).reshape(2, 3)
CODE = '__import__("builtins").executed = True'
WORST = {
    "code behind a docstring": f'"""\n{CODE}\n"""',
    "code behind an indented docstring": f'"""\n    {CODE}\n    """',
    "code behind single quotes": f"'''\n{CODE}\n'''",
    "code behind a comment": f"x]  \n    {CODE}\n    # ",
    "code behind a subscript": f'"]; {CODE}; params["',
    "code behind a call": f"); {CODE}  #",
    "code behind an f-string": f"{{{CODE}}}",
    "code behind other ends of lines": f"a\r{CODE}\x0b{CODE}\x0c{CODE}\x85{CODE}\u2028{CODE}\u2029{CODE}",
    "an end of a string": 'a"',
    "an end of another string": "a'",
    "both": "a'\"",
    "a backslash": "a\\",
    "two of them": 'a\\\\"',
    "the name of a character": "\\N{",
    "an escape": "\\x",
    "a surrogate as an escape": "\\ud800",
    "newline": "\n",
    "null": "a\0b",
    "an escape of terminals": "\x1b[2J",
    "a mark of direction": "\u202e a",
    "a comment": "# a",
    "braces": "{a!r:{b}}",
    "a keyword": "lambda",
    "another keyword": "None",
    "no letter": "批",
    "a ligature": "ﬁ",
    "a path": "../a/0/b.c..d",
    "a subscript": 'a["b"]["c"].d',
    "names of the writer's own": "@w",
    "a value without a name": "#n#0#1.0",
    "the random key": "rng",
    "what packages import": "jo",
    "what packages define": "load_params",
    "metadata of a file of parameters": "__metadata__",
    "an operation on sizes": "floordiv",
    "spaces": "  ",
}  # fmt: skip
# What a package may call, and read, besides its own functions, arguments and variables.
CALLED = {
    "jo",
    "jnp",
    "np",
    "jax",
    "jaxops",
    "Path",
    "dict",
    "load_file",
    "params",
    "place",
    "name",
    "value",
    __name__.partition(".")[0],
}
READ = CALLED | {"str", "Any", "NamedTuple", "int", "tuple", "__file__"}
MODULES = {"jax", "jax.numpy", "jaxops", "jaxops.onnx", "jaxops.openvino", "numpy", "pathlib", "typing"} | {
    "safetensors.flax",
    __name__,
}


def numbered(x, **attributes):
    """An operator of a caller: x plus the number of its attributes."""
    return x + np.float32(len(attributes))


def imported(folder):
    spec = importlib.util.spec_from_file_location("net", folder / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_opset(expression):
    """Returns True for a call such as `jaxops.onnx.opset(9)`."""
    return re.fullmatch(r"jaxops\.(onnx|openvino)\.opset\(\d+\)", ast.unparse(expression)) is not None


def check_tree(text):
    """Asserts that source has no call, no name and no import but those that the writer makes."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    local = {node.arg for node in nodes if isinstance(node, ast.arg)} | functions
    local |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    opsets = {node.targets[0].id for node in tree.body if isinstance(node, ast.Assign) and is_opset(node.value)}
    assert all(
        name == identifier(name) or name in ("Outputs", "Params", "Array", "HERE", "CONSTANTS") for name in local
    )
    assert not local & {"executed", "__import__"}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            assert node.id in READ | local, ast.unparse(node)
        elif isinstance(node, ast.Call):
            root = node.func
            while isinstance(root, ast.Attribute):
                root = root.value
            if not isinstance(root, ast.Call | ast.Subscript):
                assert root.id in CALLED | functions | opsets, ast.unparse(node)
        elif isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= MODULES
        elif isinstance(node, ast.ImportFrom):
            assert node.module in MODULES
    return tree


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(worst):
    """A model with a text in each place where a name can stand."""

    def name(k):
        return f"{worst}{k}" if k else worst

    def node(op, inputs, outputs, k, **kwargs):
        made = helper.make_node(op, inputs, outputs, name=f"/{name(1)}/{worst}/{name(k)}", doc_string=worst, **kwargs)
        made.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(["", worst, f"{worst}.0", worst]))
        made.metadata_props.add(key="namespace", value=f": A/{worst}: {worst}/{worst}: {worst}")
        return made

    branches = [
        helper.make_graph([node("Neg", [name(11)], [f"{worst}{k}b"], 20 + k)], worst, [], [value(f"{worst}{k}b", None)])
        for k in range(2)
    ]
    body = helper.make_graph(
        [node("Add", [f"{worst}v", name(12)], [f"{worst}r"], 30), node("Identity", [f"{worst}c"], [f"{worst}d"], 31)],
        worst,
        [value(f"{worst}i", [], TensorProto.INT64), value(f"{worst}c", [], TensorProto.BOOL), value(f"{worst}v", None)],
        [value(f"{worst}d", [], TensorProto.BOOL), value(f"{worst}r", None)],
    )
    called = helper.make_function(
        worst + "d", worst + "f", [f"{worst}p"], [f"{worst}q"],
        [node("Mul", [f"{worst}p", f"{worst}p"], [f"{worst}q"], 40)], [helper.make_opsetid("", 17)],
    )  # fmt: skip
    labels = {"keys_strings": [worst, "k"], "values_strings": ["v", worst]}
    nodes = [
        node("MatMul", [name(0), f"{worst}w"], [name(10)], 1),
        node("Add", [name(10), f"{worst}table"], [name(11)], 2),
        node("If", [f"{worst}q"], [name(12)], 3, then_branch=branches[0], else_branch=branches[1]),
        node("Loop", ["count", "", name(11)], [name(13)], 4, body=body),
        node(worst + "f", [name(13)], [name(14)], 5, domain=worst + "d"),
        node(worst, [name(14)], [name(15)], 6, domain=worst + "c", **{worst: worst, f"{worst}2": [worst, worst]}),
        node("Shape", [name(15)], [name(16)], 7),
        node("RandomUniformLike", [name(15)], [name(17)], 8),
        node("Dropout", [name(17)], [name(18)], 9),
        node("LabelEncoder", [f"{worst}s"], [name(19)], 10, domain="ai.onnx.ml", **labels),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        worst,
        [
            value(name(0), [f"{worst}n", f"{worst}m", 3]),
            value(f"{worst}q", [], TensorProto.BOOL),
            value(f"{worst}s", [f"{worst}n"], TensorProto.STRING),
        ],
        [
            value(name(15), [f"{worst}n", f"{worst}o", 3]),
            value(name(16), [3], TensorProto.INT64),
            value(name(12), None),
            value(name(18), [f"{worst}n", f"{worst}m", 3]),
            value(name(19), [f"{worst}n"], TensorProto.STRING),
        ],
        initializer=[
            numpy_helper.from_array(np.arange(9, dtype=F).reshape(3, 3), f"{worst}w"),
            numpy_helper.from_array(np.ones(3, F), f"{worst}table"),
            numpy_helper.from_array(np.array(2), "count"),
        ],
        doc_string=worst,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(worst + "d", 1), helper.make_opsetid(worst + "c", 1)]
    model = helper.make_model(graph, opset_imports=[*opsets, helper.make_opsetid("ai.onnx.ml", 3)], functions=[called])
    model.producer_name, model.producer_version, model.doc_string = worst, worst, worst
    model.metadata_props.add(key=worst, value=worst)
    return model


def inputs_of():
    return np.arange(12, dtype=F).reshape(2, 2, 3), np.array(True), np.array(["k", "z"], object)


def check_package(folder, worst):
    """The model of a name, whose package is checked."""
    model = jaxops.onnx.load(model_of(worst), operators={(worst + "c", worst): numbered})
    model.to_python(folder)
    check_tree((folder / "__init__.py").read_text(encoding="utf-8"))
    return model


@pytest.mark.parametrize("worst", WORST.values(), ids=WORST)
def test_a_package_has_no_call_and_no_name_of_the_file(tmp_path, worst):
    model = check_package(tmp_path / "net", worst)
    package = imported(tmp_path / "net")
    with jax.disable_jit():
        key, inputs = jax.random.key(0), inputs_of()
        found = package.apply(package.load_params(), *inputs, rng=key)
        expected = model.apply(model.params, *inputs, rng=key)
    for one, other in zip(found, expected, strict=True):
        assert np.asarray(one).tolist() == np.asarray(other).tolist()
    assert not hasattr(builtins, "executed")


IN_XML = {title: text for title, text in WORST.items() if not set(text) & set("\0\x0b\x0c\x1b")}


@pytest.mark.parametrize("worst", IN_XML.values(), ids=IN_XML)
def test_neither_has_one_of_an_ir(tmp_path, worst):
    file = File(escape(worst, {'"': "&quot;", "\n": "&#10;", "\r": "&#13;"}))
    x = file.parameter([-1, 3], name=f"{worst}x", names=f"{worst}x")
    w = file.constant(np.arange(9, dtype=F).reshape(3, 3), name=f"{worst}/w")
    product = file.layer("MatMul", 1, [x, w], {"transpose_a": False, "transpose_b": False}, name=f"a/{worst}/m")
    total = file.layer("Add", 1, [product, file.constant(np.ones((1, 3), F), name=worst)], name=worst)
    file.result(file.layer("MatMul", 1, [total, w], {"transpose_a": False, "transpose_b": False}, name=worst))
    file.result(file.layer("ShapeOf", 3, [total], {"output_type": "i64"}, name=worst))
    model = jaxops.openvino.load(file.xml, weights=file.bin)
    model.to_python(tmp_path / "net")
    check_tree((tmp_path / "net" / "__init__.py").read_text(encoding="utf-8"))
    package = imported(tmp_path / "net")
    for one, other in zip(package.apply(package.load_params(), X), model(X), strict=True):
        assert np.asarray(one).tolist() == np.asarray(other).tolist()
    assert not hasattr(builtins, "executed")


def test_names_in_packages_keep_apart(tmp_path):
    """A value, a body, a module of a caller's function, a module of operators, a random key: one name each."""
    root = __name__.partition(".")[0]
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "body"], ["r"]), helper.make_node("Identity", ["c"], ["d"])],
        "b",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", None)],
        [value("d", [], TensorProto.BOOL), value("r", None)],
    )
    nodes = [
        helper.make_node("Neg", ["rng"], ["body"]),
        helper.make_node("Abs", ["rng"], [root]),
        helper.make_node("Exp", [root], ["jaxops"]),
        helper.make_node("Clip", ["jaxops"], ["@w"], min=0.0),
        helper.make_node("Loop", ["two", "", "body"], ["looped"], body=body),
        helper.make_node("Numbered", ["looped"], ["n"], domain="my"),
        helper.make_node("RandomUniformLike", ["n"], ["noise"]),
        helper.make_node("Sum", ["n", "@w", root, "body", "w", "noise"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "m", [value("rng", [3])], [value("y", [3])],
        [numpy_helper.from_array(np.array(2), "two"), numpy_helper.from_array(np.arange(3, dtype=F), "w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 8), helper.make_opsetid("my", 1)]
    model = jaxops.onnx.load(helper.make_model(graph, opset_imports=opsets), operators={("my", "Numbered"): numbered})
    model.to_python(tmp_path / "net")
    text = (tmp_path / "net" / "__init__.py").read_text()
    check_tree(text)
    package, key = imported(tmp_path / "net"), jax.random.key(1)
    found = package.apply(package.load_params(), X[0], rng=key)
    assert found.tolist() == model.apply(model.params, X[0], rng=key).tolist()


@pytest.mark.parametrize("name", ["#" * 40 + "\n", "_1" * 50_000 + "\n", "_output_1" * 9_000 + "x\n", "." * 100_000])
def test_a_long_name_is_shortened_in_linear_time(name):
    since = time.perf_counter()
    base_name(f"%{name}", "x")
    base_name(f"%{name}", "x", ("layer", "0"))
    identifier(name)
    assert time.perf_counter() - since < 2


def test_suffixes_of_exporters_are_left_out():
    assert base_name("%/layer.0/relu_output_0", "x") == "relu"
    assert base_name("%hidden_output_0_1.2", "x") == "hidden"


@pytest.mark.parametrize("quoting", ["docstring", "comment"])
def test_text_that_is_not_quoted_would_be_noticed(tmp_path, monkeypatch, quoting):
    monkeypatch.setattr(source, quoting, lambda text: f"# {text}" if quoting == "comment" else str(text))
    worst = WORST["code behind a docstring" if quoting == "docstring" else "code behind a comment"]
    with pytest.raises((AssertionError, SyntaxError)):
        check_package(tmp_path / "net", worst)


def test_a_parameter_may_have_the_name_of_metadata(tmp_path):
    weights = [numpy_helper.from_array(np.arange(3, dtype=F), name) for name in ("__metadata__", "__metadata___")]
    nodes = [helper.make_node("Sum", ["x", *(weight.name for weight in weights)], ["y"])]
    graph = helper.make_graph(nodes, "m", [value("x", [3])], [value("y", [3])], weights)
    jaxops.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])).to_python(tmp_path / "net")
    package = imported(tmp_path / "net")
    assert package.apply(package.load_params(), X[0]).tolist() == [0, 3, 6]
