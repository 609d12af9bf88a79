"""The element types each version lists are accepted, and all others refused, as `onnx.defs` has them."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, defs, helper

from jaxops.errors import DTypeError
from jaxops.onnx import opset

DTYPES = {
    f"tensor({name.lower()})": np.dtype(helper.tensor_dtype_to_np_dtype(number))
    for name, number in TensorProto.DataType.items()
    if name != "UNDEFINED"
}


def i64(*values):
    return np.array(values, np.int64)


# Operator → how to call it at a version with data of some type; what comes out has the type of the data.
CALLS = {
    "Reshape": lambda op, n, x: op.Reshape(x, i64(2)) if n >= 5 else op.Reshape(x, shape=[2]),
    "Flatten": lambda op, n, x: op.Flatten(x),
    "Split": lambda op, n, x: op.Split(x, i64(2))[0] if n >= 13 else op.Split(x, split=[2])[0],
    "Identity": lambda op, n, x: op.Identity(x),
    "Squeeze": lambda op, n, x: op.Squeeze(x[:, None]),
    "Unsqueeze": lambda op, n, x: op.Unsqueeze(x, i64(0)) if n >= 13 else op.Unsqueeze(x, axes=[0]),
    "Transpose": lambda op, n, x: op.Transpose(x),
    "Concat": lambda op, n, x: op.Concat(x, x, axis=0),
    "Expand": lambda op, n, x: op.Expand(x, i64(2, 2)),
    "Slice": lambda op, n, x: op.Slice(x, i64(0), i64(2)) if n >= 10 else op.Slice(x, starts=[0], ends=[2]),
    "Gather": lambda op, n, x: op.Gather(x, i64(0, 1)),
    "Constant": lambda op, n, x: op.Constant(value=x),
    "ConstantOfShape": lambda op, n, x: op.ConstantOfShape(i64(2), value=x[:1]),
}
# Those that give sizes or another type.
OTHERS = {
    "Shape": lambda op, n, x: op.Shape(x),
    "Size": lambda op, n, x: op.Size(x),
    "Cast": lambda op, n, x: op.Cast(x, to=1 if n >= 6 else "FLOAT"),
    "CastLike": lambda op, n, x: op.CastLike(x, np.float32([0])),
}
TARGETS = {
    "Cast": lambda op, n, x: op.Cast(np.float32([1, 0]), to=_number(x.dtype) if n >= 6 else _name(x.dtype)),
    "CastLike": lambda op, n, x: op.CastLike(np.float32([1, 0]), x),
}
INDICES = {
    "Slice": lambda op, n, x: op.Slice(np.float32([1, 2]), x[1:], x[:1]),
    "Gather": lambda op, n, x: op.Gather(np.float32([1, 2]), x),
}


def _number(dtype):
    return next(TensorProto.DataType.Value(k[7:-1].upper()) for k, v in DTYPES.items() if v == dtype)


def _name(dtype):
    return TensorProto.DataType.Name(_number(dtype))


def history(name):
    return sorted(s.since_version for s in defs.get_all_schemas_with_history() if s.name == name and not s.domain)


def listed(name, version, variable):
    schema = defs.get_schema(name, version)
    return {t for c in schema.type_constraints if c.type_param_str == variable for t in c.allowed_type_strs}


def data(kind):
    if kind == "tensor(string)":
        return np.array(["1", "0"], object)
    return np.array([1, 0 if "e8m0" not in kind else 1]).astype(DTYPES[kind])


def walk(table, variable, since=1):
    """Calls every version of each operator with every element type; says how many it took and how many not."""
    taken = refused = 0
    for name, call in table.items():
        for version in history(name):
            if version < since:
                continue
            op = opset(version)
            schema = defs.get_schema(name, version)
            allowed = listed(name, version, variable(schema))
            assert allowed, (name, version)
            for kind in DTYPES:
                x = data(kind)
                if kind in allowed:
                    yield name, version, kind, call(op, version, x), x
                    taken += 1
                else:
                    with pytest.raises(DTypeError, match=rf"^{name}-{version}: "):
                        call(op, version, x)
                    refused += 1
    assert taken > 0
    assert refused > 0


def first_input(schema):
    return schema.inputs[0].type_str if schema.inputs and schema.name != "ConstantOfShape" else _output(schema)


def _output(schema):
    return schema.outputs[0].type_str


@pytest.mark.parametrize("name", CALLS)
def test_every_listed_type_passes_unchanged_and_every_other_is_refused(name):
    for _, version, kind, result, x in walk({name: CALLS[name]}, first_input):
        assert result.dtype == x.dtype, (version, kind)
        if kind == "tensor(string)":
            assert set(np.ravel(result)) <= {"1", "0"}
        else:
            assert np.asarray(result).tobytes()[: x.itemsize] == x.tobytes()[: x.itemsize], (version, kind)


@pytest.mark.parametrize("name", OTHERS)
def test_every_listed_type_is_accepted_where_the_result_has_another(name):
    expected = {"Shape": [2], "Size": 2}.get(name)
    for _, version, kind, result, x in walk({name: OTHERS[name]}, first_input):
        wanted = np.float32([float(v) for v in x]).tolist() if expected is None else expected
        assert result.tolist() == wanted, (version, kind)


@pytest.mark.parametrize("name", TARGETS)
def test_the_type_cast_to_is_one_that_the_version_lists(name):
    for _, version, kind, result, x in walk({name: TARGETS[name]}, _output):
        assert result.dtype == x.dtype, (version, kind)


@pytest.mark.parametrize("name", INDICES)
def test_the_types_of_indices(name):
    for _, version, kind, _, _ in walk(
        {name: INDICES[name]}, lambda schema: "Tind", since=10 if name == "Slice" else 1
    ):
        assert kind in ("tensor(int32)", "tensor(int64)"), version


@pytest.mark.parametrize("name", ["Reshape", "Squeeze", "Unsqueeze", "Expand", "Split", "ConstantOfShape"])
def test_shapes_and_axes_are_int64(name):
    version = history(name)[-1]
    x = np.zeros((1, 1), np.float32)
    inputs = [] if name == "ConstantOfShape" else [x]
    getattr(opset(version), name)(*inputs, i64(1))
    for kind, dtype in DTYPES.items():
        if kind in ("tensor(int64)", "tensor(string)"):
            continue
        with pytest.raises(DTypeError, match=f"{name}-{version}: input {len(inputs)} .*this version takes int64"):
            getattr(opset(version), name)(*inputs, np.ones(1).astype(dtype))


def test_the_message_lists_the_types():
    with pytest.raises(DTypeError) as raised:
        opset(1).Flatten(np.arange(6).reshape(2, 3))
    text = "Flatten-1: input 0 `input` is int64[2,3] [[0 1 2]\n [3 4 5]]; this version takes double, float, float16; "
    assert str(raised.value) == text + "convert with Cast"
    with pytest.raises(
        DTypeError, match=r"Cast-6: output `output` would be bfloat16.*this version gives bool, double,"
    ):
        opset(6).Cast(np.float32(1), to=TensorProto.BFLOAT16)


def test_a_32_bit_jax_array_stands_for_64_bits_while_x64_is_off():
    assert not jax.config.jax_enable_x64
    assert opset(13).Reshape(jnp.zeros(2), jnp.array([1, 2])).shape == (1, 2)
    with jax.enable_x64(True), pytest.raises(DTypeError, match=r"`shape` is int32\[2\]; this version takes int64"):
        opset(13).Reshape(jnp.zeros(2), jnp.array([1, 2], jnp.int32))


def test_every_type_of_onnx_is_walked():
    assert {np.dtype(ml_dtypes.float4_e2m1fn), np.dtype(ml_dtypes.int2), np.dtype(object)} <= set(DTYPES.values())
    assert listed("Identity", 25, "V") | listed("Cast", 28, "T1") >= set(DTYPES)
