"""Recurrent layers against the standard's equations, one sequence after the other in NumPy, and against onnxruntime."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import build, info, node
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from onnx import TensorProto, helper

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError
from jaxops.onnx import load, opset

RNG = np.random.default_rng(5)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
INPUTS = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
FN = {"RNN": jo.rnn, "GRU": jo.gru, "LSTM": jo.lstm}
DIRECTIONS = ["forward", "reverse", "bidirectional"]
SMALL, LARGE = (5, 3, 2, 4), (60, 8, 20, 33)  # steps, sequences, inputs, hidden neurons


def operands(op, sizes=SMALL, direction="forward", dtype=np.float32, lens=None, optional=True, scale=0.7):
    length, batch, inputs, hidden = sizes
    gates, both = GATES[op], 1 + (direction == "bidirectional")
    scale = scale if hidden < 10 else 0.15  # otherwise the recurrence is chaotic, and doubles each rounding

    def draw(*shape):
        return (RNG.normal(size=shape) * scale).astype(dtype)

    found = {"X": draw(length, batch, inputs), "W": draw(both, gates * hidden, inputs)}
    found["R"] = draw(both, gates * hidden, hidden)
    if optional:
        found["B"] = draw(both, 2 * gates * hidden)
        found["initial_h"] = draw(both, batch, hidden)
    if optional and op == "LSTM":
        found |= {"initial_c": draw(both, batch, hidden), "P": draw(both, 3 * hidden)}
    if lens is not None:
        found["sequence_lens"] = np.int32(lens)
    return found


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def formula(op, given, direction="forward", functions=None, clip=np.inf, linear_before_reset=0, input_forget=0):
    """The equations of the standard, for one sequence at a time, of its own length, turned round by hand."""
    defaults = {"RNN": [np.tanh], "GRU": [sigmoid, np.tanh], "LSTM": [sigmoid, np.tanh, np.tanh]}[op]
    x, w, r = (given[name].astype(np.float64) for name in ("X", "W", "R"))
    length, batch, both, hidden = *x.shape[:2], len(w), r.shape[-1]
    functions = functions or defaults * both
    lens = given.get("sequence_lens", np.full(batch, length))
    b = given.get("B", np.zeros((both, 2 * r.shape[1]))).astype(np.float64)
    p = given.get("P", np.zeros((both, 3 * hidden))).astype(np.float64)
    zero = np.zeros((both, batch, hidden))
    y, last = np.zeros((length, both, batch, hidden)), [zero.copy(), zero.copy()]
    for d in range(both):
        f, *others = (lambda v, fn=fn: fn(np.clip(v, -clip, clip)) for fn in functions[d * len(defaults) :])
        wb, rb = np.split(b[d], 2)
        peep = np.split(p[d], 3)
        for n in range(batch):
            h, c = (given.get(name, zero)[d, n].astype(np.float64) for name in ("initial_h", "initial_c"))
            steps = list(range(int(lens[n])))
            for t in reversed(steps) if direction == "reverse" or d == 1 else steps:
                ours, theirs = w[d] @ x[t, n] + wb, r[d] @ h + rb
                if op == "RNN":
                    h = f(ours + theirs)
                elif op == "GRU":
                    (wz, wr, wh), (rz, rr, rh) = np.split(ours, 3), np.split(theirs, 3)
                    z, reset = f(wz + rz), f(wr + rr)
                    if not linear_before_reset:
                        rh = r[d][2 * hidden :] @ (reset * h) + rb[2 * hidden :]
                    h = (1 - z) * others[0](wh + (reset * rh if linear_before_reset else rh)) + z * h
                else:
                    i, o, forget, cell = np.split(ours + theirs, 4)
                    i = f(i + peep[0] * c)
                    forget = 1 - i if input_forget else f(forget + peep[2] * c)
                    c = forget * c + i * others[0](cell)
                    h = f(o + peep[1] * c) * others[1](c)
                y[t, d, n] = h
            if steps:
                last[0][d, n], last[1][d, n] = h, c
    return (y, *last[: 1 + (op == "LSTM")])


def ours(op, given, **attributes):
    return FN[op](**{name.lower(): value for name, value in given.items()}, **attributes)


def jitted(op, given, **attributes):
    return jax.jit(lambda xs: ours(op, xs, **attributes))(given)


def runtime(op, given, version=22, **attributes):
    names = [name if name in given else "" for name in INPUTS[: 8 if op == "LSTM" else 6]]
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    infos = [info(k, v.shape, helper.np_dtype_to_tensor_dtype(v.dtype)) for k, v in given.items()]
    made = node(op, names, outputs, hidden_size=given["R"].shape[-1], **attributes)
    model = build(made, inputs=infos, outputs=[info(n, None) for n in outputs], opsets=(("", version),))
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)


def close(found, expected, tolerance=5e-6):
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        assert f.shape == e.shape
        np.testing.assert_allclose(np.asarray(f, np.float64), e, atol=tolerance, rtol=tolerance)


@pytest.mark.grid
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
def test_equations(op, direction):
    variants = {"RNN": [{}], "GRU": [{}, {"linear_before_reset": 1}], "LSTM": [{}, {"input_forget": 1}]}[op]
    some = [2, 5, 1]
    cases = ((SMALL, some, False), (SMALL, None, True), (LARGE, RNG.integers(1, 61, 8), True))
    for sizes, lens, optional in cases:
        for variant in variants if optional else variants[-1:]:
            given = operands(op, sizes, direction, lens=lens, optional=optional)
            expected = formula(op, given, direction, **variant)
            close(jitted(op, given, direction=direction, **variant), expected)
            close(runtime(op, given, direction=direction, **variant), expected)
    expected = formula(op, given, direction, clip=0.3, **variant)
    close(ours(op, given, direction=direction, clip=0.3, **variant), expected)


def test_a_wrong_equation_is_caught():
    given = operands("GRU", lens=[2, 5, 1])
    with pytest.raises(AssertionError):
        close(ours("GRU", given), formula("GRU", given, linear_before_reset=1))
    given["B"][...] = 0  # without biases and resets in between the two are one
    with pytest.raises(AssertionError):
        close(ours("GRU", given, direction="reverse"), formula("GRU", given))


@pytest.mark.parametrize("op", ["RNN", "GRU"])
def test_clip_as_in_onnxruntime(op):
    given = operands(op)
    close(ours(op, given, clip=0.3), runtime(op, given, clip=0.3))


def test_clip_of_an_lstm_bounds_the_input_of_h_too():
    """As the text says; onnxruntime clips the inputs of f and g only."""
    given = operands("LSTM", scale=2)
    theirs = formula("LSTM", given, clip=0.3)
    close(ours("LSTM", given, clip=0.3), theirs)
    found = runtime("LSTM", given, clip=0.3)
    assert np.abs(found[0] - theirs[0]).max() > 0.01
    linear = {"activations": ["Sigmoid", "Tanh", "Affine"], "activation_alpha": [1.0], "activation_beta": [0.0]}
    assert np.abs(ours("LSTM", given, clip=0.3, **linear)[1]).max() <= 0.3


def test_clip_without_the_cell_as_in_onnxruntime():
    given = operands("LSTM", scale=2)
    close(ours("LSTM", given, clip=0.3, clip_cell=False), runtime("LSTM", given, clip=0.3))


# Name → the function, given alpha and beta.
ACTIVATIONS = {
    "Affine": lambda x, a, b: a * x + b,
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "LeakyRelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "Sigmoid": lambda x, a, b: sigmoid(x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x < 0, a * (np.exp(np.minimum(x, 0)) - 1), x),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.logaddexp(x, 0),
}
COEFFICIENTS = {"LeakyRelu": 1, "ThresholdedRelu": 1, "Elu": 1, "Affine": 2, "ScaledTanh": 2, "HardSigmoid": 2}
DEFAULTS = {"LeakyRelu": (0.01, 0), "ThresholdedRelu": (1.0, 0), "Elu": (1.0, 0), "HardSigmoid": (0.2, 0.5)}


@pytest.mark.grid
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("op", GATES)
def test_activations(op, name):
    count = FUNCTIONS[op]
    given = operands(op, (3, 3, 2, 4), "bidirectional", lens=[3, 1, 2], scale=0.4)
    # One direction has the function at its end, the other one everywhere: the values go to those that take some.
    names = ["Tanh"] * (count - 1) + [name] * (count + 1)
    alphas, betas = [0.3, 0.2, 0.4, 0.1][: count + 1], [0.5, 0.6, 0.7, 0.8][: count + 1]
    takes = COEFFICIENTS.get(name, 0)
    attributes = {"activations": names, "direction": "bidirectional"}
    attributes |= {"activation_alpha": alphas} if takes else {}
    attributes |= {"activation_beta": betas} if takes == 2 else {}
    fn = ACTIVATIONS[name]
    mine = [lambda x, a=a, b=b: fn(x, a, b) for a, b in zip(alphas, betas, strict=True)]
    expected = formula(op, given, "bidirectional", [np.tanh] * (count - 1) + mine)
    swapped = attributes | {"activations": [n.swapcase() for n in names]}
    close(ours(op, given, **swapped), expected)
    # Those of RNN onnxruntime compares as they are.
    close(runtime(op, given, **(attributes if op == "RNN" else swapped)), expected)
    if name in DEFAULTS:
        plain = {"activations": names, "direction": "bidirectional"}
        default = [lambda x: fn(x, *DEFAULTS[name])] * (count + 1)
        expected = formula(op, given, "bidirectional", [np.tanh] * (count - 1) + default)
        close(ours(op, given, **plain), expected)
        if name != "ThresholdedRelu":  # where onnxruntime takes 0, not the 1 of the operator of that name
            close(runtime(op, given, **plain), expected)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
def test_layout(op, direction):
    given = operands(op, direction=direction, lens=[3, 0, 5])
    y, *states = ours(op, given, direction=direction)
    turned = {k: np.swapaxes(v, 0, 1) if k in ("X", "initial_h", "initial_c") else v for k, v in given.items()}
    found, *last = jitted(op, turned, direction=direction, layout=1)
    close((found, *last), (np.transpose(y, (2, 0, 1, 3)), *(np.swapaxes(v, 0, 1) for v in states)))


@pytest.mark.grid
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
def test_lengths(op, direction):
    given = operands(op, direction=direction, lens=[0, 5, 2])
    expected = formula(op, given, direction)
    assert (expected[0][:, :, 0] == 0).all()
    close(runtime(op, given, direction=direction), expected)
    for lens in (np.int64([0, 5, 2]), jnp.array([0, 5, 2], jnp.int8), jnp.array([-3, 9, 2]), jnp.uint32([0, 5, 2])):
        close(ours(op, {**given, "sequence_lens": lens}, direction=direction), expected)
    whole = {k: v for k, v in given.items() if k != "sequence_lens"}
    text = str(
        jax.make_jaxpr(lambda xs: ours(op, {**xs, "sequence_lens": np.int32([5] * 3)}, direction=direction))(whole)
    )
    assert "iota" not in text  # known to be all of it: no mask
    # Padding, whatever it holds, reaches neither values nor gradients.
    dirty = given["X"].copy()
    for n, length in enumerate(given["sequence_lens"]):
        dirty[length:, n] = np.nan
    close(ours(op, {**given, "X": dirty}, direction=direction), expected)
    loss = jax.jit(
        jax.grad(lambda xs, i: sum(jnp.sum(v) for v in ours(op, {**xs, "sequence_lens": i}, direction=direction)))
    )
    grads = loss({**whole, "X": dirty}, given["sequence_lens"])
    chex.assert_tree_all_finite(grads)
    assert all((grads["X"][length:, n] == 0).all() for n, length in enumerate(given["sequence_lens"]))


@pytest.mark.parametrize("op", GATES)
def test_nothing_to_run(op):
    for sizes in ((0, 3, 2, 4), (5, 0, 2, 4)):
        given = operands(op, sizes)
        close(jitted(op, given), formula(op, given))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
@pytest.mark.parametrize("op", GATES)
def test_element_types(op, dtype, x64):
    given = operands(op, direction="bidirectional", dtype=dtype, lens=[5, 2, 3])
    found = jitted(op, given, direction="bidirectional")
    assert all(v.dtype == dtype for v in found)
    tolerance = {2: 2e-3, 8: 1e-12}[np.dtype(dtype).itemsize] * (8 if dtype == jnp.bfloat16 else 1)
    close(found, formula(op, given, "bidirectional"), tolerance)


@pytest.mark.grid
@pytest.mark.parametrize("op", GATES)
def test_gradients(op, x64):
    given = operands(op, (3, 2, 2, 2), "bidirectional", np.float64, lens=[3, 1])
    lens = given.pop("sequence_lens")
    variant = {"RNN": {}, "GRU": {"linear_before_reset": 1}, "LSTM": {}}[op]
    check_grads(
        lambda xs: ours(op, {**xs, "sequence_lens": lens}, direction="bidirectional", **variant),
        (given,),
        order=1,
        modes=["rev"],
    )
    extreme = {k: v * 1e4 for k, v in given.items()}
    names = ["Elu", "Softplus", "Sigmoid"][-FUNCTIONS[op] :]
    loss = jax.grad(lambda xs: jnp.sum(ours(op, xs, activations=names * 2, direction="bidirectional")[1]))
    chex.assert_tree_all_finite(jax.jit(loss)(extreme))


@pytest.mark.parametrize("op", GATES)
def test_symbolic_sizes_and_vmap(op):
    given = operands(op, direction="bidirectional", lens=[5, 2, 3])
    shapes = {"X": "t, n, 2", "sequence_lens": "n", "initial_h": "2, n, 4", "initial_c": "2, n, 4"}
    specs = symbolic_args_specs([given], [{k: shapes.get(k) for k in given}])[0]
    whole = export(jax.jit(lambda xs: ours(op, xs, direction="bidirectional")))(specs)
    close(whole.call(given), formula(op, given, "bidirectional"))
    every = {k: np.stack([v, v[::-1]]) for k, v in given.items()}
    found = jax.vmap(lambda xs: ours(op, xs, direction="bidirectional"))(every)
    for k in (0, 1):
        one = {name: v[k] for name, v in every.items()}
        close([v[k] for v in found], formula(op, one, "bidirectional"))


@pytest.mark.parametrize("version", [1, 3, 7, 14, 22])
@pytest.mark.parametrize("op", GATES)
def test_versions(op, version):
    given = operands(op, lens=[5, 2, 3])
    expected = formula(op, given)
    outputs = len(expected)
    attributes = {"hidden_size": 4} | ({"output_sequence": 1} if version < 7 else {})
    fn = getattr(opset(version), op)
    close(fn(**given, **attributes, n_outputs=outputs), expected)
    close(fn(**given, **attributes, direction="reverse", n_outputs=outputs), formula(op, given, "reverse"))
    if version >= 7:
        close(runtime(op, given, version), expected)
        assert fn(**given).shape == expected[0].shape  # every output is optional, and a call asks for the first
    for name, since, until in (("layout", 14, 99), ("output_sequence", 1, 6)):
        if not since <= version <= until:
            with pytest.raises(SignatureError, match=f"unknown attribute `{name}`"):
                fn(**given, **{name: 1}, n_outputs=outputs)
    if op == "GRU" and version < 3:
        with pytest.raises(SignatureError, match="unknown attribute `linear_before_reset`"):
            fn(**given, linear_before_reset=1, n_outputs=2)


def test_a_node_may_leave_outputs_and_inputs_out():
    given = operands("LSTM", lens=[5, 2, 3])
    del given["initial_h"], given["B"]
    formals = [
        info(k, v.shape, TensorProto.INT32 if k == "sequence_lens" else TensorProto.FLOAT) for k, v in given.items()
    ]
    names = [name if name in given else "" for name in INPUTS]
    made = node("LSTM", names, ["", "", "c"], hidden_size=4)
    model = load(build(made, inputs=formals, outputs=[info("c", None)], opsets=(("", 22),)))
    close([model(**given)], formula("LSTM", given)[2:])


def test_the_direction_is_checked_at_load():
    made = node("GRU", ["X", "W", "R"], ["y"], direction="sideways")
    formals = [info(name, None) for name in ("X", "W", "R")]
    with pytest.raises(
        ArgumentError, match="GRU-22: `direction` is 'sideways'; it must be one of 'forward', 'reverse'"
    ):
        load(build(made, inputs=formals, opsets=(("", 22),)))


BAD = [
    ({"X": np.zeros((5, 3), np.float32)}, {}, ShapeError, r"lstm: `x` of \(5, 3\) must be \(steps, batch, input"),
    ({"X": np.zeros(5, np.float32)}, {"layout": 1}, ShapeError, r"`x` of \(5,\) must be \(batch, steps, input"),
    ({"R": np.zeros((16, 4), np.float32)}, {}, ShapeError, r"lstm: `r` of \(16, 4\) must be \(directions, 4 · hidden"),
    ({"W": np.zeros((1, 12, 2), np.float32)}, {}, ShapeError, r"`w` of \(1, 12, 2\) must be \(1, 16, 2\); x is \(5, 3"),
    ({"P": np.zeros((1, 16), np.float32)}, {}, ShapeError, r"`p` of \(1, 16\) must be \(1, 12\); .* 4 hidden neurons"),
    ({"sequence_lens": np.int32([1, 2])}, {}, ShapeError, r"`sequence_lens` of \(2,\) must be \(3,\)"),
    ({"sequence_lens": np.int32([1, 2, 6])}, {}, ArgumentError, "`sequence_lens` holds 6, but x has 5 steps"),
    ({"sequence_lens": np.int32([1, -2, 5])}, {}, ArgumentError, "`sequence_lens` holds -2, but x has 5 steps"),
    ({"sequence_lens": np.float32([1, 2, 5])}, {}, DTypeError, "`sequence_lens` must be integers, got float32"),
    ({"R": np.zeros((1, 16, 4), np.float16)}, {}, DTypeError, "lstm: operands must have one element type, got x"),
    ({}, {"hidden_size": 5}, ShapeError, r"`r` of \(1, 16, 4\) has 4 hidden neurons, but `hidden_size` is 5"),
    ({}, {"direction": "bidirectional"}, ShapeError, r"must be \(2, 16, 2\); .* and 2 directions"),
    ({}, {"direction": "Forward"}, ArgumentError, "lstm: `direction` is 'Forward'; it must be one of"),
    ({}, {"clip": 0.0}, ArgumentError, "lstm: `clip` is 0.0; it must be above 0, or left out"),
    ({}, {"layout": 2}, ArgumentError, "lstm: `layout` is 2; it must be 0 or 1"),
    ({}, {"input_forget": 2}, ArgumentError, "lstm: `input_forget` is 2; it must be 0 or 1"),
    ({}, {"activations": ["Tanh"]}, ArgumentError, r"`activations` is \['Tanh'\]; it must hold 3 names, direction by"),
    ({}, {"activations": "Tan"}, ArgumentError, "`activations` is 'Tan'; it must hold 3 names, direction by"),
    ({}, {"activations": ["Tanh", "Tanh", "Sin"]}, ArgumentError, "`activations` names 'Sin'; the functions are "),
    ({}, {"activations": ["Tanh", "Tanh", "Affine"], "activation_alpha": [1.0]}, ArgumentError,
     "Affine has no default for its coefficient; give it in `activation_beta`"),
    ({}, {"activation_alpha": [1.0]}, ArgumentError, "`activation_alpha` has 1 value more than Sigmoid, T"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "attributes", "error", "match"), BAD, ids=[m for *_, m in BAD])
def test_errors(changed, attributes, error, match):
    with pytest.raises(error, match=match):
        ours("LSTM", operands("LSTM") | changed, **attributes)


def test_operands_that_are_no_floats():
    given = {k: v.astype(np.int32) for k, v in operands("RNN").items()}
    with pytest.raises(DTypeError, match="rnn: operands must be floating-point, got int32"):
        ours("RNN", given)
