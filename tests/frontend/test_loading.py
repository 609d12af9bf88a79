"""The options of `load`, which every front end takes."""

import inspect
import re
import warnings

import jax
import pytest
from graphs import model

import jaxops.onnx
import jaxops.openvino
from jaxops.errors import ArgumentError
from jaxops.frontend.options import DEFAULTS, Options
from jaxops.model import Model
from jaxops.onnx import load
from jaxops.sharding import data_parallel

PROTO = model("m (float[N] x) => (float[N] y) { y = Relu(x) }")


def test_the_signature_and_the_docstring_have_all_options():
    signature = inspect.signature(load)
    names = list(signature.parameters)
    assert names == ["model", *Options.__annotations__, "external_data"]
    assert {name: signature.parameters[name].default for name in Options.__annotations__} == DEFAULTS
    assert signature.return_annotation is Model
    assert load.__name__ == "load"
    assert "{options}" not in load.__doc__


@pytest.mark.parametrize("load", [load, jaxops.openvino.load])
def test_help_shows_types_by_their_names(load):
    text = str(inspect.signature(load))
    assert text.startswith("(model: Readable, *, inputs: Sequence[str] | None = None, outputs: ")
    assert "static: Choice | None = None" in text
    assert "names: Literal['file', 'module'] = 'file'" in text.replace('"', "'")
    assert not re.search("typing|collections|ForwardRef", text)


@pytest.fixture
def layers():
    """A model in which each example of the docstring means something."""
    text = "m (float[sequence, 2] x, float[width] z, int64 sr) => (float[sequence, 2] features, int64[2, K] at) "
    text += "<float[2, 2] table = {1, 2, 3, 4}, float[2] scale = {1, 2}> { embedding = MatMul(x, table) "
    text += "a = Relu(embedding) b = Relu(a) features = Mul(b, scale) at = NonZero(features) }"
    proto = model(text)
    names = ("/attn/q_proj/MatMul", "/layer.0/Relu", "/layer.1/Relu")
    for node, name in zip(proto.graph.node, names, strict=False):
        node.name = name
    return proto


@pytest.mark.parametrize("front_end", [jaxops.onnx, jaxops.openvino])
def test_help_lists_each_option_with_an_example_and_a_sentence(front_end, layers, monkeypatch):
    monkeypatch.setattr("jaxops.frontend.loading.keep_programs", lambda folder: None)  # the folder is that of a process
    lines = [re.fullmatch(r"((\w+)=.+?)  +[A-Z].*\.", line.strip()) for line in front_end.load.__doc__.splitlines()]
    examples = {line[2]: line[1] for line in lines if line}
    assert list(examples) == list(Options.__annotations__)
    for name, text in examples.items():
        option = eval(f"dict({text})", {"data_parallel": data_parallel, "fn": abs})
        assert option[name] != DEFAULTS[name]
        if name == "training":  # the file has no operator that trains
            with pytest.raises(ArgumentError, match="no BatchNormalization and no Dropout"):
                load(layers, **option)
            continue
        with jax.set_mesh(jax.make_mesh((1,), ("devices",))):
            assert load(layers, **option).outputs


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: load(PROTO, size={}), TypeError, r"^load\(\) got an unexpected .* 'size'; similar: 'sizes'$"),
        (lambda: load(), TypeError, r"^load\(\) missing 1 required positional argument: 'model'$"),
        (lambda: load(PROTO, {}), TypeError, r"^load\(\) takes 1 positional argument but 2 were given$"),
        (lambda: load(PROTO, x64=None), ArgumentError, "`x64` is None; it must be 'auto', True or False"),
    ],
)
def test_what_load_does_not_take(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_warning_about_the_file_names_the_line_that_loads_it():
    text = "m (float[1,1,2,2] x, int64[1,1,2,2] i, int64[4] s) => (float[1,1,5,5] y) "
    text += "{ y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i, s) }"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load(model(text))
    assert [w.filename for w in caught if "MaxUnpool" in str(w.message)] == [__file__]
