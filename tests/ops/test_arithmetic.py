"""Arithmetic, comparison, logic and activations: values by NumPy formulas, static and traced, every version, errors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_shape

from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError, SignatureError
from jaxops.ops import activation, arithmetic, comparison, elementwise, logic

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
    Case(arithmetic.add, [X, COLUMN], X + COLUMN, note="both ways"),
    Case(arithmetic.add, [X, np.float32(2)], X + 2, note="rank 0"),
    Case(arithmetic.sub, [EMPTY, ROW], EMPTY - ROW, note="empty"),
    Case(arithmetic.mul, [X, Y], X * Y),
    Case(arithmetic.div, [X, Y], X / Y),
    Case(arithmetic.div, [A, B], ints(3, -3, -3, 3, 0), note="toward zero"),
    Case(arithmetic.div, [ints(6, -6), ints(3, 3)], ints(2, -2), note="exact"),
    Case(arithmetic.div, [np.uint8([7]), np.uint8([2])], np.uint8([3]), note="unsigned"),
    Case(arithmetic.mod, [A, B], ints(1, 1, -1, -1, 0), note="floor"),
    Case(arithmetic.mod, [A, B], ints(1, -1, 1, -1, 0), {"fmod": 1}, note="truncated"),
    Case(arithmetic.mod, [np.uint8([7]), np.uint8([4])], np.uint8([3]), note="unsigned"),
    Case(
        arithmetic.mod,
        [np.float32([-0.0, 0, -1, 1, -1, np.inf, 1, 5.5]), np.float32([1, -1, np.inf, -np.inf, -np.inf, 2, 0, -2])],
        np.float32([0, -0.0, np.inf, -np.inf, -1, np.nan, np.nan, -0.5]),
        note="floats",
    ),
    Case(arithmetic.pow, [np.abs(X), Y], np.abs(X) ** Y),
    Case(arithmetic.pow, [X, ints(2)], X**2, note="other type"),
    Case(arithmetic.pow, [ints(2, 3, -1, 1, -1), ints(10, -1, -3, -2, -2)], ints(1024, 0, -1, 1, 1), note="whole"),
    Case(arithmetic.pow, [ints(9, 2), np.float32([0.5, 0.5])], ints(3, 1), note="truncated root"),
    Case(comparison.max, [[X, ROW, np.float32(0)]], np.maximum(np.maximum(X, ROW), 0)),
    Case(comparison.max, [[np.float32([np.nan]), np.float32([1])]], np.float32([np.nan]), note="NaN"),
    Case(comparison.max, [[X]], X, note="one"),
    Case(comparison.min, [[X, Y, ROW]], np.minimum(np.minimum(X, Y), ROW)),
    Case(arithmetic.sum, [[X, ROW, COLUMN]], X + ROW + COLUMN),
    Case(arithmetic.mean, [[X, Y, ROW]], (X + Y + ROW) / 3),
    Case(comparison.clip, [X, np.float32(-0.5), np.float32(0.5)], np.clip(X, -0.5, 0.5)),
    Case(comparison.clip, [X, np.float32(0.5), np.float32(-0.5)], np.full_like(X, -0.5), note="crossed"),
    Case(comparison.clip, [X, None, np.float32([0.5])], np.minimum(X, 0.5), note="one axis tolerated"),
    Case(comparison.clip, [np.float32([np.nan, 9]), np.float32(0)], np.float32([np.nan, 9]), note="NaN"),
    Case(comparison.clip, [A], A, note="no bounds"),
    Case(comparison.where, [NO, ROW, X], np.where(NO, ROW, X)),
    Case(comparison.where, [np.array(True), ROW, X], np.broadcast_to(ROW, X.shape), note="one condition"),
    Case(comparison.equal, [A, ints(7)], A == 7),
    Case(comparison.equal, [YES, NO], np.array([True, False, True]), note="booleans"),
    Case(comparison.greater, [X, ROW], X > ROW),
    Case(comparison.less, [X, ROW], X < ROW),
    Case(comparison.greater_or_equal, [A, B], A >= B),
    Case(comparison.less_or_equal, [A, B], A <= B),
    Case(comparison.isnan, [np.float32([1, np.nan])], np.array([False, True])),
    Case(comparison.isinf, [np.float32([-np.inf, np.inf, 1])], np.array([True, True, False])),
    Case(comparison.isinf, [np.float32([-np.inf, np.inf])], np.array([True, False]), {"detect_positive": 0}),
    Case(comparison.isinf, [np.float32([-np.inf, np.inf])], np.array([False, True]), {"detect_negative": 0}),
    Case(comparison.isinf, [np.float32([np.inf])], np.array([False]), {"detect_negative": 0, "detect_positive": 0}),
    Case(logic.and_, [YES, NO], YES & NO),
    Case(logic.or_, [YES, NO], YES | NO),
    Case(logic.xor, [YES, NO], YES ^ NO),
    Case(logic.not_, [YES], ~YES),
    Case(logic.bitwise_and, [A, ints(3)], A & 3),
    Case(logic.bitwise_or, [A, ints(3)], A | 3),
    Case(logic.bitwise_xor, [A, ints(3)], A ^ 3),
    Case(logic.bitwise_not, [A], ~A),
    Case(logic.bit_shift, [np.uint8([255, 255]), np.uint8([1, 8])], np.uint8([254, 0]), {"direction": "LEFT"}),
    Case(logic.bit_shift, [np.uint8([255, 255]), np.uint8([1, 8])], np.uint8([127, 0]), {"direction": "RIGHT"}),
    Case(logic.bit_shift, [np.int8([-8, -8, 8]), np.int8([1, 9, -1])], np.int8([-4, -1, 0]), {"direction": "RIGHT"}),
    Case(logic.bit_shift, [np.int8([1, 1, 1]), np.int8([7, 8, -1])], np.int8([LEAST, 0, 0]), {"direction": "LEFT"}),
    Case(elementwise.neg, [A], -A),
    Case(elementwise.abs, [A], np.abs(A)),
    Case(elementwise.abs, [np.uint8([7])], np.uint8([7]), note="unsigned"),
    Case(elementwise.sign, [A], np.sign(A)),
    Case(elementwise.floor, [X], np.floor(X)),
    Case(elementwise.ceil, [X], np.ceil(X)),
    Case(elementwise.round, [np.float32([0.5, 1.5, -2.5, 2.3])], np.float32([0, 2, -2, 2])),
    Case(elementwise.reciprocal, [X], 1 / X),
    Case(elementwise.sqrt, [np.float32([4, 0, -1])], np.float32([2, 0, np.nan])),
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
    *(Case(getattr(elementwise, n), [X], getattr(np, n)(E)) for n in ("exp", "sin", "cos", "tan", "sinh", "cosh")),
    Case(elementwise.log, [np.abs(X)], np.log(np.abs(E))),
    Case(elementwise.erf, [X], erf(E)),
    Case(elementwise.asin, [UNIT], np.arcsin(UNIT)),
    Case(elementwise.acos, [UNIT], np.arccos(UNIT)),
    Case(elementwise.atan, [X], np.arctan(E)),
    Case(elementwise.asinh, [X], np.arcsinh(E)),
    Case(elementwise.acosh, [np.abs(X) + 1], np.arccosh(np.abs(E) + 1)),
    Case(elementwise.atanh, [UNIT], np.arctanh(UNIT)),
    Case(activation.tanh, [X], np.tanh(E)),
    Case(activation.relu, [np.float32([-1, -0.0, 2, np.nan])], np.float32([0, 0, 2, np.nan])),
    Case(activation.relu, [np.int32([-1, 2])], np.int32([0, 2]), note="integers"),
    Case(activation.leaky_relu, [X], np.where(X < 0, 0.25 * X, X), {"alpha": 0.25}),
    Case(activation.prelu, [X, ROW], np.where(X < 0, ROW * X, X)),
    Case(activation.prelu, [np.int32([-2, 2]), np.int32(3)], np.int32([-6, 2]), note="integers"),
    Case(activation.elu, [X], np.where(X < 0, 0.5 * np.expm1(E), X), {"alpha": 0.5}),
    Case(activation.celu, [X], np.maximum(0, E) + np.minimum(0, 2 * np.expm1(E / 2)), {"alpha": 2.0}),
    Case(activation.celu, [X], np.maximum(0, E) + np.minimum(0, -np.expm1(-E)), {"alpha": -1.0}, note="negative"),
    Case(activation.selu, [X], 3 * np.where(X > 0, X, 2 * np.expm1(E)), {"alpha": 2.0, "gamma": 3.0}),
    Case(activation.gelu, [X], E / 2 * (1 + erf(E / np.sqrt(2)))),
    Case(
        activation.gelu,
        [X],
        E / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (E + 0.044715 * E**3))),
        {"approximate": "tanh"},
        note="tanh",
    ),
    Case(activation.sigmoid, [X], 1 / (1 + np.exp(-E))),
    Case(activation.hard_sigmoid, [X], np.clip(0.5 * E + 0.25, 0, 1), {"alpha": 0.5, "beta": 0.25}),
    Case(activation.hard_swish, [X], E * np.clip(E / 6 + 0.5, 0, 1)),
    Case(activation.swish, [X], E / (1 + np.exp(-2 * E)), {"alpha": 2.0}),
    Case(activation.mish, [X], E * np.tanh(softplus(E))),
    Case(activation.softplus, [X], softplus(E)),
    Case(activation.softplus, [np.float32([-1000, 1000])], np.float32([0, 1000]), note="far"),
    Case(activation.softsign, [X], E / (1 + np.abs(E))),
    Case(activation.thresholded_relu, [X], np.where(X > 0.5, X, 0), {"alpha": 0.5}),
    Case(activation.shrink, [X], np.where(X < -1, X + 0.5, np.where(X > 1, X - 0.5, 0)), {"bias": 0.5, "lambd": 1.0}),
    Case(activation.shrink, [np.int32([-2, 0, 2])], np.int32([-1, 0, 1]), {"bias": 0.5}, note="integers"),
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


def test_the_harness_finds_a_wrong_operator() -> None:
    wrong = [
        Case(arithmetic.div, [A, B], A // B),
        Case(arithmetic.mod, [A, B], np.fmod(A, B)),
        Case(elementwise.neg, [np.float32([0.0])], np.float32([0.0])),
        Case(elementwise.round, [np.float32([2.5])], np.float32([3])),
    ]
    assert all(differs(call(c, c.inputs), c.expected, c.expected.dtype) for c in wrong)


def test_static_integers_are_exact_and_python_numbers_adopt_the_type() -> None:
    assert arithmetic.add(np.array(BIG), 1) == BIG + 1
    assert arithmetic.div(np.array(3 * BIG), 3) == BIG
    assert arithmetic.add(jnp.ones(2, jnp.bfloat16), 1.5).dtype == jnp.bfloat16
    assert arithmetic.mul(2, jnp.ones(2, jnp.int8)).dtype == jnp.int8
    assert arithmetic.add(1, 2).dtype == np.int64


def test_the_exponent_keeps_its_type() -> None:
    for xp in (np, jnp):
        power = lambda x, y: arithmetic.pow(xp.asarray(x), xp.asarray(y))  # noqa: B023, E731
        found = power(np.int8([3, -1, 1, 2]), np.int32([4, 255, 200, -300]))
        assert found.dtype == np.int8
        assert found.tolist() == [81, -1, 1, 0]
        assert power(np.uint8([3, 1]), np.uint8([2, 200])).tolist() == [9, 1]
        assert power(np.uint8([3, 1]), np.int8([-2, -1])).tolist() == [0, 1]
        assert power(np.int8([-3, -1]), np.uint32([3, 2**32 - 1])).tolist() == [-27, -1]
    assert arithmetic.pow(np.int8([3]), np.array([200])).tolist() == [(3**200 + 128) % 256 - 128]


def test_a_bound_beyond_32_bits_is_no_bound() -> None:
    numbers = jnp.array([1, 2])
    np.testing.assert_array_equal(comparison.clip(numbers, np.int64(2), np.int64(2**63 - 1)), [2, 2])
    np.testing.assert_array_equal(comparison.clip(numbers, -(2**63), 1), [1, 1])
    np.testing.assert_array_equal(comparison.clip(jnp.array([jnp.inf, 1]), None, np.float64(np.inf)), [jnp.inf, 1])
    largest = np.finfo(np.float32).max  # onnxruntime, too, holds infinities to the default bounds
    for infinite in (np.float32([-np.inf, np.inf]), jnp.array([-jnp.inf, jnp.inf])):
        np.testing.assert_array_equal(comparison.clip(infinite), [-largest, largest])
        np.testing.assert_array_equal(comparison.clip(infinite, np.float32(0)), [0, largest])
    np.testing.assert_array_equal(comparison.clip(jnp.array([9.0, 1]), np.float64(-1e300), 6), [6, 1])


def test_symbolic_sizes() -> None:
    b, _ = symbolic_shape("b, s")
    sizes = np.array([b, 6], dtype=object)
    assert list(arithmetic.add(sizes, 2)) == [b + 2, 8]
    assert arithmetic.sub(sizes, np.array([b, 1], dtype=object)).dtype == np.int64
    assert list(arithmetic.div(arithmetic.mul(sizes, 4), np.array([2, 4]))) == [2 * b, 6]
    assert list(arithmetic.div(elementwise.neg(sizes), 4)) == [-(b // 4), -1]
    assert list(arithmetic.div(arithmetic.sub(sizes, 3), 2)) == [(b - 3) // 2, 1]
    assert list(arithmetic.mod(sizes, 4)) == [b % 4, 2]
    assert list(arithmetic.mod(sizes, 4, fmod=1)) == [b - 4 * (b // 4), 2]
    assert list(arithmetic.pow(sizes, 2)) == [b * b, 36]
    assert list(comparison.max([sizes, 1])) == [b, 6]
    assert list(comparison.min([sizes, 1])) == [1, 1]
    assert list(comparison.where(np.array([True, False]), sizes, np.array([1, 5]))) == [b, 5]
    assert list(comparison.clip(sizes, 0)) == [b, 6]
    assert list(elementwise.abs(elementwise.neg(sizes))) == [b, 6]
    assert list(comparison.equal(sizes, -1)) == [False, False]
    assert list(comparison.equal(sizes, np.array([b, 6], dtype=object))) == [True, True]
    assert list(comparison.greater(sizes, 0)) == [True, True]
    assert list(comparison.less_or_equal(sizes, 0)) == [False, False]


def test_strings() -> None:
    words = np.array(["a", "b"], dtype=object)
    assert list(comparison.equal(words, np.array(["a", "c"]))) == [True, False]
    assert list(comparison.where(np.array([True, False]), words, np.array(["x", "y"]))) == ["a", "y"]


def test_derivatives_at_the_corner_and_far_away() -> None:
    slope = lambda fn: jax.grad(lambda x: fn(x).sum())(jnp.array([-1.0, 0.0, 1000.0]))  # noqa: E731
    np.testing.assert_allclose(slope(activation.relu), [0, 0, 1])
    for fn in (activation.elu, activation.celu):
        np.testing.assert_allclose(slope(fn), [np.exp(-1), 1, 1], rtol=1e-6)
    np.testing.assert_allclose(slope(lambda x: arithmetic.pow(x, 2)), [-2, 0, 2000])


def test_traced_arithmetic_is_one_operation() -> None:
    names = lambda fn, *xs: [str(e.primitive) for e in jax.make_jaxpr(fn)(*xs).eqns]  # noqa: E731
    assert names(arithmetic.add, X, Y) == ["add"]
    assert names(arithmetic.add, X, ROW) == ["broadcast_in_dim", "add"]
    assert names(lambda x: comparison.clip(x, 0, 6), X) == ["clamp"]
    assert names(lambda x: arithmetic.pow(x, 2), X) == ["integer_pow"]


I32, F32 = np.int32([1]), np.float32([1])
ERRORS = [
    (arithmetic.add, [F32, I32], {}, DTypeError, "add: operands must have one element type, got float32, int32"),
    (arithmetic.add, [f32(2), f32(3)], {}, ShapeError, r"add: shapes \(2,\) and \(3,\) do not broadcast"),
    (arithmetic.add, [jnp.ones(2), np.float64([1e300])], {}, OutOfRangeError, "constant 1e.300 does not fit float32"),
    (arithmetic.add, [np.int8([1]), 300], {}, ArgumentError, "add: the number 300 does not fit int8, the type of the"),
    (arithmetic.mul, [jnp.ones(1), 10**50], {}, ArgumentError, "mul: the number 10+ does not fit float32"),
    (arithmetic.mul, [np.ones(1), 10**400], {}, ArgumentError, "mul: the number 10+ does not fit float64"),
    (arithmetic.sub, [jnp.ones(1), 1e50], {}, ArgumentError, r"sub: the number 1e\+50 does not fit float32"),
    (arithmetic.sum, [[]], {}, SignatureError, "sum: there are no operands; at least one"),
    (arithmetic.mean, [[I32]], {}, DTypeError, "mean: operands must be floating-point, got int32; convert with"),
    (arithmetic.div, [A, ints(0)], {}, ArgumentError, "div: a static integer is divided by 0"),
    (arithmetic.mod, [A, ints(0)], {}, ArgumentError, "mod: a static integer is divided by 0"),
    (arithmetic.mod, [A, B], {"fmod": 2}, ArgumentError, "mod: `fmod` is 2; it must be 0 or 1"),
    (comparison.clip, [X, f32(2)], {}, ShapeError, r"clip: `min` must be a scalar, got shape \(2,\)"),
    (comparison.clip, [X, None, I32], {}, DTypeError, "clip: operands must have one element type, got .*, int32"),
    (comparison.where, [I32, F32, F32], {}, DTypeError, "where: operands must be boolean, got int32"),
    (comparison.isnan, [I32], {}, DTypeError, "isnan: operands must be floating-point, got int32"),
    (logic.and_, [I32, I32], {}, DTypeError, "and: operands must be boolean, got int32"),
    (logic.not_, [I32], {}, DTypeError, "not: operands must be boolean, got int32"),
    (logic.bitwise_not, [F32], {}, DTypeError, "bitwise_not: operands must be integer, got float32"),
    (logic.bit_shift, [I32, I32], {"direction": "UP"}, ArgumentError, "`direction` is 'UP'; it must be 'LEFT' or"),
    (elementwise.sqrt, [I32], {}, DTypeError, "sqrt: operands must be floating-point, got int32"),
    (elementwise.sin, [I32], {}, DTypeError, "sin: operands must be floating-point, got int32"),
    (activation.celu, [F32], {"alpha": 0}, ArgumentError, "celu: `alpha` is 0; it divides"),
    (activation.gelu, [F32], {"approximate": "x"}, ArgumentError, "`approximate` is 'x'; it must be 'none' or 'tanh'"),
    (activation.prelu, [f32(1, 3), f32(2, 3)], {}, ShapeError, r"`slope` of \(2, 3\) must broadcast to x of \(1, 3\)"),
]


@pytest.mark.parametrize(("fn", "inputs", "attributes", "error", "match"), ERRORS)
def test_error(fn: Any, inputs: list[Any], attributes: dict[str, Any], error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        fn(*inputs, **attributes)


def test_an_undecided_comparison_names_both_sides() -> None:
    (b,) = symbolic_shape("b")
    for fn, op in ((comparison.equal, "equal"), (comparison.greater, "greater"), (comparison.less_or_equal, "greater")):
        with pytest.raises(
            ShapeError, match=f"{op}.*: whether it holds for .* depends on the value of a symbolic size"
        ):
            fn(np.array(b, dtype=object), 5)
