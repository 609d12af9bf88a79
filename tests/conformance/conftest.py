"""Where the standard's runner keeps its models."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def onnx_home(tmp_path_factory):
    """The runner copies the light models to this folder: one a worker, as two would race for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_HOME", str(tmp_path_factory.mktemp("onnx")))
        yield
