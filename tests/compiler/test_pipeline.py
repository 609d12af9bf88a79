"""The list of what happens to a program: its order, what is left out of it, and what it says of itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxops.compiler import pipeline
from jaxops.compiler.ir import Program
from jaxops.compiler.pipeline import LIST, PASSES, REQUIRED, RULES, Entry, recorded, skipped, specialize, without
from jaxops.kernels.target import Target

RNG = np.random.default_rng(0)
CPU, GPU = (
    Target(platform, cores=2, specialized=True, prepared=True, compiled_here=True) for platform in ("cpu", "gpu")
)
WEIGHTS = [RNG.standard_normal((4, 3, 1, 1), np.float32), RNG.random(4, np.float32) + 0.5]
X = RNG.standard_normal((2, 3, 8, 8), np.float32)


def network(w, variance, x):
    """A convolution with channels last, and its normalization."""
    y = lax.transpose(lax.conv(x, jax.jit(jnp.negative)(w), (1, 1), "VALID"), (0, 2, 3, 1))
    y = lax.transpose(y * lax.rsqrt(variance + 1e-5)[None, None, None], (0, 3, 1, 2))
    return y.max((2, 3)), y


def specialized(target=CPU):
    return specialize(jax.make_jaxpr(network)(*WEIGHTS, X), 2, target)


def close(outputs):
    for y, expected in zip(outputs, network(*WEIGHTS, X), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_each_entry_stands_behind_those_that_it_must_follow():
    names = [entry.name for entry in LIST]
    assert len(set(names)) == len(names)
    for position, entry in enumerate(LIST):
        assert set(entry.after) <= set(names[:position]), entry.name
        assert entry.why


def test_two_pure_functions_compute_what_one_did():
    """Each also under the user's own `jit`, and traced by `grad`."""
    found = specialized()
    prepared = found.prepare(WEIGHTS)
    assert len(prepared) == 2
    assert found.read == ()
    close(found.run(prepared, [], [X]))
    close(jax.jit(lambda weights, x: found.run(found.prepare(weights), [], [x]))(WEIGHTS, X))
    gradient = jax.grad(lambda x: found.run(prepared, [], [x])[1].sum())(X)
    np.testing.assert_allclose(gradient, jax.grad(lambda x: network(*WEIGHTS, x)[1].sum())(X), rtol=1e-5, atol=1e-6)


def test_equal_programs_are_specialized_alike():
    """Nothing but the arguments decides: neither what was specialized before, nor the identity of an object."""
    texts = [
        str(jax.make_jaxpr(found.run)(found.prepare(WEIGHTS), [], [X])) for found in (specialized(), specialized())
    ]
    assert texts[0] == texts[1]
    assert specialized().prepare.expressions == specialized().prepare.expressions


def test_an_entry_runs_on_its_platforms():
    for target in (CPU, GPU):
        with recorded() as rows:
            close(specialized(target).run(specialized(target).prepare(WEIGHTS), [], [X]))
        run = {row.name for row in rows}
        assert run == {entry.name for entry in LIST if target.platform in (entry.platforms or (target.platform,))}
    assert {"block attention", "sink transposes"} <= run
    assert "concat in place" not in run


@pytest.mark.parametrize("name", [entry.name for entry in LIST if entry.name not in REQUIRED])
def test_without_an_entry(name):
    with without(name), recorded() as rows:
        found = specialized()
    close(found.run(found.prepare(WEIGHTS), [], [X]))
    assert name not in {row.name for row in rows}
    assert not skipped()


def test_entries_left_out_add_up():
    with without("keep order"), without("sink transposes"):
        assert skipped() == {"keep order", "sink transposes"}


@pytest.mark.parametrize("name", ["sink the transposes", *sorted(REQUIRED)])
def test_a_name_that_cannot_be_left_out_is_told(name):
    with pytest.raises(KeyError, match=f"no entry of the pipeline to leave out: .*{name}"), without(name):
        pass


def test_rows_say_what_each_entry_did():
    with recorded() as rows:
        specialized()
    by_name = {row.name: row for row in rows}
    assert list(by_name) == [entry.name for entry in LIST]
    assert by_name["inline calls"].before == by_name["inline calls"].after == len(Program.of(traced()).operations)
    assert by_name["split weights"].after == by_name["split weights"].before - 3  # negated, plus epsilon, rsqrt
    assert by_name["sink transposes"].after < by_name["sink transposes"].before
    assert all(row.seconds is None for row in rows if row.name in {rule.name for rule in RULES})
    assert all(row.seconds > 0 for row in rows if row.name in {entry.name for entry in PASSES})


def traced():
    return jax.make_jaxpr(network)(*WEIGHTS, X)


def test_a_wrong_pass_is_told_by_its_name(monkeypatch):
    def forgets(program, target):
        return program.replace(operations=program.operations[1:])

    monkeypatch.setattr(pipeline, "PASSES", (*PASSES, Entry("forget", forgets)))
    with jax.enable_checks(False):
        specialize(traced(), 2, CPU)
    with pytest.raises(AssertionError, match=r"after 'forget': operation .* which nothing"):
        specialize(traced(), 2, CPU)
