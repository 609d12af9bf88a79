"""Module paths of parameters: PyTorch's own names are found, whichever exporter wrote the file."""

import pickle
from pathlib import Path

import jax
import numpy as np
import pytest
from graphs import build, function, info, node, tensor
from onnx import helper

from jaxops.errors import ArgumentError, SignatureError
from jaxops.frontend.module_paths import scope_of
from jaxops.onnx import load

MODELS = Path(__file__).resolve().parents[2] / "models"
FILES = sorted(MODELS.glob("*.onnx"))
# What is not in the file: normalizations that the exporter folded into convolutions; biases of zeros, which the new
# exporter drops; and the embedding that the new exporter calls by the name of the layer that shares it.
ABSENT = {
    "bert.dynamo": {"bert.pooler.dense.bias", "classifier.bias"},
    "gpt2.dynamo": {f"transformer.h.{k}.{m}.bias" for k in (0, 1) for m in ("attn.c_attn", "attn.c_proj", "mlp.c_fc")}
    | {f"transformer.h.{k}.mlp.c_proj.bias" for k in (0, 1)},
    **{f"t5{part}.dynamo": {"shared.weight"} for part in ("", "_decoder", "_first")},
    "vit.dynamo": {"classifier.bias", "vit.embeddings.patch_embeddings.projection.bias"},
    "whisper.dynamo": {"conv1.bias", "conv2.bias"},
}


def of_torch(path):
    """The derivatives that torch computes, by the names of parameters in the exported module."""
    with np.load(MODELS / f"{path.name.split('.')[0]}.npz") as found:
        return {f"model.{name[5:]}": found[name] for name in found.files if name.startswith("grad:")}


def inputs_of(path):
    with np.load(MODELS / f"{path.name.split('.')[0]}.npz") as found:
        return [found[name] for name in found.files if name.startswith("in:")]


def missing(loaded, names):
    """What is not among the paths; a wrapper that calls a part of `model` leaves that name out of the nodes."""
    found = {path.removeprefix("model.") for path in (*map(loaded.paths.get, loaded.params), *loaded.tied)}
    return {name.removeprefix("model.") for name in names} - found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_names_of_torch_are_found(path):
    loaded, expected = load(path), of_torch(path)
    lost = missing(loaded, expected)
    if path.stem.startswith("resnet"):
        lost = {name for name in lost if ".normalization." not in name}
    assert lost == ABSENT.get(path.stem, set())
    paths = [loaded.paths[name] for name in loaded.params]
    assert len(set(paths)) == len(paths)
    assert not loaded.tied.keys() & set(paths)
    assert set(loaded.tied.values()) <= set(paths)


def test_a_wrong_name_would_be_missing():
    loaded = load(MODELS / "bert.script.onnx")
    assert missing(loaded, ["model.bert.encoder.layer.2.attention.self.query.weight"])


def test_each_name_has_the_derivative_that_torch_gives_it():
    path = MODELS / "whisper.script.onnx"
    loaded, expected, given = load(path, names="module"), of_torch(path), inputs_of(path)

    def loss(params):
        found = loaded.apply(params, *given)
        return ((found[0] if isinstance(found, tuple) else found) ** 2).mean()

    shared = set(loaded.tied.values())
    compared = 0
    for key, got in jax.grad(loss)(loaded.params).items():
        if key in expected and key not in shared:
            wanted = expected[key]
            wanted = wanted.T if wanted.shape != got.shape or _differ(wanted, got) else wanted
            np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=1e-6)
            compared += 1
    assert compared >= 12


def _differ(a, b):
    return not np.allclose(a, b, rtol=2e-3, atol=1e-6)


