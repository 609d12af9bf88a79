"""Files of a few bytes that ask for much memory, or much time: a bounded cost, or an error of ours."""

import time
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import jaxops.microsoft
import jaxops.ml
import jaxops.onnx
import jaxops.openvino
from jaxops import memory, ops, static
from jaxops.errors import ShapeError, TooLargeError
from jaxops.tools.python.steps import Step

MIB = 1 << 20
node = helper.make_node


def graph(nodes, inputs=(), outputs=("y",), domain="", version=17, **constants):
    """A model; constants: int64 arrays, or lists of strings."""
    values = [
        helper.make_tensor(k, TensorProto.STRING, [len(v)], [text.encode() for text in v])
        if isinstance(v[0], str)
        else helper.make_tensor(k, TensorProto.INT64, np.shape(v), np.ravel(v).tolist())
        for k, v in constants.items()
    ]
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        values,
    )
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(made, opset_imports=opsets, ir_version=9)


def peak(fn):
    """The most memory of Python and NumPy that a call takes, in MiB."""
    tracemalloc.start()
    try:
        fn()
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most / MIB


def chain(op, number, sizes):
    """`number` values of these sizes, each computed from the one before, that are all read at the end."""
    ones = helper.make_tensor("v", TensorProto.INT64, [1], [1])
    nodes = [node("ConstantOfShape", ["n"], ["d0"], value=ones)]
    nodes += [node(op, [f"d{k}", "d0"], [f"d{k + 1}"]) for k in range(number)]
    names = [f"d{k}" for k in range(number + 1)]
    return nodes, [node("Concat", [*names], ["e"], axis=0), node("ReduceMax", ["e"], ["r"])], sizes


def test_values_that_fit_alone_are_counted_together_while_loading():
    nodes, last, sizes = chain("Add", 100, [2**17])
    made = graph([*nodes, *last, node("Expand", ["x", "r"], ["y"])], [("x", [1])], n=sizes)

    def load():
        with pytest.raises(
            TooLargeError, match=r"(?s)Add: its result and the static values that are held with it .*`max_bytes` is 8"
        ):
            jaxops.onnx.load(made, max_bytes=8 * MIB)

    assert peak(load) < 16


def test_values_that_fit_alone_are_counted_together_in_a_call():
    """Here an input makes them static, so that they are computed while tracing."""
    nodes, last, _ = chain("Add", 100, None)
    made = graph([node("Shape", ["x"], ["n"]), *nodes, *last, node("Expand", ["x", "r"], ["y"])], [("x", ["a"])])
    model = jaxops.onnx.load(made, max_bytes=8 * MIB)

    def call():
        with pytest.raises(TooLargeError, match="Add: its result and the static values that are held with it"):
            model(np.ones(2**17, np.float32))

    assert peak(call) < 24
    with pytest.raises(TooLargeError, match="Add: its result and the static values that are held with it"):
        jax.eval_shape(lambda x: model.apply(model.params, x), jax.ShapeDtypeStruct((2**17,), np.float32))


def test_values_that_are_dead_or_shared_do_not_count():
    nodes, *_ = chain("Add", 40, None)
    views = [node("Unsqueeze", ["d40", "zero"], ["u0"])]
    views += [node("Identity", [f"u{k}"], [f"u{k + 1}"]) for k in range(20)]
    last = [node("Concat", [f"u{k}" for k in range(3)], ["e"], axis=0), node("ReduceMax", ["e"], ["r"], keepdims=0)]
    ends = [node("Unsqueeze", ["r", "zero"], ["s"]), node("Expand", ["x", "s"], ["y"])]
    made = graph([node("Shape", ["x"], ["n"]), *nodes, *views, *last, *ends], [("x", ["a"])], version=17, zero=[0])
    model = jaxops.onnx.load(made, max_bytes=8 * MIB)
    with pytest.raises(TooLargeError, match=r"expand: .*\(41,.*"):
        jaxops.onnx.load(made, max_bytes=100)(np.ones(1, np.float32))
    jax.eval_shape(lambda x: model.apply(model.params, x), jax.ShapeDtypeStruct((41,), np.float32))


