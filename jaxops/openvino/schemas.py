"""The contract of each operation at each opset, from `opsets.json`.

The file has two tables.
classes   an operation as one opset introduced it, such as Gather-8
  inputs      "name: type", with ? for an optional input and * for any number of inputs
  outputs     their types
  attributes  "name: kind = default", with / between the permitted words; ? for an optional one without a default; one
              with neither is required. Names are those of files, with _ for -
  types       the types that its type variables permit
opsets    the classes that each opset lists, which need not include those of earlier opsets
"""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from jaxops.dtypes import canonical
from jaxops.errors import ArgumentError, ModelError, UnsupportedError, near
from jaxops.frontend.schema import Attribute, Formal, Option, Schema
from jaxops.openvino import texts
from jaxops.openvino.element_types import TYPES, element_type, name_of
from jaxops.static import is_symbolic

FLOATS = ("f32", "f16", "bf16", "f64")
INDEX = ("i64", "i32")
_INTEGERS = (*INDEX, "i16", "i8", "u64", "u32", "u16", "u8", "i4", "u4")
# Names for several element types.
_GROUPS: dict[str, tuple[str, ...]] = {
    "any": tuple(TYPES),
    "num": (*FLOATS, *_INTEGERS),
    "float": FLOATS,
    "int": _INTEGERS,
    "index": INDEX,
    "bits": (*_INTEGERS, "boolean"),
}
EVERY_TYPE = frozenset(TYPES)
EVERY_NUMBER = EVERY_TYPE - {"string"}
# Types that files of old exporters have under the name of an extension, or of an opset that does not list them.
_DETECTRON = (
    "DetectionOutput",
    "GenerateProposalsSingleImage",
    "PriorGridGenerator",
    "ROIFeatureExtractor",
    "TopKROIs",
)
_IN_EXTENSIONS = {"grucell", "rnncell", "proposal", *(f"experimentaldetectron{name.lower()}" for name in _DETECTRON)}
_IN_OPSET_1 = {"mvn", "roipooling", "reorgyolo"}


class OpenVinoSchema(Schema):
    """An operation as one opset introduced it."""

    cast = "Convert"

    def type_names(self, value: Any) -> Sequence[str]:
        """Returns the names of types that fit a value; while x64 is off, a 32-bit type may stand for 64 bits, too."""
        if is_symbolic(value):
            return ("i64", "i32", "u64", "u32")
        if value.dtype.kind in "OUST":
            return ("string",)
        return _names(value.dtype, not isinstance(value, np.ndarray | np.generic))

    def listing(self, types: Iterable[str]) -> str:
        """Returns names of types as a message lists them."""
        return ", ".join(sorted(types))

    def element_types(self, types: Iterable[str]) -> frozenset[np.dtype]:
        """Returns the element types with some names."""
        return frozenset(TYPES[name].dtype for name in types)

    def element_type(self, value: Any) -> np.dtype | None:
        """Returns the element type that an attribute names; None if there is no such type."""
        if isinstance(value, str):
            return TYPES[value].dtype if value in TYPES else None
        try:
            return np.dtype(value)
        except TypeError:
            return None

    def check_kind(self, attribute: Attribute, value: Any) -> None:
        """Raises ArgumentError for a value that is not of the kind of the attribute."""
        kind = _KINDS.get(attribute.kind)
        items = value if attribute.kind in _LISTS else (value,)
        fits = isinstance(items, tuple | list | np.ndarray) and (
            kind is None or all(issubclass(python_type, kind.types) for python_type in set(map(type, items)))
        )
        if not fits or (attribute.kind != "bool" and isinstance(value, bool)):
            raise ArgumentError(
                f"{self.name}-{self.since}: attribute `{attribute.name}` is {value!r:.80}; it must be of kind "
                f"{attribute.kind}"
            )


class _Kind(NamedTuple):
    """A kind of attribute: the Python types of its values, and a function that reads them from text."""

    types: tuple[type, ...]
    read: Any


_WORD = _Kind((str,), texts.word)
_KINDS = {
    "int": _Kind((int, np.integer), texts.integer),
    "float": _Kind((float, int, np.floating, np.integer), texts.number),
    "bool": _Kind((bool, np.bool_), texts.boolean),
    "string": _Kind((str,), lambda text, _: text),
    "word": _WORD,
    "ints": _Kind((int, np.integer), texts.integer),
    "floats": _Kind((float, int, np.floating, np.integer), texts.number),
    "strings": _WORD,
}
_LISTS = {"ints", "floats", "strings"}


@functools.cache
def _names(dtype: np.dtype, may_be_64: bool) -> tuple[str, ...]:
    name = name_of(dtype)
    if dtype == np.float32:
        names: tuple[str, ...] = ("f32", "nf4")
    elif dtype == np.uint8:
        names = ("u8", "u1", "u2", "u3", "u6")
    else:
        names = (name,)
    wide = {"f32": "f64", "i32": "i64", "u32": "u64"}.get(name)
    return (*names, wide) if wide and may_be_64 and canonical(np.int64) != np.int64 else names


