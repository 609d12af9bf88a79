"""Finds what the bounds of a model cannot serve, before the first call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from jaxops.dtypes import canonical
from jaxops.errors import JaxopsError
from jaxops.graph.nodes import Tensor, Value
from jaxops.runtime.counted_sizes import PaddingError
from jaxops.static import Undecided


def check_bounds(apply: Callable[..., Any], inputs: Sequence[Value], tensors: Mapping[str, Tensor]) -> None:
    """Traces a model that is one program, if its inputs declare a type and a number for each size.

    apply: `Model.apply`. tensors: the parameters.

    Raises UnsupportedError for a node that cannot leave out the padding of a bounded result. The first call finds every
    other fault, and those that depend on the sizes of its inputs.
    """
    inputs = [value for value in inputs if value.kind != "optional"]
    if any(value.kind != "tensor" or value.dtype is None or value.static for value in inputs):
        return
    shapes = {value.name: value.shape for value in inputs}
    if any(shape is None or not all(isinstance(size, int) for size in shape) for shape in shapes.values()):
        return

    def specs(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: jax.ShapeDtypeStruct(shape, canonical(dtype)) for name, (shape, dtype) in values.items()}

    params = specs({name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()})
    arguments = specs({value.name: (value.shape, value.dtype) for value in inputs})

    def run(params: Any, arguments: Any) -> Any:
        return apply(params, arguments, rng=jax.random.key(0))

    try:
        jax.eval_shape(run, params, arguments)
    except PaddingError:
        raise
    except (JaxopsError, Undecided):
        pass
