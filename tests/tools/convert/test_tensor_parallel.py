"""Roles of parameters, the rules that follow them, and the programs that come of it on several devices."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from drawn_weights import WIDE, wide_model
from graphs import model
from jax.sharding import AbstractMesh, PartitionSpec as P
from language_models import language_model

from jaxops.errors import ArgumentError
from jaxops.onnx import load
from jaxops.sharding import data_parallel, explain, fsdp, tensor_parallel
from jaxops.tools.convert.sharding_rules import placements

CHILD = Path(__file__).with_name("sharded_programs.py")
TESTS = CHILD.parents[2]
# The others of `sharded_programs.MODELS` take as long again, and hold, too.
DEFAULT = ["bert.script", "gpt2.dynamo", "llama.script", "vit.dynamo"]


def test_programs_for_four_and_eight_devices():
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"  # the last one holds
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    command = [sys.executable, CHILD, *DEFAULT]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    lines = [line.split() for line in run.stdout.splitlines()]
    assert [line[1] for line in lines if line[0] == "few"] == DEFAULT
    assert [line[0] for line in lines if line[0] != "few"] == [
        "prepared",
        "more",
        *["step"] * 3,
        "convolutions",
        *["quantized"] * 2,
        *["eight"] * 2,
    ]


# For each architecture, the number of weights of two or more axes with a role, in three layers.
ROLES = {
    "bert": {"table": 3, "first": 13, "last": 7},  # with the pooler, and the classifier behind it
    "gpt2": {"table": 2, "fused": 3, "first": 4, "last": 6},
    "llama": {"table": 1, "first": 16, "last": 6},
    "vit": {"filter": 1, "first": 13, "last": 6},
}


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".onnx") for path in WIDE.glob("*.onnx")))
def test_roles_of_exported_models(name):
    net = load(wide_model(name))
    found = Counter(row.role for row in explain(net).rows if net.params[row.name].ndim > 1)
    expected = ROLES[name.split(".")[0]]
    if name == "gpt2.dynamo":  # its head is the table of words itself
        expected = {**expected, "first": 3}
    assert {role: count for role, count in found.items() if role in {"fused", "single", *expected}} == expected


def test_roles_do_not_follow_from_names():
    found = {row.name: row.role for row in explain(load(wide_model("llama.script"), names="module")).rows}
    layer = {name.split("layers.1.")[1]: role for name, role in found.items() if "layers.1." in name}
    assert layer == {
        "self_attn.q_proj.weight": "first",
        "self_attn.k_proj.weight": "first",
        "self_attn.v_proj.weight": "first",
        "self_attn.o_proj.weight": "last",
        "mlp.gate_proj.weight": "first",
        "mlp.up_proj.weight": "first",
        "mlp.down_proj.weight": "last",
        "input_layernorm.weight": "bias",
        "post_attention_layernorm.weight": "bias",
    }


def specs(net):
    return {row.name: row.spec for row in explain(net).rows}


def placed(proto, rule, devices=2):
    with jax.set_mesh(jax.make_mesh((devices,), ("model",))):
        return load(proto, sharding=rule)


SQUARE = {name: np.ones((8, 8), np.float32) for name in ("w", "v")} | {"s": np.ones(8, np.float32)}


def net(body, **weights):
    text = f"main (float[N,8] x, int64[N] i) => (float[N,M] y) {{ {body} }}"
    used = {name: value for name, value in {**SQUARE, **weights}.items() if f" {name})" in body or f"({name}," in body}
    return model(text, initializers=used, opset=18)


@pytest.mark.parametrize(
    ("body", "weights", "expected"),
    [
        # A pair; its weights are square, and no name says which is which.
        ("a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)", {}, {"w": P(None, "model"), "v": P("model", None)}),
        ("a = MatMul(x, v) b = Relu(a) y = MatMul(b, w)", {}, {"v": P(None, "model"), "w": P("model", None)}),
        ("a = Gemm<transB = 1>(x, w) y = Gemm(a, v)", {}, {"w": P("model", None), "v": P("model", None)}),
        # What a product makes is added to what is whole, so it is needed at once.
        (
            "a = MatMul(x, w) b = Add(a, c) c = Relu(x) y = MatMul(b, v)",
            {},
            {"w": P(None, "model"), "v": P(None, "model")},
        ),
        # A normalization needs all features.
        (
            "a = MatMul(x, w) b = LayerNormalization(a, s) y = MatMul(b, v)",
            {},
            {"w": P(None, "model"), "s": P(), "v": P(None, "model")},
        ),
        # A table by row, or by feature if its rows do not divide; the head that is tied to it, too.
        ("a = Gather(w, i) y = MatMul(a, v)", {}, {"w": P("model", None), "v": P(None, "model")}),
        ("y = Gather(t, i)", {"t": np.ones((9, 8), np.float32)}, {"t": P(None, "model")}),
        (
            "a = Gather(t, i) b = Transpose(t) y = MatMul(a, b)",
            {"t": np.ones((9, 8), np.float32)},
            {"t": P(None, "model")},
        ),
        # A product whose result is cut into parts that are no heads.
        (
            "a, b = Split<axis = -1, num_outputs = 2>(c) c = MatMul(x, w) d = Mul(a, b) y = MatMul(d, h)",
            {"h": np.ones((4, 8), np.float32)},
            {"w": P(), "h": P("model", None)},
        ),
        # Features that do not divide.
        ("y = MatMul(x, h)", {"h": np.ones((8, 3), np.float32)}, {"h": P("model", None)}),
    ],
)
def test_what_the_graph_says(body, weights, expected):
    assert specs(placed(net(body, **weights), tensor_parallel("model"))) == expected


def on_mesh(proto, rule, **sizes):
    """The specs on a mesh of any size, of which no device is needed."""
    net, mesh = load(proto), AbstractMesh(tuple(sizes.values()), tuple(sizes))
    found = placements(net._tensors, {}, net.graph, rule(mesh))
    return {name: placement.sharding.spec for name, placement in found.items()}


def test_keys_of_fewer_heads_than_devices_are_whole():
    proto = language_model(four_bits=True, norms=True)  # queries of 4 heads, keys and values of 2
    found = on_mesh(proto, lambda mesh: tensor_parallel("model", mesh), model=4)
    split = {name.split(".")[-3]: spec for name, spec in found.items() if "scales" in name}
    assert split["k_proj"] == split["v_proj"] == P()
    assert split["q_proj"] == P("model", None)


def test_scales_follow_their_weights():
    found = specs(placed(language_model(four_bits=True, norms=True), tensor_parallel("model")))
    name = "model.layers.0.mlp.down_proj.MatMul.weight"
    assert found[f"{name}_Q4"] == P(None, "model", None)  # two blocks of the rows that it contracts
    assert found[f"{name}_scales"] == P(None, "model")
    name = "model.layers.0.mlp.up_proj.MatMul.weight"
    assert (found[f"{name}_Q4"], found[f"{name}_scales"]) == (P("model", None, None), P("model", None))


def test_fsdp_splits_the_largest_axis_that_divides():
    body, h = "a = MatMul(x, h) y = Mul(a, u)", np.ones((8, 9), np.float32)
    proto = net(body, h=h, u=np.ones(9, np.float32))
    assert specs(placed(proto, fsdp("model"))) == {"h": P("model", None), "u": P()}
    pair = net("a = MatMul(x, w) y = MatMul(a, v)")
    found = on_mesh(pair, lambda mesh: fsdp("data", tensor_parallel("model", mesh), mesh), data=2, model=2)
    assert found == {"w": P("data", "model"), "v": P("model", "data")}


def test_errors_of_rules():
    three = model(
        "main (float[N,3] x) => (float[N,3] y) { y = MatMul(x, w) }", initializers={"w": np.ones((3, 3), np.float32)}
    )
    with pytest.raises(ArgumentError, match=r"tensor_parallel: 2 devices along 'model' can split no parameter"):
        placed(three, tensor_parallel("model"))
    with pytest.raises(ArgumentError, match=r"fsdp: 2 devices along 'model' can split no parameter evenly"):
        placed(three, fsdp("model"))
    with pytest.raises(ArgumentError, match=r"fsdp: the mesh has no axis 'data'; it has model"):
        placed(three, fsdp("data"))


@pytest.mark.parametrize("rule", ["model", 3, ()])
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(ArgumentError, match=r"`sharding` is .*; it must be a rule of jaxops.sharding"):
        placed(net("y = MatMul(x, w)"), rule)


def test_explain_shows_roles_of_any_rule():
    proto = net("a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)")
    own = placed(proto, lambda name, path, shape: P("model") if name == "w" else P())
    assert (
        str(explain(own))
        == """\
