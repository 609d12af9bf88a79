"""Models that contradict themselves, or that no version of the format allows, are refused at load.

What onnxruntime runs, and can mean only one thing, loads: the end of this file says what that is.
"""

import io
import re

import numpy as np
import onnx
import pytest
from graphs import IN, OUT, build, function, info, node, tensor
from onnx import AttributeProto, TensorProto, helper

from jaxops.errors import ArgumentError, JaxopsError, ModelError, PathError, SignatureError, TooLargeError
from jaxops.onnx import check, load

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LOC = (("", 18), ("loc", 1))


def twice(first, second):
    found = node("Flatten", ["x"], ["y"], axis=first)
    found.attribute.append(helper.make_attribute("axis", second))
    return build(found)


def of_version(ir_version, opsets=(("", 18),)):
    found = build(node("Relu", ["x"], ["y"]), opsets=opsets)
    found.ir_version = ir_version
    return found


def referring(name):
    """A Flatten whose axis is an attribute of a function."""
    found = node("Flatten", ["x"], ["y"])
    found.attribute.append(AttributeProto(name="axis", ref_attr_name=name, type=AttributeProto.INT))
    return found


def in_a_subgraph(inner):
    graph = helper.make_graph([inner], "b", [], [onnx.ValueInfoProto(name="y")])
    return build(
        node("If", ["c"], ["z"], then_branch=graph, else_branch=graph),
        initializers=[tensor(np.bool_(True), "c")],
        outputs=(onnx.ValueInfoProto(name="z"),),
    )


def calling(found, inputs=("x",), outputs=("y",), **attributes):
    call = node("F", list(inputs), list(outputs), domain="loc", **attributes)
    return build(call, functions=[found], opsets=LOC)


def with_two_opsets():
    found = function("F", ["a"], node("Relu", ["a"], ["b"]))
    found.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    return calling(found)


def referring_function(attributes):
    found = function("F", ["x"], referring("k"), outputs=("y",), attributes=attributes)
    return calling(found)


def with_input(value, *more, ir_version=10):
    found = build(
        node("Add", ["x", "w"], ["y"]),
        inputs=(IN, value, *more),
        initializers=[tensor(np.float32([1, 2, 3])), tensor(np.float32([1, 2]), "v")],
    )
    found.ir_version = ir_version
    return found


BODY = helper.make_graph([node("Identity", ["a"], ["b"])], "b", [info("a", None)], [onnx.ValueInfoProto(name="b")])


def scan(count):
    return build(node("Scan", ["x"], ["y"], num_scan_inputs=count, body=BODY))


def unnamed_output():
    graph = helper.make_graph([node("Relu", ["x"], ["a"])], "b", [], [onnx.ValueInfoProto(name="")])
    found = node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
    return build(found, initializers=[tensor(np.bool_(True), "c")])


def reading_from_inside():
    """An If whose condition is made in one of its branches."""
    body = helper.make_graph([node("Not", ["c"], ["inside"])], "g", [], [onnx.ValueInfoProto(name="inside")])
    found = node("If", ["inside"], ["y"], then_branch=body, else_branch=body)
    return build(found, initializers=[tensor(np.bool_(True), "c")])


