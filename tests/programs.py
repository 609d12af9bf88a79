"""Specialized programs, and what is in a program."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jaxops.compiler.ir import Program, run
from jaxops.compiler.passes.inline_calls import inline_calls
from jaxops.compiler.passes.integer_products import integer_products
from jaxops.compiler.passes.select_kernels import select_kernels
from jaxops.compiler.primitives import jaxprs
from jaxops.kernels.target import Target, this_machine

TARGET = Target("cpu", cores=2, specialized=True, prepared=True, compiled_here=True)


def inlined(fn: Callable[..., Any], *args: Any) -> Program:
    """The program of a function, without calls, as every pass but the first one gets it."""
    return inline_calls(Program.of(jax.make_jaxpr(fn)(*args)), TARGET)


def specialized(fn: Callable[..., Any], target: Target | None = None) -> Callable[..., Any]:
    """The function with the kernels of a specialized program for a target, by default this machine."""
    return selected(
        fn, dataclasses.replace(target or this_machine(), specialized=True, prepared=True, compiled_here=True)
    )


def selected(fn: Callable[..., Any], target: Target) -> Callable[..., Any]:
    """The function with the kernels of a target."""

    def function(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
        program = inline_calls(select_kernels(integer_products(Program.of(closed), target), target), target)
        return jax.tree.unflatten(jax.tree.structure(shapes), run(program, jax.tree.leaves(args)))

    return function


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a program, and of all programs in them."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs(eqn):
            yield from equations(inner)


def primitives(fn: Callable[..., Any], *args: Any) -> set[str]:
    """The names of all primitives in a program, those of inner programs included."""
    return {eqn.primitive.name for eqn in equations(jax.make_jaxpr(fn)(*args).jaxpr)}
