"""If, Loop and TensorIterator: what enters and leaves their bodies, by port maps."""

import jax
import numpy as np
import pytest
from openvino_files import File, assert_close, outputs_of, run_by_plugin
from openvino_models import iterator, loop

from jaxops.errors import ArgumentError, ModelError
from jaxops.openvino import load

X = np.arange(12, dtype="f4").reshape(1, 6, 2)


def agrees(file, *inputs):
    expected = run_by_plugin(file, inputs)
    model = load(file.xml, weights=file.bin)
    assert_close(outputs_of(model, inputs), expected)
    return model


@pytest.mark.parametrize("first_id", [2, 0])
def test_if(first_id):
    """Ids of outputs count on from those of inputs, or from 0, as in the text's example."""
    then = File()
    then.result(then.layer("Relu", 1, [then.parameter([3])]))
    otherwise = File()
    p = otherwise.parameter([3])
    otherwise.result(otherwise.layer("Add", 1, [p, p]))
    maps = "".join(
        f'<{name}_port_map><input external_port_id="1" internal_layer_id="0"/>'
        f'<output external_port_id="{first_id}" internal_layer_id="2"/></{name}_port_map>'
        f"<{name}_body>{body.net}</{name}_body>"
        for name, body in (("then", then), ("else", otherwise))
    )
    file = File()
    condition, x = file.parameter([], "?", name="condition"), file.parameter([3], name="x")
    file.result(file.layer("If", 8, [condition, x], {}, body=maps))
    model = load(file.xml)
    values = np.array([-1, 2, 3], "f4")
    for chosen, expected in ((True, [0, 2, 3]), (False, [-2, 4, 6])):
        np.testing.assert_array_equal(model(np.array(chosen), values), expected)
        np.testing.assert_array_equal(jax.jit(model.apply)(model.params, np.array(chosen), values), expected)


@pytest.mark.parametrize("slices", [(0, -1, 1, 1), (-1, 0, -1, 1), (0, -1, 2, 2), (0, -1, 3, 3)], ids=str)
def test_tensor_iterator(slices):
    model = agrees(iterator(*slices), X)
    gradient = jax.grad(lambda x: model.apply(model.params, x)[0].sum())(X)
    np.testing.assert_array_equal(gradient, np.ones_like(X))


def test_slices_that_end_before_the_axis_does():
    """Both ends are included, and negative ones count from the end of the axis."""
    last, joined = outputs_of(load(iterator(1, 3, 1, 1).xml, weights=iterator(1, 3, 1, 1).bin), [X])
    np.testing.assert_array_equal(joined, np.cumsum(X[:, 1:4], 1))
    np.testing.assert_array_equal(last, joined[:, -1:])


@pytest.mark.parametrize(("trip_count", "bound", "expected"), [(3, None, 3), (0, None, 0), (9, 20.0, 5), (-1, 50.0, 6)])
def test_loop(trip_count, bound, expected):
    file = loop(trip_count, bound)
    value, numbers = outputs_of(load(file.xml, weights=file.bin), [np.ones(1, "f4")])
    np.testing.assert_array_equal(value, [2.0**expected])
    np.testing.assert_array_equal(numbers, np.arange(expected))


def test_a_loop_with_a_bound():
    """Data decide when it ends; the padding stands behind the numbers of the iterations."""
    backwards = 'axis="0" start="-1" end="0" stride="-1" part_size="1"'
    for joined, expected in (({}, [0, 1, 2, 3, 4, 0, 0, 0]), ({"joined": backwards}, [4, 3, 2, 1, 0, 0, 0, 0])):
        file = loop(-1, 20.0, **joined)
        model = load(file.xml, weights=file.bin, bounds={"Loop": 8})
        for run in (model, jax.jit(lambda x, model=model: model(x))):
            value, numbers = outputs_of(run, [np.ones(1, "f4")])
            np.testing.assert_array_equal(value, [32])
            np.testing.assert_array_equal(numbers, expected)
    file = loop(-1, 20.0, joined="")
    for bounds in ({}, {"Loop": 8}):
        value, number = outputs_of(load(file.xml, weights=file.bin, bounds=bounds), [np.ones(1, "f4")])
        np.testing.assert_array_equal([value[0], number[0]], [32, 4])
    model = load(file.xml, weights=file.bin, bounds={"Loop": 8})
    assert jax.grad(lambda x: jax.tree.leaves(model(x))[0][0])(np.ones(1, "f4")).tolist() == [32]


