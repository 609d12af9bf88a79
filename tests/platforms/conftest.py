"""The modules of this folder stand beside each other, as one is a script; the platforms whose compilers are here."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from absent_devices import missing


@pytest.fixture(params=["cuda", "tpu"])
def platform(request):
    """A platform whose compiler is here; that of a TPU takes a minute and 690 MB, and so runs with `--all` alone."""
    if request.param == "tpu" and not request.config.getoption("all"):
        pytest.skip("the compiler of a TPU runs with --all")
    if reason := missing(request.param):
        pytest.skip(reason)
    return request.param
