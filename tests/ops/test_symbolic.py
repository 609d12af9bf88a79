"""Every foldable operator on symbolic sizes, as scalars and as vectors: what it says holds for each size.

An operator answers with a static symbolic value, or goes on as a traced one, or raises a JaxopsError that says why.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs

import jaxops as jo
from jaxops import ops
from jaxops.dtypes import as_traced
from jaxops.errors import DTypeError, JaxopsError, ShapeError
from jaxops.signature import traits

SIZES = (2, 5)
ANY, CLOSED, WIDE = "", "b >= 2, b <= 7", "b >= 8"  # constraints on the size


class Row(NamedTuple):
    """`fn(n, s)`, where n is a size and s is [n, 3], gives static or traced arrays, or raises."""

    operator: str
    axes: int
    fn: Callable[[Any, Any], Any]
    kind: type = np.ndarray
    match: str = ""
    known: str = ANY


def rows(operator: str, kind: type, *fns: Callable[..., Any], axes: tuple[int, ...] = (0, 1), **more: Any) -> list[Row]:
    """`fn(operator, size)` with the scalar n and with the vector s."""
    op = getattr(ops, operator)
    call = {0: lambda f: lambda n, s: f(op, n), 1: lambda f: lambda n, s: f(op, s)}
    return [Row(operator, i, call[i](f), kind, **more) for f in fns for i in axes]


STATIC, TRACED = np.ndarray, jax.Array
PAIRS = [
    lambda f, d: f(d, np.array(2)),
    lambda f, d: f(np.array(2), d),
    lambda f, d: f(d, d),
    lambda f, d: f(d, np.array([4, 9])),
    lambda f, d: f(np.array([[4], [9]]), d),
    lambda f, d: f(d, 2),
]
END = 2**63 - 1
BOUNDS = [(2, END, 1), (0, 3, 1), (-3, END, 1), (0, -3, 1), (4, 1, 1), (-2, -END, -1), (4, 0, -2), (1, -1, 3)]
PLAIN = np.arange(6).reshape(2, 3)
TABLE = np.arange(512)
FLOATS = "must be floating-point, got int64"

ROWS = [
    # math
    *(r for name in ("add", "sub", "mul", "div", "mod") for r in rows(name, STATIC, *PAIRS)),
    *rows("mod", STATIC, *(lambda f, d, g=g: g(lambda a, b: f(a, b, fmod=1), d) for g in PAIRS)),
    *rows("pow", STATIC, lambda f, d: f(d, 2), lambda f, d: f(d, np.array([0, 3]))),
    *rows("pow", TRACED, lambda f, d: f(2, d), lambda f, d: f(d, -1), lambda f, d: f(d, d), lambda f, d: f(d, 0.5)),
    *rows("pow", TRACED, lambda f, d: f(jnp.array([2.0, 3.0]), d), lambda f, d: f(np.float32(2), d)),
    *(r for name in ("neg", "abs", "sign", "relu", "identity") for r in rows(name, STATIC, lambda f, d: f(d))),
    *(
        r
        for name in ("sum", "max", "min")
        for r in rows(name, STATIC, lambda f, d: f([d, 4]), lambda f, d: f([np.array([1, 7]), d, d]))
    ),
    *rows("clip", STATIC, lambda f, d: f(d, 1, 4), lambda f, d: f(d, None, np.array(3))),
    *rows("clip", STATIC, lambda f, d: f(np.array([1, 9]), d, d + 2), lambda f, d: f(4, d), axes=(0,)),
    *(r for name in ("cumsum", "cumprod") for r in rows(name, STATIC, lambda f, d: f(d, 0), axes=(1,))),
    *rows("cumsum", STATIC, lambda f, d: f(d, 0, exclusive=1, reverse=1), axes=(1,)),
    *rows("expand", STATIC, lambda f, d: f(d, (2, 2))),
    *rows("expand", TRACED, lambda f, d: f(np.ones((1, 1), np.float32), d), axes=(1,)),
    *rows("mean", DTypeError, lambda f, d: f([d, d]), match=FLOATS),
    *(
        r
        for name in ("reciprocal", "sqrt", "exp", "log", "ceil", "floor", "round", "isinf", "isnan")
        for r in rows(name, DTypeError, lambda f, d: f(d), match=FLOATS)
    ),
    *(
        r
        for name in ("blackman_window", "hamming_window", "hann_window")
        for r in rows(name, TRACED, lambda f, d: 1 + f(d), lambda f, d: 1 + f(d, periodic=0), axes=(0,))
    ),
    # logical
    *(
        r
        for name in ("equal", "greater", "greater_or_equal", "less", "less_or_equal")
        for r in rows(name, STATIC, lambda f, d: f(d, d), lambda f, d: f(d, np.array([0, -1])), lambda f, d: f(-1, d))
        + rows(name, TRACED, lambda f, d: f(d, 4), lambda f, d: f(4, d))
        + rows(name, STATIC, lambda f, d: f(d, 8), lambda f, d: f(0, d), known=CLOSED)
    ),
    *(r for name in ("bitwise_and", "bitwise_or", "bitwise_xor") for r in rows(name, TRACED, *PAIRS)),
    *rows("bitwise_not", TRACED, lambda f, d: f(d)),
    *rows("bit_shift", TRACED, *(lambda f, d, g=g: g(lambda a, b: f(a, b, direction="LEFT"), d) for g in PAIRS)),
    *rows("bit_shift", TRACED, *(lambda f, d, g=g: g(lambda a, b: f(a, b, direction="RIGHT"), d) for g in PAIRS)),
    *(
        r
        for name in ("and_", "or_", "xor")
        for r in rows(name, DTypeError, lambda f, d: f(d, d), match="must be boolean, got int64")
    ),
    *rows("not_", DTypeError, lambda f, d: f(d), match="must be boolean, got int64"),
    # reduction
    *(
        r
        for name in ("l1", "max", "mean", "min", "prod", "sum", "sum_square")
        for r in rows(f"reduce_{name}", STATIC, lambda f, d: f(d), lambda f, d: f(d, keepdims=0))
        + rows(f"reduce_{name}", STATIC, lambda f, d: f(d, (), noop_with_empty_axes=1))
        + rows(f"reduce_{name}", STATIC, lambda f, d: f(d, (0,)), axes=(1,))
    ),
    *(
        r
        for name in ("l2", "log_sum", "log_sum_exp")
        for r in rows(f"reduce_{name}", TRACED, lambda f, d: f(d), lambda f, d: f(d, keepdims=0))
    ),
    *(r for name in ("arg_max", "arg_min") for r in rows(name, TRACED, lambda f, d: f(d, keepdims=0), axes=(1,))),
    *rows("arg_max", TRACED, lambda f, d: f(d, select_last_index=1), axes=(1,)),
    *rows("top_k", TRACED, lambda f, d: f(d, 1)[0], lambda f, d: f(d, 2, largest=0)[0], axes=(1,)),
    # tensor
    *rows("cast", STATIC, lambda f, d: f(d, to=np.int64), lambda f, d: f(d, to=np.int32)),
    *rows("cast", STATIC, lambda f, d: f(d, to=bool)),
    *rows("cast", TRACED, lambda f, d: f(d, to=np.float32), lambda f, d: f(d, to=np.float16)),
    *rows("cast", STATIC, lambda f, d: f(f(d, to=np.float32), to=np.int64)),
    *rows("cast", TRACED, lambda f, d: f(d - 4, to=bool), lambda f, d: f(d, to=np.int8)),
    *rows("cast", DTypeError, lambda f, d: f(d, to=str), match="cannot become strings"),
    *rows("bit_cast", STATIC, lambda f, d: f(d, to=np.int64)),
    *rows("bit_cast", DTypeError, lambda f, d: f(d, to=np.uint64), match="while x64 is off"),
    *rows("cast_like", STATIC, lambda f, d: f(d, np.int64(0))),
    *rows("cast_like", TRACED, lambda f, d: f(d, np.float32(0))),
    *rows("cast_like", STATIC, lambda f, d: ops.add(d, f(np.float32(3.5), d))),
    *rows("one_hot", TRACED, lambda f, d: f(d, 6, np.array([0, 5])), lambda f, d: f(d, 6, np.array([0.5, 1.5], "f4"))),
    *rows("one_hot", STATIC, lambda f, d: f(np.array([0, 1]), 2, d), axes=(1,)),
    *rows("one_hot", TRACED, lambda f, d: f(jnp.array([0, 1]), d, jnp.array([0, 1])), axes=(0,)),
    *rows("gather", STATIC, lambda f, d: f(d, np.array(-1)), lambda f, d: f(d, np.array([0, 0])), axes=(1,)),
    *rows("gather", TRACED, lambda f, d: f(TABLE, d), lambda f, d: f(jnp.arange(9.0), d)),
    *rows("gather", TRACED, lambda f, d: f(np.arange(9) * d, d), axes=(0,)),
    *rows("gather_elements", STATIC, lambda f, d: f(d, np.array([1, -2, 0])), axes=(1,)),
    *rows("gather_elements", TRACED, lambda f, d: f(TABLE, d), axes=(1,)),
    *rows("gather_nd", STATIC, lambda f, d: f(d, np.array([[1], [0]])), lambda f, d: f(d, np.array([0])), axes=(1,)),
    *rows("gather_nd", TRACED, lambda f, d: f(TABLE, d[None]), axes=(0,)),
    *rows("gather_nd", TRACED, lambda f, d: f(np.arange(81).reshape(9, 9), d), axes=(1,)),
    *rows("shape", STATIC, lambda f, d: f(d)),
    *rows("size", STATIC, lambda f, d: f(d)),
    *rows("concat", STATIC, lambda f, d: f([d, np.array([4]), d], axis=0), axes=(1,)),
    *rows("concat", TRACED, lambda f, d: f([d, jnp.array([4])], axis=0), axes=(1,)),
    *rows("pad", STATIC, lambda f, d: f(d, (1, 2)), lambda f, d: f(d, (1, 2), 7), axes=(1,)),
    *rows("pad", STATIC, lambda f, d: f(np.arange(3), (1, 2), d), lambda f, d: f(d, ()), axes=(0,)),
    *rows("pad", STATIC, lambda f, d: f(d, (1, 2), mode="reflect"), lambda f, d: f(d, (1, -1)), axes=(1,)),
    *rows("pad", TRACED, lambda f, d: f(np.arange(3), d, 7), axes=(1,)),
    *rows("center_crop_pad", STATIC, lambda f, d: f(d, (1,)), lambda f, d: f(d, (5,)), axes=(1,)),
    *rows("center_crop_pad", TRACED, lambda f, d: f(np.arange(9), (d,)), known=CLOSED, axes=(0,)),
    *rows("center_crop_pad", TRACED, lambda f, d: f(np.arange(4), (d,)), axes=(0,)),
    *rows("transpose", STATIC, lambda f, d: f(d)),
    *rows("transpose", STATIC, lambda f, d: f(jo.reshape(d, (1, -1)), perm=(1, 0))),
    *rows("depth_to_space", STATIC, lambda f, d: f(jo.expand(d, (1, 4, 1, 2)), blocksize=2)),
    *rows("space_to_depth", STATIC, lambda f, d: f(jo.expand(d, (1, 1, 2, 2)), blocksize=2)),
    *rows("reverse_sequence", STATIC, lambda f, d: f(jo.expand(d, (3, 2)), np.array([2, 3])), axes=(1, 0)),
    *rows("reverse_sequence", TRACED, lambda f, d: f(np.arange(10).reshape(5, 2), d), axes=(1,)),
    *rows("reverse_sequence", TRACED, lambda f, d: f(np.arange(5)[:, None], d[None]), axes=(0,)),
    *rows(
        "reverse_sequence",
        TRACED,
        lambda f, d: f(jo.constant_of_shape(d), np.array([1, 2, 2])),
        lambda f, d: f(jo.constant_of_shape(d, value=np.int32(1)), jnp.array([1, 2, 0])),
        axes=(1,),
    ),
    *rows("reshape", STATIC, lambda f, d: f(d, (-1, 1)), lambda f, d: f(d, (-1,))),
    *rows("reshape", TRACED, lambda f, d: f(jo.constant_of_shape(d), (3, -1)), axes=(1,)),
    *rows("squeeze", STATIC, lambda f, d: f(d), lambda f, d: f(jo.unsqueeze(d, (0,)), (0,))),
    *rows("unsqueeze", STATIC, lambda f, d: f(d, (0,)), lambda f, d: f(d, 0)),
    *rows("flatten", STATIC, lambda f, d: f(d, axis=0)),
    *rows("scatter_elements", STATIC, lambda f, d: f(np.arange(3), np.array([2, 0]), d), axes=(1,)),
    *rows("scatter_elements", STATIC, lambda f, d: f(d, np.array([-1]), np.array([8])), axes=(1,)),
    *rows("scatter_elements", TRACED, lambda f, d: f(np.arange(9), d, np.array([7, 8])), axes=(1,)),
    *(
        r
        for how in ("add", "mul", "max", "min")
        for r in rows(
            "scatter_elements",
            STATIC,
            lambda f, d, how=how: f(np.arange(3), np.array([2, 2]), d, reduction=how),
            lambda f, d, how=how: f(d, np.array([0, 0]), np.array([8, 9]), reduction=how),
            axes=(1,),
        )
        + rows(
            "scatter_nd",
            STATIC,
            lambda f, d, how=how: f(np.arange(3), np.array([[2], [2]]), d, reduction=how),
            axes=(1,),
        )
    ),
    *rows("scatter_nd", STATIC, lambda f, d: f(np.arange(3), np.array([1]), d), axes=(0,)),
    *rows("scatter_nd", STATIC, lambda f, d: f(np.arange(3), np.array([[1], [0]]), d), axes=(1,)),
    *rows("scatter_nd", TRACED, lambda f, d: f(np.arange(9), d[:, None], np.array([4, 5])), axes=(1,)),
    *rows("compress", STATIC, lambda f, d: f(d, np.array([True])), lambda f, d: f(d, np.array([False]))),
    *rows("nonzero", STATIC, lambda f, d: f(d)),
    *rows("nonzero", ShapeError, lambda f, d: f(d - 4), match="depends on the value of a symbolic size"),
    *rows("nonzero", TRACED, lambda f, d: f(d - 2, size=2), axes=(1,)),
    *rows("unique", ShapeError, lambda f, d: f(d), match="depends on the value of a symbolic size"),
    *rows("unique", TRACED, lambda f, d: f(d, size=2), axes=(1,)),
    *rows("where", STATIC, lambda f, d: f(np.array([True, False]), d, 4), lambda f, d: f(np.array(False), d, d)),
    *rows("where", STATIC, lambda f, d: f(ops.equal(d, -1), np.array(4), d)),
    *rows("where", TRACED, lambda f, d: f(jnp.array([True, False]), d, 4), lambda f, d: f(jnp.array(True), 4, d)),
    *rows("where", DTypeError, lambda f, d: f(d, d, d), match="must be boolean, got int64"),
    *rows("slice", STATIC, lambda f, d: f(d, (1,), (2,)), lambda f, d: f(d, (0,), (1,)), axes=(1,)),
    *rows("slice", STATIC, lambda f, d: f(d, (0,), (0,)), lambda f, d: f(d, (5,), (0,), (0,), (-1,)), axes=(1,)),
    *rows("slice", TRACED, lambda f, d: f(TABLE, (0,), (d,)), lambda f, d: f(TABLE, d[None], (512,)), axes=(0,)),
    *rows("slice", TRACED, lambda f, d: f(jnp.arange(4), (0,), (d,)), axes=(0,)),
    *rows("slice", TRACED, lambda f, d: f(np.arange(4), (d,), (9,)), axes=(0,)),
    *rows("slice", TRACED, lambda f, d: f(np.arange(4), (0,), (d,)), axes=(0,)),
    *rows("slice", TRACED, lambda f, d: f(TABLE, (2,), (2 + d,)), lambda f, d: f(TABLE, (d,), (2 * d,)), axes=(0,)),
    *rows("slice", TRACED, lambda f, d: f(PLAIN, (0, 0), d), axes=(1,)),
    *(
        r
        for bounds in BOUNDS
        for r in rows(
            "slice",
            TRACED,
            lambda f, d, at=bounds: f(jo.range(0, d, 1), *((bound,) for bound in (at[0], at[1], 0, at[2]))),
            axes=(0,),
        )
    ),
    *rows(
        "slice",
        ShapeError,
        lambda f, d: f(TABLE, (0,), (d - 3,)),
        match="count from the start of an axis of size .* for some sizes, and from its end for others",
        axes=(0,),
    ),
    *rows("split", STATIC, lambda f, d: f(d, (1, 1)), lambda f, d: f(d, num_outputs=2), axes=(1,)),
    *rows("split", ShapeError, lambda f, d: f(TABLE, (d, 512 - 2 * d)), match="sum to", axes=(0,)),
    *rows("variadic_split", STATIC, lambda f, d: f(d, 0, (1, -1)), axes=(1,)),
    *rows("variadic_split", TRACED, lambda f, d: f(TABLE, 0, (d, -1)), axes=(0,), known=CLOSED),
    *rows("tile", STATIC, lambda f, d: f(d, (2,)), axes=(1,)),
    *rows("tile", TRACED, lambda f, d: f(np.ones(2, int), (d,)), lambda f, d: f(d[None], (d,)), axes=(0,)),
    *rows("trilu", STATIC, lambda f, d: f(jo.expand(d, (2, 2))), lambda f, d: f(jo.expand(d, (2, 2)), -1, upper=0)),
    *rows("trilu", TRACED, lambda f, d: f(np.ones((4, 6), int), d), axes=(0,)),
    # generator
    *rows("constant_of_shape", TRACED, lambda f, d: f(d), lambda f, d: f(d, value=np.int64(7)), axes=(1,)),
    *rows("constant_of_shape", STATIC, lambda f, d: f((2, 2), value=d), axes=(0,)),
    *rows("constant_of_shape", TRACED, lambda f, d: f((d, 2), value=d), axes=(0,)),
    *rows("eye_like", STATIC, lambda f, d: f(jo.expand(d, (2, 2)))),
    *rows("eye_like", TRACED, lambda f, d: f(PLAIN, k=d - 3), lambda f, d: f(jo.constant_of_shape((d, d))), axes=(0,)),
    *rows("range", TRACED, lambda f, d: f(0, d, 1), lambda f, d: f(d, 0, -1), axes=(0,)),
    *rows("range", STATIC, lambda f, d: f(d, d + 3, 1), lambda f, d: f(0, 3 * d, d), axes=(0,)),
    *rows("range", STATIC, lambda f, d: f(d, d, 1), axes=(0,)),
    *rows("range", TRACED, lambda f, d: f(4, d, 1), axes=(0,)),
    *rows("range", ShapeError, lambda f, d: f(0, d, d - 3), match="must not be 0, but b - 3 may be 0", axes=(0,)),
    # sequence
    *rows("optional", STATIC, lambda f, d: f(d)),
    *rows("optional_get_element", STATIC, lambda f, d: f(d)),
    *rows("optional_has_element", STATIC, lambda f, d: f(d)),
    *rows("sequence_construct", STATIC, lambda f, d: tuple(f([d, np.array(3)]))),
    *rows("sequence_empty", STATIC, lambda f, d: jo.concat_from_sequence([*f(), d, d], axis=0, new_axis=1)),
    *rows("sequence_insert", STATIC, lambda f, d: tuple(f([d, np.array(3)], d))),
    *rows("sequence_insert", STATIC, lambda f, d: tuple(f([np.array(3)], d))),
    *rows("sequence_at", STATIC, lambda f, d: f([d, np.array(3)], 0)),
    *rows("sequence_erase", STATIC, lambda f, d: tuple(f([d, np.array(3)]))),
    *rows("sequence_length", STATIC, lambda f, d: f([d, np.array(3)])),
    *rows("concat_from_sequence", STATIC, lambda f, d: f([d, d], axis=0, new_axis=1)),
    *rows("concat_from_sequence", STATIC, lambda f, d: f([d, np.array([3])], axis=0), axes=(1,)),
    *rows("split_to_sequence", STATIC, lambda f, d: tuple(f(d)), lambda f, d: tuple(f(d, keepdims=0)), axes=(1,)),
    # text
    *rows("string_concat", DTypeError, lambda f, d: f(d, d), match="string_concat: .*int64"),
    *rows("regex_full_match", DTypeError, lambda f, d: f(d, pattern="a"), match="regex_full_match: .*int64"),
    *rows("string_normalizer", DTypeError, lambda f, d: f(d), match="string_normalizer: .*int64"),
    *rows("string_split", DTypeError, lambda f, d: f(d), match="string_split: .*int64"),
]

# These need an axis, so a scalar is nothing for them but as another operand.
ONE_AXIS = {"arg_max", "arg_min", "top_k", "cumprod", "cumsum", "concat", "split_to_sequence", "gather_elements"}
ONE_AXIS |= {"scatter_elements"}
# These take one number as a symbolic operand.
ONE_NUMBER = {"range", "blackman_window", "hamming_window", "hann_window"}
ROWS_OF_ERRORS = [row for row in ROWS if issubclass(row.kind, JaxopsError)]


def ids(row: Row) -> str:
    return f"{row.operator}-{row.axes}"


def traced(fn: Callable[..., Any], known: str, kind: type | None = None) -> Any:
    """The program of `fn(n, s)` for a symbolic n."""

    def program(x: jax.Array) -> list[jax.Array]:
        s = jo.shape(x)
        leaves = jax.tree.leaves(fn(jo.gather(s, np.array(0)), s))
        assert kind is None or all(isinstance(leaf, kind) for leaf in leaves), leaves
        for leaf in leaves:
            if isinstance(leaf, np.ndarray) and leaf.dtype == object:
                assert any(not isinstance(d, int) for d in leaf.flat), f"{leaf!r} must be int64"
        return [as_traced(leaf) for leaf in leaves]

    constraints = [c.strip() for c in known.split(",") if c]
    specs = symbolic_args_specs([jnp.zeros((2, 3))], ["b, 3"], constraints=constraints)
    return export(jax.jit(program))(*specs)


@pytest.mark.grid
@pytest.mark.parametrize("row", [r for r in ROWS if r not in ROWS_OF_ERRORS], ids=ids)
def test_one_program_for_every_size(row):
    program = traced(row.fn, row.known, row.kind)
    for size in SIZES:
        expected = jax.tree.leaves(row.fn(np.array(size), np.array([size, 3])))
        found = program.call(jnp.zeros((size, 3)))
        assert len(found) == len(expected)
        for got, want in zip(found, map(as_traced, expected), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("row", ROWS_OF_ERRORS, ids=ids)
def test_errors(row):
    with pytest.raises(row.kind, match=row.match):
        traced(row.fn, row.known)


def test_chains_of_exported_models():
    def shapes(n, s):
        last = jo.slice(s, (1,), (2,))
        return jo.concat([jo.unsqueeze(n, 0), last, np.array([1])], axis=0)

    def mask(n, s):
        return jo.where(jo.equal(n, np.array(-1)), np.array(1), n)

    def half(n, s):
        return jo.cast(jo.ceil(jo.mul(jo.cast(n, to=np.float32), np.float32(0.5))), to=np.int64)

    for chain, kind in ((shapes, STATIC), (mask, STATIC), (half, STATIC)):
        program = traced(chain, ANY, kind)
        for size in SIZES:
            want = np.asarray(chain(np.array(size), np.array([size, 3])))
            assert program.call(jnp.zeros((size, 3)))[0].tolist() == want.tolist()


def test_a_size_that_is_cast_to_int32_stands_beside_int32():
    """It stays a size: with an int32 constant it makes a size again, with a traced int32 array a traced one."""

    def known(n, s):
        small = jo.cast(n, to=np.int32)
        return jo.reshape(np.zeros(()), (1,)), jo.mul(jo.add(small, np.int32(2)), np.int32(3))

    def mixed(n, s):
        return jo.add(jo.cast(s, to=np.int32), jnp.array([1, 2], np.int32))

    with jax.enable_x64(True):
        program = traced(lambda n, s: known(n, s)[1], ANY, STATIC)
        assert [program.call(jnp.zeros((b, 3)))[0].item() for b in SIZES] == [12, 21]
        program = traced(mixed, ANY, TRACED)
        assert program.call(jnp.zeros((5, 3)))[0].tolist() == [6, 5]


def test_every_foldable_operator_is_here():
    foldable = {name for name in ops.__all__ if traits(getattr(ops, name)).foldable}
    covered = {axes: {row.operator for row in ROWS if row.axes == axes} for axes in (0, 1)}
    foldable -= {"constant", "mel_weight_matrix"}  # no operand; operands that must be numbers
    assert covered[0] == foldable - ONE_AXIS
    assert covered[1] == foldable - ONE_NUMBER
