"""The activation functions of recurrent layers, by their names and with their coefficients."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax import lax

from jaxops.errors import ArgumentError, amount
from jaxops.ops.math.activations import elu, hard_sigmoid, leaky_relu, relu, sigmoid, softplus, softsign, tanh


class Activation(NamedTuple):
    """An activation function and its coefficients: alpha, or alpha and beta. bounded: True if `clip` bounds x."""

    name: str
    coefficients: tuple[float, ...] = ()
    bounded: bool = True

    def __call__(self, x: Any) -> Any:
        return _FUNCTIONS[self.name][0](x, *self.coefficients)


def _affine(x: Any, alpha: float, beta: float) -> Any:
    return x * alpha + beta


def _scaled_tanh(x: Any, alpha: float, beta: float) -> Any:
    return lax.tanh(x * beta) * alpha


def _thresholded_relu(x: Any, alpha: float) -> Any:
    # For x = alpha the standard's text on the layers gives x; the operator ThresholdedRelu gives 0.
    return lax.select(x >= alpha, x, lax.full_like(x, 0))


# Name in lower case → function, and the defaults of its coefficients: those of the operator of that name. Affine and
# ScaledTanh are no longer operators, so they have none. (onnxruntime's default is 0 for these two, which makes the gate
# constant, and for ThresholdedRelu.)
_FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[float | None, ...]]] = {
    "affine": (_affine, (None, None)),
    "relu": (relu, ()),
    "leakyrelu": (lambda x, alpha: leaky_relu(x, alpha=alpha), (0.01,)),
    "thresholdedrelu": (_thresholded_relu, (1.0,)),
    "tanh": (tanh, ()),
    "scaledtanh": (_scaled_tanh, (None, None)),
    "sigmoid": (sigmoid, ()),
    "hardsigmoid": (lambda x, alpha, beta: hard_sigmoid(x, alpha=alpha, beta=beta), (0.2, 0.5)),
    "elu": (lambda x, alpha: elu(x, alpha=alpha), (1.0,)),
    "softsign": (softsign, ()),
    "softplus": (softplus, ()),
}
_LISTING = (
    "Affine, Relu, LeakyRelu, ThresholdedRelu, Tanh, ScaledTanh, Sigmoid, HardSigmoid, Elu, Softsign and Softplus"
)


def resolve(
    names: Sequence[str], count: int, alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> tuple[Activation, ...]:
    """The functions of these names, upper or lower case; there must be `count` of them.

    As in onnxruntime, a value of `activation_alpha` or `activation_beta` goes to the next function that has such a
    coefficient; when they are used up, defaults follow.
    """
    if isinstance(names, str) or len(names) != count:
        raise ArgumentError(f"`activations` is {names!r}; it must hold {count} names, direction by direction")
    coefficients_by_name = {"activation_alpha": list(alphas or ()), "activation_beta": list(betas or ())}
    functions = []
    for name in names:
        key = str(name).lower()
        if key not in _FUNCTIONS:
            raise ArgumentError(f"`activations` names {name!r}; the functions are {_LISTING}")
        coefficients = []
        for (attribute, values), default in zip(coefficients_by_name.items(), _FUNCTIONS[key][1], strict=False):
            value = values.pop(0) if values else default
            if value is None:
                raise ArgumentError(f"{name} has no default for its coefficient; give it in `{attribute}`")
            coefficients.append(float(value))
        functions.append(Activation(key, tuple(coefficients)))
    for attribute, values in coefficients_by_name.items():
        if values:
            raise ArgumentError(
                f"`{attribute}` has {amount(len(values), 'value')} more than {', '.join(map(str, names))} take; "
                f"give one for each function that has such a coefficient"
            )
    return tuple(functions)