def test_a_broadcast_of_one_string_takes_the_memory_of_one():
    strings = ops.expand(np.array(["İstanbul"], object), (2**16,))
    with memory.max_bytes(2 * MIB):
        results = {}

        def run():
            results["normalized"] = ops.string_normalizer(strings, case_change_action="UPPER")
            results["matched"] = ops.regex_full_match(strings, pattern=".*")
            results["pieces"] = ops.string_split(strings)
            results["tokens"] = jaxops.microsoft.tokenizer(
                strings, mark=1, mincharnum=1, pad_value="", separators=("n",)
            )

        assert peak(run) < 8
    assert set(results["normalized"].flat) == {"İSTANBUL"}
    assert results["matched"].all()
    assert set(results["pieces"][0].flat) == {"İstanbul"}
    assert results["tokens"][5].tolist() == ["\x02", "İsta", "bul", "\x03"]


INDICES = {
    "nonzero": lambda: ops.nonzero(np.ones((2,) * 16, bool)),
    "nonzero of JAX": lambda: ops.nonzero(jnp.ones((2,) * 16, bool)),
    "unique": lambda: ops.unique(np.arange(2**16) % 7 == 3),
    "cast_map": lambda: jaxops.ml.cast_map({1: 2.0}, map_form="SPARSE", max_map=10**12),
    "tree_ensemble": lambda: jaxops.ml.tree_ensemble_regressor(
        np.ones((1, 2), np.float32), n_targets=10**12, nodes_treeids=[0], nodes_nodeids=[0], nodes_featureids=[0],
        nodes_modes=["LEAF"], nodes_values=[0.0], nodes_truenodeids=[0], nodes_falsenodeids=[0], target_treeids=[0],
        target_nodeids=[0], target_ids=[0], target_weights=[1.0],
    ),
    "Range": lambda: jaxops.openvino.opset(4).Range(0, 10**12, 1, output_type="i64"),
}  # fmt: skip


@pytest.mark.parametrize("op", INDICES)
def test_lists_of_indices_and_tables_are_bounded(op):
    """Their elements are larger than those of the operand, or their number is an attribute."""

    def run():
        with pytest.raises(TooLargeError, match=rf"^{op.split()[0]}.*`max_bytes` is 1 MiB"):
            INDICES[op]()

    with memory.max_bytes(MIB):
        assert peak(run) < 4


TRACED = {
    "adaptive_max_pool": lambda x: jaxops.openvino.opset(8).AdaptiveMaxPool(x, np.array([10**12])),
    "average_pool": lambda x: ops.average_pool(x, kernel_shape=(3,), pads=(10**12, 1), strides=(1,)),
}


@pytest.mark.parametrize("op", TRACED)
def test_tables_of_a_program_are_bounded(op):
    with memory.max_bytes(MIB), pytest.raises(TooLargeError, match=rf"^{op}.*`max_bytes` is 1 MiB"):
        jax.eval_shape(TRACED[op], jax.ShapeDtypeStruct((1, 1, 5), np.float32))


@pytest.mark.parametrize("block", [3000, 2999], ids=["one block", "two blocks"])
def test_blocks_of_thousands_of_elements_are_added_by_one_operation(block):
    x = np.arange(2.0 * block, dtype=np.float32)[: block * (3001 - block)].reshape(1, block, -1)
    started = time.perf_counter()
    y = ops.col2im(jnp.asarray(x), (3000,), (block,))
    assert time.perf_counter() - started < 20
    expected = np.zeros(3000, np.float32)
    for k in range(x.shape[2]):
        expected[k : k + block] += x[0, :, k]
    np.testing.assert_array_equal(y[0, 0], expected)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 3), (3, 1), (7, 2)])