def test_names_of_modules_nest():
    path = MODELS / "vit.script.onnx"
    loaded, plain = load(path, names="module"), load(path)
    assert loaded.trainable.keys() == loaded.params.keys()
    assert sum(loaded.trainable.values()) == sum(plain.trainable.values())
    nested = loaded.nest(loaded.params)
    assert nested["model"]["vit"]["layers"]["0"]["attention"]["q_proj"]["weight"].shape == (16, 16)
    assert loaded.flatten(nested).keys() == loaded.params.keys()
    again = plain.flatten(plain.nest(plain.params))
    assert {name: id(value) for name, value in again.items()} == {k: id(v) for k, v in plain.params.items()}
    gradients = {"onnx::MatMul_293": 1}
    assert plain.nest(gradients) == {"model": {"vit": {"layers": {"0": {"attention": {"q_proj": {"weight": 1}}}}}}}
    with pytest.raises(SignatureError, match="nest: the model has no parameter 'wrong'"):
        plain.nest({"wrong": 1})
    with pytest.raises(SignatureError, match=r"flatten: the model has no parameter 'model.vit.wrong'"):
        plain.flatten({"model": {"vit": {"wrong": 1}}})


def test_nodes_have_paths_too():
    assert load(MODELS / "bert.script.onnx").paths["/model/bert/pooler/dense/Gemm"] == "model.bert.pooler.dense"
    assert load(MODELS / "bert.dynamo.onnx").paths["node_MatMul_91"].endswith("layer.0.attention.self.query")


def test_another_kind_of_names_is_refused():
    with pytest.raises(ArgumentError, match="`names` is 'torch'; it must be 'file' or 'module'"):
        load(MODELS / "vit.script.onnx", names="torch")


ROW, SQUARE = np.ones(3, np.float32), np.ones((3, 3), np.float32)


def layer(name, weight, bias="", *, after="x", gives="y", bias_name=None):
    """A product and a sum, as exporters write a linear layer."""
    return [
        node("MatMul", [after, weight], [f"{gives}0"], node_name=name),
        node("Add", [f"{gives}0", bias], [gives], node_name=bias_name or name.replace("MatMul", "Add")),
    ]


@pytest.mark.parametrize(
    ("nodes", "names", "expected"),
    [
        (
            layer("/fc/MatMul", "onnx::MatMul_7", "fc.bias"),
            {"onnx::MatMul_7": SQUARE, "fc.bias": ROW},
            ["fc.weight", "fc.bias"],
        ),
        (layer("MatMul_3", "7", "fc.bias", bias_name="Add_4"), {"7": SQUARE, "fc.bias": ROW}, ["fc.weight", "fc.bias"]),
        (layer("MatMul_3", "7", "8", bias_name="Add_4"), {"7": SQUARE, "8": ROW}, ["7", "8"]),
        (
            layer("model/dense/MatMul", "model/dense/MatMul/ReadVariableOp:0", "model/dense/BiasAdd/ReadVariableOp:0"),
            {"model/dense/MatMul/ReadVariableOp:0": SQUARE, "model/dense/BiasAdd/ReadVariableOp:0": ROW},
            ["model.dense.kernel", "model.dense.bias"],
        ),
        (
            layer("dense", "dense/kernel:0", "dense/bias/read:0"),
            {"dense/kernel:0": SQUARE, "dense/bias/read:0": ROW},
            ["dense.kernel", "dense.bias"],
        ),
        (
            layer("dense", "dense/kernel/Read/ReadVariableOp:0", "f/dense/Cast/ReadVariableOp_1:0"),
            {"dense/kernel/Read/ReadVariableOp:0": SQUARE, "f/dense/Cast/ReadVariableOp_1:0": ROW},
            ["dense.kernel", "f.dense.bias"],
        ),
        (
            [node("BatchNormalization", ["x", *"abcd"], ["y"], node_name="m/bn/FusedBatchNormV3")],
            dict.fromkeys("abcd", ROW),
            ["m.bn.weight", "m.bn.bias", "m.bn.running_mean", "m.bn.running_var"],
        ),
        (
            [
                *layer("/a/fc/MatMul", "onnx::MatMul_1", "onnx::Add_2", gives="h"),
                *layer("/a/fc/MatMul_1", "onnx::MatMul_3", "onnx::Add_4", after="h"),
            ],
            {"onnx::MatMul_1": SQUARE, "onnx::Add_2": ROW, "onnx::MatMul_3": SQUARE, "onnx::Add_4": ROW},
            ["a.fc.weight", "a.fc.bias", "a.fc.weight_2", "a.fc.bias_2"],
        ),
        (
            layer("/fc/MatMul", "fc", "fc.weight"),  # a name may be the beginning of another's path
            {"fc": SQUARE, "fc.weight": ROW},
            ["fc.weight_2", "fc.weight"],
        ),
        (
            [
                node("Transpose", ["w"], ["wt"], node_name="/fc/Transpose", perm=[1, 0]),
                node("MatMul", ["x", "wt"], ["y"], node_name="/fc/MatMul"),
            ],
            {"w": SQUARE},
            ["fc.weight"],
        ),
        ([node("Add", ["x", "position"], ["y"], node_name="/embed/Add")], {"position": ROW}, ["embed.position"]),
        ([node("Add", ["x", "onnx::Add_9"], ["y"], node_name="/embed/Add_1")], {"onnx::Add_9": ROW}, ["embed.Add_1"]),
    ],
    ids=[
        "torch",
        "numbers",
        "nothing",
        "tf2onnx",
        "keras",
        "reads",
        "norm",
        "twice",
        "beginning",
        "transposed",
        "named",
        "unclear",
    ],
)
def test_paths(nodes, names, expected):
    values = [tensor(value, name) for name, value in names.items()]
    loaded = load(build(*nodes, initializers=values))
    assert [loaded.paths[name] for name in names] == expected
    nested = loaded.nest(loaded.params)
    assert loaded.flatten(nested).keys() == loaded.params.keys()