parameter  role   spec         bytes a device  reason
w          first  P('model',)             128  by a rule of the caller
v          last   P()                     256  by a rule of the caller
a device has 384 of 512 bytes"""
    )
    assert {row.reason for row in explain(placed(proto, data_parallel)).rows} == {"all on each device"}
    here = explain(load(proto))
    assert {(row.spec, row.reason) for row in here.rows} == {(None, "loaded without a rule")}
    assert here.bytes == here.total == 512
    moved = own.with_params(load(proto).params)
    assert {row.reason for row in explain(moved).rows} == {"moved after loading"}


def test_explain_reads_no_parameter():
    """With the types of its rows, a program is traced for devices that are not here."""
    proto, mesh = net("a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)"), AbstractMesh((4,), ("model",))
    model = load(proto, sharding=tensor_parallel("model", mesh))
    rows = explain(model).rows
    found = {row.name: (row.spec, row.bytes) for row in rows}
    assert found == {"w": (P(None, "model"), 64), "v": (P("model", None), 64)}
    types = {row.name: row.type for row in rows}
    assert {(x.sharding.mesh, x.dtype.name) for x in types.values()} == {(mesh, "float32")}
    inputs = [jax.ShapeDtypeStruct((2, 8), "float32"), jax.ShapeDtypeStruct((2,), "int32")]
    assert jax.eval_shape(model.apply, types, *inputs).shape == (2, 8)
    with pytest.raises(ArgumentError, match=r"no device of the mesh is here.*\n.*rows of jaxops.sharding.explain"):
        model.params  # noqa: B018 - the devices would have them
