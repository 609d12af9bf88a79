"""Variables: ReadValue and Assign, beside OpenVINO's infer requests, which keep them."""

import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import openvino_peer
import pytest
from openvino_files import File, assert_close, written_package
from openvino_models import cache, counter, variable

from jaxops.errors import ModelError, SignatureError, UnsupportedError
from jaxops.openvino import check, load

PORT = "<dim>-1</dim>"


def request_of(file):
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # it starts a process
        openvino = openvino_peer.imported()
        core = openvino.Core()
        model = core.read_model(file.xml, file.bin or None)
        return core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()


def agrees(file, steps, rounds=2):
    """Runs steps by both; after a reset, once more."""
    model, request = load(file.xml, weights=file.bin), request_of(file)
    for _ in range(rounds):
        request.reset_state()
        state = model.init(model.params, *steps[0])
        for inputs in steps:
            results = request.infer(list(inputs))
            expected = [np.array(results[port]) for port in request.model_outputs]
            with_own_params = model(*inputs, state=state)
            state, output = model.step(model.params, state, *inputs)
            chex.assert_trees_all_close(with_own_params, (state, output), rtol=1e-6)
            assert_close([np.asarray(output)], expected)
            kept = {variable.name: np.array(variable.state.data) for variable in request.query_state()}
            assert state.keys() == kept.keys() == model.state.keys()
            assert_close([np.asarray(state[name]) for name in kept], list(kept.values()))
    return model


STEPS = [(np.array(x, "f4"),) for x in ([1, 2], [3, 4], [-1, 5])]


@pytest.mark.parametrize("late", [False, True])
def test_a_counter(late):
    model = agrees(counter(late=late), STEPS)
    assert [str(value) for value in model.state.values()] == ["count: float32[2]"]
    assert [value.name for value in model.inputs] == ["x"]
    assert len(model.outputs) == 1
    state = model.init(model.params, *STEPS[0])
    np.testing.assert_array_equal(state["count"], [10, 20])
    np.testing.assert_array_equal(model.step(model.params, state, *STEPS[1])[1], [13, 24])


def test_zeros_to_begin_with():
    model = load(counter(first=False).xml)
    np.testing.assert_array_equal(model.init(model.params, *STEPS[0])["count"], [0, 0])
    file = counter(first=False)
    file.layers = [text.replace('variable_shape="2"', 'variable_shape="?,2,1..3"') for text in file.layers]
    assert load(file.xml).init({}, *STEPS[0])["count"].shape == (0, 2, 0)


def test_a_cache_that_grows():
    random = np.random.RandomState(0)
    orders = [[0, 1], [1, 0], [1, 1]]
    steps = [(random.randn(2, n, 3).astype("f4"), np.array(o, "i4")) for n, o in zip((4, 1, 2), orders, strict=True)]
    model = agrees(cache(), steps, rounds=1)  # after a reset, the plugin goes on with the old rows of an empty value
    assert model.state["past"].shape == ("past_0", "past_1", 3)
    assert model.init(model.params, *steps[0])["past"].shape == (2, 0, 3)


def test_two_variables_of_which_one_begins_with_the_other():
    file = File()
    x = file.parameter([2], name="x")
    a = file.layer("ReadValue", 3, [x], {"variable_id": "a"})
    b = file.layer("ReadValue", 3, [file.layer("Add", 1, [a, x])], {"variable_id": "b"})
    both = file.layer("Multiply", 1, [a, b])
    file.result(file.layer("Assign", 3, [file.layer("Assign", 3, [both], {"variable_id": "a"})], {"variable_id": "b"}))
    file.result(x)
    model = load(file.xml)
    state = model.init({}, *STEPS[0])
    np.testing.assert_array_equal(state["b"], [2, 4])
    state, outputs = model.step({}, state, *STEPS[1])
    assert len(outputs) == 2
    for value in (state["a"], state["b"], outputs[0]):
        np.testing.assert_array_equal(value, [2, 8])


