"""Arithmetic, comparison, logic and activations: values by NumPy formulas, static and traced, every version, errors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_shape

from jaxops import ops
from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError, SignatureError

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)
BIG = 2**53 + 1  # not a float64


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values)


@dataclass(eq=False)
class Case:
    fn: Callable[..., Any]
    inputs: list[Any]
    expected: Any
    attributes: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        return f"{self.fn.__name__}/{self.note or 'plain'}"


X, Y, ROW, COLUMN, EMPTY = f32(2, 3), f32(2, 3), f32(3), f32(4, 1, 1), f32(0, 3)
A, B = ints(7, -7, 7, -7, 0), ints(2, 2, -2, -2, 5)
YES, NO = np.array([True, True, False]), np.array([True, False, False])
E = X.astype(np.float64)
LEAST = np.iinfo(np.int8).min

STRUCTURAL = [
    Case(ops.add, [X, COLUMN], X + COLUMN, note="both ways"),
    Case(ops.add, [X, np.float32(2)], X + 2, note="rank 0"),
    Case(ops.sub, [EMPTY, ROW], EMPTY - ROW, note="empty"),
    Case(ops.mul, [X, Y], X * Y),
    Case(ops.div, [X, Y], X / Y),
    Case(ops.div, [A, B], ints(3, -3, -3, 3, 0), note="toward zero"),
    Case(ops.div, [ints(6, -6), ints(3, 3)], ints(2, -2), note="exact"),
    Case(ops.div, [np.uint8([7]), np.uint8([2])], np.uint8([3]), note="unsigned"),
    Case(ops.mod, [A, B], ints(1, 1, -1, -1, 0), note="floor"),
    Case(ops.mod, [A, B], ints(1, -1, 1, -1, 0), {"fmod": 1}, note="truncated"),
    Case(ops.mod, [np.uint8([7]), np.uint8([4])], np.uint8([3]), note="unsigned"),
    Case(
        ops.mod,
        [np.float32([-0.0, 0, -1, 1, -1, np.inf, 1, 5.5]), np.float32([1, -1, np.inf, -np.inf, -np.inf, 2, 0, -2])],
        np.float32([0, -0.0, np.inf, -np.inf, -1, np.nan, np.nan, -0.5]),
        note="floats",
    ),
    Case(ops.pow, [np.abs(X), Y], np.abs(X) ** Y),
    Case(ops.pow, [X, ints(2)], X**2, note="other type"),
    Case(ops.pow, [ints(2, 3, -1, 1, -1), ints(10, -1, -3, -2, -2)], ints(1024, 0, -1, 1, 1), note="whole"),
    Case(ops.pow, [ints(9, 2), np.float32([0.5, 0.5])], ints(3, 1), note="truncated root"),
    Case(ops.max, [[X, ROW, np.float32(0)]], np.maximum(np.maximum(X, ROW), 0)),
    Case(ops.max, [[np.float32([np.nan]), np.float32([1])]], np.float32([np.nan]), note="NaN"),
    Case(ops.max, [[X]], X, note="one"),
    Case(ops.min, [[X, Y, ROW]], np.minimum(np.minimum(X, Y), ROW)),
    Case(ops.sum, [[X, ROW, COLUMN]], X + ROW + COLUMN),
    Case(ops.mean, [[X, Y, ROW]], (X + Y + ROW) / 3),
    Case(ops.clip, [X, np.float32(-0.5), np.float32(0.5)], np.clip(X, -0.5, 0.5)),
    Case(ops.clip, [X, np.float32(0.5), np.float32(-0.5)], np.full_like(X, -0.5), note="crossed"),
    Case(ops.clip, [X, None, np.float32([0.5])], np.minimum(X, 0.5), note="one axis tolerated"),
    Case(ops.clip, [np.float32([np.nan, 9]), np.float32(0)], np.float32([np.nan, 9]), note="NaN"),
    Case(ops.clip, [A], A, note="no bounds"),
    Case(ops.where, [NO, ROW, X], np.where(NO, ROW, X)),
    Case(ops.where, [np.array(True), ROW, X], np.broadcast_to(ROW, X.shape), note="one condition"),
    Case(ops.equal, [A, ints(7)], A == 7),
    Case(ops.equal, [YES, NO], np.array([True, False, True]), note="booleans"),
    Case(ops.greater, [X, ROW], X > ROW),
    Case(ops.less, [X, ROW], X < ROW),
    Case(ops.greater_or_equal, [A, B], A >= B),
    Case(ops.less_or_equal, [A, B], A <= B),
    Case(ops.isnan, [np.float32([1, np.nan])], np.array([False, True])),
    Case(ops.isinf, [np.float32([-np.inf, np.inf, 1])], np.array([True, True, False])),
    Case(ops.isinf, [np.float32([-np.inf, np.inf])], np.array([True, False]), {"detect_positive": 0}),
    Case(ops.isinf, [np.float32([-np.inf, np.inf])], np.array([False, True]), {"detect_negative": 0}),
    Case(ops.isinf, [np.float32([np.inf])], np.array([False]), {"detect_negative": 0, "detect_positive": 0}),
    Case(ops.and_, [YES, NO], YES & NO),
    Case(ops.or_, [YES, NO], YES | NO),
    Case(ops.xor, [YES, NO], YES ^ NO),
    Case(ops.not_, [YES], ~YES),
    Case(ops.bitwise_and, [A, ints(3)], A & 3),
    Case(ops.bitwise_or, [A, ints(3)], A | 3),
    Case(ops.bitwise_xor, [A, ints(3)], A ^ 3),
    Case(ops.bitwise_not, [A], ~A),
    Case(ops.bit_shift, [np.uint8([255, 255]), np.uint8([1, 8])], np.uint8([254, 0]), {"direction": "LEFT"}),
    Case(ops.bit_shift, [np.uint8([255, 255]), np.uint8([1, 8])], np.uint8([127, 0]), {"direction": "RIGHT"}),
    Case(ops.bit_shift, [np.int8([-8, -8, 8]), np.int8([1, 9, -1])], np.int8([-4, -1, 0]), {"direction": "RIGHT"}),
    Case(ops.bit_shift, [np.int8([1, 1, 1]), np.int8([7, 8, -1])], np.int8([LEAST, 0, 0]), {"direction": "LEFT"}),
    Case(ops.neg, [A], -A),
    Case(ops.abs, [A], np.abs(A)),
    Case(ops.abs, [np.uint8([7])], np.uint8([7]), note="unsigned"),
    Case(ops.sign, [A], np.sign(A)),
    Case(ops.floor, [X], np.floor(X)),
    Case(ops.ceil, [X], np.ceil(X)),
    Case(ops.round, [np.float32([0.5, 1.5, -2.5, 2.3])], np.float32([0, 2, -2, 2])),
    Case(ops.reciprocal, [X], 1 / X),
    Case(ops.sqrt, [np.float32([4, 0, -1])], np.float32([2, 0, np.nan])),
]


def softplus(x: Any) -> Any:
    return np.log1p(np.exp(x))


def erf(x: np.ndarray) -> np.ndarray:
    """By its power series."""
    terms, term = np.zeros_like(x), x.copy()
    for n in range(60):
        terms += term / (2 * n + 1)
        term = -term * x * x / (n + 1)
    return 2 / np.sqrt(np.pi) * terms


UNIT = np.tanh(X)
TRACED = [
    *(Case(getattr(ops, n), [X], getattr(np, n)(E)) for n in ("exp", "sin", "cos", "tan", "sinh", "cosh")),
    Case(ops.log, [np.abs(X)], np.log(np.abs(E))),
    Case(ops.erf, [X], erf(E)),
    Case(ops.asin, [UNIT], np.arcsin(UNIT)),
    Case(ops.acos, [UNIT], np.arccos(UNIT)),
    Case(ops.atan, [X], np.arctan(E)),
    Case(ops.asinh, [X], np.arcsinh(E)),
    Case(ops.acosh, [np.abs(X) + 1], np.arccosh(np.abs(E) + 1)),
    Case(ops.atanh, [UNIT], np.arctanh(UNIT)),
    Case(ops.tanh, [X], np.tanh(E)),
    Case(ops.relu, [np.float32([-1, -0.0, 2, np.nan])], np.float32([0, 0, 2, np.nan])),
    Case(ops.relu, [np.int32([-1, 2])], np.int32([0, 2]), note="integers"),
    Case(ops.leaky_relu, [X], np.where(X < 0, 0.25 * X, X), {"alpha": 0.25}),
    Case(ops.prelu, [X, ROW], np.where(X < 0, ROW * X, X)),
    Case(ops.prelu, [np.int32([-2, 2]), np.int32(3)], np.int32([-6, 2]), note="integers"),
    Case(ops.elu, [X], np.where(X < 0, 0.5 * np.expm1(E), X), {"alpha": 0.5}),
    Case(ops.celu, [X], np.maximum(0, E) + np.minimum(0, 2 * np.expm1(E / 2)), {"alpha": 2.0}),
    Case(ops.celu, [X], np.maximum(0, E) + np.minimum(0, -np.expm1(-E)), {"alpha": -1.0}, note="negative"),
    Case(ops.selu, [X], 3 * np.where(X > 0, X, 2 * np.expm1(E)), {"alpha": 2.0, "gamma": 3.0}),
    Case(ops.gelu, [X], E / 2 * (1 + erf(E / np.sqrt(2)))),
    Case(
        ops.gelu,
        [X],
        E / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (E + 0.044715 * E**3))),
        {"approximate": "tanh"},
        note="tanh",
    ),
    Case(ops.sigmoid, [X], 1 / (1 + np.exp(-E))),
    Case(ops.hard_sigmoid, [X], np.clip(0.5 * E + 0.25, 0, 1), {"alpha": 0.5, "beta": 0.25}),
    Case(ops.hard_swish, [X], E * np.clip(E / 6 + 0.5, 0, 1)),
    Case(ops.swish, [X], E / (1 + np.exp(-2 * E)), {"alpha": 2.0}),
    Case(ops.mish, [X], E * np.tanh(softplus(E))),
    Case(ops.softplus, [X], softplus(E)),
    Case(ops.softplus, [np.float32([-1000, 1000])], np.float32([0, 1000]), note="far"),
    Case(ops.softsign, [X], E / (1 + np.abs(E))),
    Case(ops.thresholded_relu, [X], np.where(X > 0.5, X, 0), {"alpha": 0.5}),
    Case(ops.shrink, [X], np.where(X < -1, X + 0.5, np.where(X > 1, X - 0.5, 0)), {"bias": 0.5, "lambd": 1.0}),
    Case(ops.shrink, [np.int32([-2, 0, 2])], np.int32([-1, 0, 1]), {"bias": 0.5}, note="integers"),
]


def call(case: Case, inputs: list[Any]) -> Any:
    return case.fn(*inputs, **case.attributes)


def differs(found: Any, expected: Any, dtype: Any) -> str:
    """What is wrong with a result; nothing when it is right."""
    found = np.asarray(found)
    if found.shape != expected.shape or found.dtype != dtype:
        return f"{found.dtype}{found.shape} instead of {dtype}{expected.shape}"
    if dtype.kind == "f":
        zeros = (expected == 0) & (found == 0) & (np.signbit(found) != np.signbit(expected))
        close = np.allclose(found, expected, rtol=2e-5, atol=2e-6, equal_nan=True)
        return "" if close and not (zeros.any() and expected.dtype == np.float32) else f"{found} != {expected}"
    return "" if np.array_equal(found, expected) else f"{found} != {expected}"


def traced(values: list[Any]) -> list[Any]:
    """The operands as JAX arrays: those in a list too, None stays."""
    return jax.tree.map(lambda v: jnp.asarray(v.astype(jax.dtypes.canonicalize_dtype(v.dtype))), values)


@pytest.mark.parametrize("case", STRUCTURAL, ids=str)
def test_static(case: Case) -> None:
    found = call(case, case.inputs)
    first = jax.tree.leaves(case.inputs)[0]
    boolean = np.asarray(case.expected).dtype == bool
    assert isinstance(found, np.ndarray)
    assert not differs(found, case.expected, np.dtype(bool) if boolean else case.expected.dtype), first.dtype


@pytest.mark.grid
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("case", STRUCTURAL + TRACED, ids=str)
def test_traced(case: Case, jitted: bool, x64: bool) -> None:
    with jax.enable_x64(x64):
        inputs = traced(case.inputs)
        found = jax.jit(lambda v: call(case, v))(inputs) if jitted else call(case, inputs)
        expected = np.asarray(case.expected)
        dtype = expected.dtype if case in STRUCTURAL else jax.tree.leaves(inputs)[0].dtype
        assert isinstance(found, jax.Array)
        assert not differs(found, expected, np.dtype(jax.dtypes.canonicalize_dtype(dtype)))


@pytest.mark.parametrize("case", TRACED, ids=str)
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_small_floats(case: Case, dtype: Any) -> None:
    if case.inputs[0].dtype == np.int32:
        return
    found = call(case, [jnp.asarray(x).astype(dtype) for x in case.inputs])
    assert found.dtype == dtype
    np.testing.assert_allclose(np.asarray(found).astype(np.float64), case.expected, rtol=0.1, atol=0.05)


@pytest.mark.grid
@pytest.mark.parametrize("case", [c for c in STRUCTURAL + TRACED if c.inputs[0] is X], ids=str)
def test_vmap_grad_and_symbolic_export(case: Case) -> None:
    rest = case.inputs[1:]
    fn = lambda x: case.fn(x, *rest, **case.attributes)  # noqa: E731
    plain = fn(jnp.asarray(X))
    batched = jax.vmap(fn)(jnp.stack([X, X]))
    np.testing.assert_allclose(batched[1], plain, rtol=1e-6)
    if jnp.issubdtype(plain.dtype, jnp.floating):
        assert np.isfinite(jax.grad(lambda x: fn(x).sum())(jnp.asarray(X))).all()
    if all(v is None or np.asarray(v).ndim < 2 for v in rest):
        (b,) = symbolic_shape("b")
        program = export(jax.jit(fn))(jax.ShapeDtypeStruct((b, 3), np.float32))
        np.testing.assert_allclose(program.call(X), plain, rtol=1e-6)


@pytest.mark.parametrize("divisor", [3.0, np.float32(0.7), np.array([0.3], np.float32)], ids=str)
def test_division_by_one_number_is_correctly_rounded(divisor):
    """XLA would multiply by the reciprocal, an ulp off in every seventh quotient."""
    x = np.random.default_rng(0).normal(size=4000).astype(np.float32)
    expected = x / np.asarray(divisor, np.float32)
    assert (np.asarray(jax.jit(lambda x: ops.div(x, divisor))(x)) == expected).all()
    assert (np.asarray(ops.div(jnp.asarray(x), divisor)) == expected).all()
    given = np.asarray(divisor, np.float32)
    assert (np.asarray(jax.jit(ops.div)(x, given)) == expected).all()
    half = x.astype(np.float16)
    assert (np.asarray(jax.jit(ops.div)(half, np.float16(3))) == half / np.float16(3)).all()
    slopes = jax.grad(lambda x, d: ops.div(x, d).sum(), (0, 1))(jnp.array([1.0, 2.0]), jnp.array(4.0))
    assert [s.tolist() for s in slopes] == [[0.25, 0.25], -3 / 16]


def test_the_harness_finds_a_wrong_operator() -> None:
    wrong = [
        Case(ops.div, [A, B], A // B),
        Case(ops.mod, [A, B], np.fmod(A, B)),
        Case(ops.neg, [np.float32([0.0])], np.float32([0.0])),
        Case(ops.round, [np.float32([2.5])], np.float32([3])),
    ]
    assert all(differs(call(c, c.inputs), c.expected, c.expected.dtype) for c in wrong)


def test_static_integers_are_exact_and_python_numbers_adopt_the_type() -> None:
    assert ops.add(np.array(BIG), 1) == BIG + 1
    assert ops.div(np.array(3 * BIG), 3) == BIG
    assert ops.add(jnp.ones(2, jnp.bfloat16), 1.5).dtype == jnp.bfloat16
    assert ops.mul(2, jnp.ones(2, jnp.int8)).dtype == jnp.int8
    assert ops.add(1, 2).dtype == np.int64


def test_the_exponent_keeps_its_type() -> None:
    for xp in (np, jnp):
        power = lambda x, y: ops.pow(xp.asarray(x), xp.asarray(y))  # noqa: B023, E731
        found = power(np.int8([3, -1, 1, 2]), np.int32([4, 255, 200, -300]))
        assert found.dtype == np.int8
        assert found.tolist() == [81, -1, 1, 0]
        assert power(np.uint8([3, 1]), np.uint8([2, 200])).tolist() == [9, 1]
        assert power(np.uint8([3, 1]), np.int8([-2, -1])).tolist() == [0, 1]
        assert power(np.int8([-3, -1]), np.uint32([3, 2**32 - 1])).tolist() == [-27, -1]
    assert ops.pow(np.int8([3]), np.array([200])).tolist() == [(3**200 + 128) % 256 - 128]


def test_symbolic_sizes() -> None:
    b, _ = symbolic_shape("b, s")
    sizes = np.array([b, 6], dtype=object)
    assert list(ops.add(sizes, 2)) == [b + 2, 8]
    assert ops.sub(sizes, np.array([b, 1], dtype=object)).dtype == np.int64
    assert list(ops.div(ops.mul(sizes, 4), np.array([2, 4]))) == [2 * b, 6]
    assert list(ops.div(ops.neg(sizes), 4)) == [-(b // 4), -1]
    assert list(ops.div(ops.sub(sizes, 3), 2)) == [(b + 1) // 2 - 2, 1]  # the one form of (b - 3) // 2
    assert list(ops.mod(sizes, 4)) == [b - 4 * (b // 4), 2]
    assert list(ops.mod(sizes, 4, fmod=1)) == [b - 4 * (b // 4), 2]
    assert list(ops.pow(sizes, 2)) == [b * b, 36]
    assert list(ops.max([sizes, 1])) == [b, 6]
    assert list(ops.min([sizes, 1])) == [1, 1]
    assert list(ops.where(np.array([True, False]), sizes, np.array([1, 5]))) == [b, 5]
    assert list(ops.clip(sizes, 0)) == [b, 6]
    assert list(ops.abs(ops.neg(sizes))) == [b, 6]
    assert list(ops.equal(sizes, -1)) == [False, False]
    assert list(ops.equal(sizes, np.array([b, 6], dtype=object))) == [True, True]
    assert list(ops.greater(sizes, 0)) == [True, True]
    assert list(ops.less_or_equal(sizes, 0)) == [False, False]


def test_strings() -> None:
    words = np.array(["a", "b"], dtype=object)
    assert list(ops.equal(words, np.array(["a", "c"]))) == [True, False]
    assert list(ops.where(np.array([True, False]), words, np.array(["x", "y"]))) == ["a", "y"]


def test_derivatives_at_the_corner_and_far_away() -> None:
    slope = lambda fn: jax.grad(lambda x: fn(x).sum())(jnp.array([-1.0, 0.0, 1000.0]))  # noqa: E731
    np.testing.assert_allclose(slope(ops.relu), [0, 0, 1])
    for fn in (ops.elu, ops.celu):
        np.testing.assert_allclose(slope(fn), [np.exp(-1), 1, 1], rtol=1e-6)
    np.testing.assert_allclose(slope(lambda x: ops.pow(x, 2)), [-2, 0, 2000])


def test_traced_arithmetic_is_one_operation() -> None:
    names = lambda fn, *xs: [str(e.primitive) for e in jax.make_jaxpr(fn)(*xs).eqns]  # noqa: E731
    assert names(ops.add, X, Y) == ["add"]
    assert names(ops.add, X, ROW) == ["broadcast_in_dim", "add"]
    assert names(lambda x: ops.clip(x, 0, 6), X) == ["clamp"]
    assert names(lambda x: ops.pow(x, 2), X) == ["integer_pow"]


I32, F32 = np.int32([1]), np.float32([1])
ERRORS = [
    (ops.add, [F32, I32], {}, DTypeError, "add: operands must have one element type, got float32, int32"),
    (ops.add, [f32(2), f32(3)], {}, ShapeError, r"add: shapes \(2,\) and \(3,\) do not broadcast"),
    (ops.add, [jnp.ones(2), np.float64([1e300])], {}, OutOfRangeError, "value 1e.300 does not fit float32"),
    (ops.add, [np.int8([1]), 300], {}, ArgumentError, "add: the number 300 does not fit int8, the type of the"),
    (ops.mul, [jnp.ones(1), 10**50], {}, ArgumentError, "mul: the number 10+ does not fit float32"),
    (ops.mul, [np.ones(1), 10**400], {}, ArgumentError, "mul: the number 10+ does not fit float64"),
    (ops.sub, [jnp.ones(1), 1e50], {}, ArgumentError, r"sub: the number 1e\+50 does not fit float32"),
    (ops.sum, [[]], {}, SignatureError, "sum: there are no operands; at least one"),
    (ops.mean, [[I32]], {}, DTypeError, "mean: operands must be floating-point, got int32; convert with"),
    (ops.div, [A, ints(0)], {}, ArgumentError, "div: a static integer is divided by 0"),
    (ops.mod, [A, ints(0)], {}, ArgumentError, "mod: a static integer is divided by 0"),
    (ops.mod, [A, B], {"fmod": 2}, ArgumentError, "mod: `fmod` is 2; it must be 0 or 1"),
    (ops.clip, [X, f32(2)], {}, ShapeError, r"clip: `min` must be a scalar, got shape \(2,\)"),
    (ops.clip, [X, None, I32], {}, DTypeError, "clip: operands must have one element type, got .*, int32"),
    (ops.where, [I32, F32, F32], {}, DTypeError, "where: operands must be boolean, got int32"),
    (ops.isnan, [I32], {}, DTypeError, "isnan: operands must be floating-point, got int32"),
    (ops.and_, [I32, I32], {}, DTypeError, "and_: operands must be boolean, got int32"),
    (ops.not_, [I32], {}, DTypeError, "not_: operands must be boolean, got int32"),
    (ops.bitwise_not, [F32], {}, DTypeError, "bitwise_not: operands must be integer, got float32"),
    (ops.bit_shift, [I32, I32], {"direction": "UP"}, ArgumentError, "`direction` is 'UP'; it must be one of 'LEFT'"),
    (ops.sqrt, [I32], {}, DTypeError, "sqrt: operands must be floating-point, got int32"),
    (ops.sin, [I32], {}, DTypeError, "sin: `input` must be floating-point, got int32"),
    (ops.celu, [F32], {"alpha": 0}, ArgumentError, "celu: `alpha` is 0; it divides"),
    (ops.gelu, [F32], {"approximate": "x"}, ArgumentError, "`approximate` is 'x'; it must be one of 'none'"),
    (
        ops.prelu,
        [f32(1, 3), f32(2, 3)],
        {},
        ShapeError,
        r"`slope` of \(2, 3\) must broadcast to \(1, 3\), not extend it",
    ),
]


@pytest.mark.parametrize(("fn", "inputs", "attributes", "error", "match"), ERRORS)
def test_error(fn: Any, inputs: list[Any], attributes: dict[str, Any], error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        fn(*inputs, **attributes)


def test_an_undecided_comparison_names_both_sides() -> None:
    (b,) = symbolic_shape("b")
    for fn in (ops.equal, ops.greater, ops.less_or_equal):
        with pytest.raises(
            ShapeError, match=f"^{fn.__name__}: the answer for .* depends on the value of a symbolic size"
        ):
            fn(np.array(b, dtype=object), 5)
        run = export(jax.jit(lambda x, fn=fn: fn(np.array(x.shape[0], object), 5)))(jax.ShapeDtypeStruct((b,), np.int8))
        assert [bool(run.call(np.zeros(n, np.int8))) for n in (4, 5, 6)] == [bool(fn(n, 5)) for n in (4, 5, 6)]
