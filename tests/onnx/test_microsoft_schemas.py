"""The table of com.microsoft beside the registry of onnxruntime.

`python tests/onnx/test_microsoft_schemas.py` writes the table anew.
"""

import copy
import importlib.resources
import itertools
import json
from typing import Any

import onnx
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

TABLE = importlib.resources.files("jaxops.onnx").joinpath("contrib.json")
# onnxruntime has these in the empty domain, beside the standard's; we keep the two apart. The second row is what its
# CPU runs of the experimental operators of opsets 1 to 9.
MOVED = ("LayerNormalization", "SimplifiedLayerNormalization")
MOVED += ("Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh")


def registry() -> list[dict[str, Any]]:
    kept = {("com.microsoft", s.name) for s in get_all_operator_schema()} | {("", name) for name in MOVED}
    schemas = [s for s in get_all_operator_schema() if (s.domain, s.name) in kept and s.since_version == 1]
    return sorted(map(said, schemas), key=lambda s: s["name"])


def said(schema: Any) -> dict[str, Any]:
    return {
        "name": schema.name,
        "inputs": [[f.name, f.typeStr, f.option.name, f.isHomogeneous] for f in schema.inputs],
        "outputs": [[f.name, f.typeStr, f.option.name, f.isHomogeneous] for f in schema.outputs],
        "attributes": {name: attribute(a) for name, a in sorted(schema.attributes.items())},
        "types": {t.type_param_str: sorted(t.allowed_type_strs) for t in schema.type_constraints},
    }


def attribute(described: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": described.type.name}
    if described.required:
        found["required"] = True
    if described._default_value:
        proto = onnx.AttributeProto.FromString(described._default_value)
        value = helper.get_attribute_value(proto)
        found["default"] = value.decode() if isinstance(value, bytes) else value
    return found


def contradictions(ours: dict[str, Any], theirs: dict[str, Any]) -> list[Any]:
    """What the table says of an operator and the registry does not. A newer onnxruntime adds to what is there: inputs
    and outputs behind the others, attributes, types."""
    found = []
    for kind in ("inputs", "outputs"):
        for mine, other in itertools.zip_longest(ours[kind], theirs[kind][: len(ours[kind])]):
            types = [set(schema["types"].get(f[1], [f[1]])) for schema, f in ((ours, mine), (theirs, other)) if f]
            if not other or [mine[0], *mine[2:]] != [other[0], *other[2:]] or not types[0] <= types[1]:
                found.append((mine, other))
    return found + [(name, a) for name, a in ours["attributes"].items() if theirs["attributes"].get(name) != a]


def test_the_table_says_what_the_registry_says():
    # The installed onnxruntime may be older or newer than the one that wrote the table, and lack or add operators.
    theirs = {s["name"]: s for s in registry()}
    ours = {s["name"]: s for s in json.loads(TABLE.read_text())}
    common = ours.keys() & theirs.keys()
    assert len(common) > 120
    assert not {name: found for name in common if (found := contradictions(ours[name], theirs[name]))}


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["inputs"].append(["more", "T", "Optional", True]),
        lambda s: s["inputs"][0].__setitem__(2, "Optional"),
        lambda s: s["types"]["T"].append("tensor(int4)"),
        lambda s: s["attributes"]["alpha"].__setitem__("default", 2.0),
        lambda s: s["attributes"].__setitem__("beta", {"type": "FLOAT"}),
    ],
)
def test_a_wrong_table_is_seen(change):
    ours = next(s for s in registry() if s["name"] == "QuickGelu")
    assert not contradictions(ours, ours)
    wrong = copy.deepcopy(ours)
    change(wrong)
    assert contradictions(wrong, ours)


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(row) for row in registry())
    with open(str(TABLE), "w") as file:
        file.write(f"[\n{lines}\n]\n")
