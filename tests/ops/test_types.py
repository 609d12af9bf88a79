"""An operator says the same of an element type whether its operands are static, concrete or traced.

One result in all three ways, bit for bit, or one type of exception.
"""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import enable_x64

import jaxops as jo
from jaxops import ops
from jaxops.dtypes import as_traced
from jaxops.errors import DTypeError, JaxopsError
from jaxops.signature import traits

NAMES = ["bool", "int4", "uint8", "int32", "float16", "float8_e4m3fn", "string"]
ONES = np.array([[1, 1], [1, 0]])


def sample(name: str) -> np.ndarray:
    if name == "string":
        return np.array([["b", "b"], ["b", "a"]], object)
    return ONES.astype(getattr(ml_dtypes, name, None) or name)


UNARY = ["abs", "neg", "sign", "reciprocal", "relu", "floor", "ceil", "round", "sqrt", "exp", "log", "erf", "not_"]
UNARY += ["bitwise_not", "isnan", "isinf", "sigmoid", "tanh", "softplus", "softsign", "elu", "selu", "celu", "gelu"]
UNARY += ["mish", "swish", "hard_sigmoid", "hard_swish", "leaky_relu", "thresholded_relu", "shrink", "sin", "cos"]
UNARY += ["tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "clip", "softmax", "log_softmax"]
UNARY += ["hardmax", "arg_max", "arg_min", "identity", "transpose", "flatten", "trilu", "eye_like"]
UNARY += [f"reduce_{name}" for name in ("l1", "l2", "log_sum", "log_sum_exp", "max", "mean", "min", "prod", "sum")]
UNARY += ["reduce_sum_square"]
BINARY = ["add", "sub", "mul", "pow", "equal", "greater", "less", "greater_or_equal", "less_or_equal", "and_", "or_"]
BINARY += ["xor", "bitwise_and", "bitwise_or", "bitwise_xor", "prelu", "matmul", "gemm"]
VARIADIC = ["sum", "mean", "max", "min"]
PLACE, ROW = np.array([[1, 0]]), np.array([1])

CALLS: dict[str, Any] = {name: getattr(ops, name) for name in UNARY}
CALLS |= {name: lambda x, name=name: getattr(ops, name)(x, x) for name in BINARY}
CALLS |= {name: lambda x, name=name: getattr(ops, name)([x, x]) for name in VARIADIC}
CALLS |= {
    # A static integer divided by 0 is an error, a traced one cannot be.
    "div": lambda x: jo.div(x[:1], x[:1]),
    "mod": lambda x: jo.mod(x[:1], x[:1]),
    "mod truncated": lambda x: jo.mod(x[:1], x[:1], fmod=1),
    "bit_shift": lambda x: jo.bit_shift(x, x, direction="LEFT"),
    "clip to bounds": lambda x: jo.clip(x, x[1, 1], x[0, 0]),
    "cumsum": lambda x: jo.cumsum(x, 0),
    "cumprod": lambda x: jo.cumprod(x, 0),
    "top_k": lambda x: jo.top_k(x, 1),
    "bernoulli": lambda x: jo.bernoulli(x, seed=1.0),
    "dropout": lambda x: jo.dropout(x, 0.5, True, seed=1),
    "where": lambda x: jo.where(np.array([True, False]), x, x),
    "concat": lambda x: jo.concat([x, x], axis=0),
    "slice": lambda x: jo.slice(x, (1,), (2,)),
    "split": lambda x: jo.split(x, (1, 1)),
    "gather": lambda x: jo.gather(x, ROW),
    "gather_elements": lambda x: jo.gather_elements(x, PLACE),
    "gather_nd": lambda x: jo.gather_nd(x, PLACE),
    "scatter_elements": lambda x: jo.scatter_elements(x, PLACE, x[1:]),
    "scatter_elements add": lambda x: jo.scatter_elements(x, PLACE, x[1:], reduction="add"),
    "scatter_elements max": lambda x: jo.scatter_elements(x, PLACE, x[1:], reduction="max"),
    "scatter_nd": lambda x: jo.scatter_nd(x, ROW[None], x[:1]),
    "pad": lambda x: jo.pad(x, (1, 0, 0, 1)),
    "pad edge": lambda x: jo.pad(x, (1, 0, 0, 1), mode="edge"),
    "center_crop_pad": lambda x: jo.center_crop_pad(x, (1, 3)),
    "tile": lambda x: jo.tile(x, (2, 1)),
    "expand": lambda x: jo.expand(x, (2, 2, 2)),
    "reshape": lambda x: jo.reshape(x, (4,)),
    "squeeze": lambda x: jo.squeeze(x[None], 0),
    "unsqueeze": lambda x: jo.unsqueeze(x, 0),
    "depth_to_space": lambda x: jo.depth_to_space(x.reshape(1, 4, 1, 1), blocksize=2),
    "space_to_depth": lambda x: jo.space_to_depth(x.reshape(1, 1, 2, 2), blocksize=2),
    "reverse_sequence": lambda x: jo.reverse_sequence(x, np.array([1, 2])),
    "compress": lambda x: jo.compress(x, np.array([True, False])),
    "nonzero": lambda x: jo.nonzero(x, size=3),
    "unique": lambda x: jo.unique(x, size=2),
    "one_hot": lambda x: jo.one_hot(ROW, 2, x[0]),
    "one_hot of indices": lambda x: jo.one_hot(x, 2, PLACE[0]),
    "bit_cast": lambda x: jo.bit_cast(x, to=np.uint8),
    "cast": lambda x: jo.cast(x[:, :0], to=np.float32),
    "cast_like": lambda x: jo.cast_like(x[:, :0], np.float32(0)),
}


def outcome(fn: Any, x: Any) -> Any:
    try:
        found = jax.tree.leaves(fn(x))
    except JaxopsError as error:
        return type(error)
    traced = [v if v.dtype.kind == "O" else np.asarray(as_traced(v)) for v in found]
    return [(v.dtype.name, v.shape, v.tolist() if v.dtype.kind == "O" else v.tobytes()) for v in traced]


@pytest.mark.grid
@pytest.mark.parametrize("call", CALLS)
def test_one_answer(call):
    fn = CALLS[call]
    for name in NAMES:
        x = sample(name)
        static = outcome(fn, x)
        if name != "string":
            assert outcome(fn, jnp.asarray(x)) == static, name
            assert outcome(jax.jit(fn), jnp.asarray(x)) == static, name


REFUSED = [
    ("add", "bool", "add: operands must be numbers, got bool; convert with jaxops.cast"),
    ("reduce_sum", "bool", "reduce_sum: operands must be numbers, got bool"),
    ("relu", "string", "relu: operands must be real numbers, got string"),
    ("reduce_max", "int4", "reduce_max: operands must be real numbers or booleans of 8 bits or more, got int4"),
    ("top_k", "int4", "top_k: operands must be real numbers of 8 bits or more, got int4"),
    ("bitwise_and", "int4", "bitwise_and: operands must be integer of 8 bits or more, got int4"),
    ("sqrt", "int32", "sqrt: operands must be floating-point, got int32"),
]


@pytest.mark.parametrize(("call", "name", "match"), REFUSED)
def test_refused(call, name, match):
    with pytest.raises(DTypeError, match=match):
        CALLS[call](sample(name))


def test_every_foldable_operator_that_computes_or_moves_is_here():
    foldable = {name for name in ops.__all__ if traits(getattr(ops, name)).foldable}
    elsewhere = {name for name in foldable if name.startswith(("sequence_", "optional", "string_"))}
    # They look at sizes only, or take no array of any type.
    elsewhere |= {"shape", "size", "range", "constant", "constant_of_shape", "regex_full_match", "variadic_split"}
    elsewhere |= {"hann_window", "hamming_window", "blackman_window"}
    elsewhere |= {"mel_weight_matrix", "concat_from_sequence", "split_to_sequence"}  # the latter are concat and split
    assert foldable - elsewhere <= {call.split()[0] for call in CALLS}


LARGEST = np.array([[2**31 - 1, -(2**31)], [2**31 - 1, 3]])


def exceeds(call: Any, static: bool = True) -> bool:
    """Whether a result has integers beyond 32 bits."""
    with enable_x64(True):
        try:
            results = map(np.asarray, jax.tree.leaves(call(LARGEST if static else jnp.asarray(LARGEST))))
        except JaxopsError:  # it takes floating-point numbers only
            return False
        return any(y.dtype == np.int64 and bool(np.any(y != y.astype(np.int32))) for y in results)


@pytest.mark.parametrize("call", CALLS)
def test_an_operator_that_makes_more_than_32_bits_says_that_it_grows(call):
    fn = getattr(ops, call.split()[0])
    assert traits(fn).grows or not exceeds(CALLS[call], static=traits(fn).foldable)


def test_what_grows_is_found():
    assert exceeds(CALLS["add"])
    assert not exceeds(CALLS["concat"])
    assert exceeds(CALLS["matmul"], static=False)
