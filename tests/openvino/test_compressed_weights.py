"""Compressed weights, as NNCF writes them: they stay as small as they are in the file, and products are OpenVINO's."""

import pickle

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import openvino_peer
import pytest
from openvino_files import File, assert_close, outputs_of, run_by_plugin, written_files, written_package

from jaxops.errors import ShapeError, UnsupportedError
from jaxops.kernels.matmul import block_quantized
from jaxops.openvino import load
from jaxops.openvino.element_types import NF4

N, K, GROUP = 48, 64, 32
KINDS = {
    "u4": (np.uint8, range(16)),
    "i4": (np.int8, range(-8, 8)),
    "u8": (np.uint8, range(256)),
    "i8": (np.int8, range(-128, 128)),
}
FLOATS = {
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
}


def constant(file, codes, element, name):
    """A constant of these numbers, or of codes of four bits."""
    values = np.asarray(codes)
    data = values.reshape(-1).view(np.uint8)
    if "4" in element and "f8" not in element:
        data = data & 15
        data = np.append(data, np.zeros(data.size % 2, np.uint8))
        data = data[::2] | data[1::2] << 4
    attributes = {"element_type": element, "shape": values.shape, "offset": len(file.weights), "size": data.nbytes}
    file.weights += data.tobytes()
    return file.layer("Const", 1, (), attributes, name=name)


def compressed(
    element, codes, scale, zero=None, *, shape=None, readers=("MatMul",), name="fc", middle="f16", last="f32", a="f4"
):
    """A file whose input meets a weight. readers: the layers that read it."""
    file = File()
    x = file.parameter(["?", codes.shape[-1] if shape is None else shape[-1]], a)
    number = file.layer("Convert", 1, [constant(file, codes, element, f"{name}.weight")], {"destination_type": middle})
    if zero is not None:
        origin = constant(file, zero, element, f"{name}.weight/zero_point")
        origin = file.layer("Convert", 1, [origin], {"destination_type": middle})
        number = file.layer("Subtract", 1, [number, origin], {"auto_broadcast": "numpy"})
    by = file.constant(scale.astype({"f16": np.float16, "f32": np.float32}[middle]), name=f"{name}.weight/scale")
    weight = file.layer("Multiply", 1, [number, by], {"auto_broadcast": "numpy"})
    if shape is not None:
        weight = file.layer("Reshape", 1, [weight, file.constant(np.int64(shape))], {"special_zero": False})
    if last != middle:
        weight = file.layer("Convert", 1, [weight], {"destination_type": last})
    for reader in readers:
        if reader == "MatMul":
            file.result(file.layer("MatMul", 1, [x, weight], {"transpose_a": False, "transpose_b": True}))
        else:
            file.result(file.layer(reader, 1, [weight]))
    return file


def loaded(file):
    return load(file.xml, weights=file.bin)


def random(element, shape, seed=0):
    dtype, span = KINDS[element]
    return np.random.default_rng(seed).integers(span.start, span.stop, shape).astype(dtype)


