"""Functions of a model that call functions: how long binding takes, how deep they may stand inside each other."""

import itertools
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import jaxops.onnx
from jaxops.errors import ModelError, UnsupportedError

IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
X = np.float32([1, 2])


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, domain="d" if op.startswith("f") else "", **attributes)


def model(functions, nodes, inputs=("x",), outputs=("y",)):
    """functions: (name, inputs, outputs, nodes, attributes)."""
    made = [
        helper.make_function("d", name, ins, outs, body, IMPORTS, attributes)
        for name, ins, outs, body, attributes in functions
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    return helper.make_model(graph, functions=made, opset_imports=IMPORTS, ir_version=9)


def chain(count, calls=1, first=None):
    """Functions of which each calls the one before; the first negates."""
    functions = [("f0", ["x"], ["y"], first or [node("Neg", ["x"], ["y"])], [])]
    for i in range(1, count):
        names = ["x", *(f"t{k}" for k in range(1, calls)), "y"]
        body = [node(f"f{i - 1}", [a], [b]) for a, b in itertools.pairwise(names)]
        functions.append((f"f{i}", ["x"], ["y"], body, []))
    return model(functions, [node(f"f{count - 1}", ["x"], ["y"])])


def test_functions_that_call_each_other_twice():
    started = time.perf_counter()
    loaded = jaxops.onnx.load(chain(31, 2))
    assert "f30(x)" in loaded.show()
    with pytest.raises(UnsupportedError, match=r"f30: inlining all function calls gives 3\d{9} nodes; the limit is 6"):
        loaded(X)
    assert time.perf_counter() - started < 20
    np.testing.assert_array_equal(jaxops.onnx.load(chain(6, 2))(X), X)
    np.testing.assert_array_equal(jaxops.onnx.load(chain(6, 3))(X), -X)


def test_a_chain_of_functions():
    np.testing.assert_array_equal(jaxops.onnx.load(chain(400))(X), -X)
    with pytest.raises(UnsupportedError, match="f32: inlining all function calls gives"):
        jaxops.onnx.load(chain(60, 2))


def test_an_error_at_the_end_of_a_chain():
    with pytest.raises(UnsupportedError, match="NoSuchOperator"):
        jaxops.onnx.load(chain(400, first=[node("NoSuchOperator", ["x"], ["y"])]))
    with pytest.raises(ModelError, match="reads 'z', which nothing defines") as caught:
        jaxops.onnx.load(chain(3, first=[node("Neg", ["z"], ["y"])]))
    notes = "\n".join(caught.value.__notes__)
    assert "in node 'y' (f0, a function of the model)\nin node 'y' (f1, a function of the model)" in notes
    loop = [("f0", ["x"], ["y"], [node("f1", ["x"], ["y"])], []), ("f1", ["x"], ["y"], [node("f0", ["x"], ["y"])], [])]
    with pytest.raises(ModelError, match="the function f0 calls itself"):
        jaxops.onnx.load(model(loop, [node("f0", ["x"], ["y"])]))


def test_more_attributes_than_bodies_can_be_bound_for():
    """Function i calls the one before with its flag i set to 0 and to 1: 2^i ways to call the first."""
    names = [f"a{k}" for k in range(24)]
    first = [node("Constant", [], ["c"], value_float=0.0), node("Add", ["x", "c"], ["y"])]
    functions = [("f0", ["x"], ["y"], first, names)]
    for i in range(1, 25):
        body = []
        for flag, (source, target) in enumerate((("x", "t"), ("t", "y"))):
            call = node(f"f{i - 1}", [source], [target], **{names[i - 1]: flag})
            others = [name for name in names if name != names[i - 1]]
            call.attribute.extend(
                onnx.AttributeProto(name=name, ref_attr_name=name, type=onnx.AttributeProto.INT) for name in others
            )
            body.append(call)
        functions.append((f"f{i}", ["x"], ["y"], body, names))
    np.testing.assert_array_equal(jaxops.onnx.load(model(functions[:4], [node("f3", ["x"], ["y"])]))(X), X)
    started = time.perf_counter()
    with pytest.raises(UnsupportedError, match=r"f\d+: functions call each other with too many different attributes"):
        jaxops.onnx.load(model(functions, [node("f24", ["x"], ["y"])]))
    assert time.perf_counter() - started < 60


BRANCH = helper.make_graph([helper.make_node("Add", ["x", "k"], ["z"])], "then", [], [onnx.ValueInfoProto(name="z")])
OTHER = helper.make_graph([helper.make_node("Sub", ["x", "k"], ["z"])], "else", [], [onnx.ValueInfoProto(name="z")])


def test_names_of_opened_functions_stay_apart():
    """Deep enough to be opened: equal names in each body and each branch, an output not asked for, one passed on."""
    first = [
        node("Constant", [], ["k"], value_floats=[1.0]),
        node("Constant", [], ["yes"], value=helper.make_tensor("v", TensorProto.BOOL, [], [True])),
        node("If", ["yes"], ["y"], then_branch=BRANCH, else_branch=OTHER),
        node("Mul", ["y", "k"], ["second"]),
    ]
    functions = [("f0", ["x", "unused"], ["y", "second", "x"], first, [])]
    for i in range(1, 120):
        body = [
            node("Constant", [], ["k"], value_floats=[float(i)]),
            node(f"f{i - 1}", ["x"], ["t", "", "same"]),
            node("Mul", ["same", "k"], ["scaled"]),
            node("Sub", ["scaled", "scaled"], ["z"]),
            node("Add", ["t", "z"], ["second"]),
            node("Add", ["t", "k"], ["y"]),
        ]
        functions.append((f"f{i}", ["x", "unused"], ["y", "second", "x"], body, []))
    found = jaxops.onnx.load(model(functions, [node("f119", ["x"], ["y", "k", "z"])], outputs=("y", "k", "z")))(X)
    np.testing.assert_array_equal(found.y, X + 1 + sum(range(120)))
    np.testing.assert_array_equal(found.k, X + 1 + sum(range(119)))
    np.testing.assert_array_equal(found.z, X)


def test_subgraphs_cannot_be_opened():
    functions = [("f0", ["x", "c"], ["y"], [node("Neg", ["x"], ["y"])], [])]
    for i in range(1, 110):
        inner = [
            helper.make_graph([node(op, ins, ["z"])], name, [], [onnx.ValueInfoProto(name="z")])
            for name, op, ins in (("then", f"f{i - 1}", ["x", "c"]), ("else", "Neg", ["x"]))
        ]
        body = [node("If", ["c"], ["y"], then_branch=inner[0], else_branch=inner[1])]
        functions.append((f"f{i}", ["x", "c"], ["y"], body, []))
    with pytest.raises(UnsupportedError, match=r"f\d+: with the functions .* nested .* levels deep; the limit is 100"):
        jaxops.onnx.load(model(functions, [node("f109", ["x", "c"], ["y"])], ("x", "c")))


def test_branches_that_call_functions_twice_load_fast():
    """40 functions, each of which calls the next one in both branches of an If: 2^40 nodes."""

    def call(k, result):
        inner = node(f"f{k}", ["q", "a"], [result])
        return helper.make_graph([inner], result, [], [onnx.ValueInfoProto(name=result)])

    functions = [("f0", ["q", "a"], ["b"], [node("Neg", ["a"], ["b"])], [])]
    for k in range(40):
        both = node("If", ["q"], ["b"], then_branch=call(k, "u"), else_branch=call(k, "v"))
        functions.append((f"f{k + 1}", ["q", "a"], ["b"], [both], []))
    proto = model(functions, [node("Cast", ["x"], ["q"], to=TensorProto.BOOL), node("f40", ["q", "x"], ["y"])])
    started = time.process_time()
    with pytest.raises(UnsupportedError, match="inlining all function calls gives"):
        jaxops.onnx.load(proto)(X)
    assert time.process_time() - started < 10