@functools.cache
def _tables() -> tuple[Mapping[str, Any], Mapping[int, Mapping[str, str]]]:
    """Returns (class → its entry, opset → type in lower case → class)."""
    data = json.loads(resources.files("jaxops.openvino").joinpath("opsets.json").read_text("utf-8"))
    opsets = {
        int(opset): {name.rpartition("-")[0].lower(): name for name in names.split()}
        for opset, names in data["opsets"].items()
    }
    return data["classes"], opsets


@functools.cache
def newest_opset() -> int:
    """Returns the newest opset."""
    return max(_tables()[1])


def operations(opset: int) -> list[str]:
    """Returns the types that an opset lists."""
    return sorted(name.rpartition("-")[0] for name in _tables()[1][opset].values())


def classes() -> list[str]:
    """Returns all classes, such as Gather-8."""
    return list(_tables()[0])


# The number of an opset has fewer digits; Python reads no number of thousands.
_LONGEST_NUMBER = 9


@functools.cache
def opset_of(version: str, op_type: str, subject: str = "") -> int:
    """Returns the opset that a layer's version names.

    Raises UnsupportedError, which begins with `subject` or the type, for an unknown extension or opset.
    """
    lowered = op_type.lower()
    if version in ("experimental", "extension") and lowered in _IN_EXTENSIONS:
        return 6
    number = version.removeprefix("opset")
    if version == number or not (number.isascii() and number.isdigit()):
        raise UnsupportedError(f"{subject or op_type}: jaxops knows no operations of '{version}'")
    if len(number) > _LONGEST_NUMBER or int(number) not in _tables()[1]:
        raise UnsupportedError(f"{subject or op_type}: {version:.20}: jaxops knows opsets 1 to {newest_opset()}")
    return 2 if number == "1" and lowered in _IN_OPSET_1 else int(number)


@functools.cache
def find_schema(op_type: str, opset: int) -> OpenVinoSchema:
    """Returns the operation of a type, in any case, in an opset. Raises UnsupportedError if the opset lacks it."""
    table, every = _tables()
    lowered = "constant" if op_type.lower() == "const" else op_type.lower()
    name = every[opset].get(lowered)
    if name is None:
        having = [number for number in sorted(every) if lowered in every[number]]
        if not having:
            similar = near(op_type, sorted({name.rpartition("-")[0] for name in table}))
            raise UnsupportedError(f"{op_type}: OpenVINO has no such operation{similar}")
        raise UnsupportedError(
            f"{op_type}: opset {opset} does not list it; the newest opset that has it is {having[-1]}"
        )
    return _schema(name)


@functools.cache
def _schema(name: str) -> OpenVinoSchema:
    entry = _tables()[0][name]
    op_type, _, since = name.rpartition("-")
    variables = {variable: _types(text) for variable, text in entry.get("types", {}).items()}
    outputs = [f"output{i or ''}: {text}" for i, text in enumerate(entry["outputs"])]
    attributes = [_attribute(text) for text in entry.get("attributes", ())]
    return OpenVinoSchema(
        op_type,
        int(since),
        tuple(_formal(text, variables) for text in entry["inputs"]),
        tuple(_formal(text, variables) for text in outputs),
        {attribute.name: attribute for attribute in attributes},
    )


def _types(text: str) -> frozenset[str]:
    return frozenset(_GROUPS.get(text, (text,)))


def _formal(text: str, variables: Mapping[str, frozenset[str]]) -> Formal:
    name, kind = text.split(": ")
    option: Option = "optional" if kind[-1] == "?" else "variadic" if kind[-1] == "*" else "single"
    kind = kind.rstrip("?*")
    types = variables.get(kind) or _types(kind)
    # A group of types, unlike a type variable, does not force two operands to have one type.
    return Formal(name, kind, types, option, least=0 if kind == "any" else 1, homogeneous=kind in variables)


def _attribute(text: str) -> Attribute:
    declared, has_default, default = text.partition(" =")
    name, kind = declared.split(": ")
    words = tuple(kind.split("/")) if "/" in kind or kind not in _DECLARED else ()
    kind, optional = ("word", False) if words else (kind.rstrip("?"), kind.endswith("?"))
    required = not has_default and not optional
    value = (
        read_attribute(Attribute(name, kind, words=words), default.strip().strip("[]"), name) if has_default else None
    )
    return Attribute(name, kind, required, value, words, several=kind in _LISTS)


_DECLARED = {f"{kind}{mark}" for kind in (*_KINDS, "type", "graph") for mark in ("", "?")}


def read_attribute(attribute: Attribute, text: str, subject: str) -> Any:
    """Returns the value of an attribute from its text. Raises ModelError, which begins with `subject`."""
    if attribute.kind == "type":
        return element_type(text, subject) and text.lower()
    if attribute.kind in _LISTS:
        return texts.listed(text, _KINDS[attribute.kind].read, subject)
    value = _KINDS[attribute.kind].read(text, subject)
    if not attribute.words:
        return value
    chosen = next((word for word in attribute.words if word.lower() == value.lower()), None)
    if chosen is None:
        raise ModelError(f"{subject} is {text!r:.40}; it must be one of {', '.join(attribute.words)}")
    return chosen
