"""Example inputs: small sizes with which a model runs, or symbolic ones."""

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import canonical
from jaxops.errors import ArgumentError, JaxopsError, SizeError, StaticError, symbols_in
from jaxops.graph import declared_sizes as names_of
from jaxops.graph.interpreter import SIZE_CONSTRAINTS
from jaxops.graph.nodes import Value
from jaxops.shapes.arithmetic import FUNCTIONS
from jaxops.static import LIMITING, UNKNOWN, Undecided, is_symbolic
from jaxops.symbolic import sides, size_of_text
from jaxops.tools.export.limits.learned import Limits

Shapes = dict[str, jax.ShapeDtypeStruct]
# The sizes to try if limits alone do not determine which ones fit.
_TRIED = (2, 3, 4, 5, 8, 16, 32, 64, 128, 224, 256, 512, 1024, 4096, 16384)
# How often limits are looked for, and steps of one until they hold.
_ROUNDS, _STEPS = 50, 10_000
# The exceptions of tracing for sizes that do not fit, or that JAX cannot handle.
_MISFITS = (JaxopsError, Undecided, TypeError, ValueError, NotImplementedError, ArithmeticError)
_HOLDS = {"==": operator.eq, ">=": operator.ge, "<=": operator.le}


def example(
    formals: Sequence[Value],
    sizes: Mapping[str, int],
    subject: str,
    trace: Callable[[Shapes], Any],
    arrays: Mapping[str, Any] | None = None,
) -> Shapes:
    """Shapes and types in place of inputs.

    sizes: for named sizes; those that are not there are the smallest that fit. trace: gives the sizes of the
    model's tensors for such inputs, or raises what the model raises. arrays: arrays for some of the inputs, which say
    their sizes.
    Raises ArgumentError for a size that the model does not have, or if none fit; StaticError for an input whose
    value must be known.
    """
    arrays = arrays or {}
    inputs = names_of.named(formals)
    names = names_of.names(inputs)
    for name in sizes:
        if name not in names:
            raise ArgumentError(
                f"{subject}: the model has no size '{name}'; its sizes are: {', '.join(names) or 'none'}"
            )
    names_of.check_numbers(sizes)
    names_of.check_limits(inputs, sizes)
    for formal in inputs:
        if formal.name not in arrays:
            _check(formal, subject)
    fixed = {**_sizes_of(inputs, arrays), **sizes}
    return _Search(inputs, fixed, arrays, trace).smallest(subject)


def symbolic(formals: Sequence[Value], subject: str, trace: Callable[[Shapes], Any]) -> Any:
    """The result of `trace` for symbolic sizes, under the limits that the model has; None if they cannot be traced.

    Raises StaticError and ArgumentError as `example`.
    """
    for formal in formals:
        _check(formal, subject)
    return _Search(names_of.named(formals), {}, {}, trace).symbolic()[1]


def _check(formal: Value, subject: str) -> None:
    if formal.static:
        raise StaticError(f"{subject}: give example inputs: '{formal.name}' must be known ({formal.static})")
    if formal.shape is None or formal.dtype is None or formal.kind != "tensor":
        raise ArgumentError(f"{subject}: give example inputs: the model does not say the shape of {formal}")


def _sizes_of(inputs: Sequence[Value], arrays: Mapping[str, Any]) -> dict[str, int]:
    """The values of named sizes that arrays determine."""
    pairs = (
        pair for v in inputs if v.name in arrays for pair in zip(v.shape or (), np.shape(arrays[v.name]), strict=False)
    )
    return {name: size for name, size in pairs if isinstance(name, str)}