def test_weights_in_functions_and_subgraphs_have_paths():
    branch = helper.make_graph(
        [node("MatMul", ["x", "onnx::MatMul_1"], ["b"], node_name="/fc/MatMul")], "then", [], [info("b", None)]
    )
    other = helper.make_graph([node("Identity", ["x"], ["c"])], "else", [], [info("c", None)])
    body = [
        helper.make_node("Constant", [], ["w"], value=tensor(SQUARE)),
        node("MatMul", ["a", "w"], ["b"], node_name="/inner/MatMul"),
    ]
    loaded = load(
        build(
            node("If", ["c"], ["h"], then_branch=branch, else_branch=other),
            helper.make_node("Layer", ["h"], ["y"], domain="loc"),
            inputs=(info("x", ["N", 3]), info("c", [], 9)),
            initializers=[tensor(SQUARE, "onnx::MatMul_1")],
            functions=[function("Layer", ["a"], *body)],
            opsets=(("", 18), ("loc", 1)),
        ),
        names="module",
    )
    assert set(loaded.params) == {"fc.weight", "inner.weight"}
    np.testing.assert_allclose(loaded(np.eye(3, dtype=np.float32), True), np.full((3, 3), 3.0))


def test_a_weight_that_a_function_is_called_with_has_the_path_of_the_call():
    loaded = load(
        build(
            helper.make_node("Linear", ["x", "val_1"], ["y"], "/encoder/fc/Linear", domain="loc"),
            initializers=[tensor(SQUARE, "val_1")],
            functions=[function("Linear", ["a", "w"], node("MatMul", ["a", "w"], ["b"]))],
            opsets=(("", 18), ("loc", 1)),
        )
    )
    assert loaded.paths["val_1"] == "encoder.fc.weight"


def test_a_copy_keeps_the_names():
    loaded = load(MODELS / "whisper.dynamo.onnx", names="module")
    again = pickle.loads(pickle.dumps(loaded))
    assert again.paths == loaded.paths
    assert again.nest(again.params).keys() == loaded.nest(loaded.params).keys()


