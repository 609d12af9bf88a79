"""Facts about primitives of JAX and of jaxops that several passes use."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.jax_internals import closed_call_p
from jaxops.kernels.named_call import named_call, plain_jaxpr
from jaxops.kernels.normal_cdf import normal_distribution
from jaxops.static import Sizes

# Primitives that compute one addition, multiplication, function or choice for each element of the result.
ARITHMETIC = {
    *("abs", "acos", "acosh", "add", "add_any", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "clamp"),
    *("cos", "cosh", "digamma", "div", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "integer_pow"),
    *("lgamma", "log", "log1p", "logistic", "max", "min", "mul", "neg", "pow", "rem", "round", "rsqrt", "select_n"),
    *("sign", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh"),
}
# Primitives whose results depend, at each position, on the operands' elements at that position, and on scalars.
ELEMENTWISE = ARITHMETIC | {
    *("and", "convert_element_type", "copy", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "nextafter"),
    *("not", "or", "population_count", "reduce_precision", "shift_left", "shift_right_arithmetic"),
    *("shift_right_logical", "stop_gradient", "xor", normal_distribution.name),
}
# Primitives that keep the elements of the operand in their order; a broadcast repeats them.
IN_ORDER = {"broadcast_in_dim", "copy", "reshape", "squeeze", "stop_gradient"}
# Matrix products and convolutions.
PRODUCTS = {"conv_general_dilated", "dot_general", "mixed_product"}
# The name of the primitive for a model inside a user's program: see `part_of_program`.
PROGRAM = "program"
# Primitives with inner programs, which run on the operands or on slices of them.
CALLS = {PROGRAM, "jit", closed_call_p.name, "custom_jvp_call", "custom_vjp_call", "remat2", "while", "cond", "scan"}
# Primitives that do not run one inner program exactly once.
CONTROL = {"while", "cond", "scan"}
# Primitives that determine how their inner program is differentiated.
DIFFERENTIATED = {"custom_jvp_call", "custom_vjp_call", "remat2"}


def called_jaxpr(eqn: Any, transformable: bool = False) -> Any:
    """Returns the program that an equation calls once, on all its operands; None for an equation that is not a call.

    For a named call this is its plain form, but None if it is elementwise. transformable: whether JAX may still
    differentiate the equation; if so, None also for a call with a custom derivative, and for one that XLA must not
    inline.
    """
    if transformable and (eqn.primitive.name in DIFFERENTIATED or xla_metadata(eqn).get("inlineable") == "false"):
        return None
    named = named_call(eqn)
    if named is not None:
        return None if named.elementwise else plain_jaxpr(eqn)
    if eqn.primitive.name == "call_hi_primitive":  # JAX 0.12 replaces nonzero and searchsorted when it lowers
        return jax.make_jaxpr(eqn.params["_prim"].expand)(*(operand.aval for operand in eqn.invars))
    if eqn.primitive.name not in CALLS - CONTROL:
        return None
    return eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))


def jit_jaxpr(eqn: Any) -> Any:
    """Returns the program of an equation of `jit`; None for another equation."""
    return eqn.params["jaxpr"] if eqn.primitive.name == "jit" else None


def xla_metadata(eqn: Any) -> dict[str, Any]:
    """Returns the metadata that `set_xla_metadata` attached to an equation."""
    return eqn.ctx.xla_metadata or {}


def jaxprs(eqn: Any) -> Iterator[Any]:
    """Yields the programs in an equation: those among its parameters, or the plain form of a named call."""
    for value in (*eqn.params.values(), plain_jaxpr(eqn)):
        for item in value if isinstance(value, tuple | list) else (value,):
            jaxpr = getattr(item, "jaxpr", item)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr


def sizes_of(variable: Any) -> Sizes:
    """Returns the sizes of a variable of a jaxpr, perhaps symbolic; () for a variable without a shape."""
    return getattr(variable.aval, "shape", ())


def symbolic_axes(sizes: Sequence[Any]) -> set[int]:
    """Returns the axes with symbolic sizes."""
    return {axis for axis, size in enumerate(sizes) if not isinstance(size, int | np.integer)}


def symbolic_sizes(jaxpr: Any) -> set[Any]:
    """Returns the symbolic sizes of all values in a jaxpr and in its inner programs."""
    sizes = {d for eqn in jaxpr.eqns for v in eqn.outvars for d in sizes_of(v) if not isinstance(d, int | np.integer)}
    return sizes.union(*(symbolic_sizes(inner) for eqn in jaxpr.eqns for inner in jaxprs(eqn)))


def multiplications(product: Any) -> float:
    """Counts the multiplications of the equation of a product."""
    name, params = product.primitive.name, product.params
    (x, w), y = (v.aval for v in product.invars), product.outvars[0].aval
    if name == "conv_general_dilated":
        return y.size * w.size / max(w.shape[params["dimension_numbers"].rhs_spec[0]], 1)
    contracted = params["dimension_numbers"][0][0] if name == "dot_general" else (x.ndim - 1,)
    return float(y.size * math.prod(x.shape[axis] for axis in contracted))
