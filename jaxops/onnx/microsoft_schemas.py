"""The schemas of com.microsoft, which no package publishes.

`contrib.json` holds what onnxruntime's own registry has (names, types, defaults: facts, no text);
`python tests/onnx/test_microsoft_schemas.py` writes it anew. The schemas are not registered with onnx, so that other
users of onnx in the process see only the standard.
"""

import functools
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import defs, helper

DOMAIN = "com.microsoft"
_Schema = defs.OpSchema


@functools.cache
def schemas() -> tuple[Any, ...]:
    """Returns one OpSchema per operator, each of version 1."""
    text = importlib.resources.files("jaxops.onnx").joinpath("contrib.json").read_text()
    return tuple(_schema(**described) for described in json.loads(text))


def _schema(
    name: str,
    inputs: Sequence[Sequence[Any]],
    outputs: Sequence[Sequence[Any]],
    attributes: Mapping[str, Mapping[str, Any]],
    types: Mapping[str, Sequence[str]],
) -> Any:
    return _Schema(
        name,
        DOMAIN,
        1,
        inputs=[_formal(*formal) for formal in inputs],
        outputs=[_formal(*formal) for formal in outputs],
        type_constraints=[(variable, list(allowed), "") for variable, allowed in types.items()],
        attributes=[_attribute(key, **described) for key, described in attributes.items()],
    )


def _formal(name: str, type_str: str, option: str, homogeneous: bool) -> Any:
    choice = getattr(_Schema.FormalParameterOption, option)
    return _Schema.FormalParameter(name, type_str, param_option=choice, is_homogeneous=homogeneous)


def _attribute(name: str, type: str, required: bool = False, default: Any = None) -> Any:
    if default is not None:
        return _Schema.Attribute(name, helper.make_attribute(name, default))
    return _Schema.Attribute(name, getattr(_Schema.AttrType, type), required=required)
