"""Sizes that no memory holds: an error of ours, before anything is computed."""

import json
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import jaxops.microsoft
import jaxops.onnx
import jaxops.openvino
from jaxops import memory, ops
from jaxops.errors import ArgumentError, JaxopsError, OutOfRangeError, TooLargeError

GIB = 1 << 30
SCRIPT = Path(__file__).with_name("huge_sizes.py")
KINDS = {"TooLargeError", "OutOfRangeError", "ShapeError"}
# Where another operator may say it: the one that makes the operand, or that the operator is made of.
ALSO = "constant_of_shape|expand|pad"


def complaint(name, found, expected):
    """What is wrong with the outcome of a case; empty if nothing is."""
    if expected is not None:
        return "" if found == expected else f"got {found}, expected {expected}"
    if not (isinstance(found, list) and found and found[0] in KINDS):
        return f"no error of jaxops: {found}"
    op = name.removeprefix("outer ").split()[0]
    return "" if re.match(rf"{op}|{ALSO}", found[1]) else f"the operator is not named: {found[1]}"


def test_huge_sizes_are_errors_or_right():
    run = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=300)
    lines = run.stdout.splitlines()
    assert lines[-1:] == ["done"], f"it ended after {lines[-1:]}: {run.stderr[-500:]}"
    cases = [json.loads(line) for line in lines[:-1]]
    assert len(cases) > 300
    assert [(n, mode, wrong) for n, mode, found, expected in cases if (wrong := complaint(n, found, expected))] == []


def test_the_check_of_outcomes_can_fail():
    assert complaint("tile 2^62", ["MemoryError", "tile"], None)
    assert complaint("tile 2^62", ["TooLargeError", "of something"], None)
    assert complaint("size 2^36", 3, 4)
    assert complaint("tile 2^62", [1.0], None)


def test_the_message_says_sizes_bytes_limit_and_remedy():
    with (
        memory.max_bytes(GIB),
        pytest.raises(
            TooLargeError,
            match=r"(?s)tile: .* shape \(68719476736,\) .* 4 bytes takes 256 GiB, but `max_bytes` is 1 GiB.*"
            r"load\(path, max_bytes=274877906944\), or by `with jaxops.memory.max_bytes\(274877906944\):`",
        ) as caught,
    ):
        ops.tile(np.ones(1, np.float32), (2**36,))
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, OverflowError)
    with pytest.raises(TooLargeError, match=r"takes 16 EiB; no array may take 1 EiB"):
        jax.jit(lambda x: ops.expand(x, (2**62,))).lower(np.float32(1))


def test_the_default_is_half_of_the_memory():
    assert 1 << 28 < memory.LIMIT.get() < 1 << 50
    with memory.max_bytes(40), pytest.raises(TooLargeError, match=r"expand: .* 44 bytes, but `max_bytes` is 40"):
        ops.expand(jnp.ones(()), (11,))
    assert ops.expand(jnp.ones(()), (11,)).shape == (11,)


@pytest.mark.parametrize("limit", [-1, 2.5, "1", True, None], ids=str)
def test_a_limit_is_an_integer(limit):
    with pytest.raises(ArgumentError, match=r"`max_bytes` is .*; it must be an integer >= 0"), memory.max_bytes(limit):
        pass


def test_what_is_only_traced_may_run_elsewhere():
    x = jax.ShapeDtypeStruct((), np.float32)
    assert jax.eval_shape(lambda x: ops.expand(x, (2**40,)), x).shape == (2**40,)
    assert jax.eval_shape(lambda x: ops.pad(x, (2**40, 0)), jax.ShapeDtypeStruct((1,), np.float32)).shape == (
        2**40 + 1,
    )
    with pytest.raises(TooLargeError, match="reduce_sum: a static value"):
        jax.eval_shape(lambda x: x + ops.reduce_sum(ops.constant_of_shape((2**40,))), x)
    (n,) = jax.export.symbolic_shape("n")
    found = jax.eval_shape(lambda x: ops.tile(x, (2, 3)), jax.ShapeDtypeStruct((n, 4), np.float32))
    assert found.shape == (2 * n, 12)


def test_a_loop_counts_in_the_type_of_the_program():
    fn = jax.jit(lambda x: ops.loop(2**31, None, [x], lambda i, keep, s: (keep, s + 1)))
    with pytest.raises(OutOfRangeError, match=r"loop: `m` is 2147483648, but a program counts in int32.*turn x64 on"):
        fn(np.ones(2, np.float32))


