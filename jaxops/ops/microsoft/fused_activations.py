"""Activations that are fused into another operator, which names them in an attribute."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jaxops.errors import ArgumentError
from jaxops.ops.math import activations as fns
from jaxops.ops.math.extrema import clip
from jaxops.ops.math.softmax_like import hardmax, log_softmax, softmax

Activation = Callable[[Any], Any]
# Name in the attribute → the function, and its parameters in the order of a list.
_ACTIVATIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "Relu": (fns.relu, ()),
    "Tanh": (fns.tanh, ()),
    "Sigmoid": (fns.sigmoid, ()),
    "Silu": (fns.swish, ()),
    "Softplus": (fns.softplus, ()),
    "Softsign": (fns.softsign, ()),
    "HardSwish": (fns.hard_swish, ()),
    "LeakyRelu": (fns.leaky_relu, ("alpha",)),
    "Elu": (fns.elu, ("alpha",)),
    "Celu": (fns.celu, ("alpha",)),
    "ThresholdedRelu": (fns.thresholded_relu, ("alpha",)),
    "HardSigmoid": (fns.hard_sigmoid, ("alpha", "beta")),
    "Selu": (fns.selu, ("alpha", "gamma")),
    "Clip": (clip, ("min", "max")),
    "Softmax": (softmax, ("axis",)),
    "LogSoftmax": (log_softmax, ("axis",)),
    "Hardmax": (hardmax, ("axis",)),
}


def named(activation: str | None, **parameters: Any) -> Activation:
    """Returns the activation of a name with the parameters that it takes; None stands for the standard's default."""
    if not activation:
        return _unchanged
    function, names = _found(activation)
    return partial(function, **{name: parameters[name] for name in names if parameters.get(name) is not None})


def listed(activation: str | None, params: Sequence[float] | None) -> Activation:
    """Returns the activation of a name with a list of all its parameters; an empty list stands for their defaults."""
    if not activation:
        return _unchanged
    function, names = _found(activation)
    values = tuple(params or ())
    if values and len(values) != len(names):
        raise ArgumentError(f"`activation_params` is {values}; {activation} has {len(names)}: {', '.join(names)}")
    return partial(function, **dict(zip(names, values, strict=False)))


def _found(activation: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    if activation not in _ACTIVATIONS:
        raise ArgumentError(f"`activation` is {activation!r}; it must be one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[activation]


def _unchanged(x: Any) -> Any:
    return x
