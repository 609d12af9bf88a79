"""Reading an IR: ports, names, what is dropped, element types and their packing, sizes."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest
from openvino_files import File, gives, outputs_of

from jaxops.errors import ModelError
from jaxops.openvino import load
from jaxops.openvino.element_types import NF4


def loaded(file, **options):
    return load(file.xml, weights=file.bin, **options)


def test_an_operand_is_where_its_port_stands():
    """Port ids are any numbers, and the order of edges and layers says nothing."""
    net = b"""<net name="m" version="11"><edges>
      <edge from-layer="7" from-port="3" to-layer="9" to-port="0"/>
      <edge from-layer="2" from-port="0" to-layer="7" to-port="1"/>
      <edge from-layer="5" from-port="4" to-layer="7" to-port="9"/></edges><layers>
      <layer id="9" name="out" type="Result" version="opset1"><input><port id="0"/></input></layer>
      <layer id="7" name="minus" type="subtract" version="opset1"><data auto_broadcast="NUMPY"/>
        <input><port id="9"/><port id="1"/></input><output><port id="3"/></output></layer>
      <layer id="2" name="b" type="Parameter" version="opset1"><data shape="2" element_type="f32"/>
        <output><port id="0"/></output></layer>
      <layer id="5" name="a" type="Parameter" version="opset1"><data shape="2" element_type="f32"/>
        <output><port id="4"/></output></layer></layers></net>"""
    model = load(net)
    assert [value.name for value in model.inputs] == ["b", "a"]
    np.testing.assert_array_equal(model(a=np.array([5, 5], "f4"), b=np.array([1, 2], "f4")), [4, 3])


def test_inputs_that_nobody_reads_stay_and_layers_that_nobody_reads_go():
    file = File()
    x = file.parameter([2], name="x")
    file.parameter([3], name="unread")
    file.layer("NoSuchOperation", 99, [x])
    file.result(file.layer("Relu", 1, [x]))
    model = loaded(file)
    assert [value.name for value in model.inputs] == ["x", "unread"]
    assert len(model.graph.nodes) == 1


def test_names_of_inputs_and_outputs():
    file = File()
    x = file.parameter([2], name="Parameter_1", names="first,sec\\,ond")
    y = file.layer("Relu", 1, [x], outputs=[' names="Result_3,values"'], name="relu")
    z = file.layer("Negative", 1, [x], outputs=[' names="Result_4"'], name="minus")
    file.result(y)
    file.result(z)
    file.result(y, ' output_names="again"')
    file.result(x)
    model = loaded(file)
    assert [value.name for value in model.inputs] == ["first"]
    assert [value.name for value in model.graph.outputs] == ["values", "minus", "again", "first"]
    values = np.array([-1, 2], "f4")
    for name in ("first", "sec,ond"):
        np.testing.assert_array_equal(model(**{name: values}).again, [0, 2])
    assert model(values)._fields == ("values", "minus", "again", "first")


def test_a_decompressed_constant_is_one_parameter_of_the_wide_type():
    file = File()
    x = file.parameter([1, 2], name="x")
    weight = file.constant(np.array([[1.5, 2], [3, 4]], "f2"), name="self.fc.weight")
    wide = file.layer("Convert", 1, [weight], {"destination_type": "f32"}, body=MARK)
    file.result(file.layer("MatMul", 1, [x, wide], {"transpose_a": False, "transpose_b": True}))
    model = loaded(file)
    assert {name: value.dtype for name, value in model.params.items()} == {"self.fc.weight": np.float32}
    np.testing.assert_array_equal(model(np.ones((1, 2), "f4")), [[3.5, 7]])


def test_paths_are_without_the_model_itself():
    file = File()
    x = file.parameter([1, 40], name="x")
    weight = file.constant(np.ones((40, 40), "f4"), name="self.m.encoder.layer.0.weight")
    file.result(file.layer("MatMul", 1, [x, weight], {"transpose_a": False, "transpose_b": True}))
    assert loaded(file).paths == {"self.m.encoder.layer.0.weight": "m.encoder.layer.0.weight"}


@pytest.mark.parametrize("mark", ["DisablePrecisionConversion", "precise"])
def test_a_layer_may_stay_float32_in_a_narrower_model(mark):
    file = File()
    x = file.parameter([1], name="x")
    one = file.constant(np.float32([1]), name="bias")
    body = f'<rt_info><attribute name="{mark}" version="0"/></rt_info>'
    for extra in ("", body):
        y = file.layer("Add", 1, [x, one], {"auto_broadcast": "numpy"}, body=extra)
        file.result(file.layer("Subtract", 1, [y, x], {"auto_broadcast": "numpy"}, body=extra))
    for model in (loaded(file), pickle.loads(pickle.dumps(loaded(file)))):
        narrow, wide = model.astype("bfloat16")(jnp.full(1, 256, jnp.bfloat16))  # which has no 257
        assert (narrow, wide) == (0, 1)


MARK = '<rt_info><attribute name="decompression" version="0"/><attribute name="unheard_of" x="1"/></rt_info>'


@pytest.mark.parametrize(
    ("element", "data", "expected"),
    [
        ("u1", "68", np.array([0, 1, 1, 0, 1], "u1")),
        ("u2", "e4", np.array([0, 1, 2, 3], "u1")),
        ("u3", "1f4020", np.array([0, 1, 7, 3, 1], "u1")),
        ("u6", "01f30c", np.array([0, 1, 63, 3], "u1")),
        ("u4", "2103", np.array([1, 2, 3], "u1")),
        ("i4", "f108", np.array([1, -1, -8], "i1")),
        ("nf4", "f07e", NF4[[0, 15, 14, 7]]),
        ("f4e2m1", "217f", np.array([0.5, 1, -6, 6], "f4")),
        ("f8e4m3", "38b8", np.array([1, -1], "f4")),
        ("f8e5m2", "3cbc", np.array([1, -1], "f4")),
        ("f8e8m0", "7f80", np.array([1, 2], "f4")),
        ("bf16", "803f0040", np.array([1, 2], "f4")),
        ("boolean", "0100", np.array([True, False])),
        ("u64", "ff000000000000ff", np.array([0xFF000000000000FF], "u8")),
    ],
)
def test_element_types_and_their_packing(element, data, expected):
    """The bytes are those that OpenVINO writes."""
    file = File()
    file.weights += b"\0" * 3  # constants need not be aligned
    shape = {"element_type": element, "shape": list(expected.shape), "offset": 3, "size": len(data) // 2}
    file.weights += bytes.fromhex(data)
    file.result(file.layer("Const", 1, [], shape))
    values = np.asarray(loaded(file, x64=True)())
    np.testing.assert_array_equal(values.astype(expected.dtype), expected)


def test_strings():
    file = File()
    text = np.array([3, 0, 3, 3, 7], "<i4").tobytes() + b"abcxyzw"
    file.weights += text
    file.result(file.layer("Const", 1, [], {"element_type": "string", "shape": "3", "offset": 0, "size": len(text)}))
    assert loaded(file)().tolist() == ["abc", "", "xyzw"]
    for old, new in ((b"\x03\0\0\0\x07", b"\x03\0\0\0\x09"), (b"abc", b"a\xff\xff")):
        weights = bytes(file.weights).replace(old, new, 1)
        with pytest.raises(ModelError, match=r"'Const_0' \(Const\): its strings are damaged"):
            load(file.xml, weights=weights)()


def test_an_empty_constant_has_a_byte_and_constants_share_bytes():
    file = File()
    one = file.constant(np.array([1, 2], "f4"), name="one")
    two = file.layer("Const", 1, [], {"element_type": "f32", "shape": "1,2", "offset": 0, "size": 9 - 1}, name="two")
    none = file.layer("Const", 1, [], {"element_type": "f32", "shape": "0,2", "offset": 8, "size": 1})
    file.weights += b"\0"
    x = file.parameter([1, 2])
    file.result(file.layer("Concat", 1, [two, none, x], {"axis": 0}))
    file.result(file.layer("Add", 1, [x, one]))
    both, added = outputs_of(loaded(file), [np.zeros((1, 2), "f4")])
    np.testing.assert_array_equal(both, [[1, 2], [0, 0]])
    np.testing.assert_array_equal(added, [[1, 2]])


def test_free_sizes_have_names():
    file = File()
    file.result(file.layer("Relu", 1, [file.parameter("?,3,1..8,2..", name="im/age")]))
    model = loaded(file)
    assert model.inputs[0].shape == ("im_age_0", 3, "im_age_2", "im_age_3")
    assert model(np.ones((2, 3, 4, 5), "f4")).shape == (2, 3, 4, 5)
    assert loaded(file, sizes={"im_age_0": 2}).inputs[0].shape[0] == 2


def test_a_free_rank_needs_sizes():
    file = File()
    file.result(file.layer("Relu", 1, [file.parameter("...", name="x")]))
    with pytest.raises(ModelError, match=r"its rank is free; load\(…, sizes=\{'x_0': …"):
        loaded(file)
    assert loaded(file, sizes={"x_0": 2, "x_1": 3}).inputs[0].shape == (2, 3)


def test_lists_booleans_and_words_in_any_case():
    x = np.arange(6, dtype="f4").reshape(2, 3)
    gives("ReduceSum", 1, [x, (np.array([1]),)], {"keep_dims": "TRUE"}, np.array([[3], [12]], "f4"))
    gives("ReduceSum", 1, [x, (np.array([1]),)], {"keep_dims": "0"}, np.array([3, 12], "f4"))
    gives("Gelu", 7, [x[:1, :1]], {"approximation_mode": "tanh"}, np.zeros((1, 1), "f4"))
    gives(
        "TopK",
        3,
        [x, (np.array(1),)],
        {"axis": 1, "mode": "MAX", "sort": "Value"},
        x[:, 2:],
        np.array([[2], [2]], "i4"),
    )
    options = {"strides": "1, 1", "pads_begin": " 0 ,0", "pads_end": "0,0", "kernel": "2,3"}
    gives("MaxPool", 1, [x.reshape(1, 1, 2, 3)], options, np.full((1, 1, 1, 1), 5, "f4"))


def test_attributes_that_an_operation_does_not_have_are_skipped_with_one_warning():
    file = File()
    x = file.layer("Relu", 1, [file.parameter([2])], {"color": "red", "old_api_map_order": "0,1"})
    file.result(file.layer("Relu", 1, [x], {"color": "blue", "taste": 1}))
    with pytest.warns(UserWarning, match=r"are skipped: Relu.color, Relu.taste$"):
        loaded(file)


@pytest.mark.parametrize(("op_type", "version"), [("MVN", "opset1"), ("GRUCell", "experimental")])
def test_types_that_old_files_have_in_other_opsets(op_type, version):
    file = File()
    x = file.parameter([2, 3, 4])
    if op_type == "MVN":
        attributes = {"across_channels": False, "normalize_variance": True, "eps": 1e-9}
        file.result(file.layer(op_type, version, [x], attributes))
        assert abs(np.asarray(loaded(file)(np.arange(24, dtype="f4").reshape(2, 3, 4))).mean()) < 1e-6
    else:
        x, h = file.parameter([1, 2]), file.parameter([1, 3])
        w, r, b = (file.constant(np.ones(s, "f4")) for s in ((9, 2), (9, 3), (9,)))
        file.result(file.layer(op_type, version, [x, h, w, r, b], {"hidden_size": 3}))
        assert loaded(file)(np.ones((2, 3, 4), "f4"), np.ones((1, 2), "f4"), np.ones((1, 3), "f4")).shape == (1, 3)


def test_a_long_chain_loads():
    file = File()
    x = file.parameter([1])
    for _ in range(20_000):
        x = file.layer("Relu", 1, [x])
    file.result(x)
    assert len(loaded(file).graph.nodes) == 20_000