def graph(nodes, inputs=(), outputs=("y",), **constants):
    """A model; constants: int64 vectors."""
    values = [helper.make_tensor(k, TensorProto.INT64, [len(v)], v) for k, v in constants.items()]
    made = helper.make_graph(
        [helper.make_node(op, ins, outs) for op, ins, outs in nodes],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        values,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_the_shape_of_something_huge_is_known():
    nodes = [("ConstantOfShape", ["n"], ["c"]), ("Shape", ["c"], ["s"]), ("Size", ["c"], ["z"])]
    model = jaxops.onnx.load(graph([*nodes, ("Identity", ["x"], ["y"])], ["x"], ["y", "s", "z"], n=[10**6, 10**9]))
    found = model(np.ones(2, np.float32))
    assert (found.s.tolist(), found.z.item()) == ([10**6, 10**9], 10**15)
    assert not model.params


@pytest.mark.parametrize("op", ["ReduceSum", "Neg", "Exp", "NonZero", "ReduceMean"])
def test_a_static_value_is_bounded(op):
    started = time.perf_counter()
    made = graph([("ConstantOfShape", ["n"], ["c"]), (op, ["c"], ["y"])], n=[10**12])
    with pytest.raises(TooLargeError, match=rf"{op}: a static value: an array of shape \(1000000000000,\)"):
        jaxops.onnx.load(made)()
    assert time.perf_counter() - started < 20


def test_a_static_output_is_bounded():
    with pytest.raises(TooLargeError, match=r"\(1000000000000,\)"):
        jaxops.onnx.load(graph([("ConstantOfShape", ["n"], ["y"])], n=[10**12]))()


def test_max_bytes_of_a_model():
    made = graph([("Expand", ["x", "n"], ["e"]), ("Neg", ["e"], ["y"])], ["x"], n=[1000])
    x = np.ones(1, np.float32)
    model = jaxops.onnx.load(made, max_bytes=3999)
    with pytest.raises(TooLargeError, match=r"(?i)expand: .*4 bytes takes 3 KiB, but `max_bytes` is 3 KiB") as caught:
        model(x)
    assert any("in node 'e' (Expand, opset 17)" in note for note in caught.value.__notes__)
    with jax.disable_jit(), pytest.raises(TooLargeError):
        model(x)
    with pytest.raises(TooLargeError):
        model.astype(jnp.bfloat16)(jnp.ones((2, 1), jnp.bfloat16))
    assert jax.eval_shape(lambda x: model.apply(model.params, x), x).shape == (1000,)
    assert jaxops.onnx.load(made, max_bytes=4000)(x).shape == (1000,)
    with pytest.raises(TooLargeError, match=r"Range|range"):
        jaxops.onnx.load(graph([("Range", ["a", "b", "c"], ["y"])], a=[0], b=[10**6], c=[1]), max_bytes=1 << 20)


@pytest.mark.parametrize("sizes", [(10**6, 10**6), (2**62,)], ids=str)
def test_a_sparse_tensor_is_bounded(sizes):
    made = graph([("Add", ["x", "s"], ["y"])], ["x"])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [3])
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0])
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, sizes))
    with pytest.raises(TooLargeError, match=r"sparse tensor 's' of shape .* takes"):
        jaxops.onnx.load(made)


@pytest.mark.parametrize("grows", ["scan output", "sequence"])
def test_what_an_endless_loop_keeps_is_bounded(grows):
    row = np.zeros(1000, np.float32)

    def body(number, keep, *state):
        return (keep, [*state[0], row]) if grows == "sequence" else (keep, row)

    with memory.max_bytes(1 << 20), pytest.raises(TooLargeError, match=f"loop: a {grows}: .* takes 1 MiB"):
        ops.loop(None, True, [[row]] if grows == "sequence" else [], body)


