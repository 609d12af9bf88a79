"""Symbolic sizes without the factors that all their terms share."""

import functools
import math
import operator
from collections import Counter
from typing import Any

from jaxops.jax_internals import Factor, terms
from jaxops.static import is_symbolic


def factored(size: Any) -> tuple[Any, Any]:
    """Splits a size into (the product of positive numbers and symbols that are factors of all terms, the quotient).

    JAX's own division may not terminate if an equation rewrites a product of two symbols.
    """
    all_terms = terms(size)
    number = math.gcd(*(term.number for term in all_terms)) or 1
    powers = [Counter({f.size: f.power for f in term.factors if not f.operands}) for term in all_terms]
    common = functools.reduce(operator.and_, powers)

    def without(factor: Factor) -> Any:
        return factor.size ** (factor.power - (0 if factor.operands else common[factor.size]))

    remaining = (math.prod(map(without, term.factors), start=term.number // number) for term in all_terms)
    return math.prod((symbol**power for symbol, power in common.items()), start=number), sum(remaining)


def reduced(size: Any) -> Any:
    """A size without the positive numbers and symbols that are factors of all terms; it has the same sign."""
    return factored(size)[1] if is_symbolic(size) else size