def row(shape=(3, K), seed=2):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scales(shape):
    return np.random.default_rng(1).uniform(0.01, 0.1, shape).astype(np.float16)


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize(
    ("element", "has_zero"), [("u4", True), ("i4", False), ("i4", True), ("u8", True), ("u8", False), ("i8", False)]
)
def test_integers(element, has_zero, grouped):
    sizes = (N, K // GROUP, GROUP) if grouped else (N, K)
    codes, by = random(element, sizes), scales((*sizes[:-1], 1))
    zero = random(element, (*sizes[:-1], 1), 3) if has_zero else None
    file = compressed(element, codes, by, zero, shape=(N, K) if grouped else None)
    model, x = loaded(file), row()
    floats = (codes - np.float32(0 if zero is None else zero)) * np.float32(by)
    assert_close(outputs_of(model, [x]), [x @ floats.reshape(N, K).T], 1e-5)
    assert_close(outputs_of(model, [x]), run_by_plugin(file, [x]), 2e-3)
    assert {"fc.weight", "fc.weight/scale"} <= model.params.keys()
    weight = model.params["fc.weight"]
    assert weight.dtype.itemsize == 1
    assert weight.size == N * K // 2 if grouped and "4" in element else N * K
    assert "fc.weight" not in {name for name, is_trained in model.trainable.items() if is_trained}


@pytest.mark.parametrize("element", FLOATS)
def test_small_floats(element):
    values = np.random.default_rng(0).standard_normal((N, K)).astype(FLOATS[element])
    file = compressed(element, values, scales((N, 1)))
    model, x = loaded(file), row()
    assert_close(outputs_of(model, [x]), [x @ (values.astype(np.float32) * np.float32(scales((N, 1)))).T], 1e-5)
    assert model.params["fc.weight"].dtype == FLOATS[element]


@pytest.mark.parametrize("grouped", [True, False])
def test_codes_of_normal_quantiles(grouped):
    sizes = (N, K // GROUP, GROUP) if grouped else (N, K)
    codes, by = random("u4", sizes), scales((*sizes[:-1], 1))
    file = compressed("nf4", codes, by, shape=(N, K) if grouped else None)
    model, x = loaded(file), row()
    assert_close(outputs_of(model, [x]), [x @ (NF4[codes] * np.float32(by)).reshape(N, K).T], 1e-5)
    assert model.params["fc.weight"].nbytes == N * K // 2


@pytest.mark.parametrize(("element", "count"), [("u4", 16), ("u8", 256)])
@pytest.mark.parametrize("table_type", ["f8e4m3", "f32"])
def test_codes_of_a_codebook(element, count, table_type):
    file, x = File(), row()
    table = np.sort(np.random.default_rng(4).standard_normal(count)).astype(FLOATS.get(table_type, np.float32))
    codes, by = random(element, (N, K // GROUP, GROUP)), scales((N, K // GROUP, 1))
    source = file.parameter(["?", K])
    numbers = constant(file, table, table_type, "fc.table")
    if table_type != "f32":
        numbers = file.layer("Convert", 1, [numbers], {"destination_type": "f32"})
    weight = constant(file, codes, element, "fc.weight")
    axis = file.constant(np.int64(0))
    weight = file.layer("Gather", 8, [numbers, weight, axis], {"batch_dims": 0})
    scale = file.constant(np.float32(by), name="fc.weight/scale")
    weight = file.layer("Multiply", 1, [weight, scale], {"auto_broadcast": "numpy"})
    weight = file.layer("Reshape", 1, [weight, file.constant(np.int64((N, K)))], {"special_zero": False})
    file.result(file.layer("MatMul", 1, [source, weight], {"transpose_a": False, "transpose_b": True}))
    model = loaded(file)
    floats = table.astype(np.float32)[codes] * np.float32(by)
    assert_close(outputs_of(model, [x]), [x @ floats.reshape(N, K).T], 1e-5)
    assert model.params["fc.weight"].dtype.itemsize == 1
    assert not any(v.size == floats.size for k, v in model.params.items() if k != "fc.weight")
    assert model.paths["fc.weight/scale"] == "fc.weight_scale"


def test_paths_of_a_weight_and_its_scale():
    codes, by = random("u4", (N, K // GROUP, GROUP)), scales((N, K // GROUP, 1))
    model = loaded(compressed("u4", codes, by, np.uint8([[[7]]]), shape=(N, K), name="self.block.fc"))
    paths = {"self.block.fc.weight": "block.fc.weight", "self.block.fc.weight/scale": "block.fc.weight_scale"}
    assert model.paths == paths
    assert model.nest(model.params)["block"]["fc"].keys() == {"weight", "weight_scale"}


def test_a_product_reads_blocks_as_bytes(monkeypatch):
    """Large enough for the kernel that takes blocks; the floats of all weights are in no program."""
    n, k = 256, 512
    codes, by = random("u4", (n, k // GROUP, GROUP)), scales((n, k // GROUP, 1))
    zero = random("u4", by.shape, 3)
    model = loaded(compressed("u4", codes, by, zero, shape=(n, k)))
    calls = []
    as_sums = block_quantized._as_sums
    monkeypatch.setattr(block_quantized, "_as_sums", lambda *args, **kw: calls.append(1) or as_sums(*args, **kw))
    x = row((1, k))
    floats = ((codes - np.float32(zero)) * np.float32(by)).reshape(n, k)
    assert_close(outputs_of(model, [x]), [x @ floats.T], 1e-5)
    assert calls
    assert sum(v.nbytes for v in model.params.values()) < 0.25 * floats.nbytes


def test_a_weight_that_is_read_elsewhere_is_dequantized():
    codes, by = random("u8", (N, K)), scales((N, 1))
    file = compressed("u8", codes, by, random("u8", (N, 1), 3), readers=("MatMul", "Abs"))
    model, x = loaded(file), row()
    assert_close(outputs_of(model, [x]), run_by_plugin(file, [x]), 2e-3)
    assert model.params["fc.weight"].dtype == np.uint8


def test_scales_of_all_and_of_rows_and_columns():
    codes = random("i8", (N, K))
    for by in (scales(()), scales((1, 1)), scales((1, K)), scales((N, 1)), scales((N, K))):
        model = loaded(compressed("i8", codes, by))
        assert_close(outputs_of(model, [row()]), [row() @ (codes * np.float32(by)).T], 2e-3)


@pytest.mark.parametrize("op", ["Multiply", "Subtract"])
def test_an_operand_that_broadcasts_from_the_first_axis(op):
    """The numbers are square, so that the other rule would fit, too."""
    codes, by, zero = random("u8", (K, K)), scales(K), random("u8", (K,), 3)
    file = compressed("u8", codes, by, zero)
    file.layers = [text.replace('"numpy"', '"pdpd"') if f'type="{op}"' in text else text for text in file.layers]
    offset, factor = (x[:, None] if kind == op else x for x, kind in ((zero, "Subtract"), (by, "Multiply")))
    floats = (codes - np.float32(offset)) * np.float32(factor)
    assert_close(outputs_of(loaded(file), [row()]), [row() @ floats.T], 2e-3)


def test_a_zero_point_for_several_scales():
    codes, by = random("u4", (N, K // GROUP, GROUP)), scales((N, K // GROUP, 1))
    model = loaded(compressed("u4", codes, by, np.uint8([[[7]]]), shape=(N, K)))
    assert_close(outputs_of(model, [row()]), [row() @ ((codes - np.float32(7)) * np.float32(by)).reshape(N, K).T], 1e-5)


def test_constants_that_several_weights_share():
    file = File()
    x = file.parameter(["?", K])
    codes, by = random("i4", (N, K // GROUP, GROUP)), scales((N, K // GROUP, 1))
    weight = constant(file, codes, "i4", "shared")
    number = file.layer("Convert", 1, [weight], {"destination_type": "f32"})
    target = file.constant(np.int64((N, K)))
    for factor, name in ((1, "one"), (2, "two")):
        scale = file.constant(np.float32(by) * factor, name=name)
        product = file.layer("Multiply", 1, [number, scale], {"auto_broadcast": "numpy"})
        product = file.layer("Reshape", 1, [product, target], {"special_zero": False})
        file.result(file.layer("MatMul", 1, [x, product], {"transpose_a": False, "transpose_b": True}))
    y = row() @ (codes * np.float32(by)).reshape(N, K).T
    assert_close(outputs_of(loaded(file), [row()]), [y, 2 * y], 1e-5)


def test_a_reshape_that_does_not_fit_fails_where_it_runs():
    codes, by = random("u4", (N, K // GROUP, GROUP)), scales((N, K // GROUP, 1))
    model = loaded(compressed("u4", codes, by, np.uint8([[[7]]]), shape=(N, K + 1)))
    with pytest.raises(ShapeError, match=r"reshape: `shape` \(48, 65\) does not fit data of \(48, 2, 32\)"):
        model(row((3, K + 1)))


def test_gradients_and_export():
    codes, by = random("u4", (N, K // GROUP, GROUP)), scales((N, K // GROUP, 1))
    zero = random("u4", by.shape, 3)
    model = loaded(compressed("u4", codes, by, zero, shape=(N, K)))
    floats = ((codes - np.float32(zero)) * np.float32(by)).reshape(N, K)
    gradient = jax.grad(lambda x: jnp.sum(model(x) * 2))(row())
    np.testing.assert_allclose(gradient, np.broadcast_to(2 * floats.sum(0), (3, K)), rtol=1e-4)
    exported = model.export()
    assert_close(
        [np.asarray(jax.tree.leaves(exported.call(model.params, row((5, K))))[0])], outputs_of(model, [row((5, K))])
    )


def in_form(element, sizes, has_zero, seed):
    """A file with a weight of random codes and zero points."""
    codes, by = random(element.replace("nf4", "u4"), sizes, seed), scales((*sizes[:-1], 1)) * np.float16(seed)
    zero = random(element, (*sizes[:-1], 1), seed + 1) if has_zero else None
    return compressed(element, codes, by, zero, shape=(N, sizes[1] * sizes[2]) if len(sizes) == 3 else None)


FORMS = [
    *[("u4", (N, 3, 32), True), ("i4", (N, 2, 32), False), ("i4", (N, 2, 32), True), ("u8", (N, 2, 32), True)],
    *[("u8", (N, K), True), ("i8", (N, K), False), ("u4", (N, K), True), ("nf4", (N, 2, 32), False)],
]


@pytest.mark.parametrize(("element", "sizes", "has_zero"), FORMS)
def test_other_weights_are_saved_in_the_form_of_the_file(tmp_path, element, sizes, has_zero):
    """Zero points are parameters too, where a caller says so."""
    if len(sizes) == 3 and sizes[1] == 3:  # an odd number of zero points in a row
        sizes = (N, 3, 32)
    k = sizes[-1] * (sizes[1] if len(sizes) == 3 else 1)
    files = [in_form(element, sizes, has_zero, seed) for seed in (1, 2)]
    for file in files:
        file.layers = [text.replace(f"{N},{K}", f"{N},{k}") for text in file.layers]
    zeros = {"static": {"fc.weight/zero_point": False}} if has_zero else {}
    model, x = load(written_files(files[0], tmp_path), **zeros), row((3, k))
    other = load(files[1].xml, weights=files[1].bin, **zeros)
    model.save(tmp_path / "tuned.xml", other.params)
    again = load(tmp_path / "tuned.xml", **zeros)
    for name, value in other.params.items():
        np.testing.assert_array_equal(again.params[name], value)
    assert_close(outputs_of(again, [x]), outputs_of(other, [x]), 1e-6)
    pickle.loads(pickle.dumps(model)).save(tmp_path / "same.xml")
    assert_close(outputs_of(load(tmp_path / "same.xml"), [x]), outputs_of(model, [x]), 1e-6)


def test_zero_points_that_share_a_place_in_the_file(tmp_path):
    codes, by = random("u4", (N, K // GROUP, GROUP)), scales((N, K // GROUP, 1))
    file = compressed("u4", codes, by, np.uint8([[[7]]]), shape=(N, K))
    name = "fc.weight/zero_point"
    model, x = load(written_files(file, tmp_path), static={name: False}), row()
    zeros = np.full_like(model.params[name], 0x33)
    model.save(tmp_path / "tuned.xml", {**model.params, name: zeros})
    floats = ((codes - np.float32(3)) * np.float32(by)).reshape(N, K)
    assert_close(outputs_of(load(tmp_path / "tuned.xml"), [x]), [x @ floats.T], 1e-5)
    zeros[0] = 0x34
    with pytest.raises(
        UnsupportedError, match=r"zero points that differ now share one place in the file, which has a con"
    ):
        model.save(tmp_path / "other.xml", {**model.params, name: zeros})


def codebook(element="u4", count=16):
    """A file whose weight is looked up in a table."""
    file = File()
    source = file.parameter([3, K])
    table = file.constant(np.linspace(-1, 1, count, dtype="f4"), name="fc.table")
    weight = constant(file, random(element, (N, K)), element, "fc.weight")
    weight = file.layer("Gather", 8, [table, weight, file.constant(np.int64(0))], {"batch_dims": 0})
    weight = file.layer("Multiply", 1, [weight, file.constant(np.float32(scales((N, 1))))], {"auto_broadcast": "numpy"})
    file.result(file.layer("MatMul", 1, [source, weight], {"transpose_a": False, "transpose_b": True}))
    return file


WRITTEN = {
    "blocks": (lambda: in_form("u4", (N, 2, 32), True, 1), "jo.microsoft.matmul_nbits("),
    "channels": (lambda: in_form("u8", (N, K), True, 1), "jo.dequantize_linear("),
    "quantiles": (lambda: in_form("nf4", (N, 2, 32), False, 1), "jo.microsoft.matmul_bnb4("),
    "codebook": (codebook, "jaxops.openvino.compressed_weights.look_up("),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_package_and_a_comparison(tmp_path, name):
    make, call = WRITTEN[name]
    model, x = loaded(make()), row()
    module, text = written_package(model, tmp_path / "net")
    assert call in text
    params = module.load_params()
    assert sum(v.nbytes for v in jax.tree.leaves(params)) == sum(v.nbytes for v in model.params.values())
    assert_close([np.asarray(module.apply(params, x))], outputs_of(model, [x]), 1e-6)
    openvino_peer.imported()
    report = model.compare(x, atol=1e-3)
    assert report.agrees, str(report)
    assert report.rows[-1].operator == "MatMul"


@pytest.mark.parametrize("kind", ["nf4", "codebook", "u4", "i8"])
def test_a_table_of_embeddings_is_computed_in_float32(kind):
    """Its layers are of float16, in which OpenVINO rounds nothing but the numbers of nf4."""
    file = File()
    ids = file.parameter(["?"], "i8")
    sizes, by = (N, K // GROUP, GROUP), scales((N, K // GROUP, 1))
    if kind == "codebook":
        numbers = constant(file, np.linspace(-1, 1, 16).astype(FLOATS["f8e4m3"]), "f8e4m3", "table")
        numbers = file.layer("Convert", 1, [numbers], {"destination_type": "f16"})
        codes = constant(file, random("u4", sizes), "u4", "fc.weight")
        weight = file.layer("Gather", 8, [numbers, codes, file.constant(np.int64(0))], {"batch_dims": 0})
    else:
        codes = constant(file, random("u4" if kind == "nf4" else kind, sizes), kind, "fc.weight")
        weight = file.layer("Convert", 1, [codes], {"destination_type": "f16"})
    weight = file.layer("Multiply", 1, [weight, file.constant(by, name="fc.weight/scale")], {"auto_broadcast": "numpy"})
    weight = file.layer("Reshape", 1, [weight, file.constant(np.int64((N, K)))], {"special_zero": False})
    weight = file.layer("Convert", 1, [weight], {"destination_type": "f32"})
    file.result(file.layer("Gather", 8, [weight, ids, file.constant(np.int64(0))], {"batch_dims": 0}))
    model, x = loaded(file), np.array([3, 0, 40])
    assert_close(outputs_of(model, [x]), run_by_plugin(file, [x]), 1e-6)
    assert model.params["fc.weight/scale"].dtype == (np.float16 if kind in ("u4", "i8") else np.float32)


@pytest.mark.parametrize("kind", ["u4", "i8", "codebook"])
def test_indices_beside_a_weight_do_not_ask_for_64_bits(kind):
    """What is looked up in a table of weights has the type of these, and not that of the indices."""
    file = codebook() if kind == "codebook" else in_form(kind, (N, K), False, 1)
    numbers = file.layers.index(next(text for text in file.layers if "Multiply" in text))
    ids = file.parameter(["?"], "i8")
    rows = file.layer("Gather", 8, [(numbers, 2), ids, file.constant(np.int64(0))], {"batch_dims": 0})
    file.result(file.layer("Add", 1, [rows, rows]))
    model = loaded(file)
    assert not model.x64
    assert model.graph.nodes[-1].operator.name == "Add"


@pytest.mark.parametrize(("element", "grouped"), [("u4", True), ("i4", True), ("i8", False), ("nf4", False)])
def test_adapters(element, grouped):
    sizes = (N, K // GROUP, GROUP) if grouped else (N, K)
    codes = np.random.default_rng(0).integers(0, 16, sizes) if element == "nf4" else random(element, sizes)
    file = compressed(element, codes, scales((*sizes[:-1], 1)), shape=(N, K) if grouped else None)
    plain, x = loaded(file), row()
    model = load(file.xml, weights=file.bin, adapters={"fc": (2, 6)})
    np.testing.assert_array_equal(model(x), plain(x))
    a, b = np.ones((2, K), np.float32), np.arange(2 * N, dtype=np.float32).reshape(N, 2)
    params = {**model.params, "fc.lora_A.weight": jnp.asarray(a), "fc.lora_B.weight": jnp.asarray(b)}
    np.testing.assert_allclose(model.apply(params, x), plain(x) + 3 * (x @ a.T) @ b.T, rtol=1e-3, atol=1e-3)
    assert all(model.params[name].dtype == value.dtype for name, value in plain.params.items())
    assert [name for name, is_trained in model.trainable.items() if is_trained] == [
        "fc.lora_A.weight",
        "fc.lora_B.weight",
    ]