def test_results_that_do_not_fit_together():
    """More is allowed than the system gives; XLA asks it for what they take together."""
    made = graph([("Expand", ["x", "n"], [f"y{k}"]) for k in range(3)], ["x"], [f"y{k}" for k in range(3)], n=[2**28])
    script = f"""
import resource, sys
import jax, numpy as np
from jaxops.errors import TooLargeError
from jaxops.onnx import load
jax.numpy.zeros(1)
model = load({made.SerializeToString()!r}, max_bytes=2**33)
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 3 * 2**29
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    model(np.ones(1, np.float32))
except TooLargeError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert "its results do not fit in memory together: RESOURCE_EXHAUSTED" in run.stdout, run.stderr[-2000:]


def test_raw_errors_of_sizes_are_ours():
    def raising(kind):
        def fn(x):
            raise kind("a size")

        return fn

    made = helper.make_graph(
        [helper.make_node("MyOp", ["x"], ["y"], domain="my")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)], [onnx.ValueInfoProto(name="y")],
    )  # fmt: skip
    made = helper.make_model(made, opset_imports=[helper.make_opsetid("my", 1), helper.make_opsetid("", 17)])
    for kind in (MemoryError, OverflowError):
        model = jaxops.onnx.load(made, operators={("my", "MyOp"): raising(kind)})
        with pytest.raises(TooLargeError, match="MyOp: a size"):
            model(np.ones(2, np.float32))
    model = jaxops.onnx.load(made, operators={("my", "MyOp"): raising(jax.errors.JaxRuntimeError)})
    with pytest.raises(jax.errors.JaxRuntimeError, match="a size"):
        model(np.ones(2, np.float32))
    assert issubclass(TooLargeError, JaxopsError)


STRINGS = np.array(["a" * 1000, "b"], object)
OF_STRINGS = {
    "constant_of_shape": lambda: ops.constant_of_shape((10**9,), value=np.array(["ab"], object)),
    "expand": lambda: ops.expand(np.array(["ab"], object), (10**9,)),
    "string_concat: the characters": lambda: ops.string_concat(STRINGS, np.full((1000, 1), "c" * 2000, object)),
    "cast: the strings": lambda: ops.cast(np.zeros(10**5), to=str),
    "cast: the numbers": lambda: ops.cast(np.full(2 * 10**5, "1.5", object), to=np.float32),
    "string_split": lambda: ops.string_split(np.array(["a " * 1000, *["b"] * 1000], object)),
    "tokenizer": lambda: jaxops.microsoft.tokenizer(
        np.array(["a " * 1000, *["b"] * 1000], object), mark=0, mincharnum=1, pad_value="", separators=(" ",)
    ),
}


@pytest.mark.parametrize("op", OF_STRINGS)
def test_strings_are_bounded(op):
    with memory.max_bytes(5 << 20), pytest.raises(TooLargeError, match=rf"^{op}.*`max_bytes` is 5 MiB"):
        OF_STRINGS[op]()


TABLES = {
    "resize: the weights": lambda x: ops.resize(x, None, None, (3,), mode="linear", antialias=1),
    "interpolate: the weights": lambda x: jaxops.openvino.opset(11).Interpolate(
        x, np.array([300]), mode="bilinear_pillow", shape_calculation_mode="sizes"
    ),
    "interpolate: the list of coordinates": lambda x: jaxops.openvino.opset(11).Interpolate(
        x, np.array([10**7]), mode="nearest", shape_calculation_mode="sizes"
    ),
    "pad: the list of indices": lambda x: ops.pad(x, (0, 10**7), mode="reflect"),
}


@pytest.mark.parametrize("op", TABLES)
def test_tables_of_what_is_traced_are_bounded(op):
    """A program that is only traced may run elsewhere, but its constants are made here."""
    with memory.max_bytes(5 << 20), pytest.raises(TooLargeError, match=rf"^{op}.*`max_bytes` is 5 MiB"):
        jax.eval_shape(TABLES[op], jax.ShapeDtypeStruct((10**6,), np.float32))


def test_a_package_is_written_under_the_limit_of_the_model(tmp_path):
    nodes = [helper.make_node("Pad", ["x", "n"], ["y"], mode="reflect")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [onnx.ValueInfoProto(name="y")],
        [helper.make_tensor("n", TensorProto.INT64, [2], [0, 10**6])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = jaxops.onnx.load(made, max_bytes=1 << 20)
    tracemalloc.start()
    model.to_python(tmp_path / "package")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "opset17.Pad(x, " in (tmp_path / "package" / "__init__.py").read_text()
    assert peak < 4 << 20


def test_a_huge_constant_is_not_written_into_a_package(tmp_path):
    made = graph([("Expand", ["c", "n"], ["y"]), ("Neg", ["x"], ["z"])], ["x"], ["y", "z"], n=[10**10], c=[1])
    with pytest.raises(TooLargeError, match=r"(?i)to_python|expand"):
        jaxops.onnx.load(made, max_bytes=1 << 20).to_python(tmp_path / "package")


def test_doubled_strings_are_bounded_and_messages_short():
    nodes = [helper.make_node("StringConcat", [f"s{k}", f"s{k}"], [f"s{k + 1}"]) for k in range(30)]
    strings = helper.make_tensor("s0", TensorProto.STRING, [1], [b"a"])
    output = helper.make_tensor_value_info("s30", TensorProto.STRING, [1])
    graph = helper.make_graph(nodes, "g", [], [output], [strings])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    with pytest.raises(TooLargeError, match="the characters of its result") as caught:
        jaxops.onnx.load(model, max_bytes=1 << 20)()
    assert len(str(caught.value)) < 1000
