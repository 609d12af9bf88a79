"""The schemas of com.microsoft, which has no published ones, from the text of onnxruntime's ContribOperators.md.

They are handed to nobody: other users of onnx in the process see the standard alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import defs, helper

_Formal = defs.OpSchema.FormalParameter
_FLOATS = ("tensor(float16)", "tensor(float)", "tensor(double)", "tensor(bfloat16)")


def _schema(name: str, inputs: Sequence[str], attributes: Mapping[str, Any], types: Mapping[str, Sequence[str]]) -> Any:
    """A schema of one output `Y`. inputs: 'A: T', of a type variable of `types`; with '?' behind it an optional one.

    attributes: name → default.
    """

    def formal(text: str) -> Any:
        label, variable = text.removesuffix("?").split(": ")
        option = defs.OpSchema.FormalParameterOption
        return _Formal(label, variable, param_option=option.Optional if text.endswith("?") else option.Single)

    return defs.OpSchema(
        name,
        "com.microsoft",
        1,
        inputs=[formal(text) for text in inputs],
        outputs=[_Formal("Y", "T")],
        type_constraints=[(variable, list(allowed), "") for variable, allowed in types.items()],
        attributes=[
            defs.OpSchema.Attribute(key, helper.make_attribute(key, value)) for key, value in attributes.items()
        ],
    )


SCHEMAS = [
    _schema(
        "FusedMatMul",
        ("A: T", "B: T"),
        {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0},
        {"T": _FLOATS},
    ),
]