REFUSED = [
    (reading_from_inside(), ModelError, r"node 'y' \(If\) reads 'inside', which nothing defines"),
    (twice(1, 0), ModelError, r"node 'Flatten' \(Flatten\) has the attribute `axis` twice"),
    (twice(1, 1), ModelError, "has the attribute `axis` twice"),
    (in_a_subgraph(twice(1, 0).graph.node[0]), ModelError, "has the attribute `axis` twice"),
    (of_version(10, (("", 18), ("", 13))), ModelError, "two opsets of domain '' are imported: 18 and 13"),
    (of_version(10, (("", 18), ("ai.onnx", 13))), ModelError, "two opsets of domain '' are imported: 18 and 13"),
    (of_version(10, (("a.b", 1), ("", 18), ("a.b", 2))), ModelError, "two opsets of domain 'a.b' are imported: 1 and"),
    (with_two_opsets(), ModelError, "two opsets of domain '' are imported: 18 and 13"),
    (of_version(3, ()), ModelError, "it imports no opset, as models must from IR version 3 on"),
    (of_version(10, ()), ModelError, "the ModelProto: it imports no opset"),
    (of_version(10, (("", -1),)), ModelError, "the opset of domain '' is -1; versions start at 0"),
    (of_version(10, (("", 18), ("ai.onnx.ml", -(2**63)))), ModelError, "the opset of domain 'ai.onnx.ml' is -92233"),
    (of_version(0), ModelError, f"IR version 0: the installed onnx knows 1 to {onnx.IR_VERSION}"),
    (of_version(-1), ModelError, "IR version -1: the installed onnx knows 1 to"),
    (of_version(onnx.IR_VERSION + 1), ModelError, "for a greater one, a newer onnx may help"),
    (of_version(2**40), ModelError, "IR version 1099511627776"),
    (build(referring("k")), ModelError, "`axis` refers to `k` of a function, but the node is not in"),
    (in_a_subgraph(referring("k")), ModelError, "`axis` refers to `k` of a function, but the node is not in"),
    (
        referring_function([]),
        ModelError,
        "node 'y' takes its attribute `axis` from `k`, an attribute that the function does not have",
    ),
    (calling(function("F", ["a", "a"], node("Relu", ["a"], ["b"]))), ModelError, "function 'F' has two of input 'a'"),
    (calling(function("F", ["a", ""], node("Relu", ["a"], ["b"]))), ModelError, "input 1 of function 'F' has no name"),
    (
        calling(function("F", ["a"], node("Relu", ["a"], ["b"]), outputs=("b", "b")), outputs=("y", "z")),
        ModelError,
        "function 'F' has two of output 'b'",
    ),
    (
        with_input(info("w", [3], TensorProto.INT64)),
        ModelError,
        r"input w: int64.3. has an initializer of another type ",
    ),
    (
        with_input(info("w", [5])),
        ModelError,
        r"w: float32\[5\] has an initializer of another type or shape",
    ),
    (with_input(info("w", [1, 3])), ModelError, r"w: float32\[1, 3\] has an initializer of another type or shape"),
    (with_input(info("w", [5]), ir_version=3), ModelError, r"w: float32\[5\] has an initializer of another type or sh"),
    (scan(0), SignatureError, "Scan: `num_scan_inputs` is 0; of 1 input, 1 to 1 may be scanned"),
    (scan(2), SignatureError, "Scan: `num_scan_inputs` is 2; of 1 input, 1 to 1 may be scanned"),
    (scan(-1), SignatureError, "Scan: `num_scan_inputs` is -1"),
    (unnamed_output(), ModelError, "output 0 of the graph has no name"),
]


@pytest.mark.parametrize(("proto", "error", "match"), REFUSED, ids=[match[:50] for *_, match in REFUSED])
def test_refused_at_load(proto, error, match):
    with pytest.raises(error, match=match):
        load(proto)


WORDS = ["kkkk", "locd", "aaaa", "graphname", "NNNN", "nodename", "valuename"]


def test_names_that_are_no_utf_8_wherever_they_stand():
    flatten = node("Flatten", ["aaaa"], ["b"])
    flatten.attribute.append(AttributeProto(name="axis", ref_attr_name="kkkk", type=AttributeProto.INT))
    proto = calling(function("F", ["aaaa"], flatten, attributes=("kkkk",)), outputs=("valuename",), kkkk=1)
    proto.graph.node[0].domain = proto.functions[0].domain = proto.opset_import[1].domain = "locd"
    proto.graph.node[0].name, proto.graph.name, proto.producer_name = "nodename", "graphname", "producer"
    proto.graph.output[0].name = "valuename"
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "NNNN"
    data = proto.SerializeToString()
    assert load(data)(X).shape == (2, 3)
    for word in WORDS:
        with pytest.raises(ModelError, match=r"the name b'\\xff+.*' is not UTF-8; the model is damaged"):
            load(data.replace(word.encode(), b"\xff" * len(word)))
    assert load(data.replace(b"producer", b"\xff" * 8))(X).shape == (2, 3)  # it means nothing
    strings = build(
        node("StringSplit", ["x"], ["y", "n"], delimiter="abc"), opsets=(("", 20),), inputs=[info("x", [2], 8)]
    )
    model = load(strings.SerializeToString().replace(b"abc", b"\xff\xfe\xfd"))
    assert model(np.array(["a", "b"], object)).tolist() == [["a"], ["b"]]


DECLARED = [(TensorProto.INT64, "int64"), (TensorProto.FLOAT16, "float16"), (TensorProto.STRING, "string")]


@pytest.mark.parametrize(("number", "name"), DECLARED)
def test_an_output_of_another_type_than_the_model_declares(number, name):
    """Types follow from those of the inputs, so a call says it; onnxruntime, which infers them, says it at load."""
    model = load(build(node("Relu", ["x"], ["y"]), outputs=(info("y", None, number),)))
    for use in (lambda: model(X), lambda: model.apply({}, X), model.export):
        with pytest.raises(ModelError, match=rf"declares the output y: {name}\[…\], but its nodes compute float32\["):
            use()


