"""What enters the compiled program as an argument: weights, wherever they stand. The rest is known while tracing."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, function, info, node, tensor
from onnx import TensorProto, helper

from jaxops.errors import DTypeError, ShapeError
from jaxops.onnx import load

N = 65_536
TABLE = np.arange(N, dtype=np.float32) / N
X = np.ones(N, np.float32)
VEC = info("x", ["N"])


def graph(name, nodes, inputs=(), outputs=("r",), initializers=()):
    return helper.make_graph(
        nodes, name, [info(n, None) for n in inputs], [info(n, None) for n in outputs], initializers
    )


def constant(name):
    return node("Constant", [], [name], value=tensor(TABLE, ""))


def build_if(body):
    """y = x + TABLE under a traced condition."""
    flag = info("flag", [], TensorProto.BOOL)
    other = graph("other", [node("Identity", ["x"], ["e"])], outputs=["e"])
    return build(node("If", ["flag"], ["y"], then_branch=body, else_branch=other), inputs=[VEC, flag])


BODY = [constant("w"), node("Add", ["x", "w"], ["r"])]
LOOP = [node("Identity", ["c"], ["c2"]), constant("w"), node("Add", ["s", "w"], ["r"])]
LOOP_INPUTS = [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("s", None)]
LOOP_OUTPUTS = [info("c2", [], TensorProto.BOOL), info("r", None)]


def build_loop():
    body = helper.make_graph(LOOP, "b", LOOP_INPUTS, LOOP_OUTPUTS)
    return build(node("Loop", ["m", "", "x"], ["y"], body=body), inputs=[VEC], initializers=[tensor(np.int64(1), "m")])


def build_scan():
    body = graph("b", [constant("w"), node("Add", ["s", "w"], ["r"])], inputs=["s", "v"])
    scanned = node("Scan", ["x", "z"], ["y"], body=body, num_scan_inputs=1)
    return build(scanned, inputs=[VEC], initializers=[tensor(np.zeros((1, 1), np.float32), "z")])


def build_function():
    made = function("F", ["a"], constant("w"), node("Add", ["a", "w"], ["b"]))
    return build(node("F", ["x"], ["y"], domain="loc"), inputs=[VEC], opsets=(("", 18), ("loc", 1)), functions=[made])


def build_cast():
    nodes = [
        node("Cast", ["k"], ["w"], to=TensorProto.FLOAT),
        node("Div", ["w", "n"], ["d"]),
        node("Add", ["x", "d"], ["y"]),
    ]
    return build(*nodes, inputs=[VEC], initializers=[tensor(np.arange(N), "k"), tensor(np.float32(N), "n")])


MODELS = {
    "if": (lambda: build_if(graph("b", BODY)), (X, np.True_)),
    "an initializer in if": (
        lambda: build_if(graph("b", [node("Add", ["x", "w"], ["r"])], initializers=[tensor(TABLE, "w")])),
        (X, np.True_),
    ),
    "loop": (build_loop, (X,)),
    "scan": (build_scan, (X,)),
    "function": (build_function, (X,)),
    "cast of a table": (build_cast, (X,)),
    "range": (
        lambda: build(
            node("Range", ["a", "n", "s"], ["w"]),
            node("Add", ["x", "w"], ["y"]),
            inputs=[VEC],
            initializers=[tensor(np.float32(0), "a"), tensor(np.float32(1), "n"), tensor(np.float32(1 / N), "s")],
        ),
        (X,),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_table_is_an_argument_and_no_part_of_the_program(name):
    make, inputs = MODELS[name]
    model = load(make())
    inputs = [jnp.asarray(x) for x in inputs]
    assert [(k, v.shape) for k, v in model.params.items() if v.size == N] == [("w", (N,))]
    np.testing.assert_allclose(model(*inputs), X + TABLE, rtol=1e-6)
    np.testing.assert_allclose(model.apply(model.params, *inputs), X + TABLE, rtol=1e-6)
    assert len(jax.jit(model.apply).lower(model.params, *inputs).as_text()) < 20_000
    grads = jax.jit(jax.grad(lambda p: model.apply(p, *inputs).sum()))(model.params)
    assert (np.asarray(grads["w"]) > 0).all()


def test_the_program_of_a_table_that_is_no_argument_is_long():
    assert len(jax.jit(lambda x: x + TABLE).lower(X).as_text()) > 20_000


def test_constants_of_one_name_stay_apart_and_a_shared_body_has_one():
    then, other = (graph(k, [constant("w"), node(op, ["x", "w"], ["r"])]) for k, op in (("t", "Add"), ("e", "Sub")))
    flag = info("flag", [], TensorProto.BOOL)
    model = load(
        build(node("If", ["flag"], ["y"], node_name="choice", then_branch=then, else_branch=other), inputs=[VEC, flag])
    )
    assert list(model.params) == ["w", "choice/w"]
    for value, expected in ((True, X + TABLE), (False, X - TABLE)):
        np.testing.assert_allclose(model(X, np.bool_(value)), expected, rtol=1e-6)
    made = function("F", ["a"], constant("w"), node("Add", ["a", "w"], ["b"]))
    calls = [node("F", ["x"], ["m"], domain="loc"), node("F", ["m"], ["y"], domain="loc")]
    model = load(build(*calls, inputs=[VEC], opsets=(("", 18), ("loc", 1)), functions=[made]))
    assert list(model.params) == ["w"]
    np.testing.assert_allclose(model(X), X + 2 * TABLE, rtol=1e-6)


def test_a_body_that_needs_its_constant_static_keeps_it():
    shape = node("Constant", [], ["s"], value=tensor(np.float32([4, N // 4]), ""))
    body = [shape, node("Cast", ["s"], ["k"], to=TensorProto.INT64), node("Reshape", ["x", "k"], ["r"])]
    model = load(build_if(graph("b", body)))
    assert list(model.params) == []
    assert model.apply({}, X, np.True_).shape == (4, N // 4)


def test_single_numbers_are_constants_of_the_formula():
    nodes = [node("Pow", ["x", "p"], ["a"]), node("Mul", ["a", "w"], ["b"]), node("Add", ["b", "e"], ["y"])]
    numbers = [tensor(np.float32(3), "p"), tensor(np.float32([[1e-5]]), "e"), tensor(np.float32([2, 2]), "w")]
    model = load(build(*nodes, inputs=[VEC], initializers=numbers))
    assert list(model.params) == ["w"]
    x = np.float32([2, -1])
    np.testing.assert_allclose(model(x), [x**3 * 2 + 1e-5], rtol=1e-6)


def test_an_error_of_a_constant_node_is_told_at_load_unless_it_may_never_run():
    wrong = [node("Reshape", ["k", "s"], ["t"]), node("Cast", ["t"], ["r"], to=TensorProto.FLOAT)]
    values = [tensor(np.arange(3), "k"), tensor(np.int64([2, 2]), "s")]
    with pytest.raises(ShapeError, match="data has 3 elements") as raised:
        load(build(*wrong, node("Add", ["x", "r"], ["y"]), inputs=[VEC], initializers=values))
    assert "in node 't' (Reshape, opset 18)" in raised.value.__notes__[0]
    branch = graph("b", wrong, initializers=values)
    model = load(build_if(branch))
    np.testing.assert_array_equal(model.apply(model.params, X, np.False_), X)
    with pytest.raises(ShapeError, match="data has 3 elements"):
        model.apply(model.params, X, np.True_)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_a_model_is_copied_and_pickled(name, again):
    make, inputs = MODELS[name]
    model = load(make())
    other = again(model)
    assert str(other) == str(model)
    assert list(other.params) == list(model.params)
    np.testing.assert_array_equal(other(*inputs), model(*inputs))
    third = again(other)  # one that has been called
    np.testing.assert_array_equal(third(*inputs), model(*inputs))


def test_params_have_the_shapes_and_types_of_the_model():
    found = load(build(node("Add", ["x", "w"], ["y"]), inputs=[VEC], initializers=[tensor(np.float32([1, 2, 3]), "w")]))
    x = np.ones(3, np.float32)
    for wrong in (np.ones(1, np.float32), np.float32(1), np.ones((2, 3), np.float32), np.ones((3, 1), np.float32)):
        for value in (wrong, jnp.asarray(wrong)):
            with pytest.raises(ShapeError, match=r"params: 'w' has shape \(.*\), but the model has \(3,\)"):
                found.apply({"w": value}, x)
    for dtype in (jnp.bfloat16, np.float16, np.int32, np.complex64, np.bool_):
        with pytest.raises(DTypeError, match=r"params: 'w' is \w+, but the model has float32\n.*astype\(jnp.float32\)"):
            found.apply({"w": jnp.ones(3, dtype)}, x)
    np.testing.assert_array_equal(found.apply({"w": np.ones(3)}, x), [2, 2, 2])  # float64 is float32 while x64 is off
    narrow = found.astype(jnp.bfloat16)
    assert narrow.apply({"w": jnp.ones(3, jnp.bfloat16)}, jnp.ones(3, jnp.bfloat16)).tolist() == [2, 2, 2]
    with pytest.raises(DTypeError, match="params: 'w' is float32, but the model has bfloat16"):
        narrow.apply({"w": jnp.ones(3)}, jnp.ones(3, jnp.bfloat16))
    many = {"w": jnp.ones((4, 3))}
    assert jax.vmap(found.apply, (0, None))(many, x).shape == (4, 3)
    grads = jax.jit(jax.vmap(jax.grad(lambda p: found.apply(p, x).sum())))(many)
    assert grads["w"].shape == (4, 3)
    with pytest.raises(ShapeError, match=r"params: 'w' has shape \(4,\), but the model has \(3,\)"):
        jax.jit(found.apply)({"w": jnp.ones(4)}, x)
