"""The guards that make "the newest adapter not above the model's opset" safe, against the whole history of ONNX."""

import inspect
from typing import Any

import numpy as np
import pytest
from onnx import defs

from jaxops import ops
from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.frontend.signature_operator import RESERVED
from jaxops.onnx import registry
from jaxops.onnx.registry import Operator, function
from jaxops.onnx.schemas import element_type, find_schema, newest_opset, operators, schema_of, versions
from jaxops.signature import (
    ALL_BITS,
    CACHE,
    ELEMENT_TYPE,
    LOWER_BOUND,
    ROLES,
    UPPER_BOUND,
    Bias,
    Static,
    StaticInts,
    like,
    marks as marks_of,
    operand_marks,
    operator as with_traits,
    traits,
)


def split_parameters(fn, inputs):
    """The parameters that are inputs, and by name those that attributes fill."""
    parameters = list(inspect.signature(fn).parameters.values())
    positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY][:inputs]
    return positional, {p.name: p for p in parameters if p not in positional}


def plain(name):
    return name.lower().replace("_", "")


def misfits(operator):
    """What of a version's inputs and attributes the function chosen for it does not take as they are."""
    schema = operator.schema
    positional, keywords = split_parameters(operator.fn, len(schema.inputs))
    if len(positional) < len(schema.inputs):
        return [f"takes {len(positional)} inputs of {len(schema.inputs)}"]
    found = []
    for position, (formal, parameter) in enumerate(zip(schema.inputs, positional, strict=False)):
        # Split-1 has an input and an attribute of one name; a variadic input is one parameter, of any name.
        # The binary operators of opset 1 share one adapter, whose operands are `a` and `b`.
        ours = formal.option == "variadic" or formal.name in schema.attributes or operator.version == "Pow-1"
        if not ours and plain(parameter.name) != plain(formal.name):
            found.append(f"input {formal.name} is named {parameter.name}")
        # One before a variadic input arrives as None.
        last = all(p.default is not p.empty for p in positional[position + 1 :])
        if formal.option == "optional" and last and parameter.default is not None:
            found.append(f"optional input {formal.name} has not the default None")
    attributes = {name for name, attribute in schema.attributes.items() if not attribute.ignored}
    found += [f"does not take attribute {name}" for name in sorted(attributes - set(keywords))]
    for name, parameter in keywords.items():
        if name not in attributes | RESERVED and parameter.default is parameter.empty:
            found.append(f"needs {name}, which the version does not have")
    return found


# An adapter need not say these again: they are read off the newest function, by position.
INHERITED = {CACHE, ALL_BITS, LOWER_BOUND, UPPER_BOUND, *ROLES}


