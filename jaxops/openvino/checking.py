"""Lists the operations of an IR, and which of them jaxops has."""

from collections import Counter

from jaxops.errors import UnsupportedError
from jaxops.frontend.operator_check import Check, Row
from jaxops.openvino.bind import tolerant
from jaxops.openvino.ir import Layer
from jaxops.openvino.linked import link
from jaxops.openvino.open import Readable, open_ir
from jaxops.openvino.schemas import opset_of
from jaxops.openvino.variables import OUTSIDE_ONLY, VARIABLE_LAYERS

# Layers that become an input, output, constant, variable, branch or loop, and need no function.
_OF_GRAPHS = {"parameter", "result", "const", "constant", *VARIABLE_LAYERS, "if", "loop", "tensoriterator"}


def check(model: Readable) -> Check:
    """Lists the operations of a model and whether jaxops has them, without loading it. Weights are not needed.

    model: as for `load`. Layers in bodies are counted; layers that no output needs are not. Other errors, such as an
    attribute out of range, are left to `load`.
    Raises FileNotFoundError; ModelError for a file that is damaged or not an IR.

    >>> print(check("notebooks/running_sum.xml"))
    operator   domain  version  count  status
    Add        opset1  1        1      supported
    Parameter  opset1  -        1      supported
    Result     opset1  -        1      supported
    Assign     opset6  -        1      supported
    ReadValue  opset6  -        1      supported
    running_sum: 5 operators, 5 nodes; jaxops has them all
    """
    opened = open_ir(model)
    counts: Counter[Row] = Counter()
    nets = [(opened.net, False)]
    while nets:
        net, is_body = nets.pop()
        for layer in link(net, opened.where).needed:
            nets += [(body.net, True) for body in layer.bodies.values() if body.net is not None]
            counts[_row(layer, is_body)] += 1
    return Check.of(opened.net.name or "(unnamed)", counts)


def _row(layer: Layer, is_body: bool) -> Row:
    if is_body and layer.type.lower() in VARIABLE_LAYERS:
        return Row(layer.type, layer.version, None, 0, "missing", OUTSIDE_ONLY)
    if layer.type.lower() in _OF_GRAPHS:
        return Row(layer.type, layer.version, None, 0, "function")
    try:
        operator = tolerant(layer.type, opset_of(layer.version, layer.type))
    except UnsupportedError as error:
        return Row(layer.type, layer.version, None, 0, "missing", str(error).removeprefix(f"{layer.type}: "))
    return Row(operator.name, layer.version, operator.schema.since, 0, "function")
