"""A small model for the tests of commands, and no cache of programs."""

import pytest
from onnx import parser, save

TEXT = """
<ir_version: 9, opset_import: ["": 18]>
sums (float[N, 3] x, int64[N, 3] k) => (float[N] total)
{
    y = Cast <to = 1> (k)
    z = Add (x, y)
    axes = Constant <value_ints = [1]> ()
    total = ReduceSum <keepdims = 0> (z, axes)
}
"""


@pytest.fixture(autouse=True)
def _without_cache(monkeypatch):
    """`run` would keep programs in the home of who tests; test_disk_cache.py looks at that."""
    monkeypatch.setattr("jaxops.frontend.loading.keep_programs", lambda folder: None)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "sums.onnx"
    save(parser.parse_model(TEXT), path)
    return path
