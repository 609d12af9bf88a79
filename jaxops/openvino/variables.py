"""The variables of a net: their ReadValue and Assign, and their declared types and sizes."""

from collections.abc import Iterable
from typing import NamedTuple

from jaxops.errors import ModelError, UnsupportedError, amount
from jaxops.graph.nodes import Value
from jaxops.openvino import texts
from jaxops.openvino.element_types import element_type, port_type
from jaxops.openvino.ir import Layer
from jaxops.openvino.linked import Linked
from jaxops.openvino.schemas import find_schema, opset_of

VARIABLE_LAYERS = ("readvalue", "assign")
# The reason why a variable in a body is refused.
OUTSIDE_ONLY = "jaxops does not support variables in the bodies of If, Loop and TensorIterator"


class ReadAndAssign(NamedTuple):
    """A variable. value: its type and sizes; free sizes are None."""

    name: str
    read: Layer
    assign: Layer
    value: Value


def pairs(linked: Linked, where: str, is_body: bool) -> list[ReadAndAssign]:
    """Returns the variables of a net, in the order in which the file reads them.

    Raises ModelError for a variable that does not have one ReadValue and one Assign, or whose type or first value is
    not stated; UnsupportedError in a body, and for an opset that does not have the operation.
    """
    reads, assigns = (linked.of_type(name) for name in VARIABLE_LAYERS)
    for layer in (*reads, *assigns) if is_body else ():
        raise UnsupportedError(f"{where}: {layer.title} is in a body; {OUTSIDE_ONLY}")
    reads_by_name, assigns_by_name = _by_name(reads, where), _by_name(assigns, where)
    for by_name, counterparts, missing in (
        (reads_by_name, assigns_by_name, "Assign"),
        (assigns_by_name, reads_by_name, "ReadValue"),
    ):
        for name, layer in by_name.items():
            if name not in counterparts:
                raise ModelError(f"{where}: {layer.title}: variable '{name}' has no {missing}; it needs one")
    return [
        ReadAndAssign(name, read, assigns_by_name[name], _declared(name, read, where))
        for name, read in reads_by_name.items()
    ]


def _by_name(layers: Iterable[Layer], where: str) -> dict[str, Layer]:
    by_name: dict[str, Layer] = {}
    for layer in layers:
        schema = find_schema(layer.type, opset_of(layer.version, layer.type, f"{where}: {layer.title}"))
        name = layer.data.get("variable_id", "")
        if not name:
            raise ModelError(f"{where}: {layer.title}: required attribute `variable_id` is missing")
        if name in by_name:
            raise ModelError(
                f"{where}: {layer.title}: variable '{name}' has another {schema.name}, {by_name[name].title}"
            )
        least = sum(formal.option == "single" for formal in schema.inputs)
        if not least <= len(layer.inputs) <= len(schema.inputs):
            most = len(schema.inputs)
            inputs = amount(most, "input") if least == most else f"{least} to {most} inputs"
            raise ModelError(
                f"{where}: {layer.title}: {schema.name}-{schema.since} takes {inputs}, not {len(layer.inputs)}"
            )
        by_name[name] = layer
    return by_name


def _declared(name: str, read: Layer, where: str) -> Value:
    """Returns the type and sizes of a variable, from the attributes of ReadValue-6 or from its output port."""
    dtype = port_type(read.outputs[0].precision) if read.outputs else None
    shape = None if dtype is None else tuple(None if size < 0 else size for size in read.outputs[0].sizes)
    type_name = read.data.get("variable_type", "dynamic")
    if type_name not in ("dynamic", "undefined", ""):
        dtype = element_type(type_name, f"{where}: {read.title}: `variable_type`").dtype
    if "variable_shape" in read.data:
        limits = texts.shape(read.data["variable_shape"], f"{where}: {read.title}: `variable_shape`")
        shape = None if limits is None else tuple(low if low == high else None for low, high in limits)
    if not read.inputs and (shape is None or dtype is None):
        raise ModelError(
            f"{where}: {read.title}: variable '{name}' begins with zeros, but the file does not state its type or "
            "its rank; give ReadValue an input or these attributes, and save the model again"
        )
    return Value(name, dtype, shape)
