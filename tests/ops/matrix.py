"""One operator over every element type, bit for bit against NumPy: `python matrix.py reshape`.

A program of its own, run by `test_matrix.py`: XLA ends the process on some pairs, which nothing can catch. So each
type is announced before it is tried, and the last line printed names the culprit.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

import jaxops as jo

# The types of the standard, but for strings, which are static, and 6-bit floats, which JAX does not have.
NUMBERS = {text: number for text, number in TensorProto.DataType.items() if text not in ("UNDEFINED", "STRING")}
DTYPES = {
    dtype.name: dtype
    for text, number in NUMBERS.items()
    if not text.startswith("FLOAT6")
    for dtype in [np.dtype(helper.tensor_dtype_to_np_dtype(number))]
}
DIFFERENTIABLE = [
    n for n in DTYPES if n.startswith(("float", "bfloat")) and n not in ("float8_e8m0fnu", "float4_e2m1fn")
]


def bits(dtype: np.dtype, *shape: int) -> np.ndarray:
    """Every pattern of bits that an array of this type can hold, NaNs of all kinds included, as far as it is large."""
    count, rng = int(np.prod(shape)), np.random.default_rng(7)
    if dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.name in ("int2", "int4", "uint2", "uint4"):
        info = ml_dtypes.iinfo(dtype)
        return (np.arange(count) % (int(info.max) - int(info.min) + 1) + int(info.min)).astype(dtype).reshape(shape)
    if dtype.name == "float4_e2m1fn":
        return (np.arange(count) % 16).astype(np.uint8).view(dtype).reshape(shape)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)


class Row(NamedTuple):
    """The operator as jaxops has it and as NumPy has it, on inputs of these shapes."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((4, 6, 5),)


def _picked(x: Any, indices: Any) -> Any:
    return jo.gather(x, indices, axis=1)


PICK = np.array([[5, 0], [-1, 2]])
ROWS = {
    "reshape": Row(lambda x: jo.reshape(x, (0, -1, 3)), lambda x: x.reshape(4, 10, 3)),
    "flatten": Row(lambda x: jo.flatten(x, axis=2), lambda x: x.reshape(24, 5)),
    "variadic_split": Row(
        lambda x: jo.variadic_split(x, 1, (1, -1, 0, 2)), lambda x: tuple(np.split(x, [1, 4, 4], axis=1))
    ),
    "split": Row(lambda x: jo.split(x, num_outputs=2, axis=-1), lambda x: (x[..., :3], x[..., 3:])),
    "shape": Row(lambda x: x if jo.shape(x).tolist() == [4, 6, 5] else None, lambda x: x),
    "size": Row(lambda x: x if jo.size(x) == 120 else None, lambda x: x),
    "identity": Row(jo.identity, lambda x: x),
    "squeeze": Row(lambda x: jo.squeeze(x, (1,)), lambda x: x[:, 0], ((4, 1, 5),)),
    "unsqueeze": Row(lambda x: jo.unsqueeze(x, (1, -1)), lambda x: x[:, None, ..., None]),
    "transpose": Row(lambda x: jo.transpose(x, perm=(2, 0, 1)), lambda x: np.moveaxis(x, 2, 0)),
    "concat": Row(
        lambda x, y: jo.concat([x, y, x], axis=1), lambda x, y: np.concatenate([x, y, x], 1), ((3, 5), (3, 2))
    ),
    "expand": Row(lambda x: jo.expand(x, (2, 1, 6, 5)), lambda x: np.stack([x, x])),
    "slice": Row(
        lambda x: jo.slice(x, (-1, 1, 4), (-(2**63), 2**63 - 1, 0), None, (-1, 2, -3)), lambda x: x[::-1, 1::2, 4:0:-3]
    ),
    "gather": Row(lambda x: _picked(x, PICK), lambda x: x[:, PICK]),
    "gather traced": Row(
        lambda x: _picked(x, PICK if isinstance(x, np.ndarray) else jnp.asarray(PICK)), lambda x: x[:, PICK]
    ),
}


def check(got: Any, expected: Any, what: str) -> None:
    for g, e in zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]:
        values = np.asarray(g)
        if (values.dtype, values.shape) != (e.dtype, e.shape) or values.tobytes() != e.tobytes():
            raise AssertionError(f"{what}: got {values!r}, expected {e!r}")