def test_one_tensor_of_several_modules_is_tied():
    loaded = load(
        build(
            node("Identity", ["a.weight"], ["b.weight"]),
            node("MatMul", ["x", "a.weight"], ["h"], node_name="/a/MatMul"),
            node("MatMul", ["h", "b.weight"], ["i"], node_name="/b/MatMul"),
            node("MatMul", ["i", "a.weight"], ["j"], node_name="/c/MatMul"),
            node("MatMul", ["j", "onnx::MatMul_8"], ["k"], node_name="/d/MatMul"),
            node("MatMul", ["k", "onnx::MatMul_8"], ["y"], node_name="/e/MatMul"),
            initializers=[tensor(SQUARE, "a.weight"), tensor(SQUARE, "onnx::MatMul_8")],
        ),
        tied=True,
    )
    assert loaded.tied == {"b.weight": "a.weight", "c.weight": "a.weight", "e.weight": "d.weight"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bias", {"second.bias": "first.bias"}),
        ("first.bias", {"second.bias": "first.bias"}),
        ("model.scale", {"first.scale": "model.scale", "second.scale": "model.scale"}),
        ("onnx::Add_3", {}),  # nobody knows what the second module calls it
    ],
)
def test_an_addend_of_several_modules_is_tied_by_its_name(name, expected):
    """Neither module has a weight that would tell that the addend is a bias."""
    nodes = [
        node("Add", ["x", name], ["h"], node_name="/first/Add"),
        node("Add", ["h", name], ["y"], node_name="/second/Add"),
    ]
    assert load(build(*nodes, initializers=[tensor(SQUARE, name)]), tied=True).tied == expected


@pytest.mark.parametrize(
    ("name", "metadata", "expected"),
    [
        ("/layer/layer.0/Conv", {}, "layer.0"),
        ("/features/features.0/features.0.1/BatchNormalization", {}, "features.0.1"),
        ("model/dense/MatMul", {}, "model.dense"),
        ("n", {"namespace": ": m.First/model: m.Bert/model.fc: torch.nn.Linear/linear: aten.linear"}, "model.fc"),
        ("n", {"pkg.torch.onnx.name_scopes": "['', 'a', 'a.b', 'node']", "namespace": "z: Z/y: Y"}, "a.b"),
        ("n", {"pkg.torch.onnx.name_scopes": "['_empty_nn_module_stack_from_metadata_hook', 's']"}, ""),
        ("/a/Add", {"pkg.torch.onnx.name_scopes": "[broken"}, "a"),
        ("/a/Add", {"pkg.torch.onnx.name_scopes": "3"}, "a"),
        ("Add_1", {"namespace": "no colon"}, ""),
        ("", {}, ""),
    ],
)
def test_scopes(name, metadata, expected):
    assert scope_of(name, metadata) == expected


def test_a_module_in_one_of_the_same_name():
    """`layer/layer.0` is a container that was called, unless the file has a parameter of `layer.layer.0`."""
    names = ["/layer/layer.0/fc/MatMul", "/layer/layer.0/other/MatMul"]
    nodes = [
        node("MatMul", ["x", "layer.layer.0.fc.weight"], ["h"], node_name=names[0]),
        node("MatMul", ["h", "onnx::MatMul_3"], ["y"], node_name=names[1]),
    ]
    weights = [tensor(SQUARE, "layer.layer.0.fc.weight"), tensor(SQUARE, "onnx::MatMul_3")]
    assert load(build(*nodes, initializers=weights)).paths == {
        "layer.layer.0.fc.weight": "layer.layer.0.fc.weight",
        "onnx::MatMul_3": "layer.layer.0.other.weight",
        names[0]: "layer.layer.0.fc",
        names[1]: "layer.layer.0.other",
    }


def test_profiles_show_the_path():
    loaded = load(build(node("Relu", ["x"], ["y"], node_name="/encoder/fc/Act")))
    program = jax.make_jaxpr(loaded.apply)(loaded.params, np.ones((2, 3), np.float32))
    (equation,) = program.eqns[-1:]
    *_, operation = equation.params["jaxpr"].eqns
    assert "encoder.fc/Act" in str(operation.source_info.name_stack)
    text = jax.jit(loaded.apply).lower(loaded.params, np.ones((2, 3), np.float32)).as_text(debug_info=True)
    assert "encoder.fc/Act" in text
