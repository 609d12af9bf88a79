"""What several passes ask about primitives."""

import importlib
import pkgutil

import jaxops
from jaxops.compiler.primitives import ELEMENTWISE
from jaxops.kernels.named_call import NamedCall


def test_named_calls_are_elementwise_as_they_are_marked():
    calls = set()
    for folder in ("kernels", "ops", "compiler"):
        for info in pkgutil.walk_packages([f"{jaxops.__path__[0]}/{folder}"], f"jaxops.{folder}."):
            module = importlib.import_module(info.name)
            calls.update(value for value in vars(module).values() if isinstance(value, NamedCall))
    assert len(calls) > 10
    assert {call.name for call in calls if call.elementwise} == ELEMENTWISE & {call.name for call in calls}