BAD = [
    ('internal_layer_id="0"', 'internal_layer_id="9"', "the body has no Parameter of layer id 9"),
    ('to-layer="1"/></back', 'to-layer="3"/></back', "the body has no Parameter of layer id 3"),
    ('from-layer="3" to', 'from-layer="2" to', "the body has no Result of layer id 2"),
    ('<input external_port_id="1" internal_layer_id="1"/>', "", "layer 1 has a back edge, but no first value"),
    ('external_port_id="0"', 'external_port_id="7"', "the layer has no input of port id 7"),
    (
        '<output external_port_id="2" internal_layer_id="3"/>',
        "",
        "the port map has 1 output, but the layer has 2",
    ),
    ('axis="1"', 'axis="one"', "`axis` is 'one'; it must be a whole number"),
    ("</body>", "</body><body/>", "has two <body>"),
    ('internal_layer_id="0"', 'internal_layer_id="1"', "port map of <body>: two <input> lead to layer 1"),
    (
        'to-layer="1"/></back',
        'to-layer="1"/><edge from-layer="3" to-layer="1"/></back',
        "two back edges lead to layer 1",
    ),
    (
        'internal_layer_id="0" axis="1"',
        'internal_layer_id="0"',
        "number of iterations is unknown: an <input> of the port",
    ),
    (
        'external_port_id="0" internal_layer_id="0"',
        'external_port_id="-1" internal_layer_id="0"',
        "no <input> leads to layer 0",
    ),
    ('external_port_id="3"', 'external_port_id="2"', "two <output> have the same external_port_id"),
]


@pytest.mark.parametrize(("old", "new", "match"), BAD, ids=[row[2] for row in BAD])
def test_bad_port_maps(old, new, match):
    file = iterator(0, -1, 1, 1)
    assert file.xml.count(old.encode()) >= 1
    with pytest.raises(ModelError, match=match) as caught:
        load(file.xml.replace(old.encode(), new.encode(), 1), weights=file.bin)
    assert "layer 2 'TensorIterator_2'" in str(caught.value)


def test_a_slice_of_stride_0():
    file = iterator(0, -1, 0, 1)
    with pytest.raises(ArgumentError, match="port map: `stride` is 0 and `part_size` 1; `stride` must not be 0"):
        load(file.xml, weights=file.bin)(X)


def test_a_loop_whose_body_gets_no_number_of_the_iteration():
    file = loop(3)
    entry = b'<input external_port_id="-1" internal_layer_id="0" purpose="current_iteration"/>'
    assert entry in file.xml
    with pytest.raises(ModelError, match=r"no <input> leads to layer 0 'Parameter_0' \(Parameter\)"):
        load(file.xml.replace(entry, b""), weights=file.bin)


def test_a_loop_without_a_condition():
    body = File()
    body.result(body.parameter([1]))
    maps = '<port_map><output external_port_id="1" internal_layer_id="1"/></port_map>'
    file = File()
    file.result(file.layer("Loop", 5, [file.constant(np.array([3]))], {}, 1, body=f"{maps}<body>{body.net}</body>"))
    with pytest.raises(ModelError, match=r"\(Loop\): its first two inputs must be a trip count and a condition"):
        load(file.xml, weights=file.bin)


def test_a_branch_whose_parameter_gets_no_value():
    branch = File()
    branch.result(branch.parameter([3]))
    maps = "".join(
        f'<{name}_port_map><output external_port_id="2" internal_layer_id="1"/></{name}_port_map>'
        f"<{name}_body>{branch.net}</{name}_body>"
        for name in ("then", "else")
    )
    file = File()
    file.result(file.layer("If", 8, [file.parameter([], "?"), file.parameter([3])], {}, body=maps))
    with pytest.raises(ModelError, match="no <input> of the port map of <then_body> leads to layer 0 'Parameter_0'"):
        load(file.xml)


def test_bodies_ten_deep():
    file = File()
    file.result(file.layer("Relu", 1, [file.parameter([1])]))
    for _ in range(10):
        maps = (
            "".join(
                f'<{name}_port_map><input external_port_id="1" internal_layer_id="0"/><output external_port_id="2" '
                f'internal_layer_id="{len(file.layers) - 1}"/></{name}_port_map><{name}_body>{file.net}</{name}_body>'
                for name in ("then", "else")
            )
            if len(file.net) < 20_000
            else ""
        )
        if not maps:
            break
        outer = File()
        x = outer.parameter([1], name="x")
        go = outer.constant(np.array(True), op_type="Const")
        outer.result(outer.layer("If", 8, [go, x], {}, body=maps))
        file = outer
    np.testing.assert_array_equal(load(file.xml, weights=file.bin)(np.array([-1], "f4")), [0])