def test_transformations():
    model = load(counter().xml, weights=counter().bin)
    params, xs = model.params, jnp.stack([x for (x,) in STEPS])
    state = model.init(params, xs[0])

    def run(first):
        return jax.lax.scan(lambda state, x: model.step(params, state, x), {"count": first}, xs)

    last, ys = jax.jit(run)(state["count"])
    for x, y in zip(xs, ys, strict=True):
        state, expected = model.step(params, state, x)
        np.testing.assert_allclose(y, expected)
    np.testing.assert_allclose(last["count"], state["count"])
    gradient = jax.grad(lambda first: run(first)[1].sum())(jnp.zeros(2))
    np.testing.assert_allclose(gradient, [7, 7])  # 1 + 2 + 4
    exported = model.export()
    total, after = exported.call(params, xs[0], state["count"])
    np.testing.assert_allclose(after, 2 * total)
    again = jax.jit(lambda model, state, x: model(x, state=state))(model, state, xs[0])
    chex.assert_trees_all_close(again, model.step(params, state, xs[0]))


def test_options():
    file = cache()
    model = load(file.xml, weights=file.bin, sizes={"x_0": 2}, outputs=["ShapeOf_2"])
    x, rows = np.ones((2, 1, 3), "f4"), np.array([0, 1], "i4")
    state, sizes = model.step({}, model.init({}, x, rows), x, rows)
    assert list(sizes) == [2, 1, 3]
    assert state["past"].shape == (2, 1, 3)
    half = load(counter().xml, weights=counter().bin).astype(jnp.bfloat16)
    state = half.init(half.params, jnp.ones(2, jnp.bfloat16))
    assert state["count"].dtype == jnp.bfloat16
    assert half.step(half.params, state, jnp.ones(2, jnp.bfloat16))[1].tolist() == [11, 11]
    state, (tensor, _) = half.step(half.params, state, x=jnp.ones(2, jnp.bfloat16), outputs=["Add_4", "Add_5"])
    assert (tensor.tolist(), state["count"].tolist()) == ([11, 11], [22, 22])


def test_calls_without_a_state():
    model = load(counter().xml, weights=counter().bin)
    x, state = STEPS[0][0], {"count": np.zeros(2, "f4")}
    for call in (lambda: model(x), lambda: model.apply(model.params, x), lambda: model(x=x)):
        with pytest.raises(SignatureError, match=r"has a state, count: float32\[2\]\n.*model\.step\(params, state"):
            call()
    with pytest.raises(SignatureError, match=r"give a dictionary as `model.init` returns it, not list"):
        model(x, state=[1])
    with pytest.raises(SignatureError, match=r"variable 'other' is unknown; the variables are \['count'\]"):
        model.step(model.params, {**state, "other": x}, x)
    with pytest.raises(SignatureError, match="variable 'count' is missing"):
        model.step(model.params, {}, x)
    file = File()
    file.result(file.parameter([2]))
    model = load(file.xml)
    assert model.state == {}
    for call in (lambda: model.init({}, x), lambda: model.step({}, {}, x)):
        with pytest.raises(UnsupportedError, match="the model has no variables, so it has no state"):
            call()


def bad(reads=1, assigns=1, inputs=0, opset: int | str = 6, **other):
    file = File()
    x = file.parameter([2])
    data = {**variable("v", "2"), **other}
    for _ in range(reads):
        x = file.layer("ReadValue", opset, [x] * inputs, data)
    for _ in range(assigns):
        file.layer("Assign", opset, [x], data)
    file.result(x)
    return file


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (bad(assigns=0), r"layer 1 'ReadValue_1' \(ReadValue\): variable 'v' has no Assign"),
        (bad(reads=0), r"\(Assign\): variable 'v' has no ReadValue"),
        (bad(assigns=2), r"layer 3 .* variable 'v' has another Assign, layer 2 'Assign_2'"),
        (bad(reads=2), "variable 'v' has another ReadValue"),
        (bad(variable_id=""), "required attribute `variable_id` is missing"),
        (bad(variable_shape="..."), "begins with zeros, but the file does not state its type or its rank"),
        (bad(variable_type="dynamic"), "begins with zeros, but the file does not state its type or its rank"),
        (bad(variable_type="f99"), "`variable_type`: unknown element type 'f99'"),
        (bad(variable_shape="2,x"), "`variable_shape`"),
        (bad(inputs=2), "ReadValue-6 takes 0 to 1 inputs, not 2"),
        (bad(opset=3), "ReadValue-3 takes 1 input, not 0"),
    ],
)
def test_bad_variables(file, message):
    with pytest.raises(ModelError, match=message):
        load(file.xml)


