"""Random programs, with every threshold at its least: each entry of the pipeline, alone and together with all, computes
what the plain program does, and wrong passes are found."""

import contextlib
import dataclasses
from collections import Counter

import jax
import numpy as np
import pytest
from jax import lax
from programs import TARGET
from random_programs import random_program

from jaxops.compiler import pipeline
from jaxops.compiler.axis_rules import independent_axes, transposed_params
from jaxops.compiler.passes import concat_in_place, lazy_moves
from jaxops.compiler.passes.lazy_moves import LazyTranspose, inverse
from jaxops.compiler.pipeline import LIST, PASSES, REQUIRED, Entry, specialize, without
from jaxops.kernels.dequantize import Quantized

OPTIONAL = [entry.name for entry in LIST if entry.name not in REQUIRED]
# Module below jaxops.compiler → its thresholds, and what they are at least.
THRESHOLDS = {
    "passes.concat_in_place": {"_FEWEST": 2},
    "passes.block_attention": {"_LARGE": 0, "_BLOCK": 96},
    "passes.lift_scalars": {"_MOST": 10**9, "_RARE": 1.0},
    "passes.lift_tables": {"TABLE": 12},
    "passes.sink_transposes": {"_moves_channels": lambda batch, perm: True},
    "passes.select_reductions": {
        "_SHORTEST": 2,
        "_FEWEST_ROWS": 2,
        "_VECTOR": 1,
        "_LONGEST": 3,
        "_SLICES": 3,
    },
    "partition.weight_only": {"_SMALL": 0, "TABLE": 12},
    "partition.repeated_layers": {"_FEW": 2, "_LEAST_WORK": 1, "_WORTH": 0, "_HALVED": 0, "_VARIED": 0, "_SPARED": 0},
}


@pytest.fixture(autouse=True)
def _least(monkeypatch):
    for module, thresholds in THRESHOLDS.items():
        for name, value in thresholds.items():
            monkeypatch.setattr(f"jaxops.compiler.{module}.{name}", value)


@contextlib.contextmanager
def only(*names):
    """Nothing else runs of what may be left out."""
    with without(*(name for name in OPTIONAL if name not in names)):
        yield


class Case:
    """A random program."""

    def __init__(self, seed):
        fn, (x, w) = random_program(seed)
        self.arguments = [w], [x]
        self.expected = jax.jit(fn)(x, w)
        self.closed = jax.make_jaxpr(lambda w, x: fn(x, w))(w, x)

    def specialized(self, *names):
        """A function of (weights, inputs) made with these entries alone, and its text. Each step is verified."""
        with only(*names):
            found = specialize(self.closed, 1, TARGET)

        def run(weights, inputs):
            return found.run(found.prepare(weights), [weights[k] for k in found.read], inputs)

        return run, f"{type(found.run)} {found.prepare.types} {jax.make_jaxpr(run)(*self.arguments)}"

    def problem(self, *names):
        """What is wrong with it when these entries alone run; None where nothing is."""
        try:
            run, _ = self.specialized(*names)
        except (AssertionError, TypeError) as error:  # by `verify`, or of sizes that do not fit
            return str(error)
        for y, z in zip(jax.jit(run)(*self.arguments), self.expected, strict=True):
            if (y.shape, y.dtype) != (z.shape, z.dtype):
                return f"{y.dtype}{y.shape} for {z.dtype}{z.shape}"
            if not np.allclose(y, z, rtol=2e-4, atol=2e-4, equal_nan=True):
                return f"differs by {np.max(np.abs(y - z))}"
        return None


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(60))
def test_each_entry_alone_and_all_together(seed):
    case, seen = Case(seed), set()
    for names in ((), *([name] for name in OPTIONAL), OPTIONAL):
        _, text = case.specialized(*names)
        if text not in seen:  # it does something
            seen.add(text)
            assert (names, case.problem(*names)) == (names, None)


def test_each_entry_changes_some_of_the_programs():
    changed = Counter()
    for case in map(Case, range(100, 112)):
        _, plain = case.specialized()
        changed.update(name for name in OPTIONAL if case.specialized(name)[1] != plain)
    # That one works where weights are not prepared, as they are here; test_fold_transposes.py has its tests.
    assert set(changed) == set(OPTIONAL) - {"fold inner transposes"}


def forgets(program, target):
    """Leaves out the last operation but one."""
    return program.replace(operations=[*program.operations[:-2], *program.operations[-1:]])


def swaps(program, target):
    """The operands of a subtraction, as if it were a sum."""
    return program.replace(
        operations=[
            dataclasses.replace(o, operands=o.operands[::-1]) if o.name == "sub" else o for o in program.operations
        ]
    )


def narrows(program, target):
    """Notes another type."""
    last = program.operations[-1].results[0]
    types = [t.update(dtype=np.dtype(np.float16)) if v == last else t for v, t in enumerate(program.types)]
    return program.replace(types=types)


def doubles(program, target):
    """Runs the first operation once more, behind all others."""
    return program.replace(operations=[*program.operations, program.operations[0]])


@pytest.mark.parametrize("wrong", [forgets, swaps, narrows, doubles])
def test_a_wrong_pass_is_found(wrong, monkeypatch):
    monkeypatch.setattr(pipeline, "PASSES", (*PASSES, Entry("wrong", wrong)))
    assert found_in(40)


WRONG = {
    "a zero point that is left out": (
        "integer products",
        "integer_products.Quantized",
        lambda operands, axis, plain=Quantized: plain(operands[:2], axis),
    ),
    "a permutation that is not inverted": (
        "sink transposes",
        "sink_transposes.transposed_params",
        lambda params, perm: transposed_params(params, inverse(perm)),
    ),
    "a transposed reduction of other axes": (
        "sink transposes",
        "sink_transposes._lazily",
        lambda array, perm: array if perm == tuple(range(len(perm))) else LazyTranspose(array, inverse(perm)),
    ),
    "one number for all": ("lift scalar constants", "lift_scalars.fingerprint", lambda value, otherwise: ""),
    "parts in another order": (
        "concat in place",
        "concat_in_place._growing",
        lambda program, plain=concat_in_place._growing: [
            [step._replace(parts=step.parts[::-1]) for step in steps] for steps in plain(program)
        ],
    ),
    "slices that miss a row": (
        "select reductions",
        "select_reductions._between_slices",
        lambda pair, x, axis: lax.slice_in_dim(x, 0, max(1, x.shape[axis] // 2), axis=axis),
    ),
    "a batch of one operand alone": (
        "block attention",
        "block_attention.independent_axes",
        lambda name, params, operands, result: [
            axis._replace(operands=(axis.operands[0], None)) if name == "dot_general" else axis
            for axis in independent_axes(name, params, operands, result)
        ],
    ),
    "blocks of other rows": (
        "block attention",
        "loop_over_blocks._cut",
        lambda x, axis, start, step: (
            x if axis is None else lax.slice_in_dim(lazy_moves.materialize(x), 0, step, axis=axis)
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_in_an_entry_is_found(name, monkeypatch):
    entry, attribute, replacement = WRONG[name]
    monkeypatch.setattr(f"jaxops.compiler.passes.{attribute}", replacement)
    assert found_in(40, entry)


def found_in(count, *names):
    """Whether one of so many programs has a problem."""
    return any(Case(seed).problem(*names) for seed in range(count))
