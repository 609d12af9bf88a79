"""If, Loop and TensorIterator: what enters and leaves their bodies, by port maps."""

import jax
import numpy as np
import pytest
from openvino_files import File, assert_close, outputs_of, run_by_plugin
from openvino_models import iterator, loop

from jaxops.errors import ModelError
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


BAD = [
    ('internal_layer_id="0"', 'internal_layer_id="9"', "the body has no Parameter of layer id 9"),
    ('to-layer="1"/></back', 'to-layer="3"/></back', "the body has no Parameter of layer id 3"),
    ('from-layer="3" to', 'from-layer="2" to', "the body has no Result of layer id 2"),
    ('<input external_port_id="1" internal_layer_id="1"/>', "", "layer 1 has a back edge, but no first value"),
    ('external_port_id="0"', 'external_port_id="7"', "the layer has no input of port id 7"),
    ('<output external_port_id="2" internal_layer_id="3"/>', "", "1 values leave, but the layer has 2 outputs"),
    ('axis="1"', 'axis="one"', "`axis` is 'one'; it must be a whole number"),
]


@pytest.mark.parametrize(("old", "new", "match"), BAD, ids=[row[2] for row in BAD])
def test_bad_port_maps(old, new, match):
    file = iterator(0, -1, 1, 1)
    assert file.xml.count(old.encode()) >= 1
    with pytest.raises(ModelError, match=match) as caught:
        load(file.xml.replace(old.encode(), new.encode(), 1), weights=file.bin)
    assert "layer 2 'TensorIterator_2'" in str(caught.value)


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
