"""Files that break a rule of their opset but are unambiguous: `load` accepts them, `opset(n)` does not.

These are: nodes out of order; a scalar where the standard says 1-D; int32 where it says int64; an enumerated value that
a later version of the operator adds; a Constant of a type that a later version has; an opset that is not imported; an
operator that onnxruntime runs before the standard has it, or after the standard dropped it; an operator that the
standard never had, though its name says all; a Split-18 that leaves the number of pieces to that of its outputs; and,
in the reader, an exact repeat of an initializer. A model without any of these is read as it is.
"""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.attributes import axis as resolve_axis
from jaxops.dtypes import canonical
from jaxops.errors import ShapeError, UnsupportedError
from jaxops.frontend.schema import Formal
from jaxops.frontend.versions import newest
from jaxops.onnx.registry import Operator, adapters, find
from jaxops.onnx.schemas import later_schemas, newest_opset, versions
from jaxops.signature import choices
from jaxops.signature_errors import errors_of

# Optimizers write these operators into models of any opset. They mean the first version of the standard, …
_EARLY = {"LayerNormalization", "MeanVarianceNormalization", "ThresholdedRelu"}
# … or the operator of com.microsoft.
_BORROWED = {"SimplifiedLayerNormalization"}
# Experimental operators that the standard dropped in opset 10; the schemas of today no longer have them.
_DROPPED = {"Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"}
# The operator that replaced another one, whose attributes may have the values of both: Upsample of mode 'cubic'.
_SUCCESSORS = {"Upsample": "Resize"}
# Attributes in which an empty string can only mean the default. As `reduction` of a loss, it is 'sum' in onnxruntime.
_EMPTY = {"auto_pad": "NOTSET"}
_EMPTY_OF = {"ScatterElements": {"reduction": "none"}, "ScatterND": {"reduction": "none"}}
_INT64 = frozenset(["tensor(int64)"])


class TolerantOperator(Operator):
    """An operator with the looser rules for files."""

    def choices(self, name: str) -> tuple[Any, ...]:
        """Returns the permitted values of this version and of the newest one, such as 'wrap' of Pad before opset 19."""
        return self._choices[name]

    @functools.cached_property
    def _choices(self) -> Mapping[str, tuple[Any, ...]]:
        registered = adapters().get((self.schema.domain, _SUCCESSORS.get(self.name, self.name)), {})
        newer = newest(registered, newest_opset(self.schema.domain))
        added = inspect.signature(newer).parameters if self.fn and newer else {}
        permitted = {}
        for name, parameter in self.parameters.items():
            current, later = choices(parameter.annotation), choices(added[name].annotation) if name in added else ()
            permitted[name] = later if current and set(current) <= set(later) else current
        return permitted

    def taken_types(self, formal: Formal) -> frozenset[str]:
        """Returns the permitted types of this version, and int32 if it permits only int64."""
        types = super().taken_types(formal)
        return types | {"tensor(int32)"} if types == _INT64 else types

    def given_types(self, position: int) -> frozenset[str]:
        """Returns the types of this version; without inputs, as for Constant, those of later versions, too."""
        types = super().given_types(position)
        if self.schema.inputs:
            return types
        later = (s for s in later_schemas(self.schema) if len(s.outputs) > position)
        return types.union(*(s.outputs[position].types for s in later))

    def complete(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Completes attributes by the rules of the version; drops those of tools, which begin with two underscores."""
        stated = {name: value for name, value in attributes.items() if not name.startswith("__")}
        for name, default in {**_EMPTY, **_EMPTY_OF.get(self.name, {})}.items():
            if stated.get(name) == "":
                stated[name] = default
        return super().complete(stated)

    @functools.cached_property
    def _integers(self) -> frozenset[int]:
        """The positions of the inputs for which the version permits only int64."""
        formals = enumerate(self.schema.inputs)
        return frozenset(i for i, formal in formals if Operator.taken_types(self, formal) == _INT64)

    def exact(
        self, inputs: Sequence[Any], attributes: Mapping[str, Any], n_outputs: int
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """A scalar becomes 1-D and int32 becomes int64 if the version asks for that.

        A Split with neither lengths nor `num_outputs` gives an equal piece for each output.
        """
        operands = list(inputs)
        if self.name == "Split" and "num_outputs" in self.parameters and all(x is None for x in operands[1:]):
            attributes = {**attributes, "num_outputs": _pieces(operands[0], attributes, n_outputs)}
        for position, value in enumerate(operands):
            if value is None:
                continue
            if self.is_vector(position) and value.ndim == 0:
                operands[position] = value = value.reshape(1)
            stands_for_int64 = not isinstance(value, np.ndarray) and canonical(np.int64) == np.int32
            if position in self._integers and value.dtype == np.int32 and not stands_for_int64:
                operands[position] = value.astype(np.int64)
        return operands, attributes

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """Calls the operator, with the inputs and attributes that its version asks for."""
        operands, attributes = self.exact(inputs, attributes, n_outputs)
        return super().call(operands, attributes, n_outputs=n_outputs, rng=rng)


def _pieces(data: Any, attributes: Mapping[str, Any], n_outputs: int) -> int:
    """The number of pieces of a Split without lengths."""
    if attributes.get("num_outputs") is None:
        with errors_of("split"):
            size = data.shape[resolve_axis(attributes["axis"], data.ndim)]
        remainder = size % n_outputs
        if isinstance(remainder, int) and remainder:
            raise ShapeError(
                f"split: an axis of size {size} does not divide into {n_outputs} equal outputs; the node needs the "
                "lengths `split`, or `num_outputs`"
            )
        return n_outputs
    return attributes["num_outputs"]


@functools.cache
def tolerant(op_type: str, domain: str, opset: int) -> TolerantOperator:
    """The operator that a file means. Raises UnsupportedError with the reason if there is none."""
    since_versions = versions(op_type, domain)
    if domain == "" and op_type in _EARLY and 0 < opset < since_versions[0]:
        opset = since_versions[0]
    elif domain == "" and not since_versions and (op_type in _BORROWED or (op_type in _DROPPED and 0 < opset < 10)):
        domain, opset = "com.microsoft", 1
    operator = find(op_type, domain, opset)
    return TolerantOperator(operator.schema, operator.fn, operator.opset)


def opset_of(domain: str, name: str, opsets: Mapping[str, int]) -> int:
    """Returns the opset of a domain in a model, or the newest opset if the model does not import the domain.

    Raises UnsupportedError if jaxops does not know that domain either.
    """
    if domain in opsets:
        return opsets[domain]
    newest_version = newest_opset(domain)
    if not newest_version:
        raise UnsupportedError(f"{name}: the model does not import an opset of domain '{domain}'")
    return newest_version