def wrong_marks(adapter, fn):
    """Operands that only one of the two wants static, or only the sizes of; `traits` where the adapter has its own."""
    inputs = [p for p in inspect.signature(adapter).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    theirs = inspect.signature(fn).parameters
    both = ((p.name, (p.annotation, theirs.get(p.name, p).annotation)) for p in inputs)
    marks = {name: [{*marks_of(a)} for a in pair] for name, pair in both}
    found = [name for name, (one, other) in marks.items() if not one <= other or other - one - INHERITED]
    return found + (["traits"] if hasattr(adapter, "traits") and traits(adapter) != traits(fn) else [])


def misplaced_marks(operator):
    """Inputs of a version at whose position the newest function has another operand, with a mark for that one."""
    names = [p.name for p in inspect.signature(operator.function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    return [
        formal.name
        for position, formal in enumerate(operator.schema.inputs)
        if formal.option != "variadic" and INHERITED.intersection(operand_marks(operator.function, position))
        if position >= len(names) or not plain(names[position]).endswith(plain(formal.name))
    ]


# Attributes whose default stands in the text of the standard alone: a fill of float zero, float, no words.
IN_THE_TEXT = {("ConstantOfShape", "value"), ("SequenceEmpty", "dtype"), ("StringNormalizer", "stopwords")}
# What onnxruntime asks for, though its registry does not say so; and a size of Crop that `border` may replace.
IN_THE_TEXT |= {("ImageScaler", "bias"), ("Crop", "border"), ("Crop", "scale")}
IN_THE_TEXT |= {(name, factor) for name in ("ParametricSoftplus", "ScaledTanh") for factor in ("alpha", "beta")}

# Defaults that com.microsoft states in its text, or has in its kernel, only; -1 is no token.
MICROSOFT = {
    "beginning_timestamp_token_id": -1,
    "decoder_output_cross_qk": 0,
    "do_rotary": 0,
    "interleaved": 0,
    "is_packed_batching": 0,
    "kv_cache_bit_width": 0,
    "mask_filter_value": -10000.0,
    "mrope_layout": 0,
    "no_speech_token_id": -1,
    "no_timestamps_token_id": -1,
    "num_heads": 0,
    "output_qk": 0,
    "past_present_share_buffer": 0,
    "rotary_embedding_dim": 0,
    "rotary_interleaved": 0,
    "softcap": 0.0,
    "start_of_lm_token_id": -1,
    "transcribe_token_id": -1,
    "translate_token_id": -1,
}


def wrong_defaults(schema, fn):
    """Attributes whose default in the function is not that of the schema."""
    parameters = inspect.signature(fn).parameters
    found = []
    for name, attribute in schema.attributes.items():
        parameter = parameters.get(name)
        default = parameter.default if parameter else inspect.Parameter.empty
        wanted = inspect.Parameter.empty if attribute.required else attribute.default
        if parameter and isinstance(wanted, int) and ELEMENT_TYPE in marks_of(parameter.annotation):
            wanted = element_type(wanted)
        if isinstance(wanted, float) and isinstance(default, float):
            default = float(np.float32(default))  # as the schema stores it
        said = schema.domain == "com.microsoft" and wanted is None and name in MICROSOFT and default == MICROSOFT[name]
        if default != wanted and not said:
            found.append(f"{name}: {default!r}, not {wanted!r}")
    return found


def supported():
    for domain in registry.DOMAINS:
        for name in operators(domain):
            for since in versions(name, domain):
                try:
                    operator = registry.find(name, domain, since)
                except UnsupportedError:
                    continue
                if operator.fn is not None:
                    yield pytest.param(operator, id=f"{domain}.{operator.version}".lstrip("."))


OPERATORS = list(supported())
NEWEST = [
    schema
    for domain in registry.DOMAINS
    for name in operators(domain)
    if function(name, domain)
    if not (schema := find_schema(name, domain, newest_opset(domain))).deprecated
]
ADAPTED = sorted(registry.adapters())


def test_there_is_something_to_guard():
    assert len(OPERATORS) > 450
    assert len(NEWEST) > 100


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_counts_of_the_schema_are_those_of_onnx(operator):
    proto, most = operator.schema.proto, 2**31 - 1
    counts = [
        (least, most if count is None else count)
        for least, count in (operator.schema.input_counts, operator.schema.output_counts)
    ]
    assert counts == [(proto.min_input, proto.max_input), (proto.min_output, proto.max_output)]


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_function_takes_the_inputs_and_attributes_of_the_version(operator):
    assert misfits(operator) == []


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_marks_of_the_newest_function_are_those_of_the_version(operator):
    assert misplaced_marks(operator) == []


@pytest.mark.parametrize(("domain", "name"), ADAPTED)
def test_each_since_is_a_version_and_the_first_is_covered(domain, name):
    history = versions(name, domain)
    assert set(registry.adapters()[domain, name]) <= set(history)
    assert min(registry.adapters()[domain, name]) == min(history)


@pytest.mark.parametrize(("domain", "name"), ADAPTED)
def test_adapters_have_names(domain, name):
    assert all(fn.__name__.strip("_") for fn in registry.adapters()[domain, name].values())


@pytest.mark.parametrize(("domain", "name"), [(domain, name) for domain, name in ADAPTED if function(name, domain)])
def test_the_marks_of_the_adapters_agree_with_the_function(domain, name):
    for since, adapter in registry.adapters()[domain, name].items():
        assert wrong_marks(adapter, function(name, domain)) == [], since


def test_an_adapter_has_the_signature_of_its_function_but_for_what_it_names():
    def fn(x, w: Bias[Any], b=None, *, axis: int = 1, mode: str = "a", layout: int = 0): ...

    @like(fn, without=["layout"])
    def adapter(*inputs, mode: int, n_outputs: int, **attributes): ...

    names = {name: (p.kind.name, p.default) for name, p in inspect.signature(adapter).parameters.items()}
    empty = inspect.Parameter.empty
    inputs = {name: ("POSITIONAL_OR_KEYWORD", default) for name, default in (("x", empty), ("w", empty), ("b", None))}
    attributes = {
        name: ("KEYWORD_ONLY", default) for name, default in (("mode", empty), ("n_outputs", empty), ("axis", 1))
    }
    assert names == inputs | attributes
    assert operand_marks(adapter, 1) == operand_marks(fn, 1)
    assert inspect.signature(adapter).parameters["mode"].annotation is int


@pytest.mark.parametrize("schema", NEWEST, ids=lambda s: s.name)
def test_the_defaults_of_the_function_are_those_of_the_newest_version(schema):
    found = wrong_defaults(schema, function(schema.name, schema.domain))
    assert [p for p in found if (schema.name, p.partition(":")[0]) not in IN_THE_TEXT] == []


def test_numbers_and_names_of_element_types_become_dtypes():
    assert registry.find("Cast", "", 5).complete({"to": "FLOAT16"})["to"] == np.float16
    assert registry.find("Cast", "", 28).complete({"to": 7})["to"] == np.int64
    assert registry.find("LayerNormalization", "", 17).complete({})["stash_type"] == np.float32
    with pytest.raises(ArgumentError, match="LayerNormalization-17: `stash_type` is 99, which is not an element type"):
        registry.find("LayerNormalization", "", 17).complete({"stash_type": 99})


# What follows shows that each guard can fail.


def _split(input, split: StaticInts = None, *, axis, n_outputs): ...


def _wrong_name(input, lengths: Static = None, *, axis, n_outputs): ...


def _wrong_option(input, split: Static, *, axis, n_outputs): ...


def _wrong_attribute(input, split: Static = None, *, ax, n_outputs): ...


def _wrong_need(input, split: Static = None, *, axis, n_outputs, num_outputs): ...


def _wrong_count(input, *, axis, n_outputs): ...


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [
        (_split, []),
        (_wrong_name, ["input split is named lengths"]),
        (_wrong_option, ["optional input split has not the default None"]),
        (_wrong_attribute, ["does not take attribute axis", "needs ax, which the version does not have"]),
        (_wrong_need, ["needs num_outputs, which the version does not have"]),
        (_wrong_count, ["takes 1 inputs of 2"]),
    ],
)
def test_a_wrong_adapter_is_caught(adapter, expected):
    assert misfits(Operator(schema_of(defs.get_schema("Split", 13)), adapter)) == expected


def test_a_wrong_adapter_is_caught_once_it_is_registered(monkeypatch):
    monkeypatch.setitem(registry.VERSIONS.table, ("", "Split"), dict(registry.adapters()["", "Split"]))
    registry.version("Split", 12)(_wrong_name)
    with pytest.raises(AssertionError):
        test_each_since_is_a_version_and_the_first_is_covered("", "Split")
    registry.version("Split", 12)(_wrong_attribute)  # whose `split` need not be 1-D
    with pytest.raises(AssertionError):
        test_the_marks_of_the_adapters_agree_with_the_function("", "Split")
    registry.version("Split", 13)(_wrong_name)
    with pytest.raises(AssertionError):
        test_the_function_takes_the_inputs_and_attributes_of_the_version(registry.find.__wrapped__("Split", "", 13))


def test_a_wrong_mark_is_caught():
    def wrong(input: Bias[Any], split=None): ...

    @with_traits(grows=True)
    def another(input, split: StaticInts = None): ...

    def conv(x, w, b=None): ...

    assert wrong_marks(_split, ops.split) == []
    assert wrong_marks(wrong, ops.split) == ["input", "split"]
    assert wrong_marks(another, ops.split) == ["traits"]
    assert wrong_marks(conv, ops.conv) == []  # the roles of its operands are those of the function


def test_a_mark_at_a_wrong_position_is_caught(monkeypatch):
    operator = Operator(schema_of(defs.get_schema("Conv", 22)), ops.conv)
    assert misplaced_marks(operator) == []
    monkeypatch.setattr(operator, "function", ops.batch_normalization)
    assert misplaced_marks(operator) == ["W"]


def test_a_wrong_default_is_caught():
    def wrong(input, *, axis=0): ...

    def absent(input): ...

    schema = schema_of(defs.get_schema("Flatten", 25))
    assert wrong_defaults(schema, ops.flatten) == []
    assert wrong_defaults(schema, wrong) == ["axis: 0, not 1"]
    assert wrong_defaults(schema, absent) == ["axis: <class 'inspect._empty'>, not 1"]


def test_an_attribute_that_nobody_reads_is_refused():
    operator = Operator(schema_of(defs.get_schema("Reshape", 14)), lambda data, shape: data)
    with pytest.raises(UnsupportedError, match="Reshape-14: jaxops does not implement the attribute `allowzero`"):
        operator.complete({"allowzero": 1})
