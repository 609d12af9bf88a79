"""The options of `load`, which every front end takes."""

import inspect
import warnings

import pytest
from graphs import model

from jaxops.errors import ArgumentError
from jaxops.frontend.loading import Options
from jaxops.model import Model
from jaxops.onnx import load

PROTO = model("m (float[N] x) => (float[N] y) { y = Relu(x) }")


def test_the_signature_and_the_docstring_have_all_options():
    signature = inspect.signature(load)
    names = list(signature.parameters)
    assert names == ["model", *Options.__annotations__, "external_data"]
    assert signature.parameters["x64"].default == "auto"
    assert signature.parameters["sizes"].default is None
    assert signature.return_annotation is Model
    assert load.__name__ == "load"
    assert "{options}" not in load.__doc__
    assert all(f"{name}: " in load.__doc__ or f"{name}, " in load.__doc__ for name in names)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: load(PROTO, size={}), TypeError, r"^load\(\) got an unexpected keyword argument 'size'$"),
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