def test_the_declared_type_of_an_output_may_be_the_wide_one_or_none():
    for op, number, kind in (("Shape", TensorProto.INT64, np.int64), ("Relu", TensorProto.FLOAT, np.float32)):
        assert load(build(node(op, ["x"], ["y"]), outputs=(info("y", None, number),)))(X).dtype == kind
    wide = build(node("Cast", ["x"], ["y"], to=TensorProto.INT64), outputs=(info("y", None, TensorProto.INT64),))
    for x64, kind in ((False, np.int32), (True, np.int64)):
        assert load(wide, x64=x64)(X).dtype == kind
        assert load(wide, x64=x64).apply({}, X, outputs=["y"]).dtype == kind
    strings = build(
        node("Identity", ["s"], ["y"]), inputs=(info("s", [1], 8),), outputs=(info("y", None, TensorProto.STRING),)
    )
    assert load(strings)(np.array(["a"])).tolist() == ["a"]


def test_paths_that_name_no_file(tmp_path):
    for path, text in (
        (tmp_path / "nope.onnx", "there is no file '.*nope.onnx'"),
        (tmp_path, "is a directory; give the path of a file"),
        ("", "'' is a directory"),
        ("a\0b", r"'a\\x00b' cannot be read: embedded null byte"),
        ("x" * 5000, "cannot be read: .*too long"),
        ("/dev/zero", "'/dev/zero' cannot be read: it is a device; give the path of a file"),
        ("/proc/self/mem", "'/proc/self/mem' cannot be read: .*Invalid argument"),
    ):
        for use in (load, check):
            with pytest.raises(PathError, match=text) as raised:
                use(path)
            assert isinstance(raised.value, JaxopsError | FileNotFoundError)
    closed = io.BytesIO(b"")
    closed.close()
    with pytest.raises(ArgumentError, match="load: the file cannot be read: I/O operation on closed file"):
        load(closed)


def test_files_without_an_end():
    with open("/dev/zero", "rb") as file, pytest.raises(ArgumentError, match="cannot be read: it is a device"):
        load(file)
    with pytest.raises(ModelError, match="/proc/self/environ: not an ONNX model: it has no graph"):
        load("/proc/self/environ")  # it says that it has no bytes


def sparse(values, indices, sizes):
    return build(
        node("Add", ["x", "w"], ["y"]), sparse=[helper.make_sparse_tensor(tensor(values), tensor(indices, ""), [3])]
    )


def test_sparse_tensors_that_are_none():
    proto = sparse(np.float32([1]), np.float32([0]), [3])
    with pytest.raises(ModelError, match="its indices are float32; they must be int64"):
        load(proto)
    proto = sparse(np.float32([1]), np.int64([0]), [3])
    for size, error, text in ((-1, ModelError, "a size is negative"), (2**62, TooLargeError, "an array of shape")):
        proto.graph.sparse_initializer[0].dims[0] = size
        with pytest.raises(error, match=re.escape(f"sparse tensor 'w' of shape ({size},): {text}")):
            load(proto)


def test_many_names_twice_are_found_at_once():
    names = [f"w{k % 20000}" for k in range(40000)]
    tensors = [tensor(np.float32([k]), name) for k, name in enumerate(names)]
    with pytest.raises(ModelError, match="the graph has two of initializer 'w0'"):
        load(build(node("Add", ["x", "w0"], ["y"]), initializers=tensors))


TAKEN = {
    "one opset twice": of_version(10, (("", 18), ("ai.onnx", 18))),
    "an opset of another domain alone": of_version(10, (("ai.onnx.ml", 3),)),
    "IR version 1": of_version(1),
    "no opset before IR version 3": of_version(2, ()),
    "an optional attribute that a call leaves out": referring_function(["k"]),
    "a symbolic size beside an initializer": with_input(info("w", ["M"])),
    "an output of another shape": build(node("Relu", ["x"], ["y"]), outputs=(info("y", [7, 8, 9]),)),
    "a size with another value in an output": build(
        node("Concat", ["x", "x"], ["y"], axis=0), outputs=(info("y", ["N", 3]),)
    ),
    "one output twice": build(node("Relu", ["x"], ["y"]), outputs=(OUT, OUT)),
}


@pytest.mark.parametrize("what", TAKEN)
def test_tolerated(what):
    load(TAKEN[what])(X)
