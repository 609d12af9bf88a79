"""The standard's own test suite, all of it, twice: compiled and operator by operator.

`passing.txt` lists what must pass, a name a line. `name op_by_op pieces` has a size that depends on data: it is no one
program under `jit`, but `model(…)` runs it in compiled pieces. `name op_by_op` passes only that way. A listed case that
fails fails the run, and so does an unlisted one that passes: list it.
`python tests/conformance/test_onnx_suite.py` writes the list anew.
"""

import multiprocessing
import os
import tempfile
import unittest
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_suite import LIST, RUNNING, SuiteRunner, cases, read_list

import jaxops.onnx.backend

MODES = {"jit": True, "op_by_op": False}
PREPARED = []  # by the running case


def backend(compiled: bool):
    class Compiled(jaxops.onnx.backend.JaxopsBackend):
        @classmethod
        def prepare(cls, model, device="CPU", **kwargs):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="MaxUnpool")  # that its suite and its text differ
                PREPARED.append(super().prepare(model, device, compiled=compiled))
            return PREPARED[-1]

    return Compiled


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    CASES = {mode: cases(backend(compiled)) for mode, compiled in MODES.items()}
LISTED = read_list(MODES)
# Why a case passes in no mode. Those that pass op by op and in pieces have a size that depends on data.
RANDOM = "draws random numbers: no key is given, and no other generator makes the numbers that the case expects"
EXCEPTIONS = {f"test_bernoulli{kind}{form}": RANDOM for kind in ("", "_double", "_seed") for form in ("", "_expanded")}


def run(mode: str, name: str) -> str:
    """The mode in which the case passed: compiled ones may have been cut into pieces."""
    PREPARED.clear()
    RUNNING[:] = [name]
    try:
        CASES[mode][name][1](None)
    except unittest.SkipTest as skip:  # it would pass for an expected failure, or for no failure at all
        raise AssertionError(f"{name} was skipped: {skip}") from skip
    return "pieces" if any(ready.model._function.runner.cuts for ready in PREPARED) else mode


def test_the_list_names_only_cases_of_the_suite():
    assert set(LISTED) <= set(CASES["jit"])
    assert len(CASES["jit"]) > 1500


@pytest.mark.skipif(not onnx.__version__.startswith("1.23."), reason="another onnx has other cases")
def test_each_exception_has_its_reason():
    assert set(CASES["jit"]) - set(LISTED) == set(EXCEPTIONS)
    assert {frozenset(modes) for modes in LISTED.values()} == {frozenset(MODES), frozenset({"op_by_op", "pieces"})}


@pytest.mark.parametrize("name", ["test_relu", "test_not_in_the_list"])
def test_a_case_that_is_skipped_did_not_pass(name, monkeypatch):
    monkeypatch.setitem(CASES["jit"], name, ("Node", unittest.skip("no such device")(lambda self: None)))
    with pytest.raises(AssertionError if name in LISTED else pytest.xfail.Exception, match="no such device"):
        test_case(name, "jit")


def test_an_item_of_a_sequence_is_compared():
    expected = [[np.zeros((), np.float32), np.ones(2, np.float32)]]
    SuiteRunner.assert_similar_outputs(expected, (list(expected[0]),), 1e-3, 1e-7)
    for position, wrong in ((0, np.float32(1)), (0, np.zeros(1, np.float32)), (1, np.ones(2)), (0, [np.float32(0)])):
        found = [wrong if i == position else item for i, item in enumerate(expected[0])]
        with pytest.raises(AssertionError):
            SuiteRunner.assert_similar_outputs(expected, (found,), 1e-3, 1e-7)


def param(name: str, mode: str):
    """XLA's older emitters cast to float8 FNUZ wrongly."""
    marks = [pytest.mark.optimized] if "FNUZ" in name else []
    return pytest.param(name, mode, marks=marks, id=f"{name}-{mode}")


@pytest.mark.filterwarnings("ignore")  # the cases cast and divide out of range on purpose
@pytest.mark.parametrize(("name", "mode"), [param(name, mode) for name in sorted(CASES["jit"]) for mode in MODES])
def test_case(name, mode):
    wanted = LISTED.get(name, set()) & ({"jit", "pieces"} if mode == "jit" else {mode})
    try:
        passed = run(mode, name)
    except Exception as error:
        if wanted:
            raise
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        pytest.xfail(f"{EXCEPTIONS.get(name, 'not looked at yet')}: {text}")
    assert {passed} == wanted, f"{name} passes {passed}, which {LIST.name} does not say"


def write_list() -> None:
    """Runs everything and writes the list; what was listed and no longer passes is printed."""
    os.environ["ONNX_HOME"] = tempfile.mkdtemp()
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        results = dict(zip(sorted(CASES["jit"]), pool.map(_outcome, sorted(CASES["jit"]), chunksize=16), strict=True))
    lines = []
    for name, outcome in results.items():
        passed = {mode for mode, problem in outcome.items() if problem is None}
        if passed:
            lines.append(name if passed == set(MODES) else f"{name} {' '.join(sorted(passed))}")
        for mode in sorted(LISTED.get(name, set()) - passed):
            print(f"no longer passes: {name} {mode}: {outcome.get(mode)}")
    LIST.write_text("\n".join(lines) + "\n")
    for mode in (*MODES, "pieces"):
        kinds = [CASES["jit"][name][0] for name in results]
        for kind in sorted(set(kinds)):
            named = [name for name, k in zip(results, kinds, strict=True) if k == kind]
            passed = sum(mode in results[n] and results[n][mode] is None for n in named)
            print(f"{mode:9}{kind:18}{passed} of {len(named)}")
    Path(tempfile.gettempdir(), "failures.txt").write_text(
        "\n".join(f"{n}\t{m}\t{o[m]}" for n, o in results.items() for m in o if o[m] is not None)
    )


def _outcome(name: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mode in MODES:
            try:
                found[run(mode, name)] = None
            except Exception as error:
                found[mode] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return found


if __name__ == "__main__":
    write_list()