def move(row: Row, name: str) -> None:
    inputs = [bits(DTYPES[name], *shape) for shape in row.shapes]
    select = row is ROWS["gather traced"] and name == "bfloat16"
    several = (
        row in (ROWS["split"], ROWS["variadic_split"]) and name == "float8_e5m2" and jax.__version_info__ >= (0, 11)
    )
    if select or several:
        # A NaN stays a NaN, but XLA:CPU may give it other bits: it sets the quiet bit in a select (by which indices out
        # of bounds are filled in), and in jaxlib 0.12 all bits where one program makes several slices of float8_e5m2.
        inputs = [np.where(np.isnan(x), np.ones_like(x), x) for x in inputs]
    traced, expected = [jnp.asarray(x) for x in inputs], row.theirs(*inputs)
    check(tuple(map(np.asarray, traced)), tuple(inputs), "the operands themselves")
    check(row.ours(*inputs), expected, "static")
    check(row.ours(*traced), expected, "eager")
    check(jax.jit(row.ours)(*traced), expected, "jitted")
    if name in DIFFERENTIABLE:
        derive(row, name)


def derive(row: Row, name: str) -> None:
    """How often an element comes out is its derivative; small whole numbers are exact in every type."""
    dtype = DTYPES[name]
    inputs = [jnp.ones(shape, dtype) for shape in row.shapes]
    out, pullback = jax.vjp(row.ours, *inputs)
    places = np.split(np.arange(sum(x.size for x in inputs)), np.cumsum([x.size for x in inputs])[:-1])
    where = row.theirs(*(p.reshape(x.shape) for p, x in zip(places, inputs, strict=True)))
    flat = np.concatenate([w.ravel() for w in (where if isinstance(where, tuple) else (where,))])
    times = np.bincount(flat, minlength=sum(x.size for x in inputs))
    found = pullback(jax.tree.map(jnp.ones_like, out))
    for g, p in zip(found, places, strict=True):
        check(np.asarray(g).ravel(), times[p].astype(dtype), "gradient")


def cast(name: str) -> None:
    """Small numbers that every type has, between this type and all the others, complex ones only as targets."""
    ones = np.array([1, 1, 0, 1] if name in ("bool", "uint2", "int2") else [1, 2, 4, 1]).astype(DTYPES[name])
    ones = np.array([1, 2, 4, 1]).astype(DTYPES[name]) if name == "float8_e8m0fnu" else ones
    targets = {n: d for n, d in DTYPES.items() if n.startswith("complex") or not name.startswith("complex")}
    expected, inputs = {}, {}
    for target, dtype in targets.items():
        values = np.array([complex(v).real for v in ones])
        limit = {"int2": 1, "uint2": 3, "int4": 7}.get(target, 255)
        values = np.where(values > limit, 1, values)
        expected[target] = values.astype(bool) if target == "bool" else values.astype(dtype)
        given = np.where(ones.astype(np.complex128).real > limit, np.ones_like(ones), ones)
        if target == "float8_e8m0fnu":
            given, expected[target] = given[values > 0], expected[target][values > 0]
        inputs[target] = given
        check(jo.cast(given, to=dtype), expected[target], f"static, to {target}")
        if target in ("float32", "int32", name) or name == "float32":
            check(jo.cast(jnp.asarray(given), to=dtype), expected[target], f"eager, to {target}")
    # One program for all targets: compiling is what takes the time here.
    found = jax.jit(lambda xs: {target: jo.cast(x, to=targets[target]) for target, x in xs.items()})(inputs)
    for target, values in found.items():
        check(values, expected[target], f"jitted, to {target}")


def constant(name: str) -> None:
    value = bits(DTYPES[name], 1)
    expected = np.full((2, 3), value[0], DTYPES[name])
    check(jo.constant_of_shape((2, 3), value=value), expected, "static")
    check(jax.jit(lambda: jnp.asarray(jo.constant_of_shape((2, 3), value=value)))(), expected, "jitted")


def main(operator: str) -> None:
    jax.config.update("jax_enable_x64", True)
    for name in DTYPES:
        print(operator, name, flush=True)
        if operator == "cast":
            cast(name)
        elif operator == "constant_of_shape":
            constant(name)
        else:
            move(ROWS[operator], name)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