def test_what_is_not_supported():
    with pytest.raises(UnsupportedError, match="opset 1 does not list it; the newest opset that has it is"):
        load(bad(opset=1).xml)
    with pytest.raises(UnsupportedError, match="jaxops knows no operations of 'mine'"):
        load(bad(opset="mine").xml)
    maps = "".join(f"<{name}_port_map/><{name}_body>{bad().net}</{name}_body>" for name in ("then", "else"))
    maps = maps.replace("_port_map/>", '_port_map><output external_port_id="1" internal_layer_id="3"/></X_port_map>')
    maps = maps.replace("</X", "</then", 1).replace("</X", "</else", 1).replace('type="Parameter"', 'type="Const"')
    file = File()
    file.result(file.layer("If", 8, [file.parameter([], "?")], body=maps))
    with pytest.raises(
        UnsupportedError,
        match="is in a body; jaxops does not support variables in the bodies of If, Loop and TensorIterator",
    ):
        load(file.xml)


def test_a_first_value_of_another_type():
    file = counter()
    file.layers = [text.replace('variable_type="f32"', 'variable_type="f16"') for text in file.layers]
    model = load(file.xml, weights=file.bin)
    with pytest.raises(ModelError, match=r"the variable count: float16\[2\], but computes its first value as float32"):
        model.init(model.params, *STEPS[0])


def test_check_knows_variables():
    assert not check(counter().xml).missing


def test_a_model_says_what_its_variables_are():
    model = load(cache().xml, weights=cache().bin)
    lines = str(model).splitlines()
    assert [line.split()[:2] for line in lines[2:6]] == [
        ["in", "x:"],
        ["in", "beam_idx:"],
        ["var", "past:"],
        ["out", "ReduceSum_16:"],
    ]
    assert lines[4] == "  var  past: float32[past_0, past_1, 3]"
    counted = load(counter().xml, weights=counter().bin)
    assert repr(counted) == (
        "<jaxops.Model 'counter': (x: float32[2]) → (Add_4: ?[…]), state (count: float32[2]), 4 nodes>"
    )


def test_comparing_and_summarizing_take_a_state():
    file = counter()
    model = load(file.xml, weights=file.bin)
    state = {"count": np.array([3, 4], "f4")}
    table = model.summary(*STEPS[0], state=state)
    assert table.rows[0].nodes == 3  # what begins the state is not computed
    with pytest.raises(SignatureError, match=r"the model has a state, count: float32\[2\]"):
        model.compare(*STEPS[0])
    request_of(file)  # or skips
    report = model.compare(*STEPS[0], state=state)
    assert report.agrees
    assert {"Add", "Multiply"} <= {row.operator for row in report.rows}
    assert (
        load(cache().xml, weights=cache().bin)
        .compare(np.ones((2, 1, 3), "f4"), np.array([1, 0], "i4"), state={"past": np.ones((2, 4, 3), "f4")})
        .agrees
    )


def test_a_package_takes_variables_as_inputs_and_gives_them_as_outputs(tmp_path):
    model = load(counter().xml, weights=counter().bin)
    module, text = written_package(model, tmp_path / "net")
    (x,), state = STEPS[0], {"count": np.array([3, 4], "f4")}
    outputs = module.apply(module.load_params(), x, state["count"])
    expected_state, expected = model.step(model.params, state, x)
    np.testing.assert_array_equal(outputs[0], expected)
    np.testing.assert_array_equal(outputs[1], expected_state["count"])
    assert "count_next: Any" in text