def test_many_blocks_of_many_elements(stride, dilation):
    """More than 512 of both: a scatter."""
    block, blocks = 600, 700
    length = (block - 1) * dilation + (blocks - 1) * stride + 1
    x = np.random.default_rng(0).integers(-9, 9, (1, 2 * block, blocks)).astype(np.float32)
    y = ops.col2im(jnp.asarray(x), (length - 3,), (block,), strides=(stride,), dilations=(dilation,), pads=(1, 2))
    expected = np.zeros((2, length), np.float32)
    place = np.arange(block)[:, None] * dilation + np.arange(blocks) * stride
    for channel, rows in zip(expected, x.reshape(2, block, blocks), strict=True):
        np.add.at(channel, place, rows)
    np.testing.assert_array_equal(y[0], expected[:, 1:-2])


def test_a_loop_that_adds_an_axis_each_time_has_an_end():
    body = helper.make_graph(
        [node("Unsqueeze", ["v", "axis"], ["w"]), node("Identity", ["keep"], ["kept"])],
        "body",
        [onnx.ValueInfoProto(name=name) for name in ("i", "keep", "v")],
        [onnx.ValueInfoProto(name=name) for name in ("kept", "w")],
        [helper.make_tensor("axis", TensorProto.INT64, [1], [0])],
    )
    made = graph([node("Loop", ["n", "", "x"], ["y"], body=body)], [("x", [2])], n=[70])
    with pytest.raises(ShapeError, match=r"(unsqueeze|loop): an array of more axes than NumPy has"):
        jaxops.onnx.load(made)(np.ones(2, np.float32))
    for fn in (ops.reshape, ops.expand):
        with pytest.raises(ShapeError, match=rf"{fn.__name__}: .*65"):
            fn(np.ones(1, np.float32), (1,) * 65)


def test_a_package_of_many_nodes_looks_at_each_a_few_times(tmp_path, monkeypatch):
    looked, reads = [], Step.reads
    monkeypatch.setattr(Step, "reads", lambda self: looked.append(self) or reads(self))
    nodes = [node("Neg", [f"y{k}"], [f"y{k + 1}"]) for k in range(60)]
    jaxops.onnx.load(graph(nodes, [("y0", [2])], ["y60"])).to_python(tmp_path / "package")
    assert 60 <= len(looked) < 60 * 8


def sizes(op, number):
    """A size that `op` is applied to again and again."""
    nodes = [node("Shape", ["x"], ["s0"])]
    nodes += [node(op(k), [f"s{k}", "s0"], [f"s{k + 1}"]) for k in range(number)]
    return graph([*nodes, node("ConstantOfShape", [f"s{number}"], ["y"])], [("x", ["a"])])


@pytest.mark.parametrize("op", [lambda k: "Mul", lambda k: ("Add", "Mul")[k % 2]], ids=["power", "sum"])
def test_symbolic_sizes_do_not_grow_without_end(op):
    model = jaxops.onnx.load(sizes(op, 2000))
    with pytest.raises(TooLargeError, match=r"a symbolic size has 101 terms, or factors in one.*the limit is 100"):
        model.export()


def test_symbolic_sizes_with_large_numbers():
    nodes = [node("Shape", ["x"], ["s0"])]
    for k in range(40):
        nodes += [node("Add", [f"s{k}", "one"], [f"t{k}"]), node("Div", [f"t{k}", "two"], [f"s{k + 1}"])]
    made = graph([*nodes, node("ConstantOfShape", ["s40"], ["y"])], [("x", ["a"])], one=[1], two=[2])
    with pytest.raises(TooLargeError, match="export: a symbolic size has numbers beyond 32 bits, or thousands"):
        jaxops.onnx.load(made).export()


def test_arrays_of_symbolic_sizes_are_bounded(monkeypatch):
    monkeypatch.setattr(static, "_MOST_SIZES", 100)
    nodes = [node("Shape", ["x"], ["s"]), node("Expand", ["s", "n"], ["e"]), node("Add", ["e", "e"], ["f"])]
    nodes += [node("ReduceMax", ["f"], ["g"]), node("ConstantOfShape", ["g"], ["y"])]
    made = graph(nodes, [("x", ["a"])], n=[101])
    with pytest.raises(TooLargeError, match="an array of 101 symbolic sizes; the limit is 100"):
        jaxops.onnx.load(made).export()
