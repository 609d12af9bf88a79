"""Exception classes and the layout of messages."""

import inspect
import pickle
import re
import tomllib
from contextlib import ExitStack
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxops as jo
from jaxops import JaxopsError, errors
from jaxops.signature_errors import errors_of

X = np.ones((2, 3), np.float32)

BUILTINS = {
    "ShapeError": (ValueError,),
    "AxisError": (ValueError, IndexError),
    "BoundsError": (IndexError,),
    "ArgumentError": (ValueError,),
    "DTypeError": (TypeError,),
    "StaticError": (TypeError,),
    "SignatureError": (TypeError,),
    "OutOfRangeError": (OverflowError,),
    "UnsupportedError": (NotImplementedError,),
    "ModelError": (ValueError,),
    "PathError": (FileNotFoundError,),
    "ExistsError": (FileExistsError,),
}
CLASSES = {n: c for n, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == "jaxops.errors"}


@pytest.mark.parametrize("name", BUILTINS)
def test_class(name):
    cls = getattr(errors, name)
    assert issubclass(cls, (JaxopsError,))
    assert all(issubclass(cls, base) for base in BUILTINS[name])
    assert cls.__doc__


def test_every_class_has_a_builtin_to_be_caught_by():
    for name, cls in CLASSES.items():
        assert name == "JaxopsError" or any(
            b.__module__ == "builtins" and b is not Exception for b in cls.__mro__[1:-3]
        )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros((2, 3), np.float32), "float32[2,3] [[0. 0. 0.]\n [0. 0. 0.]]"),
        (np.zeros((3, 3), np.float32), "float32[3,3]"),
        (np.array(3), "int64[] 3"),
        (np.float16(2), "float16[] 2."),
        (jnp.zeros((2, 3)), "float32[2,3]"),
        (jnp.zeros((), jnp.int4), "int4[]"),
        ([jnp.zeros(2), np.zeros(3)], "a sequence of 2 arrays"),
        ((1, 2), "(1, 2)"),
        ("text", "'text'"),
        (None, "None"),
        (7, "7"),
    ],
)
def test_describe(value, text):
    assert errors.describe(value) == text


def test_describe_a_tracer():
    seen = []
    jax.jit(lambda x: seen.append(errors.describe(x)))(jnp.zeros((2, 3)))
    assert seen == ["float32[2,3]"]


def test_message():
    text = errors.message("`shape` is wrong", shape=(2, -2), data=jnp.zeros(4), hint="use another")
    assert text.splitlines() == [
        "`shape` is wrong",
        "  shape   (2, -2)",
        "  data    float32[4]",
        "  hint    use another",
    ]
    assert errors.message("problem") == "problem"
    # A long name does not run into what follows.
    assert errors.message("problem", num_outputs=2).splitlines()[1] == "  num_outputs 2"


def of_call(call):
    """The error that a call raises."""
    with pytest.raises(JaxopsError) as caught:
        call()
    return caught.value


NAMED = {
    "slice": lambda: jo.slice(np.zeros(3), (0,), (1, 2)),  # by its own check
    "squeeze": lambda: jo.squeeze(np.zeros(3), (7,)),  # by one of attributes
    "expand": lambda: jo.expand(np.zeros(3), (2,)),  # by one of sizes
    "gather": lambda: jo.gather(X, np.array(0), axis=None),  # by its signature
    "reshape": lambda: jo.if_(np.array(True), lambda: [jo.reshape(X, (7,))], lambda: [X]),  # in a caller's function
    "relu": lambda: jax.jit(lambda x: jo.relu(x > 0))(X),
    "split_to_sequence": lambda: jo.split_to_sequence(X, [1, 2]),  # in a function of another operator
}


@pytest.mark.parametrize("op", NAMED)
def test_errors_name_the_operator_once(op):
    error = of_call(NAMED[op])
    assert str(error).startswith(f"{op}: ")
    assert str(error).count(f"{op}: ") == 1
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_innermost_name_stays():
    for names, text in ((["inner", "outer"], "inner: problem"), (["", "outer"], "problem"), ([], "problem")):

        def fails(names=names):
            with ExitStack() as stack:
                for name in reversed(names):
                    stack.enter_context(errors_of(name))
                raise errors.ShapeError("problem")

        assert str(of_call(fails)) == text


def test_errors_of_a_size_that_depends_on_data_spell_the_call():
    error = of_call(lambda: jax.jit(jo.nonzero)(X))
    assert "nonzero(…, size=n) returns n columns" in str(error)


ROOT = Path(__file__).parents[1]
SOURCES = "\n".join(path.read_text() for path in (ROOT / "jaxops").rglob("*.py"))


def test_what_to_install_names_an_extra_of_jaxops():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"install\('(\w+)'\)", SOURCES)) == {"onnx", "image", "plot"} <= set(extras)
    assert "pip install 'jaxops" not in SOURCES  # no package index has it


def test_long_strings_are_cut():
    assert errors.describe(np.array(["a" * 10**6, "b"], object)) == f"object[2] ['{'a' * 40}'… 'b']"
    assert errors.describe(np.array(["a" * 99])) == f"str3168[1] ['{'a' * 40}'…]"