class _Search:
    """Looks for sizes. fixed: by name; given: arrays, by the name of their input."""

    def __init__(
        self,
        inputs: Sequence[Value],
        fixed: Mapping[str, int],
        arrays: Mapping[str, Any],
        trace: Callable[[Shapes], Any],
    ) -> None:
        self.inputs, self.fixed, self.arrays, self.trace = inputs, fixed, arrays, trace
        symbols = names_of.symbols(inputs)
        self.symbols = {name: symbol for name, symbol in symbols.items() if name not in fixed}

    def smallest(self, subject: str) -> Shapes:
        """Inputs of the smallest sizes that fit."""
        ones = {name: size for name, size in names_of.smallest(self.inputs).items() if name in self.symbols}
        if not ones:
            return self._shapes(ones)
        runs, first = None, None
        for sizes in itertools.chain([ones], self._candidates()):
            try:
                tensors = self.trace(self._shapes(sizes))
            except UNKNOWN:  # other sizes would not help if data decide
                return self._shapes(sizes)
            except _MISFITS as error:
                first = first or error
                continue
            # A window that does not fit into its operand gives nothing.
            if 0 in self.fixed.values() or not any(0 in shape for shape in tensors):
                return self._shapes(sizes)
            runs = runs or sizes
        if runs is not None:
            return self._shapes(runs)
        raise ArgumentError(
            f"{subject}: none of the sizes that were tried fit the model\n"
            f"  { {**self.fixed, **ones} }  {str(first).partition(chr(10))[0]}\n"
            f"  hint    give them, as in sizes={dict.fromkeys(self.symbols, 128)}, or give example inputs"
        ) from first

    def _shapes(self, sizes: Mapping[str, Any]) -> Shapes:
        values = {**self.fixed, **sizes}

        def shape(value: Value) -> tuple[Any, ...]:
            if value.name in self.arrays:
                return np.shape(self.arrays[value.name])
            return tuple(d if isinstance(d, int) else names_of.expression(str(d), values) for d in value.shape or ())

        return {v.name: jax.ShapeDtypeStruct(shape(v), canonical(v.dtype)) for v in self.inputs}

    def symbolic(self) -> tuple[Limits, Any]:
        """The limits of the sizes, as far as a symbolic trace finds them, and its result; None if it fails."""
        axes = {self.symbols[d]: axis for v in self.inputs for axis, d in enumerate(v.shape or ()) if d in self.symbols}
        limits = Limits(names_of.constraints(self.inputs, self.symbols), axes)
        for _ in range(_ROUNDS):
            tokens = SIZE_CONSTRAINTS.set(limits), LIMITING.set(True)
            try:
                result = self.trace(self._shapes(limits.sizes(self.symbols)))
                if not limits.in_trace:
                    return limits, result
            except SizeError as error:
                if not limits.in_trace and not limits.learn(error):
                    break
            except _MISFITS:
                if not limits.in_trace:
                    break
            finally:
                SIZE_CONSTRAINTS.reset(tokens[0])
                LIMITING.reset(tokens[1])
        return limits, None

    def _candidates(self) -> Iterator[dict[str, int]]:
        """Sizes by name, those that the limits of the model ask for first."""
        limits, tensors = self.symbolic()
        sizes = limits.sizes(self.symbols)
        constraints = list(limits.constraints)
        filled = {f"{size} >= 1" for shape in tensors or () for size in shape if is_symbolic(size)}
        free = symbols_in(*sizes.values())
        leading = set(symbols_in(*(sizes.get(str(v.shape[0]), 1) for v in self.inputs if v.shape)))
        ones = dict.fromkeys(free, 1)
        smallest = _holding([*constraints, *sorted(filled)], ones) or _holding(constraints, ones) or ones

        def grown(start: Mapping[str, int]) -> Iterator[dict[str, int]]:
            for growing in (set(free) - leading, set(free)):
                for n in _TRIED:
                    yield {symbol: max(size, n) if symbol in growing else size for symbol, size in start.items()}

        one_more = ({**smallest, symbol: smallest[symbol] + 1} for symbol in free)  # such as the sum of two others
        solutions = (_holding(constraints, values) for values in (smallest, *one_more, *grown(smallest)))
        seen: list[dict[str, int]] = []
        # A symbolic trace that fails may have found misleading limits; then sizes without them fit.
        for values in itertools.chain(itertools.islice(solutions, 1 + len(free)), grown(ones), solutions):
            if values is not None and values not in seen:
                seen.append(values)
                yield {name: _number(str(size), values) for name, size in sizes.items()}


def _holding(constraints: Sequence[str], values: Mapping[str, int]) -> dict[str, int] | None:
    """The smallest values of symbols, from these on, for which the constraints hold; None if there are none within
    `_STEPS` steps.
    """
    numbers, steps = dict(values), 0
    parsed = [sides(text) for text in constraints]
    while True:
        before = dict(numbers)
        for text, sign, other in parsed:
            while not _HOLDS[sign](left := _number(text, numbers), right := _number(other, numbers)):
                smaller = symbols_in(text if left < right else other)
                steps += 1
                if steps > _STEPS or not smaller:
                    return None
                if text in numbers and right > 0:
                    numbers[text] = right
                else:
                    numbers[smaller[0]] += 1
        if numbers == before:
            return numbers


def _number(size: str, values: Mapping[str, int]) -> int:
    return size_of_text(size, values.__getitem__, FUNCTIONS)
