"""The inside of JAX is as `jaxops.jax_internals` takes it to be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import is_symbolic_dim, symbolic_shape

from jaxops.jax_internals import (
    bounded_by,
    bounds_of,
    evaluated,
    first_line,
    is_counted,
    is_out_of_memory,
    lowered_equation,
    may_be_none,
    note_equal,
    question,
    scan_operands,
    size_as_value,
    terms,
)
from jaxops.static import Undecided

S, T = symbolic_shape("s, t")


def numbers_of(size):
    """The terms without their factors."""
    return [(term.number, str(term.size)) for term in terms(size)]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (7, [(7, "1")]),
        (S, [(1, "s")]),
        (-2 * S + 3, [(-2, "s"), (3, "1")]),
        (S * S * T - 4 * T - 1, [(1, "s^2*t"), (-4, "t"), (-1, "1")]),
        (3 * T * (S // 4), [(3, "t*floordiv(s, 4)")]),
    ],
)
def test_terms(size, expected):
    assert numbers_of(size) == expected
    assert sum(term.number * term.size for term in terms(size)) == size


def test_factors():
    (term,) = terms(5 * T * T * ((S - 1) // 4))
    (t, quotient) = term.factors
    assert (t.name, t.operands, t.power, t.size) == ("t", (), 2, T)
    assert (quotient.name, quotient.power, quotient.size) == ("floordiv", 1, (S - 1) // 4)
    dividend, divisor = quotient.operands
    assert dividend == S - 1
    assert type(divisor) is int
    assert divisor == 4
    for size, name in ((S % 3, "mod"), (S.max(3), "max"), (S.min(T), "min")):
        assert terms(size)[0].factors[0].name == name


def test_terms_follow_the_equations_of_a_scope():
    a, b = symbolic_shape("a, b", constraints=["a*b == 12"])
    assert numbers_of(a * b + a) == [(1, "a"), (12, "1")]


def test_a_size_with_numbers_and_with_traced_integers():
    size = (S + 3) // 4 * T - S.max(5)
    assert evaluated(size, {"s": 9, "t": 2}) == -3
    assert type(evaluated(size, {"s": 9, "t": 2})) is int
    assert is_symbolic_dim(evaluated(size, {"s": 9, "t": T}))
    found = jax.jit(lambda s: size_as_value(size, {"s": s, "t": 2}))(9)
    assert (found.dtype, int(found)) == (np.dtype("int32"), -3)


def bounds_for(least, most):
    """The bounds of a size of one symbol that goes from `least` to `most`; only of those that have no quotient."""

    def bounds(size):
        (name,) = {f.name for term in terms(size) for f in term.factors}
        return None if name == "floordiv" else tuple(sorted(evaluated(size, {name: n}) for n in (least, most)))

    return bounds


def test_a_scope_takes_its_bounds_from_a_function():
    (n,) = symbolic_shape("n")
    with pytest.raises(Undecided):
        _ = n > 4
    bounds = bounds_for(5, 9)
    bounded_by(n.scope, bounds)
    assert n > 4
    assert n < 10
    assert n // 2 + 1 > 0  # JAX finds those that the function does not
    assert bounds_of(n.scope) is bounds
    assert bounds_of(S.scope)(S) is None


def test_bounds_of_sizes_that_may_be_none():
    (n,) = symbolic_shape("n")
    positive = may_be_none(lambda a, b: bool(a > b))
    assert not is_counted(n)
    assert positive(n, 0)
    bounded_by(n.scope, bounds_for(1, 5), bounds_for(0, 5))
    assert is_counted(n)
    assert n > 0
    with pytest.raises(Undecided):
        positive(n, 0)
    assert n > 0  # as before


def test_a_noted_equality_is_no_question():
    a, b = symbolic_shape("a, b")
    with pytest.raises(Undecided):
        _ = a - b >= 0
    note_equal(a, b)
    assert a - b >= 0
    assert b - a >= 0


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda: S - 2 < 0, ("s - 2", "0", "s - 2 >= 0")),
        (lambda: S > 4, ("s", "4", "s <= 4")),
        (lambda: S >= T, ("s", "t", "s >= t")),
        (lambda: 8 // (S - 3) >= 2, ("s - 3", "s - 3 >= 1")),
        (lambda: int(S), ()),
    ],
)
def test_the_question_in_an_error(ask, expected):
    with pytest.raises(Undecided) as caught:
        ask()
    assert question(caught.value) == expected
    assert "\n" in str(caught.value)
    assert "\n" not in first_line(caught.value)


def test_an_error_of_memory():
    assert is_out_of_memory(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 4 bytes."))
    assert not is_out_of_memory(jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no"))


def test_the_equation_that_was_lowered():
    (spec,) = jax.export.symbolic_args_specs([np.zeros((2, 2), "f4")], ["n, n"])
    with pytest.raises(NotImplementedError) as caught:
        jax.export.export(jax.jit(jnp.fft.fft))(spec)
    assert lowered_equation(caught.value).primitive.name == "fft"
    assert lowered_equation(ValueError("of a caller")) is None


def test_the_operands_of_a_scan():
    limit = jnp.ones(3)
    closed = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, y: ((c[0] + limit, c[1] * 2), y), (x, x), x))(limit)
    (eqn,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan")
    assert scan_operands(eqn.params) == (1, 2)
