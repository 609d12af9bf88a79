"""The standard's own test suite, all of it, twice: compiled and operator by operator.

`passing.txt` lists what must pass, a name a line; `name op_by_op` passes only that way, as what it computes has a
size that depends on data. A listed case that fails fails the run, and so does an unlisted one that passes: list it.
`python tests/conformance/test_onnx_suite.py` writes the list anew.
"""

import multiprocessing
import os
import tempfile
import unittest
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import jaxops.onnx.backend

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the cases are made at import, with overflows on purpose
    from onnx.backend.test.runner import Runner

LIST = Path(__file__).with_name("passing.txt")
MODES = {"jit": True, "op_by_op": False}


def read_list() -> dict[str, set[str]]:
    """Name → the modes in which it must pass."""
    lines = [line.split() for line in LIST.read_text().splitlines()]
    return {name: set(modes) or set(MODES) for name, *modes in lines}


def cases(compiled: bool) -> dict[str, tuple[str, object]]:
    """Name → (kind, function) of every case for the CPU, as the standard's runner makes them."""

    class Backend(jaxops.onnx.backend.JaxopsBackend):
        @classmethod
        def prepare(cls, model, device="CPU", **kwargs):
            return super().prepare(model, device, compiled=compiled)

    items = Runner(Backend)._test_items
    found = {}
    for kind, by_name in items.items():
        for name, item in by_name.items():
            if name.endswith("_cpu"):
                found[name.removesuffix("_cpu")] = (kind.removesuffix("Model"), item.func)
    return found


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    CASES = {mode: cases(compiled) for mode, compiled in MODES.items()}
LISTED = read_list()


def run(mode: str, name: str) -> None:
    try:
        CASES[mode][name][1](None)
    except unittest.SkipTest as skip:  # it would pass for an expected failure, or for no failure at all
        raise AssertionError(f"{name} was skipped: {skip}") from skip


def test_the_list_names_only_cases_of_the_suite():
    assert set(LISTED) <= set(CASES["jit"])
    assert len(CASES["jit"]) > 1500


@pytest.mark.parametrize("name", ["test_relu", "test_not_in_the_list"])
def test_a_case_that_is_skipped_did_not_pass(name, monkeypatch):
    monkeypatch.setitem(CASES["jit"], name, ("Node", unittest.skip("no such device")(lambda self: None)))
    with pytest.raises(AssertionError if name in LISTED else pytest.xfail.Exception, match="no such device"):
        test_case(name, "jit")


@pytest.fixture(autouse=True, scope="session")
def onnx_home(tmp_path_factory):
    """The runner copies the light models to this folder: one a worker, as two would race for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_HOME", str(tmp_path_factory.mktemp("onnx")))
        yield


@pytest.mark.filterwarnings("ignore")  # the cases cast and divide out of range on purpose
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(CASES["jit"]))
def test_case(name, mode):
    if mode in LISTED.get(name, ()):
        run(mode, name)
        return
    try:
        run(mode, name)
    except Exception as error:
        pytest.xfail(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    pytest.fail(f"{name} passes {mode} but is not listed in {LIST.name}: add it")


def write_list() -> None:
    """Runs everything and writes the list; what was listed and no longer passes is printed."""
    os.environ["ONNX_HOME"] = tempfile.mkdtemp()
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        results = dict(zip(sorted(CASES["jit"]), pool.map(_outcome, sorted(CASES["jit"]), chunksize=16), strict=True))
    lines = []
    for name, outcome in results.items():
        passed = [mode for mode in MODES if outcome[mode] is None]
        if passed:
            lines.append(name if len(passed) == len(MODES) else f"{name} {' '.join(passed)}")
        lost = LISTED.get(name, set()) - set(passed)
        for mode in sorted(lost):
            print(f"no longer passes: {name} {mode}: {outcome[mode]}")
    LIST.write_text("\n".join(lines) + "\n")
    for mode in MODES:
        kinds = [CASES[mode][name][0] for name in results]
        for kind in sorted(set(kinds)):
            named = [name for name, k in zip(results, kinds, strict=True) if k == kind]
            print(f"{mode:9}{kind:18}{sum(results[n][mode] is None for n in named)} of {len(named)}")
    Path(tempfile.gettempdir(), "failures.txt").write_text(
        "\n".join(f"{n}\t{m}\t{o[m]}" for n, o in results.items() for m in MODES if o[m] is not None)
    )


def _outcome(name: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mode in MODES:
            try:
                run(mode, name)
                found[mode] = None
            except Exception as error:
                found[mode] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return found


if __name__ == "__main__":
    write_list()
