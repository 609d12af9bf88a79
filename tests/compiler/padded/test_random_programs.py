"""Random programs do not depend on surplus elements, whatever stands there.

Where a value is marked as zeroed, its surplus is looked at. Elsewhere the surplus of every intermediate array is
overwritten, with NaN and then with 1e30, or with extreme integers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_padded_programs import LARGEST, LEAST, numbers, random_padded_program
from spoiled_surplus import spoiled_surplus

from jaxops.compiler.padded import interpreter, rules
from jaxops.compiler.padded.values import Capacity, Padded
from jaxops.errors import UnsupportedError

FEW, ALL, PART = 300, 5000, 25


def problem(seed):
    """Returns what is wrong with a random program on padded arrays; empty if its values are those of exact sizes."""
    program, rng = random_padded_program(seed), np.random.default_rng(seed)
    closed = jax.make_jaxpr(program.run)(*program.inputs)
    true = {name: int(rng.integers(LEAST, LARGEST - 1)) for name in "st"}
    exact = [rng.integers(-4, 5, numbers(x.shape, true)).astype(x.dtype) for x in program.inputs]
    rooms = [{name: int(rng.integers(n, LARGEST)) for name, n in true.items()}, dict.fromkeys("st", LARGEST)]

    @jax.jit
    def run(inputs, sizes, other):
        found = []
        for largest in rooms:
            capacity = Capacity(sizes, largest, {size: numbers(size, largest) + 1 for size in program.reserved})
            rooms_of = [[capacity.of(d) for d in x.shape] for x in program.inputs]
            arrays = [
                jnp.pad(x, [(0, more - n) for more, n in zip(room, x.shape, strict=True)])
                for x, room in zip(inputs, rooms_of, strict=True)
            ]
            with spoiled_surplus(other):
                found.append([x.array for x in interpreter.run_padded(closed, arrays, capacity)])
        return program.run(*inputs, at=lambda sizes: numbers(sizes, true)), found

    sizes = {name: np.int32(n) for name, n in true.items()}
    try:
        runs = [run(exact, sizes, np.bool_(other)) for other in (False, True)]
    except UnsupportedError as error:
        return str(error)
    for other, ((steps, ends), found) in enumerate(runs):
        for room, results in zip(rooms, found, strict=True):
            for k, (got, want) in enumerate(zip(results, [*steps, *ends], strict=True)):
                want = np.asarray(want)
                got = np.asarray(got)[tuple(map(slice, want.shape))]
                tolerance = 0 if k < len(steps) else 1e-4
                if not np.allclose(got, want, tolerance, tolerance, equal_nan=True):
                    return f"result {k} is wrong for {true} in {room}, with {'1e30' if other else 'NaN'} behind"
    return ""


def pytest_generate_tests(metafunc):
    if "first" in metafunc.fixturenames:
        metafunc.parametrize("first", range(0, ALL if metafunc.config.getoption("all") else FEW, PART))


@jax.enable_checks(False)  # they take as long as the programs
def test_same_as_with_exact_sizes(first):
    assert {seed: found for seed in range(first, first + PART) if (found := problem(seed))} == {}


def a_slice_that_counts_as_zeroed(x, axis, start, size, capacity, step=1):
    return Padded(SLICED(x, axis, start, size, capacity, step).array, x.zeroed)


SLICED = rules._sliced
# What is planted: how, and a program that finds it.
PLANTED = {
    "a slice counts as zeroed": (lambda patch: patch.setattr(rules, "_sliced", a_slice_that_counts_as_zeroed), 1),
    "a crop counts as zeroed": (lambda patch: patch.setattr(rules, "_is_at_least", lambda *_: True), 19),
    "a sum counts as zeroed": (lambda patch: patch.setattr(interpreter, "_KEEPS_ZEROS", {"add", "sub"}), 0),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name, monkeypatch):
    plant, seed = PLANTED[name]
    plant(monkeypatch)
    assert "is wrong" in problem(seed)
